-- Prediction. The inner functions are SECURITY DEFINER, take only values, and never read a tenant's relation or evaluate its expressions;
-- predict_table reads the caller's relation with the caller's rights and passes packed bytes.

CREATE FUNCTION easeml.serving_trial(dataset text, trial_id bigint DEFAULT NULL, OUT dataset_id bigint, OUT serving_trial_id bigint, OUT checkpoint_id bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asker name := easeml.caller();
    granting_tenant name;
    tenants name[];
BEGIN
    IF EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = asker AND d.dataset_name = dataset) THEN
        granting_tenant := asker;
    ELSE
        SELECT array_agg(g.tenant) INTO tenants FROM easeml.dataset_grants g WHERE g.dataset_name = dataset AND g.grantee = asker
            AND (trial_id IS NULL OR EXISTS (SELECT FROM easeml.trials t WHERE t.trial_id = serving_trial.trial_id AND t.tenant = g.tenant));
        IF cardinality(tenants) > 1 THEN
            PERFORM easeml.fail('ML001', format('several roles let you use a dataset %s: %s', quote_literal(dataset), array_to_string(tenants, ', ')),
                hint => 'Name the trial: predict(dataset, inputs, trial_id).');
        END IF;
        granting_tenant := tenants[1];
    END IF;
    IF granting_tenant IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no dataset %s that role %s may use', quote_nullable(dataset), quote_ident(asker)),
            hint => 'The tenant who made it can allow it: SELECT easeml.grant_use(dataset, role).');
    END IF;
    IF trial_id IS NOT NULL THEN
        SELECT r.dataset_id, t.trial_id, t.best_checkpoint_id INTO dataset_id, serving_trial_id, checkpoint_id
        FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
        WHERE t.trial_id = serving_trial.trial_id AND d.tenant = granting_tenant AND d.dataset_name = dataset;
        IF serving_trial_id IS NULL THEN
            PERFORM easeml.fail('ML003', format('dataset %s has no trial %s', quote_literal(dataset), trial_id));
        END IF;
    ELSE
        SELECT r.dataset_id, t.trial_id, t.best_checkpoint_id INTO dataset_id, serving_trial_id, checkpoint_id
        FROM easeml.deployments p JOIN easeml.trials t USING (trial_id) JOIN easeml.runs r USING (run_id)
        WHERE p.tenant = granting_tenant AND p.dataset_name = dataset;
        IF serving_trial_id IS NULL THEN
            -- The best trial of the newest version that has one; if its runs differ in metric, that of the newest run counts.
            SELECT d.dataset_id, t.trial_id, t.best_checkpoint_id INTO dataset_id, serving_trial_id, checkpoint_id
            FROM easeml.datasets d JOIN easeml.runs r USING (dataset_id) JOIN easeml.trials t USING (run_id)
            WHERE d.tenant = granting_tenant AND d.dataset_name = dataset AND t.best_checkpoint_id IS NOT NULL
                AND r.metric = (SELECT n.metric FROM easeml.runs n JOIN easeml.trials b USING (run_id)
                    WHERE n.dataset_id = d.dataset_id AND b.best_checkpoint_id IS NOT NULL ORDER BY n.run_id DESC LIMIT 1)
            ORDER BY d.version DESC, CASE WHEN r.is_higher_better THEN -t.best_metric_value ELSE t.best_metric_value END NULLS LAST, t.trial_id LIMIT 1;
        END IF;
    END IF;
    IF checkpoint_id IS NULL THEN
        PERFORM easeml.fail('ML010', format('dataset %s has no trained trial yet', quote_literal(dataset)),
            hint => format('Start one with SELECT easeml.select_models(%s), or wait for the first epoch to be measured.', quote_literal(dataset)));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.serving_trial(text, bigint) IS
    'Finds the trial that answers for a dataset: the one named, else the deployed one, else the best so far by its best epoch. Refuses roles to which the tenant has not granted use.';

CREATE FUNCTION easeml.predict_packed(dataset text, trial_id bigint, n_rows integer, payload bytea, texts text[], OUT labels text[], OUT predicted_values double precision[], OUT serving_trial_id bigint)
LANGUAGE plpython3u SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.prediction import predict_packed
return predict_packed(plpy, GD, dataset, trial_id, n_rows, payload, texts)
$$;
COMMENT ON FUNCTION easeml.predict_packed(text, bigint, integer, bytea, text[]) IS
    'Predicts for rows that the binary send functions packed (internal: use easeml.predict_table).';

CREATE FUNCTION easeml.predict_json(dataset text, inputs text, trial_id bigint, OUT label text, OUT probability double precision, OUT value double precision, OUT serving_trial_id bigint, OUT failure jsonb)
LANGUAGE plpython3u SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.prediction import predict_json
return predict_json(plpy, GD, dataset, inputs, trial_id)
$$;
COMMENT ON FUNCTION easeml.predict_json(text, text, bigint) IS 'Predicts for one row given as a json object; returns the prediction or an error (internal).';

CREATE FUNCTION easeml.predict_numbers(dataset text, inputs double precision[], trial_id bigint, OUT label text, OUT probability double precision, OUT value double precision, OUT serving_trial_id bigint, OUT failure jsonb)
LANGUAGE plpython3u SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.prediction import predict_numbers
return predict_numbers(plpy, GD, dataset, inputs, trial_id)
$$;
COMMENT ON FUNCTION easeml.predict_numbers(text, double precision[], bigint) IS
    'Predicts for one row given as an array of numbers; returns the prediction or an error (internal).';

CREATE FUNCTION easeml.predict_bytes(dataset text, inputs bytea, trial_id bigint, OUT label text, OUT probability double precision, OUT value double precision, OUT serving_trial_id bigint, OUT failure jsonb)
LANGUAGE plpython3u SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.prediction import predict_bytes
return predict_bytes(plpy, GD, dataset, inputs, trial_id)
$$;
COMMENT ON FUNCTION easeml.predict_bytes(text, bytea, bigint) IS 'Predicts for one row given as 8-bit values; returns the prediction or an error (internal).';

CREATE FUNCTION easeml.predict_row(dataset text, inputs anyarray, trial_id bigint DEFAULT NULL,
    OUT label text, OUT probability double precision, OUT value double precision, OUT serving_trial_id bigint) LANGUAGE plpgsql AS $$
DECLARE
    failure jsonb;
BEGIN
    SELECT p.label, p.probability, p.value, p.serving_trial_id, p.failure INTO label, probability, value, serving_trial_id, failure
    FROM easeml.predict_numbers(dataset, inputs::double precision[], trial_id) p;
    IF failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(failure);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.predict_row(text, anyarray, bigint) IS
$$Predicts for one row given as an array of numbers, in the order of the dataset's inputs. Returns label and probability, or value, and the trial that answered.
Use it in LATERAL: SELECT n.id, p.* FROM new_rows n, LATERAL easeml.predict_row('digits', n.pixels) p.$$;

CREATE FUNCTION easeml.predict_row(dataset text, inputs jsonb, trial_id bigint DEFAULT NULL,
    OUT label text, OUT probability double precision, OUT value double precision, OUT serving_trial_id bigint) LANGUAGE plpgsql AS $$
DECLARE
    failure jsonb;
BEGIN
    SELECT p.label, p.probability, p.value, p.serving_trial_id, p.failure INTO label, probability, value, serving_trial_id, failure
    FROM easeml.predict_json(dataset, inputs::text, trial_id) p;
    IF failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(failure);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.predict_row(text, jsonb, bigint) IS
    'Predicts for one row given as a json object of columns, for example to_jsonb(t). Returns label and probability, or value, and the trial that answered.';

CREATE FUNCTION easeml.predict_row(dataset text, inputs bytea, trial_id bigint DEFAULT NULL,
    OUT label text, OUT probability double precision, OUT value double precision, OUT serving_trial_id bigint) LANGUAGE plpgsql AS $$
DECLARE
    failure jsonb;
BEGIN
    SELECT p.label, p.probability, p.value, p.serving_trial_id, p.failure INTO label, probability, value, serving_trial_id, failure
    FROM easeml.predict_bytes(dataset, inputs, trial_id) p;
    IF failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(failure);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.predict_row(text, bytea, bigint) IS
    'Predicts for one image given as bytea of 8-bit values. Returns label and probability, or value, and the trial that answered.';

CREATE FUNCTION easeml.predict(dataset text, inputs anyarray, trial_id bigint DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
    SELECT label FROM easeml.predict_row(dataset, inputs, trial_id)
$$;
COMMENT ON FUNCTION easeml.predict(text, anyarray, bigint) IS
    'Predicts the label (or the value, as text) of one row given as an array of numbers in the order of the dataset''s inputs. trial_id: the trial to ask; by default the deployed one, else the best so far.';
CREATE FUNCTION easeml.predict(dataset text, inputs jsonb, trial_id bigint DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
    SELECT label FROM easeml.predict_row(dataset, inputs, trial_id)
$$;
COMMENT ON FUNCTION easeml.predict(text, jsonb, bigint) IS 'Predicts the label (or the value, as text) of one row given as a json object, for example to_jsonb(t).';
CREATE FUNCTION easeml.predict(dataset text, inputs bytea, trial_id bigint DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
    SELECT label FROM easeml.predict_row(dataset, inputs, trial_id)
$$;
COMMENT ON FUNCTION easeml.predict(text, bytea, bigint) IS 'Predicts the label of one image given as bytea of 8-bit values.';

CREATE FUNCTION easeml.predict_value(dataset text, inputs anyarray, trial_id bigint DEFAULT NULL) RETURNS double precision LANGUAGE sql AS $$
    SELECT value FROM easeml.predict_row(dataset, inputs, trial_id)
$$;
COMMENT ON FUNCTION easeml.predict_value(text, anyarray, bigint) IS
    'Predicts the value of one row of a regression dataset, given as an array of numbers; NULL for classification.';
CREATE FUNCTION easeml.predict_value(dataset text, inputs jsonb, trial_id bigint DEFAULT NULL) RETURNS double precision LANGUAGE sql AS $$
    SELECT value FROM easeml.predict_row(dataset, inputs, trial_id)
$$;
COMMENT ON FUNCTION easeml.predict_value(text, jsonb, bigint) IS 'Predicts the value of one row of a regression dataset, given as a json object; NULL for classification.';
CREATE FUNCTION easeml.predict_value(dataset text, inputs bytea, trial_id bigint DEFAULT NULL) RETURNS double precision LANGUAGE sql AS $$
    SELECT value FROM easeml.predict_row(dataset, inputs, trial_id)
$$;
COMMENT ON FUNCTION easeml.predict_value(text, bytea, bigint) IS
    'Predicts the value of one image of a regression dataset, given as bytea of 8-bit values; NULL for classification.';

CREATE FUNCTION easeml.serving_encoder(dataset text, trial_id bigint DEFAULT NULL) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    -- Only names and kinds of the columns: statistics and categories stay with the tenant.
    SELECT jsonb_build_object('trial_id', s.serving_trial_id, 'task', d.task, 'inputs', (
        SELECT jsonb_agg(f - '{mean,scale,categories}'::text[] ORDER BY n) FROM jsonb_array_elements(d.encoder -> 'inputs') WITH ORDINALITY AS i(f, n)))
    FROM easeml.serving_trial(dataset, trial_id) s JOIN easeml.datasets d USING (dataset_id)
$$;
COMMENT ON FUNCTION easeml.serving_encoder(text, bigint) IS 'Returns which columns of a source predict_table must read and pack for a dataset (internal).';

CREATE FUNCTION easeml.write_predictions(request jsonb, OUT n_rows bigint, OUT failure jsonb) LANGUAGE plpython3u AS $$
from easeml_plpy.table_prediction import write_predictions
return write_predictions(plpy, GD, request)
$$;
COMMENT ON FUNCTION easeml.write_predictions(jsonb) IS
    'Reads a relation with the rights of the caller, predicts in batches and fills a new table; returns the number of rows or an error (internal: use easeml.predict_table).';

CREATE FUNCTION easeml.predict_table(dataset text, source text, output text, trial_id bigint DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    found record;
    written record;
BEGIN
    found := easeml.find_source(source);
    BEGIN
        PERFORM parse_ident(output), to_regclass(output);
    EXCEPTION WHEN invalid_parameter_value OR invalid_name OR syntax_error OR feature_not_supported THEN
        PERFORM easeml.fail('ML001', format('output: expected the name of a new table, got %s', quote_nullable(output)),
            hint => 'Write it as in SQL, with double quotes where it holds spaces or capitals: ''"My Table"''.');
    END;
    written := easeml.write_predictions(jsonb_build_object('dataset', dataset, 'relation', found.relation::oid::bigint, 'source', found.qualified_name,
        'output', output, 'trial_id', trial_id));
    PERFORM easeml.raise_failure(written.failure);
    RETURN written.n_rows;
END
$$;
COMMENT ON FUNCTION easeml.predict_table(text, text, text, bigint) IS
$$Predicts for every row of a table or view, writes the predictions to a new table and returns the number of rows.
The output has the source's primary key, or without one all columns that are not inputs, then predicted_label and probability, or predicted_value.
It reads the source with your rights and refuses to overwrite a table.$$;
