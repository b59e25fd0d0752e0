-- Starting a run: arms and first trials are queued, and a coordinator trains them.

CREATE FUNCTION easeml.begin_search(architectures jsonb, search_space jsonb, procedure text, n_configs integer, max_epochs integer, seed bigint, procedure_options jsonb,
    OUT search jsonb, OUT failure jsonb) LANGUAGE plpython3u IMMUTABLE AS $$
from easeml_db.decisions.procedures.proposal import begin_search
from easeml_plpy.session import answered_by
return answered_by(plpy, begin_search, architectures, search_space, procedure, n_configs, max_epochs, seed, procedure_options)
$$;
COMMENT ON FUNCTION easeml.begin_search(jsonb, jsonb, text, integer, integer, bigint, jsonb) IS
    'Returns a run''s arms, its first trials and the largest number of trials as a json object, a pure function of its arguments, or an error (internal).';

CREATE FUNCTION easeml.select_models(
    dataset text,
    architectures text[] DEFAULT NULL,
    search_space jsonb DEFAULT NULL,
    procedure text DEFAULT 'random',
    n_configs integer DEFAULT NULL,
    max_epochs integer DEFAULT 5,
    metric text DEFAULT NULL,
    max_seconds double precision DEFAULT NULL,
    seed bigint DEFAULT 0,
    scheduler text DEFAULT 'auto',
    visit_order text DEFAULT 'cyclic',
    procedure_options jsonb DEFAULT NULL,
    allocation text DEFAULT 'hopping'
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    data easeml.datasets := easeml.find_dataset(dataset);
    chosen text[];
    ranking record;
    specifications jsonb;
    options jsonb;
    search jsonb;
    new_run_id bigint;
    failure jsonb;
BEGIN
    IF max_epochs IS NULL OR max_epochs NOT BETWEEN 1 AND 1000000 THEN
        PERFORM easeml.fail('ML001', format('max_epochs: expected 1 to 1000000, got %s', coalesce(max_epochs::text, 'NULL')));
    END IF;
    IF n_configs IS NOT NULL AND n_configs NOT BETWEEN 1 AND 10000 THEN
        PERFORM easeml.fail('ML001', format('n_configs: expected 1 to 10000, got %s', n_configs));
    END IF;
    IF max_seconds IS NOT NULL AND NOT (max_seconds > 0 AND max_seconds < 'Infinity') THEN
        PERFORM easeml.fail('ML001', format('max_seconds: expected a positive number, got %s', max_seconds));
    END IF;
    IF seed IS NULL THEN
        PERFORM easeml.fail('ML001', 'seed: expected a whole number, got NULL');
    END IF;
    PERFORM easeml.check_schedule(data, scheduler, visit_order);

    SELECT m.* INTO ranking FROM easeml.list_metrics() m
    WHERE m.task = data.task AND (m.metric = select_models.metric OR select_models.metric IS NULL AND m.is_default);
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML001', format('metric: there is no %s metric %s', data.task, quote_literal(metric)),
            hint => (SELECT 'Choose one of: ' || string_agg(m.metric, ', ') || '.' FROM easeml.list_metrics() m WHERE m.task = data.task));
    END IF;

    chosen := easeml.choose_architectures(data, architectures);
    specifications := easeml.specifications(chosen);
    options := easeml.complete_options(procedure, procedure_options);
    SELECT b.search, b.failure INTO search, failure
    FROM easeml.begin_search(specifications, search_space, procedure, n_configs, max_epochs, seed, options) b;
    PERFORM easeml.raise_failure(failure);
    PERFORM easeml.raise_failure(m.failure) FROM easeml.check_memory(data.task, data.input_shape, data.n_outputs,
        (SELECT coalesce(max(p.n_train_rows), 0)::bigint FROM easeml.partitions p WHERE p.dataset_id = data.dataset_id), search -> 'trials') m;

    INSERT INTO easeml.runs (dataset_id, procedure, procedure_options, architectures, search_space, n_configs, max_epochs, metric, is_higher_better, max_seconds, seed,
        scheduler, visit_order, allocation, search)
    VALUES (data.dataset_id, procedure, options, chosen, search_space, (search ->> 'n_configs')::integer, max_epochs, ranking.metric, ranking.is_higher_better, max_seconds, seed,
        scheduler, visit_order, allocation,
        CASE WHEN NOT (search ->> 'is_one_shot')::boolean THEN jsonb_build_object('architectures', specifications, 'n_configs', n_configs) END)
    RETURNING run_id INTO new_run_id;
    INSERT INTO easeml.arms (run_id, architecture, planned_epochs)
    SELECT new_run_id, a.architecture, a.planned_epochs
    FROM ROWS FROM (jsonb_to_recordset(search -> 'arms') AS (architecture text, planned_epochs bigint)) WITH ORDINALITY a
    ORDER BY array_position(chosen, a.architecture), a.ordinality;
    INSERT INTO easeml.trials (run_id, arm_id, trial_number, architecture, config, max_epochs, target_epochs, bracket)
    SELECT new_run_id, a.arm_id, c.trial_number, c.architecture, c.config, select_models.max_epochs, c.target_epochs, c.bracket
    FROM jsonb_to_recordset(search -> 'trials') c(arm text, trial_number integer, architecture text, config jsonb, target_epochs integer, bracket integer)
    JOIN easeml.arms a ON a.run_id = new_run_id AND a.architecture = c.arm ORDER BY c.trial_number;
    PERFORM pg_notify('easeml_runs', new_run_id::text);

    RAISE NOTICE 'run % trains % trial(s) for % epoch(s)', new_run_id,
        CASE WHEN (search ->> 'is_one_shot')::boolean THEN search ->> 'n_configs' ELSE 'up to ' || (search ->> 'n_configs') END,
        CASE WHEN (search ->> 'is_one_shot')::boolean THEN max_epochs::text ELSE 'up to ' || max_epochs END
        USING hint = format('Watch it: SELECT * FROM easeml.leaderboard WHERE run_id = %s; progress: easeml.run_status.', new_run_id);
    IF procedure = 'random' AND (search ->> 'n_configs')::integer < coalesce(n_configs, 8) THEN
        RAISE NOTICE 'the search space holds only % different configs', search ->> 'n_configs'
            USING hint = 'What search_space does not mention keeps its default; widen it, or leave it out to search the default ranges.';
    END IF;
    IF NOT easeml.has_live_coordinator() THEN
        RAISE WARNING 'no coordinator is running, so run % waits in the queue', new_run_id
            USING hint = 'Start one from a shell: easeml up (private server), or easeml coordinator --dsn ...';
    END IF;
    RETURN new_run_id;
END
$$;
COMMENT ON FUNCTION easeml.select_models(text, text[], jsonb, text, integer, integer, text, double precision, bigint, text, text, jsonb, text) IS
$$Starts a search for a good model on a dataset and returns the run's id at once. A coordinator trains in the background once this transaction has committed.
architectures: names from easeml.architectures; by default those that suit the data.
search_space: a json object, for example {"learning_rate": {"type": "float", "low": 1e-4, "high": 1e-1, "log": true}, "batch_size": [32, 256], "mlp": {"hidden_units": [[128], [256, 128]]}}.
A list is a choice, an object a range, anything else a fixed value. A key that names an architecture holds values for that architecture only. By default each architecture uses its own ranges.
procedure: one of easeml.procedures. random and grid train every trial to the end; the others look at the results of an arm (an architecture) after each epoch and stop, continue and start its trials.
easeml.preview_procedure shows what a run would train. procedure_options: a json object of options that easeml.procedures lists, for example {"eta": 3}; {"joint": true} searches all architectures at once.
n_configs: number of trials; by default random tries 8, grid all, and the others, in each arm, as many as max_epochs needs. max_epochs: passes of a trial over the training rows, at most.
metric: ranks the trials by their best epoch on the validation rows; by default accuracy for labels, rmse for numbers. max_seconds: start no new unit after that time.
seed: the same data, arguments and seed give the same result.
scheduler: chooses which trial runs next on which slot, one of easeml.schedulers; auto simulates longest_remaining and rotation before the run and takes the shorter.
visit_order: cyclic (the order in which a trial visits the partitions is fixed beforehand, so that failures and timing change no byte of the result) or free (the scheduler chooses the partition, too; easeml.replay proves the result).
allocation: hopping (each trial has one slot at a time), data_parallel (one trial after another uses all slots), water_filling (slots follow the work that each trial has left)
or auto (data_parallel when few trials remain for many slots). Only hopping gives the same bytes whatever slots there are.$$;
