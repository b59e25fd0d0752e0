"""Who may import whom: the rooms of the house, held by reading the imports with ast, without importing anything.

A room may import itself, the words (in their order), `easeml_db.__version__` and what the table grants. Two
decisions are encoded: the PL/Python body of easeml.begin_search imports the pure core
`easeml_db.procedures.proposal`, so cores must do with the standard library, numpy and scipy; and whatever runs
where the embedded server or a shell is (`cli`, `service`, `embedded`) wires things and may import everything here.
"""

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "easeml_db": ROOT / "easeml_db",
    "easeml_plpy": ROOT / "plpy" / "easeml_plpy",
    "easeml_loaders": ROOT / "loaders" / "easeml_loaders",
}
OURS = frozenset(PACKAGES)

WORDS = ("errors", "trial", "run", "tenant", "topology", "training_unit")  # each may import those before it
CORES = ("search_space", "bandits", "tenancy", "procedures", "hopper", "trial_groups", "planner", "templates")
WIRING = ("cli", "service", "embedded", "__main__", "report", "experiments", "settings")

# Values of cores that cross the ports, to be written down.
PASSING = (
    "easeml_db.bandits.prior",
    "easeml_db.tenancy.opening",
    "easeml_db.procedures.contract",
    *(f"easeml_db.trial_groups.{module}" for module in ("allocation", "measuring", "profile")),
)

# What the loop and its parts decide with, and the only seams to the world.
DECIDING = ("easeml_db.ports", *(f"easeml_db.{core}" for core in CORES))

# Rooms of easeml_db and the modules of ours that each may import, besides itself and the words.
ROOMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(CORES, ()),
    "procedures": ("easeml_db.search_space",),
    "tenancy": ("easeml_db.bandits",),
    "hopper": ("easeml_db.trial_groups",),
    "ports": PASSING,
    "db": ("easeml_db.ports", *PASSING),
    # Engines on PostgreSQL open sessions and read errors as the store does.
    "engines": ("easeml_db.ports", "easeml_db.db.connection", *PASSING),
    "simulate": ("easeml_db.ports", *PASSING),
    "searches": DECIDING,
    "arms": ("easeml_db.searches", *DECIDING),
    "allocations": DECIDING,
    "coordinator": ("easeml_db.allocations", "easeml_db.arms", "easeml_db.searches", *DECIDING),
    **{room: tuple(OURS) for room in WIRING},
}

# What each may import from outside, besides the standard library.
FOREIGN: dict[str, frozenset[str]] = {
    **{
        room: frozenset()
        for room in (*WORDS, "ports", "arms", "allocations", "searches", "coordinator", "simulate", "__init__")
    },
    **{core: frozenset({"numpy", "scipy"}) for core in CORES},
    "procedures": frozenset({"numpy", "scipy", "optuna"}),
    "hopper": frozenset({"numpy", "scipy", "ortools"}),
    "experiments": frozenset({"altair", "numpy", "scipy", "torch", "ray", "psycopg"}),
    "db": frozenset({"numpy", "psycopg"}),
    "engines": frozenset({"psycopg"}),
    "service": frozenset(),
    "embedded": frozenset({"psycopg"}),
    "cli": frozenset({"click", "rich", "psycopg", "numpy"}),
    "report": frozenset({"altair", "vl_convert"}),
    "settings": frozenset(),
    "__main__": frozenset(),
}
IMPURE = frozenset({"time", "random", "os", "socket", "logging", "psycopg", "torch"})
PURE = (*WORDS, *CORES, "ports", "arms", "allocations", "coordinator", "simulate")
LAZY_IN_PLPY = frozenset({"sklearn"})  # a second to import: only where it is used
LAZY = frozenset({"optuna"})  # the same; the server imports procedures too


def modules(package: str) -> list[tuple[str, Path]]:
    """Return (dotted name, file) of every module of a package."""
    folder = PACKAGES[package]
    found = []
    for path in sorted(folder.rglob("*.py")):
        parts = [package, *path.relative_to(folder).with_suffix("").parts]
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def imports(name: str, path: Path, *, top_level_only: bool = False) -> set[str]:
    """Return the dotted names that a module imports; `from a import b` counts as a.b, relative ones are resolved."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            found.update(f"{source}.{alias.name}" for alias in node.names)
    return found


def room_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def is_within(name: str, modules: tuple[str, ...]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def top_of(name: str) -> str:
    return name.split(".")[0]


ALL_MODULES = [module for package in PACKAGES for module in modules(package)]
DB_MODULES = modules("easeml_db")


def test_every_room_is_in_the_table():
    rooms = {room_of(name) for name, _ in DB_MODULES} - {"__init__"}
    assert rooms <= set(ROOMS) | set(WORDS), "a new room: say in ROOMS and FOREIGN what it may import"
    assert rooms <= set(FOREIGN)


@pytest.mark.parametrize(("name", "path"), DB_MODULES, ids=[name for name, _ in DB_MODULES])
def test_a_room_imports_only_itself_the_words_and_what_the_table_grants(name, path):
    room = room_of(name)
    words = WORDS[: WORDS.index(room)] if room in WORDS else WORDS
    granted = (
        f"easeml_db.{room}",
        "easeml_db.__version__",
        *(f"easeml_db.{word}" for word in words),
        *ROOMS.get(room, ()),
    )
    for imported in imports(name, path):
        if top_of(imported) in OURS:
            assert is_within(imported, granted), f"{name} imports {imported}"


@pytest.mark.parametrize(("name", "path"), DB_MODULES, ids=[name for name, _ in DB_MODULES])
def test_a_room_imports_from_outside_only_what_the_table_grants(name, path):
    allowed = FOREIGN[room_of(name)] | OURS | sys.stdlib_module_names
    assert {top_of(imported) for imported in imports(name, path)} <= allowed


@pytest.mark.parametrize(("name", "path"), DB_MODULES, ids=[name for name, _ in DB_MODULES])
def test_words_cores_ports_and_the_loop_have_no_clock_no_global_chance_and_no_world(name, path):
    if room_of(name) in PURE:
        assert not {top_of(imported) for imported in imports(name, path)} & IMPURE
        assert not any(imported.startswith("numpy.random.") for imported in imports(name, path))


@pytest.mark.parametrize(("name", "path"), DB_MODULES, ids=[name for name, _ in DB_MODULES])
def test_what_takes_long_to_import_is_imported_where_it_is_used(name, path):
    assert not {top_of(imported) for imported in imports(name, path, top_level_only=True)} & LAZY


@pytest.mark.parametrize(("name", "path"), modules("easeml_plpy"), ids=[name for name, _ in modules("easeml_plpy")])
def test_what_runs_inside_a_segment_knows_no_coordinator_and_no_driver(name, path):
    found = {top_of(imported) for imported in imports(name, path)}
    allowed = {"easeml_plpy", "numpy", "torch", "sklearn", "safetensors"}
    assert found <= allowed | sys.stdlib_module_names
    assert not {top_of(imported) for imported in imports(name, path, top_level_only=True)} & LAZY_IN_PLPY


@pytest.mark.parametrize(
    ("name", "path"), modules("easeml_loaders"), ids=[name for name, _ in modules("easeml_loaders")]
)
def test_loaders_know_errors_and_no_other_room(name, path):
    for imported in imports(name, path):
        if top_of(imported) in OURS:
            assert is_within(imported, ("easeml_loaders", "easeml_db.errors")), f"{name} imports {imported}"
    allowed = OURS | {"numpy", "psycopg", "sklearn"}
    assert {top_of(imported) for imported in imports(name, path)} <= allowed | sys.stdlib_module_names


@pytest.mark.parametrize(("name", "path"), ALL_MODULES, ids=[name for name, _ in ALL_MODULES])
def test_nobody_imports_plpy(name, path):
    """The server hands `plpy` over as an argument; outside, a folder of that name would be found instead."""
    assert not {imported for imported in imports(name, path) if top_of(imported) == "plpy"}


def test_modules_import_one_another_without_cycles():
    """Within one package its `__init__` and its modules may know each other."""
    names = {name for name, _ in ALL_MODULES}
    edges = {
        name: {
            target for target in known(imports(name, path, top_level_only=True), names) if not is_related(name, target)
        }
        for name, path in ALL_MODULES
    }
    TopologicalSorter(edges).prepare()  # raises CycleError, which names the cycle


def known(imported: set[str], names: set[str]) -> set[str]:
    """Return the modules behind imported names: a.b.c is module a.b.c, else a.b."""
    return {name if name in names else name.rpartition(".")[0] for name in imported} & names


def is_related(name: str, other: str) -> bool:
    return name == other or name.startswith(f"{other}.") or other.startswith(f"{name}.")
