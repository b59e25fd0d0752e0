-- What users do with datasets. Packing reads the source with the rights of the caller; whatever is recorded goes
-- through easeml.requests.

-- byteasend returns a bytea unchanged. Declared for arrays, it returns the array's memory as it is, at a thirtieth of
-- the cost of array_send, which rebuilds each element. array.h defines the layout, and the Python side checks it.
CREATE OR REPLACE FUNCTION easeml.array_bytes(elements anyarray) RETURNS bytea
LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS $$byteasend$$;
COMMENT ON FUNCTION easeml.array_bytes(anyarray) IS
    'Returns an array as the server stores it: dimensions, then the elements side by side (internal).';

CREATE OR REPLACE FUNCTION easeml.check_source(relation oid, readers name[], OUT digest text, OUT failure jsonb)
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.packing.foreign_code import check_source
return check_source(plpy, GD, relation, readers)
$$;
COMMENT ON FUNCTION easeml.check_source(oid, name[]) IS
    'Looks in the catalogs for code of other roles that reading a relation would run; returns a digest of the code '
    'that is there, or an error (internal: use easeml.refuse_foreign_code).';

CREATE OR REPLACE FUNCTION easeml.refuse_foreign_code(relation regclass, readers name[] DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    checked record := easeml.check_source(relation, readers);
BEGIN
    PERFORM easeml.raise_failure(checked.failure);
    RETURN checked.digest;
END
$$;
COMMENT ON FUNCTION easeml.refuse_foreign_code(regclass, name[]) IS
    'Refuses a relation that would run code of other roles when you read it, or when these roles read it unattended; '
    'returns a digest of its code, NULL for a relation of their own (internal).';

CREATE OR REPLACE FUNCTION easeml.pack_begun_dataset(dataset_id bigint, OUT n_rows bigint, OUT failure jsonb)
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.packing.packing import pack_begun_dataset
return pack_begun_dataset(plpy, GD, dataset_id)
$$;
COMMENT ON FUNCTION easeml.pack_begun_dataset(bigint) IS
    'Shuffles, splits, encodes and packs the source of a dataset that was begun in this transaction, with the rights '
    'of the caller; returns the number of rows or an error (internal: use easeml.create_dataset).';

CREATE OR REPLACE FUNCTION easeml.pack_version(action text, request jsonb) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    begun bigint := easeml.request(action, request)::bigint;
BEGIN
    PERFORM easeml.raise_failure(p.failure) FROM easeml.pack_begun_dataset(begun) p;
    RETURN begun;
END
$$;
COMMENT ON FUNCTION easeml.pack_version(text, jsonb) IS
    'Begins a version of a dataset, and packs it; returns its id (internal).';

CREATE OR REPLACE FUNCTION easeml.base_type(type oid) RETURNS oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- As easeml_plpy.columns.columns does, also on nodes, which have no easeml.
    WITH RECURSIVE typed AS (SELECT base_type.type UNION ALL SELECT b.typbasetype FROM typed d
        JOIN pg_type b ON b.oid = d.type AND b.typtype = 'd')
    SELECT t.oid FROM typed d JOIN pg_type t ON t.oid = d.type AND t.typtype <> 'd'
$$;
COMMENT ON FUNCTION easeml.base_type(oid) IS
    'Returns the type below a domain, however many domains lie between; any other type is its own (internal).';

CREATE OR REPLACE FUNCTION easeml.default_inputs(source regclass, others text[]) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(a.attname::text ORDER BY a.attnum), '{}') FROM pg_attribute a
    JOIN pg_type t ON t.oid = easeml.base_type(a.atttypid)
    WHERE a.attrelid = source AND a.attnum > 0 AND NOT a.attisdropped AND a.attidentity = ''
        -- easeml_plpy.columns.columns.input_field takes these types.
        AND (t.typtype = 'e'
            OR t.oid = ANY ('{int2,int4,int8,float4,float8,numeric,bool,date,timestamp,timestamptz,text,varchar,bpchar,'
                'name,"\"char\"",json,jsonb,bytea,int2[],int4[],int8[],float4[],float8[],numeric[],bool[]}'::regtype[]))
        AND a.attname NOT IN (SELECT o FROM unnest(others) o WHERE o IS NOT NULL)
        AND (a.atttypid IN ('date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype)
            OR NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = source AND i.indisprimary AND i.indnkeyatts = 1
                AND i.indkey[0] = a.attnum))
$$;
COMMENT ON FUNCTION easeml.default_inputs(regclass, text[]) IS
    'Returns the columns of a source that may help to predict its target: all except those with another role, those '
    'that only identify rows, and those whose types cannot be inputs (internal).';

CREATE OR REPLACE FUNCTION easeml.row_numbers(source regclass, columns text[]) RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    whole text[] := ARRAY(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = source AND a.attname = ANY (columns)
        AND a.atttypid = ANY ('{int2,int4,int8}'::regtype[]) ORDER BY a.attnum);
    told text[];
    are_dense boolean[];
    found text[] := '{}';
    is_one boolean;
BEGIN
    IF cardinality(whole) = 0 THEN
        RETURN found;
    END IF;
    PERFORM easeml.refuse_foreign_code(source);
    SELECT array_agg(format('max(%1$I)::numeric - min(%1$I) + 1 = count(*) AND count(%1$I) = count(*) AND '
            'count(*) >= 100', c)) INTO told FROM unnest(whole) c;
    EXECUTE format('SELECT ARRAY[%s] FROM %s', array_to_string(told, ', '),
        easeml.qualified_name(source)) INTO are_dense;
    FOR k IN 1..cardinality(whole) LOOP
        IF are_dense[k] THEN
            EXECUTE format('SELECT count(DISTINCT %I) = count(*) FROM %s', whole[k],
                easeml.qualified_name(source)) INTO is_one;
            found := CASE WHEN is_one THEN array_append(found, whole[k]) ELSE found END;
        END IF;
    END LOOP;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.row_numbers(regclass, text[]) IS
    'Returns those of the given columns that only number the rows of a source: at least 100 rows with distinct whole '
    'numbers and no gap. Reads with the rights of the caller (internal).';

CREATE OR REPLACE FUNCTION easeml.is_small_table(source regclass, inputs text[]) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n_rows bigint;
BEGIN
    -- Packing refuses sources that the caller may not read, in better words.
    IF NOT has_any_column_privilege(source, 'SELECT') OR EXISTS (
            SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            WHERE a.attrelid = source AND a.attname = ANY (inputs)
                AND (t.typcategory = 'A' OR t.oid = 'bytea'::regtype)) THEN
        RETURN false;
    END IF;
    PERFORM easeml.refuse_foreign_code(source);
    -- A column, though nobody reads it: Citus, where the source may be a table of its own, gathers no rows without one.
    EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM %s LIMIT 2001) r', easeml.qualified_name(source)) INTO n_rows;
    RETURN n_rows BETWEEN 100 AND 2000;
END
$$;
COMMENT ON FUNCTION easeml.is_small_table(regclass, text[]) IS
    'Returns whether a source has so few rows (100 to 2,000) that all of them should train and validate. Reads with '
    'the rights of the caller (internal).';

-- Not pinned to a search_path: easeml.find_source needs the caller's. All other names have their schema.
CREATE OR REPLACE FUNCTION easeml.create_dataset(
    name text,
    source text,
    inputs text[] DEFAULT NULL,
    target text DEFAULT NULL,
    n_partitions integer DEFAULT NULL,
    validation_fraction double precision DEFAULT NULL,
    test_fraction double precision DEFAULT 0.15,
    seed bigint DEFAULT 0,
    task text DEFAULT NULL,
    input_shape integer[] DEFAULT NULL,
    block_rows integer DEFAULT NULL,
    placement text DEFAULT 'shared',
    split_column text DEFAULT NULL,
    time_column text DEFAULT NULL,
    group_column text DEFAULT NULL,
    key_columns text[] DEFAULT NULL,
    n_folds integer DEFAULT NULL,
    shuffle text DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    request jsonb := pg_catalog.jsonb_build_object('name', name, 'inputs', inputs, 'target', target,
        'n_partitions', coalesce(n_partitions, 4),
        'validation_fraction', coalesce(validation_fraction, 0.15), 'test_fraction', test_fraction, 'seed', seed,
        'task', task, 'input_shape', input_shape,
        'block_rows', block_rows, 'placement',
        CASE WHEN shuffle IS NULL AND source OPERATOR(pg_catalog.!~) '^\s*\{' THEN placement ELSE 'bound' END,
        'shuffle', shuffle, 'split_column', split_column, 'time_column', time_column, 'group_column', group_column,
        'key_columns', key_columns, 'n_folds', n_folds);
    leaves_open boolean := pg_catalog.num_nonnulls(n_folds, n_partitions, validation_fraction, split_column,
        time_column, group_column) OPERATOR(pg_catalog.=) 0 AND placement OPERATOR(pg_catalog.=) 'shared';
    others text[] := pg_catalog.array_cat(array[target, split_column, group_column],
        ARRAY(SELECT pg_catalog.unnest(key_columns)));
    row_numbers text[];
    left_out text;
    is_elsewhere boolean := source OPERATOR(pg_catalog.~) '^\s*\{';
    own regclass;  -- null: the tables are elsewhere, each named by itself
    own_name text;
    places jsonb;
BEGIN
    -- One refusal at a time: wrong arguments are reported before a source that does not exist.
    PERFORM easeml.check_dataset(request);
    IF NOT coalesce(is_elsewhere, false) THEN
        SELECT f.relation, f.qualified_name INTO own, own_name FROM easeml.find_source(source) f;
    ELSIF inputs IS NULL THEN
        PERFORM easeml.fail('ML001', 'inputs: expected columns: those of tables on other servers are not known here');
    END IF;
    IF easeml.cluster_places(own) IS NOT NULL THEN
        request := request OPERATOR(pg_catalog.||) '{"placement": "bound"}';
    END IF;
    IF request OPERATOR(pg_catalog.->>) 'placement' OPERATOR(pg_catalog.=) 'bound' THEN
        places := easeml.places_of(source, own);
        IF places IS NULL AND shuffle IS NOT NULL THEN
            PERFORM easeml.fail('ML001', pg_catalog.format('shuffle: %s has no foreign partitions and is not '
                    'distributed: its rows are on this server', source), hint => 'Leave shuffle out.');
        END IF;
    END IF;
    IF inputs IS NULL THEN
        inputs := easeml.default_inputs(own, others);
        -- A column that numbers the rows may predict the existing ones, if they came in some order, but misleads for
        -- new ones.
        row_numbers := CASE WHEN places IS NULL THEN easeml.row_numbers(own,
                pg_catalog.array_remove(inputs, time_column)) ELSE '{}' END;
        IF pg_catalog.cardinality(row_numbers) OPERATOR(pg_catalog.<) pg_catalog.cardinality(inputs) THEN
            inputs := ARRAY(SELECT i FROM pg_catalog.unnest(inputs) WITH ORDINALITY u(i, place)
                WHERE i OPERATOR(pg_catalog.<>) ALL (row_numbers) ORDER BY place);
        END IF;
        SELECT pg_catalog.string_agg(a.attname OPERATOR(pg_catalog.||) CASE WHEN a.attname::pg_catalog.text
                OPERATOR(pg_catalog.=) ANY (row_numbers) THEN ' (numbers the rows)' ELSE '' END, ', ' ORDER BY a.attnum)
        INTO left_out FROM pg_catalog.pg_attribute a
        WHERE a.attrelid OPERATOR(pg_catalog.=) own AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped
            AND a.attname::pg_catalog.text OPERATOR(pg_catalog.<>) ALL
                (pg_catalog.array_remove(pg_catalog.array_cat(inputs, others), NULL));
        RAISE NOTICE 'inputs: %', CASE WHEN pg_catalog.cardinality(inputs) OPERATOR(pg_catalog.<=) 50
            THEN pg_catalog.array_to_string(inputs, ', ')
            ELSE pg_catalog.format('%s, and %s others',
                pg_catalog.array_to_string(inputs[:20], ', '), pg_catalog.cardinality(inputs) OPERATOR(pg_catalog.-) 20)
                END OPERATOR(pg_catalog.||) coalesce('; left out: ' OPERATOR(pg_catalog.||) left_out,
                '') USING HINT = 'Name columns in inputs to take others.';
    END IF;
    IF places IS NOT NULL THEN
        RETURN easeml.ask_for_packing(request OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object('source',
                coalesce(own_name, source), 'inputs', inputs,
            'shuffle', coalesce(shuffle, 'across'), 'places', places), own);
    END IF;
    request := request OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object('source', own_name, 'inputs', inputs);
    IF leaves_open AND easeml.is_small_table(own, inputs) THEN
        RAISE NOTICE 'the table is small: 5 folds of its rows take turns to validate'
            USING HINT = 'n_folds => 0 has rows of their own validate.';
        request := request OPERATOR(pg_catalog.||) '{"n_folds": 5, "is_small": true}';
    END IF;
    RETURN easeml.pack_version('begin_dataset', request);
END
$$;
COMMENT ON FUNCTION easeml.create_dataset(text, text, text[], text, integer, double precision, double precision, bigint,
    text, integer[], integer, text, text, text, text, text[], integer, text) IS
$$Registers a table or view as a dataset and returns the dataset's id. It shuffles the rows once, splits them into
training, validation and test rows (stratified by label; a class with at least three rows has one in each split), and
packs them into partitions. No row leaves the database, except from node to node with shuffle across.
name: any text, but different from the names of your other datasets. source: a table or view that you may read, written
    as in SQL.
inputs: columns of numbers, booleans, dates, text and other categories, arrays of numbers of one shape, or one bytea of
    8-bit values with input_shape. A NULL input is imputed and flagged.
Without inputs, it takes all columns except those with another role here, those that only identify rows (uuid, identity
columns, 100 or more consecutive whole numbers, a primary key of one column that is not a date), and those whose types
cannot be inputs. A notice lists what it took and what it left out.
target: text, integer or boolean (labels), or a real number (regression). Rows with a NULL target are left out.
n_partitions: number of parts that train in parallel (4). validation_fraction (0.15), test_fraction: between 0 and 1.
    seed: the same rows and seed give the same split.
task: classification or regression; by default the target's type decides. input_shape: for bytea and one-dimensional
    arrays, e.g. {28,28}.
block_rows: rows of a packed block; by default a block holds about 2 MB.
placement: shared (every slot may run every partition) or bound (a partition runs only on slots of its segments, see
    easeml.replicate_dataset).
split_column: holds train, validation or test for each row; the fractions are then ignored.
time_column: the newest rows become test rows, those before them validation rows, the oldest training rows.
    group_column: rows of one group are never in two splits.
key_columns: identify the rows in easeml.dataset_rows; by default the primary key, or without one a hash of inputs and
    target.
n_folds: number of folds for cross-validation: all rows except the test rows train, and validate in turn. Each fold is a
    partition, whatever n_partitions says.
A table of 100 to 2,000 rows without arrays and images gets 5 folds, unless n_partitions, validation_fraction, placement
or a column of splits, times or groups says otherwise. 0: no cross-validation.
shuffle: for rows on nodes (segments that are other servers). Their source is a table with foreign partitions, a table
    that Citus distributes, or {"east": "public.sales", "west": "public.sales"}. across (the default there) distributes
the rows by hash over all nodes with slots, and sends each row at most once, packed; within leaves the rows where they
are. The nodes pack in the background: CALL easeml.wait_dataset(id) waits for the dataset.$$;

CREATE OR REPLACE FUNCTION easeml.find_version(dataset text, version integer) RETURNS easeml.datasets
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    newest easeml.datasets := easeml.find_dataset(dataset);
    wanted easeml.datasets;
BEGIN
    SELECT d.* INTO wanted FROM easeml.datasets d
    WHERE d.tenant = newest.tenant AND d.dataset_name = newest.dataset_name
        AND d.version = coalesce(find_version.version, newest.version);
    IF wanted.dataset_id IS NULL THEN
        PERFORM easeml.fail('ML003', format('dataset %s has no version %s', quote_literal(dataset), version),
            hint => format('It has versions up to %s.', newest.version));
    END IF;
    RETURN wanted;
END
$$;
COMMENT ON FUNCTION easeml.find_version(text, integer) IS
    'Returns a version of your dataset of that name, by default the newest, or raises an error (internal).';

CREATE OR REPLACE FUNCTION easeml.dataset_rows(
    dataset text,
    version integer DEFAULT NULL
) RETURNS TABLE (row_key text, split text, partition_number integer, fold integer)
LANGUAGE plpgsql STABLE ROWS 10000 SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted easeml.datasets := easeml.find_version(dataset, version);
BEGIN
    PERFORM easeml.refuse_rows_elsewhere(wanted, 'easeml.dataset_rows');
    RETURN QUERY SELECT k.row_key, b.split, b.partition_number, CASE WHEN wanted.options ? 'n_folds'
        AND b.split = 'train' THEN b.partition_number END FROM easeml.version_blocks b,
        unnest(coalesce(b.row_keys, b.row_hashes::text[])) k(row_key) WHERE b.dataset_id = wanted.dataset_id;
END
$$;
COMMENT ON FUNCTION easeml.dataset_rows(text, integer) IS
$$Returns the split of each row of your dataset (train, validation or test) and, with n_folds, its fold. version: by
default the newest.
row_key is the row's primary key as text (several columns as ROW(a, b)::text), or what key_columns of
easeml.create_dataset named; without either it is a hash of inputs and target.
easeml.dataset_info.row_key is the SQL expression that computes it from a row of the source: SELECT s.*, r.split FROM
sales s JOIN easeml.dataset_rows('sales') r ON r.row_key = s.id::text.$$;

CREATE OR REPLACE FUNCTION easeml.refresh_dataset(dataset text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old easeml.datasets := easeml.find_dataset(dataset);
BEGIN
    IF old.shuffle IS NOT NULL AND old.source ~ '^\s*\{' THEN
        RETURN easeml.ask_for_packing(jsonb_build_object('dataset', dataset, 'places',
                easeml.listed_places(old.source)), NULL);
    END IF;
    IF old.source = 'imported' AND NOT EXISTS (SELECT FROM easeml.partitions p WHERE p.dataset_id = old.dataset_id) THEN
        PERFORM easeml.fail('ML004',
            format('dataset %s was imported: it has no source to pack again', quote_literal(dataset)),
            hint => 'Make a dataset of a table: easeml.create_dataset(name, source, inputs, target).');
    ELSIF to_regclass(old.source) IS NULL THEN
        PERFORM easeml.fail('ML003', format('the source %s of dataset %s is gone', old.source, quote_literal(dataset)),
            hint => 'Make a table or view of that name again, or another dataset with easeml.create_dataset.');
    END IF;
    IF old.shuffle IS NOT NULL THEN
        RETURN easeml.ask_for_packing(jsonb_build_object('dataset', dataset, 'places',
                easeml.places_of(old.source, to_regclass(old.source))), to_regclass(old.source));
    END IF;
    RETURN easeml.pack_version('begin_refresh', jsonb_build_object('dataset', dataset, 'is_small',
            easeml.is_small_table(to_regclass(old.source), old.input_columns)));
END
$$;
COMMENT ON FUNCTION easeml.refresh_dataset(text) IS
    'Packs the present rows of the source into a new version of the dataset, with the arguments that created it, and '
    'returns the version''s id. New runs use the new version; earlier runs keep theirs.';

CREATE OR REPLACE FUNCTION easeml.drop_dataset(dataset text, cascade boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('drop_dataset', jsonb_build_object('dataset', dataset, 'cascade', cascade));
END
$$;
COMMENT ON FUNCTION easeml.drop_dataset(text, boolean) IS
    'Removes a dataset with all its versions. Refuses if it has runs, unless cascade => true, which removes '
    'them, too. The source stays.';

CREATE OR REPLACE FUNCTION easeml.grant_use(dataset text, role name, serving_only boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('grant_use',
        jsonb_build_object('dataset', dataset, 'role', role, 'serving_only', serving_only));
END
$$;
COMMENT ON FUNCTION easeml.grant_use(text, name, boolean) IS
$$Lets another role predict with the trials of a dataset, as 'tenant.dataset';
the role needs no other right. It sees neither the data nor the runs.
serving_only => true: the role may ask only the trial that easeml.serving shows. Grant again to change that.$$;

CREATE OR REPLACE FUNCTION easeml.revoke_use(dataset text, role name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('revoke_use', jsonb_build_object('dataset', dataset, 'role', role));
END
$$;
COMMENT ON FUNCTION easeml.revoke_use(text, name) IS 'Withdraws what easeml.grant_use granted.';

CREATE OR REPLACE FUNCTION easeml.replicate_dataset(dataset text, factor integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN easeml.request('replicate_dataset', jsonb_build_object('dataset', dataset, 'factor', factor))::integer;
END
$$;
COMMENT ON FUNCTION easeml.replicate_dataset(text, integer) IS
    'Sets how many segments hold each partition of a dataset with bound placement, spreads the copies evenly over '
    'the segments that have slots, and returns that number. Open runs use the copies at once. Call it again after you '
    'have added or removed segments.';
