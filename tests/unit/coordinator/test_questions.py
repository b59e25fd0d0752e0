"""Questions and answers travel to another process and back unchanged."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from easeml_db.coordinator import questions
from easeml_db.coordinator.questions import Question
from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.words.run import Arm, Search
from tests.unit.procedures.conftest import RATE


def travelled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - pickled here


@pytest.mark.parametrize("procedure", ["race", "successive_halving", "tpe"])
def test_the_answer_is_the_same_in_another_process(procedure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "PICKLED_AT_ONCE", 2)  # several parts
    search = Search(json.dumps([{"architecture": "net", "hyperparameters": [RATE]}]), None, procedure, 9, 9)
    trials = {
        k: TrialHistory(k, {"architecture": "net", "rate": k / 10}, "paused", (k / 10,), 1, moments=(float(k),))
        for k in range(1, 6)
    }
    question = Question(search, 60.0, [7], 7, [Arm(7, "net", opening=1)], {7: trials})
    answer = travelled(question.answer)()
    assert travelled(answer) == question.answer()
    assert answer.rows or answer.is_end
