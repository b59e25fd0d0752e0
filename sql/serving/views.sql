-- Which trial answers, and why. The rule is written only here: functions that predict also query easeml.answering.

CREATE OR REPLACE VIEW easeml.answering WITH (security_invoker) AS
SELECT m.tenant, m.dataset_name, m.metric, m.is_higher_better, p.trial_id IS NOT NULL AS is_deployed, t.trial_id,
    t.run_id, r.dataset_id, t.best_checkpoint_id AS checkpoint_id
FROM easeml.serving_metrics m
LEFT JOIN easeml.deployments p USING (tenant, dataset_name)
LEFT JOIN LATERAL (
    SELECT c.trial_id FROM easeml.datasets d JOIN easeml.runs n USING (dataset_id) JOIN easeml.trials c USING (run_id)
    LEFT JOIN easeml.task_versions v USING (dataset_id)
    -- The deployed trial is checked here, so that no other is searched for if there is one.
    WHERE p.trial_id IS NULL AND d.tenant = m.tenant AND d.dataset_name = m.dataset_name AND n.metric = m.metric
        AND c.best_checkpoint_id IS NOT NULL
    -- A task is to know what was fed, and each of its versions has its own validation rows: the newest one that a run
    -- has finished on answers.
    ORDER BY CASE WHEN v.task_id IS NOT NULL AND n.status = 'finished' THEN d.version END DESC NULLS LAST,
        easeml.rank_key(c, m.is_higher_better) LIMIT 1) b ON true
LEFT JOIN easeml.trials t ON t.trial_id = coalesce(p.trial_id, b.trial_id)
LEFT JOIN easeml.runs r ON r.run_id = t.run_id;
COMMENT ON VIEW easeml.answering IS 'The trial that answers for each dataset: the deployed one, else the best of the '
    'runs that rank by the dataset''s metric (easeml.rank_key), over all versions (for a task only the newest version '
    'with a finished run) (internal).';
COMMENT ON COLUMN easeml.answering.tenant IS 'Tenant that owns the dataset.';
COMMENT ON COLUMN easeml.answering.dataset_name IS 'The dataset.';
COMMENT ON COLUMN easeml.answering.metric IS 'Metric of the dataset.';
COMMENT ON COLUMN easeml.answering.is_higher_better IS 'Whether a higher value of it is better.';
COMMENT ON COLUMN easeml.answering.is_deployed IS 'Whether it answers because it was deployed.';
COMMENT ON COLUMN easeml.answering.trial_id IS 'The trial; null if none answers.';
COMMENT ON COLUMN easeml.answering.run_id IS 'Its run.';
COMMENT ON COLUMN easeml.answering.dataset_id IS 'The version that it was trained on.';
COMMENT ON COLUMN easeml.answering.checkpoint_id IS 'The state of its best epoch.';

CREATE OR REPLACE VIEW easeml.serving WITH (security_invoker) AS
SELECT a.tenant::text AS tenant, a.dataset_name, a.trial_id, a.run_id,
    d.version AS dataset_version, t.architecture, a.metric,
    (SELECT v.value FROM easeml.metric_values v WHERE v.trial_id = t.trial_id AND v.epoch = t.best_epoch
        AND v.split = 'validation' AND v.metric = a.metric) AS validation_metric, t.best_epoch, a.is_deployed,
    CASE WHEN a.is_deployed
        AND s.reason = 'rolled back' THEN 'easeml.rollback went back to it; no other takes over until easeml.undeploy'
        WHEN a.is_deployed AND s.reason = 'refreshed'
            THEN 'a refresh found it better on new rows, see easeml.refresh_history; no other takes over until the next'
        WHEN a.is_deployed THEN 'easeml.deploy chose it; no other takes over until easeml.undeploy'
        WHEN a.trial_id IS NOT NULL THEN format('it has the best %s on the validation rows', a.metric)
            || CASE WHEN EXISTS (SELECT FROM easeml.task_versions v WHERE v.dataset_id = a.dataset_id)
                THEN ' of its version of the task' ELSE '' END
        ELSE format('no trial of a run that ranks by %s has been measured', a.metric) END AS reason,
    s.since
FROM easeml.answering a
LEFT JOIN easeml.trials t USING (trial_id)
LEFT JOIN easeml.datasets d USING (dataset_id)
LEFT JOIN LATERAL (SELECT h.trial_id, h.reason, h.since FROM easeml.servings h WHERE h.tenant = a.tenant
    AND h.dataset_name = a.dataset_name
    ORDER BY h.serving_id DESC LIMIT 1) s ON s.trial_id = a.trial_id;
COMMENT ON VIEW easeml.serving IS
    'Which trial answers easeml.predict for each dataset, and why. easeml.serving_history shows what answered before.';
COMMENT ON COLUMN easeml.serving.tenant IS 'Tenant that owns the dataset.';
COMMENT ON COLUMN easeml.serving.dataset_name IS 'The dataset.';
COMMENT ON COLUMN easeml.serving.trial_id IS 'The trial that answers, see easeml.leaderboard; null if none does.';
COMMENT ON COLUMN easeml.serving.run_id IS 'Its run, see easeml.run_status.';
COMMENT ON COLUMN easeml.serving.dataset_version IS 'The version of the dataset that it was trained on.';
COMMENT ON COLUMN easeml.serving.architecture IS 'Its architecture, see easeml.architectures.';
COMMENT ON COLUMN easeml.serving.metric IS
    'The metric of the dataset: that of its first run, or the one that easeml.set_serving_metric chose.';
COMMENT ON COLUMN easeml.serving.validation_metric IS
    'Value of that metric on the validation rows, at the trial''s best epoch.';
COMMENT ON COLUMN easeml.serving.best_epoch IS 'The epoch whose state answers.';
COMMENT ON COLUMN easeml.serving.is_deployed IS
    'Whether it was deployed: by hand (easeml.deploy, easeml.rollback) or by a refresh.';
COMMENT ON COLUMN easeml.serving.reason IS 'Why it answers, in words.';
COMMENT ON COLUMN easeml.serving.since IS 'When it began to answer.';

CREATE OR REPLACE VIEW easeml.serving_history WITH (security_invoker) AS
SELECT s.serving_id, s.tenant::text AS tenant, s.dataset_name, s.since, s.trial_id, s.reason,
    s.is_deployed, s.metric, s.metric_value,
    t.trial_id IS NOT NULL AS is_kept
FROM easeml.servings s LEFT JOIN easeml.trials t USING (trial_id);
COMMENT ON VIEW easeml.serving_history IS
    'What answered for each dataset: one row for each change, the last 200 of a dataset.';
COMMENT ON COLUMN easeml.serving_history.serving_id IS 'Number of the change; later changes have larger numbers.';
COMMENT ON COLUMN easeml.serving_history.tenant IS 'Tenant that owns the dataset.';
COMMENT ON COLUMN easeml.serving_history.dataset_name IS 'The dataset.';
COMMENT ON COLUMN easeml.serving_history.since IS 'When the trial began to answer.';
COMMENT ON COLUMN easeml.serving_history.trial_id IS 'The trial that answered from then on; null if none did.';
COMMENT ON COLUMN easeml.serving_history.reason IS
    'better (by the metric), deployed, undeployed, rolled back, dropped (the former trial was dropped by force), '
    'metric (another metric was chosen) or refreshed (better on new rows, see easeml.refresh_history).';
COMMENT ON COLUMN easeml.serving_history.is_deployed IS 'Whether it was deployed, by hand or by a refresh.';
COMMENT ON COLUMN easeml.serving_history.metric IS 'Metric of the dataset at that time.';
COMMENT ON COLUMN easeml.serving_history.metric_value IS 'Value of that metric on the validation rows at that time.';
COMMENT ON COLUMN easeml.serving_history.is_kept IS
    'Whether the trial still exists, so that easeml.deploy can choose it.';
