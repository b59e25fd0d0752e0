"""Feeding and labelling on a server: what does not fit is named and stored nowhere; labelling functions only read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

NUMBERS = "{input: {[Tensor[2]],[]}, output: {[Tensor[2]],[]}}"


@pytest.fixture(scope="module")
def fay(module_database: Session) -> Session:
    """A tenant with a schema, a task of classes and one of numbers."""
    session = module_database.as_role("fay", "easeml_tenant")
    module_database.execute("CREATE SCHEMA shed AUTHORIZATION fay")
    session.execute("SELECT easeml.create_task('odd', %s, 'shed', classes => '{no,yes}')", [NUMBERS])
    session.execute("SELECT easeml.create_task('sums', 'Input = [2] Output = [1]', 'shed')")
    return session


def n_fed(session: Session, name: str) -> int:
    count: int = session.value(f"SELECT count(*) FROM shed.{name}_refine")
    return count


@pytest.mark.parametrize(
    ("example", "problem"),
    [
        ('{"input": [1, 2, 3], "output": "no"}', r"expected Tensor\[2\], got Tensor\[3\]"),
        ('{"input": [1, "x"], "output": "no"}', r"expected Tensor\[2\], got"),
        ('{"input": [1, 1e300], "output": "no"}', "expected finite numbers that a real can hold"),
        ('{"input": [1, null], "output": "no"}', "expected finite numbers"),
        ('{"input": [1, 2], "output": "perhaps"}', "expected one of no, yes, got 'perhaps'"),
        ('{"input": [1, 2], "output": [1, 2, 3]}', r"output: expected Tensor\[2\], got 3 numbers"),
        ('{"output": "no"}', "expected {"),
        ('{"input": {"x": 1}, "output": "no"}', "expected an object with field1"),
        ("17", "expected {"),
    ],
)
def test_an_example_that_does_not_fit_is_named_and_nothing_of_the_batch_is_stored(
    fay: Session, example: str, problem: str
) -> None:
    before = n_fed(fay, "odd")
    batch = f'[{{"input": [1, 2], "output": "yes"}}, {example}]'
    with pytest.raises(psycopg.Error, match=f"example 2: .*{problem}") as caught:
        fay.execute("SELECT easeml.feed('odd', examples => %s::jsonb)", [batch])
    assert caught.value.sqlstate == "ML009"
    assert n_fed(fay, "odd") == before
    fed = fay.rows("SELECT * FROM easeml.feed('odd', examples => %s::jsonb, on_error => 'skip')", batch)[0]
    assert (fed["n_fed"], fed["n_skipped"]) == (1, 1)


def test_examples_come_in_by_every_way(fay: Session) -> None:
    before = n_fed(fay, "odd")
    fay.execute("SELECT easeml.feed('odd', '{1,2}'::real[], 'yes')")
    fay.execute("""SELECT easeml.feed('odd', '{"input": [1, 2], "output": [0.1, 0.9]}')""")
    fay.execute("INSERT INTO shed.odd (input, output) VALUES ('{1,2}', 'no'), ('{3,4}', NULL)")
    with fay.cursor().copy("COPY shed.odd (input, output) FROM STDIN") as copy:
        copy.write_row(("{5,6}", "yes"))
    assert n_fed(fay, "odd") == before + 5
    fay.execute("SELECT easeml.feed('sums', '{1,2}'::real[], 3.0::double precision)")
    assert fay.values("SELECT output FROM shed.sums_refine") == [3.0]


WRONG_ROWS = {
    "'{1,2,3}', 'no'": "input: expected Tensor[2], got an array [1:3]",
    "'{}', 'no'": "input: expected Tensor[2], got an empty array",
    "'{1,NaN}', 'no'": "input: expected Tensor[2], got an array [1:2], with NaN or infinity in it",
    "'{1,NULL}', 'no'": "input: expected Tensor[2], got an array [1:2], with NULL in it",
    "'{1,2}', 'perhaps'": "output: expected one of the classes, got 'perhaps'",
    "NULL, 'no'": "input: expected a value, got NULL",
}


@pytest.mark.parametrize("row", WRONG_ROWS)
def test_a_row_that_does_not_fit_is_told_in_one_line_and_nothing_is_stored(fay: Session, row: str) -> None:
    before = n_fed(fay, "odd")
    with pytest.raises(psycopg.Error) as caught:
        fay.execute(f"INSERT INTO shed.odd (input, output) VALUES ('{{3,4}}', 'yes'), ({row})")
    told = caught.value.diag
    assert (told.sqlstate, told.message_primary, told.context) == ("ML009", WRONG_ROWS[row], None)
    assert told.message_detail is not None
    assert told.message_detail.startswith("The row: ")
    assert told.message_hint is not None
    assert "Nothing of the statement was stored" in told.message_hint
    assert n_fed(fay, "odd") == before


def test_copy_names_the_line_that_does_not_fit(fay: Session) -> None:
    with (
        pytest.raises(psycopg.Error, match=r"expected Tensor\[2\], got an array \[1:1\]") as caught,
        fay.cursor().copy("COPY shed.odd (input, output) FROM STDIN") as copy,
    ):
        copy.write("{1,2}\tyes\n{1}\tyes\n")
    assert "COPY odd, line 2" in (caught.value.diag.context or "")


def test_somebodys_own_function_says_which_row_it_fed(fay: Session) -> None:
    with pytest.raises(psycopg.Error, match="expected a value") as caught:
        fay.execute("DO $$ BEGIN INSERT INTO shed.odd (input) VALUES (NULL); END $$")
    assert "inline_code_block line 1" in (caught.value.diag.context or "")


def test_the_table_refuses_what_does_not_fit_however_it_comes(fay: Session) -> None:
    table = fay.value("SELECT examples FROM easeml.task_status WHERE task_name = 'odd'")
    for array in ("{1}", "{}", "{1,NULL}"):
        with pytest.raises(psycopg.errors.IntegrityError):
            fay.execute(f"INSERT INTO {table} (input, output) VALUES ('{array}', 'no')")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE shed.odd_refine SET output = 'no'",
        "UPDATE shed.odd_refine SET input = '{1,2}'",
        "DELETE FROM shed.odd_refine",
        "TRUNCATE easeml_tasks.task_1",
        "DO $$ BEGIN LOCK TABLE easeml_tasks.task_1 IN ACCESS EXCLUSIVE MODE; END $$",
        "CREATE TABLE easeml_tasks.mine (x int)",
        "DROP TABLE easeml_tasks.task_1",
        "CREATE TRIGGER t BEFORE INSERT ON easeml_tasks.task_1 FOR EACH ROW EXECUTE FUNCTION shed.odd_feed()",
    ],
)
def test_what_was_fed_stays_as_it_is_and_the_table_is_the_service_s(fay: Session, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        fay.execute(statement)


def test_a_labelling_function_labels_what_it_knows_and_may_not_write(fay: Session) -> None:
    fay.execute(
        "CREATE FUNCTION shed.is_odd(numbers real[]) RETURNS text LANGUAGE sql IMMUTABLE AS"
        " $$ SELECT CASE WHEN numbers[1] < 100 THEN CASE WHEN numbers[1]::int % 2 = 1 THEN 'yes' ELSE 'no' END END $$"
    )
    fay.execute("INSERT INTO shed.odd (input) VALUES ('{7,0}'), ('{8,0}'), ('{700,0}')")
    fay.execute("SELECT easeml.add_labelling_function('odd', 'shed.is_odd')")
    labelled = "SELECT input[1], output FROM shed.odd_refine WHERE input[2] = 0 ORDER BY 1"
    assert [tuple(row.values()) for row in fay.rows(labelled)] == [(7.0, "yes"), (8.0, "no"), (700.0, None)]
    fay.execute("DROP FUNCTION shed.is_odd")
    with pytest.raises(psycopg.Error, match=r"there is no function shed\.is_odd") as caught:
        fay.execute("SELECT easeml.feed('odd', ARRAY[9, 1])")
    remedy = str(caught.value.diag.message_hint).partition("dropped it: ")[2]
    fay.execute(remedy)
    assert remedy == "SELECT easeml.remove_labelling_function('odd', 'shed.is_odd');"


def test_an_example_is_labelled_as_it_is_fed_however_many_older_ones_nobody_knows(fay: Session) -> None:
    fay.execute("SELECT easeml.create_task('vast', %s, 'shed', classes => '{no,yes}')", [NUMBERS])
    fay.execute(
        "CREATE FUNCTION shed.is_small(numbers real[]) RETURNS text LANGUAGE sql IMMUTABLE AS"
        " $$ SELECT CASE WHEN numbers[1] < 100 THEN 'yes' END $$"
    )
    fay.execute("SELECT easeml.add_labelling_function('vast', 'shed.is_small')")
    fay.execute("INSERT INTO shed.vast (input) SELECT ARRAY[100 + i, 1] FROM generate_series(1, 10000) i")
    fay.execute("INSERT INTO shed.vast (input) VALUES ('{5,1}')")
    fay.execute("SELECT easeml.feed('vast', ARRAY[7, 1])")
    fed = "SELECT n_fed FROM easeml.feed('vast', examples => %s::jsonb)"
    assert fay.value(fed, '[{"input": [8, 1], "output": null}, {"input": [200, 1], "output": "no"}]') == 2
    labelled = "SELECT input[1], output FROM shed.vast WHERE output IS NOT NULL ORDER BY 1"
    assert [tuple(row.values()) for row in fay.rows(labelled)] == [(7.0, "yes"), (8.0, "yes"), (200.0, "no")]
    assert fay.value("SELECT easeml.label_examples('vast')") == 0
    assert fay.value("SELECT easeml.label_examples('vast', 10001)") == 1
    fay.execute("SELECT easeml.drop_task('vast')")


LIARS = {
    "raises": ("SELECT (1 / (numbers[1] - numbers[1])::int)::text", "ML002"),
    "gives_another_class": ("SELECT 'perhaps'::text", "ML009"),
    "writes_by_a_detour": ("SELECT shed.write()", "ML004"),
}


@pytest.mark.parametrize("name", LIARS)
def test_a_labelling_function_that_raises_writes_or_answers_otherwise_labels_nothing(fay: Session, name: str) -> None:
    body, sqlstate = LIARS[name]
    fay.execute("CREATE TABLE IF NOT EXISTS shed.seen (x int)")
    fay.execute(
        "CREATE OR REPLACE FUNCTION shed.write() RETURNS text LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO shed.seen VALUES (1); RETURN 'yes'; END $$"
    )
    fay.execute(f"CREATE FUNCTION shed.{name}(numbers real[]) RETURNS text LANGUAGE sql STABLE AS $$ {body} $$")
    fay.execute("INSERT INTO shed.odd (input) VALUES ('{9,9}')")
    before = fay.value("SELECT count(*) FROM shed.odd_refine WHERE output IS NULL")
    with pytest.raises(psycopg.Error) as caught:
        fay.execute("SELECT easeml.add_labelling_function('odd', %s)", [f"shed.{name}"])
    assert caught.value.sqlstate == sqlstate, caught.value
    assert fay.value("SELECT count(*) FROM shed.odd_refine WHERE output IS NULL") == before
    assert fay.value("SELECT count(*) FROM shed.seen") == 0
    assert fay.value("SELECT count(*) FROM easeml.labelling_functions") == 0
    fay.execute("INSERT INTO shed.seen VALUES (1); DELETE FROM shed.seen")  # the session may write as before


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("shed.write", "there is no function"),
        ("is_odd", "expected a name with its schema"),
        ("shed.volatile", "expected a function that is STABLE or IMMUTABLE"),
    ],
)
def test_a_function_that_does_not_fit_is_refused_by_name(fay: Session, function: str, message: str) -> None:
    fay.execute(
        "CREATE OR REPLACE FUNCTION shed.volatile(numbers real[]) RETURNS text LANGUAGE sql AS $$ SELECT 'yes' $$"
    )
    with pytest.raises(psycopg.Error, match=message):
        fay.execute("SELECT easeml.add_labelling_function('odd', %s)", [function])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'x', 'Input = [2] Output = [0]', 'shed'", "column 23: expected a dimension >= 1, got 0"),
        ("'x', 'Input = [2] Output = [2]', 'nowhere'", "there is no schema 'nowhere'"),
        ("'x', 'Input = [2] Output = [2]', 'pg_catalog'", "role fay may not create tables in it"),
        ("'odd', 'Input = [2] Output = [2]', 'shed'", "there is a table or view shed.odd already"),
        ("'', 'Input = [2] Output = [2]', 'shed'", "name: expected 1 to 50 bytes"),
        ("'x', 'Input = [2] Output = [2]', 'shed', classes => '{a}'", "expected a list of 2 names"),
        ("'x', 'Input = [2] Output = [2]', 'shed', classes => '{a,a}'", "expected names that differ"),
        (
            "'x', 'Input = [2] Output = [1]', 'shed', classes => '{a}'",
            "a number or a tensor comes out",
        ),
        ("'x', 'Input = [2] Output = [2]', 'shed', run_after_examples => 0", "run_after_examples: expected 1 or more"),
        ("'x', 'Input = [2] Output = [2]', 'shed', run_options => '{\"x\": 1}'", "there is no option 'x'"),
        ("'x', 'Input = [2] Output = [2]', 'shed', validation_fraction => 2", "validation_fraction and test_fraction"),
    ],
)
def test_a_task_that_cannot_be_is_refused_in_one_line(fay: Session, arguments: str, message: str) -> None:
    with pytest.raises(psycopg.Error, match=message) as caught:
        fay.execute(f"SELECT easeml.create_task({arguments})")
    assert str(caught.value.sqlstate).startswith("ML")
    assert fay.value("SELECT count(*) FROM easeml.tasks WHERE task_name = 'x'") == 0


def test_names_with_quotes_and_markup_are_names(fay: Session) -> None:
    name = """O'Brien "<b>" %s; --"""
    fay.execute("SELECT easeml.create_task(%s, 'Input = [2] Output = [2]', 'shed', classes => %s)", [name, ["a'", '"']])
    fay.execute("SELECT easeml.feed(%s, '{1,2}'::real[], %s)", [name, "a'"])
    quoted = fay.value("SELECT place FROM easeml.task_status WHERE task_name = %s", name)
    assert fay.values(f"SELECT output FROM {quoted}") == ["a'"]
    fay.execute("SELECT easeml.drop_task(%s)", [name])
    assert fay.value("SELECT to_regclass(%s)", quoted) is None
