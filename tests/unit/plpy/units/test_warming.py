"""What a slot's session imports before its first unit."""

from __future__ import annotations

import subprocess
import sys

SERVER = """
import easeml_plpy
class Server:
    SPIError = Exception
    def prepare(self, sql, types):
        return sql
    def execute(self, plan, values):
        return [{"version": easeml_plpy.__version__}]
"""
WARM = """
import gc, sys
from easeml_plpy.units.warming import warm_up
warm_up(Server(), {})
assert gc.isenabled()
print(*(name in sys.modules for name in ("torch", "easeml_plpy.units.training",
    "easeml_plpy.units.gang", "sklearn", "pandas")))
"""
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from easeml_plpy.units.warming import warm_up
warm_up(Server(), {})
"""


def run(script: str) -> str:
    command = [sys.executable, "-c", SERVER + script]
    return subprocess.run(command, cwd="/", check=True, capture_output=True, text=True).stdout


def test_torch_is_imported_and_scikit_learn_is_left_to_trials_that_need_it() -> None:
    assert run(WARM).split() == ["True", "True", "True", "False", "False"]


def test_a_missing_package_is_left_for_the_first_unit_to_report() -> None:
    run(WITHOUT_TORCH)
