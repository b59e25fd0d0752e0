"""The rooms of a package are an ordered list: a room imports only from those before it, and no folder is too full."""

from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from tests.contract.test_imports import ROOT, imports, modules

MOST_FILES = 25

# From the ground up. A name is a folder, or a module that lies beside the folders.
ROOMS = {
    "easeml_plpy": "server columns metrics architectures states trainers row_forms packing catalogue prediction units"
    " nodes drift tasks evaluation files",
    "easeml_db.postgres": "background connection versions extension_scripts extension_files queries answering sessions"
    " nodes stores on_nodes chores slots ports",
    "easeml_db.decisions.hopper": "schedulers work allocation dispatch",
    "easeml_db.decisions.procedures": "options contract rungs sampling halving population race budget creation proposal"
    " hyperparameter_importance",
    "easeml_db.cli": "terminal search tenancy data server cost answers demo",
}


def rooms_of(package: str) -> list[str]:
    return ROOMS[package].split()


def members(package: str) -> dict[str, Path]:
    """Return the modules inside a package with their files, without its own `__init__`."""
    every = dict(chain.from_iterable(modules(top) for top in {package.split(".")[0]}))
    return {name: path for name, path in every.items() if name.startswith(f"{package}.")}


def room_of(name: str, package: str) -> str:
    return name.removeprefix(f"{package}.").split(".")[0]


@pytest.mark.parametrize("package", ROOMS)
def test_the_list_names_each_room(package):
    assert {room_of(name, package) for name in members(package)} == set(rooms_of(package))


@pytest.mark.parametrize("package", ROOMS)
def test_a_room_imports_only_from_rooms_before_it(package):
    order = rooms_of(package)
    upwards = {
        (name, imported)
        for name, path in members(package).items()
        for imported in imports(name, path)
        if imported.startswith(f"{package}.")
        and room_of(imported, package) in order
        and order.index(room_of(imported, package)) > order.index(room_of(name, package))
    }
    assert upwards == set()


def test_no_folder_holds_more_files_than_a_reader_takes_in():
    parts = ("easeml_db", "plpy", "loaders", "reader", "experiments", "sql", "tests", "benchmarks")
    files = chain.from_iterable((ROOT / part).rglob("*.*") for part in parts)
    n_files = Counter(
        path.parent.relative_to(ROOT)
        for path in files
        if path.suffix in {".py", ".sql"} and "released" not in path.parts and not path.name.startswith("easeml--")
    )
    assert n_files
    assert {str(folder): n for folder, n in n_files.items() if n > MOST_FILES} == {}
