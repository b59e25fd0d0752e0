-- What users do to a run after its start: cancel, resume, drop.

CREATE FUNCTION easeml.find_run(run_id bigint) RETURNS easeml.runs LANGUAGE plpgsql STABLE AS $$
DECLARE
    found easeml.runs;
BEGIN
    SELECT r.* INTO found FROM easeml.runs r WHERE r.run_id = find_run.run_id;
    IF found.run_id IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no run %s that you can see', coalesce(run_id::text, 'NULL')),
            hint => 'SELECT run_id, dataset_name, status FROM easeml.run_status lists your runs.');
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.find_run(bigint) IS 'Returns the run of that number, or raises an error if you cannot see it.';

CREATE FUNCTION easeml.cancel(run_id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    run easeml.runs := easeml.find_run(run_id);
BEGIN
    IF run.status NOT IN ('queued', 'running') THEN
        PERFORM easeml.fail('ML004', format('run %s is %s: only a queued or running run can be cancelled', run.run_id, run.status));
    END IF;
    UPDATE easeml.runs r SET status = 'cancelled', finished_at = clock_timestamp() WHERE r.run_id = run.run_id;
    UPDATE easeml.trials t SET status = 'cancelled' WHERE t.run_id = run.run_id AND t.status IN ('waiting', 'running', 'paused');
    INSERT INTO easeml.events (tenant, run_id, kind, message) VALUES (run.tenant, run.run_id, 'cancelled', 'cancelled by ' || current_user);
    PERFORM pg_notify('easeml_runs', run.run_id::text);
END
$$;
COMMENT ON FUNCTION easeml.cancel(bigint) IS 'Stops a run within a second. Recorded units stay, trials can still predict, and easeml.resume continues the run.';

CREATE FUNCTION easeml.resume(run_id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    run easeml.runs := easeml.find_run(run_id);
BEGIN
    IF run.status NOT IN ('cancelled', 'failed') THEN
        PERFORM easeml.fail('ML004', format('run %s is %s: only a cancelled or failed run can be resumed', run.run_id, run.status),
            hint => CASE WHEN run.status IN ('queued', 'running') AND NOT easeml.has_live_coordinator()
                THEN 'It goes on by itself as soon as a coordinator runs: easeml up, or easeml coordinator --dsn ...' END);
    END IF;
    UPDATE easeml.trials t SET status = CASE WHEN t.n_steps_done = 2 * t.target_epochs * d.n_partitions::bigint AND t.target_epochs < t.max_epochs THEN 'paused' ELSE 'waiting' END,
        failure_reason = NULL, finished_at = NULL
    FROM easeml.datasets d WHERE t.run_id = run.run_id AND t.status IN ('cancelled', 'failed') AND d.dataset_id = run.dataset_id;
    UPDATE easeml.runs r SET status = 'queued', started_at = NULL, finished_at = NULL, failure_reason = NULL WHERE r.run_id = run.run_id;
    INSERT INTO easeml.events (tenant, run_id, kind, message) VALUES (run.tenant, run.run_id, 'resumed', 'resumed by ' || current_user);
    PERFORM pg_notify('easeml_runs', run.run_id::text);
END
$$;
COMMENT ON FUNCTION easeml.resume(bigint) IS 'Continues a cancelled or failed run from its last recorded units. It tries failed trials again and starts max_seconds anew.';

CREATE FUNCTION easeml.drop_run(run_id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    run easeml.runs := easeml.find_run(run_id);
BEGIN
    IF run.status IN ('queued', 'running') THEN
        PERFORM easeml.cancel(run.run_id);
    END IF;
    DELETE FROM easeml.runs r WHERE r.run_id = run.run_id;
END
$$;
COMMENT ON FUNCTION easeml.drop_run(bigint) IS 'Removes a run with its trials, states and history. If the run is open, it cancels it first.';
