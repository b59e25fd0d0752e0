"""The commands grouped by subject, because one list of forty would tell nobody where to begin.

A command's module is imported when the command or its help is called; importing all of them takes half a second.
Imported modules stay, so the garbage collector skips them: scanning them took a quarter of the time of a short command.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from types import ModuleType
from typing import ClassVar

import click

LONGEST = 200  # characters of a sentence that is not cut


class CommandsAtHome(MutableMapping[str, click.Command]):
    """Commands by name, each imported with the COMMANDS of its module at its first use.

    homes: the module of each name. takes_further: whether commands of other distributions are looked for behind them.
    """

    def __init__(self, homes: Mapping[str, str], *, takes_further: bool) -> None:
        self._homes = dict(homes)
        self._commands: dict[str, click.Command] = {}
        self._has_further = not takes_further

    def __getitem__(self, name: str) -> click.Command:
        if name in self._homes and name not in self._commands:
            home = self._homes[name]
            self._commands |= {one.name: one for one in _imported(home).COMMANDS if self._homes.get(one.name) == home}
        elif name not in self._homes:
            self._look_further()
        return self._commands[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        self._look_further()
        return iter([*self._homes, *self._commands.keys() - self._homes.keys()])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def further(self) -> list[str]:
        """Return the names of commands that other distributions brought."""
        return sorted(self.keys() - self._homes.keys())

    def _look_further(self) -> None:
        if not self._has_further:
            # Looking for them takes its time, too.
            from easeml_db.cli.terminal.installed_commands import further_commands

            self._has_further = True
            self._commands |= {command.name or "": command for command in further_commands()}


def _imported(home: str) -> ModuleType:
    """Return a module. Its objects, and everything that it imports, stay until the process ends."""
    gc.disable()
    try:
        return import_module(home)
    finally:
        gc.freeze()
        gc.enable()


def homes_of(modules: Mapping[str, str]) -> dict[str, str]:
    """Return the module of each command, of the names that each module below `easeml_db.cli` has."""
    return {name: f"easeml_db.cli.{module}" for module, names in modules.items() for name in names.split()}


class Subjects(click.Group):
    """A group whose help lists commands under headings, each in the order in which its commands are given."""

    subjects: ClassVar[dict[str, dict[str, str]]] = {}
    """Names of commands with their modules, by heading."""
    takes_further: ClassVar[bool] = False
    """Whether commands that other distributions install belong here."""

    def __init__(self, *arguments: object, **settings: object) -> None:
        super().__init__(*arguments, **settings)  # type: ignore[arg-type]
        homes = {name: home for subject in self.subjects.values() for name, home in subject.items()}
        self._at_home = CommandsAtHome(homes, takes_further=self.takes_further)
        self.commands = self._at_home

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the headings with their commands, each with the first sentence of its help."""
        width = max(map(len, self.commands))
        for title, subject in self.subjects.items():
            names = [*subject, *(self._at_home.further() if title == list(self.subjects)[-1] else [])]
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), self.commands[name].get_short_help_str(LONGEST)) for name in names]
                )
