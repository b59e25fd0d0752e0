-- Questions for Metabase (New, SQL query), each with the picture that suits it. They only read views, as a member of easeml_reader.

-- name: Runs
-- Table.
SELECT run_id, tenant, dataset_name, status, percent_done, metric, best_metric_value, elapsed_seconds, cost_so_far
FROM easeml.run_status ORDER BY run_id DESC LIMIT 100;

-- name: Learning curves of the newest runs
-- Line: measured_at, validation_metric, a series for each trial.
SELECT measured_at, run_id || '/' || trial_number AS trial, validation_metric
FROM easeml.learning_curves WHERE run_id IN (SELECT run_id FROM easeml.run_status ORDER BY run_id DESC LIMIT 5) ORDER BY measured_at;

-- name: Units per minute
-- Line: minute, n_units, a series for each kind.
SELECT date_trunc('minute', finished_at) AS minute, kind, count(*) AS n_units
FROM easeml.training_timeline WHERE started_at > now() - interval '1 day' GROUP BY 1, 2 ORDER BY 1;

-- name: Best trial of each run
-- Bar: run_id, validation_metric, test_metric.
SELECT run_id, dataset_name, architecture, validation_metric, test_metric
FROM easeml.leaderboard WHERE rank = 1 AND run_id IN (SELECT run_id FROM easeml.run_status ORDER BY run_id DESC LIMIT 20) ORDER BY run_id;

-- name: What tenants use
-- Bar: tenant, used_hours.
SELECT tenant, used_hours, used_bytes, n_open_runs, n_busy_slots FROM easeml.tenant_status ORDER BY used_hours DESC;

-- name: Slots
-- Table.
SELECT slot_name, segment_name, status, run_id, architecture, kind, unit_seconds, n_units_done FROM easeml.slot_status ORDER BY slot_id;

-- name: Does the service work
-- Numbers.
SELECT is_alive, heartbeat_age_seconds, n_queued_runs, n_running_runs, n_busy_slots, n_lost_slots, units_failed FROM easeml.health;
