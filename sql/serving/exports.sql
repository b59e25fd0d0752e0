-- Trials as files: out with the rights of the caller, in as a dataset without rows that has one trial.

CREATE OR REPLACE FUNCTION easeml.export_file(dataset text, trial_id bigint, OUT contents bytea, OUT failure jsonb)
LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.files.exports import export_file
return export_file(plpy, GD, dataset, trial_id)
$$;
COMMENT ON FUNCTION easeml.export_file(text, bigint) IS
    'Returns the file of a trial that you may see, or an error (internal: use easeml.export_trial).';

CREATE OR REPLACE FUNCTION easeml.export_trial(dataset text, trial_id bigint DEFAULT NULL) RETURNS bytea
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := easeml.find_dataset(dataset);
    chosen bigint := coalesce(trial_id, (easeml.answering_trial(data.tenant, data.dataset_name)).trial_id);
    answer record;
BEGIN
    IF chosen IS NULL THEN
        PERFORM easeml.fail_unanswered(data.tenant, data.dataset_name, dataset);
    END IF;
    answer := easeml.export_file(data.dataset_name, chosen);
    PERFORM easeml.raise_failure(answer.failure);
    RETURN answer.contents;
END
$$;
COMMENT ON FUNCTION easeml.export_trial(text, bigint) IS
$$Returns a trial of a dataset of yours with its encoder as the bytes of one file (safetensors with a JSON document in
its header), which easeml.import_trial and the Python package easeml_model read. trial_id: by default the trial that
answers. The file holds labels, categories and statistics of the training rows, but no row. From a shell: easeml
export.$$;

CREATE OR REPLACE FUNCTION easeml.import_model(contents bytea, name text, OUT trial_id bigint, OUT failure jsonb)
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.files.exports import import_model
return import_model(plpy, GD, contents, name)
$$;
COMMENT ON FUNCTION easeml.import_model(bytea, text) IS 'Checks a file with the rights of the caller, and has it '
    'stored; returns the trial or an error (internal: use easeml.import_trial).';

CREATE OR REPLACE FUNCTION easeml.import_trial(contents bytea, name text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.import_model(contents, name);
BEGIN
    PERFORM easeml.raise_failure(answer.failure);
    RETURN answer.trial_id;
END
$$;
COMMENT ON FUNCTION easeml.import_trial(bytea, text) IS
$$Stores a file that easeml.export_trial has made as a dataset of yours with one trial, and returns the trial's number.
The dataset has no rows: it can predict, be deployed and be granted, but not be evaluated or trained on. name: by
default that of the dataset that it was exported from; it must be new. Files that were changed, or are of another
version, are refused. From a shell: easeml import.$$;

-- With the owner's rights, for what easeml.import_model has left in PL/Python's GD, which only a superuser's code can
-- write.
CREATE OR REPLACE FUNCTION easeml.store_import(OUT trial_id bigint, OUT failure jsonb)
LANGUAGE plpython3u SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.files.exports import store_import
return store_import(plpy, GD)
$$;
COMMENT ON FUNCTION easeml.store_import() IS 'Stores the file that easeml.import_model has just checked; returns the '
    'trial or an error (internal: refuses direct calls).';

CREATE OR REPLACE FUNCTION easeml.begin_import(
    caller name,
    name text,
    facts jsonb,
    n_bytes bigint,
    sha256 text,
    state bytea,
    OUT trial_id bigint,
    OUT checkpoint_id bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asker name;
    data easeml.datasets;
    run easeml.runs;
    trial easeml.trials;
    new_dataset_id bigint;
    new_run_id bigint;
    new_arm_id bigint;
    new_trial_id bigint;
    new_checkpoint_id bigint;
BEGIN
    IF NOT pg_has_role(caller, 'easeml_tenant', 'USAGE') THEN
        PERFORM easeml.fail('ML004', format('role %s is no tenant', quote_ident(caller)),
            hint => 'An administrator makes it one: SELECT easeml.create_tenant(role).');
    ELSIF btrim(name) = '' OR length(name) > 200 THEN
        PERFORM easeml.fail('ML001', format('name: expected 1 to 200 characters, got %s', quote_literal(left(name,
                        40))), hint => 'Give the dataset a name: easeml.import_trial(contents, name).');
    END IF;
    asker := easeml.register_tenant(caller);
    PERFORM easeml.refuse_task(asker, name, 'easeml.import_trial with another name');
    IF EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = asker AND d.dataset_name = begin_import.name) THEN
        PERFORM easeml.fail('ML001', format('you have a dataset %s already', quote_literal(name)),
            hint => format('Give another name: easeml.import_trial(contents, name), or remove '
                'it with easeml.drop_dataset(%L).', name));
    END IF;
    data := jsonb_populate_record(NULL::easeml.datasets, facts);
    run := jsonb_populate_record(NULL::easeml.runs, facts);
    trial := jsonb_populate_record(NULL::easeml.trials, facts);
    INSERT INTO easeml.datasets (tenant, dataset_name, version, source, input_columns, target_column, task, input_shape,
        n_outputs, n_partitions, validation_fraction, test_fraction,
        seed, block_rows, encoder, explanations, packing_seconds)
    VALUES (asker, name, 1, 'imported', data.input_columns, data.target_column, data.task, data.input_shape,
        data.n_outputs, 1, 0.15, 0.15, 0, 1, data.encoder, data.explanations, 0)
    RETURNING dataset_id INTO new_dataset_id;
    INSERT INTO easeml.runs (tenant, dataset_id, procedure, architectures, n_configs, max_epochs, metric,
        is_higher_better, seed, status, started_at, finished_at)
    VALUES (asker, new_dataset_id, 'import', ARRAY[trial.architecture], 1, trial.best_epoch, run.metric,
        run.is_higher_better, 0, 'finished', now(), now())
    RETURNING run_id INTO new_run_id;
    INSERT INTO easeml.arms (run_id, tenant, architecture, planned_epochs)
    VALUES (new_run_id, asker, trial.architecture, trial.best_epoch) RETURNING arm_id INTO new_arm_id;
    INSERT INTO easeml.trials (run_id, arm_id, tenant, trial_number, architecture, config, max_epochs, status,
        best_epoch, best_metric_value, best_loss, started_at, finished_at)
    SELECT new_run_id, new_arm_id, asker, 1, trial.architecture, trial.config, trial.best_epoch, 'finished',
        trial.best_epoch, (v ->> 'metric_value')::double precision,
        coalesce(v ->> 'log_loss', v ->> 'rmse')::double precision, now(), now()
            FROM (SELECT facts #> '{metrics,validation}' AS v) m
    RETURNING trials.trial_id INTO new_trial_id;
    INSERT INTO easeml.epoch_metrics
    SELECT (jsonb_populate_record(NULL::easeml.epoch_metrics,
            m.value || jsonb_build_object('trial_id', new_trial_id, 'run_id', new_run_id, 'tenant', asker,
        'epoch', trial.best_epoch, 'split', m.key, 'measured_at', now()))).* FROM jsonb_each(facts -> 'metrics') m;
    INSERT INTO easeml.metric_values (trial_id, epoch, tenant, split, metric, value)
    SELECT new_trial_id, trial.best_epoch, asker, m.key, v.key, v.value::double precision
    FROM jsonb_each(facts -> 'metrics') m
    CROSS JOIN LATERAL jsonb_each_text(m.value - '{n_rows,metric_value,n_classes,metric_error}'::text[]) v
    WHERE v.value IS NOT NULL;
    INSERT INTO easeml.checkpoints (trial_id, tenant, epoch, n_bytes, sha256, state)
    VALUES (new_trial_id, asker, trial.best_epoch, begin_import.n_bytes, begin_import.sha256, begin_import.state)
        RETURNING checkpoints.checkpoint_id INTO new_checkpoint_id;
    INSERT INTO easeml.events (tenant, run_id, trial_id, kind, message)
    VALUES (asker, new_run_id, new_trial_id, 'imported', format('imported by %s: %s', caller, facts ->> 'origin'));
    trial_id := new_trial_id;
    checkpoint_id := new_checkpoint_id;
END
$$;
COMMENT ON FUNCTION easeml.begin_import(name, text, jsonb, bigint, text, bytea) IS
    'Inserts the rows of an imported trial: dataset, run, trial, metrics and a state, whose chunks follow if it is '
    'large; returns trial and state (internal).';

CREATE OR REPLACE FUNCTION easeml.finish_import(caller name, trial_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asker name;
    name text;
BEGIN
    UPDATE easeml.trials t SET checkpoint_id = c.checkpoint_id, best_checkpoint_id = c.checkpoint_id
    FROM easeml.checkpoints c WHERE t.trial_id = finish_import.trial_id AND c.trial_id = t.trial_id;
    UPDATE easeml.runs r SET record_bytes = easeml.record_bytes(r.run_id)
    WHERE r.run_id = (SELECT t.run_id FROM easeml.trials t WHERE t.trial_id = finish_import.trial_id);
    INSERT INTO easeml.serving_metrics (tenant, dataset_name, metric, is_higher_better)
    SELECT d.tenant, d.dataset_name, r.metric, r.is_higher_better FROM easeml.trials t JOIN easeml.runs r USING (run_id)
    JOIN easeml.datasets d USING (dataset_id)
    WHERE t.trial_id = finish_import.trial_id RETURNING tenant, dataset_name INTO asker, name;
    PERFORM easeml.note_serving(asker, name, 'better');
    IF easeml.is_bound_by_limits(caller) THEN
        -- Transactions that add to what a tenant keeps queue up here.
        UPDATE easeml.tenants t SET weight = t.weight WHERE t.tenant = asker;
        PERFORM easeml.check_kept_bytes(asker);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.finish_import(name, bigint) IS
    'Lets an imported trial answer predictions, and refuses it if its tenant would exceed its limits (internal).';
