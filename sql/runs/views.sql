-- A volatile function such as clock_timestamp would keep the planner from looking into a view: each query of a few runs
-- would compute all runs. statement_timestamp moves within a transaction, now within a procedure that commits
-- (easeml.wait): the later of the two is the time.

CREATE OR REPLACE VIEW easeml.run_status WITH (security_invoker) AS
SELECT r.run_id, r.tenant::text AS tenant, d.dataset_name, d.version AS dataset_version,
    CASE WHEN r.status = 'running' AND NOT easeml.has_live_coordinator() THEN 'interrupted' ELSE r.status END AS status,
    r.procedure, r.metric, r.max_epochs, r.seed,
    t.n_trials, t.n_finished, t.n_failed, t.n_units_done, w.n_units,
    CASE WHEN r.procedure = 'import' THEN 100
        ELSE round(100.0 * t.n_units_done / nullif(w.n_units, 0), 1) END::double precision AS percent_done,
    b.trial_id AS best_trial_id,
    (SELECT k.best_metric_value FROM easeml.trials k WHERE k.trial_id = b.trial_id) AS best_metric_value,
    r.created_at, r.started_at, r.finished_at,
    extract(epoch FROM coalesce(r.finished_at, greatest(now(), statement_timestamp()))
        - r.started_at)::double precision AS elapsed_seconds,
    r.failure_reason, r.scheduler, r.visit_order, r.planned_scheduler, r.simulated_seconds, r.bound_seconds,
    t.n_paused, t.n_stopped, r.procedure_options, r.allocation,
    f.eta_at, f.eta_p95_at, c.cost_so_far, f.cost_expected, x.deadline,
    CASE WHEN f.eta_at IS NOT NULL THEN coalesce(f.eta_p95_at > x.deadline, false)
        OR coalesce(f.cost_p95 > r.max_cost, false) END AS is_at_risk, r.price_list
FROM easeml.runs r
-- The limit lets the newest runs come from the index: to the planner a join of rows that are both the tenant's own has
-- hardly a row.
CROSS JOIN LATERAL (SELECT n.dataset_name, n.version, n.n_partitions FROM easeml.datasets n
    WHERE n.dataset_id = r.dataset_id LIMIT 1) d
LEFT JOIN LATERAL (
    SELECT count(*) AS n_trials, count(*) FILTER (WHERE status = 'finished') AS n_finished,
        count(*) FILTER (WHERE status = 'failed') AS n_failed,
        count(*) FILTER (WHERE status = 'paused') AS n_paused, count(*) FILTER (WHERE status = 'stopped') AS n_stopped,
        least(coalesce(sum(n_steps_done - 2 * inherited_epochs * d.n_partitions::bigint), 0),
            9223372036854775807)::bigint AS n_units_done,
        coalesce(sum(slot_seconds), 0) AS slot_seconds,
        -- Only a trial that trains to its end is tested.
        count(*) FILTER (WHERE n_steps_done > 2 * max_epochs * d.n_partitions::bigint OR target_epochs = max_epochs
            AND status IN ('waiting', 'running')) AS n_tests
    FROM easeml.trials WHERE run_id = r.run_id) t ON true
LEFT JOIN LATERAL (
    -- The trials of a search with a time limit are as many as there is time for: at the pace so far.
    SELECT CASE WHEN r.procedure = 'import' THEN 0 -- its trial was trained elsewhere
        WHEN r.search IS NULL THEN t.n_trials * (2 * r.max_epochs + 1) * d.n_partitions
        WHEN r.status = 'running' AND r.max_seconds IS NOT NULL
            THEN least(ceil(t.n_units_done * least(r.max_seconds, 1e9) / greatest(extract(epoch FROM greatest(now(),
                                statement_timestamp()) - r.started_at), 0.001)), 9e18)::bigint
        WHEN r.status IN ('queued', 'running') AND r.max_seconds IS NULL
            THEN least((2 * sum(a.planned_epochs) + t.n_tests) * d.n_partitions,
                9223372036854775807)::bigint END AS n_planned
    FROM easeml.arms a WHERE a.run_id = r.run_id) q ON true
LEFT JOIN LATERAL (SELECT greatest(coalesce(q.n_planned, t.n_units_done), t.n_units_done) AS n_units) w ON true
LEFT JOIN LATERAL (
    -- Exactly one row, so that a query that does not need the best trial, such as that of easeml.wait, does not pay for
    -- it. The least key needs no sort.
    SELECT (min(easeml.rank_key(k, r.is_higher_better)))[6]::bigint AS trial_id
    FROM easeml.trials k WHERE k.run_id = r.run_id AND k.best_metric_value IS NOT NULL) b ON true
CROSS JOIN LATERAL (SELECT CASE WHEN r.price_list IS NOT NULL THEN easeml.planned_cost(r.run_id, t.slot_seconds)
    ELSE t.slot_seconds / 3600 * (SELECT min(i.price_per_hour / i.n_slots) FROM easeml.instance_types i
        WHERE i.price_list = 'local') END AS cost_so_far) c
LEFT JOIN LATERAL (
    -- A run that takes longer, or costs more, than was forecast is due now. Until its first forecast a planned run goes
    -- as its plan says, from when it begins, and one with a time limit up to that.
    SELECT greatest(k.eta_at, clock_timestamp()) AS eta_at, greatest(k.eta_p95_at, clock_timestamp()) AS eta_p95_at,
        CASE WHEN k.cost_expected IS NOT NULL THEN greatest(k.cost_expected, c.cost_so_far) END AS cost_expected,
        k.cost_p95
    FROM (
        (SELECT 1 AS place, l.eta_at, l.eta_p95_at, l.cost_expected, l.cost_p95 FROM easeml.forecasts l
            WHERE l.run_id = r.run_id AND l.made_at >= r.started_at ORDER BY l.made_at DESC LIMIT 1)
        UNION ALL
        (SELECT 2, b.began_at + make_interval(secs => p.seconds_mean),
            b.began_at + make_interval(secs => p.seconds_p95), p.cost_before + p.cost_mean, p.cost_before + p.cost_p95
            FROM easeml.plans p CROSS JOIN LATERAL (SELECT CASE r.status WHEN 'queued' THEN clock_timestamp()
                    ELSE greatest(p.made_at, r.started_at) END AS began_at) b
            WHERE r.price_list IS NOT NULL AND p.run_id = r.run_id AND (r.n_resumes = 0 OR p.made_at >= r.started_at)
                ORDER BY p.revision DESC LIMIT 1)
        UNION ALL SELECT 3, b.ends_at, b.ends_at, NULL, NULL FROM (SELECT CASE WHEN r.max_seconds <= 1e9
                THEN r.started_at + make_interval(secs => r.max_seconds) END AS ends_at) b) k
    WHERE r.status IN ('queued', 'running') AND k.eta_at IS NOT NULL
        AND easeml.has_live_coordinator() ORDER BY k.place LIMIT 1) f ON true
CROSS JOIN LATERAL (SELECT CASE WHEN r.status IN ('queued', 'running') THEN least(r.deadline,
            (SELECT n.deadline FROM easeml.tenants n WHERE n.tenant = r.tenant)) END AS deadline) x;
COMMENT ON VIEW easeml.run_status IS
    'Runs with their progress. A run is interrupted if it is running and no coordinator is alive.';

CREATE OR REPLACE VIEW easeml.schedulers WITH (security_invoker) AS
SELECT s.scheduler, s.needs_free_order, s.needs_single_holders, s.is_default, s.summary FROM easeml.list_schedulers() s;
COMMENT ON VIEW easeml.schedulers IS 'Schedulers that easeml.select_models accepts.';

CREATE OR REPLACE VIEW easeml.procedures WITH (security_invoker) AS
SELECT p.procedure, p.is_one_shot, p.options, p.summary FROM easeml.list_procedures() p;
COMMENT ON VIEW easeml.procedures IS 'Procedures that easeml.select_models accepts, with their options; '
    'easeml.preview_procedure shows what one would train.';

CREATE OR REPLACE VIEW easeml.leaderboard WITH (security_invoker) AS
SELECT t.run_id, CASE WHEN t.best_metric_value IS NOT NULL THEN
        -- Without the last three elements, which make the key unique: equal trials share a rank.
        rank() OVER (PARTITION BY t.run_id ORDER BY easeml.rank_value(t, r.is_higher_better),
            trim_array(easeml.rank_key(t, r.is_higher_better), 3)) END AS rank,
    t.trial_id, t.trial_number, d.dataset_name, t.architecture, t.status,
    r.metric, t.best_metric_value AS validation_metric, e.metric_value AS test_metric, t.best_epoch,
    greatest(t.best_epoch, t.n_steps_done / (2 * d.n_partitions::bigint))::integer AS n_epochs_done, t.max_epochs,
    p.trial_id IS NOT NULL AS is_deployed,
    t.training_seconds, t.config, t.failure_reason, t.tenant::text AS tenant,
    coalesce(t.target_epochs, t.max_epochs) AS target_epochs, t.parent_trial_id, t.bracket,
    b.n_classes AS n_validation_classes, e.n_classes AS n_test_classes, b.metric_error AS validation_error
FROM easeml.trials t
JOIN easeml.runs r USING (run_id)
JOIN easeml.datasets d USING (dataset_id)
-- Naming the run lets a large one read its own metrics, and not those of all.
LEFT JOIN easeml.epoch_metrics e ON e.trial_id = t.trial_id AND e.run_id = t.run_id
    AND e.epoch = t.best_epoch AND e.split = 'test'
LEFT JOIN easeml.epoch_metrics b ON b.trial_id = t.trial_id AND b.run_id = t.run_id
    AND b.epoch = t.best_epoch AND b.split = 'validation'
LEFT JOIN easeml.deployments p ON p.trial_id = t.trial_id;
COMMENT ON VIEW easeml.leaderboard IS 'Trials of each run, best first by the validation metric of their best epoch; '
    'the loss ranks those with equal metrics. test_metric measures the same epoch on rows that no choice has seen.';

CREATE OR REPLACE VIEW easeml.learning_curves WITH (security_invoker) AS
SELECT t.run_id, t.trial_id, t.trial_number, t.architecture, e.epoch, e.training_loss, r.metric,
    e.metric_value AS validation_metric,
    m.accuracy, m.balanced_accuracy, m.macro_f1, m.log_loss, m.rmse, m.mae, m.r2, e.measured_at,
    extract(epoch FROM e.measured_at - r.started_at)::double precision AS elapsed_seconds, e.training_seconds,
    t.tenant::text AS tenant, e.n_classes, e.metric_error AS validation_error,
    m.mse, m.psnr, m.ssim, m.token_accuracy
FROM easeml.epoch_metrics e
JOIN easeml.trials t ON t.trial_id = e.trial_id AND t.run_id = e.run_id
JOIN easeml.runs r ON r.run_id = t.run_id
LEFT JOIN LATERAL (
    -- Exactly one row, so that a query without these columns does not pay for them.
    SELECT
        max(v.value) FILTER (WHERE v.metric = 'accuracy') AS accuracy,
        max(v.value) FILTER (WHERE v.metric = 'balanced_accuracy') AS balanced_accuracy,
        max(v.value) FILTER (WHERE v.metric = 'macro_f1') AS macro_f1,
        max(v.value) FILTER (WHERE v.metric = 'log_loss') AS log_loss,
        max(v.value) FILTER (WHERE v.metric = 'rmse') AS rmse,
        max(v.value) FILTER (WHERE v.metric = 'mae') AS mae,
        max(v.value) FILTER (WHERE v.metric = 'r2') AS r2,
        max(v.value) FILTER (WHERE v.metric = 'mse') AS mse,
        max(v.value) FILTER (WHERE v.metric = 'psnr') AS psnr,
        max(v.value) FILTER (WHERE v.metric = 'ssim') AS ssim,
        max(v.value) FILTER (WHERE v.metric = 'token_accuracy') AS token_accuracy
    FROM easeml.metric_values v WHERE v.trial_id = e.trial_id AND v.epoch = e.epoch AND v.split = e.split) m ON true
WHERE e.split = 'validation';
COMMENT ON VIEW easeml.learning_curves IS 'Training loss and validation metrics of each trial after each epoch.';

CREATE OR REPLACE VIEW easeml.trial_metrics WITH (security_invoker) AS
SELECT t.run_id, t.trial_id, t.trial_number, d.dataset_name, t.architecture, e.split, e.epoch,
    e.n_rows, r.metric, e.metric_value,
    m.accuracy, m.balanced_accuracy, m.macro_f1, m.log_loss, m.rmse, m.mae, m.r2, e.measured_at,
    t.tenant::text AS tenant, m.mse, m.psnr, m.ssim, m.token_accuracy
FROM easeml.trials t
JOIN easeml.runs r USING (run_id)
JOIN easeml.datasets d USING (dataset_id)
JOIN easeml.epoch_metrics e ON e.trial_id = t.trial_id AND e.run_id = t.run_id AND e.epoch = t.best_epoch
LEFT JOIN LATERAL (
    -- Exactly one row, so that a query without these columns does not pay for them.
    SELECT
        max(v.value) FILTER (WHERE v.metric = 'accuracy') AS accuracy,
        max(v.value) FILTER (WHERE v.metric = 'balanced_accuracy') AS balanced_accuracy,
        max(v.value) FILTER (WHERE v.metric = 'macro_f1') AS macro_f1,
        max(v.value) FILTER (WHERE v.metric = 'log_loss') AS log_loss,
        max(v.value) FILTER (WHERE v.metric = 'rmse') AS rmse,
        max(v.value) FILTER (WHERE v.metric = 'mae') AS mae,
        max(v.value) FILTER (WHERE v.metric = 'r2') AS r2,
        max(v.value) FILTER (WHERE v.metric = 'mse') AS mse,
        max(v.value) FILTER (WHERE v.metric = 'psnr') AS psnr,
        max(v.value) FILTER (WHERE v.metric = 'ssim') AS ssim,
        max(v.value) FILTER (WHERE v.metric = 'token_accuracy') AS token_accuracy
    FROM easeml.metric_values v WHERE v.trial_id = e.trial_id AND v.epoch = e.epoch AND v.split = e.split) m ON true;
COMMENT ON VIEW easeml.trial_metrics IS 'All metrics of the best epoch of each trial, as its units measured them: one '
    'row for validation, and one for test if it is measured. easeml.evaluate measures many more.';

CREATE OR REPLACE VIEW easeml.metric_history WITH (security_invoker) AS
SELECT t.run_id, t.trial_id, t.trial_number, t.architecture, v.epoch, v.split, v.metric, v.value,
    v.metric = r.metric AS is_ranking, v.epoch = t.best_epoch AS is_best_epoch, e.n_rows, e.measured_at,
    t.tenant::text AS tenant
FROM easeml.epoch_metrics e
JOIN easeml.trials t ON t.trial_id = e.trial_id AND t.run_id = e.run_id
JOIN easeml.runs r ON r.run_id = t.run_id
JOIN easeml.metric_values v ON v.trial_id = e.trial_id AND v.epoch = e.epoch AND v.split = e.split;
COMMENT ON VIEW easeml.metric_history IS 'Every metric of each trial after each epoch, one row for each: what '
    'easeml.learning_curves and easeml.trial_metrics show as columns, and metrics that have no column there.';
COMMENT ON COLUMN easeml.metric_history.run_id IS 'The run.';
COMMENT ON COLUMN easeml.metric_history.trial_id IS 'The trial.';
COMMENT ON COLUMN easeml.metric_history.trial_number IS 'Number of the trial within its run.';
COMMENT ON COLUMN easeml.metric_history.architecture IS 'Architecture of the trial.';
COMMENT ON COLUMN easeml.metric_history.epoch IS 'Epoch after which the trial was measured.';
COMMENT ON COLUMN easeml.metric_history.split IS 'validation or test: the rows that were measured.';
COMMENT ON COLUMN easeml.metric_history.metric IS 'The metric, one of easeml.metrics.';
COMMENT ON COLUMN easeml.metric_history.value IS 'Its value; there is no row where it is not a finite number.';
COMMENT ON COLUMN easeml.metric_history.is_ranking IS 'Whether it ranks the trials of the run.';
COMMENT ON COLUMN easeml.metric_history.is_best_epoch IS 'Whether this is the best epoch of the trial.';
COMMENT ON COLUMN easeml.metric_history.n_rows IS 'Number of rows that were measured.';
COMMENT ON COLUMN easeml.metric_history.measured_at IS 'When it was measured.';
COMMENT ON COLUMN easeml.metric_history.tenant IS 'Tenant that owns the run.';

-- The join stands outside the union: so the first units by time come from the indexes of both tables, and nothing is
-- sorted.
CREATE OR REPLACE VIEW easeml.training_timeline WITH (security_invoker) AS
SELECT u.run_id, u.trial_id, t.trial_number, t.architecture, u.kind, u.epoch, u.position,
    u.partition_number, u.slot_id, u.attempt,
    u.started_at, u.finished_at, date_part('epoch', u.finished_at - u.started_at) AS seconds, u.training_seconds,
    u.n_rows, u.loss, u.state_bytes, u.state_sha256, u.tenant::text AS tenant, u.n_slots, u.n_stacked
FROM (
    SELECT r.run_id, r.trial_id, 'train'::text AS kind, r.epoch, r.position, r.partition_number, r.slot_id,
        r.attempt, r.started_at, r.finished_at,
        r.training_seconds, r.n_rows, r.loss, r.state_bytes, r.state_sha256, r.tenant, r.n_slots,
        coalesce(r.stack[1], 1) AS n_stacked
    FROM easeml.training_units r
    UNION ALL
    SELECT v.run_id, v.trial_id, CASE v.split WHEN 'validation' THEN 'validate' ELSE 'test' END, v.epoch, NULL,
        v.partition_number, v.slot_id, v.attempt, v.started_at, v.finished_at,
        NULL, v.n_rows, NULL, NULL, NULL, v.tenant, v.n_slots, 1
    FROM easeml.evaluations v) u
-- By its run, too: else the trials of all runs are read, or each unit looks up its own. LEFT, though each unit has a
-- trial: the planner takes two columns for independent, and would expect few rows.
LEFT JOIN easeml.trials t USING (trial_id, run_id);
COMMENT ON VIEW easeml.training_timeline IS 'Every recorded unit with its slot and times: the Gantt chart of a run.';

CREATE OR REPLACE VIEW easeml.run_events WITH (security_invoker) AS
SELECT e.event_id, e.happened_at, e.run_id, e.trial_id, e.kind, e.message,
    e.tenant::text AS tenant FROM easeml.events e;
COMMENT ON VIEW easeml.run_events IS 'What happened to runs and trials, in words.';

COMMENT ON COLUMN easeml.run_status.run_id IS 'Number that easeml.select_models returned.';
COMMENT ON COLUMN easeml.run_status.tenant IS 'Tenant that owns the run.';
COMMENT ON COLUMN easeml.run_status.dataset_name IS 'Dataset that the run searches on.';
COMMENT ON COLUMN easeml.run_status.dataset_version IS 'Version of the dataset.';
COMMENT ON COLUMN easeml.run_status.status IS 'queued, running, interrupted, finished, failed or cancelled.';
COMMENT ON COLUMN easeml.run_status.procedure IS 'How the run chooses configs, one of easeml.procedures.';
COMMENT ON COLUMN easeml.run_status.metric IS 'Metric that ranks the trials.';
COMMENT ON COLUMN easeml.run_status.max_epochs IS 'Largest number of epochs of a trial.';
COMMENT ON COLUMN easeml.run_status.seed IS 'Seed of configs, states and order.';
COMMENT ON COLUMN easeml.run_status.n_trials IS 'Number of trials so far.';
COMMENT ON COLUMN easeml.run_status.n_finished IS 'Number of trials that trained to their end.';
COMMENT ON COLUMN easeml.run_status.n_failed IS 'Number of trials that failed.';
COMMENT ON COLUMN easeml.run_status.n_units_done IS 'Number of recorded units.';
COMMENT ON COLUMN easeml.run_status.n_units IS 'Number of units in all; an upper limit if the procedure decides as the '
    'run goes on, an estimate from the time left if that is limited.';
COMMENT ON COLUMN easeml.run_status.percent_done IS 'Recorded share of the units.';
COMMENT ON COLUMN easeml.run_status.best_trial_id IS 'Best trial so far.';
COMMENT ON COLUMN easeml.run_status.best_metric_value IS 'Validation metric of the best trial.';
COMMENT ON COLUMN easeml.run_status.created_at IS 'When easeml.select_models was called.';
COMMENT ON COLUMN easeml.run_status.started_at IS 'When the first unit started.';
COMMENT ON COLUMN easeml.run_status.finished_at IS 'When the run ended.';
COMMENT ON COLUMN easeml.run_status.elapsed_seconds IS
    'Seconds since started_at, until finished_at if the run has ended.';
COMMENT ON COLUMN easeml.run_status.failure_reason IS 'Why the run failed.';

COMMENT ON COLUMN easeml.run_status.scheduler IS 'Scheduler that was asked for.';
COMMENT ON COLUMN easeml.run_status.visit_order IS 'cyclic or free, see easeml.select_models.';
COMMENT ON COLUMN easeml.run_status.planned_scheduler IS 'Scheduler in use.';
COMMENT ON COLUMN easeml.run_status.simulated_seconds IS
    'Simulated makespan of the work that was left when the scheduler was chosen.';
COMMENT ON COLUMN easeml.run_status.bound_seconds IS 'Lower bound of that makespan: no schedule is shorter.';

COMMENT ON COLUMN easeml.run_status.n_paused IS 'Number of trials that wait for their procedure to decide.';
COMMENT ON COLUMN easeml.run_status.n_stopped IS
    'Number of trials that their procedure, or the end of the run, stopped.';
COMMENT ON COLUMN easeml.run_status.procedure_options IS 'Options of the procedure.';
COMMENT ON COLUMN easeml.run_status.allocation IS 'How trials share the slots, see easeml.select_models.';
COMMENT ON COLUMN easeml.run_status.eta_at IS
    'When the run is expected to be done, by the newest forecast (easeml.run_forecasts), or before the first one by '
    'its plan or its time limit; null while that is unknown, and once it has ended.';
COMMENT ON COLUMN easeml.run_status.eta_p95_at IS 'When it is expected to be done in 95 of 100 cases.';
COMMENT ON COLUMN easeml.run_status.price_list IS 'Price list of a planned run, see easeml.prices.';
COMMENT ON COLUMN easeml.run_status.cost_so_far IS 'Slot time of its recorded units at the prices of price list local; '
    'for a planned run, what its instances would cost by the rules of its price list if they ended now.';
COMMENT ON COLUMN easeml.run_status.cost_expected IS 'What it is expected to cost in the end.';
COMMENT ON COLUMN easeml.run_status.deadline IS
    'When it should have ended: its own deadline or that of its tenant, whichever is earlier; null once it has ended.';
COMMENT ON COLUMN easeml.run_status.is_at_risk IS 'Whether it may end after its deadline, or cost more than its '
    'max_cost, in more than 5 of 100 cases; null while that is unknown.';

COMMENT ON COLUMN easeml.procedures.procedure IS 'Name that easeml.select_models takes.';
COMMENT ON COLUMN easeml.procedures.is_one_shot IS
    'Whether all trials start at once and train to the end; the other procedures decide again after every epoch.';
COMMENT ON COLUMN easeml.procedures.options IS 'Names of its options, for procedure_options.';
COMMENT ON COLUMN easeml.procedures.summary IS 'What it does, in a sentence.';

COMMENT ON COLUMN easeml.schedulers.scheduler IS 'Name that easeml.select_models takes.';
COMMENT ON COLUMN easeml.schedulers.needs_free_order IS
    'Whether it chooses the partitions, and so needs visit_order free.';
COMMENT ON COLUMN easeml.schedulers.needs_single_holders IS 'Whether each partition must have only one holder.';
COMMENT ON COLUMN easeml.schedulers.is_default IS 'Whether runs use it by default.';
COMMENT ON COLUMN easeml.schedulers.summary IS 'What it does, in a sentence.';

COMMENT ON COLUMN easeml.leaderboard.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.leaderboard.rank IS
    '1 is best; equal metrics share a rank; NULL if the trial was not measured.';
COMMENT ON COLUMN easeml.leaderboard.trial_id IS
    'Number of the trial, for easeml.deploy, easeml.replay and easeml.predict.';
COMMENT ON COLUMN easeml.leaderboard.trial_number IS 'Number of the trial within its run.';
COMMENT ON COLUMN easeml.leaderboard.dataset_name IS 'Dataset that the run searches on.';
COMMENT ON COLUMN easeml.leaderboard.architecture IS 'Architecture, see easeml.architectures.';
COMMENT ON COLUMN easeml.leaderboard.status IS
    'waiting, running, paused (waits for its procedure), finished, failed, stopped or cancelled.';
COMMENT ON COLUMN easeml.leaderboard.metric IS 'Metric that ranks the trials.';
COMMENT ON COLUMN easeml.leaderboard.validation_metric IS 'Metric of the best epoch on the validation rows.';
COMMENT ON COLUMN easeml.leaderboard.test_metric IS
    'Metric of the same epoch on the test rows; measured when the trial ends.';
COMMENT ON COLUMN easeml.leaderboard.best_epoch IS 'Epoch with the best validation metric.';
COMMENT ON COLUMN easeml.leaderboard.n_epochs_done IS 'Number of measured epochs.';
COMMENT ON COLUMN easeml.leaderboard.max_epochs IS 'Largest number of epochs.';
COMMENT ON COLUMN easeml.leaderboard.is_deployed IS 'Whether easeml.deploy chose it to answer predictions.';
COMMENT ON COLUMN easeml.leaderboard.training_seconds IS 'Seconds spent in training steps.';
COMMENT ON COLUMN easeml.leaderboard.config IS 'Hyperparameters.';
COMMENT ON COLUMN easeml.leaderboard.failure_reason IS 'Why the trial failed.';
COMMENT ON COLUMN easeml.leaderboard.tenant IS 'Tenant that owns the run.';
COMMENT ON COLUMN easeml.leaderboard.target_epochs IS 'Epoch after which the trial ends or waits for its procedure.';
COMMENT ON COLUMN easeml.leaderboard.bracket IS 'Bracket of its procedure, from 0.';
COMMENT ON COLUMN easeml.leaderboard.parent_trial_id IS 'The trial of which it began as a copy.';

COMMENT ON COLUMN easeml.learning_curves.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.learning_curves.trial_id IS 'The trial, see easeml.leaderboard.';
COMMENT ON COLUMN easeml.learning_curves.trial_number IS 'Number of the trial within its run.';
COMMENT ON COLUMN easeml.learning_curves.architecture IS 'Architecture of the trial, see easeml.architectures.';
COMMENT ON COLUMN easeml.learning_curves.epoch IS 'Epoch, from 1.';
COMMENT ON COLUMN easeml.learning_curves.training_loss IS 'Mean loss over the epoch''s training rows, while training.';
COMMENT ON COLUMN easeml.learning_curves.metric IS 'Metric of the run.';
COMMENT ON COLUMN easeml.learning_curves.validation_metric IS 'Value of that metric on the validation rows.';
COMMENT ON COLUMN easeml.learning_curves.accuracy IS 'Share of correct labels.';
COMMENT ON COLUMN easeml.learning_curves.balanced_accuracy IS 'Mean recall over classes.';
COMMENT ON COLUMN easeml.learning_curves.macro_f1 IS 'Mean F1 over classes.';
COMMENT ON COLUMN easeml.learning_curves.log_loss IS 'Mean negative log probability of the true label.';
COMMENT ON COLUMN easeml.learning_curves.rmse IS 'Root mean squared error.';
COMMENT ON COLUMN easeml.learning_curves.mae IS 'Mean absolute error.';
COMMENT ON COLUMN easeml.learning_curves.r2 IS 'Coefficient of determination.';
COMMENT ON COLUMN easeml.learning_curves.measured_at IS 'When the last partition was measured.';
COMMENT ON COLUMN easeml.learning_curves.elapsed_seconds IS 'Seconds from the start of the run to measured_at.';
COMMENT ON COLUMN easeml.learning_curves.training_seconds IS 'Seconds of training steps in this epoch.';
COMMENT ON COLUMN easeml.learning_curves.tenant IS 'Tenant that owns the run.';
COMMENT ON COLUMN easeml.learning_curves.n_classes IS
    'Number of classes with validation rows; the metrics ignore all others. Null if the target is a number.';

COMMENT ON COLUMN easeml.leaderboard.n_validation_classes IS
    'Number of classes with validation rows; the validation metrics ignore all others. Null if the target is a number.';
COMMENT ON COLUMN easeml.leaderboard.validation_error IS
    'Standard error of validation_metric as the mean over folds; null without folds.';
COMMENT ON COLUMN easeml.learning_curves.validation_error IS
    'Standard error of validation_metric as the mean over folds; null without folds.';
COMMENT ON COLUMN easeml.leaderboard.n_test_classes IS 'Number of classes with test rows; the test metrics ignore all '
    'others. Null if the target is a number, and before the test.';

COMMENT ON COLUMN easeml.trial_metrics.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.trial_metrics.trial_id IS 'The trial, see easeml.leaderboard.';
COMMENT ON COLUMN easeml.trial_metrics.trial_number IS 'Number of the trial within its run.';
COMMENT ON COLUMN easeml.trial_metrics.dataset_name IS 'Dataset that the run searches on.';
COMMENT ON COLUMN easeml.trial_metrics.architecture IS 'Architecture of the trial, see easeml.architectures.';
COMMENT ON COLUMN easeml.trial_metrics.split IS 'validation or test.';
COMMENT ON COLUMN easeml.trial_metrics.epoch IS 'The trial''s best epoch.';
COMMENT ON COLUMN easeml.trial_metrics.n_rows IS 'Rows of the split.';
COMMENT ON COLUMN easeml.trial_metrics.metric IS 'Metric that ranks the trials of the run.';
COMMENT ON COLUMN easeml.trial_metrics.metric_value IS 'Value of that metric.';
COMMENT ON COLUMN easeml.trial_metrics.accuracy IS 'Share of correct labels.';
COMMENT ON COLUMN easeml.trial_metrics.balanced_accuracy IS 'Mean recall over classes.';
COMMENT ON COLUMN easeml.trial_metrics.macro_f1 IS 'Mean F1 over classes.';
COMMENT ON COLUMN easeml.trial_metrics.log_loss IS 'Mean negative log probability of the true label.';
COMMENT ON COLUMN easeml.trial_metrics.rmse IS 'Root mean squared error.';
COMMENT ON COLUMN easeml.trial_metrics.mae IS 'Mean absolute error.';
COMMENT ON COLUMN easeml.trial_metrics.r2 IS 'Coefficient of determination.';
COMMENT ON COLUMN easeml.trial_metrics.measured_at IS 'When the last partition was measured.';
COMMENT ON COLUMN easeml.trial_metrics.tenant IS 'Tenant that owns the run.';
COMMENT ON COLUMN easeml.trial_metrics.mse IS 'Mean squared error of output tensors.';
COMMENT ON COLUMN easeml.trial_metrics.psnr IS
    'Peak signal-to-noise ratio in decibels; null unless the outputs are tensors.';
COMMENT ON COLUMN easeml.trial_metrics.ssim IS 'Structural similarity; null unless the outputs are pictures.';
COMMENT ON COLUMN easeml.trial_metrics.token_accuracy IS
    'Share of steps whose largest number is the right one; null unless the outputs are tensors.';
COMMENT ON COLUMN easeml.learning_curves.mse IS 'Mean squared error of output tensors.';
COMMENT ON COLUMN easeml.learning_curves.psnr IS
    'Peak signal-to-noise ratio in decibels; null unless the outputs are tensors.';
COMMENT ON COLUMN easeml.learning_curves.ssim IS 'Structural similarity; null unless the outputs are pictures.';
COMMENT ON COLUMN easeml.learning_curves.token_accuracy IS
    'Share of steps whose largest number is the right one; null unless the outputs are tensors.';

COMMENT ON COLUMN easeml.training_timeline.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.training_timeline.trial_id IS 'The trial, see easeml.leaderboard.';
COMMENT ON COLUMN easeml.training_timeline.trial_number IS 'Number of the trial within its run.';
COMMENT ON COLUMN easeml.training_timeline.architecture IS 'Architecture of the trial, see easeml.architectures.';
COMMENT ON COLUMN easeml.training_timeline.kind IS 'train, validate or test.';
COMMENT ON COLUMN easeml.training_timeline.epoch IS 'Epoch, from 1.';
COMMENT ON COLUMN easeml.training_timeline.position IS 'Place in the epoch''s visit order, from 0.';
COMMENT ON COLUMN easeml.training_timeline.partition_number IS 'Partition that it read, from 0.';
COMMENT ON COLUMN easeml.training_timeline.slot_id IS 'Slot that ran it.';
COMMENT ON COLUMN easeml.training_timeline.attempt IS '1, or more after a lost slot.';
COMMENT ON COLUMN easeml.training_timeline.started_at IS 'When it started.';
COMMENT ON COLUMN easeml.training_timeline.finished_at IS 'When it was recorded.';
COMMENT ON COLUMN easeml.training_timeline.seconds IS 'Seconds from started_at to finished_at.';
COMMENT ON COLUMN easeml.training_timeline.training_seconds IS 'Seconds in training steps alone.';
COMMENT ON COLUMN easeml.training_timeline.n_rows IS 'Number of rows that it read.';
COMMENT ON COLUMN easeml.training_timeline.loss IS 'Mean training loss.';
COMMENT ON COLUMN easeml.training_timeline.state_bytes IS
    'Size of the recorded state; in a gang only the first unit has it.';
COMMENT ON COLUMN easeml.training_timeline.state_sha256 IS 'Hash of the recorded state.';
COMMENT ON COLUMN easeml.training_timeline.tenant IS 'Tenant that owns the run.';
COMMENT ON COLUMN easeml.training_timeline.n_stacked IS
    'Number of trials that trained as one computation with it: 1, or more in a batch.';
COMMENT ON COLUMN easeml.training_timeline.n_slots IS
    'Number of slots that worked on it together: 1, or the width of its gang.';

COMMENT ON COLUMN easeml.run_events.event_id IS 'Number of the event; later events have larger numbers.';
COMMENT ON COLUMN easeml.run_events.happened_at IS 'When it happened.';
COMMENT ON COLUMN easeml.run_events.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.run_events.trial_id IS 'Trial that it concerns; null if it concerns the whole run.';
COMMENT ON COLUMN easeml.run_events.kind IS 'One word for it, such as failed, cancelled, resumed or scheduled.';
COMMENT ON COLUMN easeml.run_events.message IS 'What happened, in a sentence.';
COMMENT ON COLUMN easeml.run_events.tenant IS 'Tenant that owns the run.';
