"""What is written into the settings of a private server, and which folders it may have."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from easeml_db.errors import InvalidArgument
from easeml_db.local.cluster import configure, quoted
from easeml_db.local.facts_file import remember
from easeml_db.local.server import Embedded


@pytest.mark.parametrize(
    ("text", "written"), [("plain", "'plain'"), ("anna's", "'anna''s'"), ("a\\b", "'a\\\\b'"), ("", "''"), (5, "'5'")]
)
def test_strings_of_settings_are_quoted(text: object, written: str) -> None:
    assert quoted(text) == written


def test_the_folder_of_the_socket_is_one_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "postgresql.conf").touch()
    (tmp_path / "PG_VERSION").write_text("15\n")
    configure(tmp_path, port=1, socket_folder=Path('/anna\'s, "own"'))
    assert 'unix_socket_directories = \'"/anna\'\'s, ""own"""\'\n' in (tmp_path / "easeml.conf").read_text()


@pytest.mark.parametrize("name", ["a,b", "ü" * 50])
def test_a_socket_that_libpq_could_not_name_lies_elsewhere(tmp_path: Path, name: str) -> None:
    server = Embedded(tmp_path / name)
    server.folder.mkdir()
    remember(server.folder, port=5000)
    assert not server.socket_folder.is_relative_to(server.folder)
    assert conninfo_to_dict(server.dsn())["host"] == str(server.socket_folder)


@pytest.mark.parametrize("name", ['a"b', "a$b", "a`b", "a\\b", "a\nb"])
def test_a_path_that_pg_ctl_would_hand_to_a_shell_is_refused_before_it_is_made(tmp_path: Path, name: str) -> None:
    server = Embedded(tmp_path / name)
    with pytest.raises(InvalidArgument, match="expected a path without"):
        server.prepare_folders()
    assert list(tmp_path.iterdir()) == []
