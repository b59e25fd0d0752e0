"""An administrator registers an architecture: an old task gets it as an arm, trains it, and its report tells."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.integration.tasks.test_tasks import IMAGES, advance, create, feed_pictures

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.sessions import Session

N_SLOTS = 1
OPTIONS = psycopg.types.json.Jsonb({"max_epochs": 1, "n_configs": 1})
MIXER = """
SELECT easeml.register_architecture('mixer', 'easeml_experiments.mixer:build', %s, '[
    {"name": "n_blocks", "kind": "integer", "default": 2, "low": 1, "high": 12, "search": [1, 2, 4]},
    {"name": "n_channels", "kind": "integer", "default": 16, "low": 4, "high": 512, "search": [16, 32, 64]}]',
    'MLP-Mixer')
"""


@pytest.fixture(scope="module")
def admin(module_database: Session) -> Session:
    """An administrator who is no superuser."""
    return module_database.as_role("root", "easeml_admin")


@pytest.fixture(scope="module")
def ada(module_database: Session) -> Session:
    """A tenant whose task 'old' has a finished run, which came to 0.25."""
    session = module_database.as_role("ada", "easeml_tenant")
    module_database.execute("CREATE SCHEMA lab AUTHORIZATION ada")
    create(session, "old", classes=["a", "b", "c"], run_after_examples=100, run_options=OPTIONS)
    feed_pictures(session, "lab.old", 120)
    run_id = advance(module_database, "old")
    module_database.execute(
        "UPDATE easeml.trials SET best_metric_value = 0.25 WHERE run_id = %s AND trial_number = 1", [run_id]
    )
    for change in ("status = 'running', started_at = now()", "status = 'finished', finished_at = now()"):
        module_database.execute(f"UPDATE easeml.runs SET {change} WHERE run_id = %s", [run_id])
    assert advance(module_database, "old") is None
    return session


def refusal(session: Session, statement: str, *values: Any) -> str:
    with pytest.raises(psycopg.Error) as caught:
        session.execute(statement, values)
    return f"{caught.value.sqlstate}: {caught.value.diag.message_primary}"


def test_only_administrators_register_and_nobody_else_writes_the_table(module_database: Session, ada: Session) -> None:
    assert refusal(ada, MIXER, [IMAGES]).startswith("42501")
    insert = (
        "INSERT INTO easeml.registered_architectures VALUES ('x', 'os:system', '{}', '{}', '[]', '', '{}', '{}', '{}')"
    )
    for role in ("ada", "easeml_owner", "easeml_coordinator", "easeml_reader"):
        with module_database.transaction(force_rollback=True):
            module_database.execute(f"SET LOCAL ROLE {role}")
            assert refusal(module_database, insert).startswith("42501"), role


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'x', 'os:system', ARRAY['Input = [2] Output = [2]']", "ML003: entry_point: no installed package offers"),
        ("'x', 'easeml_experiments.mixer:build', '{}'", "ML001: programs: expected 1 to 20"),
        (
            "'x', 'easeml_experiments.mixer:build', ARRAY['Input = [0] Output = [2]']",
            "ML001: program: line 1, column 10",
        ),
        ("'x', 'easeml_experiments.mixer:build', ARRAY['Input = [2] Output = [2]']", "ML001: architecture x fails"),
        ("'mlp', 'easeml_experiments.mixer:build', ARRAY['Input = [2] Output = [2]']", "ML001: name: easeml has"),
        ("'O''Brien', 'os:system', ARRAY['Input = [2] Output = [2]']", "ML001: name: expected small letters"),
        ("NULL, 'os:system', ARRAY['Input = [2] Output = [2]']", "ML001: name, entry_point"),
    ],
)
def test_what_does_not_work_is_refused_and_nothing_is_written(admin: Session, arguments: str, message: str) -> None:
    assert refusal(admin, f"SELECT easeml.register_architecture({arguments})").startswith(message)
    assert admin.value("SELECT count(*) FROM easeml.registered_architectures WHERE architecture <> 'mixer'") == 0


def test_an_open_transaction_that_holds_a_task_keeps_no_architecture_waiting(admin: Session, ada: Session) -> None:
    with ada.transaction(force_rollback=True), admin.transaction(force_rollback=True):
        ada.execute("SELECT easeml.run_task('old')")
        admin.execute("SET LOCAL statement_timeout = '30s'; SET LOCAL lock_timeout = '250ms'")
        admin.execute(MIXER, [[IMAGES]])


def test_an_old_task_gets_the_arm_and_its_report_tells(
    admin: Session, ada: Session, another_coordinator: Callable[[], None]
) -> None:
    notices: list[str] = []
    admin.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    admin.execute(MIXER, [[IMAGES]])
    assert notices == ["architecture mixer: image_classification; 1 task(s) of that kind"]
    names = ada.value("SELECT hyperparameters FROM easeml.architectures WHERE architecture = 'mixer'")
    assert [each["name"] for each in names][:3] == ["n_blocks", "n_channels", "optimizer"]
    assert "mixer" in ada.value("SELECT architectures FROM easeml.templates WHERE template = 'image_classification'")
    assert refusal(admin, MIXER.replace("MLP-Mixer", "x").replace("512", "256"), [IMAGES]).startswith("ML004: name:")
    another_coordinator()
    told = "SELECT event FROM easeml.task_report('old') WHERE event LIKE 'new architecture mixer: 0.2500 -> %%'"
    ada.wait_until(f"SELECT EXISTS ({told})")
    assert (
        ada.values("SELECT DISTINCT architecture FROM easeml.task_report('old') WHERE event = 'arm'").count(None) == 0
    )
    trial_id = ada.value("SELECT trial_id FROM easeml.trials WHERE architecture = 'mixer'")
    answer = ada.value("SELECT easeml.infer('old', decode(repeat('10', 64), 'hex'), %s)", trial_id)
    assert (len(answer["output"]), answer["trial_id"]) == (3, trial_id)
    assert refusal(ada, "SELECT easeml.export_trial('old', %s)", trial_id).startswith("ML004: mixer is a registered")


def test_one_that_is_withdrawn_gets_no_further_run_and_still_answers(admin: Session, ada: Session) -> None:
    admin.execute(MIXER, [[IMAGES]])
    admin.execute("SELECT easeml.withdraw_architecture('mixer')")
    assert refusal(admin, "SELECT easeml.withdraw_architecture('mixer')").startswith("ML003")
    said = refusal(ada, "SELECT easeml.select_models('old', '{mixer}')")
    assert said.startswith("ML001: architectures: there is no architecture 'mixer'")
    trials = ada.values("SELECT trial_id FROM easeml.trials WHERE architecture = 'mixer'")
    for trial_id in trials:
        assert (
            len(ada.value("SELECT easeml.infer('old', decode(repeat('10', 64), 'hex'), %s)", trial_id)["output"]) == 3
        )
    assert json.dumps(ada.values("SELECT architectures FROM easeml.templates")).count("mixer") == 0
