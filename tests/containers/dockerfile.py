"""Reads a Dockerfile strictly: what it does not know, it refuses."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

KNOWN = {"ARG", "FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "VOLUME", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
LISTS = {"VOLUME", "ENTRYPOINT", "CMD"}  # only in their exact form, a list in JSON


@dataclass(frozen=True)
class Instruction:
    """One instruction: its word, its --flags and the rest as it stands, with its first line's number."""

    word: str
    text: str
    flags: dict[str, str]
    line: int

    @property
    def words(self) -> list[str]:
        """The rest as words: of a list in JSON, or as a shell splits it."""
        if self.text.startswith("["):
            return [str(each) for each in json.loads(self.text)]
        return shlex.split(self.text)


@dataclass
class Stage:
    """One image that is made: its base, its name among the stages, its instructions in their order."""

    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def all_of(self, word: str) -> list[Instruction]:
        """Return the instructions of a word."""
        return [each for each in self.instructions if each.word == word]

    def environment(self) -> dict[str, str]:
        """Return what ENV sets."""
        return dict(word.split("=", 1) for each in self.all_of("ENV") for word in each.words)

    def last(self, word: str) -> list[str]:
        """Return the words of the last instruction of a word, none where there is none."""
        found = self.all_of(word)
        return found[-1].words if found else []


@dataclass(frozen=True)
class Dockerfile:
    """The stages in their order, and the arguments with defaults that stand before the first."""

    arguments: dict[str, str]
    stages: list[Stage]

    @property
    def final(self) -> Stage:
        """The image that is built where no stage is named: the last one, or that which it repeats."""
        last = self.stages[-1]
        return last if last.instructions else self.stage(last.base)

    def stage(self, name: str) -> Stage:
        """Return a stage by its name."""
        return next(stage for stage in self.stages if stage.name == name)

    def needed(self, stage: Stage) -> list[Stage]:
        """Return the stages that a stage is made of or copies from, and itself, in their order."""
        named = {stage.base, *(each.flags["from"] for each in stage.all_of("COPY") if "from" in each.flags)}
        found = {other.name for each in self.stages if each.name in named for other in self.needed(each)}
        return [each for each in self.stages if each.name in found or each is stage]

    def chain(self, stage: Stage) -> list[Stage]:
        """Return the stages that a stage is made of, the first first."""
        named = [each for each in self.stages if each.name == stage.base]
        return [*(self.chain(named[0]) if named else []), stage]


def read_dockerfile(path: Path) -> Dockerfile:
    """Read a Dockerfile. Raises ValueError, with the line, at what it does not know."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for each in _instructions(path.read_text(encoding="utf-8")):
        if each.word == "FROM":
            stages.append(_stage(each, arguments, stages))
        elif stages:
            stages[-1].instructions.append(each)
        elif each.word == "ARG":
            name, _, default = each.text.partition("=")
            arguments[name] = default
        else:
            raise ValueError(f"line {each.line}: expected ARG or FROM first, got {each.word}")
    if not stages:
        raise ValueError(f"{path}: expected a FROM")
    return Dockerfile(arguments, stages)


def _stage(each: Instruction, arguments: dict[str, str], stages: list[Stage]) -> Stage:
    found = re.fullmatch(r"(\S+)(?: AS ([a-z][a-z0-9]*))?", each.text)
    if not found:
        raise ValueError(f"line {each.line}: expected FROM image [AS name], got {each.text}")
    base = re.sub(r"\$\{(\w+)\}", lambda name: arguments[name[1]], found[1])
    if found[2] in {stage.name for stage in stages}:
        raise ValueError(f"line {each.line}: a second stage {found[2]}")
    return Stage(base, found[2] or "")


def _instructions(text: str) -> list[Instruction]:
    found = []
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        while line.endswith("\\"):
            line = line[:-1] + next(lines, (0, ""))[1].strip()
        found.append(_instruction(line.strip(), number))
    return found


def _instruction(line: str, number: int) -> Instruction:
    word, _, rest = line.partition(" ")
    flags = {}
    rest = rest.strip()
    while word == "COPY" and (flag := re.match(r"--([a-z]+)=(\S+)\s+", rest)):
        flags[flag[1]] = flag[2]
        rest = rest[flag.end() :]
    if word not in KNOWN or not rest or rest.startswith("--"):
        raise ValueError(f"line {number}: expected one of {', '.join(sorted(KNOWN))} with its argument, got {line!r}")
    if set(flags) - {"from"}:
        raise ValueError(f"line {number}: COPY: expected --from alone, got {', '.join(flags)}")
    if word in LISTS and not (rest.startswith("[") and isinstance(json.loads(rest), list)):
        raise ValueError(f"line {number}: {word}: expected a list in JSON, got {rest}")
    return Instruction(word, rest, flags, number)


# .dockerignore


class Ignored:
    """Which files a build does not see: the last pattern that fits a path, or a folder above it, decides."""

    def __init__(self, path: Path) -> None:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        self._rules = [
            (_pattern(line.removeprefix("!")), not line.startswith("!"))
            for line in lines
            if line and not line.startswith("#")
        ]

    def __contains__(self, path: str) -> bool:
        """Say whether a path, relative to the folder, is left out."""
        above = [str(each) for each in [*reversed(PurePosixPath(path).parents), PurePosixPath(path)]][1:]
        is_out = False
        for pattern, leaves_out in self._rules:
            if any(pattern.fullmatch(each) for each in above):
                is_out = leaves_out
        return is_out


def _pattern(text: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", text.strip("/"))
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(known.get(part) or re.escape(part) for part in parts))
