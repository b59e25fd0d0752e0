-- What a unit records in its final transaction: the new state, the unit itself, its metrics.

CREATE OR REPLACE FUNCTION easeml.store_chunked(unit jsonb, n_bytes bigint, sha256 text) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO easeml.checkpoints (trial_id, tenant, epoch, n_bytes, sha256)
    SELECT t.trial_id, t.tenant, (unit ->> 'epoch')::integer, n_bytes, sha256 FROM easeml.trials t
    WHERE t.trial_id = (unit ->> 'trial_id')::bigint
    RETURNING checkpoint_id
$$;
COMMENT ON FUNCTION easeml.store_chunked(jsonb, bigint, text) IS
    'Inserts the row of a large state, whose chunks follow in the same transaction before easeml.record_training; '
    'returns NULL if the trial is gone (internal).';

CREATE OR REPLACE FUNCTION easeml.store_chunk(checkpoint_id bigint, chunk_number integer, bytes bytea) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO easeml.checkpoint_chunks (checkpoint_id, tenant, chunk_number, bytes)
    SELECT c.checkpoint_id, c.tenant, store_chunk.chunk_number, store_chunk.bytes FROM easeml.checkpoints c
    WHERE c.checkpoint_id = store_chunk.checkpoint_id
$$;
COMMENT ON FUNCTION easeml.store_chunk(bigint, integer, bytea) IS 'Adds a chunk to a large state (internal).';

CREATE OR REPLACE FUNCTION easeml.share_of_time(
    unit jsonb,
    rank integer,
    INOUT started_at timestamptz,
    INOUT finished_at timestamptz
) LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n_units integer := CASE WHEN (unit #>> '{gang,n_ranks}')::integer = 1
        THEN 1 + jsonb_array_length(unit #> '{gang,others}')
        ELSE coalesce((unit #>> '{batch,n_members}')::integer, 1) END;
    place integer := coalesce((unit #>> '{batch,rank}')::integer, rank);
    seconds interval := (finished_at - started_at) / n_units;
BEGIN
    IF n_units > 1 THEN
        finished_at := CASE place WHEN n_units - 1 THEN finished_at ELSE started_at + (place + 1) * seconds END;
        started_at := started_at + place * seconds;
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.share_of_time(jsonb, integer, timestamptz, timestamptz) IS
    'Returns the times of a unit. Units of a whole round or a batch on one slot get equal shares of its time, one '
    'after the other, so that slot time is counted once (internal).';

-- In PL/pgSQL, which keeps its plans: every unit asks, and a function in SQL would be parsed and planned each time.
CREATE OR REPLACE FUNCTION easeml.slot_seconds(unit jsonb, taken interval) RETURNS double precision
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- The ranks of a gang each took a slot all the time; a whole round took one, and so did the members of a batch
    -- together.
    RETURN extract(epoch FROM taken)::double precision * CASE (unit #>> '{gang,n_ranks}')::integer WHEN 1 THEN 1
        ELSE 1 + coalesce(jsonb_array_length(unit #> '{gang,others}'), 0) END
        / coalesce((unit #>> '{batch,n_members}')::double precision, 1);
END
$$;
COMMENT ON FUNCTION easeml.slot_seconds(jsonb, interval) IS
    'Returns the slot time of a unit of that duration, or of all units of its gang (internal).';

CREATE OR REPLACE FUNCTION easeml.record_training(
    unit jsonb,
    started_at timestamptz,
    training_seconds double precision,
    n_rows bigint,
    loss double precision,
    read_bytes bigint,
    sha256 text,
    state bytea,
    chunked_checkpoint_id bigint DEFAULT NULL,
    OUT new_checkpoint_id bigint,
    OUT pruned_bytes bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    trial easeml.trials;
    tenant name;
    before_id bigint;
    state_bytes bigint;
    stays_elsewhere boolean := false;
    was_elsewhere boolean;
    finished timestamptz;
BEGIN
    PERFORM easeml.fence(unit);
    SELECT t.tenant, t.checkpoint_id INTO tenant, before_id FROM easeml.trials t
    WHERE t.ctid = easeml.trial_place((unit ->> 'trial_id')::bigint);
    IF chunked_checkpoint_id IS NULL AND FOUND THEN
        INSERT INTO easeml.checkpoints (trial_id, tenant, epoch, n_bytes, sha256, state)
        VALUES ((unit ->> 'trial_id')::bigint, tenant, (unit ->> 'epoch')::integer, length(state), sha256, state)
        RETURNING checkpoint_id, n_bytes INTO new_checkpoint_id, state_bytes;
    END IF;
    finished := clock_timestamp();
    trial := (easeml.advance(unit, easeml.slot_seconds(unit, finished - record_training.started_at),
            record_training.training_seconds
        + coalesce((SELECT sum(o.training_seconds)
                FROM jsonb_to_recordset(unit #> '{gang,others}') o(training_seconds double precision)), 0), before_id,
            coalesce(chunked_checkpoint_id, new_checkpoint_id))).trial;
    IF chunked_checkpoint_id IS NOT NULL THEN
        SELECT c.checkpoint_id, c.n_bytes, c.is_elsewhere INTO STRICT new_checkpoint_id, state_bytes, stays_elsewhere
        FROM easeml.checkpoints c WHERE c.checkpoint_id = chunked_checkpoint_id AND c.trial_id = trial.trial_id;
    END IF;
    IF jsonb_typeof(unit -> 'members') = 'array' THEN
        -- What an ensemble has chosen to be made of: trials of its run, and no others.
        UPDATE easeml.trials t SET config = jsonb_build_object('members',
            (SELECT coalesce(jsonb_agg(jsonb_strip_nulls(to_jsonb(m)) ORDER BY m.trial), '[]')
            FROM jsonb_to_recordset(unit -> 'members') m(trial bigint, weight double precision, refit_epochs integer)
            JOIN easeml.trials o ON o.run_id = t.run_id AND o.trial_number = m.trial AND o.trial_id <> t.trial_id))
        WHERE t.trial_id = trial.trial_id AND t.architecture = 'ensemble';
    END IF;
    -- The unit of this rank, which alone counts the bytes of the state, then those of the other ranks of its gang.
    INSERT INTO easeml.training_units (trial_id, run_id, tenant, epoch, position, partition_number,
        slot_id, attempt, seed, lease_number,
        started_at, finished_at, training_seconds, n_rows, loss, from_checkpoint_id, checkpoint_id, state_bytes,
        state_sha256, read_bytes, n_slots, stack)
    SELECT trial.trial_id, trial.run_id, trial.tenant, g.epoch, u.position, u.partition_number, u.slot_id,
        g.attempt, u.seed, g.lease_number,
        w.started_at, w.finished_at, u.training_seconds, u.n_rows, u.loss, before_id, new_checkpoint_id, u.state_bytes,
        record_training.sha256, u.read_bytes, coalesce((unit #>> '{gang,n_ranks}')::integer, 1),
        (SELECT array_agg(k.value::integer ORDER BY k.ordinality)
            FROM jsonb_array_elements_text(unit -> 'stack') WITH ORDINALITY k)
    FROM jsonb_to_record(unit) g(epoch integer, attempt integer, lease_number bigint) CROSS JOIN (
        SELECT 0 AS rank, f.position, f.partition_number, f.slot_id, f.seed, record_training.training_seconds,
            record_training.n_rows, record_training.loss,
            record_training.read_bytes, state_bytes
        FROM jsonb_to_record(unit) f(position integer, partition_number integer, slot_id integer, seed bigint)
        UNION ALL
        SELECT o.position - (unit ->> 'position')::integer, o.position, o.partition_number, o.slot_id, o.seed,
            o.training_seconds, o.n_rows, o.loss, o.read_bytes, 0
        FROM jsonb_to_recordset(unit #> '{gang,others}') o(position integer, partition_number integer,
            slot_id integer, seed bigint,
            training_seconds double precision, n_rows bigint, loss double precision, read_bytes bigint)) u
    CROSS JOIN LATERAL easeml.share_of_time(unit, u.rank, record_training.started_at, finished) w;
    -- Keep, of each trial, the newest state and that of its best epoch; and as long as the newest lies on other servers
    -- only, the one that the epoch began with.
    DELETE FROM easeml.checkpoints c WHERE c.checkpoint_id = before_id
        AND c.checkpoint_id IS DISTINCT FROM trial.best_checkpoint_id AND (c.is_elsewhere OR NOT stays_elsewhere)
    RETURNING c.n_bytes, c.is_elsewhere INTO pruned_bytes, was_elsewhere;
    IF was_elsewhere AND NOT stays_elsewhere THEN
        DELETE FROM easeml.checkpoints c WHERE c.trial_id = trial.trial_id AND c.checkpoint_id <> new_checkpoint_id
            AND c.checkpoint_id IS DISTINCT FROM trial.best_checkpoint_id
        RETURNING pruned_bytes + c.n_bytes INTO pruned_bytes;
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.record_training(jsonb, timestamptz, double precision, bigint, double precision,
    bigint, text, bytea, bigint) IS
    'Records a training unit, or all units of a gang: checks the lease, counts the steps, stores the new state unless '
    'it lies in chunks already, writes the visit log and prunes the old state. Returns the new checkpoint and the '
    'bytes that it pruned (internal).';

CREATE OR REPLACE FUNCTION easeml.record_evaluation(
    unit jsonb,
    started_at timestamptz,
    epoch integer,
    split text,
    statistics jsonb,
    read_bytes bigint
) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    advanced record;
    trial easeml.trials;
    all_statistics jsonb;
    finished timestamptz;
BEGIN
    PERFORM easeml.fence(unit);
    finished := clock_timestamp();
    advanced := easeml.advance(unit, easeml.slot_seconds(unit, finished - record_evaluation.started_at));
    trial := advanced.trial;
    INSERT INTO easeml.evaluations (trial_id, run_id, tenant, epoch, split, partition_number, slot_id, attempt,
        lease_number, started_at, finished_at, statistics, read_bytes, n_slots)
    SELECT trial.trial_id, trial.run_id, trial.tenant, record_evaluation.epoch, record_evaluation.split,
        u.partition_number, u.slot_id, g.attempt, g.lease_number,
        w.started_at, w.finished_at, u.statistics, u.read_bytes, coalesce((unit #>> '{gang,n_ranks}')::integer, 1)
    FROM jsonb_to_record(unit) g(attempt integer, lease_number bigint) CROSS JOIN (
        SELECT 0 AS rank, f.partition_number, f.slot_id, record_evaluation.statistics, record_evaluation.read_bytes
        FROM jsonb_to_record(unit) f(partition_number integer, slot_id integer)
        UNION ALL
        SELECT o.position - (unit ->> 'position')::integer, o.partition_number, o.slot_id, o.statistics, o.read_bytes
        FROM jsonb_to_recordset(unit #> '{gang,others}') o(position integer, partition_number integer, slot_id integer,
            statistics jsonb, read_bytes bigint)) u
    CROSS JOIN LATERAL easeml.share_of_time(unit, u.rank, record_evaluation.started_at, finished) w;
    -- To train an epoch, to validate it and to test take a step for each partition: only the last step of a split looks
    -- at the others.
    IF trial.n_steps_done % advanced.n_partitions = 0 THEN
        SELECT CASE WHEN count(*) = advanced.n_partitions THEN jsonb_agg(e.statistics ORDER BY e.partition_number) END
            INTO all_statistics
        FROM easeml.evaluations e WHERE e.trial_id = trial.trial_id AND e.epoch = record_evaluation.epoch
            AND e.split = record_evaluation.split;
    END IF;
    RETURN all_statistics;
END
$$;
COMMENT ON FUNCTION easeml.record_evaluation(jsonb, timestamptz, integer, text, jsonb, bigint) IS
    'Records an evaluation unit, or all units of a gang; returns the statistics of all partitions once the split is '
    'complete, else NULL (internal).';

CREATE OR REPLACE FUNCTION easeml.record_metrics(
    unit jsonb,
    epoch integer,
    split text,
    n_rows bigint,
    metrics jsonb,
    new_best_checkpoint_id bigint
) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    trial easeml.trials;
    place tid := easeml.trial_place((unit ->> 'trial_id')::bigint);
    pruned_bytes bigint;
    metric_value double precision;
BEGIN
    SELECT t.* INTO trial FROM easeml.trials t WHERE t.ctid = place;
    SELECT (metrics ->> r.metric)::double precision INTO metric_value FROM easeml.runs r WHERE r.run_id = trial.run_id;
    INSERT INTO easeml.metric_values (trial_id, epoch, tenant, split, metric, value)
    SELECT trial.trial_id, record_metrics.epoch, trial.tenant, record_metrics.split, m.key, m.value::double precision
    FROM jsonb_each_text(metrics - '{n_classes,metric_error}'::text[]) m;
    INSERT INTO easeml.epoch_metrics (trial_id, run_id, tenant, epoch, split, n_rows, metric_value, n_classes,
        metric_error, training_loss, training_seconds)
    SELECT trial.trial_id, trial.run_id, trial.tenant, record_metrics.epoch, record_metrics.split,
        record_metrics.n_rows, metric_value, m.n_classes, m.metric_error, u.training_loss, u.training_seconds
    FROM jsonb_to_record(metrics) m(n_classes integer, metric_error double precision)
    LEFT JOIN LATERAL (SELECT sum(v.loss * v.n_rows) / nullif(sum(v.n_rows), 0) AS training_loss,
        sum(v.training_seconds) AS training_seconds
        FROM easeml.training_units v WHERE v.trial_id = trial.trial_id
            AND v.epoch = record_metrics.epoch) u ON record_metrics.split = 'validation';
    IF new_best_checkpoint_id IS NOT NULL THEN
        UPDATE easeml.trials t SET best_epoch = record_metrics.epoch, best_metric_value = metric_value,
            best_checkpoint_id = new_best_checkpoint_id,
            best_loss = coalesce(metrics ->> 'log_loss', metrics ->> 'rmse')::double precision
        WHERE t.ctid = place RETURNING t.ctid INTO place;
        PERFORM set_config('easeml.trial_place', place::text, false);
        DELETE FROM easeml.checkpoints c WHERE c.checkpoint_id = trial.best_checkpoint_id
            AND c.checkpoint_id <> new_best_checkpoint_id
        RETURNING c.n_bytes INTO pruned_bytes;
        PERFORM easeml.note_takeover(trial.trial_id);
    END IF;
    RETURN pruned_bytes;
END
$$;
COMMENT ON FUNCTION easeml.record_metrics(jsonb, integer, text, bigint, jsonb, bigint) IS
    'Records all metrics of a complete split, whatever their names, and, if the epoch is the trial''s best, its state; '
    'returns the bytes of the former best state, which it prunes (internal).';

CREATE OR REPLACE FUNCTION easeml.record_pilot(
    unit jsonb,
    train_seconds double precision,
    evaluate_seconds double precision
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fence(unit);
    PERFORM easeml.leave_slot(unit);
    UPDATE easeml.trials t SET pilot_train_seconds = record_pilot.train_seconds,
        pilot_evaluate_seconds = record_pilot.evaluate_seconds
    WHERE t.trial_id = (unit ->> 'trial_id')::bigint;
END
$$;
COMMENT ON FUNCTION easeml.record_pilot(jsonb, double precision, double precision) IS
    'Records how long the units of a trial are expected to take (internal).';

CREATE OR REPLACE FUNCTION easeml.delete_results() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM easeml.checkpoints c WHERE c.trial_id = OLD.trial_id;
    DELETE FROM easeml.training_units u WHERE u.trial_id = OLD.trial_id;
    DELETE FROM easeml.evaluations e WHERE e.trial_id = OLD.trial_id;
    DELETE FROM easeml.epoch_metrics m WHERE m.trial_id = OLD.trial_id;
    DELETE FROM easeml.metric_values v WHERE v.trial_id = OLD.trial_id;
    -- Of those who may use it, too: what an open transaction of theirs has locked, easeml.open_node_job refuses.
    DELETE FROM easeml.node_jobs j
    WHERE j.job_id IN (SELECT o.job_id FROM easeml.node_jobs o WHERE o.trial_id = OLD.trial_id FOR UPDATE SKIP LOCKED);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.delete_results() IS
    'Removes what the units of a trial have recorded and what nodes were asked of it, with the trial (trigger).';
CREATE OR REPLACE TRIGGER trial_results AFTER DELETE ON easeml.trials
    FOR EACH ROW EXECUTE FUNCTION easeml.delete_results();

CREATE OR REPLACE FUNCTION easeml.delete_jobs() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM easeml.node_jobs j WHERE j.job_id IN (SELECT o.job_id FROM easeml.node_jobs o
        WHERE o.dataset_id = OLD.dataset_id FOR UPDATE SKIP LOCKED);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.delete_jobs() IS 'Removes what nodes were asked of a dataset, with the dataset (trigger).';
CREATE OR REPLACE TRIGGER dataset_jobs AFTER DELETE ON easeml.datasets
    FOR EACH ROW EXECUTE FUNCTION easeml.delete_jobs();
