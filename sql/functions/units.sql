-- Units of work, called by the coordinator, one session for each slot. They commit, so they are procedures.
-- A unit is {trial_id, step, kind, epoch, position, partition_number, seed, slot_id, lease_number, attempt}. One of a gang also has
-- gang {token, rank, timeout_seconds, members}; as it is recorded, gang {n_ranks, others}: the other ranks and what they have done.

CREATE PROCEDURE easeml.train_unit(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.training import train_unit
return train_unit(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.train_unit(jsonb, jsonb) IS
    'Trains a trial over one partition once and records the new state, the unit and its loss in one short transaction, refused when the lease is stale or the step is recorded already.';

CREATE PROCEDURE easeml.evaluate_unit(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.evaluation import evaluate_unit
return evaluate_unit(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.evaluate_unit(jsonb, jsonb) IS
    'Measures a trial on the validation or test rows of one partition and records the sums; the last partition of a split makes the metrics.';

CREATE PROCEDURE easeml.train_gang(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.gang import train_gang
return train_gang(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.train_gang(jsonb, jsonb) IS
    'Trains a trial over several partitions at once, together with the sessions of other slots that call it alike; the first of them records the new state and all units in one short transaction. Of a pilot: times a few steps and records nothing.';

CREATE PROCEDURE easeml.evaluate_gang(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.gang import evaluate_gang
return evaluate_gang(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.evaluate_gang(jsonb, jsonb) IS
    'Measures a trial on several partitions at once, one on each of the slots that call it alike; the first of them records the sums of all.';

CREATE PROCEDURE easeml.pilot_unit(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.pilot import pilot_unit
return pilot_unit(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.pilot_unit(jsonb, jsonb) IS
    'Times a few mini-batches of a fresh trial and throws them away; records only how long its units are going to take.';

CREATE FUNCTION easeml.open_unit(unit jsonb,
    OUT architecture text, OUT config jsonb, OUT max_epochs integer, OUT checkpoint_id bigint,
    OUT best_checkpoint_id bigint, OUT best_epoch integer, OUT best_metric_value double precision,
    OUT metric text, OUT dataset_id bigint, OUT n_partitions integer, OUT train_rows bigint[],
    OUT device text, OUT n_threads integer, OUT memory_limit_bytes bigint, OUT started_at timestamptz
) LANGUAGE plpgsql AS $$
DECLARE
    trial easeml.trials;
    first_step integer := (unit ->> 'step')::integer - coalesce((unit #>> '{gang,rank}')::integer, 0);
BEGIN
    SELECT t.* INTO trial FROM easeml.trials t WHERE t.trial_id = (unit ->> 'trial_id')::bigint;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', format('trial %s is gone', unit ->> 'trial_id'));
    ELSIF trial.n_steps_done <> first_step OR trial.state NOT IN ('waiting', 'running') THEN
        PERFORM easeml.fail('ML006', format('trial %s is %s with %s steps done: step %s is not due',
            trial.trial_id, trial.state, trial.n_steps_done, unit ->> 'step'));
    END IF;
    -- What this transaction writes is for display only, and a crash may lose it: no wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    started_at := clock_timestamp();
    SELECT trial.architecture, trial.config, trial.max_epochs, trial.checkpoint_id, trial.best_checkpoint_id, trial.best_epoch,
        trial.best_metric_value, r.metric, d.dataset_id, d.n_partitions,
        (SELECT array_agg(p.n_train_rows ORDER BY p.partition_number) FROM easeml.partitions p WHERE p.dataset_id = d.dataset_id)
    INTO architecture, config, max_epochs, checkpoint_id, best_checkpoint_id, best_epoch, best_metric_value, metric, dataset_id, n_partitions, train_rows
    FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) WHERE r.run_id = trial.run_id;
    IF trial.state = 'waiting' THEN
        UPDATE easeml.trials t SET state = 'running', started_at = coalesce(t.started_at, open_unit.started_at)
        WHERE t.trial_id = trial.trial_id AND t.state = 'waiting';
    END IF;
    UPDATE easeml.slots s SET trial_id = trial.trial_id, kind = unit ->> 'kind', epoch = (unit ->> 'epoch')::integer,
        partition_number = (unit ->> 'partition_number')::integer, unit_started_at = open_unit.started_at, backend_pid = pg_backend_pid()
    WHERE s.slot_id = (unit ->> 'slot_id')::integer
    RETURNING s.device, s.n_threads, s.memory_limit_bytes INTO device, n_threads, memory_limit_bytes;
END
$$;
COMMENT ON FUNCTION easeml.open_unit(jsonb) IS
    'All that a unit needs to know, in one call; shows the unit in its slot''s row. Refused when the step, or the first one of its gang, is not the trial''s next (internal).';

CREATE FUNCTION easeml.fence(unit jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    holder bigint;
BEGIN
    -- The lock holds off a takeover until this transaction has ended.
    SELECT l.lease_number INTO holder FROM easeml.coordinator_lease l FOR SHARE;
    IF holder <> (unit ->> 'lease_number')::bigint THEN
        PERFORM easeml.fail('ML006', format('lease %s is over, %s holds: the unit is not recorded', unit ->> 'lease_number', holder));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.fence(jsonb) IS 'Refuses to record a unit that a replaced coordinator ordered (internal).';

CREATE FUNCTION easeml.leave_slot(unit jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE easeml.slots s SET unit_started_at = NULL, n_units_done = s.n_units_done + (unit ->> 'kind' <> 'pilot')::integer
    WHERE s.slot_id = (unit ->> 'slot_id')::integer AND s.backend_pid = coalesce((unit ->> 'backend_pid')::integer, pg_backend_pid()) AND s.state <> 'lost';
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML006', format('slot %s was given up or taken away meanwhile: step %s is not recorded', unit ->> 'slot_id', unit ->> 'step'));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.leave_slot(jsonb) IS 'Frees the slot''s row; refused when the slot was given up, so that a stuck unit that wakes up records nothing (internal).';

CREATE FUNCTION easeml.advance(unit jsonb) RETURNS easeml.trials LANGUAGE plpgsql AS $$
DECLARE
    trial easeml.trials;
    n_partitions bigint;
    others jsonb := coalesce(unit #> '{gang,others}', '[]');
    n_steps integer := 1 + jsonb_array_length(others);
BEGIN
    SELECT d.n_partitions INTO n_partitions
    FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id) WHERE t.trial_id = (unit ->> 'trial_id')::bigint;
    UPDATE easeml.trials t SET n_steps_done = t.n_steps_done + n_steps,
        state = CASE WHEN t.n_steps_done + n_steps = (2 * t.max_epochs + 1) * n_partitions THEN 'finished'
            WHEN t.n_steps_done + n_steps = 2 * t.target_epochs * n_partitions AND t.target_epochs < t.max_epochs THEN 'paused' ELSE t.state END,
        finished_at = CASE WHEN t.n_steps_done + n_steps = (2 * t.max_epochs + 1) * n_partitions THEN clock_timestamp() END
    WHERE t.trial_id = (unit ->> 'trial_id')::bigint AND t.n_steps_done = (unit ->> 'step')::integer AND t.state = 'running'
    RETURNING t.* INTO trial;
    IF trial.trial_id IS NULL THEN
        PERFORM easeml.fail('ML006', format('trial %s was stopped or moved on meanwhile: step %s is not recorded', unit ->> 'trial_id', unit ->> 'step'));
    END IF;
    PERFORM easeml.leave_slot(unit);
    PERFORM easeml.leave_slot(unit || other) FROM jsonb_array_elements(others) other;
    RETURN trial;
END
$$;
COMMENT ON FUNCTION easeml.advance(jsonb) IS 'Counts the step of a trial, or the steps of a gang, refused if somebody else was faster, and frees the rows of their slots; a trial at its target pauses (internal).';

CREATE FUNCTION easeml.store_chunked(unit jsonb, n_bytes bigint, sha256 text) RETURNS bigint LANGUAGE sql AS $$
    INSERT INTO easeml.checkpoints (trial_id, owner, epoch, n_bytes, sha256)
    SELECT t.trial_id, t.owner, (unit ->> 'epoch')::integer, n_bytes, sha256 FROM easeml.trials t WHERE t.trial_id = (unit ->> 'trial_id')::bigint
    RETURNING checkpoint_id
$$;
COMMENT ON FUNCTION easeml.store_chunked(jsonb, bigint, text) IS
    'Begins a large state, whose chunks follow in the same transaction, before easeml.record_training; NULL when the trial is gone (internal).';

CREATE FUNCTION easeml.store_chunk(checkpoint_id bigint, chunk_number integer, bytes bytea) RETURNS void LANGUAGE sql AS $$
    INSERT INTO easeml.checkpoint_chunks (checkpoint_id, owner, chunk_number, bytes)
    SELECT c.checkpoint_id, c.owner, store_chunk.chunk_number, store_chunk.bytes FROM easeml.checkpoints c WHERE c.checkpoint_id = store_chunk.checkpoint_id
$$;
COMMENT ON FUNCTION easeml.store_chunk(bigint, integer, bytea) IS 'Adds a chunk to a large state (internal).';

CREATE FUNCTION easeml.record_training(
    unit jsonb, started_at timestamptz, training_seconds double precision, n_rows bigint, loss double precision, read_bytes bigint,
    sha256 text, state bytea, chunked_checkpoint_id bigint DEFAULT NULL, OUT new_checkpoint_id bigint, OUT pruned_bytes bigint
) LANGUAGE plpgsql AS $$
DECLARE
    trial easeml.trials;
    state_bytes bigint;
BEGIN
    PERFORM easeml.fence(unit);
    trial := easeml.advance(unit);
    IF chunked_checkpoint_id IS NULL THEN
        INSERT INTO easeml.checkpoints (trial_id, owner, epoch, n_bytes, sha256, state)
        VALUES (trial.trial_id, trial.owner, (unit ->> 'epoch')::integer, length(state), sha256, state)
        RETURNING checkpoint_id, n_bytes INTO new_checkpoint_id, state_bytes;
    ELSE
        SELECT c.checkpoint_id, c.n_bytes INTO STRICT new_checkpoint_id, state_bytes
        FROM easeml.checkpoints c WHERE c.checkpoint_id = chunked_checkpoint_id AND c.trial_id = trial.trial_id;
    END IF;
    INSERT INTO easeml.training_units (trial_id, run_id, owner, epoch, position, partition_number, slot_id, attempt, seed, lease_number,
        started_at, finished_at, training_seconds, n_rows, loss, from_checkpoint_id, checkpoint_id, state_bytes, state_sha256, read_bytes, n_slots)
    SELECT trial.trial_id, trial.run_id, trial.owner, u.epoch, u.position, u.partition_number, u.slot_id, u.attempt, u.seed, u.lease_number,
        record_training.started_at, clock_timestamp(), record_training.training_seconds, record_training.n_rows, record_training.loss,
        trial.checkpoint_id, new_checkpoint_id, state_bytes, record_training.sha256, record_training.read_bytes, coalesce((unit #>> '{gang,n_ranks}')::integer, 1)
    FROM jsonb_to_record(unit) u(epoch integer, position integer, partition_number integer, slot_id integer, attempt integer, seed bigint, lease_number bigint);
    INSERT INTO easeml.training_units (trial_id, run_id, owner, epoch, position, partition_number, slot_id, attempt, seed, lease_number,
        started_at, finished_at, training_seconds, n_rows, loss, from_checkpoint_id, checkpoint_id, state_bytes, state_sha256, read_bytes, n_slots)
    SELECT t.trial_id, t.run_id, t.owner, t.epoch, u.position, u.partition_number, u.slot_id, t.attempt, u.seed, t.lease_number,
        t.started_at, t.finished_at, u.training_seconds, u.n_rows, u.loss, t.from_checkpoint_id, t.checkpoint_id, 0, t.state_sha256, u.read_bytes, t.n_slots
    FROM easeml.training_units t CROSS JOIN jsonb_to_recordset(unit #> '{gang,others}') u(position integer, partition_number integer, slot_id integer, seed bigint,
        training_seconds double precision, n_rows bigint, loss double precision, read_bytes bigint)
    WHERE t.trial_id = trial.trial_id AND t.epoch = (unit ->> 'epoch')::integer AND t.partition_number = (unit ->> 'partition_number')::integer;
    UPDATE easeml.trials t SET checkpoint_id = new_checkpoint_id WHERE t.trial_id = trial.trial_id;
    -- Of each trial the newest state and that of its best epoch are kept.
    DELETE FROM easeml.checkpoints c WHERE c.checkpoint_id = trial.checkpoint_id AND c.checkpoint_id IS DISTINCT FROM trial.best_checkpoint_id
    RETURNING c.n_bytes INTO pruned_bytes;
END
$$;
COMMENT ON FUNCTION easeml.record_training(jsonb, timestamptz, double precision, bigint, double precision, bigint, text, bytea, bigint) IS
    'Records a training unit, or all units of a gang: fence, progress, new state (or the one that lies in chunks already), visit log, pruning; returns the new checkpoint, and the bytes that it pruned, if any (internal).';

CREATE FUNCTION easeml.record_evaluation(unit jsonb, started_at timestamptz, epoch integer, split text, statistics jsonb, read_bytes bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    trial easeml.trials;
    all_statistics jsonb;
    n_partitions integer;
BEGIN
    PERFORM easeml.fence(unit);
    trial := easeml.advance(unit);
    INSERT INTO easeml.evaluations (trial_id, run_id, owner, epoch, split, partition_number, slot_id, attempt, lease_number, started_at, finished_at, statistics, read_bytes, n_slots)
    SELECT trial.trial_id, trial.run_id, trial.owner, record_evaluation.epoch, record_evaluation.split, u.partition_number, u.slot_id, u.attempt, u.lease_number,
        record_evaluation.started_at, clock_timestamp(), record_evaluation.statistics, record_evaluation.read_bytes, coalesce((unit #>> '{gang,n_ranks}')::integer, 1)
    FROM jsonb_to_record(unit) u(partition_number integer, slot_id integer, attempt integer, lease_number bigint);
    INSERT INTO easeml.evaluations (trial_id, run_id, owner, epoch, split, partition_number, slot_id, attempt, lease_number, started_at, finished_at, statistics, read_bytes, n_slots)
    SELECT e.trial_id, e.run_id, e.owner, e.epoch, e.split, u.partition_number, u.slot_id, e.attempt, e.lease_number, e.started_at, e.finished_at, u.statistics, u.read_bytes, e.n_slots
    FROM easeml.evaluations e CROSS JOIN jsonb_to_recordset(unit #> '{gang,others}') u(partition_number integer, slot_id integer, statistics jsonb, read_bytes bigint)
    WHERE e.trial_id = trial.trial_id AND e.epoch = record_evaluation.epoch AND e.split = record_evaluation.split AND e.partition_number = (unit ->> 'partition_number')::integer;
    SELECT d.n_partitions INTO n_partitions FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) WHERE r.run_id = trial.run_id;
    SELECT CASE WHEN count(*) = n_partitions THEN jsonb_agg(e.statistics ORDER BY e.partition_number) END INTO all_statistics
    FROM easeml.evaluations e WHERE e.trial_id = trial.trial_id AND e.epoch = record_evaluation.epoch AND e.split = record_evaluation.split;
    RETURN all_statistics;
END
$$;
COMMENT ON FUNCTION easeml.record_evaluation(jsonb, timestamptz, integer, text, jsonb, bigint) IS
    'Records an evaluation unit, or all units of a gang; returns the statistics of all partitions once the split is complete, else NULL (internal).';

CREATE FUNCTION easeml.record_metrics(unit jsonb, epoch integer, split text, n_rows bigint, metrics jsonb, new_best_checkpoint_id bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    trial easeml.trials;
    pruned_bytes bigint;
    metric_value double precision;
BEGIN
    SELECT t.* INTO trial FROM easeml.trials t WHERE t.trial_id = (unit ->> 'trial_id')::bigint;
    SELECT (metrics ->> r.metric)::double precision INTO metric_value FROM easeml.runs r WHERE r.run_id = trial.run_id;
    INSERT INTO easeml.epoch_metrics (trial_id, run_id, owner, epoch, split, n_rows, metric_value, accuracy, balanced_accuracy, macro_f1, log_loss, rmse, mae, r2)
    SELECT trial.trial_id, trial.run_id, trial.owner, record_metrics.epoch, record_metrics.split, record_metrics.n_rows, metric_value,
        m.accuracy, m.balanced_accuracy, m.macro_f1, m.log_loss, m.rmse, m.mae, m.r2
    FROM jsonb_to_record(metrics) m(accuracy double precision, balanced_accuracy double precision, macro_f1 double precision, log_loss double precision,
        rmse double precision, mae double precision, r2 double precision);
    IF new_best_checkpoint_id IS NOT NULL THEN
        UPDATE easeml.trials t SET best_epoch = record_metrics.epoch, best_metric_value = metric_value, best_checkpoint_id = new_best_checkpoint_id
        WHERE t.trial_id = trial.trial_id;
        DELETE FROM easeml.checkpoints c WHERE c.checkpoint_id = trial.best_checkpoint_id AND c.checkpoint_id <> new_best_checkpoint_id
        RETURNING c.n_bytes INTO pruned_bytes;
    END IF;
    RETURN pruned_bytes;
END
$$;
COMMENT ON FUNCTION easeml.record_metrics(jsonb, integer, text, bigint, jsonb, bigint) IS
    'Records the metrics of a complete split, and the new best state of the trial if there is one; prunes the one that was and returns its bytes (internal).';

CREATE FUNCTION easeml.record_pilot(unit jsonb, train_seconds double precision, evaluate_seconds double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM easeml.fence(unit);
    PERFORM easeml.leave_slot(unit);
    UPDATE easeml.trials t SET pilot_train_seconds = record_pilot.train_seconds, pilot_evaluate_seconds = record_pilot.evaluate_seconds
    WHERE t.trial_id = (unit ->> 'trial_id')::bigint;
END
$$;
COMMENT ON FUNCTION easeml.record_pilot(jsonb, double precision, double precision) IS 'Records how long the units of a trial are going to take (internal).';
