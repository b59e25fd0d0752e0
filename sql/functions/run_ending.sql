-- The end of a run's search: whatever stopped the best trial, it is tested.

CREATE FUNCTION easeml.begin_ending(run_id bigint, lease_number bigint) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs;
    best easeml.trials;
    n_partitions bigint;
BEGIN
    IF lease_number IS DISTINCT FROM (SELECT l.lease_number FROM easeml.coordinator_lease l) THEN
        RETURN false;
    END IF;
    SELECT r.* INTO run FROM easeml.runs r WHERE r.run_id = begin_ending.run_id AND r.status IN ('queued', 'running') AND NOT r.is_ending FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT d.n_partitions INTO n_partitions FROM easeml.datasets d WHERE d.dataset_id = run.dataset_id;
    SELECT t.* INTO best FROM easeml.trials t WHERE t.run_id = run.run_id AND t.best_metric_value IS NOT NULL
    ORDER BY CASE WHEN run.is_higher_better THEN -t.best_metric_value ELSE t.best_metric_value END, t.trial_number LIMIT 1;
    IF NOT FOUND OR best.status NOT IN ('waiting', 'running', 'paused', 'stopped') THEN
        RETURN false;
    END IF;
    UPDATE easeml.runs r SET is_ending = true WHERE r.run_id = run.run_id;
    UPDATE easeml.trials t SET status = 'stopped', finished_at = clock_timestamp(), failure_reason = 'the run ended before this trial'
    WHERE t.run_id = run.run_id AND t.trial_id <> best.trial_id AND t.status IN ('waiting', 'running', 'paused');
    -- Its life ends after the epochs that it has; units of an epoch that is not complete stay in the log. The test takes the state of its best epoch.
    UPDATE easeml.trials t SET status = CASE best.status WHEN 'running' THEN 'running' ELSE 'waiting' END, finished_at = NULL, failure_reason = NULL, target_epochs = NULL, checkpoint_id = best.best_checkpoint_id,
        max_epochs = best.n_steps_done / (2 * n_partitions), n_steps_done = best.n_steps_done / (2 * n_partitions) * 2 * n_partitions
    WHERE t.trial_id = best.trial_id;
    DELETE FROM easeml.checkpoints c WHERE c.checkpoint_id = best.checkpoint_id AND c.checkpoint_id <> best.best_checkpoint_id;
    RETURN true;
END
$$;
COMMENT ON FUNCTION easeml.begin_ending(bigint, bigint) IS
    'Ends the search of a run whose best trial has not been tested: stops the others, and cuts the best one''s life so that only its test is left. Returns whether there is something to test (internal).';
