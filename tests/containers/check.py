"""Builds the image and runs the compose files, without a container runtime, on a bare system folder.

    python tests/containers/check.py FOLDER [--arg NAME=VALUE] [--share PATH[=PATH]] [--only build|one|cluster|citus]

The cluster of Citus is left out unless its package is in docker/packages.

FOLDER takes some gigabytes, and keeps what is made. It needs root, and apt for the bare system (debootstrap). A RUN
sees this machine's name servers and what --share names: settings of package clients, mirrors, certificates.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLONE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CLONE))

from tests.containers import scenes  # noqa: E402 - the clone is no package, and this file a program
from tests.containers.building import Builder  # noqa: E402
from tests.containers.dockerfile import Stage, read_dockerfile  # noqa: E402
from tests.containers.scenes_of_citus import citus_cluster  # noqa: E402

INSIDE = "EASEML_CHECK_INSIDE"


def main() -> int:
    """Do all of it; return 0 if all is as it should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arg", action="append", default=[], help="a build argument, NAME=VALUE")
    parser.add_argument("--share", action="append", default=[], help="what a RUN sees of this machine")
    parser.add_argument("--only", choices=["build", "one", "cluster", "citus"])
    told = parser.parse_args()
    folder = told.folder.absolute()
    if INSIDE not in os.environ:
        if os.geteuid() != 0:
            parser.error("it needs root: chroot, mount and unshare")
        base = bare_system(folder / "base")
        print(f"bare system: {sum(1 for _ in base.rglob('*'))} files")
        wanted = [told.only] if told.only else ["one", "cluster", *(["citus"] if has_citus() else [])]
        return inside([], "build") or max((inside(["--net"], each) for each in wanted if each != "build"), default=0)
    layers = build(folder, dict(each.split("=", 1) for each in told.arg), told.share)
    if os.environ[INSIDE] == "one":
        scenes.one_server(layers, folder / "one")
    if os.environ[INSIDE] == "cluster":
        scenes.three_servers(layers, folder / "cluster")
    if os.environ[INSIDE] == "citus":
        citus_cluster(layers, folder / "citus")
    return 0


def has_citus() -> bool:
    """Say whether the package of Citus is in the clone, where somebody has to put it."""
    return bool(list((CLONE / "docker" / "packages").glob("*.deb")))


def inside(namespaces: list[str], what: str) -> int:
    """Run this program again with mounts of its own, and a network of its own where it says so; nothing of it stays."""
    command = ["unshare", "--mount", "--propagation", "private", *namespaces, sys.executable, *sys.argv]
    return subprocess.run(command, env={**os.environ, INSIDE: what}, check=False).returncode


def build(folder: Path, arguments: dict[str, str], share: list[str]) -> list[Path]:
    """Build the images, as far as they are not there; return the layers of the one that is run."""
    dockerfile = read_dockerfile(CLONE / "docker" / "Dockerfile")
    shared = {Path(path): at or path for path, _, at in (each.partition("=") for each in share)}
    builder = Builder(dockerfile, CLONE, folder / "image", folder / "base", shared, arguments)
    images: dict[str, Stage] = {"image": dockerfile.final}
    if has_citus():
        images["image with Citus"] = dockerfile.stage("citus")
    if os.environ[INSIDE] == "build":
        for name, stage in images.items():
            print(f"{name}: {sum(n_megabytes(layer) for layer in builder.build(stage))} MB")
    return builder.layers(dockerfile.stage("citus") if os.environ[INSIDE] == "citus" else dockerfile.final)


def n_megabytes(folder: Path) -> int:
    """Return how much of the disk a folder takes."""
    return int(subprocess.run(["du", "-sm", folder], capture_output=True, text=True, check=True).stdout.split()[0])


def bare_system(folder: Path) -> Path:
    """Return a folder with a bare Debian 12, made by debootstrap, which is fetched where it is not installed."""
    if (folder / "usr" / "bin" / "dpkg").exists():
        return folder
    began, mirror = time.monotonic(), mirror_of_this_machine()
    with tempfile.TemporaryDirectory() as name:
        program, settings = shutil.which("debootstrap"), dict(os.environ)
        if program is None:
            subprocess.run(["apt-get", "download", "debootstrap"], cwd=name, check=True)
            (package,) = Path(name).glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", package, name], check=True)
            program, settings["DEBOOTSTRAP_DIR"] = f"{name}/usr/sbin/debootstrap", f"{name}/usr/share/debootstrap"
        made = [program, "--variant=minbase", "bookworm", str(folder), mirror]
        subprocess.run(made, env=settings, check=True, stdout=subprocess.DEVNULL)
    print(f"bare system made in {time.monotonic() - began:.0f} s")
    return folder


def mirror_of_this_machine() -> str:
    """Return where apt of this machine gets its packages."""
    for path in sorted(Path("/etc/apt").glob("sources.list*/*.sources")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("URIs:"):
                return line.split()[1]
    lines = Path("/etc/apt/sources.list").read_text(encoding="utf-8").splitlines()
    return next(line.split()[1] for line in lines if line.startswith("deb "))


if __name__ == "__main__":
    sys.exit(main())
