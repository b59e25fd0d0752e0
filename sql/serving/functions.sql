-- Which trial answers a prediction, and for whom. Only easeml.open_serving calls these: they trust the name of the
-- asking role.

CREATE OR REPLACE FUNCTION easeml.usable_dataset(
    asker name,
    dataset text,
    trial_id bigint,
    OUT tenant name,
    OUT dataset_name text,
    OUT serving_only boolean,
    OUT passed_over text[]
) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    dot integer := strpos(dataset, '.');
    prefix text := left(dataset, dot - 1);
    rest text := substr(dataset, dot + 1);
    account regrole := quote_ident(asker)::regrole;
    own name;
    is_own boolean;
    is_owned boolean;
    known text[];
BEGIN
    SELECT r.tenant,
        EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = r.tenant AND d.dataset_name = dataset) INTO own, is_own
    FROM easeml.tenant_roles r WHERE r.role = account;
    -- Grants of others come after one's own datasets and full names, so that no grant changes the meaning of those.
    IF is_own THEN
        tenant := own;
        dataset_name := dataset;
    ELSIF dot > 1 AND prefix = own
        AND EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = own AND d.dataset_name = rest) THEN
        tenant := own;
        dataset_name := rest;
    ELSE
        IF dot > 1 AND octet_length(prefix) < 64 THEN
            SELECT g.tenant, g.dataset_name, g.serving_only INTO tenant, dataset_name, serving_only
            FROM easeml.dataset_grants g
            WHERE g.tenant = prefix::name AND g.dataset_name = rest AND g.grantee = account;
        END IF;
        IF tenant IS NULL THEN
            -- The oldest grant answers, so that a later grant of another tenant breaks no call that works. A name that
            -- begins with a tenant's means no dataset of others, also when that tenant's is gone.
            is_owned := dot > 1 AND (EXISTS (SELECT FROM easeml.tenant_roles r WHERE r.tenant::text = prefix)
                OR EXISTS (SELECT FROM pg_roles r WHERE r.rolname::text = prefix));
            SELECT (array_agg(g.tenant ORDER BY g.granted_at, g.tenant))[1], dataset,
                (array_agg(g.serving_only ORDER BY g.granted_at, g.tenant))[1],
                (array_agg(g.tenant || '.' || dataset ORDER BY g.granted_at, g.tenant))[2:]
            INTO tenant, dataset_name, serving_only, passed_over
            FROM easeml.dataset_grants g WHERE g.grantee = account AND g.dataset_name = dataset
                AND g.granted_at IS NOT NULL AND (NOT is_owned OR g.tenant::text = prefix)
                AND (trial_id IS NULL OR EXISTS (SELECT FROM easeml.trials t
                        WHERE t.trial_id = usable_dataset.trial_id AND t.tenant = g.tenant));
        END IF;
    END IF;
    IF tenant IS NULL AND EXISTS (SELECT FROM easeml.tasks t WHERE t.tenant = own
        AND t.task_name IN (dataset, CASE WHEN prefix = own THEN rest END)) THEN
        PERFORM easeml.fail_untrained_task(CASE WHEN prefix = own THEN rest ELSE dataset END);
    ELSIF tenant IS NULL THEN
        SELECT array_agg(DISTINCT u.name) INTO known FROM (
            SELECT d.dataset_name AS name FROM easeml.datasets d WHERE d.tenant = own
            UNION ALL SELECT g.tenant || '.' || g.dataset_name FROM easeml.dataset_grants g
            WHERE g.grantee = account) u;
        PERFORM easeml.fail('ML003',
            format('there is no dataset %s that role %s may use', quote_nullable(dataset), quote_ident(asker)),
            hint => concat_ws(' ', easeml.near_names(dataset, known),
                'The tenant of another one can allow it: SELECT easeml.grant_use(dataset, role).'));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.usable_dataset(name, text, bigint) IS
    'Says which dataset a name means for a role: its own, else tenant.dataset, else the oldest grant of that name; '
    'passed_over lists younger grants of that name (internal).';

CREATE OR REPLACE FUNCTION easeml.answering_trial(
    tenant name,
    dataset_name text,
    OUT trial_id bigint,
    OUT dataset_id bigint,
    OUT checkpoint_id bigint
) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT a.trial_id, a.dataset_id, a.checkpoint_id INTO trial_id, dataset_id, checkpoint_id
    FROM easeml.answering a WHERE a.tenant = answering_trial.tenant AND a.dataset_name = answering_trial.dataset_name;
END
$$;
COMMENT ON FUNCTION easeml.answering_trial(name, text) IS
    'Returns the trial that answers for a dataset unless another is named, with its version and its state, by the rule '
    'of the view easeml.answering (internal).';

CREATE OR REPLACE FUNCTION easeml.fail_untrained_task(task text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fail('ML010', format('task %s has no model yet', quote_literal(task)),
        hint => format('Its tenant can start a run with SELECT easeml.run_task(%s); SELECT * FROM easeml.task_status '
            'says what it waits for.', quote_literal(task)));
END
$$;
COMMENT ON FUNCTION easeml.fail_untrained_task(text) IS
    'Raises the error that no trial answers for a task yet, with a hint how its tenant starts a run (internal).';

CREATE OR REPLACE FUNCTION easeml.fail_unanswered(tenant name, dataset_name text, asked text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    other_metric text := (SELECT a.metric FROM easeml.answering a WHERE a.tenant = fail_unanswered.tenant
        AND a.dataset_name = fail_unanswered.dataset_name AND EXISTS (
        SELECT FROM easeml.datasets d JOIN easeml.runs r USING (dataset_id) JOIN easeml.trials t USING (run_id)
        WHERE d.tenant = a.tenant AND d.dataset_name = a.dataset_name AND t.best_checkpoint_id IS NOT NULL));
BEGIN
    IF other_metric IS NULL AND EXISTS (SELECT FROM easeml.tasks t WHERE t.tenant = fail_unanswered.tenant
        AND t.task_name = fail_unanswered.dataset_name) THEN
        PERFORM easeml.fail_untrained_task(dataset_name);
    ELSIF other_metric IS NULL THEN
        PERFORM easeml.fail('ML010', format('dataset %s has no trained trial yet', quote_literal(asked)),
            hint => format('Start one with SELECT easeml.select_models(%s), or wait for the first epoch '
                'to be measured.', quote_literal(asked)));
    END IF;
    PERFORM easeml.fail('ML010', format('dataset %s has no trained trial of a run that ranks by %s, its metric',
            quote_literal(asked), other_metric),
        hint => format('Wait for such a run, let a trial of another answer with easeml.deploy(trial_id), or choose '
            'another metric: easeml.set_serving_metric(%s, metric).', quote_literal(asked)));
END
$$;
COMMENT ON FUNCTION easeml.fail_unanswered(name, text, text) IS
    'Raises the error that says why no trial answers for a dataset (internal).';

CREATE OR REPLACE FUNCTION easeml.serving_trial(
    asker name,
    dataset text,
    trial_id bigint,
    OUT tenant name,
    OUT dataset_name text,
    OUT dataset_id bigint,
    OUT serving_trial_id bigint,
    OUT checkpoint_id bigint,
    OUT passed_over text[],
    OUT is_audited boolean
) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    usable record := easeml.usable_dataset(asker, dataset, trial_id);
    answering record;
BEGIN
    tenant := usable.tenant;
    dataset_name := usable.dataset_name;
    passed_over := usable.passed_over;
    IF trial_id IS NULL OR usable.serving_only THEN
        answering := easeml.answering_trial(tenant, dataset_name);
        dataset_id := answering.dataset_id;
        serving_trial_id := answering.trial_id;
        checkpoint_id := answering.checkpoint_id;
        IF trial_id IS NOT NULL AND trial_id IS DISTINCT FROM serving_trial_id THEN
            PERFORM easeml.fail('ML004', format('role %s may use only the trial that answers for dataset %s',
                    quote_ident(asker), quote_literal(dataset)),
                hint => 'Leave the trial out.');
        END IF;
    ELSE
        SELECT r.dataset_id, t.trial_id, t.best_checkpoint_id INTO dataset_id, serving_trial_id, checkpoint_id
        FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
        WHERE t.trial_id = serving_trial.trial_id AND d.tenant = serving_trial.tenant
            AND d.dataset_name = serving_trial.dataset_name;
        IF serving_trial_id IS NULL THEN
            PERFORM easeml.fail('ML003', format('dataset %s has no trial %s', quote_literal(dataset), trial_id),
            hint => 'SELECT trial_id FROM easeml.leaderboard lists them; without a trial the one that serves answers.');
        END IF;
    END IF;
    IF checkpoint_id IS NULL THEN
        IF EXISTS (SELECT FROM easeml.trials t WHERE t.trial_id = serving_trial_id
            AND t.best_metric_value IS NOT NULL) THEN
            PERFORM easeml.fail('ML010', format('trial %s has no state any more: it was old, and was removed',
                    serving_trial_id), hint => 'Leave the trial out: the one that serves answers.');
        END IF;
        PERFORM easeml.fail_unanswered(tenant, dataset_name, dataset);
    END IF;
    is_audited := EXISTS (SELECT FROM easeml.prediction_audits a WHERE a.tenant = serving_trial.tenant
        AND a.dataset_name = serving_trial.dataset_name);
END
$$;
COMMENT ON FUNCTION easeml.serving_trial(name, text, bigint) IS
    'Finds the trial that answers a role for a dataset: the one named, else the one that easeml.serving shows. Refuses '
    'roles to which the tenant has not granted use (internal).';

-- The role never waits: if another session of it has locked the row, the statement is not counted. Nor does its time
-- zone choose the day.
CREATE OR REPLACE FUNCTION easeml.log_prediction(tenant name, dataset_name text, asker name, trial_id bigint)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' SET timezone = 'UTC' AS $$
DECLARE
    is_new boolean;
BEGIN
    IF current_setting('transaction_read_only')::boolean THEN
        RETURN;
    END IF;
    INSERT INTO easeml.prediction_log AS l (tenant, dataset_name, day, asker, trial_id)
    VALUES (log_prediction.tenant, log_prediction.dataset_name, current_date,
        log_prediction.asker, log_prediction.trial_id)
    ON CONFLICT ON CONSTRAINT prediction_log_pkey DO UPDATE SET n_statements = l.n_statements + 1, last_at = now()
    RETURNING l.n_statements = 1 INTO is_new;
    IF is_new THEN
        DELETE FROM easeml.prediction_log l
        WHERE l.tenant = log_prediction.tenant AND l.dataset_name = log_prediction.dataset_name
            AND l.day < current_date - 90;
    END IF;
EXCEPTION WHEN lock_not_available OR serialization_failure THEN
    RETURN;
END
$$;
COMMENT ON FUNCTION easeml.log_prediction(name, text, name, bigint) IS
    'Counts a statement that predicted; a read-only transaction leaves no row (internal).';

CREATE OR REPLACE FUNCTION easeml.set_prediction_audit(dataset text, is_on boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('set_prediction_audit', jsonb_build_object('dataset', dataset, 'is_on', is_on));
END
$$;
COMMENT ON FUNCTION easeml.set_prediction_audit(text, boolean) IS
    'Switches the counting of predictions with a dataset of yours on or off: easeml.prediction_log counts the '
    'statements that committed by day, role and trial. Off by default; rows are kept for 90 days.';

CREATE OR REPLACE FUNCTION easeml.perform_set_prediction_audit(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := easeml.dataset_of(caller, asker, arguments ->> 'dataset');
    is_on boolean := (arguments ->> 'is_on')::boolean;
BEGIN
    IF is_on IS NULL THEN
        PERFORM easeml.fail('ML001', 'is_on: expected true or false, got NULL');
    ELSIF is_on THEN
        INSERT INTO easeml.prediction_audits (tenant, dataset_name)
        VALUES (asker, data.dataset_name) ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM easeml.prediction_audits a WHERE a.tenant = asker AND a.dataset_name = data.dataset_name;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_set_prediction_audit(name, name, jsonb) IS
    'Begins or ends counting predictions, for easeml.set_prediction_audit (internal).';
