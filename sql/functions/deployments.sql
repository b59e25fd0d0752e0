-- Which trial answers for a dataset, when its tenant chooses one.

CREATE FUNCTION easeml.deploy(trial_id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    trial record;
BEGIN
    SELECT t.trial_id, t.best_checkpoint_id, t.tenant, d.dataset_name INTO trial
    FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
    WHERE t.trial_id = deploy.trial_id AND t.tenant = current_user;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', format('there is no trial %s of yours', coalesce(trial_id::text, 'NULL')), hint => 'SELECT trial_id FROM easeml.leaderboard lists them.');
    ELSIF trial.best_checkpoint_id IS NULL THEN
        PERFORM easeml.fail('ML010', format('trial %s has no measured epoch yet', trial_id));
    END IF;
    INSERT INTO easeml.deployments (dataset_name, trial_id) VALUES (trial.dataset_name, trial.trial_id)
    ON CONFLICT ON CONSTRAINT deployments_pkey DO UPDATE SET trial_id = excluded.trial_id, deployed_at = now();
END
$$;
COMMENT ON FUNCTION easeml.deploy(bigint) IS 'Makes this trial answer easeml.predict for its dataset, even if later trials are better. easeml.undeploy withdraws it.';

CREATE FUNCTION easeml.undeploy(dataset text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM easeml.deployments p WHERE p.tenant = current_user AND p.dataset_name = undeploy.dataset;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', format('no trial of dataset %s is deployed', quote_nullable(dataset)));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.undeploy(text) IS 'Withdraws the deployed trial of a dataset, so that the best trial answers easeml.predict again.';
