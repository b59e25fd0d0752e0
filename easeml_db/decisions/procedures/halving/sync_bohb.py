"""BOHB, synchronous: a bracket begins, with all its trials at once, when the one before has ended.

So what the model knows, and with it every config, does not depend on the order in which trials end.
"""

from __future__ import annotations

from typing import ClassVar

from easeml_db.decisions.procedures.contract import Description
from easeml_db.decisions.procedures.halving.bohb import BohbProcedure


class SyncBohbProcedure(BohbProcedure):
    """The next bracket begins when nothing is in training: then, and only then, the one before has ended."""

    description: ClassVar[Description] = Description(
        "BOHB one bracket after the other: the same trials whatever the order in which they end",
        options=("eta", "min_epochs"),
    )
    starts_whole_brackets = True

    def _width(self) -> int:
        return 1
