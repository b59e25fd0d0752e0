"""Reads the dashboard for Grafana with Grafana's own types, and names what these do not know.

    python tests/dashboards/grafana.py FOLDER

FOLDER gets an environment with grafana-foundation-sdk, made by Grafana from the schemas of its dashboards. What it
reads and writes again lacks each field that Grafana has no place for. This opens no Grafana: no index has one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "dashboards" / "grafana.json"
PACKAGE = "grafana-foundation-sdk==1769699998!10.1.0"
CHECK = """
import json, sys
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

def differing(written, read, place=""):
    if isinstance(written, dict) and isinstance(read, dict):
        for name in written:
            yield from differing(written[name], read.get(name), f"{place}/{name}")
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for number, pair in enumerate(zip(written, read)):
            yield from differing(*pair, f"{place}/{number}")
    elif written != read:
        yield f"{place}: {written!r} is read as {read!r}"

plugins.register_default_plugins()
with open(sys.argv[1], encoding="utf-8") as file:
    written = json.load(file)
found = list(differing(written, json.loads(JSONEncoder().encode(Dashboard.from_json(written)))))
print("\\n".join(found) or f"Grafana knows every field of {len(written['panels'])} panels")
sys.exit(bool(found))
"""


def main() -> int:
    """Return 0 if Grafana's types know all of it."""
    folder = Path(sys.argv[1])
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", PACKAGE], check=True)
    return subprocess.run([python, "-c", CHECK, DASHBOARD], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
