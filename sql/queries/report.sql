-- What easeml run report reads: views only, under the caller's rights.

-- name: run
-- A run with its dataset.
SELECT s.*, d.task, d.source, d.input_columns, d.target_column, d.input_shape, d.n_outputs, d.n_partitions,
    d.n_train_rows, d.n_validation_rows, d.n_test_rows, d.n_bytes, (d.split_options ->> 'n_folds')::integer AS n_folds,
    d.packing_seconds, d.shuffle, d.n_moved_bytes, clock_timestamp() AS read_at
FROM easeml.run_status s
LEFT JOIN easeml.dataset_info d ON d.tenant = s.tenant AND d.dataset_name = s.dataset_name
    AND d.version = s.dataset_version
WHERE s.run_id = %(run_id)s

-- name: trials
-- Trials, best first.
SELECT rank, trial_id, trial_number, architecture, status, validation_metric, test_metric, best_epoch, n_epochs_done,
    max_epochs, training_seconds, is_deployed, config, failure_reason
FROM easeml.leaderboard WHERE run_id = %(run_id)s ORDER BY rank, trial_number

-- name: units
-- Every recorded unit in the order of their starts; times in seconds since 1970.
SELECT trial_id, kind, epoch, partition_number, slot_id, attempt,
    extract(epoch FROM started_at)::double precision AS started_seconds,
    extract(epoch FROM finished_at)::double precision AS finished_seconds
FROM easeml.training_timeline WHERE run_id = %(run_id)s ORDER BY started_at, finished_at, trial_id

-- name: curves
-- Loss and metric of each trial after each epoch.
SELECT trial_id, epoch, training_loss, validation_metric
FROM easeml.learning_curves WHERE run_id = %(run_id)s ORDER BY trial_id, epoch

-- name: slots
-- Names and devices of the present slots.
SELECT slot_id, slot_name, device, n_threads FROM easeml.slot_status ORDER BY slot_id

-- name: events
-- Events of a run, in the order in which they happened.
SELECT event_id, happened_at, extract(epoch FROM happened_at)::double precision AS happened_seconds,
    trial_id, kind, message
FROM easeml.run_events WHERE run_id = %(run_id)s ORDER BY happened_at, event_id

-- name: run_traffic
-- How much state the run stored and moved.
SELECT * FROM easeml.run_traffic WHERE run_id = %(run_id)s

-- name: forecasts
-- What was forecast since the run started last, in seconds since then.
SELECT extract(epoch FROM f.made_at - s.started_at)::double precision AS made_seconds,
    extract(epoch FROM f.eta_at - s.started_at)::double precision AS eta_seconds,
    extract(epoch FROM f.eta_earliest_at - s.started_at)::double precision AS earliest_seconds,
    extract(epoch FROM f.eta_p95_at - s.started_at)::double precision AS latest_seconds,
    f.cost_expected, f.cost_p95, f.note
FROM easeml.run_forecasts f JOIN easeml.run_status s USING (run_id)
WHERE f.run_id = %(run_id)s AND f.eta_at IS NOT NULL AND f.made_at >= s.started_at ORDER BY f.made_at

-- name: plans
-- What was planned for the run, the first plan and each later one, in seconds since the run was asked for.
SELECT p.revision, p.reason, p.n_slots, extract(epoch FROM p.made_at - s.created_at)::double precision AS made_seconds,
    extract(epoch FROM p.end_expected_at - s.created_at)::double precision AS end_seconds,
    extract(epoch FROM p.end_p95_at - s.created_at)::double precision AS latest_seconds,
    p.cost_expected, p.cost_p95, p.max_cost, p.price_list
FROM easeml.plan_revisions p JOIN easeml.run_status s USING (run_id) WHERE p.run_id = %(run_id)s ORDER BY p.revision

-- name: stages
-- What was planned for each stage of the run when it began, beside what happened.
SELECT label, seconds_planned, seconds_p95_planned, seconds, cost_planned, cost, n_slots_planned, n_slots, reason
FROM easeml.plan_accuracy WHERE run_id = %(run_id)s ORDER BY stage
