-- Runs and their trials, from the first look to the end.
-- A tenant may hold the rows of its runs for as long as its transaction lasts: nothing here waits for them, or all
-- tenants would.

-- name: open_runs
-- Runs that are asked for and not over, oldest first.
SELECT run_id FROM easeml.runs WHERE is_open ORDER BY run_id

-- name: read_runs
-- Open runs; holders lists the segments of each partition, NULL where every slot may run every partition; to gathering
-- segments all rows may be brought.
SELECT r.run_id, r.seed, r.status, r.max_seconds,
    extract(epoch FROM r.started_at)::double precision AS started_seconds, d.n_partitions,
    r.scheduler, r.visit_order, r.allocation, r.tenant::text AS tenant, d.task, r.n_resumes,
    r.is_ending, d.options ? 'n_folds' AS has_folds,
    easeml.gathering_segments(d, true) AS gathering_segments,
    b.is_too_large,
    CASE WHEN r.search IS NOT NULL AND NOT b.is_too_large THEN jsonb_build_object('architectures_json',
            (r.search -> 'architectures')::text, 'search_space_json', r.search_space::text, 'procedure', r.procedure,
        'n_configs', (r.search -> 'n_configs'), 'max_epochs', r.max_epochs, 'seed', r.seed,
        'options_json', r.procedure_options::text, 'portfolio_json', (r.search -> 'portfolio')::text) END AS search,
        CASE WHEN d.placement = 'bound' THEN (
        SELECT jsonb_agg(h.segments ORDER BY h.partition_number)
        FROM (SELECT p.partition_number,
            coalesce(jsonb_agg(c.segment_id) FILTER (WHERE c.segment_id IS NOT NULL), '[]') AS segments
              FROM easeml.partitions p LEFT JOIN easeml.replicas c USING (dataset_id, partition_number)
              WHERE p.dataset_id = d.dataset_id GROUP BY p.partition_number) h) END AS holders
FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
CROSS JOIN LATERAL (SELECT coalesce(octet_length(concat(r.search, r.search_space, r.procedure_options)) > 1000000,
        false) AS is_too_large) b
WHERE r.run_id = ANY (%(run_ids)s) AND r.is_open

-- name: read_trials
-- The trials of runs with their progress, all or only those that have a unit to run or had one; met lists the
-- partitions met in the present round, where the order is free. Trials with equal batch keys may train as one: they
-- differ only in hyperparameters that varying lists for their architecture.
SELECT t.run_id, t.trial_id, t.arm_id, t.trial_number, t.architecture, t.max_epochs, t.n_steps_done, t.status,
    r.visit_order, t.pilot_train_seconds, t.pilot_evaluate_seconds, t.target_epochs, t.bracket,
    CASE WHEN t.run_id = ANY (%(keyed)s::bigint[]) AND %(varying)s::jsonb ? t.architecture THEN t.architecture || ' '
        || md5((t.config - ARRAY(SELECT jsonb_array_elements_text(%(varying)s::jsonb -> t.architecture)))::text)
    END AS batch_key,
    CASE WHEN r.visit_order = 'free' THEN ARRAY(
        SELECT u.partition_number FROM easeml.training_units u WHERE u.trial_id = t.trial_id AND n.round %% 2 = 0
            AND u.epoch = n.round / 2 + 1
        UNION ALL
        SELECT e.partition_number FROM easeml.evaluations e WHERE e.trial_id = t.trial_id
            AND (n.round %% 2 = 1 AND e.split = 'validation' AND e.epoch = n.round / 2 + 1 OR n.round = 2 * t.max_epochs
                AND e.split = 'test')) END AS met
FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
CROSS JOIN LATERAL (SELECT t.n_steps_done / d.n_partitions AS round) n
WHERE t.run_id = ANY (%(run_ids)s)
    AND (%(had_units)s::bigint[] IS NULL OR t.status IN ('waiting', 'running') OR t.trial_id = ANY (%(had_units)s))
ORDER BY t.run_id, t.trial_number

-- name: architecture_facts
-- What trainers say: the architectures whose trials several slots can train, those whose rounds are one unit, and the
-- settings in which trials of one may differ that train as one computation.
SELECT coalesce(array_agg(architecture) FILTER (WHERE is_joint), '{}') AS joint,
    coalesce(array_agg(architecture) FILTER (WHERE does_whole_rounds), '{}') AS whole,
    coalesce(jsonb_object_agg(architecture, varying) FILTER (WHERE varying IS NOT NULL), '{}')::text AS varying
FROM easeml.architecture_facts()

-- name: read_arms
-- The arms that runs began with; one with a trial that waits or runs, again or still, is not closed. Work is rows times
-- epochs times trials.
SELECT a.run_id, a.arm_id, a.architecture || CASE a.augmentation WHEN 'none' THEN ''
    ELSE '+' || a.augmentation END AS name, a.opening, a.bound,
    CASE WHEN n.n_open = 0 THEN a.closing END AS closing, CASE WHEN n.n_open = 0 THEN a.quality END AS quality,
    CASE WHEN n.n_open = 0 THEN a.cost_seconds END AS cost_seconds, (n.n_epochs * p.n_rows)::double precision AS work,
    n.n_epochs::double precision AS n_epochs, n.is_complete
FROM easeml.arms a JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
CROSS JOIN LATERAL (SELECT CASE WHEN r.search IS NULL THEN coalesce(sum(t.max_epochs), 0)
        ELSE coalesce(a.planned_epochs, 1) END AS n_epochs,
    count(*) FILTER (WHERE t.status IN ('waiting', 'running', 'paused')) AS n_open,
    coalesce(bool_and(t.n_steps_done = (2 * t.max_epochs + 1) * d.n_partitions::bigint OR r.search IS NOT NULL
            AND t.status = 'stopped' AND t.failure_reason IS NULL), false) AS is_complete
    FROM easeml.trials t WHERE t.arm_id = a.arm_id) n
CROSS JOIN LATERAL (SELECT greatest(sum(c.n_train_rows), 1) AS n_rows FROM easeml.partitions c
    WHERE c.dataset_id = r.dataset_id) p
WHERE a.run_id = ANY (%(run_ids)s) AND NOT EXISTS (SELECT FROM easeml.priors q WHERE q.run_id = a.run_id
    AND a.arm_id <> ALL (q.arm_ids)) ORDER BY a.arm_id

-- name: read_history
-- What a procedure may know of an arm's trials, or of some; scores after each epoch, higher is better. An open run has
-- one row at least, and one that is over or was resumed since has none: its trials are cancelled, or were.
SELECT t.trial_number, jsonb_build_object('architecture', t.architecture) || t.config AS config, t.status,
    t.target_epochs, t.inherited_epochs, p.trial_number AS parent,
    ARRAY(SELECT CASE WHEN r.is_higher_better THEN m.metric_value ELSE -m.metric_value END FROM easeml.epoch_metrics m
          WHERE m.trial_id = t.trial_id AND m.split = 'validation' ORDER BY m.epoch) AS scores,
    ARRAY(SELECT extract(epoch FROM m.measured_at)::double precision FROM easeml.epoch_metrics m
        WHERE m.trial_id = t.trial_id AND m.split = 'validation' ORDER BY m.epoch) AS moments,
    (SELECT coalesce(sum(extract(epoch FROM u.finished_at - u.started_at)) FILTER (WHERE u.n_slots = 1
                OR u.state_bytes > 0), 0) FROM easeml.training_units u WHERE u.trial_id = t.trial_id)::double precision
        + (SELECT coalesce(sum(extract(epoch FROM v.finished_at - v.started_at)), 0) FROM easeml.evaluations v
            WHERE v.trial_id = t.trial_id)::double precision AS seconds
FROM easeml.runs r
LEFT JOIN easeml.trials t ON t.run_id = r.run_id AND t.arm_id = %(arm_id)s
    AND (%(trial_ids)s::bigint[] IS NULL OR t.trial_id = ANY (%(trial_ids)s))
LEFT JOIN easeml.trials p ON p.trial_id = t.parent_trial_id
WHERE r.run_id = %(run_id)s AND r.is_open AND r.n_resumes = %(n_resumes)s ORDER BY t.trial_number

-- name: apply_decisions
-- What a procedure has decided about the trials of an arm.
SELECT easeml.apply_decisions(%(arm_id)s, %(n_resumes)s, %(decisions)s::jsonb, %(lease_number)s) AS pruned_bytes

-- name: plan_run
-- How a run is scheduled from now on; a new choice goes into the run's history.
WITH before AS (SELECT r.run_id, r.tenant, r.planned_scheduler FROM easeml.runs r WHERE r.run_id = %(run_id)s
    FOR NO KEY UPDATE SKIP LOCKED),
planned AS (
    UPDATE easeml.runs r SET planned_scheduler = %(scheduler)s, simulated_seconds = %(simulated_seconds)s,
        bound_seconds = %(bound_seconds)s
    FROM before b WHERE r.run_id = b.run_id AND easeml.holds_lease(%(lease_number)s)
    RETURNING r.run_id, r.tenant, b.planned_scheduler
)
INSERT INTO easeml.events (tenant, run_id, kind, message)
SELECT tenant, run_id, 'scheduled', format('scheduler %%s; %%s', %(scheduler)s::text, %(reason)s::text) FROM planned
WHERE planned_scheduler IS DISTINCT FROM %(scheduler)s ON CONFLICT DO NOTHING

-- name: keep_allocations
-- Trial groups and allocations.
SELECT easeml.keep_allocations(%(journal)s::jsonb)

-- name: start_run
-- The first unit of a run is about to be given out.
UPDATE easeml.runs SET status = 'running', started_at = coalesce(started_at, clock_timestamp())
WHERE run_id = (SELECT w.run_id FROM easeml.runs w WHERE w.run_id = %(run_id)s FOR NO KEY UPDATE SKIP LOCKED)
    AND status = 'queued'
    AND easeml.holds_lease(%(lease_number)s)

-- name: fail_trial
-- A trial failed for a reason of its own, or too often for reasons of others.
WITH failed AS (
    UPDATE easeml.trials SET status = 'failed', failure_reason = %(reason)s, finished_at = clock_timestamp()
    WHERE trial_id = (SELECT w.trial_id FROM easeml.trials w WHERE w.trial_id = %(trial_id)s
        FOR NO KEY UPDATE SKIP LOCKED) AND status IN ('waiting', 'running')
        AND easeml.holds_lease(%(lease_number)s)
    RETURNING tenant, run_id, trial_id
)
INSERT INTO easeml.events (tenant, run_id, trial_id, kind, message)
SELECT tenant, run_id, trial_id, 'failed', format('trial %%s failed: %%s', trial_id, %(reason)s)
FROM failed ON CONFLICT DO NOTHING

-- name: server_life
-- One life of the server (see easeml_db.postgres.sessions.server_life).
SELECT concat_ws(' / ', extract(epoch FROM pg_postmaster_start_time()), CASE WHEN w.stats_reset = b.stats_reset
    AND w.stats_reset = a.stats_reset THEN extract(epoch FROM w.stats_reset) ELSE 0 END) AS life,
    EXISTS (SELECT FROM pg_stat_activity p WHERE p.pid = %(pid)s) AS is_there
FROM pg_stat_wal w, pg_stat_bgwriter b, pg_stat_archiver a

-- name: fail_crashed
-- The server crashed during a unit of a trial. Others of its architecture would crash it again, for everybody. It is
-- recorded once none of them is open: an open transaction may hold the rows of the run, or of some.
WITH run AS (
    SELECT r.tenant, r.run_id FROM easeml.runs r WHERE r.run_id = %(run_id)s AND easeml.holds_lease(%(lease_number)s)
    FOR NO KEY UPDATE SKIP LOCKED
), alike AS (
    SELECT w.trial_id, w.status FROM easeml.trials w WHERE w.run_id = %(run_id)s AND w.architecture = (
        SELECT c.architecture FROM easeml.trials c WHERE c.trial_id = %(trial_id)s AND c.run_id = %(run_id)s)
), ended AS (
    UPDATE easeml.trials t SET status = CASE t.status WHEN 'paused' THEN 'stopped' ELSE 'failed' END,
        failure_reason = CASE t.trial_id WHEN %(trial_id)s THEN %(reason)s::text
            ELSE format('not tried, since trial %%s has the same architecture: %%s', %(trial_id)s::bigint,
                %(reason)s::text) END,
        finished_at = clock_timestamp()
    WHERE t.trial_id IN (SELECT w.trial_id FROM easeml.trials w JOIN run USING (run_id)
        WHERE w.trial_id IN (SELECT a.trial_id FROM alike a) AND w.status IN ('waiting', 'running', 'paused')
        FOR NO KEY UPDATE OF w SKIP LOCKED)
    RETURNING t.tenant, t.run_id, t.trial_id, t.failure_reason
), crashed AS (
    INSERT INTO easeml.events (tenant, run_id, trial_id, kind, message)
    SELECT r.tenant, r.run_id, a.trial_id, 'crashed', %(reason)s FROM run r JOIN alike a ON a.trial_id = %(trial_id)s
    JOIN easeml.trials t USING (trial_id)
    WHERE easeml.crash_of(%(run_id)s::bigint, t.architecture) IS NULL
), told AS (
    INSERT INTO easeml.events (tenant, run_id, trial_id, kind, message)
    SELECT tenant, run_id, trial_id, 'failed', format('trial %%s failed: %%s', trial_id, failure_reason)
    FROM ended ON CONFLICT DO NOTHING
)
SELECT (SELECT array_agg(e.trial_id) FROM ended e) AS trial_ids, NOT EXISTS (SELECT FROM alike a
    WHERE a.status IN ('waiting', 'running', 'paused') AND a.trial_id NOT IN (SELECT e.trial_id FROM ended e))
    AS is_recorded

-- name: count_lost
-- How often the server went away during a unit of a trial, since one was recorded, or the run was resumed.
SELECT count(*) AS n FROM easeml.events e WHERE e.run_id = %(run_id)s AND e.trial_id = %(trial_id)s
    AND e.kind = 'server away' AND e.happened_at > greatest(
    (SELECT max(u.finished_at) FROM easeml.training_units u WHERE u.trial_id = e.trial_id),
        (SELECT max(v.finished_at) FROM easeml.evaluations v WHERE v.trial_id = e.trial_id),
    (SELECT max(r.happened_at) FROM easeml.events r WHERE r.run_id = e.run_id AND r.kind = 'resumed'), '-infinity')

-- name: fail_run
-- The end of a run that cannot be served. What is left of its trials is cancelled, so that it can be resumed once the
-- reason is gone.
WITH failed AS (
    UPDATE easeml.runs SET status = 'failed', failure_reason = %(reason)s, finished_at = clock_timestamp()
    WHERE run_id = (SELECT w.run_id FROM easeml.runs w WHERE w.run_id = %(run_id)s FOR NO KEY UPDATE SKIP LOCKED)
        AND status IN ('queued', 'running')
        AND easeml.holds_lease(%(lease_number)s)
    RETURNING tenant, run_id
), trials AS (
    -- By their numbers, as a batch records them (see easeml.lock_trials).
    UPDATE easeml.trials SET status = 'cancelled' WHERE trial_id IN (
        SELECT t.trial_id FROM easeml.trials t JOIN failed f USING (run_id)
        WHERE t.status IN ('waiting', 'running', 'paused') ORDER BY t.trial_id FOR NO KEY UPDATE OF t)
)
INSERT INTO easeml.events (tenant, run_id, kind, message) SELECT tenant, run_id, 'refused', %(reason)s FROM failed
ON CONFLICT DO NOTHING RETURNING run_id

-- name: stop_trials
-- What is left of a run that ends.
UPDATE easeml.trials SET status = 'stopped', finished_at = clock_timestamp(),
    failure_reason = 'the run ended before this trial'
WHERE trial_id IN (SELECT t.trial_id FROM easeml.trials t
    WHERE t.run_id = (SELECT w.run_id FROM easeml.runs w WHERE w.run_id = %(run_id)s FOR NO KEY UPDATE SKIP LOCKED)
        AND t.status IN ('waiting', 'running', 'paused') ORDER BY t.trial_id FOR NO KEY UPDATE)
    AND easeml.holds_lease(%(lease_number)s)

-- name: begin_ending
-- The end of a search whose best trial has no test yet.
SELECT easeml.begin_ending(%(run_id)s, %(lease_number)s) AS is_tested

-- name: drop_vain_ensemble
-- An ensemble that gains nothing is not used.
SELECT easeml.drop_vain_ensemble(%(run_id)s, %(lease_number)s)

-- name: is_open
-- Whether a run is there, and not over.
SELECT run_id FROM easeml.runs WHERE run_id = %(run_id)s AND status IN ('queued', 'running')

-- name: finish_run
-- The end of a run: failed if all trials failed, else finished.
UPDATE easeml.runs r SET finished_at = clock_timestamp(),
    status = CASE WHEN f.n_failed = f.n THEN 'failed' ELSE 'finished' END,
    failure_reason = CASE WHEN f.n_failed = f.n THEN format('all %%s trials failed; the first: %%s',
            f.n, f.first_reason) END
FROM (SELECT count(*) AS n, count(*) FILTER (WHERE status = 'failed') AS n_failed,
    (array_agg(failure_reason ORDER BY trial_number))[1] AS first_reason
      FROM easeml.trials WHERE run_id = %(run_id)s) f
WHERE r.run_id = (SELECT w.run_id FROM easeml.runs w WHERE w.run_id = %(run_id)s FOR NO KEY UPDATE SKIP LOCKED)
    AND r.status = 'running' AND easeml.holds_lease(%(lease_number)s)
RETURNING r.run_id

-- name: note_serving
-- With the end of a run another trial may answer: of a task, one of a newer version. If the row is locked, the change
-- is recorded with the next one.
SELECT easeml.note_serving(m.tenant, m.dataset_name, 'better') FROM (
    SELECT m.tenant, m.dataset_name FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
    JOIN easeml.serving_metrics m ON m.tenant = d.tenant AND m.dataset_name = d.dataset_name
    WHERE r.run_id = %(run_id)s FOR NO KEY UPDATE OF m SKIP LOCKED) m

-- name: note_summary
-- The summary of a run that has ended, as the last event of its history.
INSERT INTO easeml.events (tenant, run_id, kind, message)
SELECT r.tenant, r.run_id, 'summary',
    left((SELECT string_agg(s, ' ') FROM easeml.run_summary(r.run_id) s), 2000) FROM easeml.runs r
WHERE r.run_id = %(run_id)s AND r.status = 'finished' FOR NO KEY UPDATE SKIP LOCKED ON CONFLICT DO NOTHING

-- name: note
-- An event in the history of a run.
INSERT INTO easeml.events (tenant, run_id, trial_id, kind, message)
SELECT tenant, run_id, %(trial_id)s, %(kind)s, %(message)s FROM easeml.runs WHERE run_id = %(run_id)s
FOR NO KEY UPDATE SKIP LOCKED ON CONFLICT DO NOTHING

-- name: due_refreshes
-- For each tenant the dataset whose refresh has been due for longest, because its run is over or its source must be
-- checked; with the role of the tenant.
SELECT DISTINCT ON (u.tenant) u.dataset_name, a.rolname::text AS role FROM easeml.refresh_rules u
JOIN easeml.tenant_roles t USING (tenant) JOIN pg_roles a ON a.oid = t.role
LEFT JOIN LATERAL (SELECT f.run_id FROM easeml.refreshes f WHERE f.tenant = u.tenant AND f.dataset_name = u.dataset_name
    AND f.outcome = 'training' ORDER BY f.refresh_id DESC LIMIT 1) b ON true
WHERE (u.not_before IS NULL OR u.not_before <= clock_timestamp())
    AND CASE WHEN b.run_id IS NULL THEN u.next_at <= clock_timestamp()
    ELSE NOT EXISTS (SELECT FROM easeml.runs r WHERE r.run_id = b.run_id AND r.is_open) END
    AND easeml.holds_lease(%(lease_number)s)
ORDER BY u.tenant, u.next_at

-- name: refresh_problem
-- Why a step could not be taken; it is tried again later. No row if it is locked.
UPDATE easeml.refresh_rules u SET problem = left(%(problem)s, 1000),
    not_before = clock_timestamp() + %(rest_seconds)s * interval '1 second'
WHERE (u.tenant, u.dataset_name) IN (SELECT w.tenant, w.dataset_name FROM easeml.refresh_rules w
    JOIN easeml.tenant_roles t USING (tenant)
        WHERE t.role = to_regrole(quote_ident(%(role)s)) AND w.dataset_name = %(dataset_name)s
            FOR NO KEY UPDATE OF w SKIP LOCKED)
    AND easeml.holds_lease(%(lease_number)s)
RETURNING u.dataset_name
