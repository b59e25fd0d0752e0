"""Sessions of the tests' own servers: libraries lie in memory, and a session has none before it imports it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.warm_coordinator import SOURCE
from tests.warm_server import HASH_SEED

if TYPE_CHECKING:
    from tests.conftest import Session

BODY = """
CREATE FUNCTION pg_temp.look() RETURNS text LANGUAGE plpython3u AS $$
import json, sys
def known():
    return [name for name in ("numpy", "torch", "torch.nn", "sklearn", "pandas", "lightgbm") if name in sys.modules]
with open("/proc/self/maps") as file:
    is_mapped = "libtorch" in file.read()
told = {"is_mapped": is_mapped, "begins_with": known()}
from importlib.util import find_spec
told["folder"], told["after_looking"] = find_spec("lightgbm").submodule_search_locations[0], known()
import torch.nn
told["after_torch"], told["origin"] = known(), torch.__spec__.origin
from sklearn.linear_model import SGDClassifier
told["after_sklearn"] = sorted(set(known()) - {"pandas"})
return json.dumps(told)
$$
"""


@pytest.fixture(scope="module")
def told(module_database: Session) -> dict[str, Any]:
    """What a fresh session says about its modules."""
    session = module_database.again()
    session.execute(BODY)
    found: dict[str, Any] = json.loads(session.value("SELECT pg_temp.look()"))
    return found


def test_a_session_begins_without_libraries_and_an_import_brings_no_other(told: dict[str, Any]) -> None:
    assert told["begins_with"] == []
    assert told["after_torch"] == ["numpy", "torch", "torch.nn"]
    assert told["after_sklearn"] == ["numpy", "sklearn", "torch", "torch.nn"]


def test_a_library_that_is_looked_for_is_found_on_disk_and_not_imported(told: dict[str, Any]) -> None:
    assert told["folder"].endswith("/lightgbm")
    assert told["after_looking"] == []


def test_a_library_from_memory_knows_where_it_came_from(told: dict[str, Any]) -> None:
    assert told["origin"].endswith("torch/__init__.py")


def test_the_libraries_are_in_memory_unless_the_tests_run_cold(
    told: dict[str, Any], pytestconfig: pytest.Config
) -> None:
    assert told["is_mapped"] == bool(shutil.which("cc") and not pytestconfig.getoption("--cold-sessions"))


@pytest.mark.parametrize("name", ["session", "packing", "prediction", "warming", "training"])
def test_a_session_imports_those_modules_of_the_product_that_a_cold_one_imports(
    module_database: Session, name: str
) -> None:
    code = f"import json, sys, easeml_plpy.{name}\nfrom easeml_plpy import {name}"
    known = "json.dumps([each for each in sys.modules if each.startswith('easeml_plpy') or each in ('numpy', 'torch')])"
    session = module_database.again()
    body = f"$$\n{code}\nreturn {known}\n$$"
    session.execute(f"CREATE FUNCTION pg_temp.look() RETURNS text LANGUAGE plpython3u AS {body}")
    warm = json.loads(session.value("SELECT pg_temp.look()"))
    command = [sys.executable, "-c", f"{code}\nprint({known})"]
    cold = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd="/").stdout)
    assert sorted(warm) == sorted(cold)


def test_sessions_share_the_hashes_of_this_run_of_the_tests(
    module_database: Session, pytestconfig: pytest.Config
) -> None:
    """A run that failed because of the order of a set is repeated with the seed that it told."""
    look = (
        "CREATE FUNCTION pg_temp.look() RETURNS text LANGUAGE plpython3u AS"
        " $$ return ' '.join({f'name{k}' for k in range(20)}) $$"
    )
    found = []
    for session in (module_database.again(), module_database.again()):
        session.execute(look)
        found.append(session.value("SELECT pg_temp.look()"))
    code = "print(' '.join({f'name{k}' for k in range(20)}))"
    environment = os.environ | {"PYTHONHASHSEED": os.environ[HASH_SEED]}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    is_warm = bool(shutil.which("cc") and not pytestconfig.getoption("--cold-sessions"))
    assert not is_warm or set(found) == {ended.stdout.strip()}


def test_a_coordinator_of_the_tests_forks_from_a_process_that_has_all_that_it_needs() -> None:
    needed = ["psycopg", "easeml_db.coordinator.loop", "easeml_db.postgres.slots.executor", "scipy.optimize"]
    code = f"import runpy, sys; runpy.run_path({str(SOURCE)!r})['imported']('coordinators')"
    code += f"; print({{*{needed}}} - {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.strip() == "set()"
