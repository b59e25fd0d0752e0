"""Vega's JavaScript as one script, for pages that draw charts without a network."""

from __future__ import annotations

from functools import cache

import altair as alt
import vl_convert

SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache  # making it takes longer than all the rest of a page
def drawing_libraries() -> str:
    """Return a script that defines vegaEmbed."""
    return safe_script(vl_convert.javascript_bundle(SNIPPET, vega_lite_version()))


def safe_script(script: str) -> str:
    """Return JavaScript that an HTML parser does not end early: within strings, </script has its slash escaped."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def vega_lite_version() -> str:
    """Return the version of Vega-Lite that Altair writes for, such as 6.1; the renderer must read the same."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
