"""The world of the coordinator in memory: the same ports on a clock that moves only while somebody waits.

tables.py    what the SQL tables and functions hold to, and nothing else
process.py   one coordinator process: Store, Executor, Inbox and Clock; it can be killed at any call
world.py     the clock, what happens when, slots that break, and who holds the lease
"""

from easeml_db.simulated.process import Killed, SimulatedProcess
from easeml_db.simulated.tables import BrokenRule, RecordedUnit, Tables, new_run
from easeml_db.simulated.world import Faults, SimulatedWorld

__all__ = ["BrokenRule", "Faults", "Killed", "RecordedUnit", "SimulatedProcess", "SimulatedWorld", "Tables", "new_run"]
