"""Tasks out of which tensors come: what is fed keeps its shape, is packed and trained on, and easeml.infer answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pytest
from sklearn.datasets import load_digits

from tests.integration.tasks.test_tasks import create

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
CLEANING = "Input = [8,8,1]  Output = [8,8,1]"
SERIES = "{input: {[Tensor[4,8]],[]}, output: {[Tensor[4,8]],[]}}"
BACKWARDS = "{input: {[Tensor[3]],[next]}, output: {[Tensor[3]],[next]}}"
QUICK = psycopg.types.json.Jsonb({"max_epochs": 2, "n_configs": 1, "architectures": ["pix2pix"]})


@pytest.fixture(scope="module")
def ada(module_coordinated: Session) -> Session:
    """A tenant with two tasks that have a model: one of pictures as bytes, one of series of numbers."""
    module_coordinated.execute("CREATE SCHEMA lab")
    session = module_coordinated.as_role("ada", "easeml_tenant")
    module_coordinated.execute("GRANT ALL ON SCHEMA lab TO ada")
    create(session, "cleaning", CLEANING, run_options=QUICK, run_after_examples=240, run_after_minutes=None,
           n_partitions=2)  # fmt: skip
    create(session, "halves", SERIES, run_after_examples=None, run_after_minutes=None)
    options = {"max_epochs": 1, "n_configs": 1, "metric": "token_accuracy"}
    create(session, "backwards", BACKWARDS, run_options=psycopg.types.json.Jsonb(options), run_after_examples=60,
           run_after_minutes=None)  # fmt: skip
    feed(session)
    session.wait_until("SELECT count(*) = 1 FROM easeml.task_report('cleaning') WHERE event LIKE 'first model%%'")
    return session


def feed(session: Session) -> None:
    clean = (load_digits().images[:240] * 15).astype(np.uint8)
    noisy = np.clip(clean + np.random.default_rng(0).normal(0, 60, clean.shape), 0, 255).astype(np.uint8)
    with session.cursor().copy("COPY lab.cleaning (input, output) FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(["bytea", "bytea"])
        for given, wanted in zip(noisy, clean, strict=True):
            copy.write_row((given.tobytes(), wanted.tobytes()))
    upper, lower = clean[:, :4].tolist(), clean[:, 4:].tolist()
    examples = [{"input": given, "output": wanted} for given, wanted in zip(upper[:60], lower, strict=False)]
    session.execute("SELECT easeml.feed('halves', examples => %s::jsonb)", [json.dumps(examples)])
    words = [np.eye(3)[[n % 3, n // 3 % 3, n // 9 % 3][: 1 + n % 3]].tolist() for n in range(60)]
    reversals = [{"input": each, "output": each[::-1]} for each in words]
    session.execute("SELECT easeml.feed('backwards', examples => %s::jsonb)", [json.dumps(reversals)])


def test_pictures_are_recovered_in_their_shape_and_measured(ada: Session) -> None:
    answer = ada.value("SELECT easeml.infer('cleaning', input) FROM lab.cleaning LIMIT 1")
    picture = np.array(answer["output"])
    assert picture.shape == (8, 8, 1)
    assert picture.dtype.kind == "i"
    assert (picture.min() >= 0, picture.max() <= 255) == (True, True)
    measured = (
        "SELECT mse, rmse, mae, psnr, ssim, token_accuracy FROM easeml.trial_metrics m JOIN easeml.run_status r"
        " USING (run_id) WHERE r.dataset_name = 'cleaning' LIMIT 1"
    )
    metrics = ada.rows(measured)[0]
    assert metrics["mse"] == pytest.approx(metrics["rmse"] ** 2)
    assert metrics["psnr"] == pytest.approx(20 * np.log10(255 / metrics["rmse"]))
    assert -1 <= metrics["ssim"] <= 1
    assert metrics["token_accuracy"] is None


def test_series_come_out_as_series_and_runs_rank_by_what_is_asked(ada: Session) -> None:
    options = {"max_epochs": 2, "n_configs": 1, "metric": "token_accuracy", "architectures": ["seq2seq"]}
    ada.execute("SELECT easeml.alter_task('halves', NULL, NULL, %s)", [psycopg.types.json.Jsonb(options)])
    ada.execute("SELECT easeml.run_task('halves')")
    ada.wait_until("SELECT count(*) = 1 FROM easeml.task_report('halves') WHERE event LIKE 'first model%%'")
    answer = ada.value("SELECT easeml.infer('halves', input) FROM lab.halves LIMIT 1")
    assert np.array(answer["output"]).shape == (4, 8)
    found = ada.rows("SELECT metric, value FROM easeml.task_report('halves') WHERE event = 'arm'")[0]
    assert found["metric"] == "token_accuracy"
    assert 0 <= found["value"] <= 1


def test_series_of_unequal_length_come_out_of_series(ada: Session) -> None:
    ada.wait_until("SELECT count(*) = 1 FROM easeml.task_report('backwards') WHERE event LIKE 'first model%%'")
    given = [json.dumps([[1, 0, 0]] * n) for n in (1, 3)]
    answers = [ada.value("SELECT easeml.infer('backwards', %s::jsonb)", each)["output"] for each in given]
    for answer in answers:
        assert 1 <= len(answer) <= 3
        assert {len(step) for step in answer} == {3}
    rows = ada.rows("SELECT cardinality(input) = cardinality(output) AS is_equal FROM lab.backwards")
    assert [row["is_equal"] for row in rows] == [True] * 60
    found = ada.rows("SELECT architecture, metric, value FROM easeml.task_report('backwards') WHERE event = 'arm'")[0]
    assert (found["architecture"], found["metric"]) == ("seq2seq", "token_accuracy")
    assert 0 <= found["value"] <= 1
    trial_id = ada.value("SELECT trial_id FROM easeml.serving WHERE dataset_name = 'backwards'")
    assert ada.rows("CALL easeml.replay(%s)", trial_id)[0]["result"]["is_identical"]


def test_networks_with_several_optimisers_hop_and_replay_to_the_same_bytes(ada: Session) -> None:
    """Of a generator with its critic, too: one state holds the weights and the optimiser's numbers of both."""
    arms = ["gan", "pix2pix", "autoencoder", "unet"]
    run_id = ada.value(
        "SELECT easeml.select_models('cleaning', %s, max_epochs => 2, procedure => 'grid', search_space => %s)",
        arms, json.dumps({"n_maps": [8], "batch_size": [32]}),
    )  # fmt: skip
    ada.execute("CALL easeml.wait(%s)", [run_id])
    trials = ada.rows("SELECT trial_id, architecture FROM easeml.trials WHERE run_id = %s", run_id)
    assert {trial["architecture"] for trial in trials} >= set(arms)
    for trial in trials:
        if trial["architecture"] in arms:
            found = ada.rows("CALL easeml.replay(%s)", trial["trial_id"])[0]["result"]
            assert (found["n_units"], found["is_identical"]) == (4, True), trial


def test_a_run_without_architectures_takes_those_that_write_series(ada: Session) -> None:
    ada.wait_until("SELECT count(*) > 0 FROM easeml.datasets WHERE dataset_name = 'backwards'")
    run_id = ada.value("SELECT easeml.select_models('backwards', n_configs => 1, max_epochs => 1, max_seconds => 60)")
    ada.execute("CALL easeml.wait(%s)", [run_id])
    assert ada.values("SELECT DISTINCT architecture FROM easeml.leaderboard WHERE run_id = %s", run_id) == ["seq2seq"]


def test_trees_become_tensors_and_tensors_series(ada: Session, module_database: Session) -> None:
    trees = "{input: {[x :: Tensor[1]],[left, right]}, output: {[Tensor[2,2]],[]}}"
    captions = "{input: {[Tensor[4,4]],[]}, output: {[Tensor[3]],[next]}}"
    quick = psycopg.types.json.Jsonb({"max_epochs": 1, "n_configs": 1})
    leaf = {"x": [1]}
    given = {"trees": ({**leaf, "left": leaf}, [[1, 2], [3, 4]]), "captions": (np.eye(4).tolist(), [[1, 0, 0]] * 2)}
    for name, program in (("trees", trees), ("captions", captions)):
        create(ada, name, program, run_after_examples=None, run_after_minutes=None, run_options=quick)
        example = {"input": given[name][0], "output": given[name][1]}
        ada.execute("SELECT easeml.feed(%s, examples => %s::jsonb)", [name, json.dumps([example] * 40)])
        ada.execute("SELECT easeml.run_task(%s)", [name])
    for name, shape in (("trees", (2, 2)), ("captions", (2, 3))):
        ada.wait_until("SELECT count(*) = 1 FROM easeml.task_report(%s) WHERE event LIKE 'first model%%'", name)
        answer = ada.value("SELECT easeml.infer(%s, %s::jsonb)", name, json.dumps(given[name][0]))["output"]
        assert np.array(answer).ndim == 2
        assert np.array(answer).shape[1] == shape[1]
        best = ada.rows("SELECT architecture FROM easeml.task_report(%s) WHERE event = 'arm'", name)
        assert [row["architecture"] for row in best] == ["bit_autoencoder"]


def test_a_longer_answer_lengthens_the_next_version(ada: Session, module_database: Session) -> None:
    task_id = ada.value("SELECT task_id FROM easeml.task_status WHERE task_name = 'backwards'")
    with module_database.transaction(force_rollback=True):
        module_database.execute(
            f"INSERT INTO easeml_tasks.task_{task_id} (input, output)"
            " VALUES (array_fill(1, ARRAY[1, 3]), array_fill(1, ARRAY[7, 3]))"
        )
        packed = module_database.rows("SELECT * FROM easeml.pack_task(%s)", task_id)[0]
        assert packed["failure"] is None
        shape = "SELECT encoder #> '{target,shape}' FROM easeml.datasets WHERE dataset_id = %s"
        assert module_database.value(shape, packed["dataset_id"]) == [7, 4]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT easeml.feed('backwards', examples => '[{\"input\": [[1,2,3]], \"output\": [[1,2]]}]')",
         "ML009: example 1: output: expected Tensor[3] of each object, got Tensor[2]"),
        ("SELECT easeml.feed('backwards', examples => '[{\"input\": [[1,2,3]], \"output\": []}]')",
         "ML009: example 1: output: expected 1 to 10000 objects, got 0"),
        ("INSERT INTO lab.backwards (input, output) VALUES ('{{1,2,3}}', '{{1,2}}')", "ML009: output: expected"),
        ("SELECT easeml.predict('cleaning', decode(repeat('00', 64), 'hex'))", "ML004: tensors come out"),
        ("SELECT * FROM easeml.evaluate('cleaning')", "ML004: tensors come out of dataset 'cleaning'"),
        ("SELECT * FROM easeml.residuals('cleaning')", "ML004: tensors come out of dataset 'cleaning'"),
        ("SELECT easeml.export_trial('cleaning', trial_id) FROM easeml.serving WHERE dataset_name = 'cleaning'",
         "ML004: tensors come out of this trial"),
        ("SELECT easeml.select_models('cleaning', '{lenet}')", "ML001: architectures: lenet does not fit"),
        ("SELECT easeml.select_models('cleaning', metric => 'accuracy')", "ML001: metric: there is no regression"),
        ("SELECT easeml.feed('cleaning', examples => '[{\"input\": \"00\", \"output\": \"00\"}]')", "ML009: example 1"),
        ("SELECT easeml.feed('halves', examples => '[{\"input\": [[1]], \"output\": [[1]]}]')", "ML009: example 1"),
        ("INSERT INTO lab.cleaning (input, output) VALUES (decode(repeat('00', 64), 'hex'), '\\x00')", "ML009: output"),
        ("SELECT easeml.create_task('x', 'Input = [4,4] Output = [4,4]', 'lab', classes => '{a}')", "ML001: classes"),
    ],
)  # fmt: skip
def test_what_tensors_cannot_do_is_said_in_one_line(ada: Session, statement: str, message: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        ada.execute(statement)
    assert f"{caught.value.sqlstate}: {caught.value.diag.message_primary}".startswith(message)


def test_labelling_functions_are_for_classes_and_numbers(ada: Session) -> None:
    ada.execute("CREATE FUNCTION lab.guess(picture bytea) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '' $$")
    with pytest.raises(psycopg.Error, match="tensors come out, and labelling functions answer"):
        ada.execute("SELECT easeml.add_labelling_function('cleaning', 'lab.guess')")


def test_switched_examples_leave_the_next_version(ada: Session, module_database: Session) -> None:
    ada.execute("UPDATE lab.halves_refine SET is_on = false WHERE example_id <= 3")
    task_id = ada.value("SELECT task_id FROM easeml.task_status WHERE task_name = 'halves'")
    found: Any = module_database.rows("SELECT * FROM easeml.pack_task(%s)", task_id)[0]
    assert found["failure"] is None
    status = ada.rows("SELECT n_examples, n_off FROM easeml.task_status WHERE task_name = 'halves'")[0]
    assert (status["n_examples"], status["n_off"]) == (57, 3)
