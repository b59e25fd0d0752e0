"""Attribution of errors: an error that the rows of one run raise ends that run only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from easeml_db.errors import EasemlError, InvalidData, OutOfSpace, ServerBusy, ServerUnavailable, StandbyOnly

NOT_THE_RUNS_FAULT = (OutOfSpace, ServerBusy, ServerUnavailable, StandbyOnly)


@contextmanager
def faults_of(run_id: int) -> Iterator[None]:
    """Raise as InvalidData any error that invalid rows of a run cause in code that expects valid ones."""
    try:
        yield
    except (EasemlError, AssertionError):
        raise
    except Exception as error:
        text = str(error).partition("\n")[0]
        raise InvalidData(f"run {run_id} makes no sense: {type(error).__name__}: {text}") from error
