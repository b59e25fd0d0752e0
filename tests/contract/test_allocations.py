"""Only the registry knows the names of the allocations: SQL asks it, and nobody else tells them apart."""

import ast
import re

from easeml_db.decisions.hopper.allocation.registry import ALLOCATIONS
from easeml_db.decisions.hopper.schedulers import SCHEDULERS
from tests.contract.test_imports import ROOT

SQL = [*sorted((ROOT / "sql" / "tables").glob("*.sql")), *sorted((ROOT / "sql" / "functions").glob("*.sql"))]


def test_sql_names_no_allocation_but_the_default():
    names = {name for path in SQL for name in re.findall(r"'(\w+)'", path.read_text(encoding="utf-8"))}
    assert (names & set(ALLOCATIONS)) - set(SCHEDULERS) == {"hopping"}


def test_no_code_compares_an_allocation_with_a_name():
    """Python that asks which allocation a run has would be a second registry."""
    found = []
    for path in sorted((ROOT / "easeml_db").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                names = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)} & set(ALLOCATIONS)
                asks = {getattr(each, "attr", getattr(each, "id", None)) for each in ast.walk(node)}
                if names and ("allocation" in asks or "allocation" in ast.unparse(node)):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not found
