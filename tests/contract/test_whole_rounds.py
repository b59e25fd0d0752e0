"""SQL and the installed package agree on which architectures take all partitions at once."""

import re

from easeml_plpy.architectures import ARCHITECTURES
from tests.contract.test_imports import ROOT


def test_sql_names_the_architectures_that_do_whole_rounds():
    text = (ROOT / "sql" / "runs" / "catalogue.sql").read_text(encoding="utf-8")
    found = re.search(r"FUNCTION easeml\.does_whole_rounds.*?architecture = ANY \('\{([\w,]*)\}'\)", text, re.DOTALL)
    assert found
    assert found[1].split(",") == [each.name for each in ARCHITECTURES.values() if each.takes_all_partitions]
