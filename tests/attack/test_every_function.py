"""Everybody calls every routine that they may execute with every kind of argument, and gets answers or errors of ours.

Routines and their arguments come from the catalogue, so a new one is called without a change here. What PostgreSQL
itself refuses before a routine begins (a literal that is no date) is fine; a Python traceback, a broken constraint, an
internal error and an overflowing stack are not. `make attack` tries everything; `make test` a part that a seed draws.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.attack.conftest import Scene
    from tests.fixtures.sessions import Session

SEED = 42
SHARE = 40  # of --attack-rows, calls of each routine by each role
ROUTINES = """
SELECT p.oid::regprocedure::text AS name, p.proname::text AS short, p.prokind::text AS kind,
    obj_description(p.oid, 'pg_proc') LIKE '%%(internal%%' OR has_function_privilege('easeml_coordinator', p.oid,
        'EXECUTE') AND NOT has_function_privilege('easeml_tenant', p.oid, 'EXECUTE') AS is_internal,
    coalesce(p.proargnames, '{}') AS names, coalesce(p.proargmodes::text[], '{}') AS modes,
    ARRAY(SELECT format_type(t, NULL) FROM unnest(coalesce(p.proallargtypes, p.proargtypes::oid[]))
        WITH ORDINALITY u(t, n) ORDER BY n) AS types
FROM pg_proc p WHERE p.pronamespace = 'easeml'::regnamespace AND has_function_privilege(%s, p.oid, 'EXECUTE')
    AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype) ORDER BY 1
"""
DEEP = "repeat('[', 5000) || repeat(']', 5000)"
TEXTS = (
    "''", "'work'", "'victim.work'", "'mallory.rows'", "'pg_catalog.pg_authid'", "'linear'", "'x'", "E'\\x1b[31m\\x07'",
    "repeat('n', 100000)", "'a''b\"; DROP TABLE x; --'", "'∞é' || chr(1114111)", "'NaN'", "'{}'", "'[1,2]'", "'null'",
    "'-1'", "'9999999999999999999'", "'0'", "'1; SELECT 1'", "'easeml.trials'", "'postgres'", "'victim'", DEEP,
)  # fmt: skip
JSON = (
    "'null'", "'true'", "'1'", "'\"x\"'", "'[]'", "'{}'", "'{\"x\": 1}'", "'[null]'", "'[[1],[2]]'", "'{\"x\": null}'",
    "'{\"inputs\": 1}'", "'{\"inputs\": [null], \"target\": []}'", "'1e400'", "'{\"x\": -1e400}'", "'\"\\u001b[31m\"'",
    f"({DEEP})", "('[' || repeat('{}, ', 5000) || '1]')",
    "'{\"config\": [], \"trials\": {}, \"architectures\": 7}'", "'[{\"architecture\": null, \"hyperparameters\": 1}]'",
)  # fmt: skip
NUMBERS = {
    "smallint": ("0", "-1", "1", "32767", "-32768"),
    "integer": ("0", "-1", "1", "2", "2147483647", "-2147483648"),
    "bigint": ("0", "-1", "1", "9223372036854775807", "-9223372036854775808", "{trial}", "{run}", "{others_trial}"),
    "real": ("0", "-1", "0.5", "'NaN'", "'Infinity'", "'-Infinity'", "1e-40"),
    "double precision": ("0", "-1", "0.5", "30", "'NaN'", "'Infinity'", "'-Infinity'", "1e308", "5e-324"),
    "numeric": ("0", "-1", "'NaN'", "'Infinity'", "1e1000"),
}
VALUES: dict[str, tuple[str, ...]] = {
    **NUMBERS,
    "text": TEXTS,
    "name": ("''", "'work'", "'mallory'", "'victim'", "'postgres'", "repeat('n', 63)", "'a\"b'"),
    "\"char\"": ("''", "'x'"),
    "boolean": ("true", "false"),
    "jsonb": JSON,
    "json": JSON,
    "bytea": (r"'\x'", r"'\x00'", r"'\xff'", "decode(repeat('7f', 100000), 'hex')"),
    "interval": ("'0'", "'1 day'", "'-1 day'", "'1 minute'", "'178000000 years'", "'1 month -30 days'"),
    "timestamp with time zone": ("'infinity'", "'-infinity'", "'4713-01-01 BC'", "'294276-12-31'", "now()"),
    "timestamp without time zone": ("'infinity'", "'-infinity'", "'4713-01-01 BC'", "'294276-12-31'"),
    "date": ("'infinity'", "'-infinity'", "'4713-01-01 BC'", "'5874897-12-31'"),
    "regclass": ("0", "4294967295", "'pg_class'", "'pg_authid'", "'easeml.trials'", "'mallory.rows'"),
    "regtype": ("0", "4294967295", "'text'", "'pg_class'"),
    "regrole": ("0", "4294967295", "'postgres'", "'mallory'"),
    "regprocedure": ("0", "4294967295"),
    "oid": ("0", "4294967295", "'pg_class'::regclass::oid", "'mallory.rows'::regclass::oid"),
    "xid8": ("'0'", "'18446744073709551615'"),
    "anyarray": ("'{1}'::float8[]", "'{}'::int[]", "'{NULL}'::text[]", "'[0:1]={1,2}'::real[]",
        "'{{1,2},{3,4}}'::int8[]",
        "'{NaN,Infinity}'::float8[]", "ARRAY[now()]", "array_fill(1, '{1000,100}')", "ARRAY['{}'::jsonb]"),
    "anyelement": ("1", "'x'::text", "NULL::int", "now()"),
}  # fmt: skip
# By name: what gets a call past the first checks.
LIKELY = {
    "dataset": "'work'", "name": "'work'", "trial_id": "{trial}", "run_id": "{run}", "tenant": "'mallory'",
    "caller": "'mallory'", "asker": "'mallory'", "task": "'classification'", "source": "'mallory.rows'",
    "architectures": "'{linear}'", "architecture": "'linear'", "split": "'test'", "inputs": "'{x}'", "target": "'y'",
    "n_configs": "2", "max_epochs": "1", "n_partitions": "1", "metric": "'accuracy'", "role": "'victim'",
}  # fmt: skip
ARRAYS = ("'{}'", "'{NULL}'", "'{{%s},{%s}}'", "'[0:0]={%s}'", "'{%s}'")
ELEMENTS = {"text": "x", "name": "x", "boolean": "t", "jsonb": "1", "bytea": "x", '"char"': "x"}


class Routine(NamedTuple):
    """A routine with its arguments that go in."""

    name: str
    short: str
    kind: str
    is_internal: bool
    arguments: tuple[tuple[str, str], ...]  # name, type


@dataclass(frozen=True)
class Call:
    """A call as text, with what it should be said of where it fails."""

    routine: Routine
    values: tuple[str, ...]

    def statement(self, numbers: dict[str, int]) -> str:
        cast = [f"({value})::{kind}" for value, (_, kind) in zip(self.values, self.routine.arguments, strict=True)]
        plain = [value if kind.startswith("any") else text
                 for value, text, (_, kind) in zip(self.values, cast, self.routine.arguments, strict=True)]  # fmt: skip
        listed = ", ".join(plain)
        for name, number in numbers.items():
            listed = listed.replace("{" + name + "}", str(number))
        verb = "CALL" if self.routine.kind == "p" else "SELECT"
        return f"{verb} easeml.{self.routine.short}({listed})"


def routines_of(root: Session, role: str) -> list[Routine]:
    """All routines that a role may execute, with IN, INOUT and VARIADIC arguments."""
    found = []
    for row in root.rows(ROUTINES, role):
        modes = row["modes"] or ["i"] * len(row["types"])
        names = [*row["names"], *[""] * len(modes)]
        given = tuple(
            (name, kind) for name, kind, mode in zip(names, row["types"], modes, strict=False) if mode in "ibv"
        )
        found.append(Routine(row["name"], row["short"], row["kind"], row["is_internal"], given))
    return found


def kinds_of(kind: str) -> tuple[str, ...]:
    """Every kind of value of a type."""
    if kind in VALUES:
        return ("NULL", *VALUES[kind]) if not kind.startswith("any") else VALUES[kind]
    if kind.endswith("[]"):
        element = ELEMENTS.get(kind[:-2], "1")
        return ("NULL", *(array.replace("%s", element) for array in ARRAYS))
    if kind.startswith("easeml."):
        return ("NULL", f"(SELECT t FROM {kind} t LIMIT 1)")
    return ("NULL",)


def likely(name: str, kind: str) -> str:
    """A value that is right for many arguments of that name; NULL, or the first kind, for others."""
    value = LIKELY.get(name)
    if value is None or (kind in NUMBERS) != (value[0] not in "'"):
        return kinds_of(kind)[0]
    return value


def calls_of(routine: Routine, n_calls: int, rng: random.Random) -> Iterator[Call]:
    """Each argument by itself with every kind of value, the others likely; then all at random."""
    usual = tuple(likely(*argument) for argument in routine.arguments)
    singles = [
        (*usual[:place], value, *usual[place + 1 :])
        for place, (_, kind) in enumerate(routine.arguments)
        for value in kinds_of(kind)
    ]
    rng.shuffle(singles)
    mixed = [
        tuple(rng.choice(kinds_of(kind)) for _, kind in routine.arguments)
        for _ in range(min(n_calls // 2, 100) if routine.arguments else 0)
    ]
    chosen = dict.fromkeys([usual, *singles[:n_calls], *mixed])
    yield from (Call(routine, values) for values in chosen)


def is_ours(error: psycopg.Error, *, is_internal: bool) -> bool:
    """Whether an error is one that a user may meet: of class ML, a right that is missing, a limit of time; or of the
    server's own, before anything of ours began. What is internal may say what is wrong in PostgreSQL's words, too, and
    so may everybody where an array of any type is no array of numbers.
    """
    state, context = error.sqlstate or "", error.diag.context or ""
    if state in ("42501", "57014", "55P03", "40001"):
        return True
    if is_internal and (state[:2] in ("22", "42", "ML") or state == "23502"):
        return True
    if state == "42846" or "cannot cast" in str(error).partition("\n")[0]:
        return True
    if state == "ML019":
        return False
    return state.startswith("ML") or (state[:2] in ("22", "42") and "easeml." not in context)


@pytest.fixture(scope="module")
def numbers(scene: Scene) -> dict[str, int]:
    """Of a trained trial of mallory's, its run, and the victim's trial."""
    mallory = scene.root.as_role("mallory")
    run_id = mallory.value("SELECT easeml.select_models('work', '{linear}', n_configs => 1, max_epochs => 1)")
    scene.root.wait_until("SELECT status = 'finished' FROM easeml.runs WHERE run_id = %s", run_id)
    trial = "SELECT max(trial_id) FROM easeml.trials WHERE run_id = %s"
    return {
        "run": run_id,
        "trial": scene.root.value(trial, run_id),
        "others_trial": scene.root.value(trial, scene.victim_run),
    }


def attempt(session: Session, call: Call, numbers: dict[str, int]) -> str | None:
    """Make a call and take back what it did; return what is wrong with its answer."""
    statement = call.statement(numbers)
    try:
        if call.routine.kind == "p":
            session.execute(statement)  # type: ignore[arg-type]
        else:
            with session.transaction(force_rollback=True):
                session.execute(statement)  # type: ignore[arg-type]
    except psycopg.Error as error:
        if not is_ours(error, is_internal=call.routine.is_internal):
            first = str(error).partition("\n")[0]
            return f"{error.sqlstate} {first[:200]}  [{(error.diag.context or '')[-300:]}]\n  in {statement[:600]}"
    return None


@pytest.mark.parametrize("role", ["mallory", "rita", "outsider", "anna"])
def test_whoever_calls_whatever_meets_only_errors_of_ours(
    scene: Scene, numbers: dict[str, int], role: str, pytestconfig: pytest.Config
) -> None:
    n_calls = (pytestconfig.getoption("--attack-rows", None) or 200) // SHARE
    scene.root.as_role("anna", "easeml_admin")
    session: Any = scene.root.as_role(role)
    session.execute("SET statement_timeout = '3s'; SET lock_timeout = '1s'; SET client_min_messages = 'error'")
    rng, wrong = random.Random(SEED), dict[str, str]()
    routines = routines_of(scene.root, role)
    for routine in routines:
        for call in calls_of(routine, n_calls, rng):
            said = attempt(session, call, numbers)
            if said is not None:
                wrong.setdefault(f"{routine.name} {said[:60]}", said)
            if session.closed:
                pytest.fail(f"the session ended at {call.statement(numbers)[:2000]}")
    assert len(routines) > 30
    assert not wrong, f"{len(wrong)} errors:\n" + "\n".join(wrong.values())
