-- Policies and priors, and what the coordinator records when it opens and closes arms.

CREATE OR REPLACE FUNCTION easeml.list_policies(
    OUT policy text,
    OUT is_default boolean,
    OUT arm_rule text,
    OUT summary text
) RETURNS SETOF record LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.tenancy.policies import list_policies
from easeml_plpy.server.entry_points import guarded
return guarded(plpy, list_policies)
$$;
COMMENT ON FUNCTION easeml.list_policies() IS 'Lists the policies (internal: read easeml.policies).';

CREATE OR REPLACE FUNCTION easeml.list_priors(OUT prior text, OUT is_default boolean, OUT summary text)
RETURNS SETOF record LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.bandits.priors import list_priors
from easeml_plpy.server.entry_points import guarded
return guarded(plpy, list_priors)
$$;
COMMENT ON FUNCTION easeml.list_priors() IS 'Lists the priors (internal: read easeml.policies).';

CREATE OR REPLACE FUNCTION easeml.current_tenancy(OUT policy text, OUT prior text, OUT seed bigint) RETURNS record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(t.policy, 'robust'), coalesce(t.prior, 'auto'), coalesce(t.seed, 0) FROM (SELECT) d
    LEFT JOIN easeml.tenancy t ON true
$$;
COMMENT ON FUNCTION easeml.current_tenancy() IS 'Returns the policy, prior and seed in use.';

CREATE OR REPLACE FUNCTION easeml.set_policy(
    policy text,
    prior text DEFAULT NULL,
    seed bigint DEFAULT NULL,
    max_wait_seconds double precision DEFAULT NULL,
    default_max_runs integer DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM easeml.list_policies() p WHERE p.policy = set_policy.policy) THEN
        PERFORM easeml.fail('ML001', format('policy: there is no tenancy policy %s', quote_nullable(policy)),
            hint => (SELECT 'Choose one of: ' || string_agg(p.policy, ', ') || '.' FROM easeml.list_policies() p));
    ELSIF prior IS NOT NULL AND NOT EXISTS (SELECT FROM easeml.list_priors() p WHERE p.prior = set_policy.prior) THEN
        PERFORM easeml.fail('ML001', format('prior: there is no prior %s', quote_literal(prior)),
            hint => (SELECT 'Choose one of: ' || string_agg(p.prior, ', ') || '.' FROM easeml.list_priors() p));
    ELSIF NOT (max_wait_seconds > 0 AND max_wait_seconds <> 'NaN') THEN
        PERFORM easeml.fail('ML001', format('max_wait_seconds: expected a positive number, got %s', max_wait_seconds),
            hint => '''Infinity'' lets tenants wait for as long as arms of others take.');
    ELSIF default_max_runs <= 0 THEN
        PERFORM easeml.fail('ML001', format('default_max_runs: expected a positive number, got %s', default_max_runs));
    END IF;
    INSERT INTO easeml.tenancy DEFAULT VALUES ON CONFLICT DO NOTHING;
    UPDATE easeml.tenancy t SET policy = set_policy.policy, prior = coalesce(set_policy.prior, t.prior),
        seed = coalesce(set_policy.seed, t.seed),
        max_wait_seconds = coalesce(set_policy.max_wait_seconds, t.max_wait_seconds),
        default_max_runs = coalesce(set_policy.default_max_runs, t.default_max_runs),
        changed_at = clock_timestamp();
END
$$;
COMMENT ON FUNCTION easeml.set_policy(text, text, bigint, double precision, integer) IS
    'Sets the policy by which the coordinator chooses, from its next decision on, which run opens its next arm, '
    'and the prior of runs that begin later; easeml.policies lists both. max_wait_seconds: how long a tenant without '
    'a slot waits for arms of others (60 at first). default_max_runs: queued and running runs at a time of tenants '
    'without a row in easeml.tenants (100 at first). NULL leaves a setting as it is. Administrators only.';

CREATE OR REPLACE FUNCTION easeml.quality(metric text, metric_value double precision, r2 double precision)
RETURNS double precision LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    -- greatest and least ignore NULL, and treat NaN as the largest number.
    SELECT CASE WHEN q.value = 'NaN' THEN 0 WHEN q.value IS NOT NULL THEN greatest(0, least(1, q.value)) END
    -- exp(-746) is an error
    FROM (SELECT CASE WHEN metric IN ('rmse', 'mae', 'r2', 'mse', 'psnr') THEN r2
            WHEN metric = 'log_loss' THEN exp(-least(metric_value, 700)) ELSE metric_value END) q(value)
$$;
COMMENT ON FUNCTION easeml.quality(text, double precision, double precision) IS
    'Converts a validation metric to a quality from 0 to 1, the scale on which policies compare arms: a share stays as '
    'it is, log_loss becomes exp(-x), and rmse, mae, mse and psnr become their r2. NaN gives 0, NULL gives NULL.';

CREATE OR REPLACE FUNCTION easeml.open_arm(decision jsonb) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    chosen easeml.arms;
    number bigint;
BEGIN
    PERFORM easeml.fence(decision);
    SELECT a.* INTO chosen FROM easeml.arms a JOIN easeml.runs r USING (run_id)
    WHERE a.arm_id = (decision ->> 'arm_id')::bigint AND r.status IN ('queued', 'running') FOR UPDATE OF a SKIP LOCKED
        FOR SHARE OF r SKIP LOCKED;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003',
            format('arm %s is gone, its run is over, or somebody is at it', decision ->> 'arm_id'));
    ELSIF chosen.opening IS NOT NULL THEN
        PERFORM easeml.fail('ML006', format('arm %s was opened meanwhile', chosen.arm_id));
    END IF;
    INSERT INTO easeml.arm_openings (run_id, arm_id, tenant, policy, phase, opening_number, beta, mean, deviation,
        bound, cost, expected_seconds, best_quality,
        sig, gap, score, pending, n_runs, lease_number, history_weight)
    SELECT chosen.run_id, chosen.arm_id, chosen.tenant, o.policy, o.phase, o.opening_number, o.beta, o.mean,
        o.deviation, o.bound, o.cost, o.expected_seconds, o.best_quality,
        o.sig, o.gap, o.score, o.pending, o.n_runs, o.lease_number, o.history_weight
    FROM jsonb_to_record(decision) o(policy text, phase text, opening_number integer, beta float8, mean float8,
        deviation float8, bound float8, cost float8,
        expected_seconds float8, best_quality float8, sig float8, gap float8, score float8, pending bigint[],
        n_runs integer, lease_number bigint, history_weight float8)
    RETURNING decision_id INTO number;
    INSERT INTO easeml.arm_opening_candidates (decision_id, run_id, tenant, is_candidate, is_chosen, best_quality, sig,
        gap, score, decided_at, policy, phase,
        chosen_gap, chosen_score, n_runs)
    SELECT number, r.run_id, r.tenant, s.is_candidate, s.is_chosen, s.best_quality, s.sig, s.gap, s.score, d.decided_at,
        d.policy, d.phase, d.gap, d.score, d.n_runs
    FROM jsonb_to_recordset(decision -> 'standings') s(run_id bigint, is_candidate boolean, is_chosen boolean,
        best_quality float8, sig float8, gap float8, score float8)
    JOIN easeml.runs r USING (run_id) JOIN easeml.arm_openings d ON d.decision_id = number
    FOR NO KEY UPDATE OF r SKIP LOCKED;  -- the coordinator waits for no tenant that is about to drop a run
    INSERT INTO easeml.policy_memory AS m (policy, memory) VALUES (decision ->> 'policy', decision -> 'memory')
    ON CONFLICT (policy) DO UPDATE SET memory = excluded.memory, written_at = clock_timestamp();
    UPDATE easeml.arms a SET opening = number, opened_at = clock_timestamp(),
        bound = (decision ->> 'bound')::double precision WHERE a.arm_id = chosen.arm_id;
    RETURN number;
END
$$;
COMMENT ON FUNCTION easeml.open_arm(jsonb) IS
    'Records a decision and lets the arm''s trials run; refuses if the lease is stale or the run has ended (internal).';

CREATE OR REPLACE FUNCTION easeml.close_arm(arm_id bigint, lease_number bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fence(jsonb_build_object('lease_number', lease_number));
    PERFORM FROM easeml.arms a WHERE a.arm_id = close_arm.arm_id FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;  -- gone, or about to be
    END IF;
    UPDATE easeml.arms a SET closing = nextval(pg_get_serial_sequence('easeml.arm_openings', 'decision_id')),
        closed_at = clock_timestamp(),
        quality = coalesce((
            SELECT easeml.quality(r.metric, t.best_metric_value, m.value) FROM easeml.trials t
            JOIN easeml.runs r USING (run_id)
            LEFT JOIN easeml.metric_values m ON m.trial_id = t.trial_id
                AND m.epoch = t.best_epoch AND m.split = 'validation' AND m.metric = 'r2'
            WHERE t.arm_id = a.arm_id AND t.best_metric_value IS NOT NULL
            ORDER BY easeml.rank_key(t, r.is_higher_better) LIMIT 1), 0),
        cost_seconds = (
            SELECT coalesce(sum(extract(epoch FROM w.finished_at - w.started_at)), 0)::double precision
            FROM easeml.trials t CROSS JOIN LATERAL (
                SELECT u.started_at, u.finished_at FROM easeml.training_units u WHERE u.trial_id = t.trial_id
                UNION ALL SELECT e.started_at, e.finished_at FROM easeml.evaluations e WHERE e.trial_id = t.trial_id) w
            WHERE t.arm_id = a.arm_id)
    WHERE a.arm_id = close_arm.arm_id AND a.opening IS NOT NULL
        AND NOT EXISTS (SELECT FROM easeml.trials t WHERE t.arm_id = a.arm_id
            AND t.status IN ('waiting', 'running', 'paused'));
END
$$;
COMMENT ON FUNCTION easeml.close_arm(bigint, bigint) IS
    'Records the quality and cost of an arm whose trials have all ended: its best validation metric as a quality (0 if '
    'nothing was measured), and the seconds of its units (internal).';

CREATE OR REPLACE FUNCTION easeml.keep_beliefs(run_id bigint, beliefs jsonb, lease_number bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fence(jsonb_build_object('lease_number', lease_number));
    -- They follow from rows that are recorded already, so the commit need not wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO easeml.posteriors AS p (arm_id, run_id, tenant, mean, deviation, bound, cost, expected_seconds)
    SELECT a.arm_id, a.run_id, a.tenant, b.mean, b.deviation, b.bound, b.cost, b.expected_seconds
    FROM jsonb_to_recordset(beliefs) b(arm_id bigint, mean float8, deviation float8, bound float8,
        cost float8, expected_seconds float8)
    JOIN easeml.arms a USING (arm_id) WHERE a.run_id = keep_beliefs.run_id FOR KEY SHARE OF a SKIP LOCKED
    ON CONFLICT (arm_id) DO UPDATE SET mean = excluded.mean, deviation = excluded.deviation,
        bound = excluded.bound, cost = excluded.cost,
        expected_seconds = excluded.expected_seconds, updated_at = clock_timestamp();
END
$$;
COMMENT ON FUNCTION easeml.keep_beliefs(bigint, jsonb, bigint) IS 'Updates the beliefs about a run''s arms (internal).';
