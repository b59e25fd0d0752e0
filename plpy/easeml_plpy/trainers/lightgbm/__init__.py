"""LightGBM's boosted trees: their architecture, their training, and the checks of their texts."""

from __future__ import annotations

from typing import ClassVar

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.size import Size
from easeml_plpy.states.checkpoint import Payload, load
from easeml_plpy.trainers.contract import Blueprint, Library
from easeml_plpy.trainers.lightgbm.architecture import ARCHITECTURE, LightGBMParameters, n_margins
from easeml_plpy.trainers.lightgbm.memory import BINNED_NUMBER_BYTES, MARGIN_BYTES, binning_bytes
from easeml_plpy.trainers.lightgbm.texts import check_trees
from easeml_plpy.trainers.lightgbm.trial import LightGBMTrial
from easeml_plpy.trainers.trees.tree_trainer import TreeTrainer


class LightGBMTrainer(TreeTrainer[LightGBMTrial, LightGBMParameters]):
    """Starts and resumes LightGBMTrials."""

    # A session that has not seen a trial for some epochs adds up the trees that came since.
    has_growing_epochs: ClassVar[bool] = True

    def needed_bytes(self, size: Size, config: Config, n_rows: int) -> int:
        """See Trainer."""
        return super().needed_bytes(size, config, n_rows) + binning_bytes(n_rows, size.n_outputs_a_row)

    def check_foreign(self, blueprint: Blueprint, payload: Payload) -> None:
        """See Trainer. LightGBM trusts its texts, and would read other memory or end the process."""
        for text in load(payload).arrays.values():
            check_trees(text.tobytes().decode(), blueprint.task.n_features, n_margins(blueprint.task))


# The name of the trainer stands in the states of all trials since 0.1.0, when there was no other boosting library.
TRAINER = LightGBMTrainer(
    LightGBMTrial, LightGBMParameters, "lightgbm", number_bytes=BINNED_NUMBER_BYTES, sum_bytes=MARGIN_BYTES
)
LIGHTGBM = Library({"boosting": TRAINER}, (ARCHITECTURE,))
