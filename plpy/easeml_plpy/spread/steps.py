"""The steps of packing by name, as the coordinator calls them: on a node, then on the control server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ..session import Session, entry_point, node_entry_point
from ..value_types import Told
from . import assembly, finishing, held_images, held_places, pieces, settling, staging

Step: TypeAlias = Callable[[Session, Told], dict[str, Any]]
NODE_STEPS: Mapping[str, Step] = {
    "images": held_images.hold,
    "source": staging.stage,
    "places": staging.prepare,
    "keys": staging.read_keys,
    "texts": staging.read_texts,
    "dictionaries": staging.read_dictionaries,
    "pieces": pieces.pack_pieces,
    "image_pieces": held_images.pack_image_pieces,
    "blocks": assembly.assemble,
}
CONTROL_STEPS: Mapping[str, Step] = {
    "begin": settling.begin,
    "images": held_places.settle_images,
    "source": settling.settle_source,
    "places": settling.settle_places,
    "keys": settling.settle_keys,
    "texts": settling.settle_texts,
    "dictionaries": settling.settle_dictionaries,
    "blocks": finishing.finish,
}


@node_entry_point
def pack_on_node(session: Session, step: str, told: str) -> str:
    """Do a step on a node; return what it found."""
    return json.dumps(NODE_STEPS[step](session, json.loads(told)))


@entry_point
def settle_packing(session: Session, step: str, told: str) -> str:
    """Put together what all nodes found in a step; return what follows."""
    return json.dumps(CONTROL_STEPS[step](session, json.loads(told)))
