"""The Makefile works from any folder, and in clones whose paths make or a shell would split."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from easeml_db.postgres.extension_files import texts

CLONE = Path(__file__).parents[2]
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"  # of /usr/bin/python3, too: PL/Python embeds it
NAMES = ("clone", "a  b c", "anna's own", "a$b #c:d%e[f]")


def commands_of(target: str, folder: Path, *arguments: str) -> list[list[str]]:
    """The commands that make would run for a target, as a shell splits them."""
    make = ["make", "--no-print-directory", "--dry-run", *arguments, target]
    done = subprocess.run(make, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in done.stdout.replace("\\\n", "").splitlines()]


def copied(folder: Path) -> Path:
    """A folder with what the Makefile needs to find itself."""
    (folder / "docker").mkdir(parents=True)
    shutil.copy(CLONE / "Makefile", folder)
    shutil.copy(CLONE / "docker" / "bootstrap.sh", folder / "docker")
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_every_way_to_call_make_means_the_same_clone(tmp_path: Path, name: str) -> None:
    clone = copied(tmp_path / name)
    called = (
        (clone, ()), (tmp_path, ("-C", name)), (Path("/"), ("-C", str(clone))), (tmp_path, ("-f", f"{name}/Makefile")),
        (Path("/"), ("-f", str(clone / "Makefile"))), (clone / "docker", ("-f", "../Makefile")),
    )  # fmt: skip
    ways = [commands_of("lint", folder, *arguments) for folder, arguments in called]
    assert ways[0][-1][:3] == ["cd", str(clone), "&&"]
    assert all(way == ways[0] for way in ways)


def test_paths_reach_programs_whole(tmp_path: Path) -> None:
    clone, venv = copied(tmp_path / NAMES[2]), str(tmp_path / NAMES[3]).replace("$", "$$")
    assert commands_of("clean", clone, f"VENV={venv}") == [
        ["rm", "-rf", venv.replace("$$", "$"), str(clone / "build"), str(clone / "dist")]
    ]
    demo = commands_of("demo", clone, f"VENV={venv}", "DATASET=it's mine")
    assert demo[-2] == [str(clone / "docker" / "bootstrap.sh"), venv.replace("$$", "$"), "it's mine"]


def test_a_makefile_that_is_alone_says_so(tmp_path: Path) -> None:
    shutil.copy(CLONE / "Makefile", tmp_path)
    done = subprocess.run(["make", "-n", "clean"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "cannot find the clone from the path of this Makefile" in done.stderr


@pytest.mark.parametrize("touched", ["easeml_db/new.py", "sql/new.sql", "pyproject.toml", None])
def test_setup_works_again_only_after_a_change(tmp_path: Path, touched: str | None) -> None:
    clone, venv = copied(tmp_path / NAMES[1]), tmp_path / "venv here"
    for name in ("easeml_db", "plpy", "loaders", "reader", "experiments", "sql"):
        (clone / name).mkdir()
    (clone / "pyproject.toml").touch()
    (venv / "bin").mkdir(parents=True)
    told = tmp_path / "told"
    for program in (clone / "docker" / "bootstrap.sh", venv / "bin" / "pip", venv / "bin" / "easeml"):
        script(program, f'echo "${{0##*/}}" >> {shlex.quote(str(told))}')
    script(venv / "bin" / "python", "true")
    make = ["make", "-C", str(clone), f"VENV={venv}", "setup"]
    subprocess.run(make, check=True, capture_output=True)
    once = told.read_text().split()
    assert once == ["bootstrap.sh", "pip", "easeml"]
    if touched is not None:
        (clone / touched).touch()
        later = (venv / "easeml-installed").stat().st_mtime + 10  # file systems count in ticks
        os.utime(clone / touched, (later, later))
    subprocess.run(make, check=True, capture_output=True)
    assert told.read_text().split() == once * (1 if touched is None else 2)
    script(venv / "bin" / "python", "exit 1")  # as after an upgrade of the distribution
    subprocess.run(make, check=True, capture_output=True)
    assert told.read_text().split() == once * (2 if touched is None else 3)


def test_the_makefile_of_the_sources_builds_what_the_package_installs(tmp_path: Path) -> None:
    shutil.copytree(CLONE / "sql", tmp_path / "sql")
    (tmp_path / "easeml_db" / "postgres").mkdir(parents=True)
    for name in ("__init__.py", "postgres/__init__.py", "postgres/extension_scripts.py"):
        shutil.copy(CLONE / "easeml_db" / name, tmp_path / "easeml_db" / name)
    make = ["make", "-C", tmp_path / "sql", "PG_CONFIG=none", f"SHAREDIR={tmp_path}", "install"]
    (tmp_path / "extension").mkdir()
    done = subprocess.run(make, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    installed = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "extension").iterdir()}
    assert installed == texts()


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.parametrize(("made_by", "is_kept"), [("3.1", False), (OWN, True)])
def test_an_environment_of_another_python_is_made_anew(tmp_path: Path, made_by: str, is_kept: bool) -> None:
    clone, venv = copied(tmp_path / NAMES[1]), tmp_path / "venv here"
    (clone / "experiments").mkdir()
    for project in (clone, clone / "experiments"):
        (project / "pyproject.toml").touch()
    bootstrap = [clone / "docker" / "bootstrap.sh", venv, "environment"]
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", venv], check=True)
    told = f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {made_by}.2\n"
    (venv / "pyvenv.cfg").write_text(told, encoding="utf-8")
    (venv / "easeml-requirements").write_text("of then", encoding="utf-8")
    (venv / "old").touch()
    # No index: it ends where it would install packages.
    offline = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    done = subprocess.run(bootstrap, env=offline, capture_output=True, text=True, check=False)
    assert "Installing Python packages" in done.stdout, done.stderr
    assert (venv / "bin" / "pip").is_file()
    assert (venv / "old").exists() == is_kept
