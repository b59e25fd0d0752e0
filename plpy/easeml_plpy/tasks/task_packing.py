"""Packing of a version of a task from its table of examples; blocks without changes since the version before are kept.

The table is the service's own, with columns of PostgreSQL's types: reading it runs nothing that a tenant wrote. The
number of an example is its key, which blocks hold, so comparing two sets of numbers finds what changed.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from easeml_plpy.columns.encoder import Encoder, Field, LabelTarget, Target
from easeml_plpy.columns.encoding import encoded_shape, fields_from_bytes, targets_from_bytes
from easeml_plpy.columns.sent_columns import int8s
from easeml_plpy.columns.target_statistics import folds_of
from easeml_plpy.packing.dealing import SPLITS
from easeml_plpy.packing.packing import block_rows_of
from easeml_plpy.packing.packing_statistics import PackingStatistics, checksum
from easeml_plpy.packing.version_facts import version_facts
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import InvalidData
from easeml_plpy.server.session import Command, Session, Statement, only_column
from easeml_plpy.tasks.task_blocks import Integers, TaskBlock, plan_blocks
from easeml_plpy.tasks.task_places import Places, check_places, kept_places, partitions_of, places_of
from easeml_plpy.tasks.task_rows import ExampleRows


class _Task(NamedTuple):
    """A task as its row says it, and its newest version, if there is one."""

    examples: str
    specification: str
    classes: Sequence[str] | None
    newest_id: int | None
    newest_partitions: int | None


class _Examples(NamedTuple):
    """All labelled examples, in the order of their numbers: numbers, class codes and switches, side by side."""

    numbers: bytes | None
    codes: bytes | None
    switches: bytes | None


class _Stored(NamedTuple):
    split: str
    part: int
    number: int
    keys: bytes
    holder_id: int


class _Rows(NamedTuple):
    part: int
    number: int
    n_rows: int
    inputs: bytes
    targets: bytes


TASK = Statement(
    """
SELECT t.examples, t.specification, t.classes, d.dataset_id AS newest_id, d.n_partitions AS newest_partitions
FROM easeml.tasks t LEFT JOIN LATERAL (SELECT d.dataset_id, d.n_partitions FROM easeml.datasets d
    WHERE d.tenant = t.tenant AND d.dataset_name = t.task_name ORDER BY d.version DESC LIMIT 1) d ON true
WHERE t.task_id = $1
""",
    ("int8",),
    _Task,
)
BLOCKS = Statement(
    "SELECT split, partition_number AS part, block_number AS number, easeml.array_bytes(row_hashes) AS keys, holder_id"
    " FROM easeml.version_blocks WHERE dataset_id = $1 ORDER BY split, partition_number, block_number",
    ("int8",),
    _Stored,
)
TRAINING_ROWS = Statement(
    "SELECT partition_number AS part, block_number AS number, n_rows, inputs, targets FROM easeml.version_blocks"
    " WHERE dataset_id = $1 AND split = 'train' ORDER BY partition_number, block_number",
    ("int8",),
    _Rows,
)
BEGIN: Statement[int] = Statement(
    "SELECT easeml.begin_task_version($1, $2, $3) AS dataset_id", ("int8", "int4", "jsonb"), only_column
)
INSERT_BLOCK = Command(
    "INSERT INTO easeml.blocks (dataset_id, tenant, split, partition_number, block_number, n_rows, row_hashes, inputs,"
    " targets) SELECT $1, t.tenant, $3, $4, $5, $6, $7::bigint[], $8, $9 FROM easeml.tasks t WHERE t.task_id = $2",
    ("int8", "int8", "text", "int4", "int4", "int4", "int8[]", "bytea", "bytea"),
)
KEEP_BLOCK = Command(
    "INSERT INTO easeml.kept_blocks (dataset_id, tenant, split, partition_number, block_number, holder_id)"
    " SELECT $1, t.tenant, $3, $4, $5, $6 FROM easeml.tasks t WHERE t.task_id = $2",
    ("int8", "int8", "text", "int4", "int4", "int8"),
)
FINISH = Command("SELECT easeml.finish_task_version($1, $2, $3)", ("int8", "int8", "jsonb"))


@entry_point(returns_failure=True)
def pack_task(session: Session, task_id: int) -> int:
    """Pack the examples that are on as a further version of a task; return its dataset id. Raises InvalidData."""
    return _Packing(session, task_id).pack()


class _Packing:
    """A version of a task while it is packed."""

    def __init__(self, session: Session, task_id: int) -> None:
        self._session, self._task_id = session, task_id
        self._started = time.monotonic()  # recorded as a duration; no decision depends on it
        self._task = session.row(TASK, task_id)
        self._specification: dict[str, Any] = json.loads(self._task.specification)
        self._rows = ExampleRows(session, self._task.examples, self._specification, self._task.classes)
        self._inputs, self._target = self._rows.inputs, self._rows.target
        self._block_rows = block_rows_of(None, self._rows.fields)

    def pack(self) -> int:
        """Write what changed, point to what did not, and record the version."""
        examples, codes, is_on = self._examples()
        before = self._blocks_before()
        n_partitions, placed = self._placed(examples, codes, is_on, before)
        self._rows.check_memory(int(is_on.sum()), n_partitions)
        blocks = plan_blocks(before, placed, self._block_rows)
        settings = {key: self._specification[key] for key in ("validation_fraction", "test_fraction", "seed")}
        dataset_id = self._session.row(BEGIN, self._task_id, n_partitions, json.dumps(settings))
        for block in blocks:
            self._store(dataset_id, block)
        on = examples[is_on]
        previous = np.concatenate([block.examples for block in before]) if before else np.zeros(0, np.int64)
        self._finish(dataset_id, n_off=len(examples) - len(on), n_changed=len(np.setxor1d(previous, on)))
        return dataset_id

    def _examples(self) -> tuple[Integers, Integers, Any]:
        """Return the numbers of all labelled examples, their class codes, and whether they are on."""
        output = "e.output" if isinstance(self._target, LabelTarget) else "NULL"  # a tensor as text would be long
        row = self._session.row(
            Statement(
                "SELECT string_agg(int8send(e.example_id), ''::bytea ORDER BY e.example_id) AS numbers,"
                " string_agg(int4send((coalesce(c.code, 1) - 1)::int), ''::bytea ORDER BY e.example_id) AS codes,"
                " string_agg(boolsend(e.is_on), ''::bytea ORDER BY e.example_id) AS switches"
                f" FROM {self._task.examples} e LEFT JOIN unnest($1) WITH ORDINALITY c(class, code)"
                f" ON c.class = {output} WHERE e.output IS NOT NULL{self._rows.and_measured}",
                ("text[]",),
                _Examples,
                is_kept=False,
            ),
            list(self._task.classes or ()),
        )
        numbers, codes = np.frombuffer(row.numbers or b"", ">i8"), np.frombuffer(row.codes or b"", ">i4")
        is_on = np.frombuffer(row.switches or b"", np.uint8).astype(bool)
        return numbers.astype(np.int64), codes.astype(np.int64), is_on

    def _blocks_before(self) -> list[TaskBlock]:
        if self._task.newest_id is None:
            return []
        rows = self._session.rows(BLOCKS, self._task.newest_id)
        return [TaskBlock(row.split, row.part, row.number, int8s(row.keys), row.holder_id) for row in rows]

    def _placed(
        self, examples: Integers, codes: Integers, is_on: Any, before: Sequence[TaskBlock]
    ) -> tuple[int, dict[tuple[str, int], Integers]]:
        """Return the number of partitions, and the examples of each split and partition. Raises InvalidData."""
        if isinstance(self._target, LabelTarget) and len(np.unique(codes[is_on])) < 2:
            raise InvalidData(
                "the examples that are on are of fewer than two classes",
                hint="Feed examples of another class, or switch some on.",
            )
        requested = self._specification["n_partitions"]
        n_partitions = partitions_of(int(is_on.sum()), requested, self._task.newest_partitions)
        places = self._places(examples, codes, n_partitions, before)
        if not check_places(places, is_on, n_partitions):
            n_partitions, places = 1, self._places(examples, codes, 1, before)
        placed = {
            (split, part): examples[is_on & (places.splits == k) & (places.parts == part)]
            for k, split in enumerate(SPLITS)
            for part in range(n_partitions)
        }
        return n_partitions, placed

    def _places(self, examples: Integers, codes: Integers, n_partitions: int, before: Sequence[TaskBlock]) -> Places:
        fractions = self._specification["validation_fraction"], self._specification["test_fraction"]
        places = places_of(codes, n_partitions, *fractions)
        keeps_partitions = n_partitions == self._task.newest_partitions
        return kept_places(places, examples, before, keeps_partitions=keeps_partitions)

    def _store(self, dataset_id: int, block: TaskBlock) -> None:
        place = (block.split, block.part, block.number)
        if block.holder_id is not None:
            self._session.run(KEEP_BLOCK, dataset_id, self._task_id, *place, block.holder_id)
            return
        inputs, targets = self._rows.read(block.examples)
        rows = (len(block.examples), block.examples.tolist())
        self._session.run(INSERT_BLOCK, dataset_id, self._task_id, *place, *rows, inputs, targets)

    def _finish(self, dataset_id: int, *, n_off: int, n_changed: int) -> None:
        """Measure the training rows of kept and new blocks alike, and record the facts of the version."""
        fields, target, checksums = self._measured(dataset_id)
        facts = version_facts(fields, target, {}) | {
            "block_rows": self._block_rows,
            "row_key": "example_id::text",
            "checksums": [checksums[part] for part in range(max(checksums) + 1)],
            "n_skipped_rows": n_off,
            "n_changed": n_changed,
            "packing_seconds": time.monotonic() - self._started,
        }
        self._session.run(FINISH, dataset_id, self._task_id, json.dumps(facts))

    def _measured(self, dataset_id: int) -> tuple[list[Field], Target, Counter[int]]:
        n_rows = self._session.row(N_TRAINING_ROWS, dataset_id)
        statistics = PackingStatistics(self._inputs, self._target, n_rows)
        plain = Encoder(tuple(self._inputs), encoded_shape(self._inputs), self._target)
        checksums: Counter[int] = Counter()
        for rows in self._session.each(TRAINING_ROWS, dataset_id):
            targets = targets_from_bytes(self._target, rows.targets, rows.n_rows)
            fields = fields_from_bytes(plain, rows.inputs, rows.n_rows)
            statistics.observe(fields, targets, folds_of(0, rows.n_rows))
            checksums[rows.part] = checksum([rows.inputs, rows.targets], checksums[rows.part])
        return statistics.fields(self._inputs), statistics.measured_target(self._target), checksums


N_TRAINING_ROWS: Statement[int] = Statement(
    "SELECT sum(n_rows)::int8 AS n FROM easeml.version_blocks WHERE dataset_id = $1 AND split = 'train'",
    ("int8",),
    only_column,
)
