"""What a node tells of the images that it holds is believed only where it can be true."""

from __future__ import annotations

import numpy as np
import pytest

from easeml_plpy.packing.on_nodes.images_in_memory import TOLD_ROW
from easeml_plpy.packing.on_nodes.places_in_memory import rows_told
from easeml_plpy.packing.on_nodes.request import array_text
from easeml_plpy.server.errors import InvalidData


def told(codes: list[int], n: int) -> dict:
    rows = np.zeros(len(codes), TOLD_ROW)
    rows["code"], rows["hash"] = codes, range(len(codes))
    return {"segment": "east", "n": n, "labels": ["a", "b"], "rows": array_text(rows)}


def test_rows_come_as_they_were_told() -> None:
    rows = rows_told(told([1, 0, 1], 3))
    assert rows["code"].tolist() == [1, 0, 1]
    assert rows["hash"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(("codes", "n"), [([0, 2], 2), ([0, -1], 2), ([0, 1], 3), ([], 0)])
def test_rows_that_a_node_cannot_have_are_refused(codes: list[int], n: int) -> None:
    with pytest.raises(InvalidData, match="segment east tells of other rows than it has"):
        rows_told(told(codes, n))
