-- How the service finds, opens and records the packing of rows on nodes.

CREATE OR REPLACE FUNCTION easeml.next_packing(busy name[] DEFAULT '{}') RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asked easeml.packings;
BEGIN
    -- Tenants take turns: whose last one began or ended earliest is next. One that was packed is a dataset, and no
    -- packing any more. One that an open transaction has locked waits for it, and for it alone.
    SELECT k.* INTO asked FROM easeml.packings k WHERE k.failed_at IS NULL
        AND (k.not_before IS NULL OR k.not_before <= clock_timestamp()) AND k.tenant <> ALL (busy)
    ORDER BY greatest((SELECT max(o.started_at) FROM easeml.packings o WHERE o.tenant = k.tenant),
        (SELECT max(d.created_at) FROM easeml.datasets d WHERE d.tenant = k.tenant
            AND d.shuffle IS NOT NULL)) NULLS FIRST, k.asked_at LIMIT 1 FOR NO KEY UPDATE OF k SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    UPDATE easeml.packings k SET started_at = clock_timestamp() WHERE k.dataset_id = asked.dataset_id;
    RETURN jsonb_build_object('number', asked.dataset_id, 'tenant', asked.tenant);
END
$$;
COMMENT ON FUNCTION easeml.next_packing(name[]) IS 'Returns the number and tenant of the next dataset that the service '
    'is to pack on nodes, skipping tenants that are busy; NULL if there is none (internal).';

CREATE OR REPLACE FUNCTION easeml.wanted_packings() RETURNS bigint[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- One that is recorded is a dataset.
    SELECT ARRAY(SELECT k.dataset_id FROM easeml.packings k WHERE k.failed_at IS NULL UNION ALL SELECT d.dataset_id
        FROM easeml.datasets d WHERE d.shuffle IS NOT NULL)
$$;
COMMENT ON FUNCTION easeml.wanted_packings() IS
    'Returns the datasets of rows on nodes that nobody has dropped (internal).';

CREATE OR REPLACE FUNCTION easeml.open_packing(dataset_id bigint) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asked easeml.packings;
    holders text[];
BEGIN
    SELECT k.* INTO asked FROM easeml.packings k WHERE k.dataset_id = open_packing.dataset_id AND k.failed_at IS NULL;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- Slots may have gone since it was asked for: then the rows wait for others.
    holders := ARRAY(SELECT g.segment_name FROM easeml.segments g WHERE g.service IS NOT NULL
        AND EXISTS (SELECT FROM easeml.slots s WHERE s.segment_id = g.segment_id)
        AND (NOT easeml.is_unfit(g) OR asked.places ? g.segment_name) ORDER BY g.segment_id);
    RETURN asked.arguments || jsonb_build_object('dataset_id', asked.dataset_id, 'role', asked.caller, 'shuffle',
        asked.shuffle, 'holders', holders,
        'places', asked.places, 'seconds', coalesce((SELECT y.node_job_seconds FROM easeml.tenancy y), 14400),
        'nodes', easeml.nodes_of(ARRAY(SELECT jsonb_object_keys(asked.places)) || holders), 'peers',
        easeml.nodes_of(easeml.peers_of(asked.places)));
END
$$;
COMMENT ON FUNCTION easeml.open_packing(bigint) IS
    'Returns everything needed to pack a dataset on nodes; NULL if it is no longer wanted (internal).';

CREATE OR REPLACE FUNCTION easeml.note_packing(
    dataset_id bigint,
    problem jsonb,
    is_failed boolean,
    lease_number bigint
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE easeml.packings k SET failed_at = CASE WHEN is_failed THEN clock_timestamp() END,
        not_before = clock_timestamp() + interval '5 seconds',
        problem = (SELECT jsonb_object_agg(e.key, left(e.value, 1000)) FROM jsonb_each_text(note_packing.problem) e)
    WHERE k.dataset_id = note_packing.dataset_id;
    PERFORM easeml.fence(jsonb_build_object('lease_number', lease_number));
END
$$;
COMMENT ON FUNCTION easeml.note_packing(bigint, jsonb, boolean, bigint) IS
    'Records why a dataset of rows on nodes is not packed yet, or will not be (internal).';

CREATE OR REPLACE FUNCTION easeml.settle_packing(step text, told jsonb) RETURNS jsonb
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.packing.on_nodes.steps import settle_packing
return settle_packing(plpy, GD, step, told)
$$;
COMMENT ON FUNCTION easeml.settle_packing(text, jsonb) IS
    'Combines what all nodes found in a step of packing, and returns what follows. The steps of a dataset are one '
    'transaction, which keeps what nodes sent in temporary tables (internal).';

CREATE OR REPLACE FUNCTION easeml.finish_packing(told jsonb, lease_number bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asked easeml.packings;
    data easeml.datasets;
BEGIN
    DELETE FROM easeml.packings k WHERE k.dataset_id = (told ->> 'dataset_id')::bigint RETURNING k.* INTO asked;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', format('dataset %s is not wanted any more', told ->> 'dataset_id'));
    END IF;
    PERFORM easeml.begin_version(asked.tenant, asked.version,
        asked.arguments || jsonb_build_object('name', asked.dataset_name), asked.dataset_id);
    PERFORM easeml.fill_version(asked.dataset_id, told || jsonb_build_object('block_rows', told -> 'rows_of_block',
            'n_skipped_rows', told -> 'n_skipped', 'row_key', NULL,
            'packing_seconds', extract(epoch FROM clock_timestamp() - asked.started_at)));
    UPDATE easeml.datasets d SET shuffle = asked.shuffle, n_moved_bytes = (told ->> 'n_moved_bytes')::bigint
    WHERE d.dataset_id = asked.dataset_id RETURNING d.* INTO data;
    INSERT INTO easeml.partitions (dataset_id, tenant, partition_number, n_train_rows, n_validation_rows, n_test_rows,
        n_bytes, checksum, home_segment_id)
    SELECT data.dataset_id, data.tenant, p.part, coalesce(sum(r.n) FILTER (WHERE r.split = 'train'), 0),
        coalesce(sum(r.n) FILTER (WHERE r.split = 'validation'), 0),
        coalesce(sum(r.n) FILTER (WHERE r.split = 'test'), 0),
        (told #>> ARRAY['n_bytes', p.part::text])::bigint,
        (told #>> ARRAY['checksums', p.part::text])::bigint, p.segment_id
    FROM (SELECT n::integer AS part, g.segment_id FROM jsonb_each(told -> 'parts_by_segment') e
        JOIN easeml.segments g ON g.segment_name = e.key CROSS JOIN LATERAL jsonb_array_elements_text(e.value) n) p
    JOIN LATERAL (SELECT e ->> 0 AS split, (e ->> 1)::integer AS part, (e ->> 2)::bigint AS n
        FROM jsonb_array_elements(told -> 'rows') e) r ON r.part = p.part GROUP BY p.part, p.segment_id;
    IF (SELECT count(*) FROM easeml.partitions p WHERE p.dataset_id = data.dataset_id
        AND p.n_train_rows > 0) <> data.n_partitions THEN
        PERFORM easeml.fail('ML004',
            format('dataset %s: a segment was removed while it was packed', quote_literal(data.dataset_name)));
    END IF;
    INSERT INTO easeml.replicas (dataset_id, tenant, partition_number, segment_id) SELECT p.dataset_id, p.tenant,
        p.partition_number, p.home_segment_id FROM easeml.partitions p WHERE p.dataset_id = data.dataset_id;
    IF easeml.is_bound_by_limits(asked.caller) THEN
        PERFORM easeml.check_kept_bytes(asked.tenant);
    END IF;
    -- At last, since the lock that it takes delays a takeover.
    PERFORM easeml.fence(jsonb_build_object('lease_number', lease_number));
END
$$;
COMMENT ON FUNCTION easeml.finish_packing(jsonb, bigint) IS
    'Records a dataset whose blocks the nodes have packed (internal).';
