-- Segments and slots: where units run. Administrators change them while runs go on, and a running coordinator adapts at
-- once.

CREATE OR REPLACE FUNCTION easeml.check_slot_options(
    n integer,
    n_threads integer,
    device text,
    memory_limit_bytes bigint
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF n IS NULL OR n NOT BETWEEN 1 AND 1000 THEN
        PERFORM easeml.fail('ML001', format('n: expected 1 to 1000 slots, got %s', coalesce(n::text, 'NULL')),
            hint => 'One slot for each core is a good number; easeml.drain_slot and '
                'easeml.remove_slot take some away.');
    END IF;
    IF device IS NULL OR device !~ '^(cpu(:[0-9]+)?|cuda:[0-9]+)$' THEN
        PERFORM easeml.fail('ML001', format('device: expected cpu, cpu:N or cuda:N, got %s', quote_nullable(device)),
            hint => 'cuda:0 is the first GPU of the server, cpu:0 its first core.');
    END IF;
    IF n_threads IS NULL OR n_threads NOT BETWEEN 1 AND 1024 THEN
        PERFORM easeml.fail('ML001',
            format('n_threads: expected 1 to 1024, got %s', coalesce(n_threads::text, 'NULL')));
    END IF;
    IF memory_limit_bytes < 268435456 THEN
        PERFORM easeml.fail('ML001',
            format('memory_limit_bytes: expected at least 256 MB (268435456), got %s', memory_limit_bytes));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_slot_options(integer, integer, text, bigint) IS
    'Refuses options that no slot can have (internal).';

CREATE OR REPLACE FUNCTION easeml.lock_topology() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- A row that only administrators can lock. Any role could take an advisory lock, and tenants who place datasets
    -- hold weaker locks of segments.
    PERFORM FROM easeml.segments g WHERE g.segment_id = 1 FOR NO KEY UPDATE;
END
$$;
COMMENT ON FUNCTION easeml.lock_topology() IS
    'Makes transactions that decide about slots and segments wait for one another (internal).';

CREATE OR REPLACE FUNCTION easeml.find_segment(segment text) RETURNS integer
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found integer;
BEGIN
    SELECT g.segment_id INTO found FROM easeml.segments g WHERE g.segment_name = find_segment.segment;
    IF found IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no segment %s', quote_nullable(segment)),
            hint => (SELECT 'There are: ' || string_agg(g.segment_name, ', ' ORDER BY g.segment_id)
                || '. Add one: SELECT easeml.add_segment(name).' FROM easeml.segments g));
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.find_segment(text) IS 'Returns the number of a segment, or raises an error (internal).';

CREATE OR REPLACE FUNCTION easeml.find_slot(slot_id integer) RETURNS easeml.slots
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.slots;
BEGIN
    SELECT s.* INTO found FROM easeml.slots s WHERE s.slot_id = find_slot.slot_id;
    IF found.slot_id IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no slot %s', coalesce(slot_id::text, 'NULL')),
            hint => 'SELECT * FROM easeml.slot_status lists them.');
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.find_slot(integer) IS 'Returns the row of a slot, or raises an error (internal).';

CREATE OR REPLACE FUNCTION easeml.check_leaving(slot_ids integer[], force boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    orphan record;
BEGIN
    -- One transaction at a time: two that remove slots at once would each count on the other's slots.
    PERFORM easeml.lock_topology();
    IF force THEN
        RETURN;
    END IF;
    WITH staying AS (SELECT s.segment_id FROM easeml.slots s WHERE s.status = 'active' AND s.slot_id <> ALL (slot_ids)),
    leaving AS (SELECT s.segment_id FROM easeml.slots s WHERE s.status = 'active' AND s.slot_id = ANY (slot_ids))
    SELECT d.dataset_name, d.tenant, p.partition_number, d.placement,
        (SELECT count(*) FROM easeml.replicas c WHERE c.dataset_id = d.dataset_id
            AND c.partition_number = p.partition_number) AS n_holders INTO orphan
    FROM easeml.datasets d JOIN easeml.partitions p USING (dataset_id)
    WHERE CASE d.placement
        WHEN 'shared' THEN NOT EXISTS (SELECT FROM staying) AND EXISTS (SELECT FROM leaving)
        ELSE NOT EXISTS (SELECT FROM staying s JOIN easeml.replicas c USING (segment_id)
            WHERE c.dataset_id = d.dataset_id AND c.partition_number = p.partition_number)
            AND EXISTS (SELECT FROM leaving l JOIN easeml.replicas c USING (segment_id)
                WHERE c.dataset_id = d.dataset_id AND c.partition_number = p.partition_number) END
    ORDER BY d.dataset_id DESC, p.partition_number LIMIT 1;
    IF FOUND THEN
        PERFORM easeml.fail('ML004', format('%s the last that can run partition %s of dataset %s (tenant %s)',
                (SELECT string_agg(format('slot %s on segment %s', s.slot_id, g.segment_name), ', ' ORDER BY s.slot_id)
                    || CASE count(*) WHEN 1 THEN ' is' ELSE ' are' END
                 FROM easeml.slots s JOIN easeml.segments g USING (segment_id) WHERE s.slot_id = ANY (slot_ids)),
                orphan.partition_number, quote_literal(orphan.dataset_name), orphan.tenant),
            hint => CASE orphan.placement WHEN 'bound' THEN format('Replicate it '
                    'first: SELECT easeml.replicate_dataset(%L, %s). Or add slots there, or say force => true.',
                    orphan.dataset_name, orphan.n_holders + 1)
                ELSE 'Add slots first: SELECT easeml.add_slots(1). Or say force => true: runs then wait.' END);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_leaving(integer[], boolean) IS
    'Refuses to take away the last slots that can run a partition, unless forced (internal).';

CREATE OR REPLACE FUNCTION easeml.set_slots(
    n integer,
    n_threads integer DEFAULT 1,
    device text DEFAULT 'cpu',
    memory_limit_bytes bigint DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept integer[];
    leaving integer[];
BEGIN
    PERFORM easeml.check_slot_options(n, n_threads, device, memory_limit_bytes);
    SELECT array_agg(s.slot_id ORDER BY s.slot_id) FILTER (WHERE s.place <= n),
        array_agg(s.slot_id) FILTER (WHERE s.place > n) INTO kept, leaving
    FROM (SELECT s.slot_id, row_number() OVER (ORDER BY s.slot_id) AS place FROM easeml.slots s
        WHERE s.segment_id = 1 AND NOT s.is_added) s;
    DELETE FROM easeml.slots s WHERE s.slot_id = ANY (leaving);
    UPDATE easeml.slots s SET device = set_slots.device, n_threads = set_slots.n_threads,
        memory_limit_bytes = set_slots.memory_limit_bytes WHERE s.slot_id = ANY (kept);
    IF n > coalesce(cardinality(kept), 0) THEN
        PERFORM easeml.add_slots(n - coalesce(cardinality(kept), 0), 'local', n_threads, device, memory_limit_bytes);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.set_slots(integer, integer, text, bigint) IS
    'Sets the number of slots of segment local, and the CPU threads, device and memory limit of each. device: cpu, '
    'cuda:N, or cpu:N (the N-th n_threads cores; several slots may share them). memory_limit_bytes: by default each '
    'slot on the CPU has its share of three quarters of the machine''s memory. A running coordinator adapts at once; '
    'units of removed slots run again elsewhere.';

CREATE OR REPLACE FUNCTION easeml.add_slots(
    n integer,
    segment text DEFAULT 'local',
    n_threads integer DEFAULT 1,
    device text DEFAULT 'cpu',
    memory_limit_bytes bigint DEFAULT NULL
) RETURNS integer[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    added integer[];
BEGIN
    PERFORM easeml.check_slot_options(n, n_threads, device, memory_limit_bytes);
    -- The number of a removed slot is never reused: the history of units names slots by number.
    WITH numbered AS MATERIALIZED (SELECT nextval('easeml.slots_slot_id_seq')::integer AS slot_id
        FROM generate_series(1, n)),
    inserted AS (
        INSERT INTO easeml.slots (slot_id, slot_name, segment_id, device, n_threads,
            memory_limit_bytes) OVERRIDING SYSTEM VALUE
        SELECT i.slot_id, 'slot-' || i.slot_id, easeml.find_segment(segment), add_slots.device, add_slots.n_threads,
            add_slots.memory_limit_bytes FROM numbered i
        RETURNING slot_id)
    SELECT array_agg(i.slot_id ORDER BY i.slot_id) INTO added FROM inserted i;
    RETURN added;
END
$$;
COMMENT ON FUNCTION easeml.add_slots(integer, text, integer, text, bigint) IS
    'Adds slots to a segment and returns their numbers. A running coordinator opens them at '
    'once, and open runs use them.';

CREATE OR REPLACE FUNCTION easeml.drain_slot(slot_id integer, force boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    slot easeml.slots := easeml.find_slot(slot_id);
BEGIN
    IF slot.status = 'lost' THEN
        PERFORM easeml.fail('ML004', format('slot %s is lost: %s', slot.slot_id, slot.lost_reason),
            hint => 'It gets no units. Remove it, or make it active again with easeml.resume_slot.');
    END IF;
    PERFORM easeml.check_leaving(ARRAY[slot.slot_id], force);
    UPDATE easeml.slots s SET status = 'draining' WHERE s.slot_id = slot.slot_id;
END
$$;
COMMENT ON FUNCTION easeml.drain_slot(integer, boolean) IS
    'Lets a slot finish its unit and gives it no other. Refuses for the last slot that can run a partition, unless '
    'force => true. easeml.resume_slot undoes it.';

CREATE OR REPLACE FUNCTION easeml.resume_slot(slot_id integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    slot easeml.slots := easeml.find_slot(slot_id);
BEGIN
    UPDATE easeml.slots s SET status = 'active', lost_reason = NULL, lost_at = NULL WHERE s.slot_id = slot.slot_id;
END
$$;
COMMENT ON FUNCTION easeml.resume_slot(integer) IS 'Gives units again to a slot that was drained or lost.';

CREATE OR REPLACE FUNCTION easeml.remove_slot(slot_id integer, force boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    slot easeml.slots := easeml.find_slot(slot_id);
BEGIN
    PERFORM easeml.check_leaving(ARRAY[slot.slot_id], force);
    DELETE FROM easeml.slots s WHERE s.slot_id = slot.slot_id;
END
$$;
COMMENT ON FUNCTION easeml.remove_slot(integer, boolean) IS
    'Removes a slot at once. The coordinator cancels its unit and runs it again elsewhere. Refuses for the last slot '
    'that can run a partition, unless force => true.';

CREATE OR REPLACE FUNCTION easeml.drain_segment(segment text, force boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own integer[] := (SELECT array_agg(s.slot_id) FROM easeml.slots s
        WHERE s.segment_id = easeml.find_segment(segment) AND s.status = 'active');
BEGIN
    IF own IS NOT NULL THEN
        PERFORM easeml.check_leaving(own, force);
        UPDATE easeml.slots s SET status = 'draining' WHERE s.slot_id = ANY (own);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.drain_segment(text, boolean) IS 'Drains all slots of a segment, as easeml.drain_slot does.';

CREATE OR REPLACE FUNCTION easeml.resume_segment(segment text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE easeml.slots s SET status = 'active', lost_reason = NULL, lost_at = NULL
    WHERE s.segment_id = easeml.find_segment(segment);
END
$$;
COMMENT ON FUNCTION easeml.resume_segment(text) IS 'Gives units again to all slots of a segment.';
