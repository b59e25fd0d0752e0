-- Predicting for a whole table: reads the caller's relation with the caller's rights, packs it, and passes packed bytes.

CREATE FUNCTION easeml.predict_packed(dataset text, trial_id bigint, n_rows integer, payload bytea, texts text, OUT labels text[], OUT predicted_values double precision[], OUT serving_trial_id bigint)
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.prediction import predict_packed
return predict_packed(plpy, GD, dataset, trial_id, n_rows, payload, texts)
$$;
COMMENT ON FUNCTION easeml.predict_packed(text, bigint, integer, bytea, text) IS
    'Predicts for rows that the binary send functions packed, within easeml.predict_table (internal: refuses direct calls).';

CREATE FUNCTION easeml.write_predictions(dataset text, relation oid, output text, trial_id bigint, OUT n_rows bigint, OUT failure jsonb)
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.table_prediction import write_predictions
return write_predictions(plpy, GD, dataset, relation, output, trial_id)
$$;
COMMENT ON FUNCTION easeml.write_predictions(text, oid, text, bigint) IS
    'Reads a relation with the rights of the caller, predicts in batches and fills a new table; returns the number of rows or an error (internal: use easeml.predict_table).';

-- The two functions below mean names as the caller's search_path says, so they do not set one: each name and operator in them is qualified.
CREATE FUNCTION easeml.find_output(output text) RETURNS text LANGUAGE plpgsql STABLE AS $$
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
    IF parts IS NULL OR pg_catalog.cardinality(parts) OPERATOR(pg_catalog.>) 2 THEN
        PERFORM easeml.fail('ML001', pg_catalog.format('output: expected the name of a new table, got %s', pg_catalog.quote_nullable(output)),
            hint => 'Write it as in SQL, with double quotes where it holds spaces or capitals: ''"My Table"''.');
    ELSIF taken IS NOT NULL THEN
        PERFORM easeml.fail('ML004', pg_catalog.format('output: %s exists already', output), hint => 'Drop it, or give another name.');
    ELSIF pg_catalog.cardinality(parts) OPERATOR(pg_catalog.=) 2 AND pg_catalog.to_regnamespace(pg_catalog.quote_ident(parts[1])) IS NULL THEN
        PERFORM easeml.fail('ML003', pg_catalog.format('output: there is no schema %s', pg_catalog.quote_ident(parts[1])),
            hint => pg_catalog.format('Make it: CREATE SCHEMA %I. Or name another one.', parts[1]));
    ELSIF pg_catalog.cardinality(parts) OPERATOR(pg_catalog.=) 2 THEN
        RETURN pg_catalog.format('%I.%I', parts[1], parts[2]);
    ELSIF pg_catalog.current_schema() IS NULL THEN
        PERFORM easeml.fail('ML001', pg_catalog.format('output: no schema of the search_path is there to create %s in', output), hint => 'Give the schema, too: schema.table.');
    END IF;
    RETURN pg_catalog.format('%I.%I', pg_catalog.current_schema(), parts[1]);
END
$$;
COMMENT ON FUNCTION easeml.find_output(text) IS 'Returns the full name, quoted for SQL, of a table that is to be made, or raises an error (internal).';

CREATE FUNCTION easeml.predict_table(dataset text, source text, output text, trial_id bigint DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    found record;
    written record;
BEGIN
    found := easeml.find_source(source);
    written := easeml.write_predictions(dataset, found.relation::pg_catalog.oid, easeml.find_output(output), trial_id);
    PERFORM easeml.raise_failure(written.failure);
    RETURN written.n_rows;
END
$$;
COMMENT ON FUNCTION easeml.predict_table(text, text, text, bigint) IS
$$Predicts for every row of a table or view, writes the predictions to a new table and returns the number of rows.
The output has the source's primary key, or without one all columns that are not inputs, then predicted_label and probability, or predicted_value.
It reads the source with your rights and refuses to overwrite a table.$$;
