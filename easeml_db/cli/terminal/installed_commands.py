"""Commands that other distributions install: each registers a click command under the entry point group below.

The papers' experiments are installed this way. If they are missing or do not load, a command of the same name says what
to install: the user sees no traceback, and every other command still works.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points

import click

from easeml_db.errors import NotReady

GROUP = "easeml.commands"
EXPECTED = {"experiments": 'In a clone of easeml: pip install ".[experiments]" ./experiments'}


def further_commands() -> Iterator[click.Command]:
    """Yield the installed commands by name, and a substitute for each that is expected and not there."""
    installed = {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)}
    for name in sorted(installed.keys() | EXPECTED):
        yield _loaded(installed[name]) if name in installed else _substitute(name, "is not installed")


def _loaded(entry_point: EntryPoint) -> click.Command:
    try:
        command: click.Command = entry_point.load()
    except (ImportError, AttributeError) as error:  # made for another version of easeml, or half removed
        return _substitute(entry_point.name, f"does not load: {error}")
    return command


def _substitute(name: str, what: str) -> click.Command:
    """Make a command that takes any arguments, and fails with a message that says what to install."""

    def fail() -> None:
        raise NotReady(f"the command {name} {what}", hint=EXPECTED.get(name, f"Install the package of {name} again."))

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    help_text = f"Not available: the command {what}. {EXPECTED.get(name, '')}".strip()
    return click.Command(name, context_settings=anything, callback=fail, help=help_text)
