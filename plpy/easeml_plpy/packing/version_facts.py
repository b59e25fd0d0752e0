"""What packing finds out about a version of a dataset or task, as easeml.fill_version takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from easeml_plpy.columns.encoder import Encoder, Field, Target
from easeml_plpy.columns.encoding import encoded_shape
from easeml_plpy.packing.explanations import explanations
from easeml_plpy.packing.source_texts import TextFacts


def version_facts(
    fields: Sequence[Field], target: Target, texts: Mapping[str, TextFacts], n_folds: int = 0
) -> dict[str, Any]:
    """Return the facts of measured columns. `texts`: facts about the columns that hold texts."""
    shape = encoded_shape(fields)
    return {
        "task": target.task,
        "n_outputs": target.n_outputs,
        "input_shape": list(shape),
        "encoder": Encoder(tuple(fields), shape, target, n_folds).to_json(),
        "explanations": explanations(fields, texts),
    }
