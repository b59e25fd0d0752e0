-- Waiting for the end of a run.

CREATE OR REPLACE PROCEDURE easeml.commit_first(message text, call text, INOUT failure jsonb) LANGUAGE plpython3u AS $$
from easeml_plpy.server.transactions import commit_first
return commit_first(plpy, GD, message, call, failure)
$$;
COMMENT ON PROCEDURE easeml.commit_first(text, text, jsonb) IS
    'Commits, or returns the error that a routine which commits was called inside a transaction (internal).';

CREATE OR REPLACE PROCEDURE easeml.rest(seconds double precision) LANGUAGE plpython3u AS $$
from easeml_plpy.server.transactions import rest
return rest(plpy, GD, seconds)
$$;
COMMENT ON PROCEDURE easeml.rest(double precision) IS
    'Commits, then sleeps for half a second at most, without a snapshot: PL/pgSQL would hold one while it sleeps, and '
    'while a snapshot is held, vacuum cannot remove row versions that are newer (internal).';

CREATE OR REPLACE PROCEDURE easeml.wait(run_id bigint, timeout_seconds double precision DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
    run easeml.runs;
    n_total bigint;
    n_done bigint;
    shown text;
    seen text;
    sentence text;
    started timestamptz := pg_catalog.clock_timestamp();
    failure jsonb;
BEGIN
    -- A procedure that commits can have no setting of its own, and a commit ends this one.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    run := easeml.find_run(run_id);
    IF NOT (timeout_seconds > 0 AND timeout_seconds < 'Infinity') THEN
        PERFORM easeml.fail('ML001',
            format('timeout_seconds: expected a positive number or NULL, got %s', timeout_seconds),
            hint => 'NULL, the default, waits for as long as it takes.');
    END IF;
    CALL easeml.commit_first('easeml.wait can never see progress inside an open transaction',
        'CALL easeml.wait(run_id)', failure);
    PERFORM easeml.raise_failure(failure);
    LOOP
        COMMIT;
        PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
        SELECT r.* INTO run FROM easeml.runs r WHERE r.run_id = wait.run_id;
        IF NOT FOUND THEN
            PERFORM easeml.fail('ML003', format('run %s was dropped meanwhile', run_id));
        END IF;
        SELECT s.n_units_done, s.n_units INTO n_done, n_total FROM easeml.run_status s WHERE s.run_id = run.run_id;
        seen := format('run %s: %s, %s of %s units', run.run_id, run.status, n_done, n_total);
        IF seen <> shown OR shown IS NULL THEN
            RAISE NOTICE '%', seen;
            shown := seen;
        END IF;
        IF run.status = 'finished' THEN
            FOR sentence IN SELECT s FROM easeml.run_summary(run.run_id) s LOOP
                RAISE NOTICE '%', sentence;
            END LOOP;
        END IF;
        EXIT WHEN run.status IN ('finished', 'failed', 'cancelled');
        IF NOT easeml.has_live_coordinator() AND clock_timestamp() > started + interval '15 seconds' THEN
            PERFORM easeml.fail('ML010', format('no coordinator is running, so run %s cannot go on', run_id),
                hint => 'Start one from a shell: easeml up, or easeml coordinator --dsn ...; '
                    'the run resumes by itself.');
        END IF;
        IF clock_timestamp() > started + timeout_seconds * interval '1 second' THEN
            PERFORM easeml.fail('ML010',
                format('run %s is still %s after %s seconds', run_id, run.status, timeout_seconds));
        END IF;
        CALL easeml.rest(least(0.5, timeout_seconds));
    END LOOP;
END
$$;
COMMENT ON PROCEDURE easeml.wait(bigint, double precision) IS
    'Waits until a run has ended. It shows progress, and at the end a summary, as notices: CALL easeml.wait(1). '
    'It is a procedure because a function would never see what others commit meanwhile. timeout_seconds: '
    'raise an error after that time.';
