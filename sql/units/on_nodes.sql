-- Units on other servers: opened and recorded here, in the session that the coordinator keeps for the slot. The node
-- has written the new state before.

CREATE OR REPLACE FUNCTION easeml.registered_for(trial_id bigint) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(jsonb_agg(to_jsonb(a) ORDER BY a.architecture), '[]') FROM easeml.registered_architectures a
    WHERE a.architecture IN (SELECT o.architecture FROM easeml.trials t JOIN easeml.trials o USING (run_id)
        WHERE t.trial_id = registered_for.trial_id AND (o.trial_id = t.trial_id OR t.architecture = 'ensemble'))
$$;
COMMENT ON FUNCTION easeml.registered_for(bigint) IS 'Returns the registered architectures that a trial is made with: '
    'its own, or those of the members of an ensemble (internal).';

CREATE OR REPLACE FUNCTION easeml.open_node_unit(unit jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    opened record;
    wanted bigint;
BEGIN
    SELECT o.* INTO opened FROM easeml.open_unit(unit) o;
    wanted := CASE unit ->> 'kind' WHEN 'test' THEN coalesce(opened.best_checkpoint_id, opened.checkpoint_id)
        WHEN 'pilot' THEN NULL ELSE opened.checkpoint_id END;
    RETURN to_jsonb(opened) || jsonb_build_object(
        'n_slots', (SELECT count(*) FROM easeml.slots s JOIN easeml.slots own USING (segment_id)
            WHERE own.slot_id = (unit ->> 'slot_id')::integer),
        'registered', easeml.registered_for((unit ->> 'trial_id')::bigint),
        'composition', CASE WHEN opened.architecture = 'ensemble'
            AND unit ->> 'kind' = 'train' THEN easeml.composition((unit ->> 'trial_id')::bigint) END,
        -- Numbered before it is made: a number that no row takes names garbage.
        'new_checkpoint_id',
            CASE unit ->> 'kind' WHEN 'train' THEN nextval('easeml.checkpoints_checkpoint_id_seq') ELSE 0 END,
        'has_folds', (SELECT d.options ? 'n_folds' FROM easeml.datasets d WHERE d.dataset_id = opened.dataset_id),
        'mean_rows', (SELECT jsonb_build_object('train', avg(p.n_train_rows)::float8, 'evaluate',
                avg(CASE p.n_validation_rows WHEN 0 THEN p.n_train_rows ELSE p.n_validation_rows END)::float8)
            FROM easeml.partitions p WHERE p.dataset_id = opened.dataset_id),
        'state', (SELECT jsonb_build_object('checkpoint_id', c.checkpoint_id, 'n_bytes', c.n_bytes, 'sha256', c.sha256,
                'is_elsewhere', c.is_elsewhere,
                'segments', (SELECT coalesce(jsonb_agg(k.segment_id ORDER BY k.segment_id), '[]')
                    FROM easeml.checkpoint_copies k WHERE k.checkpoint_id = c.checkpoint_id))
            FROM easeml.checkpoints c WHERE c.checkpoint_id = wanted));
END
$$;
COMMENT ON FUNCTION easeml.open_node_unit(jsonb) IS
    'Opens a unit that runs on another server: returns its context, where the state is that it starts from, and the '
    'number of the state that it makes (internal).';

-- In PL/pgSQL, which keeps its plans: every unit asks.
CREATE OR REPLACE FUNCTION easeml.store_node_state(unit jsonb, told jsonb, segment_id integer, is_elsewhere boolean)
RETURNS name LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    of_tenant name;
BEGIN
    INSERT INTO easeml.checkpoints (checkpoint_id, trial_id, tenant, epoch, n_bytes, sha256,
        is_elsewhere) OVERRIDING SYSTEM VALUE
    SELECT (told ->> 'checkpoint_id')::bigint, t.trial_id, t.tenant, (unit ->> 'epoch')::integer,
        (told ->> 'n_bytes')::bigint, told ->> 'sha256', store_node_state.is_elsewhere
    FROM easeml.trials t WHERE t.trial_id = (unit ->> 'trial_id')::bigint RETURNING tenant INTO of_tenant;
    IF FOUND THEN
        INSERT INTO easeml.checkpoint_copies (checkpoint_id, tenant, segment_id)
        VALUES ((told ->> 'checkpoint_id')::bigint, of_tenant, store_node_state.segment_id);
    END IF;
    RETURN of_tenant;
END
$$;
COMMENT ON FUNCTION easeml.store_node_state(jsonb, jsonb, integer, boolean) IS
    'Inserts the row of a state that a node has stored, in the transaction that records its unit; returns its tenant, '
    'NULL if the trial is gone (internal).';

CREATE OR REPLACE FUNCTION easeml.next_segments(unit jsonb) RETURNS integer[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own integer := (SELECT s.segment_id FROM easeml.slots s WHERE s.slot_id = (unit ->> 'slot_id')::integer);
    n_others integer := coalesce((SELECT y.state_copies FROM easeml.tenancy y), 1) - 1;
    following integer[] := (SELECT coalesce(array_agg(c.segment_id ORDER BY c.segment_id), '{}') FROM easeml.trials t
        JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
        JOIN easeml.replicas c ON c.dataset_id = d.dataset_id
            AND c.partition_number = (t.trial_number + (unit ->> 'position')::bigint + 1) % d.n_partitions
        JOIN easeml.segments g ON g.segment_id = c.segment_id AND g.refusal IS NULL
        WHERE t.trial_id = (unit ->> 'trial_id')::bigint AND r.visit_order = 'cyclic' AND t.status = 'running');
BEGIN
    -- A whole round begins wherever a slot is free.
    IF unit ? 'gang' THEN
        following := '{}';
    END IF;
    IF n_others = 0 THEN
        RETURN CASE WHEN cardinality(following) = 1 THEN following ELSE '{}' END;
    END IF;
    -- The trial's next segment can use it as well.
    RETURN ARRAY(SELECT g.segment_id FROM easeml.segments g
        WHERE g.service IS NOT NULL AND g.refusal IS NULL AND g.segment_id IS DISTINCT FROM own
            AND EXISTS (SELECT FROM easeml.slots s WHERE s.segment_id = g.segment_id)
        ORDER BY g.segment_id <> ALL (following), g.segment_id < own, g.segment_id LIMIT n_others);
END
$$;
COMMENT ON FUNCTION easeml.next_segments(jsonb) IS 'Returns the segments that a new state is sent to: the one that '
    'holds the next partition of its trial, if that is known, and those that keep copies (internal).';

CREATE OR REPLACE FUNCTION easeml.note_hop(unit jsonb, hop jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF hop IS NOT NULL THEN
        INSERT INTO easeml.node_hops (run_id, tenant, trial_id, from_segment_id,
            to_segment_id, n_bytes, seconds, is_ahead)
        SELECT t.run_id, t.tenant, t.trial_id, (hop ->> 'from_segment_id')::integer, (hop ->> 'to_segment_id')::integer,
            (hop ->> 'n_bytes')::bigint, (hop ->> 'seconds')::float8, (hop ->> 'is_ahead')::boolean
        FROM easeml.trials t WHERE t.trial_id = (unit ->> 'trial_id')::bigint;
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.note_hop(jsonb, jsonb) IS
    'Records the transfer of the state that a unit started from, if it came from another server (internal).';

CREATE OR REPLACE FUNCTION easeml.note_row_copy(unit jsonb, copy jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO easeml.row_copies (dataset_id, tenant, run_id, split, partition_number, from_segment_id,
        to_segment_id, n_bytes, seconds)
    SELECT d.dataset_id, d.tenant, (SELECT t.run_id FROM easeml.trials t
        WHERE t.trial_id = (unit ->> 'trial_id')::bigint), copy ->> 'split', (copy ->> 'partition_number')::integer,
        (copy ->> 'from_segment_id')::integer, (copy ->> 'to_segment_id')::integer, (copy ->> 'n_bytes')::bigint,
        (copy ->> 'seconds')::float8
    FROM easeml.datasets d WHERE d.dataset_id = (copy ->> 'dataset_id')::bigint;
END
$$;
COMMENT ON FUNCTION easeml.note_row_copy(jsonb, jsonb) IS
    'Records packed rows that were copied to a node because one of its units needed them (internal).';

CREATE OR REPLACE FUNCTION easeml.record_node_training(
    unit jsonb,
    started_at timestamptz,
    told jsonb,
    segment_id integer,
    OUT new_checkpoint_id bigint,
    OUT pruned_bytes bigint,
    OUT segments integer[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF segment_id IS NOT NULL THEN
        PERFORM easeml.store_node_state(unit, told, segment_id, true);
    END IF;
    SELECT r.new_checkpoint_id, r.pruned_bytes INTO new_checkpoint_id, pruned_bytes
    FROM easeml.record_training(unit || jsonb_build_object('members', told #> '{facts,members}'),
        record_node_training.started_at, (told #>> '{facts,training_seconds}')::float8,
        (told #>> '{facts,n_rows}')::bigint,
        (told #>> '{facts,loss}')::float8, (told #>> '{facts,read_bytes}')::bigint, told ->> 'sha256', NULL,
        (told ->> 'checkpoint_id')::bigint) r;
    segments := easeml.next_segments(unit);
END
$$;
COMMENT ON FUNCTION easeml.record_node_training(jsonb, timestamptz, jsonb, integer) IS
    'Records a training unit whose state a node has stored, with the row of that state unless it is there; also '
    'returns the segments to which the trial goes next (internal).';

CREATE OR REPLACE FUNCTION easeml.record_node_evaluation(unit jsonb, context jsonb, told jsonb) RETURNS jsonb
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.nodes.node_records import record_node_evaluation
return record_node_evaluation(plpy, GD, unit, context, told)
$$;
COMMENT ON FUNCTION easeml.record_node_evaluation(jsonb, jsonb, jsonb) IS 'Records an evaluation that a node has '
    'measured; for the last partition of a split, also records the metrics (internal).';

CREATE OR REPLACE FUNCTION easeml.rewind_trial(unit jsonb) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    trial easeml.trials;
    start bigint;
    n_units integer;
    seconds double precision;
    trained double precision;
BEGIN
    PERFORM easeml.fence(unit);
    SELECT t.* INTO trial FROM easeml.trials t
    JOIN easeml.checkpoints c ON c.checkpoint_id = t.checkpoint_id AND c.is_elsewhere
    WHERE t.trial_id = (unit ->> 'trial_id')::bigint AND t.status IN ('waiting', 'running')
        AND t.n_steps_done = (unit ->> 'step')::integer FOR NO KEY UPDATE OF t;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    -- States at the end of an epoch are always here as well, so a lost state was made within the epoch, and the first
    -- unit of the epoch names the state that it started from.
    SELECT u.from_checkpoint_id INTO start FROM easeml.training_units u WHERE u.trial_id = trial.trial_id
        AND u.epoch = (unit ->> 'epoch')::integer ORDER BY u.position LIMIT 1;
    WITH gone AS (DELETE FROM easeml.training_units u WHERE u.trial_id = trial.trial_id
        AND u.epoch = (unit ->> 'epoch')::integer RETURNING u.finished_at - u.started_at AS taken, u.training_seconds)
    SELECT count(*), coalesce(extract(epoch FROM sum(g.taken)), 0),
        coalesce(sum(g.training_seconds), 0) INTO n_units, seconds, trained FROM gone g;
    UPDATE easeml.trials t SET checkpoint_id = start, n_steps_done = t.n_steps_done - n_units,
        slot_seconds = greatest(t.slot_seconds - seconds, 0),
        training_seconds = greatest(t.training_seconds - trained, 0)
    WHERE t.trial_id = trial.trial_id;
    DELETE FROM easeml.checkpoints c WHERE c.trial_id = trial.trial_id AND c.is_elsewhere;
    PERFORM easeml.charge(trial.tenant, seconds);
    INSERT INTO easeml.events (tenant, run_id, trial_id, kind, message)
    VALUES (trial.tenant, trial.run_id, trial.trial_id, 'state lost',
        format('the newest state is gone with its server: %s units of epoch %s are done again',
            n_units, unit ->> 'epoch'));
    RETURN n_units;
END
$$;
COMMENT ON FUNCTION easeml.rewind_trial(jsonb) IS
    'Rewinds a trial whose newest state is lost to the start of its epoch, and deletes the units recorded since; '
    'returns their number (internal).';
