"""A library that trains is its folder and a line: nothing else of the product names it, except what runs try first."""

from __future__ import annotations

import re

import pytest

from easeml_plpy.trainers import ARCHITECTURES, TRAINERS
from tests.contract.test_imports import ROOT

# By the folder: names that mean it, in code that decides by them.
NAMES = {"lightgbm": ("lightgbm", "boosting"), "forests": ("extra_trees", "random_forest", "forest")}
TRAINERS_FOLDER = ROOT / "plpy" / "easeml_plpy" / "trainers"
# The defaults of runs, of the template for tables, and configs that were good before: choices, not needs.
CHOICES = {
    "plpy/easeml_plpy/catalogue/catalog.py",
    "easeml_db/decisions/templates/catalogue.py",
    "easeml_db/decisions/procedures/race/shipped_configs.py",
}


@pytest.mark.parametrize("folder", NAMES)
def test_only_its_folder_names_a_library(folder: str) -> None:
    quoted = re.compile(rf"""["'{{,]({"|".join(NAMES[folder])})["'}},]""")
    files = [path for part in ("plpy", "easeml_db", "sql") for path in (ROOT / part).rglob("*.*")]
    found = {
        str(path.relative_to(ROOT))
        for path in files
        if path.suffix in {".py", ".sql"}
        and not path.is_relative_to(TRAINERS_FOLDER / folder)
        and not path.is_relative_to(ROOT / "sql" / "upgrades")
        and quoted.search(path.read_text(encoding="utf-8"))
    }
    assert found <= CHOICES


def test_each_architecture_has_a_trainer() -> None:
    assert {each.trainer for each in ARCHITECTURES.values()} == TRAINERS.keys()
