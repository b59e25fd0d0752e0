-- Rows of easeml's tables; the tenant of a dataset, run, trial and so on follows from its number. Parameters: the fields of Size.

INSERT INTO easeml.tenants (tenant, weight, max_runs, max_bytes)
SELECT 'tenant_' || i, 1 + i %% 3, 1000, 1e12 FROM generate_series(1, %(n_tenants)s) i;

INSERT INTO easeml.tenant_roles (tenant, role)
SELECT 'tenant_' || i, to_regrole('tenant_' || i) FROM generate_series(1, %(n_tenants)s) i;

INSERT INTO easeml.datasets (dataset_id, tenant, dataset_name, version, source, input_columns, target_column, task,
    input_shape, n_outputs, n_partitions, validation_fraction, test_fraction, seed, block_rows, encoder)
OVERRIDING SYSTEM VALUE
SELECT 2 * i - 2 + v, 'tenant_' || i, 'sales', v, 'public.sales', '{x,z}', 'y', 'classification', '{2}', 2, 1, 0.2,
    0.2, 0, 1000, jsonb_build_object('classes', '{a,b}'::text[])
FROM generate_series(1, %(n_tenants)s) i, generate_series(1, 2) v;

INSERT INTO easeml.partitions (dataset_id, tenant, partition_number, n_train_rows, n_validation_rows, n_test_rows,
    n_bytes, checksum)
SELECT dataset_id, tenant, 0, 6000, 2000, 2000, 240000, dataset_id FROM easeml.datasets;

INSERT INTO easeml.blocks (dataset_id, tenant, split, partition_number, block_number, n_rows, inputs, targets)
SELECT dataset_id, tenant, 'train', 0, b, 6, decode(repeat('ab', 16), 'hex'), '\x00' FROM easeml.datasets,
    generate_series(0, 5) b;

INSERT INTO easeml.runs (run_id, tenant, dataset_id, procedure, architectures, n_configs, max_epochs, metric,
    is_higher_better, seed, status, created_at, started_at, finished_at
    , slot_seconds -- since 0.2.0
)
OVERRIDING SYSTEM VALUE
SELECT i, d.tenant, d.dataset_id, 'random', '{mlp,linear,resmlp}', %(n_trials_each)s, %(n_epochs)s, 'accuracy', true, i,
    CASE WHEN i %% %(open_every)s <> 0 THEN 'finished' WHEN i %% (2 * %(open_every)s) = 0 THEN 'queued' ELSE 'running' END,
    b.at, CASE WHEN i %% (2 * %(open_every)s) <> 0 THEN b.at END,
    CASE WHEN i %% %(open_every)s <> 0 THEN b.at + interval '20 minutes' END
    , CASE WHEN i %% %(open_every)s <> 0 THEN (0.9 * %(n_epochs)s + 0.1) * CASE i WHEN %(n_runs)s / 2 - 1 THEN %(largest_run)s ELSE %(n_trials_each)s END END -- since 0.2.0
FROM generate_series(1, %(n_runs)s) i JOIN easeml.datasets d ON d.dataset_id = 1 + i %% (2 * %(n_tenants)s),
    LATERAL (SELECT now() - (%(n_runs)s - i) * interval '1 year' / %(n_runs)s - interval '1 hour') b(at);

INSERT INTO easeml.arms (arm_id, run_id, tenant, architecture, planned_epochs, opening, opened_at, bound, closing,
    closed_at, quality, cost_seconds)
OVERRIDING SYSTEM VALUE
SELECT 3 * r.run_id - 3 + a, r.run_id, r.tenant, (r.architectures)[a], 25,
    CASE WHEN r.status <> 'queued' THEN 6 * r.run_id - 6 + a END,
    CASE WHEN r.status <> 'queued' THEN r.started_at END, 0.9,
    CASE WHEN r.status = 'finished' THEN 6 * r.run_id - 3 + a END, CASE WHEN r.status = 'finished' THEN r.finished_at END,
    CASE WHEN r.status = 'finished' THEN 0.5 + 0.4 * (r.run_id %% 97) / 97.0 END, CASE WHEN r.status = 'finished' THEN 60 END
FROM easeml.runs r, generate_series(1, 3) a;

INSERT INTO easeml.trials (run_id, arm_id, tenant, trial_number, architecture, config, max_epochs, status,
    n_steps_done, best_epoch, best_metric_value, best_loss, started_at, finished_at
    , slot_seconds, training_seconds -- since 0.2.0
)
SELECT r.run_id, 3 * r.run_id - 2 + n %% 3, r.tenant, n, (r.architectures)[1 + n %% 3],
    jsonb_build_object('learning_rate', 0.001 * n, 'seed', n), r.max_epochs,
    CASE r.status WHEN 'finished' THEN 'finished' ELSE 'waiting' END,
    CASE r.status WHEN 'finished' THEN 2 * r.max_epochs + 1 ELSE 0 END,
    CASE WHEN r.status = 'finished' THEN 1 + n %% r.max_epochs END,
    CASE WHEN r.status = 'finished' THEN 0.5 + 0.4 * ((r.run_id * 31 + n * 17) %% 101) / 101.0 END,
    CASE WHEN r.status = 'finished' THEN 0.3 END, r.started_at, r.finished_at
    , CASE WHEN r.status = 'finished' THEN 0.9 * r.max_epochs + 0.1 ELSE 0 END -- since 0.2.0
    , CASE WHEN r.status = 'finished' THEN 0.7 * r.max_epochs END -- since 0.2.0
FROM easeml.runs r, LATERAL generate_series(1, CASE WHEN r.run_id = %(n_runs)s / 2 - 1 THEN %(largest_run)s ELSE %(n_trials_each)s END) n
ORDER BY r.run_id, n;

INSERT INTO easeml.checkpoints (checkpoint_id, trial_id, tenant, epoch, n_bytes, sha256, state)
OVERRIDING SYSTEM VALUE
SELECT trial_id, trial_id, tenant, best_epoch, 64, repeat('ab', 32), decode(repeat('cd', 64), 'hex')
FROM easeml.trials WHERE status = 'finished';

UPDATE easeml.trials SET checkpoint_id = trial_id, best_checkpoint_id = trial_id WHERE status = 'finished';

INSERT INTO easeml.training_units (trial_id, run_id, tenant, epoch, position, partition_number, slot_id, attempt,
    seed, lease_number, started_at, finished_at, training_seconds, n_rows, loss, checkpoint_id, state_bytes, state_sha256)
SELECT t.trial_id, t.run_id, t.tenant, e, 0, 0, 1 + t.trial_id %% 2, 1, 0, 1, t.started_at + e * interval '2 s',
    t.started_at + e * interval '2 s' + interval '0.8 s', 0.7, 6000, 1.0 / e, t.trial_id, 64, repeat('ab', 32)
FROM easeml.trials t, generate_series(1, %(n_epochs)s) e WHERE t.status = 'finished' ORDER BY t.trial_id, e;

INSERT INTO easeml.evaluations (trial_id, run_id, tenant, epoch, split, partition_number, slot_id, attempt,
    lease_number, started_at, finished_at, statistics)
SELECT t.trial_id, t.run_id, t.tenant, e, s.split, 0, 1 + t.trial_id %% 2, 1, 1, t.started_at + e * interval '2 s',
    t.started_at + e * interval '2 s' + interval '0.1 s', '{"n_rows": 2000}'
FROM easeml.trials t, generate_series(1, %(n_epochs)s) e, unnest('{validation,test}'::text[]) s(split)
WHERE t.status = 'finished' AND (s.split = 'validation' OR e = t.best_epoch) ORDER BY t.trial_id, e;

INSERT INTO easeml.epoch_metrics (trial_id, run_id, tenant, epoch, split, n_rows, metric_value, n_classes, measured_at
    , training_loss, training_seconds -- since 0.2.0
    , accuracy, balanced_accuracy, macro_f1, log_loss -- until 0.1.0
)
SELECT v.trial_id, v.run_id, v.tenant, v.epoch, v.split, 2000, t.best_metric_value, 2, v.finished_at
    , t.best_metric_value, t.best_metric_value - 0.01, t.best_metric_value - 0.02, 0.3 -- until 0.1.0
    , CASE v.split WHEN 'validation' THEN 1.0 / v.epoch END, CASE v.split WHEN 'validation' THEN 0.7 END -- since 0.2.0
FROM easeml.evaluations v JOIN easeml.trials t USING (trial_id);

INSERT INTO easeml.metric_values (trial_id, epoch, tenant, split, metric, value) -- since 0.2.0
SELECT e.trial_id, e.epoch, e.tenant, e.split, m.metric, m.value -- since 0.2.0
FROM easeml.epoch_metrics e, LATERAL (VALUES ('accuracy', e.metric_value), ('balanced_accuracy', e.metric_value - 0.01), -- since 0.2.0
    ('macro_f1', e.metric_value - 0.02), ('log_loss', 0.3)) m(metric, value) WHERE m.value IS NOT NULL -- since 0.2.0
;

INSERT INTO easeml.events (tenant, run_id, trial_id, happened_at, kind, message)
SELECT tenant, run_id, NULL, created_at, k, 'it ' || k || ', as runs do' FROM easeml.runs,
    unnest('{created,scheduled,summary}'::text[]) k;

INSERT INTO easeml.priors (run_id, tenant, prior, link, degrees_of_freedom, noise_variance, mean, covariance, fitted,
    arm_ids)
SELECT run_id, tenant, 'auto', 'logit', 4, 0.1, '{0,0,0}', '{1,0,0,0,1,0,0,0,1}', '{}',
    ARRAY[3 * run_id - 2, 3 * run_id - 1, 3 * run_id] FROM easeml.runs WHERE status <> 'queued';

INSERT INTO easeml.posteriors (arm_id, run_id, tenant, mean, deviation, bound, cost, expected_seconds)
SELECT arm_id, run_id, tenant, 0.7, 0.1, 0.9, 1, 60 FROM easeml.arms;

INSERT INTO easeml.arm_openings (decision_id, decided_at, run_id, arm_id, tenant, policy, phase, opening_number, beta,
    mean, deviation, bound, cost, expected_seconds, best_quality, sig, gap, score, pending, n_runs, lease_number)
OVERRIDING SYSTEM VALUE
SELECT opening, opened_at, run_id, arm_id, tenant, 'hybrid', 'greedy', 1 + arm_id %% 3, 2, 0.7, 0.1, 0.9, 1, 60, 0.5,
    0.1, 0.2, 0.9, '{}', 10, 1 FROM easeml.arms WHERE opening IS NOT NULL;

INSERT INTO easeml.arm_opening_candidates (decision_id, run_id, tenant, is_candidate, is_chosen, best_quality, sig, gap,
    score, decided_at, policy, phase, chosen_gap, chosen_score, n_runs)
SELECT o.decision_id, r.run_id, r.tenant, true, c = 0, 0.5, 0.1, 0.2, 0.9, o.decided_at, 'hybrid', 'greedy', 0.2, 0.9, 10
FROM easeml.arm_openings o, generate_series(0, %(n_candidates)s - 1) c JOIN easeml.runs r ON true
WHERE r.run_id = 1 + (o.run_id - 1 + c) %% %(n_runs)s;

INSERT INTO easeml.trial_groups (group_id, run_id, tenant, lease_number, group_number, label, n_trials, created_at,
    ended_at)
OVERRIDING SYSTEM VALUE
SELECT run_id, run_id, tenant, 1, 1, 'all', %(n_trials_each)s, started_at, finished_at FROM easeml.runs
WHERE status = 'finished' AND run_id %% 3 = 0;

INSERT INTO easeml.allocations (group_id, trial_id, run_id, tenant, width, devices, slot_ids, reason, decided_at)
SELECT g.group_id, t.trial_id, g.run_id, g.tenant, 1, '{local/cpu}', '{1}',
    CASE n WHEN 1 THEN 'static' ELSE 'dynamic' END, g.created_at + n * interval '1 s'
FROM easeml.trial_groups g JOIN easeml.trials t USING (run_id), generate_series(1, 4) n;

INSERT INTO easeml.device_profiles (tenant, dataset_id, architecture, device_kind, alpha, beta, c, d, eps_seconds,
    n_packed, n_devices, is_bounded, measurements, run_id)
SELECT DISTINCT ON (dataset_id) tenant, dataset_id, 'mlp', 'cpu', 1.1, 1.2, 2, 2, 0.1, 2, 2, true, '{}', run_id
FROM easeml.runs ORDER BY dataset_id, run_id;

INSERT INTO easeml.serving_metrics (tenant, dataset_name, metric, is_higher_better)
SELECT DISTINCT tenant, dataset_name, 'accuracy', true FROM easeml.datasets;

INSERT INTO easeml.deployments (tenant, dataset_name, trial_id)
SELECT t.tenant, 'sales', min(t.trial_id) FROM easeml.trials t WHERE t.status = 'finished'
GROUP BY t.tenant HAVING min(t.trial_id) %% 2 = 0;

INSERT INTO easeml.servings (tenant, dataset_name, trial_id, is_deployed, metric, metric_value, reason, since)
SELECT t.tenant, 'sales', t.trial_id, false, 'accuracy', t.best_metric_value, 'better', t.finished_at
FROM easeml.trials t WHERE t.status = 'finished' AND t.trial_number = 1;

INSERT INTO easeml.tenant_usage (tenant, dropped_seconds)
SELECT tenant, 100 FROM easeml.tenants ON CONFLICT DO NOTHING;

SELECT setval('easeml.runs_run_id_seq', (SELECT max(run_id) FROM easeml.runs)),
    setval('easeml.datasets_dataset_id_seq', (SELECT max(dataset_id) FROM easeml.datasets)),
    setval('easeml.arms_arm_id_seq', (SELECT max(arm_id) FROM easeml.arms)),
    setval('easeml.checkpoints_checkpoint_id_seq', (SELECT max(checkpoint_id) FROM easeml.checkpoints)),
    setval('easeml.trial_groups_group_id_seq', (SELECT max(group_id) FROM easeml.trial_groups)),
    setval('easeml.arm_openings_decision_id_seq', (SELECT max(closing) FROM easeml.arms));
