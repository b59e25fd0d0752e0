-- Starting a run with the rights of easeml_owner, behind easeml.requests, for a proven caller.

CREATE OR REPLACE FUNCTION easeml.check_search(
    max_epochs integer,
    n_configs integer,
    seed bigint,
    search_space jsonb,
    procedure_options jsonb
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF max_epochs NOT BETWEEN 1 AND 1000000 THEN
        PERFORM easeml.fail('ML001', format('max_epochs: expected 1 to 1000000, got %s', max_epochs),
            hint => 'It is the number of epochs of a trial at most; leave it out to let easeml choose.');
    END IF;
    IF n_configs IS NOT NULL AND n_configs NOT BETWEEN 1 AND 10000 THEN
        PERFORM easeml.fail('ML001', format('n_configs: expected 1 to 10000, got %s', n_configs),
            hint => 'It is the number of configs that are tried; leave it out to let easeml choose.');
    END IF;
    IF seed IS NULL THEN
        PERFORM easeml.fail('ML001', 'seed: expected a whole number, got NULL');
    END IF;
    PERFORM easeml.check_json('search_space', search_space, 1000000, 32);
    PERFORM easeml.check_json('procedure_options', procedure_options, 100000, 32);
END
$$;
COMMENT ON FUNCTION easeml.check_search(integer, integer, bigint, jsonb, jsonb) IS
    'Refuses a search whose arguments are larger than anybody can mean (internal).';

CREATE OR REPLACE FUNCTION easeml.check_allocation(allocation text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF allocation NOT IN (SELECT easeml.list_allocations()) THEN
        PERFORM easeml.fail('ML001', format('allocation: there is no allocation %s', quote_nullable(allocation)),
            hint => (SELECT 'Choose one of: ' || string_agg(a, ', ') || '.' FROM easeml.list_allocations() a));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_allocation(text) IS 'Refuses an allocation that does not exist (internal).';

CREATE OR REPLACE FUNCTION easeml.ranking_metric(
    data easeml.datasets,
    wanted text,
    OUT metric text,
    OUT is_higher_better boolean
) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- What a run on this very version ranks by fits its task.
    SELECT r.metric, r.is_higher_better INTO metric, is_higher_better
    FROM (SELECT n.metric, n.is_higher_better FROM easeml.runs n WHERE n.dataset_id = data.dataset_id LIMIT 20) r
    WHERE r.metric = coalesce(wanted, (SELECT s.metric FROM easeml.serving_metrics s WHERE s.tenant = data.tenant
            AND s.dataset_name = data.dataset_name)) LIMIT 1;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT m.metric, m.is_higher_better INTO metric, is_higher_better
    FROM easeml.list_metrics() m LEFT JOIN easeml.serving_metrics s ON s.tenant = data.tenant
        AND s.dataset_name = data.dataset_name AND s.metric = m.metric
    WHERE (m.task = data.task OR m.task = 'tensor' AND data.encoder #> '{target,shape}' IS NOT NULL)
        AND (m.metric = wanted OR wanted IS NULL AND (m.is_default OR s.metric IS NOT NULL))
        ORDER BY s.metric IS NULL LIMIT 1;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML001', format('metric: there is no %s metric %s', data.task, quote_literal(wanted)),
            hint => (SELECT 'Choose one of: ' || string_agg(m.metric, ', ') || '.' FROM easeml.list_metrics() m
                WHERE m.task = data.task OR m.task = 'tensor' AND data.encoder #> '{target,shape}' IS NOT NULL));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.ranking_metric(easeml.datasets, text) IS
    'Returns the metric of that name; without a name, that of the dataset, else the default of its task (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_select_models(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := easeml.dataset_of(caller, asker, arguments ->> 'dataset');
    run easeml.runs;
    ranking record;
    begun record;
    train_rows bigint[];
    chosen text[];
    budget jsonb;
    options jsonb;
    specifications jsonb;
    portfolio jsonb;
    plan jsonb;
BEGIN
    -- Those of the arguments that are columns of easeml.runs.
    run := jsonb_populate_record(NULL::easeml.runs,
        arguments - 'dataset' - 'deadline' || easeml.complete_plan(arguments));
    PERFORM easeml.check_search(run.max_epochs, (arguments ->> 'n_configs')::integer, run.seed,
        run.search_space, run.procedure_options);
    IF run.max_seconds IS NOT NULL AND NOT (run.max_seconds > 0 AND run.max_seconds < 'Infinity') THEN
        PERFORM easeml.fail('ML001', format('max_seconds: expected a positive number, got %s', run.max_seconds),
            hint => 'It is the time of the run in seconds; leave it out for two minutes.');
    END IF;
    -- A plan bounds the run by itself, and n_trials as an option as n_configs does.
    budget := easeml.complete_budget(run.procedure, CASE WHEN run.procedure_options ? 'n_trials'
            THEN coalesce(run.n_configs, 1) ELSE run.n_configs END, run.max_epochs, run.max_seconds)
        || CASE WHEN run.price_list IS NOT NULL THEN jsonb_build_object('max_seconds', run.max_seconds) ELSE '{}' END;
    run := jsonb_populate_record(run, budget || jsonb_build_object('allocation',
            easeml.complete_allocation(run.allocation, budget ->> 'max_seconds' IS NOT NULL)));
    PERFORM easeml.check_schedule(data, run.scheduler, run.visit_order);
    IF arguments ->> 'allocation' IS NOT NULL THEN
        PERFORM easeml.check_allocation(run.allocation);
    END IF;
    IF EXISTS (SELECT FROM easeml.replicas c JOIN easeml.segments g USING (segment_id)
        WHERE c.dataset_id = data.dataset_id AND g.service IS NOT NULL) AND easeml.needs_gangs(run.allocation) THEN
        PERFORM easeml.fail('ML004',
            format('allocation: expected one without gangs, since dataset %s lies on other servers, got %s',
                quote_literal(data.dataset_name), run.allocation),
            hint => 'There each trial has one slot at a time: leave allocation out. Gangs need a dataset that '
                'is not placed on segments.');
    END IF;
    ranking := easeml.ranking_metric(data, arguments ->> 'metric');
    train_rows := (SELECT array_agg(p.n_train_rows ORDER BY p.partition_number) FROM easeml.partitions p
        WHERE p.dataset_id = data.dataset_id);
    IF train_rows IS NULL THEN
        PERFORM easeml.fail('ML004',
            format('dataset %s was imported: it has no rows to train on', quote_literal(data.dataset_name)),
            hint => 'Make a dataset of a table: easeml.create_dataset(name, source, inputs, target).');
    END IF;
    chosen := easeml.choose_architectures(data, run.architectures);
    options := easeml.complete_options(run.procedure, run.procedure_options);
    specifications := easeml.specifications(chosen, data.encoder -> 'target');
    IF run.procedure = 'race' AND run.search_space IS NULL THEN
        portfolio := easeml.choose_portfolio(specifications, easeml.measured_configs(asker, data.task));
    END IF;
    begun := easeml.begin_search(data.encoder, train_rows, specifications, run.search_space, run.procedure,
        run.n_configs, run.max_epochs, run.seed, options, portfolio);
    PERFORM easeml.raise_failure(begun.failure);
    IF run.price_list IS NOT NULL THEN
        plan := easeml.plan_for_run(data, run, (arguments ->> 'n_configs')::integer);
    END IF;
    PERFORM easeml.check_run_limits(caller, asker, (begun.search ->> 'n_configs')::bigint);
    IF plan IS NOT NULL THEN
        PERFORM easeml.check_planned_use(caller, asker, plan);
    END IF;
    run := jsonb_populate_record(run, jsonb_build_object('tenant', asker, 'dataset_id', data.dataset_id,
            'architectures', chosen, 'procedure_options', options,
        'metric', ranking.metric, 'is_higher_better', ranking.is_higher_better,
        'n_configs', begun.search -> 'n_configs',
        'search', CASE WHEN NOT (begun.search ->> 'is_one_shot')::boolean THEN jsonb_build_object('architectures',
                specifications, 'n_configs', run.n_configs, 'portfolio', portfolio) END));
    run := jsonb_populate_record(run, jsonb_build_object('run_id', easeml.insert_run(run, begun.search)));
    IF plan IS NOT NULL THEN
        PERFORM easeml.keep_first_plan(run, plan);
    END IF;
    PERFORM easeml.announce_run(run, begun.search, (arguments ->> 'n_configs')::integer);
    RETURN to_jsonb(run.run_id);
END
$$;
COMMENT ON FUNCTION easeml.perform_select_models(name, name, jsonb) IS
    'Checks the arguments of easeml.select_models, and queues a run; returns its id (internal).';

CREATE OR REPLACE FUNCTION easeml.insert_run(run easeml.runs, search jsonb) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    new_run_id bigint;
BEGIN
    INSERT INTO easeml.runs (tenant, dataset_id, procedure, procedure_options, architectures, search_space, n_configs,
        max_epochs, metric, is_higher_better, max_seconds, seed,
        scheduler, visit_order, allocation, search, deadline_seconds, deadline, max_cost, price_list)
    VALUES (run.tenant, run.dataset_id, run.procedure, run.procedure_options, run.architectures, run.search_space,
        run.n_configs, run.max_epochs, run.metric, run.is_higher_better,
        run.max_seconds, run.seed, run.scheduler, run.visit_order, run.allocation, run.search, run.deadline_seconds,
        clock_timestamp() + make_interval(secs => run.deadline_seconds), run.max_cost, run.price_list)
    RETURNING run_id INTO new_run_id;
    INSERT INTO easeml.serving_metrics (tenant, dataset_name, metric, is_higher_better)
    SELECT run.tenant, d.dataset_name, run.metric, run.is_higher_better FROM easeml.datasets d
    WHERE d.dataset_id = run.dataset_id ON CONFLICT DO NOTHING;
    INSERT INTO easeml.arms (run_id, tenant, architecture, planned_epochs)
    SELECT new_run_id, run.tenant, a.architecture, a.planned_epochs
    FROM ROWS
    FROM (jsonb_to_recordset(search -> 'arms') AS (architecture text, planned_epochs bigint)) WITH ORDINALITY a
    ORDER BY array_position(run.architectures, a.architecture), a.ordinality;
    INSERT INTO easeml.trials (run_id, arm_id, tenant, trial_number, architecture, config,
        max_epochs, target_epochs, bracket)
    SELECT new_run_id, a.arm_id, run.tenant, c.trial_number, c.architecture, c.config,
        run.max_epochs, c.target_epochs, c.bracket
    FROM jsonb_to_recordset(search -> 'trials') c(arm text, trial_number integer, architecture text, config jsonb,
        target_epochs integer, bracket integer)
    JOIN easeml.arms a ON a.run_id = new_run_id AND a.architecture = c.arm ORDER BY c.trial_number;
    RETURN new_run_id;
END
$$;
COMMENT ON FUNCTION easeml.insert_run(easeml.runs, jsonb) IS
    'Inserts a run with its arms and first trials; returns its id (internal).';

CREATE OR REPLACE FUNCTION easeml.announce_run(run easeml.runs, search jsonb, n_wanted integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    up_to text := CASE WHEN NOT (search ->> 'is_one_shot')::boolean THEN 'up to ' END;
    serving record;
    away record;
    watch text := format('Watch it: SELECT * FROM easeml.leaderboard WHERE run_id = %s; progress: easeml.run_status.',
        run.run_id);
BEGIN
    IF run.procedure = 'race' AND run.max_seconds IS NOT NULL THEN
        RAISE NOTICE 'run % searches for % seconds, or until nothing improves', run.run_id,
            least(run.max_seconds, run.deadline_seconds) USING hint = watch;
    ELSE
        RAISE NOTICE 'run % trains % for %', run.run_id,
            format('%s%s trial%s', up_to, run.n_configs, CASE WHEN run.n_configs > 1 THEN 's' END),
            format('%s%s epoch%s', up_to, run.max_epochs, CASE WHEN run.max_epochs > 1 THEN 's' END) USING hint = watch;
    END IF;
    IF run.procedure = 'random' AND run.n_configs < coalesce(n_wanted, 8) THEN
        RAISE NOTICE 'the search space holds only % different configs', run.n_configs
            USING hint = 'What search_space does not mention keeps its default; widen it, or leave it out '
                'to search the default ranges.';
    END IF;
    SELECT d.dataset_name, m.metric, m.metric <> run.metric AS is_other,
        easeml.has_live_coordinator() AS is_live, d.placement = 'shared'
        AND NOT EXISTS (SELECT FROM easeml.slots s JOIN easeml.segments g USING (segment_id) WHERE g.service IS NULL)
            AND EXISTS (SELECT FROM easeml.slots) AS is_elsewhere
    INTO serving FROM easeml.datasets d LEFT JOIN easeml.serving_metrics m ON m.tenant = d.tenant
        AND m.dataset_name = d.dataset_name WHERE d.dataset_id = run.dataset_id;
    IF serving.is_other THEN
        RAISE NOTICE 'run % ranks by %, and what answers for dataset % is chosen by %: no trial of the run takes '
            'over by itself', run.run_id, run.metric, quote_literal(serving.dataset_name), serving.metric
            USING hint = format('Let one answer with easeml.deploy(trial_id), or choose by this metric from now on: '
                'SELECT easeml.set_serving_metric(%L, %L).', serving.dataset_name, run.metric);
    END IF;
    IF NOT serving.is_live THEN
        RAISE WARNING 'no coordinator is running, so run % waits in the queue', run.run_id
            USING hint = 'Start one from a shell: easeml up (private server), or easeml coordinator --dsn ...';
    END IF;
    SELECT c.partition_number, g.segment_name, g.refusal INTO away FROM easeml.replicas c
    JOIN easeml.segments g USING (segment_id) WHERE c.dataset_id = run.dataset_id AND g.refusal IS NOT NULL
        AND NOT EXISTS (SELECT FROM easeml.replicas o JOIN easeml.segments h USING (segment_id)
            WHERE o.dataset_id = c.dataset_id AND o.partition_number = c.partition_number AND h.refusal IS NULL)
    ORDER BY c.partition_number LIMIT 1;
    IF FOUND THEN
        RAISE WARNING 'run % waits for segment %, which has partition %: %', run.run_id,
            quote_literal(away.segment_name), away.partition_number, away.refusal
            USING hint = format('An administrator mends that; easeml segment check %s looks at it again.',
                away.segment_name);
    END IF;
    IF serving.is_elsewhere THEN
        RAISE WARNING 'all slots are on other servers, which train only what is placed there: run % waits', run.run_id
            USING hint = 'Make the dataset with placement => ''bound'', or have an administrator add slots '
                'here: SELECT easeml.add_slots(1).';
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.announce_run(easeml.runs, jsonb, integer) IS
    'Tells the tenant of a new run what it will do, and what it waits for (internal).';
