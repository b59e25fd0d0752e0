-- The end of a run's search: whatever stopped the best trial, it is tested.

CREATE OR REPLACE FUNCTION easeml.add_ensemble(run easeml.runs) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ensemble_arm_id bigint;
BEGIN
    IF run.procedure <> 'race' OR run.procedure_options ->> 'ensemble' = 'false'
        OR EXISTS (SELECT FROM easeml.datasets d WHERE d.dataset_id = run.dataset_id
            AND d.encoder #> '{target,shape}' IS NOT NULL)
        OR (SELECT count(*) < 2 FROM easeml.trials t WHERE t.run_id = run.run_id AND t.best_metric_value IS NOT NULL)
        OR EXISTS (SELECT FROM easeml.datasets d WHERE d.dataset_id = run.dataset_id
            AND easeml.apart_reason(d) IS NOT NULL) THEN
        RETURN false;
    END IF;
    INSERT INTO easeml.arms (run_id, tenant, architecture) VALUES (run.run_id, run.tenant, 'ensemble')
    RETURNING arm_id INTO ensemble_arm_id;
    INSERT INTO easeml.trials (run_id, arm_id, tenant, trial_number, architecture, config, max_epochs)
    SELECT run.run_id, ensemble_arm_id, run.tenant, max(t.trial_number) + 1, 'ensemble', '{}', 1 FROM easeml.trials t
    WHERE t.run_id = run.run_id;
    RETURN true;
END
$$;
COMMENT ON FUNCTION easeml.add_ensemble(easeml.runs) IS
    'Adds a trial to a race that is ending: the ensemble of its best trials. It adds none if none is wanted, if the '
    'outputs are tensors, or if no segment can have all partitions. Returns whether it did (internal).';

CREATE OR REPLACE FUNCTION easeml.composition(trial_id bigint) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- Members that differ help, and so do many good ones: trial k of the architecture that is j-th by its best trial
    -- counts j k, and those that count least are taken, so of the best architecture about half of all. Twelve at most,
    -- of 64 MB at most each.
    WITH ranked AS (
        SELECT t.trial_id, t.trial_number, t.architecture, t.config, t.best_epoch, s.checkpoint_id, s.n_bytes, s.sha256,
            row_number() OVER (ORDER BY easeml.rank_key(t, r.is_higher_better)) AS standing
        FROM easeml.trials e JOIN easeml.runs r USING (run_id) JOIN easeml.trials t USING (run_id)
        JOIN easeml.checkpoints s ON s.checkpoint_id = t.best_checkpoint_id
        WHERE e.trial_id = composition.trial_id AND t.trial_id <> e.trial_id
            AND t.best_metric_value IS NOT NULL AND s.n_bytes <= 67108864
    ), placed AS (
        SELECT k.*, row_number() OVER own AS place, min(k.standing) OVER own AS best FROM ranked k
        WINDOW own AS (PARTITION BY k.architecture ORDER BY k.standing)
    )
    SELECT jsonb_build_object('metric', r.metric, 'is_refit_wanted',
        coalesce(r.procedure_options ->> 'refit', 'true') = 'true', 'reading_seconds', coalesce(d.packing_seconds, 0),
        'seconds_left', r.max_seconds - extract(epoch FROM clock_timestamp() - r.started_at)::float8,
        'candidates',
        (SELECT coalesce(jsonb_agg(jsonb_build_object('trial_id', c.trial_id, 'trial_number', c.trial_number,
                        'architecture', c.architecture, 'config', c.config, 'checkpoint_id', c.checkpoint_id,
                'n_bytes', c.n_bytes, 'sha256', c.sha256, 'n_epochs', c.best_epoch, 'training_seconds',
                (SELECT coalesce(sum(u.training_seconds), 0) FROM easeml.training_units u WHERE u.trial_id = c.trial_id
                    AND u.epoch <= c.best_epoch)) ORDER BY c.place, c.trial_number), '[]')
            FROM (SELECT p.* FROM placed p ORDER BY p.place * (SELECT count(*) FROM placed h
                    WHERE h.place = 1 AND h.best <= p.best), p.standing LIMIT 12) c))
    FROM easeml.trials e JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
    WHERE e.trial_id = composition.trial_id
$$;
COMMENT ON FUNCTION easeml.composition(bigint) IS 'Returns the trials of which an ensemble can be made, with their '
    'best states, and the time that its run has left to train members again (internal).';

CREATE OR REPLACE FUNCTION easeml.begin_ending(run_id bigint, lease_number bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs;
    best easeml.trials;
    n_partitions bigint;
    is_untested boolean;
BEGIN
    IF NOT easeml.holds_lease(lease_number) THEN
        RETURN false;
    END IF;
    SELECT r.* INTO run FROM easeml.runs r WHERE r.run_id = begin_ending.run_id AND r.status IN ('queued', 'running')
        AND NOT r.is_ending FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT d.n_partitions INTO n_partitions FROM easeml.datasets d WHERE d.dataset_id = run.dataset_id;
    SELECT t.* INTO best FROM easeml.trials t WHERE t.run_id = run.run_id AND t.best_metric_value IS NOT NULL
    ORDER BY easeml.rank_key(t, run.is_higher_better) LIMIT 1;
    is_untested := FOUND AND best.status IN ('waiting', 'running', 'paused', 'stopped');
    IF NOT FOUND OR NOT (easeml.add_ensemble(run) OR is_untested) THEN
        RETURN false;
    END IF;
    UPDATE easeml.runs r SET is_ending = true WHERE r.run_id = run.run_id;
    PERFORM easeml.lock_trials(run.run_id);
    UPDATE easeml.trials t SET status = 'stopped', finished_at = clock_timestamp(),
        failure_reason = 'the run ended before this trial'
    WHERE t.run_id = run.run_id AND t.trial_id <> best.trial_id AND t.architecture <> 'ensemble'
        AND t.status IN ('waiting', 'running', 'paused');
    IF NOT is_untested THEN
        RETURN true;
    END IF;
    -- Its life ends after the epochs that it has; units of an epoch that is not complete stay in the log. The test
    -- takes the state of its best epoch.
    UPDATE easeml.trials t SET status = CASE best.status WHEN 'running' THEN 'running' ELSE 'waiting' END,
        finished_at = NULL, failure_reason = NULL, target_epochs = NULL, checkpoint_id = best.best_checkpoint_id,
        max_epochs = best.n_steps_done / (2 * n_partitions),
        n_steps_done = best.n_steps_done / (2 * n_partitions) * 2 * n_partitions
    WHERE t.trial_id = best.trial_id;
    -- Within an epoch on nodes it has two others: the newest, and the one that the epoch began with.
    DELETE FROM easeml.checkpoints c WHERE c.trial_id = best.trial_id AND c.checkpoint_id <> best.best_checkpoint_id;
    RETURN true;
END
$$;
COMMENT ON FUNCTION easeml.begin_ending(bigint, bigint) IS
    'Ends the search of a run: stops its trials, cuts the best one short so that only its test is left, and adds an '
    'ensemble to a race. Returns whether anything is left to do (internal).';

CREATE OR REPLACE FUNCTION easeml.drop_vain_ensemble(run_id bigint, lease_number bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM easeml.arms a USING easeml.runs r
    WHERE r.run_id = drop_vain_ensemble.run_id AND a.run_id = r.run_id AND a.architecture = 'ensemble'
        AND easeml.holds_lease(drop_vain_ensemble.lease_number)
        AND r.run_id = (SELECT w.run_id FROM easeml.runs w WHERE w.run_id = r.run_id AND w.status = 'running'
            FOR NO KEY UPDATE SKIP LOCKED)
        AND EXISTS (SELECT FROM easeml.trials e WHERE e.arm_id = a.arm_id AND e.best_metric_value IS NOT NULL
            AND NOT EXISTS (SELECT FROM easeml.deployments p WHERE p.trial_id = e.trial_id) FOR UPDATE SKIP LOCKED)
        -- A member that was trained again is better than its validation metric shows: then the metric decides alone.
        AND NOT EXISTS (SELECT FROM easeml.trials e
            CROSS JOIN LATERAL (SELECT easeml.rank_key(e, r.is_higher_better) AS rank_key,
                jsonb_path_exists(e.config, '$.members[*].refit_epochs') AS is_refit) o
            WHERE e.arm_id = a.arm_id AND NOT EXISTS (
                SELECT FROM easeml.trials t
                CROSS JOIN LATERAL (SELECT easeml.rank_key(t, r.is_higher_better) AS rank_key) k
                WHERE t.run_id = r.run_id AND t.trial_id <> e.trial_id
                    AND CASE WHEN o.is_refit THEN k.rank_key[:1] < o.rank_key[:1]
                        ELSE k.rank_key[:2] <= o.rank_key[:2] END));
END
$$;
COMMENT ON FUNCTION easeml.drop_vain_ensemble(bigint, bigint) IS 'Removes the ensemble of a run that is ending if a '
    'single trial is as good on the validation rows, unless it is deployed or being deployed (internal).';
