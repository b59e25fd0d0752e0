-- Which segments hold the partitions of datasets with bound placement.

CREATE OR REPLACE FUNCTION easeml.place_dataset(dataset_id bigint, factor integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets;
    part integer;
    n_wanted integer;
BEGIN
    SELECT d.* INTO data FROM easeml.datasets d WHERE d.dataset_id = place_dataset.dataset_id;
    -- A copy on a segment without slots, or on a server that is refused, is useless.
    DELETE FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id
        AND c.segment_id NOT IN (SELECT easeml.segments_for(data));
    FOR part IN SELECT p.partition_number FROM easeml.partitions p
        WHERE p.dataset_id = data.dataset_id ORDER BY p.partition_number LOOP
        SELECT factor - count(*) INTO n_wanted FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id
            AND c.partition_number = part;
        -- Too few copies: the emptiest segments get one. Too many: the fullest lose theirs.
        INSERT INTO easeml.replicas (dataset_id, tenant, partition_number, segment_id)
        SELECT data.dataset_id, data.tenant, part, g.segment_id FROM easeml.segments_for(data) g (segment_id)
        WHERE NOT EXISTS (SELECT FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id
            AND c.partition_number = part AND c.segment_id = g.segment_id)
        ORDER BY (SELECT count(*) FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id
            AND c.segment_id = g.segment_id), g.segment_id
        LIMIT greatest(n_wanted, 0);
        DELETE FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id
            AND c.partition_number = part AND c.segment_id IN (
            SELECT o.segment_id FROM easeml.replicas o WHERE o.dataset_id = data.dataset_id
                AND o.partition_number = part
            ORDER BY (SELECT count(*) FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id
                AND c.segment_id = o.segment_id) DESC, o.segment_id DESC
            LIMIT greatest(-n_wanted, 0));
    END LOOP;
    -- Move copies from the fullest segment to the emptiest, as long as that evens them out.
    LOOP
        WITH held AS (
            SELECT g.segment_id, (SELECT count(*) FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id
                AND c.segment_id = g.segment_id) AS n
            FROM easeml.segments_for(data) g (segment_id)),
        ends AS (SELECT (SELECT h.segment_id FROM held h ORDER BY h.n DESC, h.segment_id LIMIT 1) AS fullest,
            (SELECT h.segment_id FROM held h ORDER BY h.n, h.segment_id LIMIT 1) AS emptiest,
            max(h.n) - min(h.n) AS gap FROM held h),
        moved AS (SELECT c.partition_number, e.fullest, e.emptiest FROM easeml.replicas c, ends e
            WHERE e.gap > 1 AND c.dataset_id = data.dataset_id AND c.segment_id = e.fullest
                AND NOT EXISTS (SELECT FROM easeml.replicas o
                WHERE o.dataset_id = c.dataset_id AND o.partition_number = c.partition_number
                    AND o.segment_id = e.emptiest)
            ORDER BY c.partition_number DESC LIMIT 1),
        gone AS (DELETE FROM easeml.replicas c USING moved m
            WHERE c.dataset_id = data.dataset_id AND c.partition_number = m.partition_number
                AND c.segment_id = m.fullest)
        INSERT INTO easeml.replicas (dataset_id, tenant, partition_number, segment_id) SELECT data.dataset_id,
            data.tenant, m.partition_number, m.emptiest FROM moved m;
        EXIT WHEN NOT FOUND;
    END LOOP;
END
$$;
COMMENT ON FUNCTION easeml.place_dataset(bigint, integer) IS
    'Gives each partition of a dataset `factor` holders, evenly over the segments that have slots; moves as few '
    'copies as possible (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_replicate_dataset(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := easeml.dataset_of(caller, asker, arguments ->> 'dataset');
    factor integer := (arguments ->> 'factor')::integer;
    -- The rows of some lie on nodes, and never here.
    n_segments integer := (SELECT count(*) FROM easeml.segments_for(data));
    version_id bigint;
BEGIN
    IF data.placement = 'shared' THEN
        PERFORM easeml.fail('ML004', format('dataset %s is shared: every slot may run every partition already',
                quote_literal(data.dataset_name)),
            hint => 'Replicas are for datasets created with placement => ''bound''.');
    END IF;
    IF data.shuffle = 'within' THEN
        PERFORM easeml.fail('ML004',
            format('the rows of dataset %s stay on the nodes where they are', quote_literal(data.dataset_name)),
            hint => 'It was created with shuffle => ''within''; rows of one with ''across'' may be copied.');
    END IF;
    IF factor IS NULL OR factor NOT BETWEEN 1 AND n_segments THEN
        PERFORM easeml.fail('ML001', format('factor: expected 1 to %s, the number of segments that have slots, got %s',
                n_segments, coalesce(factor::text, 'NULL')),
            hint => 'An administrator adds segments: SELECT easeml.add_segment(name), then easeml.add_slots(n, name).');
    END IF;
    FOR version_id IN SELECT d.dataset_id FROM easeml.datasets d WHERE d.tenant = data.tenant
        AND d.dataset_name = data.dataset_name AND d.placement = 'bound' LOOP
        PERFORM easeml.place_dataset(version_id, factor);
    END LOOP;
    RETURN to_jsonb(factor);
END
$$;
COMMENT ON FUNCTION easeml.perform_replicate_dataset(name, name, jsonb) IS
    'Sets how many segments hold each partition, for easeml.replicate_dataset (internal).';
