"""SQL and the installed package agree on which trials may train as one computation."""

from __future__ import annotations

import re

from easeml_plpy.architectures import ARCHITECTURES
from easeml_plpy.trainers.networks.stack import VARYING
from tests.contract.test_imports import ROOT


def test_sql_names_the_networks_and_the_settings_in_which_they_may_differ() -> None:
    text = (ROOT / "sql" / "runs" / "catalogue.sql").read_text(encoding="utf-8")
    body = text[text.index("FUNCTION easeml.batch_key") :]
    settings, networks = re.findall(r"'\{([\w,]*)\}'", body)[:2]
    assert tuple(settings.split(",")) == VARYING
    assert set(networks.split(",")) == {
        each.name for each in ARCHITECTURES.values() if each.trainer == "torch" and each.is_stackable
    }
