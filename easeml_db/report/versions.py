"""Which Vega-Lite the charts are written for."""

from __future__ import annotations

import altair as alt


def vega_lite_version() -> str:
    """The version of Vega-Lite that Altair writes for, such as 6.1: whoever renders must read the same."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
