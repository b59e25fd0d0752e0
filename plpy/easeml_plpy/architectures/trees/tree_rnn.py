"""A recursive network over trees (Socher et al., 2011), with weights for each link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from easeml_plpy.architectures.trees.design import tree_architecture
from easeml_plpy.columns.task import Objects

if TYPE_CHECKING:
    from easeml_plpy.architectures.trees.modules import Cell


def _cell(objects: Objects, width: int) -> Cell:
    from easeml_plpy.architectures.trees.modules import RecursiveCell

    return RecursiveCell(objects, width)


def _gates(n_links: int) -> tuple[int, int]:
    return 1, 1


TREE_RNN = tree_architecture("tree_rnn", "recursive network over trees, from the leaves to the root", _cell, _gates)
