"""The commands by subject: forty in one list would tell nobody where to begin."""

from __future__ import annotations

from collections.abc import Iterable

import click

LONGEST = 200  # characters of a sentence that is not cut


class Subjects(click.Group):
    """A group whose help lists commands under headings, each in the order in which its commands were added."""

    def __init__(self, *arguments: object, **settings: object) -> None:
        super().__init__(*arguments, **settings)  # type: ignore[arg-type]
        self._subjects: dict[str, list[str]] = {}

    def add_subject(self, title: str, subject: Iterable[click.Command]) -> None:
        """Add commands under a heading."""
        for command in subject:
            self.add_command(command)
            self._subjects.setdefault(title, []).append(command.name or "")

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the headings with their commands, each with the first sentence of its help."""
        width = max(map(len, self.commands))
        for title, names in self._subjects.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), self.commands[name].get_short_help_str(LONGEST)) for name in names]
                )
