"""Rows of plans for every run there is: tests of who sees and writes them need no planned run."""

PLANNED = """
INSERT INTO easeml.plans (run_id, tenant, revision, reason, is_within_limits, seconds_mean, seconds_p95, cost_mean,
    cost_p95)
SELECT run_id, tenant, 1, 'start', true, 1, 1, 1, 1 FROM easeml.runs;
INSERT INTO easeml.planned_stages (run_id, tenant, revision, stage, label, arm, bracket, target_epochs, n_trials,
    n_epochs, instance_type, n_slots, n_instances, width, start_seconds, seconds_mean, seconds_p50, seconds_p95,
    cost_mean, cost_p95)
SELECT run_id, tenant, 1, 0, 'linear', 'linear', 0, 1, 1, 1, 'cpu slot', 1, 1, 1, 0, 1, 1, 1, 1, 1 FROM easeml.runs;
INSERT INTO easeml.forecasts (run_id, tenant, cost_so_far) SELECT run_id, tenant, 1 FROM easeml.runs;
INSERT INTO easeml.executed_stages (run_id, tenant, place, revision, label, arm, bracket, target_epochs, began_at,
    n_trials, n_slots, cost_before)
SELECT run_id, tenant, 1, 1, 'linear', 'linear', 0, 1, now(), 1, 1, 0 FROM easeml.runs;
"""
INSTANCES = """
INSERT INTO easeml.instances (run_id, tenant, provisioner, price_list, instance_type, device_kind, n_slots, status,
    price_per_hour, billed_by, billed_per, minimum_seconds, data_price, cost)
SELECT run_id, tenant, 'local', 'local', 'cpu slot', 'cpu', 1, 'released', 1, 'second', 'instance', 0, 0, 5
FROM easeml.runs;
"""
PLANNED += INSTANCES
