-- Whose turn it is, arms, and what is believed of architectures.

-- name: tenancy
-- How tenants are served.
SELECT t.policy, t.prior, t.seed, coalesce((SELECT y.max_wait_seconds FROM easeml.tenancy y), 60) AS max_wait_seconds
FROM easeml.current_tenancy() t

-- name: tenants
-- Terms of the tenants that have any.
SELECT tenant::text AS name, weight, extract(epoch FROM deadline)::double precision AS deadline_seconds,
    max_slots FROM easeml.tenants

-- name: history
-- Results of closed arms of the newest runs, if every trial ran to its end or was stopped by its procedure; an arm that
-- was cut short says little about quality or cost. Of 500 runs each tenant has as many as any other that has them:
-- nobody teaches priors alone.
SELECT a.run_id, d.task, a.architecture || CASE a.augmentation WHEN 'none' THEN ''
    ELSE '+' || a.augmentation END AS name, a.quality, a.cost_seconds,
    n.n_epochs::double precision * p.n_rows::double precision AS work
FROM easeml.arms a JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
CROSS JOIN LATERAL (SELECT greatest(sum(t.n_steps_done / (2 * d.n_partitions::bigint) - t.inherited_epochs),
        1) AS n_epochs,
    coalesce(bool_and(t.n_steps_done = (2 * t.max_epochs + 1) * d.n_partitions::bigint OR r.search IS NOT NULL
            AND t.status = 'stopped' AND t.failure_reason IS NULL), false) AS is_complete
    FROM easeml.trials t WHERE t.arm_id = a.arm_id) n
CROSS JOIN LATERAL (SELECT greatest(sum(c.n_train_rows), 1) AS n_rows FROM easeml.partitions c
    WHERE c.dataset_id = r.dataset_id) p
WHERE a.closing IS NOT NULL AND n.is_complete AND a.run_id IN (SELECT w.run_id FROM (
    SELECT o.run_id, row_number() OVER (PARTITION BY o.tenant ORDER BY o.run_id DESC) AS place
    FROM easeml.runs o) w ORDER BY w.place, w.run_id DESC LIMIT 500)
ORDER BY a.run_id, a.arm_id

-- name: policy_memory
-- What the policy wrote down with its last decision.
SELECT memory FROM easeml.policy_memory WHERE policy = %(policy)s

-- name: read_prior
-- What was believed of a run's arms beforehand.
SELECT run_id, prior AS name, link, degrees_of_freedom, noise_variance, mean, covariance, fitted FROM easeml.priors
WHERE run_id = ANY (%(run_ids)s)

-- name: keep_priors
-- The first prior of a run stays. The commit does not wait for the disk: a later opening of an arm does, and with it
-- everything written before.
INSERT INTO easeml.priors (run_id, tenant, prior, link, degrees_of_freedom, noise_variance,
    mean, covariance, fitted, arm_ids)
SELECT r.run_id, r.tenant, p.prior, p.link, p.degrees_of_freedom, p.noise_variance, p.mean,
    p.covariance, p.fitted, p.arm_ids
FROM jsonb_to_recordset(%(priors)s::jsonb) p(run_id bigint, prior text, link text, degrees_of_freedom float8,
    noise_variance float8, mean float8[], covariance float8[], fitted jsonb, arm_ids bigint[])
JOIN easeml.runs r USING (run_id)
WHERE easeml.holds_lease(%(lease_number)s) AND set_config('synchronous_commit', 'off', true) = 'off'
    FOR NO KEY UPDATE OF r SKIP LOCKED ON CONFLICT DO NOTHING

-- name: open_arm
-- A decision.
SELECT easeml.open_arm(%(opening)s::jsonb) AS opening

-- name: close_arm
-- The result of an arm.
SELECT easeml.close_arm(%(arm_id)s, %(lease_number)s)

-- name: close_arms
-- All open arms of a run that ends.
SELECT easeml.close_arm(a.arm_id, %(lease_number)s) FROM easeml.arms a WHERE a.run_id = %(run_id)s
    AND a.opening IS NOT NULL AND a.closing IS NULL

-- name: charge
-- Slot seconds of units that failed or were cancelled.
SELECT easeml.charge(%(tenant)s, %(seconds)s) AS tenant

-- name: keep_beliefs
-- What is believed of the arms of runs now.
SELECT easeml.keep_beliefs(b.run_id, b.beliefs, %(lease_number)s)
FROM jsonb_to_recordset(%(beliefs)s::jsonb) b(run_id bigint, beliefs jsonb)
