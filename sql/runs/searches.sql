-- The coordinator calls this with what a procedure decided about the trials of an arm.
-- A decision is {kind: start, trial_number, architecture, config, target_epochs, bracket, parent, inherited_epochs},
-- {kind: continue, trial_number, target_epochs} or {kind: stop, trial_number}; parent and trial_number are numbers
-- within the run.

CREATE OR REPLACE FUNCTION easeml.copy_state(from_trial easeml.trials, to_trial_id bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    copied_id bigint;
BEGIN
    INSERT INTO easeml.checkpoints (trial_id, tenant, epoch, n_bytes, sha256, state)
    SELECT to_trial_id, c.tenant, c.epoch, c.n_bytes, c.sha256, c.state FROM easeml.checkpoints c
    WHERE c.checkpoint_id = from_trial.checkpoint_id AND c.trial_id = from_trial.trial_id
    RETURNING checkpoint_id INTO copied_id;
    INSERT INTO easeml.checkpoint_chunks (checkpoint_id, tenant, chunk_number, bytes)
    SELECT copied_id, h.tenant, h.chunk_number, h.bytes FROM easeml.checkpoint_chunks h
    WHERE h.checkpoint_id = from_trial.checkpoint_id AND copied_id IS NOT NULL;
    RETURN copied_id;
END
$$;
COMMENT ON FUNCTION easeml.copy_state(easeml.trials, bigint) IS
    'Gives a trial a copy of another trial''s newest state; returns the new checkpoint, or NULL if '
    'there is no state (internal).';

CREATE OR REPLACE FUNCTION easeml.crash_of(run_id bigint, architecture text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('not tried, since trial %s has the same architecture: %s', e.trial_id, e.message)
    FROM easeml.events e JOIN easeml.trials t USING (trial_id)
    WHERE e.run_id = crash_of.run_id AND e.kind = 'crashed' AND t.architecture = crash_of.architecture
        AND e.happened_at > coalesce((SELECT max(r.happened_at) FROM easeml.events r WHERE r.run_id = e.run_id
            AND r.kind = 'resumed'), '-infinity') LIMIT 1
$$;
COMMENT ON FUNCTION easeml.crash_of(bigint, text) IS 'Returns why no further trial of an architecture is tried in a '
    'run: the server crashed during one, since the run was last resumed; NULL if it did not (internal).';

CREATE OR REPLACE FUNCTION easeml.apply_decisions(
    arm_id bigint,
    n_resumes integer,
    decisions jsonb,
    lease_number bigint
) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    arm easeml.arms;
    run easeml.runs;
    crash text;
    parent easeml.trials;
    decision record;
    numbers integer[];
    new_trial_id bigint;
    n_held bigint;
    n_partitions bigint;
    bytes bigint;
    pruned_bytes bigint := 0;
BEGIN
    PERFORM easeml.fence(jsonb_build_object('lease_number', lease_number));
    SELECT a.* INTO arm FROM easeml.arms a JOIN easeml.runs r USING (run_id)
    WHERE a.arm_id = apply_decisions.arm_id AND r.status IN ('queued', 'running')
        AND r.n_resumes = apply_decisions.n_resumes FOR SHARE OF a, r SKIP LOCKED;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003',
            format('arm %s is gone, its run is over or was resumed since, or somebody is at it', arm_id));
    END IF;
    -- The coordinator waits for no tenant that locks its trials: it decides about them later. No unit runs on a paused
    -- trial.
    numbers := ARRAY(SELECT d.number FROM jsonb_to_recordset(decisions) j(trial_number integer, parent integer)
        CROSS JOIN LATERAL (VALUES (j.trial_number), (j.parent)) d(number));
    SELECT count(*) INTO n_held FROM easeml.trials t WHERE t.run_id = arm.run_id AND t.arm_id = arm.arm_id
        AND t.status = 'paused' AND t.trial_number = ANY (numbers)
        AND t.trial_id NOT IN (SELECT w.trial_id FROM easeml.trials w WHERE w.run_id = arm.run_id
            AND w.arm_id = arm.arm_id AND w.status = 'paused' AND w.trial_number = ANY (numbers)
            FOR NO KEY UPDATE SKIP LOCKED);
    IF n_held > 0 THEN
        PERFORM easeml.fail('ML003', format('somebody is at %s trial(s) of arm %s', n_held, arm_id));
    END IF;
    SELECT r.* INTO run FROM easeml.runs r WHERE r.run_id = arm.run_id;
    SELECT d.n_partitions INTO n_partitions FROM easeml.datasets d WHERE d.dataset_id = run.dataset_id;
    FOR decision IN
        SELECT * FROM ROWS FROM (jsonb_to_recordset(decisions) AS (kind text, trial_number integer, architecture text,
                config jsonb, target_epochs integer,
            bracket integer, parent integer, inherited_epochs integer)) WITH ORDINALITY d ORDER BY d.ordinality
    LOOP
        IF decision.kind = 'start' THEN
            parent := NULL;
            IF decision.parent IS NOT NULL THEN
                SELECT t.* INTO parent FROM easeml.trials t WHERE t.run_id = run.run_id
                    AND t.trial_number = decision.parent
                    AND t.status = 'paused' AND t.n_steps_done = 2 * decision.inherited_epochs * n_partitions;
                IF NOT FOUND THEN
                    PERFORM easeml.fail('ML006', format('trial %s of run %s went on meanwhile and cannot be copied',
                            decision.parent, run.run_id));
                END IF;
            END IF;
            INSERT INTO easeml.trials (run_id, arm_id, tenant, trial_number, architecture, config, max_epochs,
                target_epochs, bracket, parent_trial_id, inherited_epochs, n_steps_done)
            VALUES (run.run_id, arm.arm_id, arm.tenant, decision.trial_number, decision.architecture, decision.config,
                run.max_epochs, decision.target_epochs, coalesce(decision.bracket, 0),
                parent.trial_id, coalesce(decision.inherited_epochs, 0),
                2 * coalesce(decision.inherited_epochs, 0) * n_partitions)
            ON CONFLICT DO NOTHING RETURNING trial_id INTO new_trial_id;
            IF new_trial_id IS NULL THEN
                PERFORM easeml.fail('ML006',
                    format('trial %s of run %s was started meanwhile', decision.trial_number, run.run_id));
            ELSIF parent.trial_id IS NOT NULL THEN
                UPDATE easeml.trials t SET checkpoint_id = easeml.copy_state(parent, new_trial_id)
                WHERE t.trial_id = new_trial_id;
            END IF;
            crash := easeml.crash_of(run.run_id, decision.architecture);
            IF crash IS NOT NULL THEN
                UPDATE easeml.trials t SET status = 'failed', failure_reason = crash, finished_at = clock_timestamp()
                WHERE t.trial_id = new_trial_id;
            END IF;
        ELSIF decision.kind = 'continue' THEN
            UPDATE easeml.trials t SET status = 'waiting', target_epochs = decision.target_epochs
            WHERE t.run_id = arm.run_id AND t.arm_id = arm.arm_id AND t.trial_number = decision.trial_number
                AND t.status = 'paused' AND t.target_epochs < decision.target_epochs;
            IF NOT FOUND THEN
                PERFORM easeml.fail('ML006',
                    format('trial %s of run %s does not wait to go on', decision.trial_number, run.run_id));
            END IF;
        ELSE
            -- A stopped trial never trains again, so only the state of its best epoch is kept.
            WITH stopped AS (
                UPDATE easeml.trials t SET status = 'stopped', finished_at = clock_timestamp(),
                    checkpoint_id = t.best_checkpoint_id
                FROM easeml.trials before WHERE before.trial_id = t.trial_id AND t.run_id = arm.run_id
                    AND t.arm_id = arm.arm_id AND t.trial_number = decision.trial_number AND t.status = 'paused'
                RETURNING before.checkpoint_id, t.best_checkpoint_id
            ), pruned AS (
                DELETE FROM easeml.checkpoints c USING stopped s WHERE c.checkpoint_id = s.checkpoint_id
                    AND c.checkpoint_id IS DISTINCT FROM s.best_checkpoint_id
                RETURNING c.n_bytes
            )
            SELECT p.n_bytes INTO bytes FROM stopped LEFT JOIN pruned p ON true;
            IF NOT FOUND THEN
                PERFORM easeml.fail('ML006',
                    format('trial %s of run %s does not wait to be stopped', decision.trial_number, run.run_id));
            END IF;
            pruned_bytes := pruned_bytes + coalesce(bytes, 0);
        END IF;
    END LOOP;
    RETURN pruned_bytes;
END
$$;
COMMENT ON FUNCTION easeml.apply_decisions(bigint, integer, jsonb, bigint) IS
    'Starts, continues and stops trials of an arm as its procedure decided, all or none. Refuses if the '
    'lease is stale, or if the run was resumed or a trial has moved on since the decision. Returns the bytes of the '
    'states that it pruned (internal).';
