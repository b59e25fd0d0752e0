-- What the pages of `easeml console` read, each with the rights of the role that is logged in.

-- name: tasks
-- Tasks with what answers for them.
SELECT t.task_id, t.tenant, t.task_name, t.template, t.n_examples, t.n_pending, t.problem, s.architecture,
    s.metric, s.validation_metric AS best,
    k.specification ->> 'workload' AS workload, coalesce(t.tenant = easeml.current_tenant(), false) AS is_own
FROM easeml.task_status t JOIN easeml.tasks k USING (task_id) LEFT JOIN easeml.serving s ON s.tenant = t.tenant
    AND s.dataset_name = t.task_name
ORDER BY t.tenant <> easeml.current_tenant(), t.tenant, t.task_name LIMIT 200

-- name: task
-- One task.
SELECT t.task_id, t.tenant, t.task_name, t.program, t.template, t.examples, t.n_examples, t.n_off, t.n_pending,
    t.newest_version, t.problem, t.run_after_examples, t.run_after_minutes,
    k.specification ->> 'workload' AS workload, k.specification -> 'inputs' AS inputs,
    k.specification -> 'recursive' AS recursive, nullif(k.specification -> 'output', 'null') AS output,
    s.architecture, s.metric, s.validation_metric AS best, coalesce(t.tenant = easeml.current_tenant(), false) AS is_own
FROM easeml.task_status t JOIN easeml.tasks k USING (task_id) LEFT JOIN easeml.serving s ON s.tenant = t.tenant
    AND s.dataset_name = t.task_name
WHERE t.task_id = %(task_id)s

-- name: classes
-- Names of the classes of a task, which readers may not see.
SELECT k.classes FROM easeml.tasks k WHERE k.task_id = %(task_id)s

-- name: story
-- What became of the caller's task, newest first.
SELECT r.at, r.event, r.architecture, r.metric, r.value FROM easeml.task_report(%(task)s) r ORDER BY r.at DESC LIMIT 60

-- name: task_runs
-- Runs of a task, newest first.
SELECT r.run_id, r.tenant, r.dataset_name, r.status, r.procedure, r.n_trials, r.percent_done, r.metric,
    r.best_metric_value, r.created_at
FROM easeml.run_status r WHERE r.tenant = %(tenant)s AND r.dataset_name = %(dataset)s ORDER BY r.run_id DESC LIMIT 20

-- name: runs
-- Runs, newest first.
SELECT r.run_id, r.tenant, r.dataset_name, r.status, r.procedure, r.n_trials, r.percent_done, r.metric,
    r.best_metric_value, r.created_at
FROM easeml.run_status r ORDER BY r.run_id DESC LIMIT %(limit)s

-- name: run
-- One run.
SELECT r.run_id, r.dataset_name, r.dataset_version, r.status, r.procedure, r.n_trials, r.n_finished, r.n_failed,
    r.percent_done, r.metric, r.best_metric_value, r.elapsed_seconds, r.failure_reason
FROM easeml.run_status r WHERE r.run_id = %(run_id)s

-- name: summary
-- The summary of a run, in sentences.
SELECT s.sentence FROM easeml.run_summary(%(run_id)s) s(sentence)

-- name: leaderboard
-- The best trials of a run, as those of the report.
SELECT b.rank, b.trial_id, b.trial_number, b.architecture, b.status, b.validation_metric, b.test_metric, b.best_epoch,
    b.n_epochs_done, b.max_epochs, b.training_seconds, b.is_deployed, b.config, b.failure_reason
FROM easeml.leaderboard b WHERE b.run_id = %(run_id)s ORDER BY b.rank NULLS LAST, b.trial_number LIMIT 50

-- name: curves
-- Loss and metric of some trials after each epoch, or after each of every few.
SELECT c.trial_id, c.epoch, c.training_loss, c.validation_metric FROM easeml.learning_curves c
WHERE c.trial_id = ANY (%(trial_ids)s) AND c.epoch %% %(step)s = 1 %% %(step)s ORDER BY c.trial_id, c.epoch

-- name: decisions
-- The last decisions about a run.
SELECT p.decided_at, p.policy, p.reason, p.architecture, p.gap FROM easeml.policy_decisions p
WHERE p.run_id = %(run_id)s ORDER BY p.decision_id DESC LIMIT 10

-- name: waits
-- What a run waits for just now, in a sentence.
SELECT CASE WHEN NOT easeml.has_live_coordinator()
    THEN 'No coordinator is alive: nothing trains until one is (easeml up).'
    WHEN r.status = 'queued' THEN 'It has not begun: the policy serves other runs first, or no slot is free.'
    WHEN r.status = 'running' THEN format('It is running: %%s of %%s trials have ended.', r.n_finished, r.n_trials)
    ELSE format('It has ended: %%s.', r.status) END AS sentence
FROM easeml.run_status r WHERE r.run_id = %(run_id)s
