"""scikit-learn's forests: their architectures and their training."""

from __future__ import annotations

from easeml_plpy.architectures.size import FLOAT32_BYTES, FLOAT64_BYTES
from easeml_plpy.trainers.contract import Library
from easeml_plpy.trainers.forests.architecture import EXTRA_TREES, RANDOM_FOREST, ForestParameters
from easeml_plpy.trainers.forests.trial import ForestTrial
from easeml_plpy.trainers.trees.tree_trainer import TreeTrainer

# Rows are there in the precision of their row form and in that in which trees compare them. Of the sums, those of the
# rows that measure the loss or the trial are there three times.
FOREST = TreeTrainer(
    ForestTrial, ForestParameters, "sklearn.tree", number_bytes=FLOAT32_BYTES + FLOAT64_BYTES, sum_bytes=24
)
FORESTS = Library(
    {"forest": FOREST},
    (EXTRA_TREES, RANDOM_FOREST),
)
