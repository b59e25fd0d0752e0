"""Who may import whom: layers and packages, held by reading the imports with ast, without importing anything.

A package may import itself, the words, `easeml_db.__version__` and what the table grants. The PL/Python body of
easeml.begin_search imports `easeml_db.decisions.procedures.proposal`, so decisions must do with the standard library,
numpy and scipy. Only `cli` wires everything. The papers' experiments import the product, and the product never them.
"""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOP_PACKAGES = {
    "easeml_db": ROOT / "easeml_db",
    "easeml_plpy": ROOT / "plpy" / "easeml_plpy",
    "easeml_loaders": ROOT / "loaders" / "easeml_loaders",
    "easeml_model": ROOT / "reader" / "easeml_model",
    "easeml_experiments": ROOT / "experiments" / "easeml_experiments",
}
OURS = frozenset(TOP_PACKAGES)
PRODUCT = ("easeml_db", "easeml_plpy", "easeml_loaders", "easeml_model")

WORDS = ("errors", "words")
CORES = tuple(
    f"decisions.{core}"
    for core in (
        "search_space",
        "bandits",
        "tenancy",
        "procedures",
        "hopper",
        "trial_groups",
        "planner",
        "templates",
        "retry",
    )
)

# Values of decisions that cross the ports, to be written down.
PASSING = tuple(
    f"easeml_db.decisions.{module}"
    for module in (
        "bandits.prior",
        "tenancy.opening",
        "procedures.contract",
        *(f"planner.{name}" for name in ("run_plan", "prices", "job")),
        *(f"trial_groups.{name}" for name in ("allocation", "measuring", "profile")),
        "retry",  # how long a statement waits for a busy server
        "hopper.allocation.registry",  # whether an allocation needs what is slow to read
    )
)
PORTS = ("easeml_db.coordinator.ports", *PASSING)

# Packages of easeml_db, layer by layer, and the modules of ours that each may import, besides itself and the words.
PACKAGES: dict[str, tuple[str, ...]] = {
    "errors": ("easeml_plpy.server.errors",),
    "words": (),
    **dict.fromkeys(CORES, ()),
    "decisions.procedures": ("easeml_db.decisions.search_space",),
    "decisions.tenancy": ("easeml_db.decisions.bandits",),
    "decisions.trial_groups": ("easeml_db.decisions.retry",),
    "decisions.hopper": ("easeml_db.decisions.trial_groups", "easeml_db.decisions.retry"),
    "decisions.planner": (
        "easeml_db.decisions.procedures",
        "easeml_db.decisions.search_space",
        "easeml_db.decisions.hopper.allocation.registry",  # which allocations train on all slots at once
    ),
    "decisions": (),
    "coordinator": ("easeml_db.decisions",),
    "postgres": (*PORTS, "easeml_loaders.passwords"),
    "simulated": PORTS,
    "report": ("easeml_db.decisions.hopper",),
    "local": ("easeml_db.coordinator", "easeml_db.postgres", "easeml_plpy", "easeml_loaders.passwords"),
    # It connects as whoever is logged in, reads named queries, draws as the report does, and shows and takes pictures.
    "console": (
        "easeml_db.report",
        "easeml_db.postgres.connection",
        "easeml_db.postgres.queries",
        "easeml_loaders.picture_labels",
        "easeml_loaders.pictures",
    ),
    "cli": PRODUCT,
    "__main__": ("easeml_db.cli",),
}

# What each may import from outside, besides the standard library.
FOREIGN: dict[str, frozenset[str]] = {
    **dict.fromkeys((*WORDS, "decisions", "coordinator", "simulated", "__init__", "__main__"), frozenset()),
    **dict.fromkeys(CORES, frozenset({"numpy", "scipy"})),
    "decisions.procedures": frozenset({"numpy", "scipy", "optuna"}),
    "decisions.hopper": frozenset({"numpy", "scipy", "ortools"}),
    "postgres": frozenset({"numpy", "psycopg"}),
    "local": frozenset({"psycopg", "prometheus_client"}),
    "cli": frozenset({"click", "rich", "psycopg", "numpy"}),
    "console": frozenset({"flask", "waitress", "werkzeug", "psycopg", "numpy"}),
    "report": frozenset({"altair", "vl_convert", "jinja2"}),
}
IMPURE = frozenset({"time", "random", "os", "socket", "logging", "psycopg", "torch"})
PURE = (*WORDS, *CORES, "decisions", "coordinator", "simulated")
LAZY_IN_PLPY = frozenset({"lightgbm", "tabm", "sklearn", "scipy"})  # a second to import: only where it is used
LAZY = frozenset({"optuna"})  # the same; the server imports procedures too


def modules(package: str) -> list[tuple[str, Path]]:
    """Return (dotted name, file) of every module of a package."""
    folder = TOP_PACKAGES[package]
    found = []
    for path in sorted(folder.rglob("*.py")):
        parts = [package, *path.relative_to(folder).with_suffix("").parts]
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(name: str, path: Path, *, top_level_only: bool = False) -> set[str]:
    """Return the dotted names that a module imports; `from a import b` counts as a.b, relative ones are resolved."""
    tree = parsed(path)
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


def package_of(name: str) -> str:
    """Return the folder or module below the package; decisions are as many packages as folders."""
    parts = name.split(".")
    if len(parts) > 2 and parts[1] == "decisions":
        return ".".join(parts[1:3])
    return parts[1] if len(parts) > 1 else "__init__"


def is_within(name: str, modules: tuple[str, ...]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def top_of(name: str) -> str:
    return name.split(".")[0]


def tops(names: Iterable[str]) -> set[str]:
    return {top_of(name) for name in names}


def offences(modules: list[tuple[str, Path]], found_in: Callable[[str, Path], set[str]]) -> dict[str, set[str]]:
    """Return, of the modules that break a rule, what each of them imports against it."""
    assert modules
    return {name: found for name, path in modules if (found := found_in(name, path))}


ALL_MODULES = [module for package in TOP_PACKAGES for module in modules(package)]
DB_MODULES = modules("easeml_db")


def test_every_package_is_in_the_table():
    packages = {package_of(name) for name, _ in DB_MODULES} - {"__init__"}
    assert packages <= set(PACKAGES), "a new package: say in PACKAGES and FOREIGN what it may import"
    assert packages <= set(FOREIGN)


def test_a_package_imports_only_itself_the_words_and_what_the_table_grants():
    def beyond(name, path):
        granted = granted_to(package_of(name))
        return {each for each in imports(name, path) if top_of(each) in OURS and not is_within(each, granted)}

    assert offences(DB_MODULES, beyond) == {}


def granted_to(package: str) -> tuple[str, ...]:
    """Return what of ours a package may import."""
    words = WORDS[: WORDS.index(package)] if package in WORDS else WORDS
    own = (f"easeml_db.{package}", "easeml_db.__version__")
    return (*own, *(f"easeml_db.{word}" for word in words), *PACKAGES.get(package, ()))


def test_a_package_imports_from_outside_only_what_the_table_grants():
    def beyond(name, path):
        return tops(imports(name, path)) - FOREIGN[package_of(name)] - OURS - sys.stdlib_module_names

    assert offences(DB_MODULES, beyond) == {}


def test_words_cores_ports_and_the_loop_have_no_clock_no_global_chance_and_no_world():
    def impure(name, path):
        found = imports(name, path)
        return tops(found) & IMPURE | {each for each in found if each.startswith("numpy.random.")}

    assert offences([module for module in DB_MODULES if package_of(module[0]) in PURE], impure) == {}


def test_what_takes_long_to_import_is_imported_where_it_is_used():
    assert offences(DB_MODULES, lambda name, path: tops(imports(name, path, top_level_only=True)) & LAZY) == {}


# What a tenant's session imports for its first select_models, and what coordinators and commands do: somebody waits.
FIRST_CALLS = {
    "select_models": (
        "easeml_db.decisions.procedures.proposal, easeml_db.decisions.hopper.schedulers.registry,"
        " easeml_db.decisions.hopper.allocation.registry, easeml_plpy.catalogue.catalog",
        {"scipy", "torch", "optuna"},
    ),
    "prediction": (
        "easeml_plpy.prediction.prediction",
        {"scipy", "sklearn", "torch", "lightgbm", "pandas", "importlib.metadata"},
    ),
    "add_segment": (
        "easeml_db.postgres.nodes.engines; [easeml_db.postgres.nodes.engines.place_of(name) for name in"
        " easeml_db.postgres.nodes.engines.ENGINES]",
        {"psycopg", "numpy", "torch"},
    ),
    "coordinator": ("easeml_db.local.service", {"scipy", "torch", "optuna"}),
    "command": ("easeml_db.cli", {"scipy", "sklearn", "torch", "optuna", "altair", "flask"}),
}


@pytest.mark.parametrize("first_call", FIRST_CALLS)
def test_what_a_tenant_waits_for_imports_nothing_that_takes_long(first_call):
    names, slow = FIRST_CALLS[first_call]
    script = f"import sys, {names}; print(*sorted({slow} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", script], cwd="/", check=True, capture_output=True, text=True)
    assert found.stdout.split() == []


def test_what_runs_inside_a_segment_knows_no_coordinator_and_no_driver():
    allowed = {"easeml_plpy", "numpy", "torch", "sklearn", "scipy", "lightgbm", "tabm", "safetensors", "threadpoolctl"}

    def beyond(name, path):
        at_once = tops(imports(name, path, top_level_only=True))
        return tops(imports(name, path)) - allowed - sys.stdlib_module_names | at_once & LAZY_IN_PLPY

    assert offences(modules("easeml_plpy"), beyond) == {}


def test_loaders_know_errors_and_no_other_package():
    granted, allowed = ("easeml_loaders", "easeml_plpy.server.errors"), OURS | {"numpy", "psycopg", "sklearn", "PIL"}

    def beyond(name, path):
        found = imports(name, path)
        ours = {each for each in found if top_of(each) in OURS and not is_within(each, granted)}
        return ours | tops(found) - allowed - sys.stdlib_module_names

    assert offences(modules("easeml_loaders"), beyond) == {}


def test_what_reads_exported_trials_knows_no_database():
    allowed = {"easeml_model", "easeml_plpy", "numpy"} | sys.stdlib_module_names
    assert offences(modules("easeml_model"), lambda name, path: tops(imports(name, path)) - allowed) == {}


def test_reading_an_exported_trial_imports_no_driver():
    script = "import sys, easeml_model; print(*sorted({'psycopg', 'easeml_db', 'plpy'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", script], cwd="/", check=True, capture_output=True, text=True)
    assert found.stdout.split() == []


def test_experiments_know_the_command_line_only_in_their_command():
    """An experiment runs without a terminal: only its command prints."""

    def beyond(name, path):
        granted = ("easeml_db.cli.terminal",) if name == "easeml_experiments.command" else ()
        found = {each for each in imports(name, path) if is_within(each, ("easeml_db.cli",))}
        return {each for each in found if not is_within(each, granted)}

    assert offences(modules("easeml_experiments"), beyond) == {}


def test_nobody_imports_plpy():
    """The server hands `plpy` over as an argument; outside, a folder of that name would be found instead."""
    assert offences(ALL_MODULES, lambda name, path: tops(imports(name, path)) & {"plpy"}) == {}


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
