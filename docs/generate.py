"""Writes docs/reference/ from what the code says of itself: SQL comments, click commands, the architecture registry.

    python docs/generate.py            write the pages
    python docs/generate.py --check    write nothing; exit 1 when a page is not what would be written

No server is needed: sql_sources.py reads the SQL sources. A test runs the check, so the reference cannot fall behind.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CLONE = Path(__file__).resolve().parent.parent
REFERENCE = CLONE / "docs" / "reference"
sys.path[:0] = [str(CLONE), *(str(CLONE / name) for name in ("plpy", "loaders", "reader", "experiments", "docs"))]

from sql_sources import Routine, relations, roles, routines, sql_text  # noqa: E402

NOTE = "<!-- Written by docs/generate.py; change the sources and run: make docs -->"

# What a user calls, by subject. A new function that is in no group shows under "For looking things up".
GROUPS = {
    "Datasets": (
        "create_dataset", "wait_dataset", "refresh_dataset", "drop_dataset", "replicate_dataset",
        "dataset_rows", "drift", "set_refresh", "run_refresh", "advance_refresh", "grant_use", "revoke_use",
    ),
    "Tasks": (
        "create_task", "feed", "infer", "add_labelling_function", "remove_labelling_function", "label_examples",
        "run_task", "alter_task", "task_report", "drop_task", "register_architecture", "withdraw_architecture",
    ),
    "Runs": ("select_models", "wait", "run_summary", "cancel", "resume", "drop_run", "replay"),
    "Plans and prices": (
        "plan", "plan_frontier", "profile_dataset", "forecast", "create_price_list", "drop_price_list",
        "create_provisioner", "limit_provisioner", "drop_provisioner",
    ),
    "Predictions": (
        "predict", "predict_value", "predict_row", "predict_probabilities", "predict_table", "predict_on_nodes",
        "deploy", "undeploy", "rollback", "set_serving_metric", "set_prediction_audit",
    ),
    "Evaluation": (
        "evaluate", "evaluate_on_nodes", "explain_on_nodes", "explain_row_on_nodes", "drift_on_nodes",
        "confusion_matrix", "class_metrics", "roc_curve", "calibration", "residuals", "held_out_answers",
        "explain", "explain_row", "hyperparameter_importance",
    ),
    "Files": ("export_trial", "import_trial"),
    "Old rows": ("set_retention",),
    "Slots and segments": (
        "set_slots", "add_slots", "drain_slot", "resume_slot", "remove_slot", "add_segment", "segment_facts",
        "drain_segment", "resume_segment", "remove_segment", "install_greenplum_views",
        "remove_greenplum_views", "set_state_copies", "set_node_job_limit",
    ),
    "Tenants": ("create_tenant", "alter_tenant", "drop_tenant", "adopt_tenant", "set_policy", "quality"),
    "Operations": ("version", "has_live_coordinator", "python_facts", "finish_restore"),
}  # fmt: skip

ROLES = {
    "easeml_owner": "Owns what easeml does for tenants beyond their own rights. Nobody can become it: never grant it.",
    "easeml_admin": "Sees all tenants' rows, sets slots, segments and limits. Member of the other three; no superuser.",
    "easeml_coordinator": "The coordinator's role: runs units for all tenants.",
    "easeml_tenant": "Creates datasets and runs, and sees only its own rows.",
    "easeml_reader": "Reads the views and results of all tenants, but no blocks and no checkpoints.",
}


# Pages


def cell(text: str) -> str:
    """Text for one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table."""
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cell(text) for text in line) + " |" for line in lines] + [""]


def routine_lines(routine: Routine) -> list[str]:
    """A heading's worth of one signature: arguments one a line, what it returns, the comment."""
    call = "CALL " if routine.kind == "procedure" else ""
    inputs = [argument for argument in routine.arguments if not argument.startswith("OUT ")]
    outputs = [argument.removeprefix("OUT ") for argument in routine.arguments if argument.startswith("OUT ")]
    returns = "" if routine.kind == "procedure" else f" → {routine.returns or '(' + ', '.join(outputs) + ')'}"
    if routine.returns == "SETOF record":
        returns = f" → rows of ({', '.join(outputs)})"
    if len(inputs) <= 2:
        signature = [f"{call}easeml.{routine.name}({', '.join(inputs)}){returns}"]
    else:
        signature = [f"{call}easeml.{routine.name}(", *(f"    {one}," for one in inputs[:-1]), f"    {inputs[-1]}"]
        signature.append(f"){returns}")
    return ["```sql", *signature, "```", "", *escaped(routine.comment), ""]


def escaped(comment: str) -> list[str]:
    """A comment as Markdown lines: nothing in it is markup."""
    return [re.sub(r"([<*])", r"\\\1", line.strip()) for line in comment.strip().splitlines()]


def sql_page() -> str:
    """The reference of the SQL interface."""
    text = sql_text()
    known = routines(text)
    public = [routine for routine in known if not routine.is_internal]
    named = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "For looking things up": tuple(dict.fromkeys(r.name for r in public if r.name not in named))}
    lines = [NOTE, "", "# SQL reference", ""]
    lines += ["Everything lives in schema `easeml`. How to use it is in the [guide](../guide.md).", ""]
    for title, names in groups.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += [f"### {name}", ""]
            for routine in (routine for routine in public if routine.name == name):
                lines += routine_lines(routine)
    lines += ["## Views", "", "Read these, not the tables: columns are only ever added, at the end.", ""]
    for view in (view for view in relations(text, "VIEW") if not view.is_internal):
        lines += [f"### {view.name}", "", *escaped(view.comment), ""]
        lines += table(["column", "meaning"], [(f"`{name}`", comment) for name, comment in view.columns.items()])
    lines += ["## Roles", "", "Group roles, made by the extension; grant them to your own login roles.", ""]
    lines += table(["role", "what it may do"], [(f"`{name}`", ROLES[name]) for name in roles(text)])
    lines += [
        "## Tables",
        "",
        "Prefer the views: tables may change between versions. Row-level security guards every table with a tenant.",
        "",
    ]
    lines += table(["table", "what a row is"], [(f"`{one.name}`", one.comment) for one in relations(text, "TABLE")])
    lines += ["## Internal views", "", "Read and written by the functions above, in the name of their caller.", ""]
    lines += table(
        ["view", "what a row is"], [(f"`{v.name}`", v.comment) for v in relations(text, "VIEW") if v.is_internal]
    )
    lines += ["## Internal routines", "", "Called by the coordinator, by triggers, or by the functions above.", ""]
    internal = [(f"`{one.name}`", one.comment) for one in known if one.is_internal]
    return "\n".join([*lines, *table(["routine", "what it does"], internal)])


def cli_page() -> str:
    """The reference of the command line."""
    from easeml_db.cli import commands

    lines = [NOTE, "", "# Command line reference", ""]
    lines += ["Exit codes: 0 done, 1 failed, 2 wrong usage. Errors are one line on standard error, with their"]
    lines += ["detail and hint below; `easeml --debug COMMAND` shows a traceback.", ""]
    return "\n".join([*lines, *command_lines("easeml", commands)])


def command_lines(path: str, command: Any) -> list[str]:
    """One command: usage, help, arguments and options; then those below it, by name."""
    import click

    context = click.Context(command, info_name=path)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"## {path}", "", "```", f"{path} {usage}".strip(), "```", ""]
    lines += [" ".join(part.split()) + "\n" for part in (command.help or "").replace("\b", "").split("\n\n")]
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    if options:
        lines += table(["option", "meaning"], [(f"`{option_text(one)}`", option_help(one)) for one in options])
    for name in sorted(getattr(command, "commands", {})):
        lines += command_lines(f"{path} {name}", command.commands[name])
    return lines


def option_text(option: Any) -> str:
    """'--slots N' as it is typed."""
    import click

    names = "/".join([*option.opts, *option.secondary_opts])
    if option.is_flag or option.count:
        return names
    kind = option.metavar or ("|".join(option.type.choices) if isinstance(option.type, click.Choice) else None)
    return f"{names} {kind or option.type.name.upper()}"


def option_help(option: Any) -> str:
    """Its help, with the environment variable and the default where they are shown."""
    extra = []
    if option.envvar:
        extra.append(f"environment: `{option.envvar}`")
    if option.show_default and isinstance(option.default, str | int | float | Path):
        extra.append(f"default: `{option.default}`")
    return " ".join([option.help or "", f"({'; '.join(extra)})" if extra else ""]).strip()


def architectures_page() -> str:
    """The reference of architectures, their hyperparameters, and metrics."""
    from easeml_plpy.metrics import METRICS
    from easeml_plpy.metrics.metrics import DEFAULT_METRIC
    from easeml_plpy.trainers import ARCHITECTURES

    lines = [NOTE, "", "# Architectures and metrics", ""]
    lines += ["The same as views `easeml.architectures` and `easeml.metrics`. *Search* is what is tried when"]
    lines += ["`select_models` gets no `search_space`; — means that the default stays.", ""]
    lines += ["## Architectures", ""]
    for one in ARCHITECTURES.values():
        ranks = ", ".join(map(str, one.input_ranks))
        lines += [f"### {one.name}", "", f"{one.summary[0].upper()}{one.summary[1:]}.", ""]
        kinds = f"Tasks: {', '.join(one.tasks)}. Ranks of input shapes: {ranks}. Made for: {', '.join(one.made_for)}."
        lines += [f"Trainer: {one.trainer}. {kinds}", ""]
        rows = [
            (f"`{h.name}`", h.summary, h.expected(), f"`{json.dumps(h.default)}`", search_text(h.search))
            for h in one.hyperparameters
        ]
        lines += table(["hyperparameter", "meaning", "legal", "default", "search"], rows)
    lines += ["## Metrics", ""]
    rows = [
        (f"`{m.name}`", m.task, "higher" if m.is_higher_better else "lower", m.summary,
         "yes" if m.name in DEFAULT_METRIC.values() else "")
        for m in METRICS.values()
    ]  # fmt: skip
    return "\n".join([*lines, *table(["metric", "task", "better", "meaning", "default"], rows)])


def search_text(search: Any) -> str:
    """A default search range as it would be written in a search space."""
    return "—" if search is None else f"`{json.dumps(search)}`"


def guide_page() -> str:
    """The guide, whose table of the arguments of easeml.select_models is what the function's COMMENT says."""
    from easeml_db.cli.terminal.search_options import argument_texts

    text = (REFERENCE.parent / "guide.md").read_text(encoding="utf-8")
    head, rest = text.split(ARGUMENTS, 1)
    _, tail = rest.split(END_OF_ARGUMENTS, 1)
    rows = [(f"`{name}`", what[0].upper() + what[1:]) for name, what in argument_texts().items()]
    return "\n".join([head + ARGUMENTS, "", *table(["argument", "what it says"], rows), END_OF_ARGUMENTS + tail])


ARGUMENTS = "<!-- select_models: make docs writes this table -->"
END_OF_ARGUMENTS = "<!-- end of select_models -->"
PAGES = {"sql.md": sql_page, "cli.md": cli_page, "architectures.md": architectures_page, "../guide.md": guide_page}


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with --check say which are stale."""
    stale = []
    for name, make in PAGES.items():
        path, text = REFERENCE / name, make().rstrip() + "\n"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if "--check" not in arguments:
        print("wrote " + ", ".join(stale) if stale else "the reference is current")
        return 0
    if stale:
        print(f"not current: {', '.join(stale)}; run: make docs", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
