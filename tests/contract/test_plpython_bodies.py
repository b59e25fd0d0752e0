"""Every PL/Python body is one import and one call of a function of the same name, which takes the SQL arguments.

A pure core may be called too: `guarded` and `guarded_and_bounded` turn its errors into SQL errors, `answered_by` and
`answered_apart` return them as `failure`, and so does `within_memory`, whose own arguments come first.
"""

import ast
import importlib
import inspect
from textwrap import indent

import pytest

MAX_LINES = 4
# Must work when no package of ours can be imported: it is what the doctor asks.
FREE_BODIES = {"python_facts"}
# SQL name -> target of those that call a pure core; its word differs from the SQL name, which stands among others.
PURE_TARGETS = {
    "begin_search": ("easeml_db.decisions.procedures.proposal", "begun_search"),
    "plan_search": ("easeml_db.decisions.procedures.proposal", "preview"),
    "complete_allocation": ("easeml_db.decisions.hopper.allocation.registry", "complete_allocation"),
    "planned_allocation": ("easeml_db.decisions.hopper.allocation.registry", "planned_allocation"),
    "make_plan": ("easeml_db.decisions.planner.documents", "make_plan"),
    "make_forecast_apart": ("easeml_db.decisions.planner.forecast_documents", "make_forecast"),
    "make_forecast": ("easeml_db.decisions.planner.forecast_documents", "make_forecast"),
    "read_price_list": ("easeml_db.decisions.planner.documents", "read_price_list"),
    "takes_n_parallel": ("easeml_db.decisions.procedures", "takes_n_parallel"),
    "complete_budget": ("easeml_db.decisions.procedures.budget", "complete_budget"),
    "choose_portfolio": ("easeml_db.decisions.procedures.race.portfolio", "choose_portfolio"),
    "hyperparameter_importances": (
        "easeml_db.decisions.procedures.hyperparameter_importance",
        "hyperparameter_importances",
    ),
    "list_procedures": ("easeml_db.decisions.procedures", "list_procedures"),
    "list_policies": ("easeml_db.decisions.tenancy.policies", "list_policies"),
    "list_priors": ("easeml_db.decisions.bandits.priors", "list_priors"),
    "needs_gangs": ("easeml_db.decisions.hopper.allocation.registry", "needs_gangs"),
    "list_allocations": ("easeml_db.decisions.hopper.allocation.registry", "list_allocations"),
    "describe_program": ("easeml_db.decisions.templates.storage", "describe_program"),
    "run_reason": ("easeml_db.decisions.templates.starting", "run_reason"),
    "list_templates": ("easeml_db.decisions.templates.catalogue", "list_templates"),
    "greenplum_script": ("easeml_plpy.nodes.greenplum.greenplum_views", "installation_script"),
    "remove_greenplum_views": ("easeml_plpy.nodes.greenplum.greenplum_views", "removal_script"),
    "check_engine": ("easeml_db.postgres.nodes.engines", "check_engine"),
    "list_schedulers": ("easeml_db.decisions.hopper.schedulers.registry", "list_schedulers"),
}


@pytest.fixture(scope="session")
def bodies(sql_routines):
    found = [routine for routine in sql_routines if routine.language == "plpython3u"]
    assert len(found) > 5
    return [routine for routine in found if routine.name not in FREE_BODIES]


def parsed(routine):
    """Return (imported name -> module, the call that is returned)."""
    (function,) = ast.parse("def body():\n" + indent(routine.body.strip(), "    ")).body
    *imports, last = function.body
    assert imports, routine.signature
    assert all(isinstance(node, ast.ImportFrom) for node in imports), routine.signature
    assert isinstance(last, ast.Return), routine.signature
    assert isinstance(last.value, ast.Call), routine.signature
    assert not last.value.keywords, routine.signature
    return {alias.name: node.module for node in imports for alias in node.names}, last.value


def names(nodes):
    return [ast.unparse(node) for node in nodes]


def names_of_inputs(routine):
    return [argument.name for argument in routine.inputs]


def target_of(routine):
    """Return (module, name, arguments) of the function that does the work, without what turns its errors around it."""
    modules, call = parsed(routine)
    called, arguments = ast.unparse(call.func), names(call.args)
    if called in ("guarded", "guarded_and_bounded", "answered_by"):
        assert modules[called] == "easeml_plpy.server.entry_points"
        assert arguments[0] == "plpy"
        return modules[arguments[1]], arguments[1], arguments[2:]
    if called == "answered_apart":  # imports it itself
        assert modules[called] == "easeml_plpy.server.entry_points"
        assert arguments[0] == "plpy"
        module, name = (ast.literal_eval(argument) for argument in arguments[1:3])
        return module, name, arguments[3:]
    if called == "within_memory":
        assert modules[called] == "easeml_plpy.catalogue.config_memory"
        assert arguments[:2] + arguments[3:5] == ["plpy", "GD", *names_of_inputs(routine)[:2]]
        return modules[arguments[2]], arguments[2], arguments[5:]
    return modules[called], called, arguments


def test_bodies_are_short(bodies):
    long = {routine.name: routine.body for routine in bodies if len(routine.body.strip().splitlines()) > MAX_LINES}
    assert not long


def test_bodies_import_their_target_from_where_it_may_live(bodies):
    for routine in bodies:
        module, name, _ = target_of(routine)
        if routine.name in PURE_TARGETS:
            assert (module, name) == PURE_TARGETS[routine.name]
        else:
            assert module.startswith("easeml_plpy."), routine.signature
            assert name == routine.name, "the same name on both sides"


def test_bodies_pass_the_arguments_in_their_order(bodies):
    for routine in bodies:
        expected = names_of_inputs(routine)[2 if "within_memory" in routine.body else 0 :]
        if routine.name not in PURE_TARGETS:
            expected = ["plpy", "GD", *expected]
        assert target_of(routine)[2] == expected, routine.signature


def test_targets_take_what_bodies_pass(bodies):
    for routine in bodies:
        module, name, arguments = target_of(routine)
        target = getattr(importlib.import_module(module), name)
        inspect.signature(target, follow_wrapped=False).bind(*arguments)
        if routine.name not in PURE_TARGETS:
            # `entry_point` makes the session of `plpy, GD`.
            taken = list(inspect.signature(target).parameters)
            assert taken == ["session", *arguments[2:]], f"{routine.signature}: the same argument names on both sides"
            inspect.signature(target).bind("session", *arguments[2:])


def test_bodies_do_not_overload(bodies):
    """Two SQL functions of one name would share one Python function."""
    found = [routine.name for routine in bodies]
    assert len(found) == len(set(found))


def test_free_bodies_exist(sql_routines):
    assert {routine.name for routine in sql_routines} >= FREE_BODIES | PURE_TARGETS.keys()
