"""Tables of clusters among those that are predicted, where a query on any segment's session is about all segments.

So a table that is named on several segments of a cluster counts once, and one session of the cluster is asked.
"""

from __future__ import annotations

from collections.abc import Mapping

from easeml_db.postgres.nodes.node_works import NodeWork, Told

Works = Mapping[str, NodeWork]


async def each_cluster_once(told: Told, works: Works) -> dict[str, NodeWork]:
    """Put all tables of a cluster into the places of the first of its segments; return the sessions that are left."""
    clusters = {}
    for name, work in works.items():
        if identity := await work.node.kind.cluster_of(work):
            clusters[name] = identity
    told["places"] = merged(told["places"], clusters)
    return {name: work for name, work in works.items() if name in told["places"]}


def merged(places: Mapping[str, list[str]], clusters: Mapping[str, str]) -> dict[str, list[str]]:
    """Return places in which each cluster occurs once, under the first of its segments.

    >>> merged({"gp1": ["a"], "gp0": ["b", "a"], "east": ["a"]}, {"gp0": "x", "gp1": "x"})
    {'east': ['a'], 'gp0': ['a', 'b']}
    """
    first: dict[str, str] = {}
    for name in sorted(clusters):
        first.setdefault(clusters[name], name)
    found: dict[str, set[str]] = {}
    for name, tables in sorted(places.items()):
        found.setdefault(first[clusters[name]] if name in clusters else name, set()).update(tables)
    return {name: sorted(tables) for name, tables in found.items()}
