"""A trial as a file: what is read answers as what was written; what was changed, cut or made up is refused."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import easeml_model
from easeml_plpy.columns.coded_fields import CategoricalField
from easeml_plpy.columns.encoder import Encoder, LabelTarget, NumberTarget, NumericField, Target, TensorField
from easeml_plpy.columns.encoding import encoded_shape
from easeml_plpy.files.model_checks import restored
from easeml_plpy.files.model_file import MOST_BYTES, ModelDocument, ModelFile
from easeml_plpy.prediction.client_row import fields_from_rows
from easeml_plpy.prediction.prediction import outputs_of
from easeml_plpy.row_forms.combined import parts_of
from easeml_plpy.row_forms.datasets import Dataset
from easeml_plpy.server.errors import (
    CorruptCheckpoint,
    EasemlError,
    InvalidArgument,
    InvalidData,
    ShapeMismatch,
    VersionMismatch,
)
from easeml_plpy.server.value_types import Array
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers import ARCHITECTURES, answering_trial, architecture, resumed_member, trainer_for
from easeml_plpy.trainers.contract import Blueprint, state_header
from easeml_plpy.trainers.ensemble import EnsembleTrial, Member
from easeml_plpy.trainers.lightgbm.boosters import END_OF_TREES
from easeml_plpy.trainers.lightgbm.c_interface import CONTRIBUTIONS, GrownTrees, LightGBMFailure
from easeml_plpy.trainers.lightgbm.texts import check_trees
from tests.unit.plpy.trainers.training_rows import (
    IMAGE_NETWORKS,
    SERIES_NETWORKS,
    TENSOR_NETWORKS,
    TREE_NETWORKS,
    no_pause,
)

N_ROWS = 300
COLORS = ("red", "green", "blue")
LABELS = LabelTarget("kind", "text", ("a", "b", "c"))
NUMBERS = NumberTarget("price", "float8", 2.0, 3.0)
SMALL = {"trees_per_epoch": 4, "num_leaves": 5, "hidden_units": [8], "width": 8, "n_members": 4}
SINGLE = [
    name
    for name, each in ARCHITECTURES.items()
    if not each.is_derived and name not in (*IMAGE_NETWORKS, *SERIES_NETWORKS, *TENSOR_NETWORKS, *TREE_NETWORKS)
]
CASES = [(name, target) for name in SINGLE for target in (LABELS, NUMBERS) if target.task in ARCHITECTURES[name].tasks]


def encoder_of(target: Target) -> Encoder:
    knots = (np.linspace(-3.0, 3.0, 9),)
    fields = (
        NumericField(column="size", type="float8", missing=(0,), knots=knots),
        NumericField(column="age", type="int4", knots=knots, scale=np.array([2.0])),
        CategoricalField(column="color", type="text", missing=(0,), categories=COLORS),
    )
    return Encoder(fields, encoded_shape(fields), target)


def rows_of(n: int = N_ROWS) -> list[dict[str, Any]]:
    rng = np.random.default_rng(3)
    sizes, ages, colors = rng.normal(size=n), rng.integers(-3, 4, n), rng.integers(0, 5, n)
    return [
        {
            "size": None if k % 9 == 0 else float(sizes[k]),
            "age": int(ages[k]),
            "color": [*COLORS, "odd", None][colors[k]],
        }
        for k in range(n)
    ]


def targets_of(target: Target, rows: list[dict[str, Any]]) -> torch.Tensor:
    ages = np.array([row["age"] for row in rows])
    if isinstance(target, NumberTarget):
        return torch.from_numpy(ages.astype(np.float32))
    return torch.from_numpy(np.digitize(ages, [-1, 1]).astype(np.int64))


def config_of(name: str) -> dict[str, Any]:
    known = {each.name for each in ARCHITECTURES[name].hyperparameters}
    return {key: value for key, value in SMALL.items() if key in known}


@cache
def trained(name: str, target: Target) -> bytes:
    """The state of a trial after an epoch."""
    data, chosen = Dataset(encoder_of(target)), architecture(name)
    task = data.task(chosen.view)
    live = trainer_for(chosen.trainer).start(chosen, config_of(name), task, n_steps_total=9, seed=1)
    fields = fields_from_rows(data.encoder, rows_of())
    live.train(
        torch.from_numpy(data.encode(chosen.view, fields)), targets_of(target, rows_of()), seed=1, pause=no_pause
    )
    return live.dump()


def file_of(name: str, target: Target, state: bytes, config: Mapping[str, Any] | None = None) -> ModelFile:
    config = config_of(name) if config is None else config
    document = ModelDocument(
        format=1, made_by="easeml test", dataset="things", architecture=name, config=config,
        encoder=encoder_of(target).to_json(), explanations={}, metric="accuracy" if target is LABELS else "rmse",
        is_higher_better=target is LABELS, best_epoch=1, metrics={"validation": {"n_rows": 7, "metric_value": 0.5}},
    )  # fmt: skip
    return ModelFile(document, state)


def answers_of(name: str, target: Target, state: bytes, config: Mapping[str, Any]) -> Array:
    """What the trial says by itself, without a file, where the server answers with it (serving.py)."""
    data, chosen = Dataset(encoder_of(target)), architecture(name)
    live = answering_trial(chosen, config, data.task(chosen.view), state)
    fields = fields_from_rows(data.encoder, rows_of())
    return data.raw(live.outputs(data.encode(chosen.view, fields)))


@pytest.mark.parametrize(("name", "target"), CASES)
def test_a_file_answers_as_its_trial_does(name: str, target: Target, tmp_path: Path) -> None:
    state = trained(name, target)
    path = tmp_path / "things.safetensors"
    path.write_bytes(file_of(name, target, state).to_bytes())
    model = easeml_model.load(path)
    expected = answers_of(name, target, state, config_of(name))
    assert model.outputs(rows_of()).tobytes() == expected.tobytes()
    assert model.inputs == ["size", "age", "color"]
    assert model.document.dataset == "things"
    if target is LABELS:
        assert model.predict(rows_of()[:3]) == [LABELS.labels[k] for k in expected[:3].argmax(axis=1)]
        assert model.predict_probabilities(rows_of(1))[0].keys() == {"a", "b", "c"}
    else:
        assert model.predict(rows_of()[:3]) == pytest.approx(expected[:3, 0].tolist(), rel=1e-5)


@pytest.mark.parametrize("rows", [{"size": 1}, "size", [[1, 2, "red"]], [{"size": 1}, None], np.ones((2, 3))])
def test_what_are_no_rows_is_told_from_rows(rows: Any) -> None:
    model = easeml_model.Model(ModelFile.from_bytes(file_of("linear", LABELS, trained("linear", LABELS)).to_bytes()))
    with pytest.raises(InvalidArgument, match="rows: expected a list of rows, each a dict by column, got ") as refused:
        model.predict(rows)
    assert "to_dict('records')" in str(refused.value.hint)


@pytest.mark.parametrize("column", ["size", "age", "color"])
@pytest.mark.parametrize(
    "value",
    [date(2030, 1, 2), b"red", {1, 2}, frozenset({1}), object(), 10**5000, [10**5000], {"a": 10**5000}, "\ud800", 1j],
    ids=lambda value: type(value).__name__,
)
def test_values_that_no_json_has_are_refused_or_are_another_category(column: str, value: Any) -> None:
    model = easeml_model.Model(file_of("linear", LABELS, trained("linear", LABELS)))
    row = {"size": 1.0, "age": 2, "color": "red", column: value}
    if column == "color" and isinstance(value, str | complex):
        assert model.predict([row]) == model.predict([row | {"color": "odd"}])
        return
    with pytest.raises(ShapeMismatch, match=f"input '{column}': expected |rows: expected values as JSON"):
        model.predict([row])


def ensemble_file(*, nested: bool = False) -> ModelFile:
    data, chosen = Dataset(encoder_of(LABELS)), architecture("ensemble")
    starts = {part.view.name: part.start for part in parts_of(data.encoder)}
    members = []
    for name, weight in (("lightgbm", 0.5), ("mlp", 0.25), ("sgd", 0.25)):
        view = data.view(architecture(name).view).name
        task = data.task(architecture(name).view)
        members.append(Member(name, config_of(name), task, weight, starts[view], trained(name, LABELS)))
    blueprint = Blueprint(chosen, {}, data.task(chosen.view))  # type: ignore[arg-type]
    state = EnsembleTrial(blueprint, members, resumed_member).dump()
    if nested:
        outer = Member("ensemble", {}, data.task(chosen.view), 1.0, 0, state)
        state = EnsembleTrial(blueprint, [outer], resumed_member).dump()
    return file_of("ensemble", LABELS, state, {"members": [{"trial": 1, "weight": 1.0}]})


def test_an_ensemble_answers_from_a_file_and_has_no_ensemble_in_it() -> None:
    file = ensemble_file()
    model = easeml_model.Model(ModelFile.from_bytes(file.to_bytes()))
    expected = answers_of("ensemble", LABELS, file.state, file.document.config)
    assert model.outputs(rows_of()).tobytes() == expected.tobytes()
    with pytest.raises(InvalidData, match="has an ensemble as a member"):
        restored(ensemble_file(nested=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": {"input_shape": [2**27]}}, "another task than its rows"),
        ({"task": {"n_outputs": 10**9}}, "another task than its rows"),
        ({"task": {"layout": []}}, "another task than its rows"),
        ({"task": {"more": 1}}, "another task than its rows"),
        ({"start": 1}, "begins elsewhere"),
        ({"start": True}, "has no weight"),
    ],
)
def test_a_member_is_built_for_the_rows_of_the_encoder_and_no_others(change: dict[str, Any], message: str) -> None:
    file = ensemble_file()
    state = checkpoint.load(file.state)
    first, *others = state.read("members", list)
    forged = {**first, **change, "task": {**first["task"], **change.get("task", {})}}
    again = checkpoint.dump(state.tensors, {**state.attributes, "members": [forged, *others]})
    with pytest.raises(InvalidData, match=message):
        restored(replace(file, state=again))


def test_members_of_an_older_version_say_less_of_their_tasks() -> None:
    file = ensemble_file()
    state = checkpoint.load(file.state)
    members = state.read("members", list)
    for member in members:
        del member["task"]["output_objects"]
    assert restored(replace(file, state=checkpoint.dump(state.tensors, {**state.attributes, "members": members})))


def committee_file(name: str, n_folds: int = 2, states: Sequence[bytes] = ()) -> ModelFile:
    """A file of a trial on a dataset with folds: a state for each."""
    data, chosen = Dataset(replace(encoder_of(LABELS), n_folds=n_folds)), architecture(name)
    own = [trained(name, LABELS), *(states or [trained(name, LABELS)])]
    payloads = {f"member/{fold:03}": np.frombuffer(state, np.uint8) for fold, state in enumerate(own)}
    header = state_header(chosen, data.task(chosen.view))
    file = file_of(name, LABELS, checkpoint.dump(payloads, {**header, "n_folds": len(own)}))
    return replace(file, document=replace(file.document, encoder=data.encoder.to_json()))


@pytest.mark.parametrize("name", ["linear", "lightgbm"])
def test_a_committee_answers_from_a_file(name: str) -> None:
    model = easeml_model.Model(ModelFile.from_bytes(committee_file(name).to_bytes()))
    single = easeml_model.Model(file_of(name, LABELS, trained(name, LABELS)))
    assert np.allclose(model.outputs(rows_of()), single.outputs(rows_of()), atol=1e-6), "its members are alike"


def test_a_committee_of_other_trees_or_folds_is_refused() -> None:
    (tensor,) = checkpoint.load(trained("lightgbm", LABELS)).tensors.items()
    text = re.sub(rb"num_leaves=\d+", b"num_leaves=1000000000", tensor[1].numpy().tobytes())
    attributes = checkpoint.load(trained("lightgbm", LABELS)).attributes
    broken = checkpoint.dump({tensor[0]: np.frombuffer(text, np.uint8)}, attributes)
    with pytest.raises(CorruptCheckpoint):
        restored(committee_file("lightgbm", states=[broken]))
    with pytest.raises(CorruptCheckpoint, match="2 members, expected 3"):
        restored(committee_file("linear", n_folds=3))
    with pytest.raises(InvalidData, match="folds are not a number"):
        restored(committee_file("linear", n_folds=10**6))
    file = ensemble_file()
    encoder = replace(encoder_of(LABELS), n_folds=2).to_json()
    with pytest.raises(InvalidData, match="other folds than its rows"):
        restored(replace(file, document=replace(file.document, encoder=encoder)))


def test_images_answer_from_a_file() -> None:
    field = TensorField(
        column="image", type="bytea", dtype="u1", shape=(28, 28), mean=np.array([100.0]), scale=np.array([50.0])
    )
    data, chosen = Dataset(Encoder((field,), (28, 28), LABELS)), architecture("lenet")
    live = trainer_for("torch").start(chosen, {}, data.task(chosen.view), n_steps_total=9, seed=1)
    plain = file_of("lenet", LABELS, live.dump(), {})
    file = ModelFile(replace(plain.document, encoder=data.encoder.to_json()), plain.state)
    served = restored(ModelFile.from_bytes(file.to_bytes()))
    image = np.random.default_rng(0).integers(0, 256, (5, 28, 28)).astype(np.uint8)
    assert (
        outputs_of(served, [image]).tobytes()
        == live.outputs(torch.from_numpy(data.encode("standard", [image]))).tobytes()
    )


def test_writing_what_was_read_gives_the_same_bytes() -> None:
    contents = file_of("linear", LABELS, trained("linear", LABELS)).to_bytes()
    assert ModelFile.from_bytes(contents).to_bytes() == contents


# What was changed


@given(st.data())
def test_a_file_with_any_byte_changed_is_refused(data: st.DataObject) -> None:
    contents = bytearray(file_of("gaussian_nb", LABELS, trained("gaussian_nb", LABELS)).to_bytes())
    contents[data.draw(st.integers(0, len(contents) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(EasemlError) as caught:
        ModelFile.from_bytes(contents)
    assert caught.value.hint


@given(st.integers(0, 2000))
def test_a_file_that_is_cut_is_refused(n_bytes: int) -> None:
    contents = file_of("gaussian_nb", LABELS, trained("gaussian_nb", LABELS)).to_bytes()
    with pytest.raises(EasemlError):
        ModelFile.from_bytes(contents[: min(n_bytes, len(contents) - 1)])


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "got one of 0 bytes"),
        (b"PK\x03\x04" + bytes(100), "expected a file that easeml export has written"),
        (b"\x80\x04\x95" + bytes(100), "expected a file that easeml export has written"),
        ((2).to_bytes(8, "little") + b"[]", "expected a file that easeml export has written"),
        ((60_000).to_bytes(8, "little") + b"[" * 60_000, "expected a file that easeml export has written"),
        (bytes(MOST_BYTES + 1), "expected a file of at most"),
    ],
    ids=range(6),
)
def test_something_else_is_refused(contents: bytes, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        ModelFile.from_bytes(contents)


def test_of_a_file_that_is_too_large_no_more_is_read_than_shows_it(tmp_path: Path) -> None:
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(InvalidData, match="expected a file of at most"):
        easeml_model.load(path)


def rewritten(file: ModelFile, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The file with another document and a digest that fits it, as somebody would make one up."""
    told = json.loads(json.dumps(asdict(file.document)))
    change(told)
    contents = file.to_bytes()
    end = 8 + int.from_bytes(contents[:8], "little")
    header = json.loads(contents[8:end])
    metadata = header["__metadata__"]
    metadata["model"] = json.dumps(told, sort_keys=True, separators=(",", ":"))
    metadata["sha256"] = hashlib.sha256(metadata["model"].encode() + ModelFile.from_bytes(contents).state).hexdigest()
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    padded = text.ljust(-(-len(text) // 8) * 8)
    return len(padded).to_bytes(8, "little") + padded + contents[end:]


def test_a_file_of_another_format_says_which() -> None:
    file = file_of("linear", LABELS, trained("linear", LABELS))
    ModelFile.from_bytes(rewritten(file, lambda told: None))
    with pytest.raises(VersionMismatch, match="expected a file of format 1, got format 2 of easeml 9"):
        ModelFile.from_bytes(rewritten(file, lambda told: told.update(format=2, made_by="easeml 9")))


# What was made up


def first_input(told: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = told["encoder"]["inputs"][0]
    return entry


MADE_UP: dict[str, Callable[[dict[str, Any]], object]] = {
    "architecture": lambda told: told.update(architecture="pickle"),
    "config": lambda told: told.update(config={"hidden_units": [8], "x": 1}),
    "config of another kind": lambda told: told.update(config={"batch_size": "many"}),
    "metric": lambda told: told.update(metric="rmse"),
    "direction": lambda told: told.update(is_higher_better=False),
    "epoch": lambda told: told.update(best_epoch=0),
    "split": lambda told: told["metrics"].update(train={"n_rows": 1}),
    "metric value": lambda told: told["metrics"]["validation"].update(accuracy="1"),
    "entry": lambda told: told.update(more=1),
    "type": lambda told: told.update(dataset=7),
    "no inputs": lambda told: told["encoder"].update(inputs=[]),
    "inputs": lambda told: told["encoder"].update(inputs="abc"),
    "kind": lambda told: first_input(told).update(kind="tensor"),
    "scale": lambda told: first_input(told).update(scale=[0.0]),
    "mean": lambda told: first_input(told).update(mean=[0.0, 1.0]),
    "knots": lambda told: first_input(told).update(knots=[[3.0, 1.0]]),
    "missing": lambda told: first_input(told).update(missing=[5]),
    "shape": lambda told: told["encoder"].update(input_shape=[10**9]),
    "labels": lambda told: told["encoder"]["target"].update(labels=["a"]),
    "more labels": lambda told: told["encoder"]["target"].update(labels=["a", "b", "c", "d"]),
    "equal labels": lambda told: told["encoder"]["target"].update(labels=["a", "a", "b"]),
    "categories": lambda told: told["encoder"]["inputs"][2].update(categories=["red", 1]),
    "huge array": lambda told: told["encoder"].update(
        inputs=[TensorField(column="x", type="bytea", dtype="u1", shape=(60_000, 60_000)).to_json()]
    ),
}


@pytest.mark.parametrize("change", MADE_UP.values(), ids=MADE_UP)
def test_a_document_that_was_made_up_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    contents = rewritten(file_of("linear", LABELS, trained("linear", LABELS)), lambda told: (change(told), None)[1])
    with pytest.raises(EasemlError):
        restored(ModelFile.from_bytes(contents))


@pytest.mark.parametrize("name", ["mlp", "resnet", "tabm"])
def test_a_config_that_asks_for_a_larger_network_than_its_state_is_refused(name: str) -> None:
    large = {"hidden_units": [65536, 65536]} if name == "mlp" else {"width": 4096}
    forged = file_of(name, LABELS, trained(name, LABELS), {**config_of(name), **large})
    with pytest.raises(CorruptCheckpoint, match=r"the config asks for a network of \d+ numbers, and the state has \d+"):
        restored(ModelFile.from_bytes(forged.to_bytes()))


def test_a_state_with_other_attributes_of_an_estimator_is_refused() -> None:
    state = checkpoint.load(trained("sgd", LABELS))
    for name in ("__class__", "predict_proba"):
        attributes = {**state.attributes, "estimator": {**state.read("estimator", dict), name: 1}}
        with pytest.raises(CorruptCheckpoint, match="no estimator is fitted with"):
            restored(file_of("sgd", LABELS, checkpoint.dump(state.tensors, attributes)))


def test_a_state_of_another_architecture_or_shape_is_refused() -> None:
    with pytest.raises(CorruptCheckpoint):
        restored(file_of("linear", LABELS, trained("mlp", LABELS)))
    state = checkpoint.load(trained("linear", LABELS))
    cut = {name: tensor.flatten()[:1] for name, tensor in state.tensors.items()}
    with pytest.raises(EasemlError):
        restored(file_of("linear", LABELS, checkpoint.dump(cut, state.attributes)))
    broken = {
        name: tensor * torch.nan if tensor.is_floating_point() else tensor for name, tensor in state.tensors.items()
    }
    with pytest.raises(CorruptCheckpoint, match="does not answer"):
        restored(file_of("linear", LABELS, checkpoint.dump(broken, state.attributes)))


# Trees


def tree_text() -> str:
    (tensor,) = checkpoint.load(trained("lightgbm", NUMBERS)).tensors.values()
    return tensor.numpy().tobytes().decode()


def resized(text: str) -> str:
    """The text with the sizes of its trees made to fit."""
    header, *trees = text.removesuffix(END_OF_TREES).split("\n\nTree=")
    lines = [line for line in header.split("\n") if not line.startswith("tree_sizes=")]
    sizes = [len(f"Tree={tree}\n\n".encode()) for tree in trees]
    sizes[-1] -= 2
    whole = "\n".join([*lines, "tree_sizes=" + " ".join(map(str, sizes))])
    return "\n\nTree=".join([whole, *trees]) + END_OF_TREES


def changed(name: str, words: Callable[[list[str]], list[str]]) -> str:
    """The text with other words in the first line of that name; what else it says fits them."""
    lines = tree_text().split("\n")
    at = next(k for k, line in enumerate(lines) if line.startswith(f"{name}="))
    lines[at] = f"{name}=" + " ".join(words(lines[at].partition("=")[2].split(" ")))
    return "\n".join(lines) if name == "tree_sizes" else resized("\n".join(lines))


def chain(n_leaves: int) -> str:
    """A tree that splits one row off at a time."""
    n = n_leaves - 1
    numbers = {"num_leaves": [n_leaves], "num_cat": [0], "split_feature": [0] * n, "split_gain": [1] * n}
    numbers |= {"threshold": [0.5] * n, "decision_type": [2] * n, "left_child": [*range(1, n), -1]}
    numbers |= {
        "right_child": [-2 - k for k in range(n)],
        "leaf_value": [0.1] * n_leaves,
        "leaf_weight": [1] * n_leaves,
    }
    numbers |= {"leaf_count": [1] * n_leaves, "internal_value": [0] * n, "internal_weight": [1] * n}
    numbers |= {"internal_count": [n_leaves - k for k in range(n)], "is_linear": [0], "shrinkage": [0.1]}
    lines = [f"{name}=" + " ".join(map(str, values)) for name, values in numbers.items()]
    header = tree_text().partition("\n\nTree=0\n")[0]
    return resized("\n".join([header, "", "Tree=0", *lines, "\n\n"]) + END_OF_TREES)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("left_child", lambda words: ["99", *words[1:]]),
        ("left_child", lambda words: ["-99", *words[1:]]),
        ("right_child", lambda words: ["0", *words[1:]]),
        ("right_child", lambda words: words[:-1]),
        ("split_feature", lambda words: ["3", *words[1:]]),
        ("split_feature", lambda words: ["-1", *words[1:]]),
        ("split_feature", lambda words: ["x", *words[1:]]),
        ("decision_type", lambda words: ["1", *words[1:]]),
        ("leaf_value", lambda words: ["nan", *words[1:]]),
        ("leaf_value", lambda words: [*words, "1"]),
        ("num_leaves", lambda words: ["1000000000"]),
        ("num_cat", lambda words: ["7"]),
        ("is_linear", lambda words: ["1"]),
        ("num_class", lambda words: ["1000000"]),
        ("max_feature_idx", lambda words: ["100000"]),
        ("objective", lambda words: ["lambdarank"]),
        # LightGBM would read these as other numbers than Python does, or end the process.
        ("split_feature", lambda words: ["2000000000e-9", *words[1:]]),
        ("split_feature", lambda words: ["0_2", *words[1:]]),
        ("split_feature", lambda words: ["\u0662", *words[1:]]),
        ("left_child", lambda words: [f"{words[0]}0000000e-7", *words[1:]]),
        ("num_leaves", lambda words: [f"{words[0]}0000000e-7"]),
        ("leaf_value", lambda words: ["0x1p3", *words[1:]]),
        ("leaf_value", lambda words: ["1_0", *words[1:]]),
        ("leaf_count", lambda words: ["1.5", *words[1:]]),
        ("shrinkage", lambda words: ["0.1\rnum_leaves=9"]),
        ("feature_names", lambda words: ["a\rmax_feature_idx=100000", *words[1:]]),
        ("feature_names", lambda words: ["a\0", *words[1:]]),
        ("tree_sizes", lambda words: [str(int(words[0]) + 5), str(int(words[1]) - 5), *words[2:]]),
        ("tree_sizes", lambda words: ["-" + words[0], str(int(words[1]) + 2 * int(words[0])), *words[2:]]),
    ],
)
def test_trees_that_lead_elsewhere_are_refused(name: str, words: Callable[[list[str]], list[str]]) -> None:
    text = tree_text()
    if name == "objective" and "objective=" not in text:
        text = text.replace("label_index=0\n", "label_index=0\nobjective=lambdarank\n")
    else:
        text = changed(name, words)
    with pytest.raises(CorruptCheckpoint):
        check_trees(text, 3, 1)


def test_trees_that_the_library_refuses_to_answer_with_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> Array:
        raise LightGBMFailure("The number of features in data (3) is not the same as it was in training data (2)")

    monkeypatch.setattr(GrownTrees, "sums", refuse)
    with pytest.raises(CorruptCheckpoint, match="not one of its architecture"):
        restored(file_of("lightgbm", LABELS, trained("lightgbm", LABELS)))


def test_trees_as_they_were_grown_are_accepted() -> None:
    check_trees(tree_text(), 3, 1)
    assert resized(tree_text()) == tree_text()


def test_what_columns_add_is_asked_of_one_round_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of them a cancel takes effect: with many deep trees all take hours."""
    rows = np.random.default_rng(5).normal(size=(7, 3))
    trees = GrownTrees(tree_text())
    whole = trees._predicted(rows, CONTRIBUTIONS, 1, 4)
    asked, ask = [], trees._predicted
    monkeypatch.setattr(trees, "_predicted", lambda *given, **named: asked.append(named) or ask(*given, **named))
    assert np.allclose(trees.contributions(rows, 1)[:, 0], whole)
    assert asked == [{"rounds": (k, 1)} for k in range(4)]


def test_a_tree_that_is_too_deep_to_be_explained_is_refused() -> None:
    check_trees(chain(250), 3, 1)
    with pytest.raises(CorruptCheckpoint, match="splits deep"):
        check_trees(chain(300), 3, 1)


def test_each_state_of_an_ensemble_is_looked_at_as_the_member_that_it_answers_for() -> None:
    """From the thousandth on, names of states do not stand in the order of the members; and a refit is a state, too."""
    data, chosen = Dataset(encoder_of(NUMBERS)), architecture("ensemble")
    starts = {part.view.name: part.start for part in parts_of(data.encoder)}
    state = checkpoint.load(trained("lightgbm", NUMBERS))
    (name,) = state.tensors
    deep = checkpoint.dump({name: np.frombuffer(chain(300).encode(), np.uint8)}, state.attributes)

    def member(name: str, own: bytes, refit: bytes | None = None) -> Member:
        view = data.view(architecture(name).view).name
        return Member(name, config_of(name), data.task(architecture(name).view), 1e-3, starts[view], own, refit)

    def file(members: list[Member]) -> ModelFile:
        blueprint = Blueprint(chosen, {}, data.task(chosen.view))  # type: ignore[arg-type]
        payload = EnsembleTrial(blueprint, members, resumed_member).dump()
        return file_of("ensemble", NUMBERS, payload, {"members": [{"trial": 1, "weight": 1.0}]})

    fine = member("lightgbm", trained("lightgbm", NUMBERS))
    assert restored(file([fine, replace(fine, refit=fine.state)]))
    with pytest.raises(CorruptCheckpoint, match="splits deep"):
        restored(file([replace(fine, refit=deep)]))
    many = [member("linear", trained("linear", NUMBERS))] * 1001
    many[101], many[1000] = member("lightgbm", deep), fine
    with pytest.raises(CorruptCheckpoint, match="splits deep"):
        restored(file(many))


def test_large_numbers_are_those_that_jsonb_has_written_as_integers() -> None:
    """PostgreSQL writes 1.7000000001234568e+18 as 1700000000123456800, which Python's float does not equal."""
    name, mean = "linear", 1.7000000001234568e18
    file = file_of(name, NUMBERS, trained(name, NUMBERS))
    encoder = encoder_of(NUMBERS)
    large = replace(encoder, inputs=(replace(encoder.inputs[0], mean=np.array([mean])), *encoder.inputs[1:]))
    written = json.dumps(large.to_json())
    assert repr(mean) in written
    told = json.loads(written.replace(repr(mean), "1700000000123456800"))
    found = restored(replace(file, document=replace(file.document, encoder=told)))
    assert found.data.encoder.to_json() == large.to_json()
