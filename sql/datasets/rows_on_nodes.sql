-- Datasets of rows that lie on other servers. A tenant asks, the coordinator has the nodes pack, and records the
-- dataset at the end.

CREATE OR REPLACE FUNCTION easeml.foreign_places(relation regclass) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own text;
    renamed record;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_partition_tree(relation) t JOIN pg_class c ON c.oid = t.relid
        WHERE t.isleaf AND c.relkind = 'f') THEN
        RETURN NULL;
    END IF;
    SELECT t.relid::regclass::text INTO own FROM pg_partition_tree(relation) t JOIN pg_class c ON c.oid = t.relid
    LEFT JOIN pg_foreign_table f ON f.ftrelid = c.oid LEFT JOIN pg_foreign_server s ON s.oid = f.ftserver
    LEFT JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw
    WHERE t.isleaf AND w.fdwname IS DISTINCT FROM 'postgres_fdw' LIMIT 1;
    IF FOUND THEN
        PERFORM easeml.fail('ML001',
            format('source: partition %s is no foreign table of postgres_fdw: expected all rows on nodes', own),
            hint => 'Leave out shuffle and placement: then all rows are read through this server.');
    END IF;
    SELECT a.attrelid::regclass AS partition, a.attname, o.option_value INTO renamed FROM pg_partition_tree(relation) t
    JOIN pg_attribute a ON a.attrelid = t.relid
    CROSS JOIN LATERAL pg_options_to_table(a.attfdwoptions) o WHERE t.isleaf AND o.option_name = 'column_name'
        AND o.option_value <> a.attname LIMIT 1;
    IF FOUND THEN
        PERFORM easeml.fail('ML001', format('source: column %s of partition %s is called %s on its node',
                quote_literal(renamed.attname), renamed.partition, quote_literal(renamed.option_value)),
            hint => 'Rename it on one of the two servers: the columns of a dataset have one name everywhere.');
    END IF;
    RETURN (SELECT jsonb_agg(jsonb_build_object('server', s.srvname, 'table', format('%I.%I', coalesce(o.schema_name,
                        n.nspname), coalesce(o.table_name, c.relname)), 'partition', t.relid::regclass::text,
            'service', p.service, 'database', p.dbname, 'port', p.port) ORDER BY t.relid)
        FROM pg_partition_tree(relation) t JOIN pg_class c ON c.oid = t.relid
        JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_foreign_table f ON f.ftrelid = c.oid
        JOIN pg_foreign_server s ON s.oid = f.ftserver
        CROSS JOIN LATERAL (SELECT min(x.option_value) FILTER (WHERE x.option_name = 'schema_name') AS schema_name,
            min(x.option_value) FILTER (WHERE x.option_name = 'table_name') AS table_name
            FROM pg_options_to_table(f.ftoptions) x) o
        CROSS JOIN LATERAL (SELECT min(x.option_value) FILTER (WHERE x.option_name = 'service') AS service,
            min(x.option_value) FILTER (WHERE x.option_name = 'dbname') AS dbname,
            min(x.option_value) FILTER (WHERE x.option_name = 'port') AS port
            FROM pg_options_to_table(s.srvoptions) x) p
        WHERE t.isleaf);
END
$$;
COMMENT ON FUNCTION easeml.foreign_places(regclass) IS
    'Returns the tables on other servers that a table of foreign partitions stands for, as [{"server", "table", '
    '"partition", "service", "database", "port"}]; NULL if it has none (internal).';

CREATE OR REPLACE FUNCTION easeml.listed_places(source text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    listed jsonb;
BEGIN
    BEGIN
        listed := source::jsonb;
    EXCEPTION WHEN invalid_text_representation THEN
        listed := NULL;
    END;
    IF jsonb_typeof(listed) IS DISTINCT FROM 'object' OR listed = '{}'
        OR EXISTS (SELECT FROM jsonb_each(listed) e WHERE jsonb_typeof(e.value) NOT IN ('string', 'array'))
        OR jsonb_path_exists(listed, '$.*[*] ? (@.type() != "string" || @ == "")') THEN
        PERFORM easeml.fail('ML001', 'source: expected a table, or a json object of tables by segment',
            hint => 'For example: {"east": "public.sales", "west": "public.sales"}.');
    END IF;
    RETURN (SELECT jsonb_agg(jsonb_build_object('segment', e.key, 'table', t.name) ORDER BY e.key, t.name)
        FROM jsonb_each(listed) e
        CROSS JOIN LATERAL jsonb_path_query(e.value, '$[*]') v(value)
        CROSS JOIN LATERAL (SELECT v.value #>> '{}' AS name) t);
END
$$;
COMMENT ON FUNCTION easeml.listed_places(text) IS
    'Returns the tables that a json object names, as [{"segment", "table"}] (internal).';

CREATE OR REPLACE FUNCTION easeml.places_of(source text, relation regclass) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN source ~ '^\s*\{' THEN easeml.listed_places(source)
        ELSE coalesce(easeml.foreign_places(relation), easeml.cluster_places(relation)) END
$$;
COMMENT ON FUNCTION easeml.places_of(text, regclass) IS
    'Returns the tables on nodes that a source stands for; NULL if its rows are here (internal).';

CREATE OR REPLACE FUNCTION easeml.segment_of_place(place jsonb) RETURNS easeml.segments
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.segments;
BEGIN
    IF place ? 'workers' THEN
        RETURN easeml.segment_of_worker(place);
    END IF;
    SELECT g.* INTO found FROM easeml.segments g
    WHERE CASE WHEN place ? 'segment' THEN g.segment_name = place ->> 'segment'
        ELSE g.service IN (place ->> 'service', place ->> 'server') OR g.service IS NOT NULL
            AND g.segment_name = place ->> 'server' END
    ORDER BY g.service IS NOT DISTINCT FROM place ->> 'service' DESC LIMIT 1;
    IF found.segment_id IS NULL AND place ? 'segment' THEN
        PERFORM easeml.find_segment(place ->> 'segment');
    ELSIF found.segment_id IS NULL THEN
        PERFORM easeml.fail('ML003', format('source: partition %s lies on foreign server %s, which is no segment',
                place ->> 'partition', quote_ident(place ->> 'server')),
            hint => format('An administrator adds it under that name: SELECT easeml.add_segment(%L, service => ...).',
                place ->> 'server'));
    ELSIF found.service IS NULL THEN
        PERFORM easeml.fail('ML001',
            format('source: segment %s is a part of this server', quote_literal(found.segment_name)),
            hint => 'Name segments that are other servers, or a table of this server.');
    ELSIF place ->> 'database' <> found.facts ->> 'database' OR place ->> 'port' <> found.facts ->> 'port' THEN
        PERFORM easeml.fail('ML004', format('source: foreign server %s is another server than segment %s',
                quote_ident(place ->> 'server'), quote_literal(found.segment_name)),
            hint => 'Their ports or databases differ: give the segment of that server its name, or the '
                'server the option service.');
    ELSIF easeml.is_unfit(found) THEN
        PERFORM easeml.fail('ML010',
            format('source: segment %s is refused: %s', quote_literal(found.segment_name), found.refusal),
            hint => format('An administrator mends that, and has it looked at again: easeml segment check %s.',
                found.segment_name));
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.segment_of_place(jsonb) IS
    'Returns the segment whose server has a table, or refuses (internal).';

CREATE OR REPLACE FUNCTION easeml.tables_by_segment(places jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF jsonb_array_length(places) > 1000 OR EXISTS (SELECT FROM jsonb_array_elements(places) p
        WHERE coalesce(octet_length(p ->> 'table'), 0) NOT BETWEEN 1 AND 300) THEN
        PERFORM easeml.fail('ML001', 'source: expected at most 1000 tables, each by schema and name');
    ELSIF EXISTS (SELECT FROM jsonb_array_elements(places) p
        WHERE array_length(parse_ident(p ->> 'table'), 1) <> 2) THEN
        PERFORM easeml.fail('ML001', 'source: expected schema and name of each table, as on its server',
            hint => 'For example public.sales.');
    END IF;
    RETURN (SELECT jsonb_object_agg(t.segment_name, t.tables) FROM (
        SELECT (s.g).segment_name, jsonb_agg(DISTINCT s.place ->> 'table') AS tables
        FROM (SELECT easeml.segment_of_place(p) AS g, p AS place FROM jsonb_array_elements(places) p) s GROUP BY 1) t);
EXCEPTION WHEN invalid_parameter_value THEN
    PERFORM easeml.fail('ML001', 'source: expected schema and name of each table, as SQL writes them',
        hint => 'For example public.sales.');
END
$$;
COMMENT ON FUNCTION easeml.tables_by_segment(jsonb) IS
    'Returns the tables of a source by segment, or refuses a table that is on no segment (internal).';

CREATE OR REPLACE FUNCTION easeml.holders_of(shuffle text, tables jsonb) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    able text[] := ARRAY(SELECT g.segment_name FROM easeml.segments g WHERE g.service IS NOT NULL AND EXISTS (SELECT
            FROM easeml.slots s WHERE s.segment_id = g.segment_id) AND NOT easeml.is_unfit(g) ORDER BY g.segment_id);
    lacking text;
BEGIN
    IF shuffle = 'within' THEN
        SELECT k INTO lacking FROM jsonb_object_keys(tables) k WHERE k <> ALL (able) LIMIT 1;
    ELSIF able = '{}' THEN
        lacking := (SELECT min(k) FROM jsonb_object_keys(tables) k);
    END IF;
    IF lacking IS NOT NULL THEN
        PERFORM easeml.fail('ML004',
            format('segment %s has rows and no slots, so nothing could train there', quote_literal(lacking)),
            hint => format('An administrator adds them: SELECT easeml.add_slots(1, %L).', lacking));
    END IF;
    RETURN able;
END
$$;
COMMENT ON FUNCTION easeml.holders_of(text, jsonb) IS
    'Returns the segments that are nodes with slots; refuses if rows would be where nothing trains (internal).';

CREATE OR REPLACE FUNCTION easeml.begin_packing(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old easeml.datasets;
    wanted jsonb := arguments - 'dataset';
    tables jsonb := easeml.tables_by_segment(arguments -> 'places');
    new_id bigint;
BEGIN
    IF arguments ? 'dataset' THEN
        old := easeml.dataset_of(caller, asker, arguments ->> 'dataset');
        wanted := jsonb_build_object('name', old.dataset_name, 'source',
            old.source, 'inputs', old.input_columns, 'target', old.target_column, 'n_partitions', old.n_partitions,
            'validation_fraction', old.validation_fraction,
            'test_fraction', old.test_fraction, 'seed', old.seed, 'placement', old.placement, 'shuffle',
            old.shuffle) || old.options || jsonb_build_object('columns', arguments -> 'columns');
    END IF;
    PERFORM easeml.check_dataset(wanted), easeml.check_json('arguments', wanted, 1000000, 4);
    IF wanted ->> 'shuffle' IS NULL OR coalesce(octet_length(wanted ->> 'source'), 0) NOT BETWEEN 1 AND 100000
        OR num_nonnulls(wanted ->> 'key_columns', nullif(wanted ->> 'n_folds', '0')) > 0 THEN
        PERFORM easeml.fail('ML001', 'rows on nodes have no key_columns and no n_folds, and a shuffle');
    END IF;
    PERFORM easeml.holders_of(wanted ->> 'shuffle', tables);
    PERFORM easeml.refuse_task(asker, wanted ->> 'name', 'easeml.feed');
    IF old.dataset_id IS NULL
        AND EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = asker AND d.dataset_name = wanted ->> 'name') THEN
        PERFORM easeml.fail('ML001', format('you have a dataset %s already', quote_literal(wanted ->> 'name')),
            hint => format('Pack its source again with easeml.refresh_dataset(%s), or remove '
                'it with easeml.drop_dataset(%1$s).', quote_literal(wanted ->> 'name')));
    END IF;
    -- Packing takes all nodes for a while, so one tenant does not ask for a hundred at once.
    IF (SELECT count(*) FROM easeml.packings k WHERE k.tenant = asker
        AND k.dataset_name <> wanted ->> 'name') >= 20 THEN
        PERFORM easeml.fail('ML015', '20 datasets of yours wait to be packed on nodes, or could not be',
            hint => 'Wait for them, or drop them with easeml.drop_dataset: SELECT * FROM easeml.packing_status.');
    END IF;
    IF easeml.is_bound_by_limits(caller) THEN
        PERFORM easeml.check_kept_bytes(asker);
    END IF;
    DELETE FROM easeml.packings k WHERE k.tenant = asker AND k.dataset_name = wanted ->> 'name'
        AND k.failed_at IS NOT NULL;
    INSERT INTO easeml.packings (dataset_id, tenant, dataset_name, version, caller, shuffle, arguments, places)
    VALUES (nextval('easeml.datasets_dataset_id_seq'), asker, wanted ->> 'name', coalesce(old.version, 0) + 1, caller,
        wanted ->> 'shuffle', wanted - '{places,name}'::text[], tables)
    ON CONFLICT (tenant, dataset_name) DO NOTHING RETURNING dataset_id INTO new_id;
    IF new_id IS NULL THEN
        PERFORM easeml.fail('ML010', format('dataset %s is being packed already', quote_literal(wanted ->> 'name')),
            hint => 'SELECT * FROM easeml.packing_status shows how it stands; easeml.drop_dataset ends it.');
    END IF;
    RETURN to_jsonb(new_id);
END
$$;
COMMENT ON FUNCTION easeml.begin_packing(name, name, jsonb) IS
    'Records a dataset of rows on nodes for the service to pack; returns the id that it will have (internal).';

CREATE OR REPLACE FUNCTION easeml.ask_for_packing(arguments jsonb, relation regclass) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- If a table of this server stands for those of the nodes, its types are the right definition.
    columns jsonb := (SELECT jsonb_object_agg(a.attname, CASE WHEN t.typnamespace = 'pg_catalog'::regnamespace
                THEN t.typname::text ELSE format('%I.%I', t.typnamespace::regnamespace, t.typname) END)
        FROM pg_attribute a JOIN pg_type t ON t.oid = easeml.base_type(a.atttypid)
        WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
            AND has_column_privilege(relation, a.attnum, 'SELECT'));
    unknown text := (SELECT c
        FROM jsonb_array_elements_text((arguments -> 'inputs') || jsonb_build_array(arguments -> 'target')) c
        WHERE relation IS NOT NULL AND NOT coalesce(columns, '{}') ? c LIMIT 1);
    new_id bigint;
BEGIN
    IF unknown IS NOT NULL THEN
        PERFORM easeml.fail('ML001', format('inputs and target: %s has no column %s that role %s may read', relation,
                quote_literal(unknown), quote_ident(current_user)));
    END IF;
    new_id := easeml.request('begin_packing', arguments || jsonb_build_object('columns', columns))::bigint;
    RAISE NOTICE 'its rows are packed on their nodes'
        USING hint = format('To wait until that is done: CALL easeml.wait_dataset(%s).', new_id);
    IF NOT easeml.has_live_coordinator() THEN
        RAISE WARNING 'no coordinator is running: the rows are packed as soon as one is'
            USING hint = 'Start one from a shell: easeml up, or easeml coordinator --dsn ...';
    END IF;
    RETURN new_id;
END
$$;
COMMENT ON FUNCTION easeml.ask_for_packing(jsonb, regclass) IS
    'Asks the service to pack rows on nodes; returns the id that the dataset will have (internal).';

CREATE OR REPLACE FUNCTION easeml.refuse_unpacked_dataset(tenant name, dataset text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.packings;
BEGIN
    SELECT k.* INTO found FROM easeml.packings k WHERE k.tenant = refuse_unpacked_dataset.tenant
        AND k.dataset_name = refuse_unpacked_dataset.dataset;
    IF found.failed_at IS NOT NULL THEN
        PERFORM easeml.fail(coalesce(found.problem ->> 'sqlstate', 'ML000'),
            format('dataset %s could not be packed: %s', quote_literal(dataset), found.problem ->> 'message'),
            found.problem ->> 'detail', found.problem ->> 'hint');
    ELSIF found.dataset_id IS NOT NULL THEN
        PERFORM easeml.fail('ML010', format('dataset %s is still being packed on its nodes%s',
                quote_literal(dataset), ': ' || (found.problem ->> 'message')),
            hint => format('To wait for it: CALL easeml.wait_dataset(%s).', found.dataset_id));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.refuse_unpacked_dataset(name, text) IS
    'Raises the error that a dataset on nodes is still being packed, or could not be packed (internal).';

CREATE OR REPLACE FUNCTION easeml.refuse_rows_elsewhere(data easeml.datasets, what text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF data.shuffle IS NOT NULL THEN
        PERFORM easeml.fail('ML004', format('%s needs the rows of dataset %s on this server, and they are on its nodes',
                what, quote_literal(data.dataset_name)));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.refuse_rows_elsewhere(easeml.datasets, text) IS
    'Refuses an operation that needs packed rows on this server (internal).';

CREATE OR REPLACE PROCEDURE easeml.wait_dataset(dataset_id bigint, timeout_seconds double precision DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
    asked easeml.packings;
    shown text;
    started timestamptz := pg_catalog.clock_timestamp();
    failure jsonb;
BEGIN
    -- A procedure that commits can have no setting of its own, and a commit ends this one.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    IF NOT (timeout_seconds > 0 AND timeout_seconds < 'Infinity') THEN
        PERFORM easeml.fail('ML001', format('timeout_seconds: expected a positive number or NULL, got %s',
                timeout_seconds), hint => 'NULL, the default, waits for as long as it takes.');
    END IF;
    CALL easeml.commit_first('easeml.wait_dataset can never see progress inside an open transaction',
        'CALL easeml.wait_dataset(dataset_id)', failure);
    PERFORM easeml.raise_failure(failure);
    LOOP
        COMMIT;
        PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
        SELECT k.* INTO asked FROM easeml.packings k WHERE k.dataset_id = wait_dataset.dataset_id;
        IF NOT FOUND THEN
            IF NOT EXISTS (SELECT FROM easeml.datasets d WHERE d.dataset_id = wait_dataset.dataset_id) THEN
                PERFORM easeml.fail('ML003', format('there is no dataset %s that you can see, and none is being packed',
                        coalesce(dataset_id::text, 'NULL')),
                    hint => 'SELECT dataset_id FROM easeml.dataset_info lists them.');
            END IF;
            RETURN;
        END IF;
        IF asked.failed_at IS NOT NULL THEN
            PERFORM easeml.refuse_unpacked_dataset(asked.tenant, asked.dataset_name);
        END IF;
        IF asked.problem ->> 'message' IS DISTINCT FROM shown THEN
            shown := asked.problem ->> 'message';
            RAISE NOTICE 'dataset % waits: %', quote_literal(asked.dataset_name), shown;
        END IF;
        IF NOT easeml.has_live_coordinator() AND clock_timestamp() > started + interval '15 seconds' THEN
            PERFORM easeml.fail('ML010',
                format('no coordinator is running, so dataset %s cannot be packed', quote_literal(asked.dataset_name)),
                hint => 'Start one from a shell: easeml up, or easeml coordinator --dsn ...; it is packed then.');
        END IF;
        IF clock_timestamp() > started + timeout_seconds * interval '1 second' THEN
            PERFORM easeml.fail('ML010', format('dataset %s is not packed after %s seconds',
                    quote_literal(asked.dataset_name), timeout_seconds));
        END IF;
        -- What is packed in a second is seen a tenth of a second later; whoever waits long looks seldom.
        CALL easeml.rest(least(0.2, timeout_seconds,
                0.02 + extract(epoch FROM clock_timestamp() - started)::double precision / 10));
    END LOOP;
END
$$;
COMMENT ON PROCEDURE easeml.wait_dataset(bigint, double precision) IS
    'Waits until the service has packed a dataset of rows on nodes, and raises an error if it cannot: CALL '
    'easeml.wait_dataset(1). timeout_seconds: raise an error after that time.';
