"""scikit-learn's forests: their architectures and their training."""

from __future__ import annotations

from easeml_plpy.architectures.size import FLOAT32_BYTES, FLOAT64_BYTES
from easeml_plpy.trainers.contract import Library
from easeml_plpy.trainers.forests.architecture import EXTRA_TREES, RANDOM_FOREST, ForestParameters
from easeml_plpy.trainers.forests.trial import ForestTrial
from easeml_plpy.trainers.trees.tree_trainer import TreeTrainer

# Rows are there in the precision of their row form and in that in which trees compare them.
FORESTS = Library(
    {"forest": TreeTrainer(ForestTrial, ForestParameters, "sklearn.tree", number_bytes=FLOAT32_BYTES + FLOAT64_BYTES)},
    (EXTRA_TREES, RANDOM_FOREST),
)
