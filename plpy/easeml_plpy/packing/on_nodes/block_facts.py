"""What a block adds to the statistics, as bytes that another server reads. No pickle: they come over the wire."""

from __future__ import annotations

import io

import numpy as np

from easeml_plpy.columns.tokens import N_HASHES
from easeml_plpy.packing.packing_statistics import BlockFacts

PLACES, COUNTS = " places", " frequencies"


def facts_to_bytes(facts: BlockFacts) -> bytes:
    """Return what a block adds as bytes; counts of tokens, which are mostly 0, by their places."""
    buffer = io.BytesIO()
    sparse: BlockFacts = {}
    for name, values in facts.items():
        if values.shape == (N_HASHES,):
            places = np.flatnonzero(values)
            sparse |= {name + PLACES: places, name + COUNTS: values[places]}
        else:
            sparse[name] = values
    np.savez(buffer, **sparse)  # type: ignore[arg-type]
    return buffer.getvalue()


def facts_from_bytes(payload: bytes) -> BlockFacts:
    """Undo `facts_to_bytes`."""
    with np.load(io.BytesIO(payload), allow_pickle=False) as archive:
        facts: BlockFacts = {name: archive[name] for name in archive.files}
    for name in [name for name in facts if name.endswith(PLACES)]:
        whole = np.zeros(N_HASHES, np.int64)
        whole[facts.pop(name)] = facts.pop(name.removesuffix(PLACES) + COUNTS)
        facts[name.removesuffix(PLACES)] = whole
    return facts
