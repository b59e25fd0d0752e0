"""The roles in the demonstration of many tenants, and the statements that the demo executes for them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from string import Template

MARK = "made by easeml demo tenants"  # the comment of the demonstration's own roles

STATEMENTS = {
    "schema": "CREATE SCHEMA IF NOT EXISTS demo",
    "create_role": f"CREATE ROLE $role; COMMENT ON ROLE $role IS '{MARK}'",
    "grant": "GRANT USAGE ON SCHEMA demo TO $role; GRANT SELECT ON $table TO $role",
    "create_tenant": "SELECT easeml.create_tenant('$role', weight => $weight)",
    "drop_tenant": "SELECT easeml.drop_tenant('$role')",
    "cancel": "SELECT easeml.cancel($run_id)",
    "set_role": "SET ROLE $role",
    "reset_role": "RESET ROLE",
    "create_dataset": """\
SELECT easeml.create_dataset('$dataset', source => '$table',
    inputs => '{$inputs}', target => 'label')""",
    "select_models": """\
SELECT easeml.select_models('$dataset',
    architectures => '{$architectures}',
    n_configs => $n_configs, max_epochs => $max_epochs, search_space => '$search_space') AS run_id""",
    "set_deadline": "SELECT easeml.alter_tenant('$role', deadline => clock_timestamp() + interval '$seconds seconds')",
    "clear_deadline": "SELECT easeml.alter_tenant('$role', clear => '{deadline}')",
    "policy": "SELECT kind, name, summary FROM easeml.policies WHERE is_in_use",
    "decisions": """\
SELECT round(extract(epoch FROM decided_at - min(decided_at) OVER ()), 1) AS second,
    tenant AS served, architecture, best_quality AS best, gap, reason
FROM easeml.policy_decisions WHERE run_id IN ($run_ids) AND is_chosen ORDER BY decision_id""",
    "results": """\
SELECT t.tenant, t.dataset_name AS data, t.status, t.n_closed || ' of ' || t.n_arms AS arms,
    l.architecture, l.validation_metric AS validation, l.test_metric AS test
FROM easeml.run_regret t LEFT JOIN LATERAL (
    SELECT * FROM easeml.leaderboard b WHERE b.run_id = t.run_id AND b.validation_metric IS NOT NULL
    ORDER BY b.rank, b.trial_number LIMIT 1) l ON true
WHERE t.run_id IN ($run_ids) ORDER BY t.run_id""",
    "own_rows": """\
SELECT current_user AS role, tenant AS sees_rows_of, count(*) FROM easeml.leaderboard GROUP BY tenant""",
}


@dataclass(frozen=True)
class DemoTenant:
    """A tenant of the demonstration: her data, and the search that she asks for."""

    role: str
    weight: int
    bundled: str
    inputs: str
    architectures: str
    n_configs: int
    max_epochs: int
    search_space: str

    @property
    def table(self) -> str:
        """Where her rows are."""
        return f"demo.{self.bundled}_all"

    def statement(self, name: str, **values: object) -> str:
        """Return a statement about this tenant by its name."""
        named = {**asdict(self), "dataset": self.bundled, "table": self.table}
        return Template(STATEMENTS[name]).substitute({**named, **values})


ANNA = DemoTenant(
    "demo_anna", 2, "breast_cancer", "mean_radius,mean_texture,mean_smoothness,worst_area,worst_concave_points",
    "mlp,linear,sgd,perceptron,gaussian_nb,multinomial_nb", 16, 6,
    '{"learning_rate": [0.001, 0.003, 0.01],\n        "mlp": {"hidden_units": [[32], [64, 64]]}}',
)  # fmt: skip
BEN = DemoTenant(
    "demo_ben", 1, "wine", "alcohol,flavanoids,color_intensity,hue,proline",
    "multinomial_nb,mlp,linear,sgd,perceptron,passive_aggressive", 16, 6,
    '{"learning_rate": [0.001, 0.003, 0.01, 0.03]}',
)  # fmt: skip
CORA = DemoTenant(
    "demo_cora", 1, "digits", "pixels",
    "linear,lenet,mlp,sgd,perceptron,gaussian_nb,multinomial_nb,passive_aggressive", 24, 6,
    '{"learning_rate": [0.001, 0.01],\n        "lenet": {"width": [1, 2]}, "mlp": {"hidden_units": [[128], [256]]}}',
)  # fmt: skip
DAN = DemoTenant(
    "demo_dan", 1, "iris", "sepal_length_cm,sepal_width_cm,petal_length_cm,petal_width_cm",
    "mlp,linear,gaussian_nb", 9, 6,
    '{"learning_rate": [0.003, 0.01, 0.03]}',
)  # fmt: skip
DEMO_TENANTS = (ANNA, BEN, CORA, DAN)
