-- Instances of planned runs: what the coordinator records of them. Each call is fenced by its lease.

CREATE OR REPLACE FUNCTION easeml.instance_cost(instance easeml.instances) RETURNS double precision
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN instance.billed_from IS NULL THEN 0
        ELSE instance.data_price + CASE WHEN instance.billed_per = 'function' THEN 0
        ELSE greatest(CASE WHEN instance.billed_by = 'minute' THEN ceil(b.seconds / 60) * 60 ELSE b.seconds END,
            instance.minimum_seconds) * instance.price_per_hour / 3600 END END
    FROM (SELECT greatest(extract(epoch FROM coalesce(instance.ended_at, clock_timestamp()) - instance.billed_from),
            0)::double precision AS seconds) b
$$;
COMMENT ON FUNCTION easeml.instance_cost(easeml.instances) IS 'Returns what an instance would cost if it ended now; if '
    'only work is billed, the price of the data that it brought in (internal: read easeml.instance_status).';

CREATE OR REPLACE FUNCTION easeml.planned_cost(run_id bigint, slot_seconds double precision) RETURNS double precision
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(sum(coalesce(i.cost, easeml.instance_cost(i))), 0)
        + coalesce(avg(i.price_per_hour / i.n_slots) FILTER (WHERE i.billed_per = 'function'),
            0) * planned_cost.slot_seconds / 3600
    FROM easeml.instances i WHERE i.run_id = planned_cost.run_id
$$;
COMMENT ON FUNCTION easeml.planned_cost(bigint, double precision) IS
    'Returns what a planned run would cost by the rules of its price list if its instances ended now. slot_seconds: '
    'slot time of its units, for price lists that bill work alone (internal: read easeml.run_status).';

CREATE OR REPLACE FUNCTION easeml.local_slots() RETURNS integer
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT greatest((SELECT count(*) FROM easeml.slots s WHERE s.segment_id = 1
            AND s.status = 'active' AND NOT s.is_added),
        (SELECT p.max_slots FROM easeml.provisioners p WHERE p.provisioner = 'local'))::integer
$$;
COMMENT ON FUNCTION easeml.local_slots() IS
    'Returns how many slots this server may have, including those added for planned runs (internal).';

CREATE OR REPLACE FUNCTION easeml.request_instances(journal jsonb) RETURNS SETOF bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fence(journal);
    RETURN QUERY INSERT INTO easeml.instances (run_id, tenant, provisioner, price_list, instance_type, device_kind,
        n_slots, price_per_hour, billed_by, billed_per, minimum_seconds, data_price)
    SELECT r.run_id, r.tenant, journal ->> 'provisioner', t.price_list, t.instance_type, t.device_kind, t.n_slots,
        t.price_per_hour, t.billed_by, t.billed_per, t.minimum_seconds,
        t.price_per_gb
            * coalesce((SELECT sum(p.n_bytes) FROM easeml.partitions p WHERE p.dataset_id = r.dataset_id), 0) / 1e9
    FROM easeml.runs r JOIN easeml.instance_types t ON t.price_list = r.price_list
        AND t.instance_type = journal ->> 'instance_type', generate_series(1, (journal ->> 'n')::integer)
    WHERE r.run_id = (journal ->> 'run_id')::bigint AND r.status IN ('queued', 'running') RETURNING instance_id;
END
$$;
COMMENT ON FUNCTION easeml.request_instances(jsonb) IS 'Records that an open run needs instances, before any of them '
    'is started; refuses if the lease is stale (internal).';

CREATE OR REPLACE FUNCTION easeml.attach_slots(journal jsonb) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    instance easeml.instances;
    model easeml.slots;
    n_added integer;
    taken integer[] := '{}';
BEGIN
    PERFORM easeml.fence(journal);
    PERFORM easeml.lock_topology();
    SELECT i.* INTO instance FROM easeml.instances i WHERE i.instance_id = (journal ->> 'instance_id')::bigint
        AND i.status = 'requested' FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT s.* INTO model FROM easeml.slots s WHERE s.segment_id = 1 AND NOT s.is_added
        AND split_part(s.device, ':', 1) = instance.device_kind ORDER BY s.slot_id LIMIT 1;
    IF instance.provisioner = 'local' THEN
        -- Slots are added up to the limit; then free ones are taken.
        n_added := least(instance.n_slots,
            greatest(0, easeml.local_slots() - (SELECT count(*) FROM easeml.slots s WHERE s.segment_id = 1)));
        SELECT coalesce(array_agg(f.slot_id), '{}') INTO taken FROM (
            SELECT s.slot_id FROM easeml.slots s WHERE s.segment_id = 1 AND s.status = 'active'
                AND s.instance_id IS NULL AND split_part(s.device, ':', 1) = instance.device_kind
            ORDER BY s.slot_id DESC LIMIT instance.n_slots - n_added FOR NO KEY UPDATE) f;
        IF model.slot_id IS NULL OR n_added + cardinality(taken) < instance.n_slots THEN
            RETURN false;
        END IF;
    ELSE
        n_added := instance.n_slots;
    END IF;
    UPDATE easeml.slots s SET instance_id = instance.instance_id WHERE s.slot_id = ANY (taken);
    WITH numbered AS MATERIALIZED (SELECT nextval('easeml.slots_slot_id_seq')::integer AS slot_id
        FROM generate_series(1, n_added))
    INSERT INTO easeml.slots (slot_id, slot_name, device, n_threads, memory_limit_bytes, instance_id,
        is_added) OVERRIDING SYSTEM VALUE
    SELECT n.slot_id, 'slot-' || n.slot_id, coalesce(journal ->> 'device', model.device, 'cpu'),
        coalesce(model.n_threads, 1), model.memory_limit_bytes, instance.instance_id, true FROM numbered n;
    UPDATE easeml.instances i SET status = 'ready', ready_at = clock_timestamp(),
        billed_from = coalesce(i.billed_from, clock_timestamp()) WHERE i.instance_id = instance.instance_id;
    RETURN true;
END
$$;
COMMENT ON FUNCTION easeml.attach_slots(jsonb) IS
    'Gives a requested instance its slots: added ones, or for local those that no instance has. Returns whether there '
    'were enough. Refuses if the lease is stale (internal).';

CREATE OR REPLACE FUNCTION easeml.release_instance(journal jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fence(journal);
    UPDATE easeml.instances i SET status = 'releasing' WHERE i.instance_id = (journal ->> 'instance_id')::bigint
        AND i.status IN ('requested', 'ready');
    UPDATE easeml.slots s SET instance_id = CASE WHEN s.is_added THEN s.instance_id END,
        status = CASE WHEN s.is_added AND s.status = 'active' THEN 'draining' ELSE s.status END
    WHERE s.instance_id = (journal ->> 'instance_id')::bigint;
END
$$;
COMMENT ON FUNCTION easeml.release_instance(jsonb) IS 'Returns the slots that were taken for an instance, and drains '
    'those that were added for it; refuses if the lease is stale (internal).';

CREATE OR REPLACE FUNCTION easeml.end_instance(journal jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fence(journal);
    UPDATE easeml.instances i SET status = journal ->> 'status', ended_at = clock_timestamp(),
        cost = (journal ->> 'cost')::double precision, failure_reason = left(journal ->> 'reason', 2000)
    WHERE i.instance_id = (journal ->> 'instance_id')::bigint AND i.ended_at IS NULL;
    DELETE FROM easeml.slots s WHERE s.instance_id = (journal ->> 'instance_id')::bigint AND s.is_added;
    UPDATE easeml.slots s SET instance_id = NULL WHERE s.instance_id = (journal ->> 'instance_id')::bigint;
END
$$;
COMMENT ON FUNCTION easeml.end_instance(jsonb) IS 'Records that an instance has ended and what it cost, and removes '
    'the slots that were added for it; refuses if the lease is stale (internal).';

CREATE OR REPLACE FUNCTION easeml.keep_revision(journal jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs;
BEGIN
    PERFORM easeml.fence(journal);
    -- First, and by itself: a function in a list of columns is called before the rows are locked, and would wait for
    -- the run.
    SELECT r.* INTO run FROM easeml.runs r WHERE r.run_id = (journal ->> 'run_id')::bigint
    FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM easeml.plans p WHERE p.run_id = run.run_id
        AND p.revision = (journal ->> 'revision')::integer) THEN
        PERFORM easeml.keep_plan(run.run_id, run.tenant, journal);
    END IF;
    -- A run that is planned again and again must not fill the disk: the first plan and the newest stay.
    DELETE FROM easeml.planned_stages s WHERE s.run_id = (journal ->> 'run_id')::bigint
        AND s.revision BETWEEN 2 AND (journal ->> 'revision')::integer - 500
        AND NOT EXISTS (SELECT FROM easeml.executed_stages e WHERE e.run_id = s.run_id AND e.revision = s.revision);
    DELETE FROM easeml.plans p WHERE p.run_id = (journal ->> 'run_id')::bigint
        AND p.revision BETWEEN 2 AND (journal ->> 'revision')::integer - 500;
END
$$;
COMMENT ON FUNCTION easeml.keep_revision(jsonb) IS
    'Records a new plan for the rest of a run; refuses if the lease is stale (internal).';

CREATE OR REPLACE FUNCTION easeml.keep_stage(journal jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fence(journal);
    INSERT INTO easeml.executed_stages AS e (run_id, tenant, place, revision, label, arm, bracket, target_epochs,
        began_at, ended_at, n_trials, n_slots, cost_before, cost, n_failures, n_beside)
    SELECT r.run_id, r.tenant, s.place, s.revision, s.label, s.arm, s.bracket, s.target_epochs,
        to_timestamp((journal ->> 'began_seconds')::double precision),
        to_timestamp((journal ->> 'ended_seconds')::double precision), s.n_trials, s.n_slots, s.cost_before,
        s.cost, s.n_failures, s.n_beside
    FROM (SELECT w.* FROM easeml.runs w WHERE w.run_id = (journal ->> 'run_id')::bigint
        FOR NO KEY UPDATE SKIP LOCKED) r, jsonb_populate_record(NULL::easeml.executed_stages, journal) s
    ON CONFLICT (run_id, place) DO UPDATE SET ended_at = EXCLUDED.ended_at, n_slots = EXCLUDED.n_slots,
        cost = EXCLUDED.cost, n_failures = EXCLUDED.n_failures, n_beside = EXCLUDED.n_beside;
END
$$;
COMMENT ON FUNCTION easeml.keep_stage(jsonb) IS 'Records a stage of a planned run, once when it begins and once when '
    'it ends; refuses if the lease is stale (internal).';

CREATE OR REPLACE FUNCTION easeml.keep_call(journal jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO easeml.provisioner_calls (instance_id, program, outcome, output)
    VALUES ((journal ->> 'instance_id')::bigint, journal ->> 'program', left(journal ->> 'outcome', 2000),
        left(journal ->> 'output', 4000));
    DELETE FROM easeml.provisioner_calls c
    WHERE c.call_id <= (SELECT max(n.call_id) FROM easeml.provisioner_calls n) - 1000;
END
$$;
COMMENT ON FUNCTION easeml.keep_call(jsonb) IS 'Records the output of a provisioner''s program (internal).';
