"""Preparation of a slot's session: it imports what the first unit would otherwise have to import."""

from __future__ import annotations

import contextlib
import gc

from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.session import Session


@entry_point()
def warm_up(session: Session) -> None:
    """Import torch and what trains with it, so that the first unit does not pay for it.

    scikit-learn waits for the first trial that needs it: with the packages that it looks for it takes as long as torch.
    The first unit, not this, reports a package that is missing: a unit has a run whose tenant reads of it.
    """
    import_all()


def import_all() -> None:
    """Import what units need, without looking for garbage meanwhile."""
    gc.disable()  # a tenth of the import would go into looking for garbage among what stays
    try:
        with contextlib.suppress(ImportError):
            from easeml_plpy.units import evaluation, gang, pilot, training  # noqa: F401
        gc.freeze()
    finally:
        gc.enable()
