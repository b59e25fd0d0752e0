"""What tests at the shell share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from easeml_db.cli import commands
from easeml_db.local.server import Embedded


@pytest.fixture(scope="module")
def run_easeml(server: Embedded) -> Callable[..., Result]:
    """`run_easeml("run", "--json")` runs a command against the server and returns click's result."""
    environment = {"EASEML_DATA": str(server.folder), "EASEML_DSN": None}

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(commands, [str(each) for each in arguments], env=environment)

    return run
