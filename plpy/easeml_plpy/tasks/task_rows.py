"""Examples of a task, read from their table in the form in which a block of a version keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.block_decoding import BlockDecoder
from easeml_plpy.columns.encoder import Field, LabelTarget, ObjectsField, SeriesTarget, Target, TensorTarget
from easeml_plpy.columns.encoding import fields_to_bytes, row_bytes
from easeml_plpy.columns.object_rows import Objects, packed
from easeml_plpy.prediction.client_row import array_elements
from easeml_plpy.server.errors import InvalidData
from easeml_plpy.server.session import Session, Statement, only_column
from easeml_plpy.tasks.task_columns import Specification, field_of, fields_of, is_link, target_of

Integers = npt.NDArray[np.int64]
MOST_FILLED_BYTES = 1 << 30
"""Of the rows of a partition side by side, which a session that trains has in memory."""


class ExampleRows:
    """The examples of one task, and what they are."""

    def __init__(
        self, session: Session, table: str, specification: Specification, classes: Sequence[str] | None
    ) -> None:
        self._session, self._table, self._specification = session, table, specification
        self._classes = list(classes or ())
        self.target: Target = self._sized_target(target_of(specification, classes))
        self.inputs: list[Field] = [self._sized(field) for field in fields_of(specification)]

    @property
    def fields(self) -> list[Field]:
        """The inputs, followed by the output if it is a tensor or a series."""
        if isinstance(self.target, SeriesTarget):
            return [*self.inputs, self.target.field]
        return [*self.inputs, field_of(self._specification["output"])] if self._has_tensors else self.inputs

    @property
    def _has_tensors(self) -> bool:
        return isinstance(self.target, TensorTarget)

    def check_memory(self, n_examples: int, n_partitions: int) -> None:
        """Refuse series and trees that would take too much memory side by side. Raises InvalidData."""
        filled = [field for field in self.fields if isinstance(field, ObjectsField)]
        if not filled:
            return
        n_rows, most = -(-n_examples // n_partitions), max(field.shape[0] for field in filled)
        if n_rows * row_bytes(filled) > MOST_FILLED_BYTES:
            raise InvalidData(
                f"the longest example has {most} objects: with all others filled up to that, the {n_rows} examples of a"
                f" partition take more than {MOST_FILLED_BYTES >> 20} MB",
                hint="Switch the longest ones off, or make the task with more partitions: n_partitions.",
            )

    def read(self, examples: Integers) -> tuple[bytes, bytes]:
        """Return the inputs and the targets of examples as a block stores them."""
        if not self._has_objects and not isinstance(self.target, SeriesTarget):
            return self._decoded(self._sent(self.inputs, self._sent_output(), examples), len(examples))
        if self._has_objects:
            inputs = self._objects(self._specification["inputs"], examples)
        else:
            inputs = self._fields(self.inputs, examples)
        return inputs, self._outputs(examples)

    def _outputs(self, examples: Integers) -> bytes:
        """Return the targets alone."""
        if isinstance(self.target, SeriesTarget):
            return self._objects([self._specification["output"]], examples)
        if self._has_tensors:
            return self._fields([field_of(self._specification["output"])], examples)
        statement: Statement[float] = Statement(
            f"SELECT ({self._sent_output()})::float8 AS target {self._chosen} ORDER BY k.place",
            ("int8[]", "text[]"),
            only_column,
            is_kept=False,
        )
        targets = np.array(self._session.rows(statement, examples.tolist(), self._classes))
        return targets.astype("<i4" if isinstance(self.target, LabelTarget) else "<f8").tobytes()

    def _objects(self, entries: Sequence[Mapping[str, Any]], examples: Integers) -> bytes:
        """Return series or trees that these columns hold."""
        columns = ", ".join(f"easeml.array_bytes(e.{entry['column']})" for entry in entries)
        statement: Statement[list[bytes]] = Statement(
            f"SELECT ARRAY[{columns}] AS columns {self._chosen} ORDER BY k.place",
            ("int8[]", "text[]"),
            only_column,
            is_kept=False,
        )
        rows = self._session.rows(statement, examples.tolist(), self._classes)
        return packed([_objects(entries, columns) for columns in rows])

    def _fields(self, fields: Sequence[Field], examples: Integers) -> bytes:
        """Return arrays that columns hold."""
        payload = self._sent(fields, "0::int4", examples)
        return fields_to_bytes(BlockDecoder(fields, ">i4").decode(payload, None, len(examples))[0])

    def _sent(self, fields: Sequence[Field], output: str, examples: Integers) -> bytes:
        """Return rows of arrays, and of an output, as the server sends records."""
        sent = [*(columns_of.send_sql(field, f"e.{field.column}", "") for field in fields), output]
        statement: Statement[bytes] = Statement(
            f"SELECT string_agg(record_send(ROW({', '.join(sent)})), ''::bytea ORDER BY k.place) AS payload"
            f" {self._chosen}",
            ("int8[]", "text[]"),
            only_column,
            is_kept=False,
        )
        return self._session.row(statement, examples.tolist(), self._classes)

    @property
    def _chosen(self) -> str:
        """SQL of the rows of the examples $1, as k and e; $2 are the classes."""
        return (
            "FROM unnest($1) WITH ORDINALITY k(example_id, place)"
            f" JOIN {self._table} e USING (example_id) WHERE $2 IS NOT NULL"
        )

    @property
    def and_measured(self) -> str:
        """SQL that leaves out an example e that is on and longer than all that were measured: it came since."""
        filled = [(self._specification["inputs"][0], self.inputs[0].shape[0])] if self._has_objects else []
        if isinstance(self.target, SeriesTarget):
            filled.append((self._specification["output"], self.target.shape[0]))
        return "".join(f" AND (NOT e.is_on OR {_length_of(entry)} <= {most})" for entry, most in filled)

    @property
    def _has_objects(self) -> bool:
        return isinstance(self.inputs[0], ObjectsField)

    def _sized(self, field: Field) -> Field:
        """Return a series or tree with the objects of the longest example that is on."""
        if not isinstance(field, ObjectsField):
            return field
        return field.of_length(self._longest(self._specification["inputs"][0]))

    def _sized_target(self, target: Target) -> Target:
        """Return the target of output series, with the steps of the longest one that is switched on."""
        if not isinstance(target, SeriesTarget):
            return target
        return target.of_length(self._longest(self._specification["output"]))

    def _longest(self, entry: Mapping[str, Any]) -> int:
        """Return how many objects a column has at most, of the examples that are on."""
        statement: Statement[int | None] = Statement(
            f"SELECT max({_length_of(entry)})::int4 AS most FROM {self._table} e"
            " WHERE e.is_on AND e.output IS NOT NULL",
            (),
            only_column,
            is_kept=False,
        )
        return self._session.row(statement) or 1

    def _sent_output(self) -> str:
        """Return SQL for the output; a tensor goes as one more field, with a number behind it that means nothing."""
        if self._has_tensors:
            return columns_of.send_sql(field_of(self._specification["output"]), "e.output", "") + ", 0::int4"
        return "(array_position($2, e.output) - 1)::int4" if isinstance(self.target, LabelTarget) else "e.output"

    def _decoded(self, payload: bytes, n_rows: int) -> tuple[bytes, bytes]:
        if isinstance(self.target, TensorTarget):
            fields, _ = BlockDecoder(self.fields, ">i4").decode(payload, None, n_rows)
            return fields_to_bytes(fields[:-1]), fields_to_bytes(fields[-1:])
        is_label = isinstance(self.target, LabelTarget)
        fields, targets = BlockDecoder(self.inputs, ">i4" if is_label else ">f8").decode(payload, None, n_rows)
        return fields_to_bytes(fields), targets.astype("<i4" if is_label else "<f8").tobytes()


def _objects(entries: Sequence[Mapping[str, Any]], columns: Sequence[bytes]) -> Objects:
    """Return a series or tree from its columns, given in the server's array format."""
    numbers, links = [], []
    for entry, stored in zip(entries, columns, strict=True):
        if is_link(entry):
            links.append(array_elements(stored, np.int32, 0))
        else:
            numbers.append(array_elements(stored, np.float32, np.nan).reshape(-1, entry["n_values"]))
    table = np.stack(links, axis=1) if links else np.zeros((len(numbers[0]), 0), np.int32)
    return Objects(np.concatenate(numbers, axis=1), table)


def _length_of(entry: Mapping[str, Any]) -> str:
    """Return SQL of the number of objects that a column of an example e has."""
    return f"cardinality(e.{entry['column']}) / {entry['n_values']}"
