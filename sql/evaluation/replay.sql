-- Training a trial again along the stored visit order, to check that the same bytes result. Nothing is written.

-- Everybody may call it, and so do the routines below, which tenants may call as well.
CREATE OR REPLACE FUNCTION easeml.check_replay_options(
    trial_id bigint,
    device text,
    n_threads integer,
    until_epoch integer
) RETURNS void LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM easeml.trials t WHERE t.trial_id = check_replay_options.trial_id) THEN
        PERFORM easeml.fail('ML003', format('there is no trial %s that you can see', coalesce(trial_id::text, 'NULL')),
            hint => 'SELECT trial_id FROM easeml.leaderboard lists them.');
    END IF;
    PERFORM easeml.refuse_rows_elsewhere(d, 'a replay in this session') FROM easeml.trials t JOIN easeml.runs r
        USING (run_id) JOIN easeml.datasets d USING (dataset_id) WHERE t.trial_id = check_replay_options.trial_id;
    IF device IS NULL OR device !~ '^(cpu|cuda:[0-9]+)$' THEN
        PERFORM easeml.fail('ML001', format('device: expected cpu or cuda:N, got %s', quote_nullable(device)),
            hint => 'cuda:0 is the first GPU of the server.');
    ELSIF n_threads IS NULL OR n_threads NOT BETWEEN 1 AND 1024 THEN
        PERFORM easeml.fail('ML001',
            format('n_threads: expected 1 to 1024, got %s', coalesce(n_threads::text, 'NULL')));
    ELSIF until_epoch < 1 THEN
        PERFORM easeml.fail('ML001', format('until_epoch: expected at least 1, or NULL for all, got %s', until_epoch));
    ELSIF NOT EXISTS (SELECT FROM easeml.training_units u WHERE u.trial_id = check_replay_options.trial_id)
        AND EXISTS (SELECT FROM easeml.trials t WHERE t.trial_id = check_replay_options.trial_id
            AND t.training_seconds IS NOT NULL) THEN
        PERFORM easeml.fail('ML010', format('the training units of trial %s were old, and were removed', trial_id),
            hint => 'Those of the best trial of a run and of trials that answer are kept: easeml.retention.');
    ELSIF NOT EXISTS (SELECT FROM easeml.training_units u WHERE u.trial_id = check_replay_options.trial_id)
        AND NOT EXISTS (SELECT FROM easeml.trials t WHERE t.trial_id = check_replay_options.trial_id
            AND t.parent_trial_id IS NOT NULL) THEN
        PERFORM easeml.fail('ML010', format('trial %s has no recorded training unit yet', trial_id), hint => 'Wait for '
            'its first epoch. If its run was cancelled or has failed, go on with it: SELECT easeml.resume(run_id).');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_replay_options(bigint, text, integer, integer) IS
    'Refuses arguments of easeml.replay that no replay can have, and a trial without units '
    'that you can see (internal).';

CREATE OR REPLACE FUNCTION easeml.check_replay(
    trial_id bigint,
    device text,
    until_epoch integer,
    OUT n_partitions bigint,
    OUT failure jsonb
) LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.units.replay import check_replay
return check_replay(plpy, GD, trial_id, device, until_epoch)
$$;
COMMENT ON FUNCTION easeml.check_replay(bigint, text, integer) IS
    'Refuses a device that does not exist, a trial that a gang trained, and packed training rows that differ from '
    'those that the trial trained on. Returns the number of partitions that it compared, or an error (internal).';

CREATE OR REPLACE PROCEDURE easeml.replay_units(
    trial_id bigint,
    device text,
    n_threads integer,
    until_epoch integer,
    INOUT result jsonb DEFAULT NULL
) LANGUAGE plpython3u AS $$
from easeml_plpy.units.replay import replay_units
return replay_units(plpy, GD, trial_id, device, n_threads, until_epoch, result)
$$;
COMMENT ON PROCEDURE easeml.replay_units(bigint, text, integer, integer, jsonb) IS
    'Trains a trial again unit by unit and compares the states (internal: use easeml.replay).';

CREATE OR REPLACE PROCEDURE easeml.replay(
    trial_id bigint,
    device text DEFAULT 'cpu',
    n_threads integer DEFAULT 1,
    until_epoch integer DEFAULT NULL,
    INOUT result jsonb DEFAULT NULL
) LANGUAGE plpgsql AS $$
DECLARE
    failure jsonb;
BEGIN
    -- A procedure that commits can have no setting of its own.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    IF EXISTS (SELECT FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
        WHERE t.trial_id = replay.trial_id AND d.shuffle IS NOT NULL) THEN
        CALL easeml.ask_nodes('replay', jsonb_build_object('trial_id', trial_id, 'device', device, 'n_threads',
                n_threads, 'until_epoch', until_epoch), result);
        RETURN;
    END IF;
    PERFORM easeml.check_replay_options(trial_id, device, n_threads, until_epoch);
    CALL easeml.commit_first('easeml.replay commits between units, so it cannot run inside an open transaction',
        'CALL easeml.replay(trial_id)', failure);
    PERFORM easeml.raise_failure(failure);
    PERFORM easeml.raise_failure(c.failure) FROM easeml.check_replay(trial_id, device, until_epoch) c;
    CALL easeml.replay_units(trial_id, device, n_threads, until_epoch, result);
END
$$;
COMMENT ON PROCEDURE easeml.replay(bigint, text, integer, integer, jsonb) IS
$$Trains a trial again from its beginning, in your session, in the stored order and with the stored seeds, and compares
the state after every unit with the recorded hash.
It writes nothing. It gets the same bytes with the device and number of threads of the slots that trained the trial
(default: cpu, one thread).
If the rows are on nodes, the replay runs there, in sessions that the coordinator opens beside the slots, and the state
moves from node to node as before.
device: cpu or cuda:N. until_epoch: stop after that epoch. Returns json: trial_id, n_units, n_matching, is_identical,
    first_difference, final_sha256, device, n_threads.
first_difference has epoch, position, partition_number, stored_sha256 and replayed_sha256; if the stored state is still
kept, tensors has the largest absolute difference of each tensor that differs.$$;
