"""Which Vega-Lite the charts are written for."""

from __future__ import annotations

import altair as alt


def vega_lite_version() -> str:
    """Return the version of Vega-Lite that Altair writes for, such as 6.1; the renderer must read the same."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
