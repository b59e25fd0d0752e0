"""SQL that is written once for several types."""

from __future__ import annotations

from pathlib import Path

import pytest

from easeml_db.postgres.extension_scripts import source

BLOCK = """\
-- before
-- for each
--  type  | text
--  jsonb | inputs::text || '{}'
--  text  | inputs
CREATE FUNCTION f(inputs {type}) AS $$ RETURN {text}; $$;
-- end for each
-- after
"""


def written(folder: Path, text: str) -> str:
    path = folder / "source.sql"
    path.write_text(text, encoding="utf-8")
    return source(path)


def test_a_block_is_written_out_for_each_row_of_its_table(tmp_path: Path) -> None:
    assert written(tmp_path, BLOCK).splitlines() == [
        "-- before",
        "CREATE FUNCTION f(inputs jsonb) AS $$ RETURN inputs::text || '{}'; $$;",
        "CREATE FUNCTION f(inputs text) AS $$ RETURN inputs; $$;",
        "-- after",
    ]


def test_a_table_that_does_not_fit_its_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="shorter"):
        written(tmp_path, BLOCK.replace("text  | inputs", "text"))
    with pytest.raises(KeyError, match="text"):
        written(tmp_path, BLOCK.replace("type  | text", "type  | other"))
