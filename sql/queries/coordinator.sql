-- A tenant may hold the rows of its runs for as long as its transaction lasts: nothing here waits for them, or all tenants would.

-- name: read_holder
-- The lease, and whether somebody holds it: a session that is still there, and gave a sign of life within 30 seconds. The start tells a session from a later one of the same number.
SELECT l.lease_number, c.stopped_at IS NULL AND c.heartbeat_at > clock_timestamp() - interval '30 seconds'
    AND EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = l.holder_pid AND coalesce(a.backend_start = l.holder_started, true)) AS is_held
FROM easeml.coordinator_lease l LEFT JOIN easeml.coordinators c USING (lease_number)

-- name: finish_restore
-- Raises an error where a dump was restored in part only.
SELECT easeml.finish_restore()

-- name: draw_lease
-- Draws the next lease number for this session, unless another was faster, and puts the coordinator on record; a unit being recorded holds the row until it has committed.
WITH drawn AS (
    UPDATE easeml.coordinator_lease l SET lease_number = l.lease_number + 1, acquired_at = clock_timestamp(),
        holder_pid = pg_backend_pid(), holder_started = (SELECT a.backend_start FROM pg_stat_activity a WHERE a.pid = pg_backend_pid())
    WHERE l.lease_number = %(seen)s RETURNING l.lease_number
)
INSERT INTO easeml.coordinators (lease_number, host, process_id, version)
SELECT d.lease_number, %(host)s, %(process_id)s, %(version)s FROM drawn d RETURNING lease_number

-- name: clear_slots
-- Takes off what units of an earlier coordinator left on display.
UPDATE easeml.slots SET unit_started_at = NULL, backend_pid = NULL
WHERE slot_id IN (SELECT s.slot_id FROM easeml.slots s WHERE (s.unit_started_at IS NOT NULL OR s.backend_pid IS NOT NULL) AND s.status <> 'lost' FOR NO KEY UPDATE SKIP LOCKED)

-- name: read_lease
-- The lease that holds now.
SELECT lease_number FROM easeml.coordinator_lease

-- name: heartbeat
-- A sign of life, and what was counted so far.
UPDATE easeml.coordinators SET heartbeat_at = clock_timestamp(), counters = %(counters)s::jsonb WHERE lease_number = %(lease_number)s

-- name: sign_off
-- An orderly end.
UPDATE easeml.coordinators SET stopped_at = clock_timestamp() WHERE lease_number = %(lease_number)s

-- name: look
-- What others may change, as values to compare: open runs, oldest first, slots, and how tenants are served.
SELECT o.*, (SELECT hashtextextended(coalesce(string_agg(ROW (s.slot_id, s.slot_name, s.segment_id, s.device, s.n_threads, s.memory_limit_bytes, s.status, s.instance_id)::text, ',' ORDER BY s.slot_id), ''), 0) FROM easeml.slots s)
        # (SELECT hashtextextended(coalesce(max(v.max_slots), 0)::text, 0) FROM easeml.provisioners v WHERE v.provisioner = 'local') AS slots,
    (SELECT hashtextextended(coalesce(string_agg(t::text, ',' ORDER BY t.tenant), ''), 0) FROM easeml.tenants t)
        # (SELECT hashtextextended(coalesce(max(y::text), ''), 0) FROM easeml.tenancy y) AS terms
FROM (SELECT array_agg(r.run_id ORDER BY r.run_id) AS run_ids, array_agg(r.tenant::text ORDER BY r.run_id) AS tenants,
        array_agg(r.n_resumes ORDER BY r.run_id) AS resumes,
        array_agg(CASE WHEN d.placement = 'bound' THEN (SELECT hashtextextended(string_agg(ROW (h.partition_number, h.segment_id)::text, ',' ORDER BY h.partition_number, h.segment_id), 0)
            FROM easeml.replicas h WHERE h.dataset_id = r.dataset_id) END ORDER BY r.run_id) AS holders
    FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) WHERE r.is_open) o

-- name: slots
-- The slots to run units on.
SELECT s.slot_id, s.slot_name, s.segment_id, s.device, s.n_threads, s.memory_limit_bytes, s.status, i.run_id, i.instance_id, g.service
FROM easeml.slots s JOIN easeml.segments g USING (segment_id) LEFT JOIN easeml.instances i USING (instance_id) ORDER BY s.slot_id

-- name: lose_slot
-- A unit is stuck: whatever its process still does, it does not record.
UPDATE easeml.slots SET status = 'lost', lost_reason = %(reason)s, lost_at = clock_timestamp(), unit_started_at = NULL WHERE slot_id = %(slot_id)s
    AND %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease)

-- name: explain_slot
-- Why a slot that should work does not (NULL: it does).
UPDATE easeml.slots SET lost_reason = %(reason)s WHERE slot_id = %(slot_id)s AND status <> 'lost' AND lost_reason IS DISTINCT FROM %(reason)s

-- name: recover_slots
-- Lost slots whose stuck process is gone work again.
UPDATE easeml.slots s SET status = 'active', lost_reason = NULL, lost_at = NULL, backend_pid = NULL
WHERE s.status = 'lost' AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = s.backend_pid) RETURNING s.slot_id

-- name: open_runs
-- Runs that are asked for and not over, oldest first.
SELECT run_id FROM easeml.runs WHERE is_open ORDER BY run_id

-- name: read_runs
-- Open runs; holders lists the segments of each partition, NULL where every slot may run every partition.
SELECT r.run_id, r.seed, r.status, r.max_seconds, extract(epoch FROM r.started_at)::double precision AS started_seconds, d.n_partitions,
    r.scheduler, r.visit_order, r.allocation, r.tenant::text AS tenant, d.task, r.is_ending, d.options ? 'n_folds' AS has_folds, ARRAY(SELECT a FROM unnest(r.architectures || 'ensemble'::text) a WHERE easeml.does_whole_rounds(a)) AS whole_architectures,
    b.is_too_large,
    CASE WHEN r.search IS NOT NULL AND NOT b.is_too_large THEN jsonb_build_object('architectures_json', (r.search -> 'architectures')::text, 'search_space_json', r.search_space::text, 'procedure', r.procedure,
        'n_configs', (r.search -> 'n_configs'), 'max_epochs', r.max_epochs, 'seed', r.seed, 'options_json', r.procedure_options::text, 'portfolio_json', (r.search -> 'portfolio')::text) END AS search, CASE WHEN d.placement = 'bound' THEN (
        SELECT jsonb_agg(h.segments ORDER BY h.partition_number)
        FROM (SELECT p.partition_number, coalesce(jsonb_agg(c.segment_id) FILTER (WHERE c.segment_id IS NOT NULL), '[]') AS segments
              FROM easeml.partitions p LEFT JOIN easeml.replicas c USING (dataset_id, partition_number)
              WHERE p.dataset_id = d.dataset_id GROUP BY p.partition_number) h) END AS holders
FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
CROSS JOIN LATERAL (SELECT coalesce(octet_length(concat(r.search, r.search_space, r.procedure_options)) > 1000000, false) AS is_too_large) b
WHERE r.run_id = ANY (%(run_ids)s) AND r.is_open

-- name: read_trials
-- The trials of runs with their progress; met lists the partitions met in the present round, where the order is free.
SELECT t.run_id, t.trial_id, t.arm_id, t.trial_number, t.architecture, t.max_epochs, t.n_steps_done, t.status, r.visit_order, t.pilot_train_seconds, t.pilot_evaluate_seconds, t.target_epochs, t.bracket,
    CASE WHEN t.run_id = ANY (%(keyed)s::bigint[]) THEN easeml.batch_key(t.architecture, t.config) END AS batch_key,
    CASE WHEN r.visit_order = 'free' THEN ARRAY(
        SELECT u.partition_number FROM easeml.training_units u WHERE u.trial_id = t.trial_id AND n.round %% 2 = 0 AND u.epoch = n.round / 2 + 1
        UNION ALL
        SELECT e.partition_number FROM easeml.evaluations e WHERE e.trial_id = t.trial_id
            AND (n.round %% 2 = 1 AND e.split = 'validation' AND e.epoch = n.round / 2 + 1 OR n.round = 2 * t.max_epochs AND e.split = 'test')) END AS met
FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
CROSS JOIN LATERAL (SELECT t.n_steps_done / d.n_partitions AS round) n
WHERE t.run_id = ANY (%(run_ids)s) ORDER BY t.run_id, t.trial_number

-- name: joint_architectures
-- The architectures that several slots can train together: those with gradients to average.
SELECT architecture FROM easeml.list_architectures() WHERE trainer = 'torch'

-- name: read_arms
-- The arms that runs began with; one with a trial that waits or runs, again or still, is not closed. Work is rows times epochs times trials.
SELECT a.run_id, a.arm_id, a.architecture || CASE a.augmentation WHEN 'none' THEN '' ELSE '+' || a.augmentation END AS name, a.opening, a.bound,
    CASE WHEN n.n_open = 0 THEN a.closing END AS closing, CASE WHEN n.n_open = 0 THEN a.quality END AS quality,
    CASE WHEN n.n_open = 0 THEN a.cost_seconds END AS cost_seconds, (n.n_epochs * p.n_rows)::double precision AS work, n.n_epochs::double precision AS n_epochs, n.is_complete
FROM easeml.arms a JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
CROSS JOIN LATERAL (SELECT CASE WHEN r.search IS NULL THEN coalesce(sum(t.max_epochs), 0) ELSE coalesce(a.planned_epochs, 1) END AS n_epochs,
    count(*) FILTER (WHERE t.status IN ('waiting', 'running', 'paused')) AS n_open,
    coalesce(bool_and(t.n_steps_done = (2 * t.max_epochs + 1) * d.n_partitions::bigint OR r.search IS NOT NULL AND t.status = 'stopped' AND t.failure_reason IS NULL), false) AS is_complete
    FROM easeml.trials t WHERE t.arm_id = a.arm_id) n
CROSS JOIN LATERAL (SELECT greatest(sum(c.n_train_rows), 1) AS n_rows FROM easeml.partitions c WHERE c.dataset_id = r.dataset_id) p
WHERE a.run_id = ANY (%(run_ids)s) AND NOT EXISTS (SELECT FROM easeml.priors q WHERE q.run_id = a.run_id AND a.arm_id <> ALL (q.arm_ids)) ORDER BY a.arm_id

-- name: read_history
-- What a procedure may know of an arm's trials, or of some; scores after each epoch, higher is better.
SELECT t.trial_number, jsonb_build_object('architecture', t.architecture) || t.config AS config, t.status, t.target_epochs, t.inherited_epochs, p.trial_number AS parent,
    ARRAY(SELECT CASE WHEN r.is_higher_better THEN m.metric_value ELSE -m.metric_value END FROM easeml.epoch_metrics m
          WHERE m.trial_id = t.trial_id AND m.split = 'validation' ORDER BY m.epoch) AS scores,
    ARRAY(SELECT extract(epoch FROM m.measured_at)::double precision FROM easeml.epoch_metrics m WHERE m.trial_id = t.trial_id AND m.split = 'validation' ORDER BY m.epoch) AS moments,
    (SELECT coalesce(sum(extract(epoch FROM u.finished_at - u.started_at)) FILTER (WHERE u.n_slots = 1 OR u.state_bytes > 0), 0) FROM easeml.training_units u WHERE u.trial_id = t.trial_id)::double precision
        + (SELECT coalesce(sum(extract(epoch FROM v.finished_at - v.started_at)), 0) FROM easeml.evaluations v WHERE v.trial_id = t.trial_id)::double precision AS seconds
FROM easeml.trials t JOIN easeml.runs r USING (run_id) LEFT JOIN easeml.trials p ON p.trial_id = t.parent_trial_id
WHERE t.run_id = %(run_id)s AND t.arm_id = %(arm_id)s AND (%(trial_ids)s::bigint[] IS NULL OR t.trial_id = ANY (%(trial_ids)s)) ORDER BY t.trial_number

-- name: apply_decisions
-- What a procedure has decided about the trials of an arm.
SELECT easeml.apply_decisions(%(arm_id)s, %(decisions)s::jsonb, %(lease_number)s) AS pruned_bytes

-- name: tenancy
-- How tenants are served.
SELECT t.policy, t.prior, t.seed, coalesce((SELECT y.max_wait_seconds FROM easeml.tenancy y), 60) AS max_wait_seconds FROM easeml.current_tenancy() t

-- name: tenants
-- Terms of the tenants that have any.
SELECT tenant::text AS name, weight, extract(epoch FROM deadline)::double precision AS deadline_seconds, max_slots FROM easeml.tenants

-- name: history
-- What closed arms of the newest runs came to, if every trial went to its end, or was given up by its procedure: what was cut short says little of either quality or cost. Of 500 runs each tenant has as many as any other that has them: nobody teaches priors alone.
SELECT a.run_id, d.task, a.architecture || CASE a.augmentation WHEN 'none' THEN '' ELSE '+' || a.augmentation END AS name, a.quality, a.cost_seconds,
    n.n_epochs::double precision * p.n_rows::double precision AS work
FROM easeml.arms a JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
CROSS JOIN LATERAL (SELECT greatest(sum(t.n_steps_done / (2 * d.n_partitions::bigint) - t.inherited_epochs), 1) AS n_epochs,
    coalesce(bool_and(t.n_steps_done = (2 * t.max_epochs + 1) * d.n_partitions::bigint OR r.search IS NOT NULL AND t.status = 'stopped' AND t.failure_reason IS NULL), false) AS is_complete
    FROM easeml.trials t WHERE t.arm_id = a.arm_id) n
CROSS JOIN LATERAL (SELECT greatest(sum(c.n_train_rows), 1) AS n_rows FROM easeml.partitions c WHERE c.dataset_id = r.dataset_id) p
WHERE a.closing IS NOT NULL AND n.is_complete AND a.run_id IN (SELECT w.run_id FROM (
    SELECT o.run_id, row_number() OVER (PARTITION BY o.tenant ORDER BY o.run_id DESC) AS place FROM easeml.runs o) w ORDER BY w.place, w.run_id DESC LIMIT 500)
ORDER BY a.run_id, a.arm_id

-- name: policy_memory
-- What the policy wrote down with its last decision.
SELECT memory FROM easeml.policy_memory WHERE policy = %(policy)s

-- name: read_prior
-- What was believed of a run's arms beforehand.
SELECT run_id, prior AS name, link, degrees_of_freedom, noise_variance, mean, covariance, fitted FROM easeml.priors WHERE run_id = ANY (%(run_ids)s)

-- name: keep_priors
-- The first prior of a run stays. Nobody waits for the disk: what opens an arm later does, and with it all that was written before.
INSERT INTO easeml.priors (run_id, tenant, prior, link, degrees_of_freedom, noise_variance, mean, covariance, fitted, arm_ids)
SELECT r.run_id, r.tenant, p.prior, p.link, p.degrees_of_freedom, p.noise_variance, p.mean, p.covariance, p.fitted, p.arm_ids
FROM jsonb_to_recordset(%(priors)s::jsonb) p(run_id bigint, prior text, link text, degrees_of_freedom float8, noise_variance float8, mean float8[], covariance float8[], fitted jsonb, arm_ids bigint[])
JOIN easeml.runs r USING (run_id)
WHERE %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease) AND set_config('synchronous_commit', 'off', true) = 'off' FOR KEY SHARE OF r SKIP LOCKED ON CONFLICT DO NOTHING

-- name: open_arm
-- A decision.
SELECT easeml.open_arm(%(opening)s::jsonb) AS opening

-- name: close_arm
-- What an arm came to.
SELECT easeml.close_arm(%(arm_id)s, %(lease_number)s)

-- name: close_arms
-- All open arms of a run that ends.
SELECT easeml.close_arm(a.arm_id, %(lease_number)s) FROM easeml.arms a WHERE a.run_id = %(run_id)s AND a.opening IS NOT NULL AND a.closing IS NULL

-- name: charge
-- Slot seconds of units that failed or were cancelled.
SELECT easeml.charge(%(tenant)s, %(seconds)s) AS tenant

-- name: keep_beliefs
-- What is believed of the arms of runs now.
SELECT easeml.keep_beliefs(b.run_id, b.beliefs, %(lease_number)s) FROM jsonb_to_recordset(%(beliefs)s::jsonb) b(run_id bigint, beliefs jsonb)

-- name: plan_run
-- How a run is scheduled from now on; a new choice goes into the run's history.
WITH before AS (SELECT r.run_id, r.tenant, r.planned_scheduler FROM easeml.runs r WHERE r.run_id = %(run_id)s FOR NO KEY UPDATE SKIP LOCKED),
planned AS (
    UPDATE easeml.runs r SET planned_scheduler = %(scheduler)s, simulated_seconds = %(simulated_seconds)s, bound_seconds = %(bound_seconds)s
    FROM before b WHERE r.run_id = b.run_id AND %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease)
    RETURNING r.run_id, r.tenant, b.planned_scheduler
)
INSERT INTO easeml.events (tenant, run_id, kind, message)
SELECT tenant, run_id, 'scheduled', format('scheduler %%s; %%s', %(scheduler)s::text, %(reason)s::text) FROM planned
WHERE planned_scheduler IS DISTINCT FROM %(scheduler)s ON CONFLICT DO NOTHING

-- name: read_profiles
-- What is known of devices for the architectures of a run's dataset.
SELECT p.architecture, p.device_kind, p.alpha, p.beta, p.c, p.d, p.eps_seconds, p.n_packed, p.n_devices, p.is_bounded
FROM easeml.device_profiles p JOIN easeml.runs r USING (tenant, dataset_id) WHERE r.run_id = %(run_id)s

-- name: keep_profile
-- The newest measurement of an architecture on a kind of device counts.
INSERT INTO easeml.device_profiles (tenant, dataset_id, architecture, device_kind, alpha, beta, c, d, eps_seconds, n_packed, n_devices, is_bounded, measurements, run_id)
SELECT r.tenant, r.dataset_id, %(architecture)s, %(device_kind)s, %(alpha)s, %(beta)s, %(c)s, %(d)s, %(eps_seconds)s, %(n_packed)s, %(n_devices)s,
    %(is_bounded)s, %(measurements)s::jsonb, r.run_id
FROM easeml.runs r WHERE r.run_id = %(run_id)s AND %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease) FOR KEY SHARE SKIP LOCKED
ON CONFLICT (tenant, dataset_id, architecture, device_kind) DO UPDATE SET alpha = EXCLUDED.alpha, beta = EXCLUDED.beta, c = EXCLUDED.c, d = EXCLUDED.d,
    eps_seconds = EXCLUDED.eps_seconds, n_packed = EXCLUDED.n_packed, n_devices = EXCLUDED.n_devices, is_bounded = EXCLUDED.is_bounded,
    measurements = EXCLUDED.measurements, run_id = EXCLUDED.run_id, measured_at = clock_timestamp()

-- name: keep_allocations
-- Trial groups and allocations.
SELECT easeml.keep_allocations(%(journal)s::jsonb)

-- name: start_run
-- The first unit of a run is about to be given out.
UPDATE easeml.runs SET status = 'running', started_at = coalesce(started_at, clock_timestamp())
WHERE run_id = (SELECT w.run_id FROM easeml.runs w WHERE w.run_id = %(run_id)s FOR NO KEY UPDATE SKIP LOCKED) AND status = 'queued'
    AND %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease)

-- name: fail_trial
-- A trial failed for a reason of its own, or too often for reasons of others.
WITH failed AS (
    UPDATE easeml.trials SET status = 'failed', failure_reason = %(reason)s, finished_at = clock_timestamp()
    WHERE trial_id = (SELECT w.trial_id FROM easeml.trials w WHERE w.trial_id = %(trial_id)s FOR NO KEY UPDATE SKIP LOCKED) AND status IN ('waiting', 'running')
        AND %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease)
    RETURNING tenant, run_id, trial_id
)
INSERT INTO easeml.events (tenant, run_id, trial_id, kind, message)
SELECT tenant, run_id, trial_id, 'failed', format('trial %%s failed: %%s', trial_id, %(reason)s) FROM failed ON CONFLICT DO NOTHING

-- name: count_crashes
-- How often the server crashed during a unit of a trial, since one was recorded, or the run was resumed.
SELECT count(*) AS n FROM easeml.events e WHERE e.run_id = %(run_id)s AND e.trial_id = %(trial_id)s AND e.kind = 'crashed' AND e.happened_at > greatest(
    (SELECT max(u.finished_at) FROM easeml.training_units u WHERE u.trial_id = e.trial_id), (SELECT max(v.finished_at) FROM easeml.evaluations v WHERE v.trial_id = e.trial_id),
    (SELECT max(r.happened_at) FROM easeml.events r WHERE r.run_id = e.run_id AND r.kind = 'resumed'), '-infinity')

-- name: fail_run
-- The end of a run that cannot be served. What is left of its trials is cancelled, so that it can be resumed once the reason is gone.
WITH failed AS (
    UPDATE easeml.runs SET status = 'failed', failure_reason = %(reason)s, finished_at = clock_timestamp()
    WHERE run_id = (SELECT w.run_id FROM easeml.runs w WHERE w.run_id = %(run_id)s FOR NO KEY UPDATE SKIP LOCKED) AND status IN ('queued', 'running')
        AND %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease)
    RETURNING tenant, run_id
), trials AS (
    -- By their numbers, as a batch records them (see easeml.lock_trials).
    UPDATE easeml.trials SET status = 'cancelled' WHERE trial_id IN (
        SELECT t.trial_id FROM easeml.trials t JOIN failed f USING (run_id) WHERE t.status IN ('waiting', 'running', 'paused') ORDER BY t.trial_id FOR NO KEY UPDATE OF t)
)
INSERT INTO easeml.events (tenant, run_id, kind, message) SELECT tenant, run_id, 'refused', %(reason)s FROM failed ON CONFLICT DO NOTHING RETURNING run_id

-- name: stop_trials
-- What is left of a run that ends.
UPDATE easeml.trials SET status = 'stopped', finished_at = clock_timestamp(), failure_reason = 'the run ended before this trial'
WHERE trial_id IN (SELECT t.trial_id FROM easeml.trials t WHERE t.run_id = (SELECT w.run_id FROM easeml.runs w WHERE w.run_id = %(run_id)s FOR NO KEY UPDATE SKIP LOCKED)
        AND t.status IN ('waiting', 'running', 'paused') ORDER BY t.trial_id FOR NO KEY UPDATE)
    AND %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease)

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
-- The end of a run: failed when no trial came to anything because all failed.
UPDATE easeml.runs r SET finished_at = clock_timestamp(),
    status = CASE WHEN f.n_failed = f.n THEN 'failed' ELSE 'finished' END,
    failure_reason = CASE WHEN f.n_failed = f.n THEN format('all %%s trials failed; the first: %%s', f.n, f.first_reason) END
FROM (SELECT count(*) AS n, count(*) FILTER (WHERE status = 'failed') AS n_failed, (array_agg(failure_reason ORDER BY trial_number))[1] AS first_reason
      FROM easeml.trials WHERE run_id = %(run_id)s) f
WHERE r.run_id = (SELECT w.run_id FROM easeml.runs w WHERE w.run_id = %(run_id)s FOR NO KEY UPDATE SKIP LOCKED) AND r.status = 'running' AND %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease)
RETURNING r.run_id

-- name: note_summary
-- What a run that has ended tells, as the last event of its history.
INSERT INTO easeml.events (tenant, run_id, kind, message)
SELECT r.tenant, r.run_id, 'summary', left((SELECT string_agg(s, ' ') FROM easeml.run_summary(r.run_id) s), 2000) FROM easeml.runs r
WHERE r.run_id = %(run_id)s AND r.status = 'finished' FOR KEY SHARE SKIP LOCKED ON CONFLICT DO NOTHING

-- name: note
-- An event in the history of a run.
INSERT INTO easeml.events (tenant, run_id, trial_id, kind, message)
SELECT tenant, run_id, %(trial_id)s, %(kind)s, %(message)s FROM easeml.runs WHERE run_id = %(run_id)s FOR KEY SHARE SKIP LOCKED ON CONFLICT DO NOTHING

-- name: live_bytes
-- Bytes of the states that are kept.
SELECT least(coalesce(sum(n_bytes), 0), 9223372036854775807)::bigint AS n_bytes FROM easeml.checkpoints

-- name: due_forecast
-- A run whose last forecast is old for its age, of another tenant than the last one if there is any; none unless the lease is ours.
SELECT r.run_id, r.tenant::text AS tenant FROM easeml.runs r
LEFT JOIN LATERAL (SELECT max(f.made_at) AS made_at FROM easeml.forecasts f WHERE f.run_id = r.run_id) f ON true
CROSS JOIN LATERAL (SELECT greatest(f.made_at, r.started_at) + make_interval(secs => least(greatest(0.05 * extract(epoch FROM clock_timestamp() - r.started_at),
    %(least_seconds)s), %(most_seconds)s)) AS due_at) d
WHERE r.is_open AND r.status = 'running' AND r.run_id <> ALL (%(resting)s::bigint[]) AND d.due_at <= clock_timestamp()
    AND %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease)
ORDER BY r.tenant = %(last_tenant)s, d.due_at LIMIT 1

-- name: due_refreshes
-- Of each tenant the dataset of which a refresh has had a step to take for longest: its run is over, or its source is to be looked at; with the role of the tenant.
SELECT DISTINCT ON (u.tenant) u.dataset_name, a.rolname::text AS role FROM easeml.refresh_rules u JOIN easeml.tenant_roles t USING (tenant) JOIN pg_roles a ON a.oid = t.role
LEFT JOIN LATERAL (SELECT f.run_id FROM easeml.refreshes f WHERE f.tenant = u.tenant AND f.dataset_name = u.dataset_name AND f.outcome = 'training' ORDER BY f.refresh_id DESC LIMIT 1) b ON true
WHERE (u.not_before IS NULL OR u.not_before <= clock_timestamp()) AND CASE WHEN b.run_id IS NULL THEN u.next_at <= clock_timestamp()
    ELSE NOT EXISTS (SELECT FROM easeml.runs r WHERE r.run_id = b.run_id AND r.is_open) END
    AND %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease)
ORDER BY u.tenant, u.next_at

-- name: refresh_problem
-- Why a step could not be taken; it is tried again later. No row where somebody holds it.
UPDATE easeml.refresh_rules u SET problem = left(%(problem)s, 1000), not_before = clock_timestamp() + interval '5 minutes'
FROM easeml.tenant_roles t WHERE t.tenant = u.tenant AND t.role = to_regrole(quote_ident(%(role)s)) AND (u.tenant, u.dataset_name) IN (
    SELECT w.tenant, w.dataset_name FROM easeml.refresh_rules w WHERE w.dataset_name = %(dataset_name)s FOR NO KEY UPDATE SKIP LOCKED)
    AND %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease)
RETURNING u.dataset_name

-- name: record_forecast
-- What is expected of a run now.
SELECT easeml.record_forecast(%(run_id)s)

-- name: read_plan
-- The plan that holds for a run, its limits and its prices. The server's clock made the times; the coordinator's reads them.
SELECT p.revision, extract(epoch FROM p.made_at)::double precision AS made_seconds, p.seconds_mean, p.seconds_p95, p.cost_before, p.cost_mean, p.cost_p95,
    extract(epoch FROM r.deadline)::double precision AS deadline_seconds, r.max_cost, r.price_list, l.is_local,
    CASE WHEN l.is_local THEN 'local' ELSE (SELECT v.provisioner FROM easeml.provisioners v WHERE v.price_list = r.price_list) END AS provisioner,
    (SELECT v.max_slots FROM easeml.provisioners v WHERE v.price_list = r.price_list) AS max_slots,
    (SELECT coalesce(max(e.place), 0) FROM easeml.executed_stages e WHERE e.run_id = r.run_id) AS n_stages,
    (SELECT coalesce(sum(i.cost), 0) FROM easeml.instances i WHERE i.run_id = r.run_id AND i.ended_at IS NOT NULL) AS ended_cost,
    (SELECT jsonb_agg(to_jsonb(t) ORDER BY t.price_per_hour, t.instance_type) FROM easeml.instance_types t WHERE t.price_list = r.price_list) AS types
FROM easeml.runs r JOIN easeml.price_lists l USING (price_list) JOIN easeml.plans p USING (run_id)
WHERE r.run_id = %(run_id)s AND p.revision = (SELECT max(n.revision) FROM easeml.plans n WHERE n.run_id = r.run_id)

-- name: read_planned_stages
-- The stages of a plan.
SELECT label, arm, bracket, target_epochs, n_trials, instance_type, n_slots, n_instances, width, seconds_mean, seconds_p95
FROM easeml.planned_stages WHERE run_id = %(run_id)s AND revision = %(revision)s ORDER BY stage

-- name: read_stage
-- The stage that a run was in when an earlier coordinator left it.
SELECT place, revision, label, arm, bracket, target_epochs, extract(epoch FROM began_at)::double precision AS began_seconds, n_trials, n_slots, cost_before, n_failures
FROM easeml.executed_stages WHERE run_id = %(run_id)s AND ended_at IS NULL ORDER BY place DESC LIMIT 1

-- name: read_standing
-- How a run stands, and what is known of how long its trials take.
SELECT easeml.run_standing(r) AS standing FROM easeml.runs r WHERE r.run_id = %(run_id)s AND r.status IN ('queued', 'running')
    AND (SELECT count(*) <= 20000 FROM easeml.trials t WHERE t.run_id = r.run_id)

-- name: slot_seconds
-- What the recorded units of a run took.
SELECT coalesce((SELECT sum(extract(epoch FROM u.finished_at - u.started_at)) FROM easeml.training_units u WHERE u.run_id = %(run_id)s), 0)::double precision
    + coalesce((SELECT sum(extract(epoch FROM e.finished_at - e.started_at)) FROM easeml.evaluations e WHERE e.run_id = %(run_id)s), 0)::double precision AS seconds

-- name: keep_revision
-- The rest of a run was planned again.
SELECT easeml.keep_revision(%(journal)s::jsonb)

-- name: keep_stage
-- A stage of a run began, or ended.
SELECT easeml.keep_stage(%(journal)s::jsonb)

-- name: local_slots
-- How many slots this server may have, those added for planned runs among them.
SELECT easeml.local_slots() AS n

-- name: live_instances
-- Instances that are wanted, there, or on their way out.
SELECT i.instance_id, i.run_id, i.provisioner, i.instance_type, i.n_slots, i.status, i.request_id, extract(epoch FROM i.billed_from)::double precision AS billed_seconds,
    i.price_per_hour, i.billed_by, i.billed_per, i.minimum_seconds, i.data_price, i.device_kind,
    ARRAY(SELECT s.slot_id FROM easeml.slots s WHERE s.instance_id = i.instance_id ORDER BY s.slot_id) AS slot_ids,
    v.start_program, v.probe_program, v.stop_program, v.timeout_seconds, v.ready_seconds
FROM easeml.instances i LEFT JOIN easeml.provisioners v USING (provisioner) WHERE i.status IN ('requested', 'ready', 'releasing') ORDER BY i.instance_id

-- name: request_instances
-- Instances are wanted.
SELECT easeml.request_instances(%(journal)s::jsonb) AS instance_id

-- name: bill_instance
-- The wait in the provider's queue is over.
UPDATE easeml.instances SET billed_from = coalesce(billed_from, clock_timestamp()) WHERE instance_id = %(instance_id)s AND status IN ('requested', 'releasing')
    AND %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease)

-- name: attach_slots
-- An instance is ready.
SELECT easeml.attach_slots(%(journal)s::jsonb) AS has_slots

-- name: release_instance
-- An instance is needed no more.
SELECT easeml.release_instance(%(journal)s::jsonb)

-- name: end_instance
-- An instance is gone.
SELECT easeml.end_instance(%(journal)s::jsonb)

-- name: keep_call
-- What a program said.
SELECT easeml.keep_call(%(journal)s::jsonb)

-- name: health
-- How the service does.
SELECT * FROM easeml.health
