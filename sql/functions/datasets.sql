-- byteasend returns a bytea unchanged. Declared for arrays, it returns the array's memory as it is, at a thirtieth of the cost
-- of array_send, which rebuilds each element. array.h defines the layout, and the Python side checks it.
CREATE FUNCTION easeml.array_bytes(elements anyarray) RETURNS bytea LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS $$byteasend$$;
COMMENT ON FUNCTION easeml.array_bytes(anyarray) IS 'Returns an array as the server stores it: dimensions, then the elements side by side (internal).';

CREATE FUNCTION easeml.pack_dataset(request jsonb, OUT dataset_id bigint, OUT failure jsonb) LANGUAGE plpython3u AS $$
from easeml_plpy.packing import pack_dataset
return pack_dataset(plpy, GD, request)
$$;
COMMENT ON FUNCTION easeml.pack_dataset(jsonb) IS
    'Shuffles, splits, encodes and packs a source with the rights of the caller; returns the dataset''s id or an error (internal: use easeml.create_dataset).';

CREATE FUNCTION easeml.pack_version(request jsonb, placement text, n_holders integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    packed record;
BEGIN
    packed := easeml.pack_dataset(request);
    PERFORM easeml.raise_failure(packed.failure);
    IF placement = 'bound' THEN
        UPDATE easeml.datasets d SET placement = pack_version.placement WHERE d.dataset_id = packed.dataset_id;
        PERFORM easeml.place_dataset(packed.dataset_id, n_holders);
    END IF;
    RETURN packed.dataset_id;
END
$$;
COMMENT ON FUNCTION easeml.pack_version(jsonb, text, integer) IS 'Packs one version of a dataset and places its partitions; returns its id (internal).';

CREATE FUNCTION easeml.create_dataset(
    name text,
    source text,
    inputs text[],
    target text,
    n_partitions integer DEFAULT 4,
    validation_fraction double precision DEFAULT 0.15,
    test_fraction double precision DEFAULT 0.15,
    seed bigint DEFAULT 0,
    task text DEFAULT NULL,
    input_shape integer[] DEFAULT NULL,
    block_rows integer DEFAULT NULL,
    placement text DEFAULT 'shared'
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    found record;
BEGIN
    IF name IS NULL OR btrim(name) = '' OR length(name) > 200 THEN
        PERFORM easeml.fail('ML001', format('name: expected 1 to 200 characters, got %s', quote_nullable(name)));
    END IF;
    IF EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = current_user AND d.dataset_name = create_dataset.name) THEN
        PERFORM easeml.fail('ML001', format('you have a dataset %s already', quote_literal(name)),
            hint => format('Pack its source again with easeml.refresh_dataset(%s), or remove it with easeml.drop_dataset(%1$s).', quote_literal(name)));
    END IF;
    IF n_partitions IS NULL OR n_partitions NOT BETWEEN 1 AND 10000 THEN
        PERFORM easeml.fail('ML001', format('n_partitions: expected 1 to 10000, got %s', coalesce(n_partitions::text, 'NULL')));
    END IF;
    IF validation_fraction IS NULL OR NOT (validation_fraction > 0 AND validation_fraction < 1) THEN
        PERFORM easeml.fail('ML001', format('validation_fraction: expected a number between 0 and 1, got %s', coalesce(validation_fraction::text, 'NULL')));
    END IF;
    IF test_fraction IS NULL OR NOT (test_fraction > 0 AND test_fraction < 1) THEN
        PERFORM easeml.fail('ML001', format('test_fraction: expected a number between 0 and 1, got %s', coalesce(test_fraction::text, 'NULL')));
    END IF;
    IF validation_fraction + test_fraction >= 1 THEN
        PERFORM easeml.fail('ML001', format('validation_fraction and test_fraction leave nothing to train on: %s + %s >= 1', validation_fraction, test_fraction));
    END IF;
    IF task IS NOT NULL AND task NOT IN ('classification', 'regression') THEN
        PERFORM easeml.fail('ML001', format('task: expected classification, regression or NULL (by the type of the target), got %s', quote_literal(task)));
    END IF;
    IF block_rows IS NOT NULL AND block_rows NOT BETWEEN 1 AND 1000000 THEN
        PERFORM easeml.fail('ML001', format('block_rows: expected 1 to 1000000, got %s', block_rows));
    END IF;
    IF seed IS NULL THEN
        PERFORM easeml.fail('ML001', 'seed: expected a whole number, got NULL');
    END IF;
    IF placement IS NULL OR placement NOT IN ('shared', 'bound') THEN
        PERFORM easeml.fail('ML001', format('placement: expected shared or bound, got %s', quote_nullable(placement)),
            hint => 'shared: every slot may run every partition; bound: a partition belongs to a segment, see easeml.replicate_dataset.');
    END IF;
    IF placement = 'bound' AND NOT EXISTS (SELECT FROM easeml.slots) THEN
        PERFORM easeml.fail('ML004', 'placement: bound partitions need a segment with slots, and there are no slots', hint => 'An administrator adds them: SELECT easeml.set_slots(2).');
    END IF;
    IF array_ndims(inputs) > 1 THEN
        PERFORM easeml.fail('ML001', format('inputs: expected a list of columns, got %s', inputs));
    END IF;
    IF array_ndims(input_shape) > 1 THEN
        PERFORM easeml.fail('ML001', format('input_shape: expected a list of sizes, got %s', input_shape));
    END IF;
    found := easeml.find_source(source);
    RETURN easeml.pack_version(jsonb_build_object(
        'name', name, 'relation', found.relation::oid::bigint, 'source', found.qualified_name, 'inputs', to_jsonb(inputs), 'target', target,
        'n_partitions', n_partitions, 'validation_fraction', validation_fraction, 'test_fraction', test_fraction,
        'seed', seed, 'task', task, 'input_shape', to_jsonb(input_shape), 'block_rows', block_rows, 'version', 1), placement, n_holders => 1);
END
$$;
COMMENT ON FUNCTION easeml.create_dataset(text, text, text[], text, integer, double precision, double precision, bigint, text, integer[], integer, text) IS
$$Registers a table or view as a dataset and returns the dataset's id. It shuffles the rows once, splits them into training, validation and test rows
(stratified for labels), and packs them into partitions. No row leaves the database.
name: any text; only your own datasets must differ from it. source: a table or view that you may read, written as in SQL.
inputs: columns of numbers, booleans, dates, text and other categories, arrays of numbers of one shape, or one bytea of 8-bit values with input_shape. A NULL input is imputed and flagged.
target: text, integer or boolean (labels), or a real number (regression). Rows with a NULL target are left out.
n_partitions: parts that train side by side. validation_fraction, test_fraction: between 0 and 1. seed: the same rows and seed give the same split.
task: classification or regression; by default the target's type decides. input_shape: for bytea and one-dimensional arrays, e.g. {28,28}.
block_rows: rows of a packed block; by default a block holds about 2 MB.
placement: shared (every slot may run every partition) or bound (a partition runs only on slots of its segments, see easeml.replicate_dataset).$$;

CREATE FUNCTION easeml.refresh_dataset(dataset text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    old easeml.datasets := easeml.find_dataset(dataset);
BEGIN
    IF to_regclass(old.source) IS NULL THEN
        PERFORM easeml.fail('ML003', format('the source %s of dataset %s is gone', old.source, quote_literal(dataset)));
    END IF;
    RETURN easeml.pack_version(jsonb_build_object(
        'name', dataset, 'relation', to_regclass(old.source)::oid::bigint, 'source', old.source, 'inputs', to_jsonb(old.input_columns), 'target', old.target_column,
        'n_partitions', old.n_partitions, 'validation_fraction', old.validation_fraction, 'test_fraction', old.test_fraction,
        'seed', old.seed, 'version', old.version + 1) || old.options, old.placement,
        n_holders => (SELECT greatest(max(c.n), 1)::integer FROM (SELECT count(*) AS n FROM easeml.replicas r WHERE r.dataset_id = old.dataset_id GROUP BY r.partition_number) c));
END
$$;
COMMENT ON FUNCTION easeml.refresh_dataset(text) IS
    'Packs the present rows of the source into a new version of the dataset, with the arguments that created it, and returns the version''s id. New runs use the new version; earlier runs keep theirs.';

CREATE FUNCTION easeml.drop_dataset(dataset text, cascade boolean DEFAULT false) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    newest easeml.datasets := easeml.find_dataset(dataset);
    n_runs bigint;
BEGIN
    SELECT count(*) INTO n_runs FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
    WHERE d.tenant = newest.tenant AND d.dataset_name = newest.dataset_name;
    IF n_runs > 0 AND NOT cascade THEN
        PERFORM easeml.fail('ML004', format('dataset %s has %s run(s), which would be lost with it', quote_literal(dataset), n_runs),
            hint => format('To remove them all: SELECT easeml.drop_dataset(%s, cascade => true).', quote_literal(dataset)));
    END IF;
    PERFORM easeml.drop_run(r.run_id) FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
    WHERE d.tenant = newest.tenant AND d.dataset_name = newest.dataset_name;
    DELETE FROM easeml.dataset_grants g WHERE g.tenant = newest.tenant AND g.dataset_name = newest.dataset_name;
    DELETE FROM easeml.prediction_audits a WHERE a.tenant = newest.tenant AND a.dataset_name = newest.dataset_name;
    DELETE FROM easeml.prediction_log l WHERE l.tenant = newest.tenant AND l.dataset_name = newest.dataset_name;
    DELETE FROM easeml.datasets d WHERE d.tenant = newest.tenant AND d.dataset_name = newest.dataset_name;
END
$$;
COMMENT ON FUNCTION easeml.drop_dataset(text, boolean) IS
    'Removes a dataset with all its versions. Refuses if it has runs, unless cascade => true, which removes them, too. The source stays.';

CREATE FUNCTION easeml.grant_use(dataset text, role name, serving_only boolean DEFAULT false) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM easeml.find_dataset(dataset);
    IF to_regrole(quote_ident(role)) IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no role %s', quote_nullable(role)));
    ELSIF serving_only IS NULL THEN
        PERFORM easeml.fail('ML001', 'serving_only: expected true or false, got NULL');
    END IF;
    -- The time of the grant stays: it decides which of several grants of one name answers.
    INSERT INTO easeml.dataset_grants (dataset_name, grantee, serving_only) VALUES (dataset, role, serving_only)
    ON CONFLICT ON CONSTRAINT dataset_grants_pkey DO UPDATE SET serving_only = excluded.serving_only;
END
$$;
COMMENT ON FUNCTION easeml.grant_use(text, name, boolean) IS
$$Lets another role predict with the trials of a dataset, as 'tenant.dataset'; the role needs no other right. It sees neither the data nor the runs.
serving_only => true: it may ask only the trial that answers unless another is named (the deployed one, else the best). Grant again to change that.$$;

CREATE FUNCTION easeml.revoke_use(dataset text, role name) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM easeml.dataset_grants g
    WHERE g.tenant = current_user AND g.dataset_name = revoke_use.dataset AND g.grantee = revoke_use.role;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', format('role %s has no use of a dataset %s of yours', quote_literal(role), quote_literal(dataset)));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.revoke_use(text, name) IS 'Withdraws what easeml.grant_use granted.';
