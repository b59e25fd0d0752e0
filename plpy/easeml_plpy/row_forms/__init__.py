"""The row forms that an architecture can name, and the task of a dataset in each.

Blocks hold the values of rows. A session lays them out in a row form when it decodes them, so a further row form needs
no new packing. To add one: write a file with a `RowForm` and list it here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from easeml_plpy.columns.encoder import Encoder, NumberTarget, SeriesTarget, TensorTarget
from easeml_plpy.columns.task import Objects, Task
from easeml_plpy.row_forms.combined import COMBINED
from easeml_plpy.row_forms.contract import RowForm
from easeml_plpy.row_forms.sparse import SPARSE, is_sparse
from easeml_plpy.row_forms.standard import STANDARD
from easeml_plpy.row_forms.table import TABLE, has_table
from easeml_plpy.row_forms.tree import TREE

__all__ = ["ROW_FORMS", "RowForm", "row_form_of", "task_in"]

ROW_FORMS: dict[str, RowForm] = {form.name: form for form in (STANDARD, TREE, TABLE, SPARSE, COMBINED)}

EXISTENCE: dict[str, Callable[[Encoder], bool]] = {"table": has_table, "sparse": is_sparse}
"""Which datasets have that row form; every dataset has those that are not listed here."""


def row_form_of(name: str, encoder: Encoder) -> RowForm:
    """Return the row form of that name, or `standard` if this dataset does not have it."""
    exists = EXISTENCE.get(name)
    return ROW_FORMS[name] if exists is None or exists(encoder) else STANDARD


def task_in(view: RowForm, encoder: Encoder) -> Task:
    """Return the task of a trial that takes the dataset in this row form."""
    target = encoder.target
    shape, layout = view.shape(encoder), view.layout(encoder)
    field = encoder.objects if view is STANDARD else None
    input_range = encoder.array_range if len(shape) > 1 else None
    task = Task(
        target.task,
        shape,
        target.n_outputs,
        view.input_type,
        layout,
        encoder.n_folds,
        input_range,
        output_shape=target.shape if isinstance(target, TensorTarget) else (),
        objects=Objects(field.n_numbers, field.n_links) if field is not None else None,
    )
    if isinstance(target, SeriesTarget):
        task = replace(task, output_objects=Objects(target.n_numbers, 0))
    if isinstance(target, TensorTarget):
        return replace(task, output_range=(target.low, target.high))
    return replace(task, target_range=target.range) if isinstance(target, NumberTarget) else task
