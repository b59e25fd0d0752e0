"""The documentation is current, complete, and its links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from easeml_db.cli import commands
from easeml_db.errors import ALL_ERRORS

CLONE = Path(__file__).resolve().parents[2]
PAGES = sorted([*CLONE.glob("*.md"), *CLONE.glob("docs/**/*.md")])
GUIDE = (CLONE / "docs" / "guide.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """docs/generate.py as a module."""
    spec = importlib.util.spec_from_file_location("easeml_docs_generate", CLONE / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def test_the_reference_is_what_the_sources_say() -> None:
    command = [sys.executable, str(CLONE / "docs" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_routine_for_users_is_in_the_guide(generate: ModuleType) -> None:
    missing = [name for names in generate.GROUPS.values() for name in names if f"easeml.{name}" not in GUIDE]
    assert not missing


def test_every_group_names_routines_that_exist(generate: ModuleType) -> None:
    known = {routine.name for routine in generate.routines(generate.sql_text())}
    assert {name for names in generate.GROUPS.values() for name in names} <= known


def test_every_view_and_role_is_in_the_guide(generate: ModuleType) -> None:
    text = generate.sql_text()
    views = [view.name for view in generate.relations(text, "VIEW") if not view.is_internal]
    names = views + generate.roles(text)
    assert not [name for name in names if name not in GUIDE]


def test_every_view_has_a_comment_and_every_role_a_description(generate: ModuleType) -> None:
    text = generate.sql_text()
    assert not [view.name for view in generate.relations(text, "VIEW") if not (view.comment and view.columns)]
    assert sorted(generate.ROLES) == sorted(generate.roles(text))


def command_paths(command: Any, path: str) -> Iterator[str]:
    """'easeml load csv' and all the others."""
    if not isinstance(command, click.Group):
        yield path
        return
    for name, below in command.commands.items():
        yield from command_paths(below, f"{path} {name}")


def test_every_command_is_in_the_guide() -> None:
    assert not [path for path in command_paths(commands, "easeml") if path not in GUIDE]


def test_every_error_is_in_the_guide() -> None:
    assert not [error.__name__ for error in ALL_ERRORS if f"`{error.sqlstate}`" not in GUIDE]


def anchors(path: Path) -> set[str]:
    """The anchors that a page's headings make."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CLONE)))
def test_links_resolve(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(linked), f"{page.name}: {target}"


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (CLONE / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^(\w+):", makefile, re.MULTILINE))
    for page in ("README.md", "CONTRIBUTING.md"):
        named = re.findall(r"(?:`|^)make (\w+)", (CLONE / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert named
        assert set(named) <= targets


MADE = {"build", "dist", "venv", "__pycache__"}


def folders_of(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir() if each.is_dir() and each.name[0] != "." and each.name not in MADE}


def test_the_map_of_the_readme_shows_the_folders_that_there_are() -> None:
    _, tree, _, layers, _, rooms, *_ = (
        (CLONE / "README.md").read_text(encoding="utf-8").split("## Map of the tree", 1)[1].split("```")
    )
    named = {line.split()[0].strip("/") for line in tree.splitlines() if line}
    assert not [name for name in named if not (CLONE / name).exists()]
    assert folders_of(CLONE) <= named
    shown = set(re.findall(r"(\w+)/", layers))
    assert folders_of(CLONE / "easeml_db") | folders_of(CLONE / "easeml_db" / "decisions") == shown
    assert folders_of(CLONE / "plpy" / "easeml_plpy") == set(re.findall(r"\b([a-z_]+)/", rooms)) - {"on_nodes"}


def test_the_changelog_has_the_version_of_the_package() -> None:
    from easeml_db import __version__

    assert f"## {__version__}" in (CLONE / "CHANGELOG.md").read_text(encoding="utf-8")


FOLDERS = "easeml_db|plpy|loaders|reader|experiments|sql|tests|benchmarks|docs|docker"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CLONE)))
def test_files_and_folders_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(rf"`((?:{FOLDERS})/[\w/.-]+)`", page.read_text(encoding="utf-8"))
    assert not [name for name in named if not (CLONE / name).exists()]
