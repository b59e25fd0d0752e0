-- Units of work, called by the coordinator, one session for each slot. They commit, so they are procedures.

CREATE PROCEDURE easeml.train_unit(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.training import train_unit
return train_unit(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.train_unit(jsonb, jsonb) IS
    'Trains a trial over one partition once and records the new state, the unit and its loss in one short transaction, refused when the lease is stale or the step is recorded already.';

CREATE PROCEDURE easeml.evaluate_unit(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.evaluation import evaluate_unit
return evaluate_unit(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.evaluate_unit(jsonb, jsonb) IS
    'Measures a trial on the validation or test rows of one partition and records the sums; the last partition of a split makes the metrics.';

CREATE FUNCTION easeml.unit_context(trial_id bigint, slot_id integer, OUT run_id bigint, OUT owner name, OUT trial_number integer, OUT architecture text, OUT config jsonb,
    OUT max_epochs integer, OUT n_steps_done integer, OUT checkpoint_id bigint, OUT best_checkpoint_id bigint, OUT best_epoch integer, OUT best_metric_value double precision,
    OUT trial_state text, OUT run_seed bigint, OUT metric text, OUT dataset_id bigint, OUT n_partitions integer,
    OUT device text, OUT n_threads integer, OUT memory_limit_bytes bigint, OUT train_rows bigint[])
LANGUAGE sql STABLE AS $$
    SELECT t.run_id, t.owner, t.trial_number, t.architecture, t.config, t.max_epochs, t.n_steps_done, t.checkpoint_id, t.best_checkpoint_id, t.best_epoch,
        t.best_metric_value, t.state, r.seed, r.metric, d.dataset_id, d.n_partitions, s.device, s.n_threads, s.memory_limit_bytes,
        (SELECT array_agg(p.n_train_rows ORDER BY p.partition_number) FROM easeml.partitions p WHERE p.dataset_id = d.dataset_id)
    FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
    LEFT JOIN easeml.slots s ON s.slot_id = unit_context.slot_id
    WHERE t.trial_id = unit_context.trial_id
$$;
COMMENT ON FUNCTION easeml.unit_context(bigint, integer) IS 'All that a unit needs to know of its trial, run, data set and slot, in one query (internal).';
