-- What easeml does with datasets for tenants, with the rights of easeml_owner: behind easeml.requests, for a proven
-- caller.

-- Everybody may call this, because it reads only its argument.
CREATE OR REPLACE FUNCTION easeml.check_dataset(request jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted record;
BEGIN
    SELECT w.* INTO wanted FROM jsonb_to_record(request) w(name text, inputs text[], target text,
        n_partitions integer, validation_fraction float8,
        test_fraction float8, seed bigint, task text, input_shape integer[], block_rows integer, placement text,
        split_column text, time_column text,
        group_column text, key_columns text[], n_folds integer, shuffle text);
    IF wanted.name IS NULL OR btrim(wanted.name) = '' OR length(wanted.name) > 200 THEN
        PERFORM easeml.fail('ML001', format('name: expected 1 to 200 characters, got %s', quote_nullable(wanted.name)),
            hint => 'Give the dataset a name: easeml.create_dataset(name, source, inputs, target).');
    END IF;
    IF wanted.n_partitions IS NULL OR wanted.n_partitions NOT BETWEEN 1 AND 10000 THEN
        PERFORM easeml.fail('ML001',
            format('n_partitions: expected 1 to 10000, got %s', coalesce(wanted.n_partitions::text, 'NULL')),
            hint => 'Take at least as many as there are slots; 4 is the default.');
    END IF;
    IF wanted.validation_fraction IS NULL
        OR NOT (wanted.validation_fraction > 0 AND wanted.validation_fraction < 1) THEN
        PERFORM easeml.fail('ML001', format('validation_fraction: expected a number between 0 and 1, got %s',
                coalesce(wanted.validation_fraction::text, 'NULL')),
            hint => 'It is a share of the rows: 0.15 means 15 %.');
    END IF;
    IF wanted.test_fraction IS NULL OR NOT (wanted.test_fraction > 0 AND wanted.test_fraction < 1) THEN
        PERFORM easeml.fail('ML001', format('test_fraction: expected a number between 0 and 1, got %s',
                coalesce(wanted.test_fraction::text, 'NULL')),
            hint => 'It is a share of the rows: 0.15 means 15 %.');
    END IF;
    IF wanted.validation_fraction + wanted.test_fraction >= 1 THEN
        PERFORM easeml.fail('ML001',
            format('validation_fraction and test_fraction leave nothing to train on: %s + %s >= 1',
                wanted.validation_fraction, wanted.test_fraction),
            hint => '0.15 and 0.15, the defaults, leave 70 % of the rows to train on.');
    END IF;
    IF wanted.task IS NOT NULL AND wanted.task NOT IN ('classification', 'regression') THEN
        PERFORM easeml.fail('ML001',
            format('task: expected classification, regression or NULL (by the type of the target), got %s',
                quote_literal(wanted.task)),
            hint => 'Leave the task out, unless whole numbers are not what they look like.');
    END IF;
    IF wanted.block_rows IS NOT NULL AND wanted.block_rows NOT BETWEEN 1 AND 1000000 THEN
        PERFORM easeml.fail('ML001', format('block_rows: expected 1 to 1000000, got %s', wanted.block_rows));
    END IF;
    IF wanted.seed IS NULL THEN
        PERFORM easeml.fail('ML001', 'seed: expected a whole number, got NULL');
    END IF;
    IF wanted.placement IS NULL OR wanted.placement NOT IN ('shared', 'bound') THEN
        PERFORM easeml.fail('ML001',
            format('placement: expected shared or bound, got %s', quote_nullable(wanted.placement)),
            hint => 'shared: every slot may run every partition; bound: a partition belongs to a '
                'segment, see easeml.replicate_dataset.');
    END IF;
    IF wanted.placement = 'bound' AND NOT EXISTS (SELECT FROM easeml.slots) THEN
        PERFORM easeml.fail('ML004', 'placement: bound partitions need a segment with slots, and there are no slots',
            hint => 'An administrator adds them: SELECT easeml.set_slots(2).');
    END IF;
    IF wanted.shuffle NOT IN ('across', 'within') THEN
        PERFORM easeml.fail('ML001',
            format('shuffle: expected across or within, got %s', quote_nullable(wanted.shuffle)),
            hint => 'Of rows on nodes: across deals them over all nodes, within leaves them where they are.');
    END IF;
    IF wanted.shuffle IS NOT NULL AND (wanted.key_columns IS NOT NULL OR wanted.n_folds > 0) THEN
        PERFORM easeml.fail('ML001', 'shuffle excludes key_columns and n_folds: rows on nodes are not named here, and '
            'folds are for small tables');
    END IF;
    IF array_ndims(wanted.inputs) > 1 THEN
        PERFORM easeml.fail('ML001', format('inputs: expected a list of columns, got %s', wanted.inputs));
    END IF;
    IF array_ndims(wanted.input_shape) > 1 THEN
        PERFORM easeml.fail('ML001', format('input_shape: expected a list of sizes, got %s', wanted.input_shape));
    END IF;
    IF cardinality(wanted.inputs) > 1600
        OR EXISTS (SELECT FROM unnest(wanted.inputs || wanted.target) c WHERE octet_length(c) > 63) THEN
        PERFORM easeml.fail('ML001', 'inputs: expected at most 1600 columns, whose names have at most 63 bytes');
    END IF;
    IF wanted.target IS NULL THEN
        PERFORM easeml.fail('ML001', 'target: expected a column, got NULL',
            hint => 'Name the column to predict: easeml.create_dataset(name, source, target => ''column'').');
    END IF;
    IF num_nonnulls(wanted.split_column, wanted.time_column, wanted.group_column) > 1 THEN
        PERFORM easeml.fail('ML001', 'split_column, time_column and group_column exclude each other',
            hint => 'Name the one that says which rows a model is to be tested on.');
    END IF;
    IF wanted.n_folds <> 0 AND wanted.n_folds NOT BETWEEN 2 AND 20 THEN
        PERFORM easeml.fail('ML001', format('n_folds: expected 2 to 20, or 0 (rows of their own validate), got %s',
                wanted.n_folds), hint => '5 and 10 are usual.');
    END IF;
    IF wanted.n_folds > 0 AND wanted.time_column IS NOT NULL THEN
        PERFORM easeml.fail('ML001',
            'n_folds and time_column exclude each other: older rows would be predicted from newer ones',
            hint => 'Leave one of them out.');
    END IF;
    IF wanted.n_folds > 0 AND wanted.placement = 'bound' THEN
        PERFORM easeml.fail('ML001', 'n_folds and placement bound exclude each other',
            hint => 'Folds are for small tables: leave placement out.');
    END IF;
    IF octet_length(concat(wanted.split_column, wanted.time_column, wanted.group_column)) > 63
        OR array_ndims(wanted.key_columns) > 1 OR cardinality(wanted.key_columns) > 32
        OR EXISTS (SELECT FROM unnest(wanted.key_columns) c WHERE c IS NULL OR octet_length(c) > 63) THEN
        PERFORM easeml.fail('ML001', 'split_column, time_column, group_column, key_columns: expected names of columns, '
            'which have at most 63 bytes, and at most 32 keys');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_dataset(jsonb) IS
    'Refuses arguments of easeml.create_dataset that no dataset can have (internal).';

CREATE OR REPLACE FUNCTION easeml.begin_dataset(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.check_dataset(arguments);
    IF coalesce(octet_length(arguments ->> 'source'), 0) NOT BETWEEN 1 AND 300 THEN
        PERFORM easeml.fail('ML003', 'source: expected schema and name of a table or view');
    END IF;
    PERFORM easeml.refuse_task(asker, arguments ->> 'name', 'easeml.feed');
    IF EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = asker AND d.dataset_name = arguments ->> 'name') THEN
        PERFORM easeml.fail('ML001', format('you have a dataset %s already', quote_literal(arguments ->> 'name')),
            hint => format('Pack its source again with easeml.refresh_dataset(%s), or remove '
                'it with easeml.drop_dataset(%1$s).', quote_literal(arguments ->> 'name')));
    END IF;
    RETURN to_jsonb(easeml.begin_version(asker, 1, arguments));
END
$$;
COMMENT ON FUNCTION easeml.begin_dataset(name, name, jsonb) IS
    'Begins the first version of a dataset, for this transaction to pack; returns its id (internal).';

CREATE OR REPLACE FUNCTION easeml.refuse_task(asker name, dataset text, instead text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM easeml.tasks t WHERE t.tenant = asker AND t.task_name = dataset) THEN
        PERFORM easeml.fail('ML004', format('%s is a task: the service packs its versions', quote_literal(dataset)),
            hint => format('Call %s instead.', instead));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.refuse_task(name, text, text) IS
    'Refuses an operation on the dataset of a task that the service does itself (internal).';

CREATE OR REPLACE FUNCTION easeml.begin_refresh(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old easeml.datasets := easeml.dataset_of(caller, asker, arguments ->> 'dataset');
BEGIN
    PERFORM easeml.refuse_task(asker, old.dataset_name, 'easeml.run_task');
    RETURN to_jsonb(easeml.begin_version(asker, old.version + 1,
            jsonb_build_object('name', old.dataset_name, 'source', old.source, 'inputs', old.input_columns,
        'target', old.target_column, 'n_partitions', old.n_partitions, 'validation_fraction', old.validation_fraction,
        'test_fraction', old.test_fraction,
        'seed', old.seed, 'placement',
        old.placement) || old.options || CASE WHEN old.options ? 'is_small' AND NOT (arguments ->> 'is_small')::boolean
            THEN '{"n_folds": null, "is_small": null}' ELSE '{}' END::jsonb));
END
$$;
COMMENT ON FUNCTION easeml.begin_refresh(name, name, jsonb) IS
    'Begins a further version of a dataset, for this transaction to pack; returns its id (internal).';

CREATE OR REPLACE FUNCTION easeml.begin_version(
    asker name,
    version integer,
    arguments jsonb,
    dataset_id bigint DEFAULT nextval('easeml.datasets_dataset_id_seq')
) RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    -- What packing finds out is filled in by easeml.fill_version.
    INSERT INTO easeml.datasets (dataset_id, tenant, dataset_name, version, source, input_columns, target_column, task,
        input_shape, n_outputs, n_partitions, placement,
        validation_fraction, test_fraction, seed, block_rows, options, encoder, packing_xid) OVERRIDING SYSTEM VALUE
    SELECT begin_version.dataset_id, begin_version.asker, w.name, begin_version.version,
        w.source, coalesce(w.inputs, '{}'), w.target, coalesce(w.task, 'classification'), '{1}', 1,
        coalesce(nullif(w.n_folds, 0), w.n_partitions), w.placement,
        w.validation_fraction, w.test_fraction, w.seed, coalesce(w.block_rows, 1),
        jsonb_build_object('task', w.task, 'input_shape', w.input_shape, 'block_rows', w.block_rows)
            || jsonb_strip_nulls(jsonb_build_object('split_column', w.split_column, 'time_column', w.time_column,
                    'group_column', w.group_column, 'key_columns', w.key_columns, 'n_folds', nullif(w.n_folds, 0),
                'is_small', w.is_small)), '{}',
        pg_current_xact_id()
    FROM jsonb_to_record(arguments) w(name text, source text, inputs text[], target text, n_partitions integer,
        validation_fraction float8, test_fraction float8, seed bigint,
        task text, input_shape integer[], block_rows integer, placement text, split_column text, time_column text,
        group_column text, key_columns text[], n_folds integer, is_small boolean)
    RETURNING dataset_id
$$;
COMMENT ON FUNCTION easeml.begin_version(name, integer, jsonb, bigint) IS
    'Inserts a version of a dataset that this transaction packs; returns its id (internal).';

CREATE OR REPLACE FUNCTION easeml.fill_version(dataset_id bigint, facts jsonb) RETURNS easeml.datasets
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE easeml.datasets d SET task = f.task, input_shape = f.input_shape, n_outputs = f.n_outputs,
        block_rows = f.block_rows, n_skipped_rows = f.n_skipped_rows, packing_seconds = f.packing_seconds,
        encoder = f.encoder, explanations = coalesce(f.explanations, '{}'), row_key = f.row_key, packing_xid = NULL,
        options = d.options || jsonb_build_object('block_rows', f.block_rows)
    FROM jsonb_to_record(facts) f(task text, input_shape integer[], n_outputs integer, block_rows integer,
        n_skipped_rows bigint, packing_seconds float8, encoder jsonb, explanations jsonb, row_key text)
    WHERE d.dataset_id = fill_version.dataset_id RETURNING d.*
$$;
COMMENT ON FUNCTION easeml.fill_version(bigint, jsonb) IS
    'Records what packing found out about a version of a dataset or task; returns its row (internal).';

CREATE OR REPLACE FUNCTION easeml.finish_dataset(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets;
    found record;
BEGIN
    SELECT d.* INTO data FROM easeml.datasets d
    WHERE d.dataset_id = (arguments ->> 'dataset_id')::bigint AND d.tenant = asker
        AND d.packing_xid = pg_current_xact_id();
    IF data.dataset_id IS NULL THEN
        PERFORM easeml.fail('ML003',
            format('dataset %s is not being packed by this transaction', arguments ->> 'dataset_id'));
    END IF;
    SELECT f.* INTO found FROM jsonb_to_record(arguments) f(input_shape integer[], encoder jsonb, explanations jsonb,
        checksums bigint[], row_key text);
    IF octet_length(found.row_key) > 1000000 THEN
        PERFORM easeml.fail('ML004', 'row_key: expected at most 1000000 bytes');
    END IF;
    PERFORM easeml.check_json('encoder', found.encoder, 33554432, 8);
    PERFORM easeml.check_json('explanations', found.explanations, 1000000, 2);
    PERFORM easeml.check_shape(data, found.input_shape);
    PERFORM easeml.fill_version(data.dataset_id, arguments);
    -- Their trigger sums up what the tenant keeps, now with the encoder.
    PERFORM easeml.add_partitions(data, found.checksums);
    IF data.placement = 'bound' THEN
        PERFORM easeml.place_dataset(data.dataset_id, (SELECT greatest(max(c.n), 1)::integer
                FROM (SELECT count(*) AS n FROM easeml.replicas r JOIN easeml.datasets d USING (dataset_id)
            WHERE d.tenant = data.tenant AND d.dataset_name = data.dataset_name
                AND d.version = data.version - 1 GROUP BY r.partition_number) c));
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.finish_dataset(name, name, jsonb) IS
    'Records the results of packing, after which nobody can add to the dataset (internal).';

-- VOLATILE, so that it sees what the statement that inserts a block has done before: it may have finished the dataset.
CREATE OR REPLACE FUNCTION easeml.is_being_packed(dataset_id bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (SELECT FROM easeml.datasets d WHERE d.dataset_id = is_being_packed.dataset_id
        AND d.packing_xid = pg_current_xact_id());
END
$$;
COMMENT ON FUNCTION easeml.is_being_packed(bigint) IS
    'Returns whether the current transaction is packing the given dataset of yours (internal).';

CREATE OR REPLACE FUNCTION easeml.add_partitions(data easeml.datasets, checksums bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- The rows are counted here, not reported by the packing role. Only the checksum is taken on trust, and it proves
    -- rows to their own tenant alone.
    INSERT INTO easeml.partitions (dataset_id, tenant, partition_number, n_train_rows, n_validation_rows,
        n_test_rows, n_bytes, n_kept_bytes, checksum)
    SELECT data.dataset_id, data.tenant, b.partition_number, coalesce(sum(b.n_rows) FILTER (WHERE b.split = 'train'),
        0), coalesce(sum(b.n_rows) FILTER (WHERE b.split = 'validation'), 0),
        coalesce(sum(b.n_rows) FILTER (WHERE b.split = 'test'), 0), sum(s.n_bytes),
        coalesce(sum(s.n_bytes) FILTER (WHERE b.holder_id <> b.dataset_id), 0), checksums[b.partition_number + 1]
    FROM easeml.version_blocks b, LATERAL (SELECT octet_length(b.inputs)::bigint + octet_length(b.targets)
        + coalesce(pg_column_size(b.row_keys), pg_column_size(b.row_hashes), 0) AS n_bytes) s
    WHERE b.dataset_id = data.dataset_id GROUP BY b.partition_number;
    IF (SELECT count(*) FILTER (WHERE p.n_train_rows > 0 AND p.partition_number < data.n_partitions)
        FROM easeml.partitions p WHERE p.dataset_id = data.dataset_id) <> data.n_partitions THEN
        PERFORM easeml.fail('ML004', format('dataset %s: expected %s partitions with rows to train on, numbered from 0',
                data.dataset_id, data.n_partitions));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.add_partitions(easeml.datasets, bigint[]) IS
    'Records the partitions of the packed blocks, and refuses if one is missing (internal).';

CREATE OR REPLACE FUNCTION easeml.check_shape(data easeml.datasets, input_shape integer[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    row_bytes numeric;
    n_values numeric := (SELECT round(exp(sum(ln(s::numeric)))) FROM unnest(input_shape) s WHERE s > 0);
BEGIN
    SELECT max(octet_length(b.inputs)::numeric / b.n_rows) INTO row_bytes FROM easeml.blocks b
    WHERE b.dataset_id = data.dataset_id;
    -- A category takes at least a byte and becomes at most 66 numbers, any other input fewer. So a larger shape is
    -- forged, and would take memory.
    IF coalesce(array_ndims(input_shape), 0) <> 1 OR cardinality(input_shape) > 16
        OR EXISTS (SELECT FROM unnest(input_shape) s WHERE s IS NULL OR s < 1) OR n_values > 66 * row_bytes THEN
        PERFORM easeml.fail('ML004',
            format('dataset %s: expected an input_shape that rows of %s bytes can have, got %s', data.dataset_id,
                ceil(row_bytes), input_shape));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_shape(easeml.datasets, integer[]) IS
    'Refuses an input shape that does not match the packed rows (internal).';

CREATE OR REPLACE FUNCTION easeml.refuse_unpacked() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM easeml.datasets d WHERE d.dataset_id = NEW.dataset_id AND d.packing_xid IS NOT NULL) THEN
        PERFORM easeml.fail('ML004', format('dataset %s was begun and not packed', NEW.dataset_id),
            hint => 'Use easeml.create_dataset, which does both.');
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.refuse_unpacked() IS 'Refuses to commit a dataset that was begun but not packed (trigger).';
DROP TRIGGER IF EXISTS dataset_is_packed ON easeml.datasets;
CREATE CONSTRAINT TRIGGER dataset_is_packed AFTER INSERT ON easeml.datasets DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.packing_xid IS NOT NULL) EXECUTE FUNCTION easeml.refuse_unpacked();

CREATE OR REPLACE FUNCTION easeml.perform_drop_dataset(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    newest easeml.datasets;
    run_ids bigint[];
BEGIN
    -- One that is being packed, or could not be, is given up.
    DELETE FROM easeml.packings k WHERE k.tenant = asker
        AND k.dataset_name = perform_drop_dataset.arguments ->> 'dataset';
    IF FOUND AND NOT EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = asker
        AND d.dataset_name = perform_drop_dataset.arguments ->> 'dataset') THEN
        RETURN NULL;
    END IF;
    newest := easeml.dataset_of(caller, asker, arguments ->> 'dataset');
    run_ids := (SELECT array_agg(r.run_id) FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
        WHERE d.tenant = newest.tenant AND d.dataset_name = newest.dataset_name);
    PERFORM easeml.refuse_task(newest.tenant, newest.dataset_name, 'easeml.drop_task');
    IF run_ids IS NOT NULL AND NOT (arguments ->> 'cascade')::boolean THEN
        PERFORM easeml.fail('ML004', format('dataset %s has %s run(s), which would be lost with it',
                quote_literal(newest.dataset_name), cardinality(run_ids)),
            hint => format('To remove them all: SELECT easeml.drop_dataset(%s, cascade => true).',
                quote_literal(newest.dataset_name)));
    END IF;
    DELETE FROM easeml.serving_metrics m WHERE m.tenant = newest.tenant AND m.dataset_name = newest.dataset_name;
    DELETE FROM easeml.servings s WHERE s.tenant = newest.tenant AND s.dataset_name = newest.dataset_name;
    PERFORM easeml.perform_drop_run(caller, asker, jsonb_build_object('run_id', i)) FROM unnest(run_ids) i;
    DELETE FROM easeml.dataset_grants g WHERE g.tenant = newest.tenant AND g.dataset_name = newest.dataset_name;
    DELETE FROM easeml.prediction_audits a WHERE a.tenant = newest.tenant AND a.dataset_name = newest.dataset_name;
    DELETE FROM easeml.refresh_rules f WHERE f.tenant = newest.tenant AND f.dataset_name = newest.dataset_name;
    DELETE FROM easeml.refreshes f WHERE f.tenant = newest.tenant AND f.dataset_name = newest.dataset_name;
    DELETE FROM easeml.prediction_log l WHERE l.tenant = newest.tenant AND l.dataset_name = newest.dataset_name;
    DELETE FROM easeml.datasets d WHERE d.tenant = newest.tenant AND d.dataset_name = newest.dataset_name;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_drop_dataset(name, name, jsonb) IS
    'Removes a dataset for easeml.drop_dataset (internal).';
