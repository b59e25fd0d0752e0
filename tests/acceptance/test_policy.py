"""A user at the shell asks who is served next and why; an administrator chooses the policy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from easeml_db.cli.demo import demo_tenants
from easeml_db.cli.demo.demo_console import DemoConsole
from easeml_db.cli.demo.demo_roles import DEMO_TENANTS
from easeml_db.local.server import Embedded
from easeml_db.local.waiting import wait_for_coordinator
from easeml_db.postgres.connection import connect_now

SEARCH = ("--architectures", "linear,mlp,gaussian_nb", "--n-configs", "6", "--max-epochs", "1")


@pytest.fixture(scope="module")
def shell(server: Embedded, run_easeml: Any) -> Iterator[Any]:
    """`shell("policy", "--json")` runs a command on a server with a coordinator and its default policy."""
    wait_for_coordinator(server)
    yield run_easeml
    assert run_easeml("policy", "hybrid", "--prior", "auto", "--seed", 0).exit_code == 0


@pytest.fixture(scope="module")
def played(shell: Any) -> Iterator[int]:
    """A run of three arms that has ended."""
    assert shell("load", "iris", "--table", "policy_iris").exit_code == 0
    inputs = ("--inputs", "petal_length_cm,petal_width_cm", "--target", "label")
    assert shell("dataset", "create", "policy iris", "--source", "policy_iris", *inputs).exit_code == 0
    ended = document(shell("select", "policy iris", *SEARCH, "--watch", "--json"))
    assert ended["run"]["status"] == "finished"
    yield int(ended["run"]["run_id"])
    assert shell("dataset", "drop", "policy iris", "--cascade").exit_code == 0


def document(result: Result) -> Any:
    """What a command printed, which must be one JSON document and nothing else."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def in_use(shell: Any) -> dict[str, str]:
    """The policy and the prior in use."""
    return {row["kind"]: row["name"] for row in document(shell("policy", "--json")) if row["is_in_use"]}


def test_a_policy_is_chosen_and_keeps_what_is_not_named(shell: Any) -> None:
    assert document(shell("policy", "round_robin", "--prior", "independent", "--seed", 7, "--json"))
    assert in_use(shell) == {"policy": "round_robin", "prior": "independent"}
    assert "runs in turn" in shell("policy", "greedy").stdout
    assert in_use(shell) == {"policy": "greedy", "prior": "independent"}


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("nearest",), "there is no tenancy policy 'nearest'", "hybrid"),
        (("greedy", "--prior", "hope"), "there is no prior 'hope'", "independent"),
    ],
)
def test_unknown_names_are_refused_with_those_that_exist(
    shell: Any, arguments: tuple[str, ...], message: str, hint: str
) -> None:
    before = in_use(shell)
    refused = shell("policy", *arguments)
    assert refused.exit_code == 1
    assert refused.exception.sqlstate == "ML001"
    assert message in str(refused.exception)
    assert hint in refused.exception.hint
    assert in_use(shell) == before


def test_only_administrators_choose(shell: Any, server: Embedded) -> None:
    with connect_now(server.dsn()) as connection:
        connection.execute("CREATE ROLE policy_tina LOGIN; GRANT easeml_tenant TO policy_tina")
    dsn = server.dsn(user="policy_tina")
    assert "hybrid" in shell("policy", "--dsn", dsn).stdout
    refused = shell("policy", "greedy", "--dsn", dsn)
    assert refused.exit_code == 1
    assert "permission denied" in str(refused.exception)


def test_decisions_say_who_was_served_and_why(shell: Any, played: int) -> None:
    made = document(shell("run", "decisions", played, "--json"))
    assert {row["architecture"] for row in made if row["is_chosen"]} == {"linear", "mlp", "gaussian_nb"}
    assert [row["decision_id"] for row in made] == sorted(row["decision_id"] for row in made)
    assert made[0]["phase"] == "first_service"
    assert document(shell("run", "decisions", played, "--limit", 1, "--json")) == made[-1:]
    assert "served: every run is served once first" in shell("run", "decisions", played).stdout


def test_arms_show_what_is_believed_and_what_came(shell: Any, played: int) -> None:
    arms = {row["architecture"]: row for row in document(shell("run", "arms", played, "--json"))}
    assert set(arms) == {"linear", "mlp", "gaussian_nb"}
    for arm in arms.values():
        assert arm["status"] == "closed"
        assert 0 <= arm["quality"] <= 1
        assert arm["deviation"] > 0
        assert arm["cost_seconds"] > 0
    shown = shell("run", "arms", played).stdout
    assert f"run {played} on policy iris: finished" in shown
    assert "gaussian_nb" in shown


def test_regret_is_of_open_runs_or_of_all(shell: Any, played: int) -> None:
    assert played not in [row["run_id"] for row in document(shell("regret", "--json"))]
    (ended,) = [row for row in document(shell("regret", "--all", "--json")) if row["run_id"] == played]
    assert (ended["n_closed"], ended["n_waiting"], ended["estimated_gap"]) == (3, 0, None)
    assert ended["best_quality"] > 0.5
    assert "policy iris" in shell("regret", "--all").stdout


def test_wrong_usage(shell: Any) -> None:
    for arguments in (("policy", "--seed", 1), ("policy", "--prior", "auto"), ("run", "decisions", "--limit", 0)):
        assert shell(*arguments).exit_code == 2
    for command in ("decisions", "arms"):
        unknown = shell("run", command, 10**9)
        assert unknown.exit_code == 1
        assert "there is no run" in str(unknown.exception)


@pytest.fixture
def small_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tenant of the demonstration tries each architecture once, for an epoch."""
    small = [replace(each, n_configs=each.architectures.count(",") + 1, max_epochs=1) for each in DEMO_TENANTS]
    monkeypatch.setattr(demo_tenants, "DEMO_TENANTS", tuple(small))
    for tenant in small:
        monkeypatch.setattr(demo_tenants, tenant.role.removeprefix("demo_").upper(), tenant)


@pytest.mark.slow
@pytest.mark.usefixtures("small_searches")
def test_the_demonstration_of_many_tenants_runs_twice(
    server: Embedded, shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        result = shell("demo", "tenants", "--data", Path(server.folder))
        assert result.exit_code == 0, result.output
        assert "served: every run is served once first" in result.stdout
        assert "that you can see" in result.stdout  # dan reached for anna's run
        with connect_now(server.dsn()) as connection:
            runs = connection.execute(
                "SELECT DISTINCT ON (tenant) tenant, status, n_closed, n_arms, best_quality FROM easeml.run_regret"
                " WHERE tenant LIKE 'demo\\_%' ORDER BY tenant, run_id DESC"
            ).fetchall()
        outcomes = {run["tenant"]: run for run in runs}
        assert set(outcomes) == {tenant.role for tenant in DEMO_TENANTS}
        # How far the others come depends on when ben cancels, and on what cora has when her time is over.
        assert outcomes["demo_ben"]["status"] in ("cancelled", "finished")
        assert outcomes["demo_cora"]["status"] == "finished"
        for each in (outcomes["demo_anna"], outcomes["demo_dan"]):
            assert (each["status"], each["n_closed"]) == ("finished", each["n_arms"])
            assert each["best_quality"] > 0.5
    assert "demo_cora has digits from before" in result.stdout
    check_cancelling(server, capsys)


def check_cancelling(server: Embedded, capsys: pytest.CaptureFixture[str]) -> None:
    """Ben's run is cancelled if it is still open, and the demonstration says so if it is not."""
    with connect_now(server.dsn()) as connection:
        connection.execute("SET ROLE demo_ben")
        started = connection.execute(
            "SELECT easeml.select_models('wine', '{linear}', n_configs => 1, max_epochs => 1000000) AS run_id"
        ).fetchone()
        connection.execute("RESET ROLE")
        for _ in range(2):
            demo_tenants.cancel_for_ben(connection, started["run_id"], DemoConsole())
        status = "SELECT status FROM easeml.run_status WHERE run_id = %(run_id)s"
        assert connection.execute(status, started).fetchone() == {"status": "cancelled"}
    said = capsys.readouterr().out
    assert said.count(f"SELECT easeml.cancel({started['run_id']})") == 1
    assert f"his run {started['run_id']} was over before" in said


@pytest.mark.slow
def test_the_demonstration_leaves_the_roles_of_others_alone(server: Embedded, shell: Any) -> None:
    with connect_now(server.dsn()) as connection:
        before = connection.execute("SELECT shobj_description(to_regrole('demo_dan'), 'pg_authid') AS said").fetchone()
        if connection.execute("SELECT to_regrole('demo_dan') IS NULL AS is_free").fetchone()["is_free"]:
            connection.execute("CREATE ROLE demo_dan")
        connection.execute("COMMENT ON ROLE demo_dan IS 'works here'")
        refused = shell("demo", "tenants", "--data", Path(server.folder))
        assert refused.exit_code == 1
        assert "there is a role demo_dan that this demonstration has not made" in str(refused.exception)
        if before and before["said"]:
            connection.execute(f"COMMENT ON ROLE demo_dan IS '{before['said']}'".encode())
        else:
            connection.execute("DROP ROLE demo_dan")
