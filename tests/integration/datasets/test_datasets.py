"""What create_dataset stores: every kind of column, the split, the blocks, versions, and the encoder at prediction.

The blocks are decoded with the package's own decoder and compared with the source as multisets.
"""

from __future__ import annotations

import datetime
import json
import math
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pytest
from psycopg import sql

from easeml_plpy.columns.encoder import CategoricalField, Encoder
from easeml_plpy.columns.encoding import encode, fields_from_bytes
from easeml_plpy.prediction.client_row import fields_from_numbers, fields_from_values

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

SPLITS = ("train", "validation", "test")


def create(database: Session, source: str, inputs: list[str], target: str, name: str = "data", **options: Any) -> int:
    """Call create_dataset and return the id."""
    named = "".join(f", {key} => %({key})s" for key in options)
    statement = f"SELECT easeml.create_dataset(%(name)s, %(source)s, %(inputs)s, %(target)s{named})"
    (row,) = database.rows(statement, name=name, source=source, inputs=inputs, target=target, **options)
    return int(row["create_dataset"])


def encoder_of(database: Session, dataset_id: int) -> dict[str, Any]:
    encoder: dict[str, Any] = database.value("SELECT encoder FROM easeml.datasets WHERE dataset_id = %s", dataset_id)
    return encoder


def blocks_of(database: Session, dataset_id: int, split: str | None = None) -> list[dict[str, Any]]:
    return database.rows(
        "SELECT * FROM easeml.blocks WHERE dataset_id = %s AND split = coalesce(%s, split)"
        " ORDER BY split, partition_number, block_number",
        dataset_id,
        split,
    )


def decoded(database: Session, dataset_id: int, split: str | None = None) -> tuple[list[Any], list[Any], list[Any]]:
    """Fields, encoded rows and targets of all blocks."""
    encoder = Encoder.from_json(encoder_of(database, dataset_id))
    is_label = encoder.target.task == "classification"
    blocks = blocks_of(database, dataset_id, split)
    fields = [fields_from_bytes(encoder, bytes(block["inputs"]), block["n_rows"]) for block in blocks]
    targets = [np.frombuffer(block["targets"], "<i4" if is_label else "<f8") for block in blocks]
    assert [len(part) for part in targets] == [block["n_rows"] for block in blocks]
    joined = [np.concatenate(parts) for parts in zip(*fields, strict=True)]
    return joined, list(np.concatenate([encode(encoder, part) for part in fields])), list(np.concatenate(targets))


def plain_rows(database: Session, dataset_id: int, split: str | None = None) -> Counter[Any]:
    """All packed rows as a multiset: numbers (None for NaN), categories (None missing, ... other), arrays, label."""
    encoder = encoder_of(database, dataset_id)
    fields, _, targets = decoded(database, dataset_id, split)
    columns = [
        [plain_value(field, value) for value in values] for field, values in zip(encoder["inputs"], fields, strict=True)
    ]
    labels = encoder["target"].get("labels")
    columns.append([labels[code] if labels else float(code) for code in targets])
    return Counter(zip(*columns, strict=True))


def plain_value(field: dict[str, Any], value: Any) -> Any:
    if field["kind"] == "categorical":
        return None if value == -1 else [*field["categories"], ...][value]
    flat = [None if math.isnan(number) else number for number in np.asarray(value).reshape(-1).tolist()]
    return flat[0] if field["kind"] == "numeric" else tuple(flat)


def splits_of_ids(database: Session, dataset_id: int) -> dict[int, tuple[str, int]]:
    """Split and partition of every row, where the first input identifies rows."""
    encoder = Encoder.from_json(encoder_of(database, dataset_id))
    places = {}
    for block in blocks_of(database, dataset_id):
        fields = fields_from_bytes(encoder, bytes(block["inputs"]), block["n_rows"])
        for number in fields[0].tolist():
            assert number not in places
            places[int(number)] = (block["split"], block["partition_number"])
    return places


def make_table(database: Session, columns: str, rows: Iterable[Iterable[Any]], name: str = "t") -> None:
    rows = [list(row) for row in rows]
    database.execute(f"CREATE TABLE {name} ({columns})")
    marks = ", ".join(["%s"] * len(rows[0]))
    with database.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)


# Kinds of columns


def one_column(database: Session, kind: str, values: list[Any], **options: Any) -> tuple[int, Counter[Any]]:
    """Pack one input of a type beside labels a and b; return the dataset and its rows as a multiset."""
    make_table(database, f"x {kind}, y text", [(value, "ab"[i % 2]) for i, value in enumerate(values)])
    dataset_id = create(database, "t", ["x"], "y", **options)
    return dataset_id, plain_rows(database, dataset_id)


def expected(values: list[Any]) -> Counter[Any]:
    return Counter((value, "ab"[i % 2]) for i, value in enumerate(values))


@pytest.mark.parametrize("kind", ["smallint", "integer", "bigint", "real", "double precision", "numeric(12,3)"])
def test_numbers_arrive_and_null_and_nan_are_missing(scratch: Session, kind: str) -> None:
    values: list[Any] = [float(i - 20) for i in range(40)]
    values[3:6] = [None] * 3
    given = list(values)
    if kind in ("real", "double precision"):
        values[7:10], given[7:10] = [None] * 3, [math.nan] * 3
    dataset_id, rows = one_column(scratch, kind, given)
    assert rows == expected(values)
    (field,) = encoder_of(scratch, dataset_id)["inputs"]
    assert field["missing"] == [0]
    fields, inputs, _ = decoded(scratch, dataset_id)
    for number, encoded_row in zip(fields[0], inputs, strict=True):
        assert encoded_row.tolist()[1] == float(math.isnan(number))  # the flag
        assert not math.isnan(number) or encoded_row[0] == 0.0  # imputed by the mean


def test_statistics_are_those_of_the_training_rows(scratch: Session) -> None:
    dataset_id, _ = one_column(scratch, "double precision", [float(i * i) for i in range(60)])
    (field,) = encoder_of(scratch, dataset_id)["inputs"]
    (train,), inputs, _ = decoded(scratch, dataset_id, "train")
    assert field["mean"] == pytest.approx([train.mean()])
    assert field["scale"] == pytest.approx([train.std()])
    assert np.mean(inputs) == pytest.approx(0, abs=1e-6)
    assert np.std(inputs) == pytest.approx(1, abs=1e-6)


def test_booleans_and_dates_are_numbers(scratch: Session) -> None:
    start = datetime.date(1969, 12, 1)
    days = [start + datetime.timedelta(days=i) for i in range(40)]
    make_table(scratch, "d date, b boolean, y text", [(day, i % 3 == 0, "ab"[i % 2]) for i, day in enumerate(days)])
    dataset_id = create(scratch, "t", ["d", "b"], "y")
    epoch = datetime.date(1970, 1, 1)
    assert plain_rows(scratch, dataset_id) == Counter(
        ((day - epoch).days * 86400.0, float(i % 3 == 0), "ab"[i % 2]) for i, day in enumerate(days)
    )


def test_timestamps_are_seconds_in_utc(scratch: Session) -> None:
    scratch.execute("SET LOCAL timezone = 'Asia/Tokyo'")
    start = datetime.datetime(2024, 1, 1, 12, 0, 0, 123456, tzinfo=datetime.timezone.utc)
    times = [start + datetime.timedelta(hours=i) for i in range(40)]
    make_table(
        scratch, "a timestamptz, b timestamp, y text",
        [(time, time.replace(tzinfo=None), "ab"[i % 2]) for i, time in enumerate(times)],
    )  # fmt: skip
    dataset_id = create(scratch, "t", ["a", "b"], "y")
    assert plain_rows(scratch, dataset_id) == Counter(
        (time.timestamp(), time.timestamp(), "ab"[i % 2]) for i, time in enumerate(times)
    )


@pytest.mark.parametrize("kind", ["text", "varchar(20)", "char(5)", "mood"])
def test_categories_arrive_with_null(scratch: Session, kind: str) -> None:
    scratch.execute("CREATE TYPE mood AS ENUM ('sad', 'o k', 'it''s')")
    values: list[Any] = ["sad"] * 20 + ["o k"] * 12 + ["it's"] * 8 + [None] * 10
    dataset_id, rows = one_column(scratch, kind, values)
    assert rows == expected(values)
    (field,) = encoder_of(scratch, dataset_id)["inputs"]
    assert field["missing"] == [0]
    _, inputs, _ = decoded(scratch, dataset_id)
    assert {tuple(row) for row in np.array(inputs).astype(int)} == set(map(tuple, np.eye(5, dtype=int)[[0, 1, 2, 4]]))


def test_rare_categories_and_those_that_training_rows_lack_become_other(scratch: Session) -> None:
    values = [f"common {i % 70:02d}" for i in range(700)] + [f"rare {i}" for i in range(30)]
    dataset_id, rows = one_column(scratch, "text", values)
    (field,) = encoder_of(scratch, dataset_id)["inputs"]
    assert set(field["categories"]) == {f"common {i:02d}" for i in range(70)}
    assert encoder_of(scratch, dataset_id)["input_shape"] == [65]
    kept = [value if value in field["categories"] else ... for value in values]
    assert rows == expected(kept)


ARRAYS = {
    "smallint[]": [-300, 0, 300],
    "integer[]": [-70_000, 0, 70_000],
    "bigint[]": [-5_000_000_000, 0, 5_000_000_000],
    "real[]": [0.5, -1.25, 3.0],
    "double precision[]": [0.1, -1e-9, 1e9],
    "numeric[]": [0.1, -1.5, 100.25],
    "boolean[]": [True, False, True],
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_every_kind_arrive(scratch: Session, kind: str) -> None:
    pattern = ARRAYS[kind]
    values = [pattern[i % 3 :] + pattern[: i % 3] for i in range(30)]
    dataset_id, rows = one_column(scratch, kind, values)
    assert rows == expected([tuple(map(float, value)) for value in values])
    assert scratch.value("SELECT input_shape FROM easeml.datasets WHERE dataset_id = %s", dataset_id) == [3]


@pytest.mark.parametrize("kind", ["smallint[]", "real[]", "double precision[]"])
def test_two_dimensional_arrays_keep_their_shape(scratch: Session, kind: str) -> None:
    values = [[[i, 1, 2], [3, 4, i % 7]] for i in range(30)]
    dataset_id, rows = one_column(scratch, kind, values)
    assert rows == expected([tuple(float(number) for line in value for number in line) for value in values])
    assert scratch.value("SELECT input_shape FROM easeml.datasets WHERE dataset_id = %s", dataset_id) == [2, 3]
    _, inputs, _ = decoded(scratch, dataset_id)
    assert inputs[0].shape == (2, 3)


def test_input_shape_folds_flat_arrays(scratch: Session) -> None:
    dataset_id, _ = one_column(scratch, "real[]", [[i, 1, 2, 3, 4, 5] for i in range(30)], input_shape=[2, 3])
    assert scratch.value("SELECT input_shape FROM easeml.datasets WHERE dataset_id = %s", dataset_id) == [2, 3]


@pytest.mark.parametrize("kind", ["smallint[]", "real[]", "numeric[]", "boolean[]"])
def test_null_elements_and_null_arrays_are_missing(scratch: Session, kind: str) -> None:
    values: list[Any] = [[1, 0, 1] if i % 2 else [0, 1, 0] for i in range(60)]
    if kind == "boolean[]":
        values = [[bool(number) for number in value] for value in values]
    values[10:20] = [[values[0][0], None, values[0][2]]] * 10
    values[30:40] = [None] * 10
    dataset_id, rows = one_column(scratch, kind, values)
    plain = [(None,) * 3 if v is None else tuple(None if n is None else float(n) for n in v) for v in values]
    assert rows == expected(plain)
    (field,) = encoder_of(scratch, dataset_id)["inputs"]
    assert field["missing"] == [0, 1, 2]
    assert scratch.value("SELECT input_shape FROM easeml.datasets WHERE dataset_id = %s", dataset_id) == [6]


@pytest.mark.parametrize("value", [None, math.nan])
def test_images_with_missing_pixels_are_refused(scratch: Session, value: Any) -> None:
    values: list[Any] = [[[float(i), 1.0], [2.0, 3.0]] for i in range(30)]
    values[0] = [[0.0, 1.0], [value, 3.0]]
    with pytest.raises(psycopg.Error) as refused:
        one_column(scratch, "real[]", values)
    assert refused.value.sqlstate == "ML002"
    assert "'x'" in str(refused.value)


@pytest.mark.parametrize("bad_row", range(20))
def test_infinite_inputs_are_refused_in_whatever_split(scratch: Session, bad_row: int) -> None:
    values = [float(i) for i in range(20)]
    values[bad_row] = math.inf
    with pytest.raises(psycopg.Error, match="infinite") as refused:
        one_column(scratch, "real", values, n_partitions=2)
    assert refused.value.sqlstate == "ML002"


def test_bytes_are_images_of_the_given_shape(scratch: Session) -> None:
    values = [bytes([i, 255 - i, 7, 0, 1, 2]) for i in range(30)]
    dataset_id, rows = one_column(scratch, "bytea", values, input_shape=[2, 3])
    assert rows == expected([tuple(map(float, value)) for value in values])
    assert scratch.value("SELECT input_shape FROM easeml.datasets WHERE dataset_id = %s", dataset_id) == [2, 3]


def test_columns_of_all_kinds_side_by_side(scratch: Session) -> None:
    rows = [(i, "pq"[i % 2], [i, -i], None if i % 5 == 0 else i % 3 == 0, "abc"[i % 3]) for i in range(90)]
    make_table(scratch, "n integer, c text, a integer[], b boolean, y text", rows)
    dataset_id = create(scratch, "t", ["a", "b", "c", "n"], "y", n_partitions=3)
    assert plain_rows(scratch, dataset_id) == Counter(
        ((float(i), float(-i)), None if i % 5 == 0 else float(i % 3 == 0), "pq"[i % 2], float(i), "abc"[i % 3])
        for i in range(90)
    )
    # 2 array elements, boolean and its flag, 2 categories and other, number
    assert scratch.value("SELECT input_shape FROM easeml.datasets WHERE dataset_id = %s", dataset_id) == [8]


def test_numbers_of_large_magnitude_keep_their_precision(scratch: Session) -> None:
    offsets = [i / 8 for i in range(40)]
    make_table(
        scratch, "x numeric, d double precision[], i integer[], y text",
        [(f"{10**12 + o}", [1e12 + o, o], [10**9 + int(o * 8)], "ab"[n % 2]) for n, o in enumerate(offsets)],
    )  # fmt: skip
    for column, step in (("x", 1 / 8), ("d", 1 / 8), ("i", 1.0)):
        dataset_id = create(scratch, "t", [column], "y", name=column)
        (field,) = encoder_of(scratch, dataset_id)["inputs"]
        _, inputs, _ = decoded(scratch, dataset_id)
        first = np.unique(np.array(inputs)[:, 0])
        assert len(first) >= 36  # rows at the ends that do not train count as the nearest that does
        np.testing.assert_allclose(np.diff(first), step / field["scale"][0], rtol=1e-3, err_msg=column)


# Targets


@pytest.mark.parametrize(
    ("kind", "values", "labels"),
    [
        ("text", ["b", "a", "it's"], ["a", "b", "it's"]),
        ("integer", [10, 9, -1], ["-1", "9", "10"]),
        ("boolean", [True, False], ["false", "true"]),
        ("mood", ["sad", "happy"], ["sad", "happy"]),
        ("char(3)", ["b", "a"], ["a", "b"]),
    ],
)
def test_labels_of_every_type_in_their_own_order(
    scratch: Session, kind: str, values: list[Any], labels: list[str]
) -> None:
    scratch.execute("CREATE TYPE mood AS ENUM ('sad', 'happy')")
    make_table(scratch, f"x integer, y {kind}", [(i, values[i % len(values)]) for i in range(30)])
    dataset_id = create(scratch, "t", ["x"], "y")
    target = encoder_of(scratch, dataset_id)["target"]
    assert (target["task"], target["labels"]) == ("classification", labels)
    texts = {True: "true", False: "false"}
    assert plain_rows(scratch, dataset_id) == Counter(
        (float(i), texts.get(values[i % len(values)], str(values[i % len(values)]))) for i in range(30)
    )


@pytest.mark.parametrize("kind", ["real", "double precision", "numeric"])
def test_real_targets_are_numbers_to_predict(scratch: Session, kind: str) -> None:
    make_table(scratch, f"x integer, y {kind}", [(i, i * 0.5 + 100) for i in range(40)])
    dataset_id = create(scratch, "t", ["x"], "y")
    target = encoder_of(scratch, dataset_id)["target"]
    assert target["task"] == "regression"
    assert plain_rows(scratch, dataset_id) == Counter((float(i), i * 0.5 + 100) for i in range(40))
    _, _, train = decoded(scratch, dataset_id, "train")
    assert (target["mean"], target["scale"]) == pytest.approx((np.mean(train), np.std(train)))


def test_task_can_be_said(scratch: Session) -> None:
    make_table(scratch, "x integer, n integer, y numeric", [(i, i % 5, f"{i % 2}.{'0' * (i % 3)}") for i in range(40)])
    as_number = create(scratch, "t", ["x"], "n", name="number", task="regression")
    assert scratch.value("SELECT task FROM easeml.datasets WHERE dataset_id = %s", as_number) == "regression"
    as_label = create(scratch, "t", ["x"], "y", name="label", task="classification")
    assert encoder_of(scratch, as_label)["target"]["labels"] == ["0", "1"]


def test_rows_without_target_are_left_out(scratch: Session) -> None:
    make_table(scratch, "x integer, y text", [(i, None if i % 4 == 0 else "ab"[i % 2]) for i in range(40)])
    dataset_id = create(scratch, "t", ["x"], "y")
    (info,) = scratch.rows("SELECT * FROM easeml.dataset_info WHERE dataset_id = %s", dataset_id)
    assert info["n_skipped_rows"] == 10
    assert info["n_train_rows"] + info["n_validation_rows"] + info["n_test_rows"] == 30


# Names and sources


def test_views_and_other_relations_are_sources(scratch: Session) -> None:
    make_table(scratch, "x integer, y text", [(i, "ab"[i % 2]) for i in range(40)])
    scratch.execute("CREATE VIEW v AS SELECT x * 2 AS x, y FROM t WHERE x < 30")
    scratch.execute("CREATE MATERIALIZED VIEW m AS SELECT * FROM v")
    scratch.execute("CREATE TABLE p (x integer, y text) PARTITION BY RANGE (x)")
    scratch.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (20)")
    scratch.execute("CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (20) TO (100)")
    scratch.execute("INSERT INTO p SELECT * FROM v")
    for source in ("v", "m", "p"):
        dataset_id = create(scratch, source, ["x"], "y", name=source)
        assert plain_rows(scratch, dataset_id) == Counter((2.0 * i, "ab"[i % 2]) for i in range(30))


HOSTILE = ["My Column", 'say "hi"', "'; DROP TABLE victim; --", "$1", "%s", "{}", "select", "ä", "i0", "y", "h"]


def test_names_are_never_executed(scratch: Session) -> None:
    scratch.execute("CREATE TABLE victim (n integer)")
    columns = [sql.Identifier(name) for name in HOSTILE]
    fields = sql.SQL(", ").join([sql.SQL("{} integer").format(column) for column in columns])
    odd = "My \"Table'); DROP TABLE victim; --"
    table, target = sql.Identifier(odd), sql.Identifier('la"bel')
    scratch.execute(sql.SQL("CREATE TABLE {} ({}, {} text)").format(table, fields, target))
    values = sql.SQL(", ").join([sql.SQL("i + {}").format(position) for position in range(len(HOSTILE))])
    fill = "INSERT INTO {} SELECT {}, CASE i %% 2 WHEN 0 THEN %s ELSE %s END FROM generate_series(1, 40) i"
    labels = ["'); DROP TABLE victim; --", 'b"$1']
    scratch.execute(sql.SQL(fill).format(table, values), labels)
    quoted = '"' + odd.replace('"', '""') + '"'
    name = '\'; DROP TABLE victim; --\n"x"'
    dataset_id = create(scratch, quoted, HOSTILE, 'la"bel', name=name)
    assert plain_rows(scratch, dataset_id) == Counter(
        (*(float(i + position) for position in range(len(HOSTILE))), labels[i % 2]) for i in range(1, 41)
    )
    assert scratch.value("SELECT dataset_name FROM easeml.datasets WHERE dataset_id = %s", dataset_id) == name
    scratch.execute("SELECT easeml.refresh_dataset(%s)", [name])
    scratch.execute("SELECT easeml.drop_dataset(%s)", [name])
    assert scratch.value("SELECT count(*) FROM victim") == 0


def test_categories_are_never_executed(scratch: Session) -> None:
    scratch.execute("CREATE TABLE victim (n integer)")
    values = ["'; DROP TABLE victim; --", '{"a",NULL}', "NULL", "", "\\", "é\u2028"] * 10
    _, rows = one_column(scratch, "text", values)
    assert rows == expected(values)
    assert scratch.value("SELECT count(*) FROM victim") == 0


def test_source_is_found_again_under_another_search_path(scratch: Session) -> None:
    scratch.execute("CREATE SCHEMA shop")
    scratch.execute("SET LOCAL search_path = shop")
    make_table(scratch, "x integer, y text", [(i, "ab"[i % 2]) for i in range(40)])
    create(scratch, "t", ["x"], "y")
    scratch.execute("SET LOCAL search_path = public")
    make_table(scratch, "x integer, y text", [(-i, "cd"[i % 2]) for i in range(40)])
    refreshed = scratch.value("SELECT easeml.refresh_dataset('data')")
    assert encoder_of(scratch, refreshed)["target"]["labels"] == ["a", "b"]


# The split


def numbered(database: Session, n_rows: int, label: str = "i % 3", name: str = "t") -> None:
    """Table t(x, y) with x = 0.. and labels by an expression of i."""
    database.execute(f"CREATE TABLE {name} AS SELECT i AS x, ({label}) AS y FROM generate_series(0, {n_rows - 1}) i")


def test_every_row_is_in_exactly_one_block(scratch: Session) -> None:
    numbered(scratch, 1000)
    dataset_id = create(scratch, "t", ["x"], "y", n_partitions=3, block_rows=64)
    assert sorted(splits_of_ids(scratch, dataset_id)) == list(range(1000))
    assert plain_rows(scratch, dataset_id) == Counter((float(i), str(i % 3)) for i in range(1000))
    blocks = blocks_of(scratch, dataset_id)
    assert max(block["n_rows"] for block in blocks) == 64
    for partition in scratch.rows("SELECT * FROM easeml.partitions WHERE dataset_id = %s", dataset_id):
        own = [block for block in blocks if block["partition_number"] == partition["partition_number"]]
        for split in SPLITS:
            assert partition[f"n_{split}_rows"] == sum(block["n_rows"] for block in own if block["split"] == split)
        keys = scratch.value(
            "SELECT sum(pg_column_size(row_hashes)) FROM easeml.blocks WHERE dataset_id = %s AND partition_number = %s",
            dataset_id,
            partition["partition_number"],
        )
        assert partition["n_bytes"] == keys + sum(len(block["inputs"]) + len(block["targets"]) for block in own)


@pytest.mark.parametrize(
    ("n_rows", "validation", "test"), [(1000, 0.15, 0.15), (100, 0.2, 0.1), (37, 0.3, 0.4), (1000, 0.005, 0.5)]
)
@pytest.mark.parametrize("label", ["i % 3", "i / 2.0"])
def test_split_sizes_are_exact(scratch: Session, n_rows: int, validation: float, test: float, label: str) -> None:
    numbered(scratch, n_rows, label)
    dataset_id = create(
        scratch, "t", ["x"], "y", n_partitions=4, validation_fraction=validation, test_fraction=test
    )  # fmt: skip
    sizes = Counter(split for split, _ in splits_of_ids(scratch, dataset_id).values())
    assert abs(sizes["test"] - n_rows * test) <= 1
    assert abs(sizes["validation"] - n_rows * validation) <= 1
    for split in SPLITS:
        parts = Counter(part for of, part in splits_of_ids(scratch, dataset_id).values() if of == split)
        assert max(parts.values()) - min(parts[i] for i in range(4)) <= 1


def test_labels_are_spread_evenly_over_splits(scratch: Session) -> None:
    numbered(scratch, 2000, "CASE WHEN i % 20 = 0 THEN 'rare' ELSE 'common' END")
    places = splits_of_ids(scratch, create(scratch, "t", ["x"], "y", n_folds=0))
    rare = Counter(places[i][0] for i in range(0, 2000, 20))
    assert abs(rare["test"] - 15) <= 1
    assert abs(rare["validation"] - 15) <= 1


def test_a_label_that_occurs_once_is_trained_on(scratch: Session) -> None:
    numbered(scratch, 60, "CASE WHEN i < 10 THEN 'only ' || i ELSE 'common' END")
    places = splits_of_ids(scratch, create(scratch, "t", ["x"], "y"))
    assert {places[i][0] for i in range(10)} == {"train"}


def test_identical_rows_are_spread_over_splits_and_partitions(scratch: Session) -> None:
    scratch.execute("CREATE TABLE t AS SELECT i % 2 AS x, i % 2 AS y FROM generate_series(1, 400) i")
    dataset_id = create(scratch, "t", ["x"], "y", n_partitions=2)
    for split, least in (("train", 100), ("validation", 20), ("test", 20)):
        for partition in range(2):
            fields, _, _ = decoded_part(scratch, dataset_id, split, partition)
            assert min(Counter(fields.tolist()).values()) >= least // 4


def decoded_part(database: Session, dataset_id: int, split: str, partition: int) -> tuple[Any, Any, Any]:
    encoder = encoder_of(database, dataset_id)
    blocks = [b for b in blocks_of(database, dataset_id, split) if b["partition_number"] == partition]
    parsed = Encoder.from_json(encoder)
    parts = [fields_from_bytes(parsed, bytes(block["inputs"]), block["n_rows"])[0] for block in blocks]
    return np.concatenate(parts), encoder, blocks


def contents(database: Session, dataset_id: int) -> list[Any]:
    return [
        (block["split"], block["partition_number"], block["block_number"], block["inputs"], block["targets"])
        for block in blocks_of(database, dataset_id)
    ]  # fmt: skip


@pytest.mark.parametrize("label", ["i % 3", "i / 2.0"])
def test_same_rows_and_seed_give_the_same_blocks_wherever_the_rows_lie(scratch: Session, label: str) -> None:
    numbered(scratch, 500, label)
    first = create(scratch, "t", ["x"], "y", name="first", seed=7, block_rows=50)
    scratch.execute("UPDATE t SET x = x WHERE x % 3 = 0")  # the rows move to the end
    scratch.execute("CREATE TABLE other AS SELECT * FROM t ORDER BY x DESC")
    moved = create(scratch, "t", ["x"], "y", name="moved", seed=7, block_rows=50)
    copied = create(scratch, "other", ["x"], "y", name="copied", seed=7, block_rows=50)
    other_seed = create(scratch, "t", ["x"], "y", name="other seed", seed=8, block_rows=50)
    negative_seed = create(scratch, "t", ["x"], "y", name="negative seed", seed=-(2**63), block_rows=50)
    assert contents(scratch, first) == contents(scratch, moved) == contents(scratch, copied)
    places = [splits_of_ids(scratch, dataset_id) for dataset_id in (first, other_seed, negative_seed)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        n_moved = sum(places[one][i] != places[other][i] for i in range(500))
        assert n_moved > 250


def test_order_of_rows_is_shuffled(scratch: Session) -> None:
    numbered(scratch, 1000, "i / 2.0")
    dataset_id = create(scratch, "t", ["x"], "y", n_partitions=1)
    fields, _, _ = decoded(scratch, dataset_id, "train")
    assert abs(np.corrcoef(fields[0], np.arange(len(fields[0])))[0, 1]) < 0.15


# Versions


def test_refresh_makes_a_version_and_keeps_the_arguments(scratch: Session) -> None:
    make_table(scratch, "x bytea, y text", [(bytes([i, 0, 0, 0]), "ab"[i % 2]) for i in range(60)])
    options = {
        "n_partitions": 2, "validation_fraction": 0.2, "test_fraction": 0.1, "seed": 5, "input_shape": [2, 2],
        "block_rows": 7,
    }  # fmt: skip
    first = create(scratch, "t", ["x"], "y", **options)
    before = contents(scratch, first)
    scratch.execute("INSERT INTO t SELECT '\\x09090909', 'b' FROM generate_series(1, 40)")
    second = scratch.value("SELECT easeml.refresh_dataset('data')")
    assert contents(scratch, first) == before
    kept = ["source", "input_columns", "target_column", "task", "input_shape", "seed", "n_partitions", "block_rows"]
    one, two = (
        scratch.rows("SELECT * FROM easeml.datasets WHERE dataset_id = %s", dataset_id)[0]
        for dataset_id in (first, second)
    )
    assert (one["version"], two["version"]) == (1, 2)
    assert [one[name] for name in kept] == [two[name] for name in kept]
    rows = scratch.rows("SELECT version, is_newest, n_train_rows FROM easeml.dataset_info ORDER BY version")
    assert [tuple(row.values()) for row in rows] == [(1, False, 42), (2, True, 70)]


def test_refresh_of_a_lost_source_is_refused(scratch: Session) -> None:
    numbered(scratch, 60)
    create(scratch, "t", ["x"], "y")
    scratch.execute("DROP TABLE t")
    with pytest.raises(psycopg.Error, match="is gone") as refused:
        scratch.execute("SELECT easeml.refresh_dataset('data')")
    assert refused.value.sqlstate == "ML003"


def test_drop_takes_all_versions_and_leaves_the_source(scratch: Session) -> None:
    numbered(scratch, 60)
    create(scratch, "t", ["x"], "y")
    create(scratch, "t", ["x"], "y", name="other")
    scratch.execute("SELECT easeml.refresh_dataset('data')")
    scratch.execute("SELECT easeml.drop_dataset('data')")
    assert scratch.values("SELECT dataset_name FROM easeml.datasets") == ["other"]
    assert scratch.values(
        "SELECT DISTINCT dataset_name FROM easeml.blocks JOIN easeml.datasets USING (dataset_id)"
    ) == ["other"]
    assert scratch.value("SELECT count(*) FROM t") == 60


def test_drop_with_runs_wants_cascade(scratch: Session) -> None:
    numbered(scratch, 60)
    create(scratch, "t", ["x"], "y")
    scratch.execute("SELECT easeml.select_models('data', '{linear}', n_configs => 2, max_epochs => 1)")
    with pytest.raises(psycopg.Error, match="1 run") as refused, scratch.transaction():
        scratch.execute("SELECT easeml.drop_dataset('data')")
    assert refused.value.sqlstate == "ML004"
    assert "cascade" in (refused.value.diag.message_hint or "")
    scratch.execute("SELECT easeml.drop_dataset('data', cascade => true)")
    for table in ("datasets", "partitions", "blocks", "runs", "arms", "trials", "events"):
        assert scratch.value(f"SELECT count(*) FROM easeml.{table}") == 0, table


def test_two_data_sets_can_be_made_in_one_transaction_and_rolled_back(scratch: Session) -> None:
    numbered(scratch, 60)
    with scratch.transaction(force_rollback=True):
        create(scratch, "t", ["x"], "y", name="one")
        create(scratch, "t", ["x"], "y", name="two")
    assert scratch.value("SELECT count(*) FROM easeml.blocks") == 0
    create(scratch, "t", ["x"], "y", name="one")


# The encoder at prediction


MIXED = """
CREATE TABLE t AS SELECT
    i AS n, (i * 0.1)::real AS r, (i * 0.1)::numeric(9,3) AS m, i * 0.7 + 1e9 AS big, i % 2 = 0 AS b,
    CASE WHEN i % 7 > 0 THEN 'kind ' || i % 4 END AS c, (i % 3)::text::char(4) AS padded,
    date '2020-02-28' + i AS d, timestamp '1999-12-31 23:59:59.987654' + i * interval '1 hour' AS ts,
    timestamptz '2020-06-01 00:00:00.123456+00' + i * interval '7 hours' AS tz,
    CASE WHEN i % 9 > 0 THEN i::int8 * 10000000000 END AS gaps,
    ARRAY[i, i * 0.1, NULL]::real[] AS holes, ARRAY[i * 0.3, 1e9 + i]::float8[] AS doubles, ARRAY[i % 2 = 0,
        NULL] AS flags,
    (i % 3)::text AS y
FROM generate_series(1, 90) i
"""
MIXED_INPUTS = ["n", "r", "m", "big", "b", "c", "padded", "d", "ts", "tz", "gaps", "holes", "doubles", "flags"]


def sorted_rows(rows: Iterable[Any]) -> Any:
    return np.array(sorted(np.asarray(row).reshape(-1).tolist() for row in rows))


@pytest.mark.parametrize("timezone", ["UTC", "Asia/Kolkata"])
@pytest.mark.parametrize(
    "inputs", [*([name] for name in MIXED_INPUTS), MIXED_INPUTS], ids=lambda names: "+".join(names)
)
def test_a_row_as_json_is_encoded_as_in_training(scratch: Session, inputs: list[str], timezone: str) -> None:
    scratch.execute(f"SET LOCAL timezone = '{timezone}'")
    scratch.execute(MIXED)
    dataset_id = create(scratch, "t", inputs, "y")
    encoder = Encoder.from_json(encoder_of(scratch, dataset_id))
    _, packed, _ = decoded(scratch, dataset_id)
    documents = scratch.values("SELECT to_jsonb(t)::text FROM t")
    by_json = [encode(encoder, fields_from_values(encoder, json.loads(text)))[0] for text in documents]
    np.testing.assert_array_equal(sorted_rows(by_json), sorted_rows(packed))


@pytest.mark.parametrize("inputs", [["n", "r", "b"], ["n", "doubles"], ["holes"]])
def test_a_row_of_numbers_is_encoded_as_in_training(scratch: Session, inputs: list[str]) -> None:
    scratch.execute(MIXED)
    dataset_id = create(scratch, "t", inputs, "y")
    encoder = Encoder.from_json(encoder_of(scratch, dataset_id))
    _, packed, _ = decoded(scratch, dataset_id)
    special = {"holes": "holes::float8[]", "doubles": "doubles", "b": "ARRAY[b::int::float8]"}
    as_numbers = " || ".join(special.get(name, f"ARRAY[{name}::float8]") for name in inputs)
    arrays = scratch.values(f"SELECT {as_numbers} FROM t")
    by_numbers = [encode(encoder, fields_from_numbers(encoder, np.array(row, dtype=float)))[0] for row in arrays]
    np.testing.assert_array_equal(sorted_rows(by_numbers), sorted_rows(packed))


def test_unseen_and_missing_categories_have_places_of_their_own(scratch: Session) -> None:
    scratch.execute(MIXED)
    encoder = Encoder.from_json(encoder_of(scratch, create(scratch, "t", ["c"], "y")))
    (field,) = encoder.inputs
    assert isinstance(field, CategoricalField)
    assert sorted(field.categories) == ["kind 0", "kind 1", "kind 2", "kind 3"]

    def encoded(value: Any) -> int:
        return int(encode(encoder, fields_from_values(encoder, {"c": value}))[0].argmax())

    assert encoded("never seen") == 4
    assert encoded(None) == 5
    assert sorted(encoded(f"kind {i}") for i in range(4)) == [0, 1, 2, 3]


TAKEN = "SELECT input_columns FROM easeml.datasets WHERE dataset_id = %s"


def heard(database: Session) -> list[str]:
    """What the server tells from now on."""
    notices: list[str] = []
    database.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    return notices


def test_without_inputs_columns_of_types_that_cannot_be_inputs_are_left_out_and_named(database: Session) -> None:
    database.execute(
        "CREATE TYPE size AS ENUM ('small', 'large'); CREATE DOMAIN height AS float8; CREATE DOMAIN at_hour AS time;"
        "CREATE DOMAIN tall AS height CHECK (value > 0);"
        "CREATE TABLE visits AS SELECT i % 7 AS x, (i % 9)::float8::height AS y,"
        " (ARRAY['small', 'large'])[1 + i % 2]::size AS s, time '08:00' + i * interval '1 minute' AS hour,"
        " (time '08:00')::at_hour AS opened, inet '10.0.0.1' AS host, ARRAY['a', 'b'] AS words,"
        " (1 + i % 5)::float8::tall AS z, ARRAY[i % 3, i % 4]::real[] AS parts, jsonb_build_object('k', i % 5) AS doc,"
        " i % 2 = 0 AS f, (i % 3)::text AS kind FROM generate_series(1, 60) i"
    )
    notices = heard(database)
    kept = database.value("SELECT easeml.create_dataset('visits', 'visits', target => 'kind')")
    assert "inputs: x, y, s, z, parts, doc, f; left out: hour, opened, host, words" in notices
    assert database.value(TAKEN, kept) == ["x", "y", "s", "z", "parts", "doc", "f"]


def test_the_type_below_a_domain_is_found_through_further_domains(database: Session) -> None:
    database.execute("CREATE DOMAIN height AS float8; CREATE DOMAIN tall AS height; CREATE DOMAIN taller AS tall")
    below = "SELECT easeml.base_type(%s::regtype)::regtype::text"
    assert {database.value(below, name) for name in ("height", "tall", "taller")} == {"double precision"}
    assert database.value(below, "integer[]") == "integer[]"


def test_without_inputs_a_column_that_numbers_the_rows_is_left_out_unless_it_is_all_there_is(database: Session) -> None:
    """In a table sorted by its target it tells the target of held-out rows, and misleads for new ones."""
    database.execute(
        "CREATE TABLE walks AS SELECT i AS id, 1000 - i::smallint AS backwards, i * 2 AS even, nullif(i, 7) AS some,"
        " i % 100 AS often, i::float8 AS length, i AS moment, i > 60 AS is_long FROM generate_series(1, 120) i;"
        "CREATE VIEW counted AS SELECT id, is_long FROM walks;"
        "CREATE VIEW few AS SELECT id, often, is_long FROM walks WHERE id <= 99"
    )
    notices = heard(database)

    def taken(source: str, **named: str) -> list[str]:
        more = "".join(f", {name} => '{value}'" for name, value in named.items())
        made = database.value(f"SELECT easeml.create_dataset('{source}', '{source}', target => 'is_long'{more})")
        found = database.value(TAKEN, made)
        database.execute(f"SELECT easeml.drop_dataset('{source}')")
        return found  # type: ignore[no-any-return]

    assert taken("walks", time_column="moment") == ["even", "some", "often", "length", "moment"]
    told = "left out: id (numbers the rows), backwards (numbers the rows)"
    assert f"inputs: even, some, often, length, moment; {told}" in notices
    assert taken("walks", inputs="{id,even}") == ["id", "even"]
    assert taken("counted") == ["id"]
    assert taken("few") == ["id", "often"]


def test_without_inputs_all_columns_count_but_those_that_only_name_rows(database: Session) -> None:
    database.execute(
        "CREATE TABLE stays (id bigint GENERATED BY DEFAULT AS IDENTITY, token uuid, day date PRIMARY KEY,"
        ' nights integer, "Of Whom" text, part text, gone text, price float8);'
        "ALTER TABLE stays DROP COLUMN gone;"
        "INSERT INTO stays SELECT i, gen_random_uuid(), date '2030-01-01' + i, i % 7, 'guest ' || i % 5,"
        " (ARRAY['train', 'validation', 'test'])[1 + i % 3], i % 7 + i % 5 FROM generate_series(1, 60) i"
    )
    notices = heard(database)
    kept = database.value("SELECT easeml.create_dataset('stays', 'stays', target => 'price', split_column => 'part')")
    assert database.value(TAKEN, kept) == ["day", "nights", "Of Whom"]
    assert "inputs: day, nights, Of Whom; left out: id, token" in notices
    refreshed = database.value("SELECT easeml.refresh_dataset('stays')")
    assert database.value(TAKEN, refreshed) == ["day", "nights", "Of Whom"]
    database.execute("ALTER TABLE stays DROP CONSTRAINT stays_pkey, ADD PRIMARY KEY (nights, day)")
    keyed = database.value(
        "SELECT easeml.create_dataset('keyed', 'stays', target => 'price', key_columns => '{token}')"
    )
    assert database.value(TAKEN, keyed) == ["day", "nights", "Of Whom", "part"]
