-- Rows of the runs from {first} to {last}, of 8 trials and 5 epochs over one partition, which ended within a month. Parameters: first, last, begins, seconds.

INSERT INTO easeml.runs (run_id, tenant, dataset_id, procedure, architectures, n_configs, max_epochs, metric, is_higher_better, seed, status,
    created_at, started_at, finished_at, slot_seconds)
OVERRIDING SYSTEM VALUE
SELECT i, d.tenant, d.dataset_id, 'random', '{mlp,linear}', 8, 5, 'accuracy', true, i, 'finished', b.at, b.at, b.at + interval '10 minutes', 36.8
FROM generate_series(%(first)s::bigint, %(last)s::bigint) i JOIN easeml.datasets d ON d.dataset_id = 2 + 2 * (i %% 200),
    LATERAL (SELECT %(begins)s::timestamptz + (i - %(first)s) * interval '1 s' * %(seconds)s / (%(last)s - %(first)s + 1)) b(at);

INSERT INTO easeml.arms (arm_id, run_id, tenant, architecture, planned_epochs, opening, opened_at, bound, closing, closed_at, quality, cost_seconds)
OVERRIDING SYSTEM VALUE
SELECT 2 * r.run_id - 2 + a, r.run_id, r.tenant, (r.architectures)[a], 20, 4 * r.run_id - 4 + a, r.started_at, 0.9, 4 * r.run_id - 2 + a, r.finished_at,
    0.5 + 0.4 * (r.run_id %% 97) / 97.0, 20
FROM easeml.runs r, generate_series(1, 2) a WHERE r.run_id BETWEEN %(first)s AND %(last)s;

INSERT INTO easeml.trials (trial_id, run_id, arm_id, tenant, trial_number, architecture, config, max_epochs, status, n_steps_done, best_epoch,
    best_metric_value, best_loss, started_at, finished_at, slot_seconds, training_seconds)
OVERRIDING SYSTEM VALUE
SELECT 8 * r.run_id - 8 + n, r.run_id, 2 * r.run_id - 1 + n %% 2, r.tenant, n, (r.architectures)[1 + n %% 2],
    jsonb_build_object('learning_rate', 0.001 * n, 'batch_size', 64, 'hidden_units', '[128, 64]'::jsonb), 5, 'finished', 11, 1 + n %% 5,
    0.5 + 0.4 * ((r.run_id * 31 + n * 17) %% 101) / 101.0, 0.3, r.started_at, r.finished_at, 4.6, 3.5
FROM easeml.runs r, generate_series(1, 8) n WHERE r.run_id BETWEEN %(first)s AND %(last)s;

INSERT INTO easeml.checkpoints (checkpoint_id, trial_id, tenant, epoch, n_bytes, sha256, state)
OVERRIDING SYSTEM VALUE
SELECT t.trial_id, t.trial_id, t.tenant, t.best_epoch, 64, repeat('ab', 32), decode(repeat('cd', 64), 'hex') FROM easeml.trials t
WHERE t.run_id BETWEEN %(first)s AND %(last)s;

UPDATE easeml.trials SET checkpoint_id = trial_id, best_checkpoint_id = trial_id WHERE run_id BETWEEN %(first)s AND %(last)s;

INSERT INTO easeml.training_units (trial_id, run_id, tenant, epoch, position, partition_number, slot_id, attempt, seed, lease_number, started_at, finished_at,
    training_seconds, n_rows, loss, checkpoint_id, state_bytes, state_sha256)
SELECT t.trial_id, t.run_id, t.tenant, e, 0, 0, 1 + t.trial_id %% 2, 1, 0, 1, t.started_at + e * interval '2 s', t.started_at + e * interval '2 s' + interval '0.8 s',
    0.7, 6000, 1.0 / e, t.trial_id, 64, repeat('ab', 32)
FROM easeml.trials t, generate_series(1, 5) e WHERE t.run_id BETWEEN %(first)s AND %(last)s ORDER BY t.trial_id, e;

INSERT INTO easeml.evaluations (trial_id, run_id, tenant, epoch, split, partition_number, slot_id, attempt, lease_number, started_at, finished_at, statistics)
SELECT t.trial_id, t.run_id, t.tenant, e, s.split, 0, 1 + t.trial_id %% 2, 1, 1, t.started_at + e * interval '2 s', t.started_at + e * interval '2 s' + interval '0.1 s',
    '{"n_rows": 2000, "n_right": 1800, "sum_log_loss": 612.5, "confusion": [[900, 100], [100, 900]]}'
FROM easeml.trials t, generate_series(1, 5) e, unnest('{validation,test}'::text[]) s(split)
WHERE t.run_id BETWEEN %(first)s AND %(last)s AND (s.split = 'validation' OR e = t.best_epoch) ORDER BY t.trial_id, e;

INSERT INTO easeml.epoch_metrics (trial_id, run_id, tenant, epoch, split, n_rows, metric_value, n_classes, measured_at, training_loss, training_seconds)
SELECT v.trial_id, v.run_id, v.tenant, v.epoch, v.split, 2000, t.best_metric_value, 2, v.finished_at,
    CASE v.split WHEN 'validation' THEN 1.0 / v.epoch END, CASE v.split WHEN 'validation' THEN 0.7 END
FROM easeml.evaluations v JOIN easeml.trials t USING (trial_id, run_id) WHERE v.run_id BETWEEN %(first)s AND %(last)s;

INSERT INTO easeml.metric_values (trial_id, epoch, tenant, split, metric, value)
SELECT e.trial_id, e.epoch, e.tenant, e.split, m.metric, m.value FROM easeml.epoch_metrics e, LATERAL (VALUES ('accuracy', e.metric_value),
    ('balanced_accuracy', e.metric_value - 0.01), ('macro_f1', e.metric_value - 0.02), ('log_loss', 0.3)) m(metric, value)
WHERE e.run_id BETWEEN %(first)s AND %(last)s AND m.value IS NOT NULL;

INSERT INTO easeml.events (tenant, run_id, trial_id, happened_at, kind, message)
SELECT tenant, run_id, NULL, created_at, k, 'it ' || k || ', as runs do' FROM easeml.runs, unnest('{created,scheduled,summary}'::text[]) k
WHERE run_id BETWEEN %(first)s AND %(last)s;

INSERT INTO easeml.priors (run_id, tenant, prior, link, degrees_of_freedom, noise_variance, mean, covariance, fitted, arm_ids)
SELECT run_id, tenant, 'auto', 'logit', 4, 0.1, '{0,0}', '{1,0,0,1}', '{}', ARRAY[2 * run_id - 1, 2 * run_id] FROM easeml.runs
WHERE run_id BETWEEN %(first)s AND %(last)s;

INSERT INTO easeml.posteriors (arm_id, run_id, tenant, mean, deviation, bound, cost, expected_seconds)
SELECT arm_id, run_id, tenant, 0.7, 0.1, 0.9, 1, 60 FROM easeml.arms WHERE run_id BETWEEN %(first)s AND %(last)s;

INSERT INTO easeml.arm_openings (decision_id, decided_at, run_id, arm_id, tenant, policy, phase, opening_number, beta, mean, deviation, bound, cost,
    expected_seconds, best_quality, sig, gap, score, pending, n_runs, lease_number)
OVERRIDING SYSTEM VALUE
SELECT opening, opened_at, run_id, arm_id, tenant, 'hybrid', 'greedy', 1 + arm_id %% 2, 2, 0.7, 0.1, 0.9, 1, 60, 0.5, 0.1, 0.2, 0.9, '{}', 10, 1
FROM easeml.arms WHERE run_id BETWEEN %(first)s AND %(last)s;

INSERT INTO easeml.arm_opening_candidates (decision_id, run_id, tenant, is_candidate, is_chosen, best_quality, sig, gap, score, decided_at, policy, phase,
    chosen_gap, chosen_score, n_runs)
SELECT o.decision_id, r.run_id, r.tenant, true, c = 0, 0.5, 0.1, 0.2, 0.9, o.decided_at, 'hybrid', 'greedy', 0.2, 0.9, 10
FROM easeml.arm_openings o, generate_series(0, 9) c JOIN easeml.runs r ON true
WHERE o.run_id BETWEEN %(first)s AND %(last)s AND r.run_id = %(first)s + (o.run_id - %(first)s + c) %% (%(last)s - %(first)s + 1);

INSERT INTO easeml.servings (tenant, dataset_name, trial_id, is_deployed, metric, metric_value, reason, since)
SELECT t.tenant, 'sales', t.trial_id, false, 'accuracy', t.best_metric_value, 'better', t.finished_at
FROM easeml.trials t WHERE t.run_id BETWEEN %(first)s AND %(last)s AND t.trial_number = 1 AND t.run_id %% 10 = 0;

SELECT setval('easeml.runs_run_id_seq', %(last)s)
