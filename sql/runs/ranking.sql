-- Which trial of a run is the best: written only here.

-- PostgreSQL inlines these functions, so a query pays for no call, which takes that they have no setting. They need
-- none: the names in their bodies, which are no literals, were looked up when they were made.
CREATE OR REPLACE FUNCTION easeml.rank_value(trial easeml.trials, is_higher_better boolean) RETURNS double precision
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN is_higher_better THEN -trial.best_metric_value ELSE trial.best_metric_value END;
COMMENT ON FUNCTION easeml.rank_value(easeml.trials, boolean) IS
    'Returns the first element of easeml.rank_key: to sort many trials by it first compares numbers, '
    'and arrays only where these are equal (internal).';

CREATE OR REPLACE FUNCTION easeml.rank_key(trial easeml.trials, is_higher_better boolean) RETURNS double precision[]
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN trial.best_metric_value IS NOT NULL THEN ARRAY[
    easeml.rank_value(trial, is_higher_better), trial.best_loss, (trial.architecture <> 'ensemble')::integer,
    trial.run_id, trial.trial_number, trial.trial_id] END;
COMMENT ON FUNCTION easeml.rank_key(easeml.trials, boolean) IS 'Returns what orders trials, the best first: the '
    'validation metric of the best epoch in its direction; of equal ones the lower loss, a missing one last; then an '
    'ensemble; then the older run, and the lower trial number. The last element is the trial. Trials that differ only '
    'in the last three are equal and share a rank. NULL, which sorts last, if the trial has not been measured '
    '(internal).';
