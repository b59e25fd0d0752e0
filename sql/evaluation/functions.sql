-- How good a trial is on rows that it did not train on. All of these run with the caller's rights: row-level security
-- shows a role the blocks and states of its own datasets only, and easeml.examined_trial refuses every other role with
-- an explanation. They are open to everybody so that all get that explanation.

CREATE OR REPLACE FUNCTION easeml.examined_trial(
    dataset text,
    trial_id bigint,
    OUT dataset_name text,
    OUT dataset_id bigint,
    OUT n_partitions integer,
    OUT examined_trial_id bigint,
    OUT checkpoint_id bigint,
    OUT architecture text,
    OUT config jsonb,
    OUT metric text,
    OUT is_elsewhere boolean
) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    of_tenant name;
    hint text;
    is_visible boolean := has_table_privilege('easeml.blocks', 'SELECT');
BEGIN
    IF is_visible THEN
        -- One's own comes first; administrators name the datasets of others in full.
        SELECT d.tenant, d.dataset_name INTO of_tenant, dataset_name FROM easeml.datasets d
        WHERE d.tenant = easeml.current_tenant() AND d.dataset_name = dataset
            OR d.tenant || '.' || d.dataset_name = dataset
        ORDER BY d.tenant = easeml.current_tenant() AND d.dataset_name = dataset DESC NULLS LAST LIMIT 1;
        -- Readers see that there is a dataset, but none of its rows. Rows on nodes are visible to the roles that would
        -- see them here.
        is_visible := EXISTS (SELECT FROM easeml.blocks b JOIN easeml.datasets d USING (dataset_id)
            WHERE d.tenant = of_tenant AND d.dataset_name = examined_trial.dataset_name)
            OR (of_tenant = easeml.current_tenant() OR pg_has_role('easeml_coordinator', 'USAGE'))
                AND EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = of_tenant
                    AND d.dataset_name = examined_trial.dataset_name AND d.shuffle IS NOT NULL);
        IF NOT is_visible THEN
            hint := easeml.near_names(dataset, (SELECT array_agg(DISTINCT CASE WHEN d.tenant = easeml.current_tenant()
                            THEN d.dataset_name ELSE d.tenant || '.' || d.dataset_name END)
                FROM easeml.datasets d WHERE d.tenant = easeml.current_tenant()
                    OR pg_has_role('easeml_coordinator', 'USAGE')));
        END IF;
    END IF;
    IF NOT is_visible AND of_tenant IS NOT NULL THEN
        -- A query of its own, because a role that may only predict may not even call that function.
        IF of_tenant = easeml.current_tenant() THEN
            PERFORM easeml.fail('ML004',
                format('dataset %s was imported: it has no rows to measure', quote_literal(dataset)),
                hint => 'easeml.predict and easeml.predict_table answer. Where it was trained, '
                    'easeml.evaluate measures it.');
        END IF;
    END IF;
    IF NOT is_visible THEN
        PERFORM easeml.fail('ML003', format('there is no dataset %s whose rows role %s may see',
                quote_nullable(dataset), quote_ident(current_user)),
            hint => coalesce(hint, 'The tenant who made a dataset may see its rows. Whoever was given use of it '
                'may predict, and no more.'));
    END IF;
    IF trial_id IS NULL THEN
        examined_trial_id := (easeml.answering_trial(of_tenant, dataset_name)).trial_id;
        IF examined_trial_id IS NULL THEN
            PERFORM easeml.fail_unanswered(of_tenant, dataset_name, dataset);
        END IF;
    END IF;
    SELECT d.dataset_id, d.n_partitions, t.trial_id, t.best_checkpoint_id, t.architecture, t.config,
        r.metric, d.shuffle IS NOT NULL
    INTO dataset_id, n_partitions, examined_trial_id, checkpoint_id, architecture, config, metric, is_elsewhere
    FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
    WHERE t.trial_id = coalesce(examined_trial.trial_id, examined_trial.examined_trial_id) AND d.tenant = of_tenant
        AND d.dataset_name = examined_trial.dataset_name;
    IF dataset_id IS NULL THEN
        PERFORM easeml.fail('ML003', format('dataset %s has no trial %s', quote_literal(dataset), trial_id),
            hint => 'SELECT trial_id FROM easeml.leaderboard lists them.');
    ELSIF checkpoint_id IS NULL THEN
        PERFORM easeml.fail('ML010', format('trial %s has no measured epoch yet', examined_trial_id),
            hint => 'Wait for its first epoch. If its run was cancelled or has failed, go on with '
            'it: SELECT easeml.resume(run_id).');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.examined_trial(text, bigint) IS
    'Returns the named trial of a dataset whose rows you may see, by default the one that answers predictions. '
    'Refuses everybody else (internal).';

CREATE OR REPLACE FUNCTION easeml.examine_trial(
    subject text,
    dataset text,
    trial_id bigint,
    options jsonb,
    OUT rows json,
    OUT failure jsonb
) LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.evaluation.examine import examine_trial
return examine_trial(plpy, GD, subject, dataset, trial_id, options)
$$;
COMMENT ON FUNCTION easeml.examine_trial(text, text, bigint, jsonb) IS
    'Lets a trial predict held-out rows that the caller may see, and returns the results as a json array of rows, or '
    'an error (internal: use easeml.evaluate and the functions beside it).';

CREATE OR REPLACE FUNCTION easeml.examination(subject text, dataset text, trial_id bigint, options jsonb) RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.examine_trial(subject, dataset, trial_id, options);
BEGIN
    PERFORM easeml.raise_failure(answer.failure);
    RETURN answer.rows;
END
$$;
COMMENT ON FUNCTION easeml.examination(text, text, bigint, jsonb) IS
    'Returns what easeml.examine_trial returns, or raises its error (internal).';

CREATE OR REPLACE FUNCTION easeml.evaluate(
    dataset text,
    trial_id bigint DEFAULT NULL,
    threshold double precision DEFAULT NULL,
    positive text DEFAULT NULL,
    OUT metric text,
    OUT validation double precision,
    OUT test double precision,
    OUT is_higher_better boolean,
    OUT summary text,
    OUT evaluated_trial_id bigint
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('evaluate', dataset, trial_id,
            jsonb_build_object('threshold', threshold, 'positive', positive)))
        e(metric text, validation double precision, test double precision, is_higher_better boolean,
            summary text, evaluated_trial_id bigint);
END
$$;
COMMENT ON FUNCTION easeml.evaluate(text, bigint, double precision, text) IS
$$Measures a trial on the validation and the test rows: one row for each metric, NULL where it is undefined. The metrics
are defined as in scikit-learn.
dataset: your own. trial_id: by default the trial that answers predictions; its best epoch is measured.
positive: the class that precision, recall, f1 and specificity are about; by default the second of two classes. roc_auc
    and average_precision of more than two classes are means over the classes, each against the rest.
threshold: a row whose positive class has at least this probability (0 to 1) counts as positive; by default each row
    counts as its most probable class.$$;

CREATE OR REPLACE FUNCTION easeml.confusion_matrix(
    dataset text,
    trial_id bigint DEFAULT NULL,
    split text DEFAULT 'test',
    threshold double precision DEFAULT NULL,
    positive text DEFAULT NULL,
    OUT actual text,
    OUT predicted text,
    OUT n_rows bigint,
    OUT share double precision
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('confusion_matrix', dataset, trial_id,
            jsonb_build_object('split', split, 'threshold', threshold, 'positive', positive)))
        e(actual text, predicted text, n_rows bigint, share double precision);
END
$$;
COMMENT ON FUNCTION easeml.confusion_matrix(text, bigint, text, double precision, text) IS
$$Counts the rows of each actual class by the class that a trial predicts: one row for each pair. share: relative to the
rows of the actual class.
split: test or validation. threshold, positive: as in easeml.evaluate, for two classes.$$;

CREATE OR REPLACE FUNCTION easeml.roc_curve(
    dataset text,
    trial_id bigint DEFAULT NULL,
    split text DEFAULT 'test',
    positive text DEFAULT NULL,
    OUT positive_class text,
    OUT threshold double precision,
    OUT false_positive_rate double precision,
    OUT true_positive_rate double precision,
    OUT "precision" double precision,
    OUT true_positives bigint,
    OUT false_positives bigint,
    OUT true_negatives bigint,
    OUT false_negatives bigint
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('roc_curve', dataset, trial_id,
            jsonb_build_object('split', split, 'positive', positive)))
        e(positive_class text, threshold double precision, false_positive_rate double precision,
            true_positive_rate double precision, "precision" double precision,
            true_positives bigint, false_positives bigint, true_negatives bigint, false_negatives bigint);
END
$$;
COMMENT ON FUNCTION easeml.roc_curve(text, bigint, text, text) IS
$$Returns the corners of the ROC curve, from the highest threshold down: the true positive rate and the false positive
rate if rows count as positive from that probability on.
positive: one class against the rest; by default the second of two classes, or each class if there are more. split: test
    or validation.$$;

CREATE OR REPLACE FUNCTION easeml.calibration(
    dataset text,
    trial_id bigint DEFAULT NULL,
    split text DEFAULT 'test',
    n_bins integer DEFAULT 10,
    positive text DEFAULT NULL,
    OUT positive_class text,
    OUT from_probability double precision,
    OUT to_probability double precision,
    OUT n_rows bigint,
    OUT mean_probability double precision,
    OUT positive_share double precision
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('calibration', dataset, trial_id,
            jsonb_build_object('split', split, 'n_bins', n_bins, 'positive', positive)))
        e(positive_class text, from_probability double precision, to_probability double precision, n_rows bigint,
            mean_probability double precision, positive_share double precision);
END
$$;
COMMENT ON FUNCTION easeml.calibration(text, bigint, text, integer, text) IS
$$Compares predicted probabilities with what was observed: for each interval of the probability of a class, the mean
probability and the share of the rows that are of that class. Intervals without rows are left out.
n_bins: the number of intervals between 0 and 1. positive, split: as in easeml.roc_curve.$$;

CREATE OR REPLACE FUNCTION easeml.class_metrics(
    dataset text,
    trial_id bigint DEFAULT NULL,
    split text DEFAULT 'test',
    threshold double precision DEFAULT NULL,
    positive text DEFAULT NULL,
    OUT label text,
    OUT n_rows bigint,
    OUT n_predicted bigint,
    OUT n_correct bigint,
    OUT "precision" double precision,
    OUT recall double precision,
    OUT f1 double precision,
    OUT roc_auc double precision,
    OUT average_precision double precision
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('class_metrics', dataset, trial_id,
            jsonb_build_object('split', split, 'threshold', threshold, 'positive', positive)))
        e(label text, n_rows bigint, n_predicted bigint, n_correct bigint, "precision" double precision,
            recall double precision, f1 double precision,
            roc_auc double precision, average_precision double precision);
END
$$;
COMMENT ON FUNCTION easeml.class_metrics(text, bigint, text, double precision, text) IS
$$Returns counts and metrics for each class: the rows that are of it, the rows predicted to be of it,
    and the rows that are both. Classes without rows are included. Arguments as in easeml.confusion_matrix.$$;

CREATE OR REPLACE FUNCTION easeml.residuals(
    dataset text, trial_id bigint DEFAULT NULL, split text DEFAULT 'test',
    OUT row_key text, OUT actual double precision, OUT predicted double precision, OUT residual double precision
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.*
        FROM json_to_recordset(easeml.examination('residuals', dataset, trial_id, jsonb_build_object('split', split)))
        e(row_key text, actual double precision, predicted double precision, residual double precision);
END
$$;
COMMENT ON FUNCTION easeml.residuals(text, bigint, text) IS
$$Returns the target, the prediction and their difference (actual minus predicted) for each held-out row of a
regression. row_key is that of easeml.dataset_rows.
split: test or validation.$$;

CREATE OR REPLACE FUNCTION easeml.held_out_answers(
    dataset text,
    trial_id bigint DEFAULT NULL,
    split text DEFAULT 'test',
    threshold double precision DEFAULT NULL,
    positive text DEFAULT NULL,
    OUT row_key text,
    OUT actual text,
    OUT predicted text,
    OUT probability double precision,
    OUT probabilities jsonb
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('held_out_answers', dataset, trial_id,
            jsonb_build_object('split', split, 'threshold', threshold, 'positive', positive)))
        e(row_key text, actual text, predicted text, probability double precision, probabilities jsonb);
END
$$;
COMMENT ON FUNCTION easeml.held_out_answers(text, bigint, text, double precision, text) IS
$$Returns the class of each held-out row, the predicted class, its probability, and the probabilities of all classes as
json. row_key is that of easeml.dataset_rows.
Arguments as in easeml.confusion_matrix. For regressions use easeml.residuals.$$;

CREATE OR REPLACE FUNCTION easeml.explain(
    dataset text,
    trial_id bigint DEFAULT NULL,
    split text DEFAULT 'test',
    metric text DEFAULT NULL,
    n_rows integer DEFAULT NULL,
    n_repeats integer DEFAULT 5,
    seed bigint DEFAULT 0,
    OUT input text,
    OUT importance double precision,
    OUT standard_deviation double precision
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('explain', dataset, trial_id,
        jsonb_build_object('split', split, 'metric', metric, 'n_rows', n_rows, 'n_repeats', n_repeats, 'seed', seed)))
        e(input text, importance double precision, standard_deviation double precision);
END
$$;
COMMENT ON FUNCTION easeml.explain(text, bigint, text, text, integer, integer, bigint) IS
$$Shows which inputs a trial relies on: how much worse its metric gets when the values of one input are permuted among
held-out rows (permutation importance), most important first.
Each element of an array of up to 256 elements is an input of its own; longer arrays and images are cut into patches, at
most 7 a side, named by their rows and columns: image[1:4][5:8]. Inputs that carry the same information may each look
unimportant.
metric: one of easeml.evaluate; by default that of the trial's run. n_rows: the largest number of rows to draw; by
    default 2,000, or fewer if rows hold many numbers. n_repeats: permutations of each input; their mean and standard
    deviation are returned.
split: test or validation. seed: the same seed gives the same numbers. If the rows are on nodes, call
    easeml.explain_on_nodes with the same arguments first.$$;

CREATE OR REPLACE FUNCTION easeml.explain_row(
    dataset text,
    inputs jsonb,
    trial_id bigint DEFAULT NULL,
    label text DEFAULT NULL,
    n_orders integer DEFAULT NULL,
    seed bigint DEFAULT 0,
    OUT input text,
    OUT value text,
    OUT contribution double precision,
    OUT standard_error double precision,
    OUT explained_label text,
    OUT unit text
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('explain_row', dataset, trial_id,
        jsonb_build_object('inputs', inputs::text, 'label', label, 'n_orders', n_orders, 'seed', seed)))
        e(input text, value text, contribution double precision, standard_error double precision,
            explained_label text, unit text);
END
$$;
COMMENT ON FUNCTION easeml.explain_row(text, jsonb, bigint, text, integer, bigint) IS
$$Returns what each input of one row contributes to the answer (Shapley values), largest first. The result row without
an input is the base: the answer without knowing the row. Base and contributions add up to the answer.
inputs: a json object of the columns, for example to_jsonb(t). label: the class whose answer is explained; by default
    the predicted one.
For boosted trees, LightGBM computes exact values in log odds (or units of the target). Other trials predict rows that
mix this row with validation rows, along n_orders random orders of the inputs (by default 100, or fewer if rows hold
many numbers). Their contributions are estimates in probability (or units of the target), with standard errors.
If the rows are on nodes, call easeml.explain_row_on_nodes with the same arguments first, except for boosted trees.$$;

CREATE OR REPLACE FUNCTION easeml.hyperparameter_importances(
    trials jsonb,
    specifications jsonb,
    OUT importances json,
    OUT failure jsonb
) LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.procedures.hyperparameter_importance import hyperparameter_importances
from easeml_plpy.server.entry_points import answered_by
return answered_by(plpy, hyperparameter_importances, trials, specifications)
$$;
COMMENT ON FUNCTION easeml.hyperparameter_importances(jsonb, jsonb) IS
    'Returns the importance of each hyperparameter that trials varied as a json array, a pure function of its '
    'arguments, or an error (internal: use easeml.hyperparameter_importance).';

CREATE OR REPLACE FUNCTION easeml.hyperparameter_importance(
    run_id bigint,
    OUT architecture text,
    OUT hyperparameter text,
    OUT importance double precision,
    OUT n_values integer,
    OUT n_trials integer
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    trials jsonb;
    declared jsonb;
    answer record;
BEGIN
    IF NOT EXISTS (SELECT FROM easeml.run_status r WHERE r.run_id = hyperparameter_importance.run_id) THEN
        PERFORM easeml.fail('ML003', format('there is no run %s that you can see', coalesce(run_id::text, 'NULL')),
            hint => 'SELECT run_id FROM easeml.run_status lists them.');
    END IF;
    SELECT jsonb_agg(jsonb_build_object('architecture', l.architecture, 'config', l.config, 'value',
            l.validation_metric) ORDER BY l.trial_number)
    INTO trials FROM easeml.leaderboard l WHERE l.run_id = hyperparameter_importance.run_id
        AND l.validation_metric IS NOT NULL;
    SELECT jsonb_object_agg(a.architecture, a.hyperparameters) INTO declared FROM easeml.architectures a
    WHERE a.architecture IN (SELECT t ->> 'architecture' FROM jsonb_array_elements(trials) t);
    answer := easeml.hyperparameter_importances(coalesce(trials, '[]'), coalesce(declared, '{}'));
    PERFORM easeml.raise_failure(answer.failure);
    RETURN QUERY SELECT i.* FROM json_to_recordset(answer.importances) i(architecture text, hyperparameter text,
        importance double precision, n_values integer, n_trials integer);
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML010', format('run %s has no architecture with 4 measured trials that differ', run_id),
            hint => 'Ask again when more trials are measured, or search over more hyperparameters.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.hyperparameter_importance(bigint) IS
$$Says which hyperparameters mattered in a run: for each architecture with at least four measured trials, the share of
the variance of the validation metric that a hyperparameter explains by itself (functional ANOVA).
If all trials do equally well, there is nothing to explain; few trials give rough numbers. n_values: number of different
values that were tried.$$;
