-- Seconds and cost: profiles, forecasts, plans, and instances that come and go.

-- name: read_profiles
-- What is known of devices for the architectures of a run's dataset.
SELECT p.architecture, p.device_kind, p.alpha, p.beta, p.c, p.d, p.eps_seconds, p.n_packed, p.n_devices, p.is_bounded
FROM easeml.device_profiles p JOIN easeml.runs r USING (tenant, dataset_id) WHERE r.run_id = %(run_id)s

-- name: keep_profile
-- The newest measurement of an architecture on a kind of device counts.
INSERT INTO easeml.device_profiles (tenant, dataset_id, architecture, device_kind, alpha, beta, c, d, eps_seconds,
    n_packed, n_devices, is_bounded, measurements, run_id)
SELECT r.tenant, r.dataset_id, %(architecture)s, %(device_kind)s, %(alpha)s, %(beta)s, %(c)s, %(d)s, %(eps_seconds)s,
    %(n_packed)s, %(n_devices)s,
    %(is_bounded)s, %(measurements)s::jsonb, r.run_id
FROM easeml.runs r WHERE r.run_id = %(run_id)s AND easeml.holds_lease(%(lease_number)s) FOR NO KEY UPDATE SKIP LOCKED
ON CONFLICT (tenant, dataset_id, architecture, device_kind) DO UPDATE SET alpha = EXCLUDED.alpha, beta = EXCLUDED.beta,
    c = EXCLUDED.c, d = EXCLUDED.d,
    eps_seconds = EXCLUDED.eps_seconds, n_packed = EXCLUDED.n_packed, n_devices = EXCLUDED.n_devices,
    is_bounded = EXCLUDED.is_bounded,
    measurements = EXCLUDED.measurements, run_id = EXCLUDED.run_id, measured_at = clock_timestamp()

-- name: due_forecast
-- A run whose last forecast is old for its age, of another tenant than the last one if there is any; none unless the
-- lease is ours. A plan or a time limit says enough for the beginning.
SELECT r.run_id, r.tenant::text AS tenant FROM easeml.runs r
LEFT JOIN LATERAL (SELECT f.made_at, f.eta_at IS NOT NULL AS is_known FROM easeml.forecasts f WHERE f.run_id = r.run_id
    AND f.made_at >= r.started_at ORDER BY f.made_at DESC LIMIT 1) f ON true
CROSS JOIN LATERAL (SELECT coalesce(f.made_at, r.started_at)
    + make_interval(secs => least(greatest(0.05 * extract(epoch FROM clock_timestamp() - r.started_at),
    CASE WHEN f.is_known OR num_nonnulls(r.price_list, r.max_seconds) > 0 THEN %(least_seconds)s
        ELSE %(first_seconds)s END), %(most_seconds)s)) AS due_at) d
WHERE r.is_open AND r.status = 'running' AND r.run_id <> ALL (%(resting)s::bigint[]) AND d.due_at <= clock_timestamp()
    AND easeml.holds_lease(%(lease_number)s)
ORDER BY r.tenant = %(last_tenant)s, d.due_at LIMIT 1

-- name: run_standing
-- How far a run is, as text; null if it is too large to forecast.
SELECT easeml.run_standing(r)::text AS standing FROM easeml.runs r WHERE r.run_id = %(run_id)s

-- name: make_forecast_apart
-- What follows from it, computed without a snapshot.
CALL easeml.make_forecast_apart(%(standing)s::jsonb, NULL, NULL)

-- name: record_forecast
-- What is expected of a run now.
SELECT easeml.record_forecast(%(run_id)s, %(made)s::jsonb)

-- name: read_plan
-- The plan that holds for a run, its limits and its prices: of this server's slots for the devices that it has now, or
-- had when the plan was made. The server's clock made the times; the coordinator's reads them.
SELECT p.revision, extract(epoch FROM p.made_at)::double precision AS made_seconds, p.seconds_mean, p.seconds_p95,
    p.cost_before, p.cost_mean, p.cost_p95,
    extract(epoch FROM r.deadline)::double precision AS deadline_seconds, r.max_cost, r.price_list, l.is_local,
    CASE WHEN l.is_local THEN 'local'
        ELSE (SELECT v.provisioner FROM easeml.provisioners v WHERE v.price_list = r.price_list) END AS provisioner,
    (SELECT v.max_slots FROM easeml.provisioners v WHERE v.price_list = r.price_list) AS max_slots,
    (SELECT coalesce(max(e.place), 0) FROM easeml.executed_stages e WHERE e.run_id = r.run_id) AS n_stages,
    (SELECT coalesce(sum(i.cost), 0) FROM easeml.instances i WHERE i.run_id = r.run_id
        AND i.ended_at IS NOT NULL) AS ended_cost,
    (SELECT jsonb_agg(to_jsonb(t) ORDER BY t.price_per_hour, t.instance_type) FROM easeml.instance_types t
        WHERE t.price_list = r.price_list AND (NOT l.is_local
            OR EXISTS (SELECT FROM easeml.slots s WHERE split_part(s.device, ':', 1) = t.device_kind)
            OR EXISTS (SELECT FROM easeml.planned_stages g WHERE g.run_id = p.run_id AND g.revision = p.revision
                AND g.instance_type = t.instance_type))) AS types
FROM easeml.runs r JOIN easeml.price_lists l USING (price_list) JOIN easeml.plans p USING (run_id)
WHERE r.run_id = %(run_id)s AND p.revision = (SELECT max(n.revision) FROM easeml.plans n WHERE n.run_id = r.run_id)

-- name: read_planned_stages
-- The stages of a plan.
SELECT label, arm, bracket, target_epochs, n_trials, instance_type, n_slots, n_instances,
    width, seconds_mean, seconds_p95
FROM easeml.planned_stages WHERE run_id = %(run_id)s AND revision = %(revision)s ORDER BY stage

-- name: read_stage
-- The stage that a run was in when an earlier coordinator left it.
SELECT place, revision, label,
    arm, bracket, target_epochs, extract(epoch FROM began_at)::double precision AS began_seconds, n_trials, n_slots,
    cost_before, n_failures, n_beside
FROM easeml.executed_stages WHERE run_id = %(run_id)s AND ended_at IS NULL ORDER BY place DESC LIMIT 1

-- name: read_standing
-- The progress of a run, and the known durations of its trials.
SELECT easeml.run_standing(r) AS standing FROM easeml.runs r WHERE r.run_id = %(run_id)s
    AND r.status IN ('queued', 'running')
    AND (SELECT count(*) <= 20000 FROM easeml.trials t WHERE t.run_id = r.run_id)

-- name: slot_seconds
-- What the recorded units of a run took.
SELECT coalesce((SELECT sum(extract(epoch FROM u.finished_at - u.started_at)) FROM easeml.training_units u
        WHERE u.run_id = %(run_id)s), 0)::double precision
    + coalesce((SELECT sum(extract(epoch FROM e.finished_at - e.started_at)) FROM easeml.evaluations e
            WHERE e.run_id = %(run_id)s), 0)::double precision AS seconds

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
SELECT i.instance_id, i.run_id, i.provisioner, i.instance_type, i.n_slots, i.status, i.request_id,
    extract(epoch FROM i.billed_from)::double precision AS billed_seconds,
    i.price_per_hour, i.billed_by, i.billed_per, i.minimum_seconds, i.data_price, i.device_kind,
    ARRAY(SELECT s.slot_id FROM easeml.slots s WHERE s.instance_id = i.instance_id ORDER BY s.slot_id) AS slot_ids,
    v.start_program, v.probe_program, v.stop_program, v.timeout_seconds, v.ready_seconds
FROM easeml.instances i LEFT JOIN easeml.provisioners v USING (provisioner)
WHERE i.status IN ('requested', 'ready', 'releasing') ORDER BY i.instance_id

-- name: request_instances
-- Instances are wanted.
SELECT easeml.request_instances(%(journal)s::jsonb) AS instance_id

-- name: bill_instance
-- The wait in the provider's queue is over.
UPDATE easeml.instances SET billed_from = coalesce(billed_from, clock_timestamp()) WHERE instance_id = %(instance_id)s
    AND status IN ('requested', 'releasing')
    AND easeml.holds_lease(%(lease_number)s)

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
