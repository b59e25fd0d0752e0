"""Which errors of a server say that it lacks what all sessions share, whoever's statement fails with them."""

from __future__ import annotations

import psycopg
import pytest

from easeml_db.errors import EasemlError, OutOfSpace, RowsHeld, ServerBusy, SlotLost, TrialFailed
from easeml_db.postgres.connection import unit_error
from tests.fixtures.sessions import Session

KINDS: dict[tuple[str, str], type[EasemlError]] = {
    ("53200", "out of shared memory"): ServerBusy,
    ("53200", "spiexceptions.OutOfMemory: out of shared memory"): ServerBusy,
    ("53200", "kein Shared Memory mehr"): ServerBusy,  # whatever language the server speaks
    ("53300", "sorry, too many clients already"): ServerBusy,
    ("57P03", "the database system is starting up"): ServerBusy,
    ("53200", "out of memory"): SlotLost,  # of the process itself, which its slot limits: an attempt of the trial
    ("53400", "temporary file size exceeds temp_file_limit"): SlotLost,  # of the session itself
    ("53100", "could not extend file"): OutOfSpace,
    ("55P03", "canceling statement due to lock timeout"): RowsHeld,
    ("22012", "division by zero"): TrialFailed,
}
RAISE = "DO $$ BEGIN RAISE EXCEPTION USING errcode = '{}', message = '{}'; END $$"


@pytest.mark.parametrize(("sqlstate", "message"), KINDS)
def test_whose_fault_an_error_of_the_server_is(sqlstate: str, message: str, module_database: Session) -> None:
    with pytest.raises(psycopg.Error) as caught:
        module_database.execute(RAISE.format(sqlstate, message).encode())
    assert type(unit_error(caught.value)) is KINDS[sqlstate, message]
