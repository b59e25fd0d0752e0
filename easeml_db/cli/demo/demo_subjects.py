"""The two datasets of the demo, and the statements that it executes on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from string import Template

from easeml_loaders import Source, bundled_source, fashion_mnist_source

STATEMENTS = {
    "schema": "CREATE SCHEMA IF NOT EXISTS demo",
    "known_rows": "CREATE OR REPLACE VIEW $known_rows AS\n    SELECT * FROM $all_rows WHERE NOT ($is_new)",
    "new_rows": "CREATE OR REPLACE VIEW $new_rows AS\n    SELECT * FROM $all_rows WHERE $is_new",
    "create_dataset": """\
SELECT easeml.create_dataset('$dataset', source => '$known_rows',
    inputs => '{$column}', target => 'label'$options, n_partitions => 4)""",
    "select_models": """\
SELECT easeml.select_models('$dataset', architectures => '{mlp,lenet}',
    n_configs => 8, max_epochs => $max_epochs, search_space => '{
        "learning_rate": {"type": "float", "low": $low, "high": $high, "log": true},
        "batch_size": [$batch_sizes],
        "mlp": {"hidden_units": [[64], [128], [128, 128]]},
        "lenet": {"width": [1, 2]}}') AS run_id""",
    "leaderboard": """\
SELECT rank, trial_id, architecture, validation_metric AS validation,
    test_metric AS test, config
FROM easeml.leaderboard WHERE run_id = $run_id ORDER BY rank, trial_number""",
    "predict": """\
SELECT id, label, easeml.predict('$dataset', $column) AS predicted
FROM $new_rows ORDER BY id LIMIT 10""",
    "drop_predictions": "DROP TABLE IF EXISTS $predictions",
    "predict_table": """\
SELECT easeml.predict_table('$dataset', source => '$new_rows',
    output => '$predictions')""",
    "accuracy": """\
SELECT count(*) AS n_rows,
    count(*) FILTER (WHERE predicted_label = label::text) AS n_right,
    round(avg((predicted_label = label::text)::int), 4) AS accuracy
FROM $predictions""",
}


@dataclass(frozen=True)
class Subject:
    """A dataset of the demo: the source of its rows, the rows kept aside, and the search on it."""

    title: str
    source: Callable[[], Source]
    dataset: str
    is_new: str
    column: str
    options: str
    low: str
    high: str
    batch_sizes: str
    max_epochs: int
    all_rows: str
    known_rows: str
    new_rows: str
    predictions: str

    def statement(self, name: str, **values: object) -> str:
        """Return a statement about this dataset by its name."""
        return Template(STATEMENTS[name]).substitute({**asdict(self), **values})

    def renamed(self) -> Subject:
        """Return the same under another name, for when the name is taken."""
        return replace(self, dataset=f"demo_{self.dataset}")


def _subject(name: str, title: str, source: Callable[[], Source], **facts: object) -> Subject:
    tables = {
        kind: f"demo.{name}_{end}"
        for kind, end in (("all_rows", "all"), ("new_rows", "new"), ("predictions", "predicted"))
    }
    return Subject(title=title, source=source, dataset=name, known_rows=f"demo.{name}", **tables, **facts)  # type: ignore[arg-type]


SUBJECTS = {
    "digits": _subject(
        "digits", "1,797 handwritten digits", lambda: bundled_source("digits"),
        is_new="id % 6 = 0", column="pixels", options="", max_epochs=6,
        low="1e-3", high="1e-2", batch_sizes="32, 64",
    ),
    "fashion-mnist": _subject(
        "fashion_mnist", "70,000 images of clothes", fashion_mnist_source,
        is_new="is_test", column="image", options=", input_shape => '{28,28}'", max_epochs=3,
        low="5e-4", high="5e-3", batch_sizes="64, 128",
    ),
}  # fmt: skip
