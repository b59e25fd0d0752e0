"""Seconds of easeml.create_dataset, relative to a COPY of the same rows into a plain logged table.

The COPY is binary and its bytes lie ready in the client's memory; the table has the image and the label and no index.
Packing reads that very table, shuffles, splits, decodes and writes blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from statistics import median

from comparison.measuring import Row, seconds_of, take_turns
from workload import Session, Workload, create_dataset

from easeml_loaders import fashion_mnist_source
from easeml_loaders.binary_copy import encode_rows
from easeml_loaders.copy_stream import FILE_HEADER, FILE_TRAILER

N_PAIRS = 5
COLUMN_TYPES = {"bytea": "bytea", "smallint": "smallint[]"}


def measure(workload: Workload) -> Iterator[Row]:
    """Yield a row for images as bytea and as arrays."""
    for kind, column_type in COLUMN_TYPES.items():
        yield from _measure(workload, kind, column_type)


def _measure(workload: Workload, kind: str, column_type: str) -> Iterator[Row]:
    stream = list(_stream(kind, workload.n_rows))
    numbers = count(1)
    with workload.session() as session, workload.session("postgres") as owner:
        source = workload.images(kind)

        def ours() -> float:
            seconds = seconds_of(lambda: create_dataset(session, f"packed_{next(numbers)}", source))
            session.execute(
                "SELECT easeml.drop_dataset(dataset_name) FROM easeml.datasets WHERE dataset_name ~ '^packed_'"
            )
            return seconds

        def theirs() -> float:
            session.execute("DROP TABLE IF EXISTS copied")
            session.execute(f"CREATE TABLE copied (image {column_type}, label text)")
            owner.execute("CHECKPOINT")
            return seconds_of(lambda: _copy(session, stream))

        ours()  # the first one imports torch
        pairs = take_turns(workload.repeats(N_PAIRS), ours, theirs)
        session.execute("DROP TABLE copied")
    n_bytes = sum(map(len, stream))
    setting = (
        f"{column_type}, {workload.n_rows} rows, {n_bytes / 1e6:.0f} MB on the wire,"
        f" {median(pairs.ours):.2f} s against {median(pairs.theirs):.2f} s, {len(pairs.ours)} pairs"
    )
    yield Row("create_dataset / COPY", setting, pairs.ratio, "x time", at_most=3)


def _stream(kind: str, n_rows: int) -> Iterator[bytes]:
    """A COPY stream of image and label of the first rows."""
    source = fashion_mnist_source(bytes_as=kind)  # type: ignore[arg-type]
    yield FILE_HEADER
    for images, labels, _ in source.chunks():
        taken = [type(values)(values.data[:n_rows]) for values in (images, labels)]
        n_rows -= len(taken[0].data)
        yield from encode_rows(source.columns[:2], taken)
    yield FILE_TRAILER


def _copy(session: Session, stream: list[bytes]) -> None:
    with session.cursor().copy("COPY copied FROM STDIN (FORMAT BINARY)") as copy:
        for chunk in stream:
            copy.write(chunk)
