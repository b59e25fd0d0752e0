"""Every object of the extension says what it is: a COMMENT ON each, and on each column of a view."""

import re
from collections import defaultdict

import pytest

COMMENT = re.compile(
    r"COMMENT ON (TABLE|VIEW|FUNCTION|PROCEDURE|COLUMN) (easeml(?:_segment)?\.[\w.]+(?:\(.*?\))?) IS\s+(.+)", re.DOTALL
)
MIN_LENGTH = len("End.")


@pytest.fixture(scope="session")
def comments(sql_statements):
    """The text of each comment, by 'KIND name'."""
    found = {}
    for statement in sql_statements:
        if match := COMMENT.fullmatch(statement):
            kind, name, text = match.groups()
            key = f"{kind} {' '.join(name.split()).lower()}"
            assert key not in found, f"two comments on {key}"
            found[key] = text.strip("'$ \n")
    return found


def relations(statements, kind):
    heads = (re.match(rf"CREATE {kind} (easeml(?:_segment)?\.\w+)", statement) for statement in statements)
    return {f"{kind} {head.group(1)}" for head in heads if head}


def test_no_comment_is_overlooked(sql_statements, comments):
    """Otherwise the tests below would pass on what they cannot read."""
    said = [s for s in sql_statements if s.startswith("COMMENT ON") and not s.startswith("COMMENT ON SCHEMA")]
    assert len(said) == len(comments)


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
def test_every_relation_has_a_comment(sql_statements, comments, kind):
    expected = relations(sql_statements, kind)
    assert expected
    assert {key for key in comments if key.startswith(f"{kind} ")} == expected


def test_every_function_and_procedure_has_a_comment(sql_routines, comments):
    expected = {routine.signature.lower() for routine in sql_routines}
    found = {key.lower() for key in comments if key.startswith(("FUNCTION ", "PROCEDURE "))}
    assert found == expected


def test_every_column_of_a_view_has_a_comment_and_no_other(sql_views, comments):
    expected = {f"COLUMN easeml.{view}.{column}" for view, columns in sql_views.items() for column in columns}
    views = tuple(f"COLUMN easeml.{view}." for view in sql_views)
    assert {key for key in comments if key.startswith(views)} == expected


def test_columns_of_a_view_have_names_of_their_own(sql_views):
    assert sql_views
    for view, columns in sql_views.items():
        assert len(columns) == len(set(columns)), view


def test_comments_of_columns_of_tables_name_columns(sql_statements, comments):
    tables = defaultdict(str)
    for statement in sql_statements:
        if head := re.match(r"(?:CREATE|ALTER) TABLE (easeml\w*\.\w+)", statement):
            tables[head.group(1)] += statement.replace("ADD COLUMN IF NOT EXISTS", "\n   ")
    for key in comments:
        if key.startswith("COLUMN "):
            relation, _, column = key.removeprefix("COLUMN ").rpartition(".")
            assert relation not in tables or re.search(rf"^\s+{column} ", tables[relation], re.MULTILINE), key


def test_comments_say_something(comments):
    assert not {key for key, text in comments.items() if len(text) < MIN_LENGTH}


def test_views_are_read_with_the_rights_of_who_asks(sql_statements):
    """A view with its tenant's rights would show every tenant's rows."""
    views = [statement for statement in sql_statements if statement.startswith("CREATE VIEW")]
    others = [view for view in views if not re.match(r"CREATE VIEW easeml\.\w+ WITH \(security_invoker\) AS", view)]
    # It shows sizes only, and its own condition says whose: readers may not read the states.
    assert [view.split()[2] for view in others] == ["easeml.kept_sizes"]
