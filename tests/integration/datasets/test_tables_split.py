"""The experiment on real tables knows which rows the product put into which split."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from easeml_experiments.tables import loading, splitting
from easeml_experiments.tables.table import Table

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_ROWS = 400


def test_rows_that_found_room_on_an_earlier_page_keep_their_split(database: Session) -> None:
    tenant = database.as_role("anna", "easeml_tenant")
    database.execute("GRANT CREATE ON SCHEMA public TO anna")
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefgh "), size)) for size in rng.choice([5, 1900], N_ROWS)]
    frame = pd.DataFrame({"words": words, "number": rng.normal(size=N_ROWS), "target": rng.normal(size=N_ROWS)})
    table = Table("essays", "text", "none", "target", "regression", lambda: frame)
    loading.load(tenant, table, frame)
    places = tenant.values("SELECT row_number FROM essays ORDER BY ctid")
    assert places != sorted(places), "the rows lie in their order, so this shows nothing"

    splits = splitting.split_of(tenant, table, table.inputs(frame), 7)
    splitting.pack(tenant, table, table.inputs(frame), 7)

    assert set(splits) == {"train", "test"}  # so few rows are in folds
    for split in ("train", "test"):
        blocks = database.values("SELECT targets FROM easeml.blocks WHERE split = %s", split)
        packed = np.concatenate([np.frombuffer(block, "<f8") for block in blocks])
        assert sorted(packed) == sorted(frame["target"][splits == split])
