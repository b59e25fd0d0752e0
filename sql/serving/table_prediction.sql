-- Predicting for a whole table: reads the caller's relation with the caller's rights, packs it, and passes packed
-- bytes.

-- PL/Python reads a number that it returns from a text. Whole columns come back as bytes instead, of which only the
-- length must be checked:
-- the header before the numbers is the server's own, so that any bytes make a legal array.
CREATE OR REPLACE FUNCTION easeml.bytes_as_numbers(stored bytea) RETURNS double precision[]
LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS $$byteasend$$;
COMMENT ON FUNCTION easeml.bytes_as_numbers(bytea) IS 'Reinterprets bytes as the array that the server stores as those '
    'bytes, unchecked (internal: for easeml.numbers_of alone).';

CREATE OR REPLACE FUNCTION easeml.numbers_of(numbers bytea) RETURNS double precision[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n_numbers integer := octet_length(numbers) / 8;
BEGIN
    IF n_numbers * 8 <> octet_length(numbers) THEN
        PERFORM easeml.fail('ML001', format('numbers: expected 8 bytes for each, got %s bytes', octet_length(numbers)));
    ELSIF n_numbers = 0 THEN
        RETURN '{}';
    END IF;
    RETURN easeml.bytes_as_numbers(substr(easeml.array_bytes(array_fill(0::double precision, ARRAY[n_numbers])),
            1, 20) || numbers);
END
$$;
COMMENT ON FUNCTION easeml.numbers_of(bytea) IS
    'Returns numbers given as bytes, 8 for each as the server stores a double precision (internal).';

CREATE OR REPLACE FUNCTION easeml.predict_packed(
    dataset text,
    trial_id bigint,
    n_rows integer,
    payload bytea,
    texts text,
    OUT labels text,
    OUT separator text,
    OUT predicted_values bytea,
    OUT probabilities text,
    OUT serving_trial_id bigint
) LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.prediction.prediction import predict_packed
return predict_packed(plpy, GD, dataset, trial_id, n_rows, payload, texts)
$$;
COMMENT ON FUNCTION easeml.predict_packed(text, bigint, integer, bytea, text) IS
    'Predicts for rows whose columns come as bytes, within easeml.predict_table (internal: refuses direct calls).';

CREATE OR REPLACE FUNCTION easeml.write_predictions(
    dataset text,
    relation oid,
    output text,
    trial_id bigint,
    if_exists text,
    key text[],
    probabilities boolean,
    OUT n_rows bigint,
    OUT failure jsonb
) LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.prediction.table_prediction import write_predictions
return write_predictions(plpy, GD, dataset, relation, output, trial_id, if_exists, key, probabilities)
$$;
COMMENT ON FUNCTION easeml.write_predictions(text, oid, text, bigint, text, text[], boolean) IS
    'Reads a relation with the rights of the caller, predicts in batches, and fills a new table or adds to one that is '
    'there; returns the number of rows or an error (internal: use easeml.predict_table).';

-- The two functions below resolve names by the caller's search_path, so they do not set one: each name and operator in
-- them is qualified.
CREATE OR REPLACE FUNCTION easeml.find_output(output text, if_exists text) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    parts text[];
    taken regclass;
BEGIN
    BEGIN
        parts := pg_catalog.parse_ident(output);
        taken := pg_catalog.to_regclass(output);
    EXCEPTION WHEN invalid_parameter_value OR invalid_name OR syntax_error OR feature_not_supported THEN
        parts := NULL;
    END;
    IF if_exists IS NULL OR if_exists OPERATOR(pg_catalog.<>) ALL ('{refuse,append,update}') THEN
        PERFORM easeml.fail('ML001', pg_catalog.format('if_exists: expected refuse, append or update, got %s',
                pg_catalog.quote_nullable(if_exists)),
            hint => 'append predicts for rows whose key the table does not have, update for all rows.');
    ELSIF parts IS NULL OR pg_catalog.cardinality(parts) OPERATOR(pg_catalog.>) 2 THEN
        PERFORM easeml.fail('ML001',
            pg_catalog.format('output: expected the name of a new table, got %s', pg_catalog.quote_nullable(output)),
            hint => 'Write it as in SQL, with double quotes where it holds spaces or capitals: ''"My Table"''.');
    ELSIF taken IS NOT NULL AND if_exists OPERATOR(pg_catalog.=) ANY ('{append,update}') THEN
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) taken
            AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p}')) THEN
            PERFORM easeml.fail('ML004', pg_catalog.format('output: %s is no table', output),
                hint => 'Give the name of a table.');
        END IF;
        RETURN easeml.qualified_name(taken);
    ELSIF taken IS NOT NULL THEN
        PERFORM easeml.fail('ML004', pg_catalog.format('output: %s exists already', output),
            hint => 'Drop it, give another name, or add to it: if_exists => ''append'' or ''update''.');
    ELSIF pg_catalog.cardinality(parts) OPERATOR(pg_catalog.=) 2
        AND pg_catalog.to_regnamespace(pg_catalog.quote_ident(parts[1])) IS NULL THEN
        PERFORM easeml.fail('ML003',
            pg_catalog.format('output: there is no schema %s', pg_catalog.quote_ident(parts[1])),
            hint => pg_catalog.format('Make it: CREATE SCHEMA %I. Or name another one.', parts[1]));
    ELSIF pg_catalog.cardinality(parts) OPERATOR(pg_catalog.=) 2 THEN
        RETURN pg_catalog.format('%I.%I', parts[1], parts[2]);
    ELSIF pg_catalog.current_schema() IS NULL THEN
        PERFORM easeml.fail('ML001', pg_catalog.format('output: no schema of the search_path is there to create %s in',
                output), hint => 'Give the schema, too: schema.table.');
    END IF;
    RETURN pg_catalog.format('%I.%I', pg_catalog.current_schema(), parts[1]);
END
$$;
COMMENT ON FUNCTION easeml.find_output(text, text) IS
    'Returns the full name, quoted for SQL, of a table to make or add to, or raises an error (internal).';

CREATE OR REPLACE FUNCTION easeml.predict_table(
    dataset text,
    source text,
    output text,
    trial_id bigint DEFAULT NULL,
    if_exists text DEFAULT 'refuse',
    key text[] DEFAULT NULL,
    probabilities boolean DEFAULT false
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    found record;
    written record;
BEGIN
    found := easeml.find_source(source);
    written := easeml.write_predictions(dataset, found.relation::pg_catalog.oid, easeml.find_output(output, if_exists),
        trial_id, if_exists, key, probabilities);
    PERFORM easeml.raise_failure(written.failure);
    RETURN written.n_rows;
END
$$;
COMMENT ON FUNCTION easeml.predict_table(text, text, text, bigint, text, text[], boolean) IS
$$Predicts for every row of a table or view, writes the predictions to a table and returns how many rows it wrote.
The output has the columns of the key, then predicted_label and probability, or predicted_value. probabilities: whether
a further column has the probabilities of all classes, as easeml.predict_probabilities returns them. key: columns that
identify the rows of the source; by default its primary key, or without one, in a new table, all columns that are
neither inputs nor arrays.
if_exists: refuse (the output must not exist), append (predicts only for rows whose key the output lacks) or update
    (predicts for all rows: new values for existing keys, new rows for others). It reads and writes with your rights.$$;
