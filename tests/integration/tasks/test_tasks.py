"""Tasks on a server: what is fed is packed, trained on and asked; what does not fit is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from easeml_db.postgres.queries import queries

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

IMAGES = "{input: {[Tensor[8,8,1]],[]}, output: {[Tensor[3]],[]}}"


NOISE = 100_000  # bytes that a vacuum may add to a table meanwhile


@pytest.fixture(scope="module")
def ada(module_database: Session) -> Session:
    """A tenant with a schema of her own."""
    module_database.execute("CREATE SCHEMA lab")
    session = module_database.as_role("ada", "easeml_tenant")
    module_database.execute("GRANT ALL ON SCHEMA lab TO ada")
    return session


def feed_pictures(session: Session, place: str, n: int, first: int = 0) -> None:
    """Feed pictures of 64 bytes whose brightness tells the class a, b or c."""
    session.execute(
        f"INSERT INTO {place} (input, output)"
        " SELECT decode(repeat(lpad(to_hex(i %% 3 * 80 + i %% 40), 2, '0'), 64), 'hex'), chr(97 + i %% 3)"
        f" FROM generate_series(%s::int, %s::int) i",
        [first, first + n - 1],
    )


def advance(root: Session, name: str) -> Any:
    """Have the service look at a task, as a coordinator does; return the run that it begins, or None."""
    task_id = root.value("SELECT task_id FROM easeml.tasks WHERE task_name = %s", name)
    lease = root.value("SELECT lease_number FROM easeml.coordinator_lease")
    return root.value("SELECT easeml.advance_task(%s, %s)", task_id, lease)


def create(session: Session, name: str, program: str = IMAGES, **arguments: Any) -> None:
    named = {"schema": "lab", **arguments}
    session.execute(
        f"SELECT easeml.create_task(%(name)s, %(program)s, {', '.join(f'{key} => %({key})s' for key in named)})",
        {"name": name, "program": program, **named},
    )


def test_a_task_says_what_keeps_it_from_being_packed_whatever_that_is(ada: Session, module_database: Session) -> None:
    create(ada, "torn", classes=["a", "b", "c"])
    feed_pictures(ada, "lab.torn", 30)
    examples = module_database.value("SELECT examples::text FROM easeml.tasks WHERE task_name = 'torn'")
    module_database.execute(f"ALTER TABLE {examples} DROP COLUMN output CASCADE")  # by an administrator
    ada.execute("SELECT easeml.run_task('torn')")
    assert advance(module_database, "torn") is None
    assert "output" in ada.value("SELECT problem FROM easeml.task_status WHERE task_name = 'torn'")


def test_a_task_says_what_it_is_and_which_architectures_may_learn_it(ada: Session) -> None:
    notices: list[str] = []
    ada.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    create(ada, "galaxies", classes=["a", "b", "c"])
    assert notices == [
        "image classification; 10 architectures: lenet, mlp, vgg, resnet18, nin, alexnet, bn_alexnet, squeezenet,"
        " googlenet, resnet50; tables lab.galaxies and lab.galaxies_refine"
    ]
    assert ada.values("SELECT template FROM easeml.task_status WHERE task_name = 'galaxies'") == [
        "image_classification"
    ]


def test_examples_count_in_what_a_tenant_keeps_and_beyond_its_limit_none_are_fed(
    ada: Session, module_database: Session
) -> None:
    grace = module_database.as_role("grace", "easeml_tenant")
    module_database.execute("GRANT ALL ON SCHEMA lab TO grace")
    create(grace, "counted", classes=["a", "b", "c"], run_after_examples=None, run_after_minutes=None)
    used = "SELECT easeml.used_bytes('grace')"
    empty = grace.value(used)
    feed = "INSERT INTO %s (input, output) SELECT decode(repeat('00', 64), 'hex'), 'a' FROM generate_series(1, 2000)"
    examples = module_database.value("SELECT examples FROM easeml.tasks WHERE task_name = 'counted'")
    grace.execute(feed % examples)
    full = grace.value(used)
    assert full - empty > 2000 * 64 > NOISE
    kept = module_database.value("SELECT easeml.kept_bytes('grace')")
    assert abs(full - kept) < NOISE
    assert ada.value(used) is None

    most = full + NOISE
    module_database.execute("SELECT easeml.create_tenant('grace', max_bytes => %s)", [most])
    grace.execute(feed % examples)
    for place in (examples, "lab.counted"):
        with pytest.raises(psycopg.Error, match=f"max_bytes: grace may keep {most} bytes") as refused:
            grace.execute(feed % place)
        assert refused.value.sqlstate == "ML015"
    assert grace.value("SELECT count(*) FROM lab.counted") == 4000

    before = grace.value(used)
    module_database.execute(
        "INSERT INTO easeml.refreshes (tenant, dataset_name, outcome, reason)"
        " SELECT 'grace', 'x', 'failed', repeat('y', 500) FROM generate_series(1, 400)"
    )
    assert grace.value(used) - before > 400 * 500 - NOISE
    module_database.execute("DELETE FROM easeml.refreshes WHERE tenant = 'grace'")
    grace.execute("SELECT easeml.drop_task('counted')")
    assert grace.value(used) < NOISE


def test_only_what_changed_is_packed_anew(module_database: Session, ada: Session) -> None:
    create(ada, "changing", classes=["a", "b", "c"], n_partitions=2, run_after_examples=1)
    feed_pictures(ada, "lab.changing", 600)
    run = advance(module_database, "changing")
    assert run is not None
    first = ada.rows("SELECT * FROM easeml.task_status WHERE task_name = 'changing'")[0]
    assert (first["newest_version"], first["n_examples"], first["n_pending"]) == (1, 600, 0)
    assert first["n_kept_bytes"] == 0
    assert first["n_packed_bytes"] > 600 * 65
    rows = "SELECT row_key, split, partition_number FROM easeml.dataset_rows('changing')"
    before = {tuple(row.values()) for row in ada.rows(rows)}
    off = ada.values("UPDATE lab.changing_refine SET is_on = false WHERE example_id = 17 RETURNING example_id")
    module_database.execute("SELECT easeml.cancel(%s)", [run])
    advance(module_database, "changing")
    second = ada.rows("SELECT * FROM easeml.task_status WHERE task_name = 'changing'")[0]
    assert off == [17]
    assert (second["newest_version"], second["n_examples"], second["n_off"]) == (2, 599, 1)
    assert second["n_kept_bytes"] > 4 * second["n_packed_bytes"] / 5
    after = {tuple(row.values()) for row in ada.rows(rows)}
    assert before - after == {row for row in before if row[0] == "17"}
    assert after < before


def test_an_example_that_is_labelled_late_moves_no_other(module_database: Session, ada: Session) -> None:
    """Its number is lower than those of the others: test rows of one version were training rows of the next."""
    create(ada, "late", classes=["a", "b", "c"], n_partitions=2, run_after_examples=1)
    ada.execute("INSERT INTO lab.late (input) SELECT decode(repeat('00', 64), 'hex') FROM generate_series(1, 7)")
    feed_pictures(ada, "lab.late", 300)
    run = advance(module_database, "late")
    rows = "SELECT row_key, split, partition_number FROM easeml.dataset_rows('late')"
    before = {tuple(row.values()) for row in ada.rows(rows)}
    examples = module_database.value("SELECT examples FROM easeml.tasks WHERE task_name = 'late'")
    module_database.execute(f"UPDATE {examples} SET output = 'a' WHERE output IS NULL")  # as labelling functions do
    module_database.execute("SELECT easeml.cancel(%s)", [run])
    advance(module_database, "late")
    after = {tuple(row.values()) for row in ada.rows(rows)}
    assert (len(before), len(after)) == (300, 307)
    assert before < after


def test_no_limit_holds_for_the_task_of_a_superuser(module_database: Session, ada: Session) -> None:
    """As for its other runs: the default limit holds for tenants, and a superuser cannot be one."""
    root = module_database
    with root.transaction(force_rollback=True):
        root.execute("SELECT easeml.set_policy('hybrid', default_max_runs => 1)")
        for name in ("first", "second"):
            create(root, name, classes=["a", "b", "c"])
            feed_pictures(root, f"lab.{name}", 60)
            root.execute("SELECT easeml.run_task(%s)", [name])
        assert None not in (advance(root, "first"), advance(root, "second"))


def test_a_task_without_a_model_says_how_to_have_a_run_begin(module_database: Session, ada: Session) -> None:
    create(ada, "untrained", classes=["a", "b", "c"], run_after_examples=None, run_after_minutes=None)

    def refused(name: str) -> str:
        with pytest.raises(psycopg.Error) as caught:
            ada.execute("SELECT easeml.infer(%s, '\\x00'::bytea)", [name])
        diagnosis = caught.value.diag
        assert (caught.value.sqlstate, diagnosis.message_primary) == ("ML010", "task 'untrained' has no model yet")
        return str(diagnosis.message_hint)

    assert "SELECT easeml.run_task('untrained')" in refused("untrained")
    assert "SELECT easeml.run_task('untrained')" in refused("ada.untrained")
    feed_pictures(ada, "lab.untrained", 60)
    task_id = module_database.value("SELECT task_id FROM easeml.tasks WHERE task_name = 'untrained'")
    assert module_database.rows("SELECT * FROM easeml.pack_task(%s)", task_id)[0]["failure"] is None
    assert "SELECT easeml.run_task('untrained')" in refused("untrained")
    assert "select_models" not in refused("ada.untrained")


def test_the_report_tells_of_a_run_from_its_start(module_database: Session, ada: Session) -> None:
    create(ada, "watched", classes=["a", "b", "c"], run_after_examples=None, run_after_minutes=None)
    feed_pictures(ada, "lab.watched", 60)
    ada.execute("SELECT easeml.run_task('watched')")
    run_id = advance(module_database, "watched")
    told = "SELECT event, architecture, value FROM easeml.task_report('watched') WHERE run_id = %s"
    assert [tuple(row.values()) for row in ada.rows(told, run_id)] == [("run queued (by hand)", None, None)]
    story = ada.values("SELECT event FROM easeml.task_report('watched')")
    assert [event.partition(" ")[0] for event in story] == ["task", "version", "run"]
    module_database.execute("UPDATE easeml.runs SET status = 'running', started_at = now() WHERE run_id = %s", [run_id])
    module_database.execute(
        "UPDATE easeml.trials SET best_metric_value = trial_number / 10.0 WHERE run_id = %s AND trial_number <= 2",
        [run_id],
    )
    (row,) = ada.rows(told, run_id)
    assert (row["event"], row["value"]) == ("run running (by hand): 0.2000 so far", 0.2)
    module_database.execute("SELECT easeml.cancel(%s)", [run_id])


def test_the_report_names_the_trial_that_answers_among_equals(module_database: Session, ada: Session) -> None:
    create(ada, "even", classes=["a", "b", "c"], run_after_examples=None, run_after_minutes=None)
    feed_pictures(ada, "lab.even", 60)
    ada.execute("SELECT easeml.run_task('even')")
    run_id = advance(module_database, "even")
    module_database.execute("UPDATE easeml.runs SET status = 'running', started_at = now() WHERE run_id = %s", [run_id])
    equals = (
        "UPDATE easeml.trials SET best_metric_value = 1, best_loss = 1.0 / trial_number,"
        " architecture = (ARRAY['linear', 'linear', 'ensemble'])[trial_number], best_epoch = 1, best_checkpoint_id = 1"
        " WHERE run_id = %s AND trial_number <= 3 RETURNING trial_id"
    )
    first, second, third = sorted(module_database.values(equals, run_id))
    reported = "SELECT trial_id FROM easeml.task_report('even') WHERE run_id = %s AND event LIKE %s"
    for worse in (0, third):  # the lower loss counts; of equal losses the ensemble does
        module_database.execute("UPDATE easeml.trials SET best_loss = 0.5 WHERE trial_id = %s", [worse])
        assert ada.values(reported, run_id, "run running%") == [third]
    finished = "UPDATE easeml.runs SET status = 'finished', finished_at = clock_timestamp() WHERE run_id = %s"
    module_database.execute(finished, [run_id])
    assert ada.values(reported, run_id, "first model%") == [third]
    assert sorted(ada.values(reported, run_id, "arm")) == [second, third]
    module_database.execute("UPDATE easeml.trials SET best_loss = 2 WHERE trial_id IN (%s, %s)", [first, third])
    assert ada.values(reported, run_id, "first model%") == [second]


def test_the_newest_version_that_a_run_has_finished_on_answers(module_database: Session, ada: Session) -> None:
    create(ada, "growing", classes=["a", "b", "c"], run_after_examples=None, run_after_minutes=None)

    def begun(first: int, accuracy: float) -> int:
        """Feed some more and begin a run, whose first trial comes to so much."""
        feed_pictures(ada, "lab.growing", 60, first)
        ada.execute("SELECT easeml.run_task('growing')")
        run_id = int(advance(module_database, "growing"))
        module_database.execute(
            "UPDATE easeml.runs SET status = 'running', started_at = now() WHERE run_id = %s", [run_id]
        )
        module_database.execute(
            "UPDATE easeml.trials SET best_metric_value = %s, best_epoch = 1, best_checkpoint_id = 1"
            " WHERE run_id = %s AND trial_number = 1",
            [accuracy, run_id],
        )
        return run_id

    def finish(run_id: int) -> None:
        finished = "UPDATE easeml.runs SET status = 'finished', finished_at = clock_timestamp() WHERE run_id = %s"
        module_database.execute(finished, [run_id])
        module_database.execute(queries("coordinator")["note_serving"], {"run_id": run_id})

    answers = "SELECT run_id FROM easeml.serving WHERE dataset_name = 'growing'"
    small = begun(0, 1.0)
    assert ada.value(answers) == small
    finish(small)
    large = begun(60, 0.9)
    assert ada.value(answers) == small
    finish(large)
    assert ada.value(answers) == large
    assert "of its version of the task" in ada.value(answers.replace("run_id", "reason"))
    assert "run (by hand): 1.0000 -> 0.9000" in ada.values("SELECT event FROM easeml.task_report('growing')")
    history = "SELECT t.run_id FROM easeml.serving_history h JOIN easeml.trials t USING (trial_id)"
    assert ada.values(f"{history} WHERE h.dataset_name = 'growing' ORDER BY h.serving_id DESC LIMIT 1") == [large]


def test_another_rule_leaves_the_options_of_runs_as_they_are(ada: Session) -> None:
    options = psycopg.types.json.Jsonb({"max_epochs": 1})
    create(ada, "ruled", classes=["a", "b", "c"], run_options=options)
    ada.execute("SELECT easeml.alter_task('ruled', 7, NULL)")
    kept = "SELECT run_after_examples, run_after_minutes, run_options FROM easeml.task_status WHERE task_name = 'ruled'"
    assert [tuple(row.values()) for row in ada.rows(kept)] == [(7, None, {"max_epochs": 1})]
    ada.execute("SELECT easeml.alter_task('ruled', 7, NULL, '{}')")
    assert ada.rows(kept)[0]["run_options"] == {}


def test_the_summary_of_a_run_advises_what_a_task_takes(module_database: Session, ada: Session) -> None:
    options = psycopg.types.json.Jsonb({"architectures": ["linear"], "max_seconds": 30})
    create(ada, "advised", classes=["a", "b", "c"], run_after_minutes=None, run_options=options)
    feed_pictures(ada, "lab.advised", 60)
    ada.execute("SELECT easeml.run_task('advised')")
    run_id = advance(module_database, "advised")
    for change in ("'running', started_at = now() - interval '30 s'", "'finished', finished_at = now()"):
        module_database.execute(f"UPDATE easeml.runs SET status = {change} WHERE run_id = %s", [run_id])
    *_, advice = ada.values("SELECT s FROM easeml.run_summary(%s) s", run_id)
    assert advice.startswith("No epoch ended within the time: give it more, for example easeml.alter_task('advised'")
    ada.execute("SELECT " + advice.partition("for example ")[2].rstrip("."))
    (row,) = ada.rows("SELECT * FROM easeml.task_status WHERE task_name = 'advised'")
    assert (row["run_after_examples"], row["run_after_minutes"]) == (100, None)
    assert row["run_options"] == {"architectures": ["linear"], "max_seconds": 120}
