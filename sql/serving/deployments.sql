-- Which trial answers for a dataset, when its tenant chooses one.

CREATE OR REPLACE FUNCTION easeml.deploy(trial_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('deploy', jsonb_build_object('trial_id', trial_id));
END
$$;
COMMENT ON FUNCTION easeml.deploy(bigint) IS 'Makes this trial answer easeml.predict for its dataset, even if later '
    'trials are better. easeml.rollback goes back to what answered before, easeml.undeploy to the best trial.';

CREATE OR REPLACE FUNCTION easeml.undeploy(dataset text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('undeploy', jsonb_build_object('dataset', dataset));
END
$$;
COMMENT ON FUNCTION easeml.undeploy(text) IS 'Withdraws the deployed trial of a dataset, so that the best trial by the '
    'dataset''s metric answers easeml.predict again.';

CREATE OR REPLACE FUNCTION easeml.perform_deploy(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    trial record;
BEGIN
    -- First of all: easeml prune holds this row while it removes states and runs.
    PERFORM easeml.lock_serving(asker, d.dataset_name) FROM easeml.trials t JOIN easeml.runs r USING (run_id)
        JOIN easeml.datasets d USING (dataset_id)
    WHERE t.trial_id = (arguments ->> 'trial_id')::bigint AND t.tenant = asker;
    SELECT t.trial_id, t.best_checkpoint_id, t.best_metric_value, t.tenant, d.dataset_name INTO trial
    FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
    WHERE t.trial_id = (arguments ->> 'trial_id')::bigint AND t.tenant = asker;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', format('there is no trial %s of yours', coalesce(arguments ->> 'trial_id',
                    'NULL')), hint => 'SELECT trial_id FROM easeml.leaderboard lists them.');
    ELSIF trial.best_checkpoint_id IS NULL THEN
        PERFORM easeml.fail('ML010',
            format(CASE WHEN trial.best_metric_value IS NULL THEN 'trial %s has no measured epoch yet'
                    ELSE 'trial %s has no state any more: it was old, and was removed' END, trial.trial_id),
            hint => CASE WHEN trial.best_metric_value IS NULL THEN 'Wait for '
                'its first epoch. If its run was cancelled or has failed, go on with it: SELECT easeml.resume(run_id).'
                ELSE 'Choose another one, or train it again.' END);
    END IF;
    INSERT INTO easeml.deployments (tenant, dataset_name, trial_id) VALUES (asker, trial.dataset_name, trial.trial_id)
    ON CONFLICT ON CONSTRAINT deployments_pkey DO UPDATE SET trial_id = excluded.trial_id, deployed_at = now();
    PERFORM easeml.note_serving(asker, trial.dataset_name, 'deployed');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_deploy(name, name, jsonb) IS 'Deploys a trial for easeml.deploy (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_undeploy(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.lock_serving(asker, arguments ->> 'dataset');
    DELETE FROM easeml.deployments p WHERE p.tenant = asker AND p.dataset_name = arguments ->> 'dataset';
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003',
            format('no trial of dataset %s is deployed', quote_nullable(arguments ->> 'dataset')),
            hint => 'easeml.deploy(trial_id) chooses one; until then the best answers.');
    END IF;
    PERFORM easeml.note_serving(asker, arguments ->> 'dataset', 'undeployed');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_undeploy(name, name, jsonb) IS
    'Withdraws a deployment for easeml.undeploy (internal).';
