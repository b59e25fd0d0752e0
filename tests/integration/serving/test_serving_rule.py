"""What answers for a dataset changes only by the written rule, in whatever order runs, refreshes and drops come.

A pure model of the rule plays seeded random orders beside the server. No order trains anything: what units record
is recorded by the functions that they call.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
N_ORDERS = 1000
N_STEPS = 14
METRICS = {"accuracy": 1, "log_loss": -1, "macro_f1": 1}
"""Each metric, with the sign that makes more of it better."""

# Carries out the steps of an order; returns for each what answers then and why, or the error. Runs and trials are named
# by the order in which the order made them.
PLAY = """
CREATE FUNCTION pg_temp.play(dataset text, steps jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    step jsonb;
    me name := easeml.register_tenant(current_user);
    runs bigint[] := '{}';
    trials bigint[] := '{}';
    told jsonb := '[]';
    error text;
    data_id bigint;
    trial easeml.trials;
    best bigint;
    answered bigint;
    noted bigint;
BEGIN
    FOR step IN SELECT * FROM jsonb_array_elements(steps) LOOP
        error := NULL;
        BEGIN
            CASE step ->> 'do'
            WHEN 'refresh' THEN
                INSERT INTO easeml.datasets (tenant, dataset_name, version, source, input_columns, target_column, task,
                    input_shape, n_outputs, n_partitions, validation_fraction, test_fraction, seed, block_rows, encoder)
                SELECT me, dataset, coalesce(max(d.version), 0) + 1, '', '{}', '', 'classification',
                    '{1}', 2, 1, 0.2, 0.2, 0, 1, '{}'
                FROM easeml.datasets d WHERE d.tenant = me AND d.dataset_name = dataset
                RETURNING dataset_id INTO data_id;
            WHEN 'run' THEN
                runs := runs || easeml.insert_run(
                    jsonb_populate_record(NULL::easeml.runs, (step -> 'metric') || jsonb_build_object(
                        'tenant', me, 'dataset_id', data_id, 'procedure', 'grid', 'architectures', '{linear}'::text[],
                        'n_configs', 2, 'max_epochs', 99, 'seed', 0, 'scheduler', 'auto', 'visit_order', 'cyclic',
                        'allocation', 'hopping')),
                    '{"arms": [{"architecture": "linear"}], "trials": [
                        {"arm": "linear", "trial_number": 1, "architecture": "linear", "config": {}, "bracket": 0},
                        {"arm": "linear", "trial_number": 2, "architecture": "linear", "config": {}, "bracket": 0}]}');
                trials := trials || ARRAY(
                    SELECT t.trial_id FROM easeml.trials t WHERE t.run_id = runs[cardinality(runs)] ORDER BY 1);
            WHEN 'measure' THEN
                SELECT t.* INTO trial FROM easeml.trials t WHERE t.trial_id = trials[(step ->> 'trial')::int];
                IF FOUND THEN
                    best := NULL;
                    IF (step ->> 'is_best')::boolean THEN
                        INSERT INTO easeml.checkpoints (trial_id, tenant, epoch, n_bytes, sha256)
                        VALUES (trial.trial_id, me, (step ->> 'epoch')::int, 0, repeat('0', 64))
                        RETURNING checkpoint_id INTO best;
                    END IF;
                    PERFORM easeml.record_metrics(jsonb_build_object('trial_id', trial.trial_id),
                        (step ->> 'epoch')::int, 'validation', 1, step -> 'metrics', best);
                END IF;
            WHEN 'drop' THEN PERFORM easeml.drop_run(runs[(step ->> 'run')::int], (step ->> 'force')::boolean);
            WHEN 'cancel' THEN PERFORM easeml.cancel(runs[(step ->> 'run')::int]);
            WHEN 'deploy' THEN PERFORM easeml.deploy(trials[(step ->> 'trial')::int]);
            WHEN 'undeploy' THEN PERFORM easeml.undeploy(dataset);
            WHEN 'rollback' THEN PERFORM easeml.rollback(dataset);
            WHEN 'metric' THEN PERFORM easeml.set_serving_metric(dataset, step ->> 'name');
            END CASE;
        EXCEPTION WHEN SQLSTATE 'ML003' OR SQLSTATE 'ML004' OR SQLSTATE 'ML010' THEN
            error := SQLSTATE;
        END;
        SELECT a.trial_id INTO answered FROM easeml.answering_trial(me, dataset) a;
        SELECT h.trial_id INTO noted FROM easeml.serving_history h
        WHERE h.dataset_name = dataset ORDER BY h.serving_id DESC LIMIT 1;
        told := told || jsonb_build_array(
            jsonb_build_array(array_position(trials, answered), error, array_position(trials, noted)));
    END LOOP;
    RETURN told;
END
$$
"""


def badness(metric: str, metrics: dict[str, float]) -> tuple[float, float]:
    """What is lower for a better epoch."""
    return -METRICS[metric] * metrics.get(metric, 0.0), metrics.get("log_loss", 0.0)


@dataclass
class Trial:
    """A trial of the model: its run, and its best value once it is measured."""

    number: int
    run: int
    metric: str
    best: dict[str, float] | None = None

    @property
    def place(self) -> tuple[tuple[float, float], int]:
        """What orders trials, the best first: of equal ones the lower loss, then the older."""
        return badness(self.metric, self.best or {}), self.number


@dataclass
class Change:
    """What answered from some moment on; `restored`: the place in the history that a rollback went back to."""

    trial: int | None
    is_deployed: bool
    restored: int | None = None


@dataclass
class Rule:
    """The rule of docs/design/prediction.md, as a model of one dataset."""

    trials: dict[int, Trial] = field(default_factory=dict)
    open_runs: set[int] = field(default_factory=set)
    metric: str | None = None
    is_chosen: bool = False
    deployed: int | None = None
    history: list[Change] = field(default_factory=list)

    def answering(self) -> int | None:
        """The deployed trial, else the best of the runs that rank by the metric, of equals the oldest."""
        if self.deployed is not None:
            return self.deployed
        measured = [t for t in self.trials.values() if t.best is not None and t.metric == self.metric]
        return min(measured, key=lambda trial: trial.place).number if measured else None

    def note(self, restored: int | None = None) -> None:
        """Keep what answers now, if that is new."""
        last = self.history[-1] if self.history else Change(None, False)
        now = Change(self.answering(), self.deployed is not None, restored)
        if (now.trial, now.is_deployed) != (last.trial, last.is_deployed):
            self.history.append(now)

    def play(self, step: dict[str, Any]) -> str | None:
        """Take a step; return the code of the error that it meets."""
        do: Any = getattr(self, f"_{step['do']}")
        error: str | None = do(step)
        return error

    def _refresh(self, step: dict[str, Any]) -> None:
        pass

    def _run(self, step: dict[str, Any]) -> None:
        self.metric = self.metric or step["metric"]["metric"]
        self.open_runs.add(step["run"])
        for number in step["trials"]:
            self.trials[number] = Trial(number, step["run"], step["metric"]["metric"])

    def _measure(self, step: dict[str, Any]) -> None:
        trial = self.trials.get(step["trial"])
        if trial and step["is_best"]:
            trial.best = step["metrics"]
            self.note()

    def _drop(self, step: dict[str, Any]) -> str | None:
        lost = [t for t in self.trials.values() if t.run == step["run"]]
        if not lost:
            return "ML003"
        if self.answering() in [t.number for t in lost] and not step["force"]:
            return "ML004"
        for trial in lost:
            del self.trials[trial.number]
            if self.deployed == trial.number:
                self.deployed = None
        self.open_runs.discard(step["run"])
        self.note()
        if not self.trials and not self.is_chosen:
            self.metric = None
        return None

    def _cancel(self, step: dict[str, Any]) -> str | None:
        if step["run"] not in {t.run for t in self.trials.values()}:
            return "ML003"
        if step["run"] not in self.open_runs:
            return "ML004"
        self.open_runs.discard(step["run"])
        return None

    def _deploy(self, step: dict[str, Any]) -> str | None:
        trial = self.trials.get(step["trial"])
        if trial is None:
            return "ML003"
        if trial.best is None:
            return "ML010"
        self.deployed = trial.number
        self.note()
        return None

    def _undeploy(self, step: dict[str, Any]) -> str | None:
        if self.deployed is None:
            return "ML003"
        self.deployed = None
        self.note()
        return None

    def _rollback(self, step: dict[str, Any]) -> str | None:
        present = self.answering()
        place: int = len(self.history) - 1
        while place >= 0:
            place = self._began(place) - 1
            former = self.history[place].trial if place >= 0 else None
            if former is not None and former != present and former in self.trials:
                self.deployed = former
                self.note(self._began(place))
                return None
        return "ML004"

    def _began(self, place: int) -> int:
        """The change that a change stands for: the one that it went back to, or itself."""
        restored = self.history[place].restored
        return place if restored is None else restored

    def _metric(self, step: dict[str, Any]) -> None:
        self.metric, self.is_chosen = step["name"], True
        self.note()


def random_order(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Yield the steps of an order: a dataset and a run first, then whatever comes."""
    yield {"do": "refresh"}
    runs: list[str] = []
    bests: dict[int, tuple[float, float]] = {}
    for place in range(N_STEPS):
        kinds = ["run"] * 2 + ["measure"] * 6 + ["drop"] * 2
        kinds += ["refresh", "cancel", "deploy", "deploy", "undeploy", "rollback", "rollback", "metric"]
        do = "run" if place == 0 else rng.choice(kinds)
        step: dict[str, Any] = {"do": do}
        if do == "run":
            metric = rng.choice(list(METRICS))
            runs.append(metric)
            n = len(runs)
            step |= {"run": n, "trials": [2 * n - 1, 2 * n]}
            step["metric"] = {"metric": metric, "is_higher_better": METRICS[metric] > 0}
        elif do in ("measure", "deploy"):
            trial = rng.randint(1, 2 * len(runs))
            metric = runs[(trial - 1) // 2]
            step |= {"trial": trial, "epoch": place}
            if do == "measure":
                step["metrics"] = {name: rng.randint(1, 3) / 3 for name in METRICS}
                found = badness(metric, step["metrics"])
                step["is_best"] = trial not in bests or found < bests[trial]
                bests[trial] = min(found, bests.get(trial, found))
        elif do in ("drop", "cancel"):
            step |= {"run": rng.randint(1, len(runs)), "force": rng.random() < 0.4}
        elif do == "metric":
            step["name"] = rng.choice(list(METRICS))
        yield step


@pytest.fixture(scope="module")
def player(module_database: Session) -> Session:
    module_database.execute("SET client_min_messages = error")
    module_database.execute(PLAY)
    return module_database


@pytest.mark.parametrize("hundred", range(10))
def test_what_answers_changes_only_by_the_rule(player: Session, hundred: int) -> None:
    for seed in range(hundred * N_ORDERS // 10, (hundred + 1) * N_ORDERS // 10):
        steps = list(random_order(random.Random(seed)))
        with player.transaction(force_rollback=True):
            told = player.value("SELECT pg_temp.play(%s, %s)", f"order {seed}", json.dumps(steps))
        rule = Rule()
        for number, (step, (answered, error, noted)) in enumerate(zip(steps, told, strict=True)):
            where = f"seed {seed}, step {number}: {step}"
            assert error == rule.play(step), where
            assert answered == rule.answering(), where
            assert noted == (rule.history[-1].trial if rule.history else None), where


LABELLED = "CREATE TABLE labelled AS SELECT i % 3 + sin(i) / 9 AS x, chr(97 + i % 3) AS y FROM generate_series(1, 90) i"
RUN = "SELECT easeml.select_models('cls', '{gaussian_nb}', n_configs => 1, max_epochs => 1, seed => %s, metric => %s)"
ASK = "SELECT serving_trial_id FROM easeml.predict_row('cls', '{1}'::float8[])"
WAITS = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'easeml.checkpoints'::regclass)"


@pytest.fixture(scope="module")
def served(player: Session, coordinator: Callable[..., AbstractContextManager[Any]]) -> Session:
    """Two runs on one dataset, the first of which answers: they are equally good."""
    player.execute(LABELLED)
    player.execute("SELECT easeml.create_dataset('cls', 'labelled', '{x}', 'y', n_partitions => 1)")
    for seed in (1, 2):
        player.execute(RUN, [seed, "accuracy"])
    with coordinator(player, "--until-idle") as process:
        process.wait()
    return player


def test_a_state_that_is_dropped_while_a_session_reads_it_is_looked_up_again(served: Session) -> None:
    first, second = served.values("SELECT trial_id FROM easeml.trials ORDER BY 1")
    asking = served.again()
    assert asking.value(ASK) == first
    late = served.again()
    with served.transaction():
        served.execute("LOCK TABLE easeml.checkpoints IN ACCESS EXCLUSIVE MODE")
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(late.value, ASK)
            served.wait_until(
                "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'easeml.checkpoints'::regclass)"
            )
            served.execute(
                "SELECT easeml.drop_run((SELECT run_id FROM easeml.trials WHERE trial_id = %s), force => true)", [first]
            )
            served.execute("COMMIT")
            assert answer.result(60) in (first, second)
        served.execute("BEGIN")
    assert asking.value(ASK) == second
    with pytest.raises(psycopg.Error, match=f"trial {second}, which answers for dataset 'cls'"):
        served.execute("SELECT easeml.drop_run(max(run_id)) FROM easeml.runs")
    with pytest.raises(psycopg.Error, match=f"trial {second} was the first to answer, of those that are left"):
        served.execute("SELECT easeml.rollback('cls')")
