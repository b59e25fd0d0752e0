"""A user at the shell makes a task of a folder of pictures, gets an answer, and installs a client for it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psycopg
import pytest
from PIL import Image

from easeml_db.local.server import Embedded
from easeml_db.local.waiting import wait_for_coordinator
from tests.fixtures.sessions import PATIENCE_SECONDS

N_PICTURES = 120
QUICK = json.dumps({"architectures": ["mlp"], "max_epochs": 2, "n_configs": 1})


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of dark and bright pictures of 8 by 8 pixels, with their labels."""
    folder = tmp_path_factory.mktemp("pictures")
    lines = ["file,label"]
    for k in range(N_PICTURES):
        Image.new("L", (8, 8), 20 + k % 40 + 150 * (k % 2)).save(folder / f"{k}.png")
        lines.append(f"{k}.png,{'dark' if k % 2 == 0 else 'bright'}")
    (folder / "labels.csv").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def skies(server: Embedded, run_easeml: Any, pictures: Path) -> Any:
    """`skies("infer", ...)` runs a command of `easeml task` on the task 'night skies', which has a model."""
    wait_for_coordinator(server)

    def run(command: str, *arguments: str) -> Any:
        done = run_easeml("task", command, "night skies", *arguments, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    labels = ("--labels", str(pictures / "labels.csv"))
    run("create", "--pictures", str(pictures), *labels, "--run-options", QUICK)
    assert run("feed", str(pictures), *labels)["n_fed"] == N_PICTURES
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not [row for row in run("report") if row["event"].startswith("first model")]:
        assert time.monotonic() < deadline, run("report")
        time.sleep(0.2)
    return run


def test_a_folder_of_pictures_becomes_an_answer(skies: Any, pictures: Path) -> None:
    answers = skies("infer", str(pictures / "0.png"), str(pictures / "1.png"))
    assert [answer["input"] for answer in answers] == ["0.png", "1.png"]
    assert all(answer["label"] in ("bright", "dark") for answer in answers)
    assert [len(answer["output"]) for answer in answers] == [2, 2]


def test_examples_are_listed_and_switched(skies: Any) -> None:
    switched = skies("refine", "--off", "17,18", "--limit", "1")
    assert [(row["example_id"], row["is_on"]) for row in switched] == [(17, False), (18, False)]
    assert skies("refine", "--limit", "1")[0]["example_id"] >= N_PICTURES
    off = {row["example_id"] for row in skies("refine", "--limit", "200") if not row["is_on"]}
    assert {17, 18} <= off
    assert all(row["is_on"] for row in skies("refine", "--on", "17,18"))


def test_a_broken_picture_is_named_and_nothing_is_fed(skies: Any, run_easeml: Any, pictures: Path) -> None:
    (pictures / "broken.png").write_bytes(b"not a picture")
    labels = pictures / "two.csv"
    labels.write_text("file,label\n0.png,dark\nbroken.png,dark\n")
    before = len(skies("refine", "--limit", "1000"))
    refused = run_easeml("task", "feed", "night skies", str(pictures), "--labels", str(labels))
    assert refused.exit_code == 1
    assert "broken.png: cannot be read as a picture" in str(refused.exception)
    assert len(skies("refine", "--limit", "1000")) == before
    fed = skies("feed", str(pictures), "--labels", str(labels), "--on-error", "skip")
    assert (fed["n_fed"], fed["n_skipped"]) == (1, 1)


def loaded(path: Path, package: str) -> ModuleType:
    """Return the module of a generated client."""
    spec = importlib.util.spec_from_file_location(package, path / package / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[package] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def client(skies: Any, tmp_path: Path) -> ModuleType:
    """The module of a generated client."""
    return loaded(tmp_path / "client", skies("client", "--out", str(tmp_path / "client"))["package"])


def test_a_generated_client_feeds_asks_and_refines(
    client: ModuleType, server: Embedded, skies: Any, tmp_path: Path
) -> None:
    picture = np.full((8, 8, 1), 200, np.uint8)
    with client.Client(server.dsn()) as task:
        answer = task.infer(picture)
        assert answer.label in client.CLASSES
        task.feed(picture, "bright")
        newest = skies("refine", "--limit", "1")[0]["example_id"]
        task.refine(newest, is_on=False)
        assert not skies("refine", "--limit", "1")[0]["is_on"]
        with pytest.raises(LookupError):
            task.refine(10_000_000, is_on=False)
        with pytest.raises(ValueError, match="expected shape"):
            task.infer(picture[0])
    np.save(tmp_path / "one.npy", picture)
    place, infer = ["--dsn", server.dsn()], ["infer", str(tmp_path / "one.npy")]
    for arguments in ([*place, *infer], [*infer, *place]):
        command = [sys.executable, client.__file__, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["label"] == answer.label


def test_the_command_of_a_client_takes_pictures_json_and_csv(
    client: ModuleType, server: Embedded, skies: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: object) -> tuple[int, str]:
        status = client.main(["--dsn", server.dsn(), *map(str, arguments)])
        shown = capsys.readouterr()
        return status, shown.out + shown.err

    pixels = np.full((8, 8), 200, np.uint8)
    Image.fromarray(pixels).save(tmp_path / "one.png")
    Image.new("RGB", (20, 10), (200, 200, 200)).save(tmp_path / "large.jpeg")
    np.savetxt(tmp_path / "one.csv", pixels, fmt="%d", delimiter=",")
    (tmp_path / "one.json").write_text(json.dumps(pixels[:, :, None].tolist()))
    (tmp_path / "broken.png").write_bytes((tmp_path / "one.png").read_bytes()[:50])
    names = ("one.png", "large.jpeg", "one.csv", "one.json")
    status, shown = run("infer", *(tmp_path / name for name in names), json.dumps(pixels[:, :, None].tolist()))
    assert status == 0, shown
    answers = [json.loads(line) for line in shown.splitlines()]
    assert len(answers) == 5
    assert all(answer["output"] == answers[0]["output"] for answer in answers[2:])
    assert run("feed", tmp_path / "one.png", "bright") == (0, "")
    assert skies("refine", "--limit", "1")[0]["output"] == "bright"
    status, shown = run("feed", tmp_path / "large.jpeg", "bright")
    assert status == 1
    assert "expected shape (8, 8, 1), got (10, 20, 1)" in shown
    assert run("feed", tmp_path / "large.jpeg", "bright", "--resize") == (0, "")
    for wrong, told in (("broken.png", "cannot be read as a picture"), ("none.png", "No such file")):
        status, shown = run("infer", tmp_path / wrong)
        assert status == 1
        assert told in shown


def test_a_client_is_installed_by_its_path_and_not_by_a_name(
    skies: Any, run_easeml: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = run_easeml("task", "client", "night skies", "--out", "client")
    assert f"pip install {tmp_path / 'client'}," in made.stdout, made.output
    assert skies("refine", "--limit", "1")


def test_series_are_fed_as_lines_of_json_all_or_none(run_easeml: Any, skies: Any, tmp_path: Path) -> None:
    def run(command: str, *arguments: str) -> Any:
        return run_easeml("task", command, "paths", *arguments, "--json")

    assert (
        run("create", "{input: {[Tensor[2]],[next]}, output: {[Tensor[2]],[]}}", "--classes", "up,down").exit_code == 0
    )
    lines = [json.dumps({"input": [[k, n] for n in range(k % 5 + 1)], "output": "up"}) for k in range(30)]
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text("\n".join(lines) + "\n\n")
    bad.write_text("\n".join([*lines, '{"input": [[1, 2, 3]], "output": "up"}']))
    assert json.loads(run("feed", str(good)).stdout)["n_fed"] == 30
    refused = run("feed", str(bad))
    assert refused.exit_code == 1
    assert "bad.jsonl, line 31: field1: expected Tensor[2] of each object" in str(refused.exception)
    assert len(json.loads(run("refine", "--limit", "100").stdout)) == 30
    fed = json.loads(run("feed", str(bad), "--on-error", "skip").stdout)
    assert (fed["n_fed"], fed["n_skipped"]) == (30, 1)
    assert run_easeml("task", "feed", "paths", str(tmp_path)).exit_code == 2


def test_a_client_of_trees_takes_objects_within_objects(
    run_easeml: Any, skies: Any, server: Embedded, tmp_path: Path
) -> None:
    program = "{input: {[word :: Tensor[2]],[left, right]}, output: {[Tensor[2]],[]}}"
    assert run_easeml("task", "create", "sentences", program).exit_code == 0
    made = run_easeml("task", "client", "sentences", "--out", str(tmp_path / "client"), "--json")
    package = json.loads(made.stdout)["package"]
    client = loaded(tmp_path / "client", package)
    leaf = {"word": np.array([1.0, 2.0])}
    with client.Client(server.dsn()) as task:
        task.feed({**leaf, "left": leaf, "right": {**leaf, "right": leaf}}, "1")
        with pytest.raises(ValueError, match="expected shape"):
            task.feed({**leaf, "left": {"word": np.zeros(3)}}, "1")
    tree = '{"word": [1, 2], "left": {"word": [3, 4], "right": null}}'
    assert client.main(["--dsn", server.dsn(), "feed", tree, "1"]) == 0
    assert len(json.loads(run_easeml("task", "refine", "sentences", "--json").stdout)) == 2


def test_a_client_feeds_the_series_that_comes_out(
    run_easeml: Any, skies: Any, server: Embedded, tmp_path: Path
) -> None:
    program = "{input: {[Tensor[2]],[next]}, output: {[Tensor[3]],[next]}}"
    assert run_easeml("task", "create", "translating", program).exit_code == 0
    made = run_easeml("task", "client", "translating", "--out", str(tmp_path / "client"), "--json")
    client = loaded(tmp_path / "client", json.loads(made.stdout)["package"])
    given, wanted = np.ones((2, 2), np.float32), np.zeros((4, 3), np.float32)
    with client.Client(server.dsn()) as task:
        task.feed(given, wanted)
    np.save(tmp_path / "given.npy", given)
    np.save(tmp_path / "wanted.npy", wanted[:1])
    files = [str(tmp_path / f"{name}.npy") for name in ("given", "wanted")]
    assert client.main(["--dsn", server.dsn(), "feed", *files]) == 0
    fed = json.loads(run_easeml("task", "refine", "translating", "--json").stdout)
    assert sorted(len(each["output"]) for each in fed) == [1, 4]
    np.savetxt(tmp_path / "given.csv", given, delimiter=",")
    place = ["--dsn", server.dsn(), "feed"]
    assert client.main([*place, str(tmp_path / "given.csv"), "[[1, 2, 3], [4, 5, 6]]"]) == 0
    assert client.main([*place, str(tmp_path / "nothing.png"), "[[1, 2, 3]]"]) == 1
    fed = json.loads(run_easeml("task", "refine", "translating", "--json").stdout)
    assert sorted(len(each["output"]) for each in fed) == [1, 2, 4]


def test_pictures_that_come_out_of_pictures_are_fed_from_folders(
    run_easeml: Any, skies: Any, pictures: Path, tmp_path: Path
) -> None:
    (tmp_path / "pairs.csv").write_text("file,output\n" + "\n".join(f"{k}.png,{k + 1}.png" for k in range(0, 20, 2)))
    pairs = ("--labels", str(tmp_path / "pairs.csv"), "--json")
    made = run_easeml("task", "create", "brightening", "--pictures", str(pictures), *pairs)
    assert json.loads(made.stdout)["program"] == "Input = [8,8,1]  Output = [8,8,1]"
    assert json.loads(run_easeml("task", "feed", "brightening", str(pictures), *pairs).stdout)["n_fed"] == 10
    refused = run_easeml("task", "feed", "brightening", str(pictures), "--labels", str(pictures / "labels.csv"))
    assert "expected a header with the columns file and output" in str(refused.exception)


def test_an_array_of_pictures_is_fed_as_it_stands_or_not_at_all(
    run_easeml: Any, skies: Any, server: Embedded, tmp_path: Path
) -> None:
    pixels = np.arange(3 * 12, dtype=np.uint8).reshape(3, 3, 4)
    np.save(tmp_path / "pixels.npy", pixels)
    program = "Input = [3,4,1]  Output = [2]"
    assert run_easeml("task", "create", "arrays", program, "--classes", "cloud,sun").exit_code == 0

    def feed(file: str, labels: list[str], *options: str) -> Any:
        np.save(tmp_path / "labels.npy", labels)
        given = (str(tmp_path / file), "--labels", str(tmp_path / "labels.npy"))
        return run_easeml("task", "feed", "arrays", *given, *options, "--json")

    assert "image 1: label 'rain' is no class" in str(feed("pixels.npy", ["sun", "rain", "sun"]).exception)
    Image.new("L", (4, 3)).save(tmp_path / "one.png")
    assert "one.png: expected a folder of pictures, or a .npy file" in str(feed("one.png", ["sun"]).exception)
    assert json.loads(run_easeml("task", "refine", "arrays", "--json").stdout) == []
    np.save(tmp_path / "columns.npy", np.asfortranarray(pixels))  # the one by way of numpy, the other without
    for file in ("pixels.npy", "columns.npy"):
        fed = json.loads(feed(file, ["sun", "rain", "cloud"], "--on-error", "skip").stdout)
        assert (fed["n_fed"], fed["n_skipped"]) == (2, 1)
    with psycopg.connect(server.dsn()) as connection:
        found = connection.execute("SELECT input, output FROM arrays ORDER BY example_id").fetchall()
    assert found == 2 * [(pixels[0].tobytes(), "sun"), (pixels[2].tobytes(), "cloud")]
