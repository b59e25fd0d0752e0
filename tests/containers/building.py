"""Carries a Dockerfile out without a container runtime: each stage is a layer over a bare system folder, each RUN is
executed there by chroot. It needs root and a mount namespace of its own (see check.py).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from tests.containers.dockerfile import Dockerfile, Ignored, Instruction, Stage

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Builder:
    """Makes the stages of a Dockerfile in a folder.

    base: a bare system; shared: paths of this machine that a RUN sees, read-only, and where it sees them (mirrors,
    certificates, settings of package clients: what a container's network would give it); arguments: build arguments.
    """

    dockerfile: Dockerfile
    context: Path
    folder: Path
    base: Path
    shared: Mapping[Path, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)

    def build(self, target: Stage | None = None) -> list[Path]:
        """Make a stage (default: the image) and all that it needs; return its layers, the topmost first."""
        target = target or self.dockerfile.final
        seen = seen_files(self.context, Ignored(self.context / ".dockerignore"))
        for stage in self.dockerfile.needed(target):
            layer, made_of = self._layer(stage), self._made_of(stage, seen)
            if (done := layer / "done").exists() and done.read_text(encoding="ascii") == made_of:
                print(f"{stage.name or 'image'}: there already")
                continue
            shutil.rmtree(layer, ignore_errors=True)
            self._make(stage, layer, seen)
            done.write_text(made_of, encoding="ascii")
        return self.layers(target)

    def layers(self, stage: Stage) -> list[Path]:
        """Return the folders that a stage lies in, the topmost first, the bare system last."""
        chain = reversed(self.dockerfile.chain(stage))
        return [*(self._layer(each) / "files" for each in chain), self.base]

    def _made_of(self, stage: Stage, seen: Sequence[str]) -> str:
        """Return a hash of all that a stage is made of: instructions, arguments, copied files, other stages."""
        told = sha256(repr([self._made_of(each, seen) for each in self.dockerfile.chain(stage)[:-1]]).encode())
        for each in stage.instructions:
            told.update(f"{each.word} {each.flags} {each.text}\n".encode())
            if each.word == "ARG":
                told.update(repr(self.arguments.get(each.text.partition("=")[0])).encode())
            if "from" in each.flags:
                told.update(self._made_of(self.dockerfile.stage(each.flags["from"]), seen).encode())
            elif each.word == "COPY":
                for path in (path for source in each.words[:-1] for path in _below(source, seen)):
                    told.update(path.encode() + (self.context / path).read_bytes())
        return told.hexdigest()

    def _layer(self, stage: Stage) -> Path:
        return self.folder / (stage.name or "image")

    def _make(self, stage: Stage, layer: Path, seen: Sequence[str]) -> None:
        for name in ("files", "work"):
            (layer / name).mkdir(parents=True)
        below = self.layers(stage)[1:]
        environment, at = {"PATH": PATH}, "/"
        with overlaid(layer / "seen", below, layer / "files", layer / "work") as root:
            for each in stage.instructions:
                began = time.monotonic()
                if each.word == "ARG":
                    name, _, default = each.text.partition("=")
                    environment[name] = self.arguments.get(name, default)
                elif each.word == "ENV":
                    environment.update(word.split("=", 1) for word in each.words)
                elif each.word == "WORKDIR":
                    at = each.text
                    (root / at.lstrip("/")).mkdir(parents=True, exist_ok=True)
                elif each.word == "COPY":
                    self._copy(each, root, at, seen)
                elif each.word == "RUN":
                    self._run(each, root, at, environment)
                said = " ".join(each.text.split())[:90]
                print(f"{time.monotonic() - began:7.1f} s  {stage.name or 'image'}: {each.word} {said}", flush=True)

    def _copy(self, each: Instruction, root: Path, at: str, seen: Sequence[str]) -> None:
        *sources, target = each.words
        to = root / os.path.normpath(os.path.join(at, target)).lstrip("/")
        if "from" in each.flags:
            stage = self.dockerfile.stage(each.flags["from"])
            with overlaid(self.folder / "from", self.layers(stage)) as other:
                for source in sources:
                    _copy_tree(other / source.lstrip("/"), to)
            return
        for source in sources:
            found = _below(source, seen)
            if not found:
                raise FileNotFoundError(f"line {each.line}: COPY {source}: the build sees no such file")
            for path in found:
                into = to / Path(path).relative_to(source) if path != source else to
                if path == source and (len(sources) > 1 or target.endswith("/") or target == "."):
                    into = to / Path(path).name
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.context / path, into)

    def _run(self, each: Instruction, root: Path, at: str, environment: Mapping[str, str]) -> None:
        mounts = [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev"]
        for path, at_path in {Path("/etc/resolv.conf"): "/etc/resolv.conf", **self.shared}.items():
            mounts.append(_shown(root, path, at_path))
        script = " && ".join([*mounts, 'exec chroot "$0" /bin/sh -c "cd $1 && $2"'])
        # A further mount namespace: what is shared is gone with it.
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(root), at, each.text]
        told = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        done = subprocess.run(
            command, env={**told, **environment, "HOME": "/root"}, check=False, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            raise RuntimeError(f"line {each.line}: RUN ended with {done.returncode}: {each.text}")


@contextmanager
def overlaid(seen: Path, below: Sequence[Path], files: Path | None = None, work: Path | None = None) -> Iterator[Path]:
    """Mount layers over one another, the topmost first, while the block lasts; `files` takes what is written."""
    seen.mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={':'.join(map(str, below))}"
    if files:
        options += f",upperdir={files},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, seen], check=True)
    try:
        yield seen
    finally:
        subprocess.run(["umount", "--lazy", seen], check=True)


def seen_files(context: Path, ignored: Ignored) -> list[str]:
    """Return the files of a folder that a build sees, by their paths in it."""
    found = []
    for folder, folders, names in os.walk(context):
        folders[:] = [name for name in folders if name != ".git"]
        found += [str((Path(folder) / name).relative_to(context)) for name in names]
    return sorted(path for path in found if path not in ignored)


def _below(source: str, seen: Sequence[str]) -> list[str]:
    return [path for path in seen if path == source or path.startswith(f"{source}/")]


def _shown(root: Path, path: Path, at_path: str) -> str:
    """Return the command that shows a path of this machine below a root, read-only."""
    at = f"{root}{at_path}"
    made = f"mkdir -p {at}" if path.is_dir() else f"mkdir -p {Path(at).parent} && touch {at}"
    return f"{made} && mount --bind {path} {at} && mount -o remount,bind,ro {at}"


def _copy_tree(source: Path, target: Path) -> None:
    """Copy a file, or what is in a folder, with modes and links; all of it becomes root's, as COPY has it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    copied = str(source)
    if source.is_dir():
        target.mkdir(exist_ok=True)
        copied += "/."
    subprocess.run(["cp", "-r", "--no-dereference", "--preserve=mode,timestamps,links", copied, target], check=True)


def variables(text: str) -> set[str]:
    """Return the names of the variables that a shell text reads."""
    return set(re.findall(r"\$\{?(\w+)", text))
