"""Only the registry knows the names of the allocations: SQL asks it, and nobody else tells them apart."""

import ast
import re

from easeml_db.decisions.hopper.allocation.registry import ALLOCATIONS
from easeml_db.decisions.hopper.schedulers.registry import SCHEDULERS
from tests.contract.test_imports import DB_MODULES, ROOT, parsed

NAMES = tuple(ALLOCATIONS)
SQL = [ROOT / "sql" / name for name in (ROOT / "sql" / "sources.txt").read_text(encoding="utf-8").split()]


def test_sql_names_no_allocation_but_the_default():
    names = {name for path in SQL for name in re.findall(r"'(\w+)'", path.read_text(encoding="utf-8"))}
    assert (names & set(ALLOCATIONS)) - set(SCHEDULERS) == {"hopping"}


def test_no_code_compares_an_allocation_with_a_name():
    """Python that asks which allocation a run has would be a second registry. A constant is a name too, wherever it is
    imported."""
    trees = {path: parsed(path) for _, path in DB_MODULES}
    constants = {name for tree in trees.values() for statement in tree.body for name in constants_of(statement)}

    def names_one(node):
        return getattr(node, "value", None) in NAMES or getattr(node, "attr", getattr(node, "id", None)) in constants

    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and any(map(names_one, ast.walk(node))) and "allocation" in ast.unparse(node)
    ]
    assert not found


def constants_of(statement):
    """Yield what a statement of a module binds to the name of an allocation: A = "a", or A, B = "a", "b"."""
    if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        for target in getattr(statement, "targets", None) or [statement.target]:
            targets, values = (getattr(each, "elts", [each]) for each in (target, statement.value))
            for each, value in zip(targets, values, strict=False):
                if isinstance(each, ast.Name) and getattr(value, "value", None) in NAMES:
                    yield each.id
