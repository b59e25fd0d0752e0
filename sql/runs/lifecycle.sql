-- What users do to a run after its start: cancel, resume, drop.

CREATE OR REPLACE FUNCTION easeml.fail_run(run_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fail('ML003', format('there is no run %s that you can see', coalesce(run_id::text, 'NULL')),
        hint => 'SELECT run_id, dataset_name, status FROM easeml.run_status lists your runs.');
END
$$;
COMMENT ON FUNCTION easeml.fail_run(bigint) IS 'Raises the error that there is no such run (internal).';

CREATE OR REPLACE FUNCTION easeml.find_run(run_id bigint) RETURNS easeml.runs
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.runs;
BEGIN
    SELECT r.* INTO found FROM easeml.runs r WHERE r.run_id = find_run.run_id;
    IF found.run_id IS NULL THEN
        PERFORM easeml.fail_run(run_id);
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.find_run(bigint) IS
    'Returns the run of that number, or raises an error if you cannot see it.';

CREATE OR REPLACE FUNCTION easeml.cancel(run_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('cancel', jsonb_build_object('run_id', run_id));
END
$$;
COMMENT ON FUNCTION easeml.cancel(bigint) IS
    'Stops a run within a second. Recorded units stay, trials can still predict, and easeml.resume continues the run.';

CREATE OR REPLACE FUNCTION easeml.resume(run_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('resume', jsonb_build_object('run_id', run_id));
END
$$;
COMMENT ON FUNCTION easeml.resume(bigint) IS 'Continues a cancelled or failed run from its last recorded units. It '
    'tries failed trials again and starts max_seconds and its deadline anew.';

CREATE OR REPLACE FUNCTION easeml.drop_run(run_id bigint, force boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('drop_run', jsonb_build_object('run_id', run_id, 'force', force));
END
$$;
COMMENT ON FUNCTION easeml.drop_run(bigint, boolean) IS
    'Removes a run with its trials, states and history. If the run is open, it cancels it first. Refuses if one of its '
    'trials answers for the dataset (easeml.serving), unless force => true; then the best of the others answers.';

-- With the rights of easeml_owner, behind easeml.requests, for a proven caller.

CREATE OR REPLACE FUNCTION easeml.run_of(caller name, asker name, run_id bigint) RETURNS easeml.runs
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs := easeml.find_run(run_id);
BEGIN
    IF run.tenant <> asker AND NOT easeml.is_administrator(caller) THEN
        PERFORM easeml.fail_run(run_id);
    END IF;
    RETURN run;
END
$$;
COMMENT ON FUNCTION easeml.run_of(name, name, bigint) IS 'Returns the run of that number, or raises an error unless it '
    'is the tenant''s or the caller is an administrator (internal).';

CREATE OR REPLACE FUNCTION easeml.lock_run(caller name, asker name, run_id bigint) RETURNS easeml.runs
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs := easeml.run_of(caller, asker, run_id);
BEGIN
    -- Read again once no other transaction can change it. The run is locked before its trials, as everywhere: in
    -- another order two transactions could deadlock.
    SELECT r.* INTO run FROM easeml.runs r WHERE r.run_id = lock_run.run_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM easeml.fail_run(run_id);
    END IF;
    RETURN run;
END
$$;
COMMENT ON FUNCTION easeml.lock_run(name, name, bigint) IS
    'Returns a run as easeml.run_of does, and locks it until the transaction ends (internal).';

CREATE OR REPLACE FUNCTION easeml.note_run(run easeml.runs, kind text, caller name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO easeml.events (tenant, run_id, kind, message)
    VALUES (run.tenant, run.run_id, note_run.kind, format('%s by %s', note_run.kind, caller));
    -- Cancelling and resuming in turn must not fill the disk.
    DELETE FROM easeml.events e WHERE e.run_id = run.run_id AND e.kind IN ('cancelled', 'resumed') AND e.event_id <= (
        SELECT o.event_id FROM easeml.events o WHERE o.run_id = run.run_id
            AND o.kind IN ('cancelled', 'resumed') ORDER BY o.event_id DESC OFFSET 200 LIMIT 1);
END
$$;
COMMENT ON FUNCTION easeml.note_run(easeml.runs, text, name) IS
    'Adds a change of a run to its history, which keeps the last 200 cancels and resumes (internal).';

CREATE OR REPLACE FUNCTION easeml.lock_trials(run_id bigint) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT FROM easeml.trials t WHERE t.run_id = lock_trials.run_id
        AND t.status <> 'finished' ORDER BY t.trial_id FOR NO KEY UPDATE;
$$;
COMMENT ON FUNCTION easeml.lock_trials(bigint) IS
    'Locks the unfinished trials of a run in the order of their numbers, in which a batch also records its members. A '
    'transaction that changed several in another order could deadlock with a batch (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_cancel(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs := easeml.lock_run(caller, asker, (arguments ->> 'run_id')::bigint);
BEGIN
    IF run.status NOT IN ('queued', 'running') THEN
        PERFORM easeml.fail('ML004',
            format('run %s is %s: only a queued or running run can be cancelled', run.run_id, run.status),
            hint => CASE run.status WHEN 'cancelled' THEN 'easeml.resume goes on with it, easeml.drop_run removes it.'
                ELSE 'There is nothing to stop; easeml.drop_run removes it.' END);
    END IF;
    UPDATE easeml.runs r SET status = 'cancelled', finished_at = clock_timestamp() WHERE r.run_id = run.run_id;
    PERFORM easeml.lock_trials(run.run_id);
    UPDATE easeml.trials t SET status = 'cancelled' WHERE t.run_id = run.run_id
        AND t.status IN ('waiting', 'running', 'paused');
    PERFORM easeml.note_run(run, 'cancelled', caller);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_cancel(name, name, jsonb) IS 'Cancels a run for easeml.cancel (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_resume(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs := easeml.lock_run(caller, asker, (arguments ->> 'run_id')::bigint);
BEGIN
    IF run.status NOT IN ('cancelled', 'failed') THEN
        PERFORM easeml.fail('ML004',
            format('run %s is %s: only a cancelled or failed run can be resumed', run.run_id, run.status),
            hint => CASE WHEN run.status IN ('queued', 'running') AND NOT easeml.has_live_coordinator()
                THEN 'It goes on by itself as soon as a coordinator runs: easeml up, or easeml coordinator --dsn ...'
                WHEN run.status = 'finished'
                    THEN 'Start another with more time: easeml.select_models(dataset, max_seconds => 600).'
                    ELSE 'It goes on by itself.' END);
    END IF;
    PERFORM easeml.check_run_limits(caller, run.tenant, run.n_configs);
    PERFORM easeml.lock_trials(run.run_id);
    UPDATE easeml.trials t SET status = CASE WHEN t.n_steps_done = 2 * t.target_epochs * d.n_partitions::bigint
        AND t.target_epochs < t.max_epochs THEN 'paused' ELSE 'waiting' END,
        failure_reason = NULL, finished_at = NULL
    FROM easeml.datasets d WHERE t.run_id = run.run_id AND t.status IN ('cancelled', 'failed')
        AND d.dataset_id = run.dataset_id;
    UPDATE easeml.runs r SET status = 'queued', n_resumes = r.n_resumes + 1, started_at = NULL,
        finished_at = NULL, failure_reason = NULL,
        deadline = clock_timestamp() + make_interval(secs => r.deadline_seconds) WHERE r.run_id = run.run_id;
    PERFORM easeml.note_run(run, 'resumed', caller);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_resume(name, name, jsonb) IS 'Continues a run for easeml.resume (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_drop_run(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs := easeml.run_of(caller, asker, (arguments ->> 'run_id')::bigint);
    name text := (SELECT d.dataset_name FROM easeml.datasets d WHERE d.dataset_id = run.dataset_id);
    answering record;
BEGIN
    PERFORM easeml.lock_serving(run.tenant, name);
    run := easeml.lock_run(caller, asker, run.run_id);
    SELECT a.* INTO answering FROM easeml.answering a WHERE a.tenant = run.tenant
        AND a.dataset_name = name AND a.run_id = run.run_id;
    IF FOUND AND (arguments ->> 'force')::boolean IS NOT TRUE THEN
        PERFORM easeml.fail('ML004', format('run %s has trial %s, which answers for dataset %s', run.run_id,
                answering.trial_id, quote_literal(name)),
            hint => format('Deploy a trial of another run first, or drop it all the same: SELECT easeml.drop_run(%s, '
                'force => true).', run.run_id));
    END IF;
    IF run.status IN ('queued', 'running') THEN
        PERFORM easeml.perform_cancel(caller, asker, arguments);
    END IF;
    DELETE FROM easeml.runs r WHERE r.run_id = run.run_id;
    PERFORM easeml.note_serving(run.tenant, name, 'dropped');
    -- Without runs a dataset is as new: its next run sets the metric, unless a user has.
    DELETE FROM easeml.serving_metrics m WHERE m.tenant = run.tenant AND m.dataset_name = name AND NOT m.is_chosen
        AND NOT EXISTS (SELECT FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) WHERE d.tenant = m.tenant
            AND d.dataset_name = m.dataset_name);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_drop_run(name, name, jsonb) IS 'Removes a run for easeml.drop_run (internal).';
