"""What outlives every process: the rows, and the rules of the SQL tables and functions, by subject."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from easeml_db.simulated.arm_table import ArmTable
from easeml_db.simulated.plan_table import PlanTable
from easeml_db.simulated.rows import Rows, ScoreOf
from easeml_db.simulated.run_table import RunTable
from easeml_db.simulated.search_table import SearchTable
from easeml_db.simulated.unit_table import UnitTable
from easeml_db.words.run import Run


class Tables(Rows):
    """Rows with their rules."""

    def __init__(self, runs: Iterable[Run], *, quality_of: Callable[[int, int], float], score_of: ScoreOf) -> None:
        super().__init__()
        self.arms = ArmTable(self, quality_of)
        self.runs = RunTable(self, self.arms, score_of)
        self.searches = SearchTable(self, score_of)
        self.recorder = UnitTable(self)
        self.plans_table = PlanTable(self)
        for run in runs:
            self.runs.add_run(run)
