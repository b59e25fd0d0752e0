"""Long short-term memory over trees (Tai et al., 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from easeml_plpy.architectures.trees.design import tree_architecture
from easeml_plpy.columns.task import Objects

if TYPE_CHECKING:
    from easeml_plpy.architectures.trees.modules import Cell


def _cell(objects: Objects, width: int) -> Cell:
    from easeml_plpy.architectures.trees.modules import LSTMCell

    return LSTMCell(objects, width)


def _gates(n_links: int) -> tuple[int, int]:
    return 3 + n_links, 3 + n_links


TREE_LSTM = tree_architecture("tree_lstm", "LSTM over trees, which forgets by each link apart", _cell, _gates)
