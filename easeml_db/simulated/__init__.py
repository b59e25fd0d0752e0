"""The coordinator's world in memory: the same ports on a simulated clock, which advances only when every process is
waiting.

rows.py      rows of every table, and the lease
run_table.py arm_table.py search_table.py unit_table.py   the rules of the SQL tables and functions, by subject
tables.py    all of them together
plan_table.py cloud.py   plans and instances, and the provider who has these
new_runs.py  runs as a user would ask for them
faults.py    how long units take, and what goes wrong with them
time.py      the clock, and what happens when
world.py     tables, slots that break, who holds the lock, and what users do
life.py      one coordinator process, which can be killed at any call
stores.py plan_stores.py executor.py process.py   its ports, a class each
"""

from easeml_db.simulated.cloud import CloudFaults
from easeml_db.simulated.faults import Faults
from easeml_db.simulated.life import Killed
from easeml_db.simulated.new_runs import new_run
from easeml_db.simulated.process import SimulatedProcess
from easeml_db.simulated.rows import BrokenRule, RecordedUnit
from easeml_db.simulated.tables import Tables
from easeml_db.simulated.world import SimulatedWorld

__all__ = [
    "BrokenRule",
    "CloudFaults",
    "Faults",
    "Killed",
    "RecordedUnit",
    "SimulatedProcess",
    "SimulatedWorld",
    "Tables",
    "new_run",
]
