CREATE FUNCTION easeml.list_architectures(
    OUT architecture text, OUT trainer text, OUT tasks text[], OUT input_ranks integer[], OUT summary text, OUT hyperparameters jsonb
) RETURNS SETOF record LANGUAGE plpython3u STABLE AS $$
from easeml_plpy.catalog import list_architectures
return list_architectures(plpy, GD)
$$;
COMMENT ON FUNCTION easeml.list_architectures() IS 'The architectures that the installed package knows (see view easeml.architectures).';

CREATE FUNCTION easeml.list_metrics(OUT metric text, OUT task text, OUT is_higher_better boolean, OUT is_default boolean, OUT summary text)
RETURNS SETOF record LANGUAGE plpython3u STABLE AS $$
from easeml_plpy.catalog import list_metrics
return list_metrics(plpy, GD)
$$;
COMMENT ON FUNCTION easeml.list_metrics() IS 'The metrics by which a run can rank its trials.';

CREATE FUNCTION easeml.fitting_architectures(task text, input_shape integer[], n_outputs integer, OUT architecture text, OUT misfit text, OUT is_default boolean)
RETURNS SETOF record LANGUAGE plpython3u STABLE AS $$
from easeml_plpy.catalog import fitting_architectures
return fitting_architectures(plpy, GD, task, input_shape, n_outputs)
$$;
COMMENT ON FUNCTION easeml.fitting_architectures(text, integer[], integer) IS 'Every architecture, with the reason why it does not fit such data, or NULL where it fits.';

CREATE FUNCTION easeml.list_procedures(OUT procedure text, OUT is_one_shot boolean, OUT options text[], OUT summary text)
RETURNS SETOF record LANGUAGE plpython3u STABLE AS $$
from easeml_db.decisions.procedures import list_procedures
from easeml_plpy.session import guarded
return guarded(plpy, list_procedures)
$$;
COMMENT ON FUNCTION easeml.list_procedures() IS 'The procedures a run can ask for (internal: read easeml.procedures).';

CREATE FUNCTION easeml.begin_search(architectures jsonb, search_space jsonb, procedure text, n_configs integer, max_epochs integer, seed bigint, procedure_options jsonb,
    OUT search jsonb, OUT failure jsonb) LANGUAGE plpython3u IMMUTABLE AS $$
from easeml_db.decisions.procedures.proposal import begin_search
from easeml_plpy.failures import answered
return answered(begin_search, architectures, search_space, procedure, n_configs, max_epochs, seed, procedure_options)
$$;
COMMENT ON FUNCTION easeml.begin_search(jsonb, jsonb, text, integer, integer, bigint, jsonb) IS
    'What a run begins with, as a json object: its arms, its first trials and how many there are at most; a pure function of its arguments (internal).';

CREATE FUNCTION easeml.plan_search(architectures jsonb, search_space jsonb, procedure text, n_configs integer, max_epochs integer, seed bigint, procedure_options jsonb,
    OUT rungs jsonb, OUT failure jsonb) LANGUAGE plpython3u IMMUTABLE AS $$
from easeml_db.decisions.procedures.proposal import preview
from easeml_plpy.failures import answered
return answered(preview, architectures, search_space, procedure, n_configs, max_epochs, seed, procedure_options)
$$;
COMMENT ON FUNCTION easeml.plan_search(jsonb, jsonb, text, integer, integer, bigint, jsonb) IS
    'The rungs of a run as a json array: a pure function of its arguments (internal: call easeml.preview_procedure).';

CREATE FUNCTION easeml.complete_options(procedure text, options jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN p.procedure IS NULL OR jsonb_typeof(complete_options.options) <> 'object' THEN complete_options.options
        ELSE jsonb_build_object('n_parallel', (SELECT greatest(count(*), 1) FROM easeml.slots s WHERE s.state = 'active')) || coalesce(complete_options.options, '{}') END
    FROM (SELECT) d LEFT JOIN easeml.list_procedures() p ON p.procedure = complete_options.procedure AND 'n_parallel' = ANY (p.options)
$$;
COMMENT ON FUNCTION easeml.complete_options(text, jsonb) IS 'The options of a procedure; n_parallel, where it has that and none is named, is the number of slots (internal).';

CREATE FUNCTION easeml.list_schedulers(OUT scheduler text, OUT needs_free_order boolean, OUT needs_single_holders boolean, OUT is_default boolean, OUT summary text)
RETURNS SETOF record LANGUAGE plpython3u STABLE AS $$
from easeml_db.decisions.hopper.schedulers import list_schedulers
from easeml_plpy.session import guarded
return guarded(plpy, list_schedulers)
$$;
COMMENT ON FUNCTION easeml.list_schedulers() IS 'The schedulers a run can ask for (internal: read easeml.schedulers).';

CREATE FUNCTION easeml.check_schedule(data easeml.datasets, scheduler text, visit_order text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    wanted record;
BEGIN
    IF visit_order IS NULL OR visit_order NOT IN ('cyclic', 'free') THEN
        PERFORM easeml.fail('ML001', format('visit_order: expected cyclic or free, got %s', quote_nullable(visit_order)),
            hint => 'cyclic: the order, and so every byte, is fixed beforehand; free: the scheduler also chooses the partition.');
    END IF;
    SELECT s.* INTO wanted FROM easeml.list_schedulers() s WHERE s.scheduler = check_schedule.scheduler;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML001', format('scheduler: there is no scheduler %s', quote_nullable(scheduler)),
            hint => (SELECT 'Choose one of: ' || string_agg(s.scheduler, ', ') || '.' FROM easeml.list_schedulers() s));
    ELSIF wanted.needs_free_order AND visit_order <> 'free' THEN
        PERFORM easeml.fail('ML001', format('scheduler: %s chooses the partitions, so it needs the visit order free, got %s', scheduler, visit_order),
            hint => 'Add visit_order => ''free'', or leave the scheduler to easeml.');
    ELSIF wanted.needs_single_holders AND EXISTS (SELECT FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id GROUP BY c.partition_number HAVING count(*) > 1) THEN
        PERFORM easeml.fail('ML001', format('scheduler: %s needs one holder for each partition, and data set %s is replicated', scheduler, quote_literal(data.dataset_name)),
            hint => 'Choose longest_remaining or random, or leave the scheduler to easeml.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_schedule(easeml.datasets, text, text) IS 'Refuses a scheduler or visit order that does not exist or does not fit the data set (internal).';

CREATE FUNCTION easeml.choose_architectures(data easeml.datasets, architectures text[]) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    chosen text[];
    unfit record;
BEGIN
    IF architectures IS NULL THEN
        SELECT array_agg(f.architecture) INTO chosen
        FROM easeml.fitting_architectures(data.task, data.input_shape, data.n_outputs) f WHERE f.misfit IS NULL AND f.is_default;
    ELSE
        SELECT array_agg(DISTINCT a) INTO chosen FROM unnest(architectures) a;
        chosen := (SELECT array_agg(a ORDER BY array_position(architectures, a)) FROM unnest(chosen) a);
    END IF;
    IF coalesce(cardinality(chosen), 0) = 0 THEN
        PERFORM easeml.fail('ML001', 'architectures: expected at least one name, got an empty list',
            hint => 'SELECT * FROM easeml.architectures shows them; NULL lets easeml choose.');
    END IF;
    SELECT a AS architecture, f.misfit INTO unfit
    FROM unnest(chosen) a LEFT JOIN easeml.fitting_architectures(data.task, data.input_shape, data.n_outputs) f ON f.architecture = a
    WHERE f.architecture IS NULL OR f.misfit IS NOT NULL LIMIT 1;
    IF FOUND AND unfit.misfit IS NOT NULL THEN
        PERFORM easeml.fail('ML001', format('architectures: %s does not fit data set %s: %s', unfit.architecture, quote_literal(data.dataset_name), unfit.misfit));
    ELSIF FOUND THEN
        PERFORM easeml.fail('ML001', format('architectures: there is no architecture %s', quote_nullable(unfit.architecture)),
            hint => (SELECT 'Choose from: ' || string_agg(a.architecture, ', ') || '.' FROM easeml.list_architectures() a));
    END IF;
    RETURN chosen;
END
$$;
COMMENT ON FUNCTION easeml.choose_architectures(easeml.datasets, text[]) IS 'The architectures of a run, each once: those named, or those that suit the data; one that does not fit is refused (internal).';

CREATE FUNCTION easeml.specifications(architectures text[]) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_agg(jsonb_build_object('architecture', a.architecture, 'hyperparameters', a.hyperparameters) ORDER BY c.n)
    FROM unnest(architectures) WITH ORDINALITY c(name, n) JOIN easeml.list_architectures() a ON a.architecture = c.name
$$;
COMMENT ON FUNCTION easeml.specifications(text[]) IS 'What architectures declare of their hyperparameters, as a procedure reads it (internal).';

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
    IF allocation IS NULL OR allocation NOT IN ('hopping', 'data_parallel', 'water_filling', 'auto') THEN
        PERFORM easeml.fail('ML001', format('allocation: expected hopping, data_parallel, water_filling or auto, got %s', quote_nullable(allocation)));
    END IF;

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

    RAISE NOTICE 'run % trains % trials for % epoch(s)', new_run_id,
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
$$Starts a search for a good model on a data set and returns the run's id at once; a coordinator trains in the background (from the moment this transaction commits).
architectures: names from easeml.architectures (default: those that suit the data). search_space: json object, for example
{"learning_rate": {"type": "float", "low": 1e-4, "high": 1e-1, "log": true}, "batch_size": [32, 256], "mlp": {"hidden_units": [[128], [256, 128]]}};
a list is a choice, an object a range, anything else is fixed, and a key that names an architecture holds what is meant for it alone (default: every architecture's own ranges).
procedure: one of easeml.procedures; random and grid train every trial to the end, the others look at results after each epoch, once inside every arm (an architecture), and
stop, continue and start trials. procedure_options: json object of options that easeml.procedures lists, for example {"eta": 3}; {"joint": true}: one search over all architectures.
easeml.preview_procedure shows what a run would train. n_configs: how many trials (random: 8; grid: all; others: in each arm, by default as many as max_epochs asks for).
max_epochs: passes of a trial over the training rows, at most.
metric: ranks the trials by their best epoch on the validation rows (accuracy for labels, rmse for numbers). max_seconds: stop starting new units after that. seed: same data, arguments and seed, same result.
scheduler: which trial runs next where, one of easeml.schedulers (auto: the shorter of longest_remaining and rotation in a simulation before the run).
visit_order: cyclic (each trial meets the partitions in an order fixed beforehand, so the result is the same bytes whatever happens) or free (the scheduler chooses the partition too; easeml.replay proves the result).
allocation: hopping (every trial has one slot at a time), data_parallel (each trial over all slots, one after another), water_filling (slots follow the work that each trial
has left) or auto (data_parallel where few trials are left for many slots). Only hopping gives the same bytes whatever slots there are.$$;

CREATE FUNCTION easeml.preview_procedure(
    procedure text, max_epochs integer DEFAULT 5, n_configs integer DEFAULT NULL, procedure_options jsonb DEFAULT NULL, dataset text DEFAULT NULL,
    architectures text[] DEFAULT NULL, search_space jsonb DEFAULT NULL, seed bigint DEFAULT 0,
    OUT arm text, OUT bracket integer, OUT rung integer, OUT n_trials integer, OUT n_epochs integer, OUT total_epochs bigint
) RETURNS SETOF record LANGUAGE plpgsql STABLE AS $$
DECLARE
    chosen text[];
    plan record;
BEGIN
    IF dataset IS NOT NULL THEN
        chosen := easeml.choose_architectures(easeml.find_dataset(dataset), architectures);
    ELSE
        chosen := coalesce(architectures, '{mlp}');
        PERFORM easeml.fail('ML001', format('architectures: there is no architecture %s', quote_nullable(a)), hint => 'SELECT * FROM easeml.architectures shows them.')
        FROM unnest(chosen) a WHERE NOT EXISTS (SELECT FROM easeml.list_architectures() l WHERE l.architecture = a);
    END IF;
    plan := easeml.plan_search(easeml.specifications(chosen), search_space, procedure, n_configs, max_epochs, seed, easeml.complete_options(procedure, procedure_options));
    PERFORM easeml.raise_failure(plan.failure);
    RETURN QUERY SELECT CASE WHEN dataset IS NOT NULL OR architectures IS NOT NULL THEN p.arm END, p.bracket, p.rung, p.n_trials, p.n_epochs, p.total_epochs
    FROM jsonb_to_recordset(plan.rungs) p(arm text, bracket integer, rung integer, n_trials integer, n_epochs integer, total_epochs bigint);
END
$$;
COMMENT ON FUNCTION easeml.preview_procedure(text, integer, integer, jsonb, text, text[], jsonb, bigint) IS
$$Shows what a run would train before anything runs, with the arguments of easeml.select_models; nothing is written. A row is a rung: at most n_trials trials of a bracket reach n_epochs epochs in total,
and train total_epochs epochs together beyond the rung before. Without a data set and architectures it is the plan of one arm. For asha the figures are caps; for pbt a rung is a round.$$;

CREATE FUNCTION easeml.find_run(run_id bigint) RETURNS easeml.runs LANGUAGE plpgsql STABLE AS $$
DECLARE
    found easeml.runs;
BEGIN
    SELECT r.* INTO found FROM easeml.runs r WHERE r.run_id = find_run.run_id;
    IF found.run_id IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no run %s that you can see', coalesce(run_id::text, 'NULL')),
            hint => 'SELECT run_id, dataset_name, state FROM easeml.run_status lists your runs.');
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.find_run(bigint) IS 'The run of that number if one may see it, or an error.';

CREATE FUNCTION easeml.cancel(run_id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    run easeml.runs := easeml.find_run(run_id);
BEGIN
    IF run.state NOT IN ('queued', 'running') THEN
        PERFORM easeml.fail('ML004', format('run %s is %s: only a queued or running run can be cancelled', run.run_id, run.state));
    END IF;
    UPDATE easeml.runs r SET state = 'cancelled', finished_at = clock_timestamp() WHERE r.run_id = run.run_id;
    UPDATE easeml.trials t SET state = 'cancelled' WHERE t.run_id = run.run_id AND t.state IN ('waiting', 'running', 'paused');
    INSERT INTO easeml.events (owner, run_id, kind, message) VALUES (run.owner, run.run_id, 'cancelled', 'cancelled by ' || current_user);
    PERFORM pg_notify('easeml_runs', run.run_id::text);
END
$$;
COMMENT ON FUNCTION easeml.cancel(bigint) IS 'Stops a run within a second. What was recorded stays and can be predicted with; easeml.resume goes on from there.';

CREATE FUNCTION easeml.resume(run_id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    run easeml.runs := easeml.find_run(run_id);
BEGIN
    IF run.state NOT IN ('cancelled', 'failed') THEN
        PERFORM easeml.fail('ML004', format('run %s is %s: only a cancelled or failed run can be resumed', run.run_id, run.state),
            hint => CASE WHEN run.state IN ('queued', 'running') AND NOT easeml.has_live_coordinator()
                THEN 'It goes on by itself as soon as a coordinator runs: easeml up, or easeml coordinator --dsn ...' END);
    END IF;
    UPDATE easeml.trials t SET state = CASE WHEN t.n_steps_done = 2 * t.target_epochs * d.n_partitions::bigint AND t.target_epochs < t.max_epochs THEN 'paused' ELSE 'waiting' END,
        failure_reason = NULL, finished_at = NULL
    FROM easeml.datasets d WHERE t.run_id = run.run_id AND t.state IN ('cancelled', 'failed') AND d.dataset_id = run.dataset_id;
    UPDATE easeml.runs r SET state = 'queued', started_at = NULL, finished_at = NULL, failure_reason = NULL WHERE r.run_id = run.run_id;
    INSERT INTO easeml.events (owner, run_id, kind, message) VALUES (run.owner, run.run_id, 'resumed', 'resumed by ' || current_user);
    PERFORM pg_notify('easeml_runs', run.run_id::text);
END
$$;
COMMENT ON FUNCTION easeml.resume(bigint) IS 'Lets a cancelled or failed run go on from its last recorded units; failed trials are tried again, and max_seconds counts anew.';

CREATE FUNCTION easeml.drop_run(run_id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    run easeml.runs := easeml.find_run(run_id);
BEGIN
    IF run.state IN ('queued', 'running') THEN
        PERFORM easeml.cancel(run.run_id);
    END IF;
    DELETE FROM easeml.runs r WHERE r.run_id = run.run_id;
END
$$;
COMMENT ON FUNCTION easeml.drop_run(bigint) IS 'Removes a run with its trials, states and history; one that is under way is cancelled first.';

CREATE PROCEDURE easeml.wait(run_id bigint, timeout_seconds double precision DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
    run easeml.runs := easeml.find_run(run_id);
    n_total bigint;
    n_done bigint;
    n_shown bigint := -1;
    started timestamptz := clock_timestamp();
BEGIN
    IF NOT (timeout_seconds > 0 AND timeout_seconds < 'Infinity') THEN
        PERFORM easeml.fail('ML001', format('timeout_seconds: expected a positive number or NULL, got %s', timeout_seconds));
    END IF;
    -- Drivers that prepare the statement start the transaction an instant before it.
    IF statement_timestamp() - transaction_timestamp() > interval '10 milliseconds' THEN
        PERFORM easeml.fail('ML004', 'easeml.wait can never see progress inside an open transaction',
            hint => 'Commit first, then say CALL easeml.wait(run_id) as a statement of its own.');
    END IF;
    COMMIT;
    LOOP
        SELECT r.* INTO run FROM easeml.runs r WHERE r.run_id = wait.run_id;
        IF NOT FOUND THEN
            PERFORM easeml.fail('ML003', format('run %s was dropped meanwhile', run_id));
        END IF;
        SELECT s.n_units_done, s.n_units INTO n_done, n_total FROM easeml.run_status s WHERE s.run_id = run.run_id;
        IF n_done <> n_shown THEN
            RAISE NOTICE 'run %: %, % of % units', run.run_id, run.state, n_done, n_total;
            n_shown := n_done;
        END IF;
        EXIT WHEN run.state IN ('finished', 'failed', 'cancelled');
        IF NOT easeml.has_live_coordinator() AND clock_timestamp() > started + interval '15 seconds' THEN
            PERFORM easeml.fail('ML010', format('no coordinator is running, so run %s cannot go on', run_id),
                hint => 'Start one from a shell: easeml up, or easeml coordinator --dsn ...; the run resumes by itself.');
        END IF;
        IF clock_timestamp() > started + timeout_seconds * interval '1 second' THEN
            PERFORM easeml.fail('ML010', format('run %s is still %s after %s seconds', run_id, run.state, timeout_seconds));
        END IF;
        COMMIT;
        PERFORM pg_sleep(least(0.5, coalesce(timeout_seconds, 0.5)));
    END LOOP;
END
$$;
COMMENT ON PROCEDURE easeml.wait(bigint, double precision) IS
    'Blocks until a run has ended, with progress as notices: CALL easeml.wait(1). It is a procedure, since a function could never see what is committed meanwhile.';
