"""Python orders sets by the hashes of a process: sessions differ in them, and come to the same bytes all the same."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from easeml_db.decisions.procedures import PROCEDURES
from easeml_db.decisions.procedures.proposal import begin_search
from easeml_plpy.catalogue.catalog import specifications_for
from tests.unit.plpy.files.test_model_files import CASES, encoder_of, trained

ROOT = Path(__file__).parents[4]
SEARCHED = ("mlp", "resnet", "sgd", "lightgbm", "extra_trees")


def facts() -> dict[str, str]:
    """Return what came of the order in which this process went through sets, if anything does."""
    found = {"order of a set": " ".join({f"name{k}" for k in range(20)})}
    for name, target in CASES:
        found[f"state of {name} for {type(target).__name__}"] = hashlib.sha256(trained(name, target)).hexdigest()
        found[f"encoder for {type(target).__name__}"] = json.dumps(encoder_of(target).to_json())
    specifications = specifications_for(SEARCHED, None)
    for procedure in PROCEDURES:
        if procedure != "grid":  # it draws nothing
            found[f"search of {procedure}"] = begin_search(specifications, None, procedure, 8, 9, 0, None)
    return found


def facts_of_a_process(hash_seed: int) -> dict[str, str]:
    script = f"import json; from {__name__} import facts; print(json.dumps(facts()))"
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    told: dict[str, str] = json.loads(ended.stdout)
    return told


def test_what_a_session_trains_and_draws_does_not_hang_on_its_hashes() -> None:
    """In this process and in another one; PYTHONHASHSEED repeats what this one comes to."""
    one, other = facts(), facts_of_a_process(2 if os.environ.get("PYTHONHASHSEED") == "1" else 1)
    assert {name for name in one if one[name] != other[name]} == {"order of a set"}
