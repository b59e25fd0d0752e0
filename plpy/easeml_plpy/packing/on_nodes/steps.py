"""The steps of packing by name, as the coordinator calls them: on a node, then on the control server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from easeml_plpy.packing.on_nodes import (
    assembly,
    finishing,
    images_in_memory,
    pieces,
    places_in_memory,
    source_columns,
    staging,
)
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.session import NodeSession, Session
from easeml_plpy.server.value_types import Told

Step: TypeAlias = Callable[[Session, Told], dict[str, Any]]
NODE_STEPS: Mapping[str, Step] = {
    "images": images_in_memory.hold,
    "source": staging.stage,
    "places": staging.prepare,
    "keys": staging.read_keys,
    "texts": staging.read_texts,
    "dictionaries": staging.read_dictionaries,
    "pieces": pieces.pack_pieces,
    "image_pieces": images_in_memory.pack_image_pieces,
    "blocks": assembly.assemble,
}
CONTROL_STEPS: Mapping[str, Step] = {
    "begin": source_columns.begin,
    "images": places_in_memory.settle_images,
    "source": source_columns.settle_source,
    "places": source_columns.settle_places,
    "keys": source_columns.settle_keys,
    "texts": source_columns.settle_texts,
    "dictionaries": source_columns.settle_dictionaries,
    "blocks": finishing.finish,
}


@entry_point(of=NodeSession)
def pack_on_node(session: Session, step: str, told: str) -> str:
    """Do a step on a node; return its answer."""
    return json.dumps(NODE_STEPS[step](session, json.loads(told)))


@entry_point()
def settle_packing(session: Session, step: str, told: str) -> str:
    """Combine the answers of all nodes to a step; return what the next step needs."""
    return json.dumps(CONTROL_STEPS[step](session, json.loads(told)))
