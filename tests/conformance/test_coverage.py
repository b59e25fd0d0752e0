"""Every method of every port has a conformance test, and every fenced write one under a stale lease."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

from easeml_db.coordinator.ports import Ports

# What a stale coordinator may still do, and why that harms nobody.
UNFENCED = {
    "LeaseStore.acquire": "it draws a new lease",
    "LeaseStore.release": "its row has its own lease number",
    "SlotStore.explain": "says only what the next coordinator will say",
    "SlotStore.recover": "true whoever finds it out",
    "RunStore.note": "history, for readers",
    "TenancyStore.charge": "what was spent was spent",
    "RunStore.crashed": "history: true whoever tells it",
    "RunStore.lost": "history: true whoever tells it",
    "StateSpace.reclaim": "pruned states are pruned",
    "TaskStore.advance": "each task is fenced where it is packed (tests/integration/tasks/test_tasks.py)",
    "Executor.open": "sessions are its own",
    "Executor.cancel": "sessions are its own",
    "Executor.close": "sessions are its own",
    "Inbox.next": "messages are its own",
    "Clock.now_seconds": "reads",
    "InstanceStore.keep_call": "history: what a program said it said",
    "Provisioner.start": "an instance that is there is found, and not started again",
    "Provisioner.stop": "its row says that it is to be stopped, and one that is gone is no error",
    "Provisioner.close": "instances stay as they are",
}
READS = {
    "LeaseStore.is_held", "SlotStore.all_slots", "RunStore.open_runs", "RunStore.read",
    "RunStore.read_ahead", "RunStore.has_crashed", "RunStore.read_again", "TenancyStore.tenancy",
    "TenancyStore.past_arms", "TenancyStore.policy_memory", "TenancyStore.prior", "TenancyStore.read_ahead",
    "Answering.ask",
    "SearchStore.trial_history",
    "AllocationStore.profiles", "PlanStore.read", "PlanStore.standing", "PlanStore.slot_seconds",
    "InstanceStore.alive", "InstanceStore.local_slots",
}  # fmt: skip


def port_methods() -> set[str]:
    """Every method of every port, as Port.method."""
    ports = get_type_hints(Ports).values()
    return {f"{port.__name__}.{name}" for port in ports for name in vars(port) if not name.startswith("_")}


def strings(node: ast.AST, names: dict[str, list[str]]) -> Iterator[str]:
    """String literals below a node; f"RunStore.{name}" stands for each of WRITES."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield from [each.value + name for name in names["WRITES"]] if each.value.endswith(".") else [each.value]


def covered(*, is_stale: bool) -> set[str]:
    """What tests of this folder say that they cover, all of it or only under a stale lease."""
    found: set[str] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)):
            for mark in (each for each in function.decorator_list if ".covers" in ast.unparse(each)):
                assert isinstance(mark, ast.Call)
                for part in mark.keywords if is_stale else mark.args:
                    found |= set(strings(part, {"WRITES": ["start", "plan", "fail_trial", "fail", "finish"]}))
    return found


def test_every_method_of_every_port_has_a_conformance_test() -> None:
    assert covered(is_stale=False) == port_methods()


def test_every_write_is_tried_under_a_stale_lease_unless_it_may_go_on() -> None:
    assert set(UNFENCED) | READS <= port_methods()
    fenced = port_methods() - set(UNFENCED) - READS
    assert covered(is_stale=True) == fenced
