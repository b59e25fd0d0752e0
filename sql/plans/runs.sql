-- Runs that are planned: their limits are checked before anything is written, and the plan is kept with the run.

CREATE OR REPLACE FUNCTION easeml.planned_allocation() RETURNS text
LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.hopper.allocation.registry import planned_allocation
from easeml_plpy.server.entry_points import guarded
return guarded(plpy, planned_allocation)
$$;
COMMENT ON FUNCTION easeml.planned_allocation() IS 'Returns the allocation that follows a plan (internal).';

CREATE OR REPLACE FUNCTION easeml.complete_plan(arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    limits text := concat_ws(', ', CASE WHEN arguments ->> 'deadline' IS NOT NULL THEN 'deadline' END,
        CASE WHEN arguments ->> 'max_cost' IS NOT NULL THEN 'max_cost' END,
        CASE WHEN arguments ->> 'price_list' IS NOT NULL THEN 'price_list' END);
    allocation text := arguments ->> 'allocation';
    planned text;
BEGIN
    IF limits = '' AND allocation IS NULL THEN
        RETURN '{"deadline_seconds": null, "max_cost": null, "price_list": null}';
    END IF;
    planned := easeml.planned_allocation();
    IF limits = '' AND allocation <> planned THEN
        RETURN '{"deadline_seconds": null, "max_cost": null, "price_list": null}';
    ELSIF allocation <> planned THEN
        PERFORM easeml.fail('ML001', format('%s: only allocation %s keeps them, got allocation %s', limits, planned,
                allocation), hint => format('Leave allocation out, or say allocation => %L.', planned));
    END IF;
    RETURN jsonb_build_object('allocation', planned, 'price_list', coalesce(arguments ->> 'price_list', 'local'),
        'deadline_seconds', easeml.plan_goal((arguments ->> 'deadline')::interval,
            (arguments ->> 'max_cost')::double precision, NULL) -> 'deadline_seconds');
END
$$;
COMMENT ON FUNCTION easeml.complete_plan(jsonb) IS 'Checks deadline, max_cost and price_list of a run, and returns '
    'allocation, price list and seconds up to the deadline as a json object (internal).';

CREATE OR REPLACE FUNCTION easeml.slots_planned(asker name) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(sum((SELECT max(s.n_slots) FROM easeml.planned_stages s WHERE s.run_id = r.run_id
                AND s.revision = (SELECT max(p.revision) FROM easeml.plans p WHERE p.run_id = r.run_id))), 0)::bigint
    FROM easeml.runs r WHERE r.tenant = asker AND r.price_list IS NOT NULL AND r.status IN ('queued', 'running')
$$;
COMMENT ON FUNCTION easeml.slots_planned(name) IS
    'Returns the largest total number of slots that the open planned runs of a tenant want (internal).';

CREATE OR REPLACE FUNCTION easeml.plan_for_run(data easeml.datasets, run easeml.runs, n_configs integer) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known jsonb;
    most_slots bigint := (SELECT t.max_slots FROM easeml.tenants t WHERE t.tenant = data.tenant);
    planned bigint;
BEGIN
    IF data.placement = 'bound' THEN
        PERFORM easeml.fail('ML001', format('allocation: planned needs a dataset whose partitions any slot may visit, '
                'and %s is bound to segments', quote_literal(data.dataset_name)),
            hint => 'Leave allocation, deadline, max_cost and price_list out, or make the dataset '
                'with placement => ''shared''.');
    END IF;
    IF EXISTS (SELECT FROM easeml.price_lists l WHERE l.price_list = run.price_list AND NOT l.is_local)
        AND NOT EXISTS (SELECT FROM easeml.provisioners p WHERE p.price_list = run.price_list) THEN
        PERFORM easeml.fail('ML004',
            format('price list %s is there to plan with: nothing starts its instances', run.price_list),
            hint => 'easeml.plan shows what it would cost. An administrator can register programs that '
                'start them: easeml.create_provisioner.');
    END IF;
    known := easeml.known_times(data, run.procedure);
    IF most_slots IS NOT NULL THEN
        planned := easeml.slots_planned(data.tenant);
        IF planned >= most_slots THEN
            PERFORM easeml.fail('ML015',
                format('max_slots: %s may have %s slot(s) at a time, and its planned runs want %s already',
                    data.tenant, most_slots, planned),
                hint => 'Wait for one, cancel one with easeml.cancel(run_id), or ask an administrator for more.');
        END IF;
        known := known || jsonb_build_object('max_slots', most_slots - planned);
    END IF;
    RETURN easeml.plan_search_on(data, to_jsonb(run) || jsonb_build_object('n_configs', n_configs), run.price_list,
        easeml.plan_goal(make_interval(secs => run.deadline_seconds), run.max_cost, 0.95)
            || jsonb_build_object('max_seconds', run.max_seconds), known);
END
$$;
COMMENT ON FUNCTION easeml.plan_for_run(easeml.datasets, easeml.runs, integer) IS 'Returns the plan of a requested run '
    'as json, NULL for a run that is not planned; refuses limits that cannot be kept (internal).';

CREATE OR REPLACE FUNCTION easeml.check_planned_use(caller name, asker name, plan jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most_hours double precision := (SELECT t.max_hours FROM easeml.tenants t WHERE t.tenant = asker);
    hours double precision;
BEGIN
    IF most_hours IS NULL OR NOT easeml.is_bound_by_limits(caller) THEN
        RETURN;
    END IF;
    SELECT sum(s.n_slots * s.seconds_mean) / 3600 INTO hours FROM jsonb_to_recordset(jsonb_path_query_array(plan,
            '$[*] ? (@.plan == "planned" && @.stage != null)')) s(n_slots integer, seconds_mean double precision);
    IF easeml.used_hours(asker) + hours > most_hours THEN
        PERFORM easeml.fail('ML015', format('max_hours: %s may use %s slot hour(s), has used %s, and the plan takes %s',
                asker, most_hours, round(easeml.used_hours(asker)::numeric, 4), round(hours::numeric, 4)),
            hint => 'Allow more time, fewer trials or fewer epochs, or ask an administrator for more.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_planned_use(name, name, jsonb) IS
    'Refuses a plan that needs more slot hours than its tenant has left (internal).';

CREATE OR REPLACE FUNCTION easeml.keep_plan(run_id bigint, tenant name, plan jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO easeml.plans (run_id, tenant, revision, reason, is_within_limits, cost_before, seconds_mean,
        seconds_p95, cost_mean, cost_p95, note)
    SELECT keep_plan.run_id, keep_plan.tenant, p.revision, p.reason, p.is_within_limits, p.cost_before, p.seconds_mean,
        p.seconds_p95, p.cost_mean, p.cost_p95, left(p.note, 2000)
    FROM jsonb_populate_record(NULL::easeml.plans, plan) p;
    INSERT INTO easeml.planned_stages (run_id, tenant, revision, stage, label, arm, bracket, target_epochs, n_trials,
        n_epochs, instance_type, n_slots, n_instances, width,
        start_seconds, seconds_mean, seconds_p50, seconds_p95, cost_mean, cost_p95)
    SELECT keep_plan.run_id, keep_plan.tenant, (plan ->> 'revision')::integer, s.stage, s.label, s.arm, s.bracket,
        s.target_epochs, s.n_trials, s.n_epochs, s.instance_type, s.n_slots, s.n_instances, s.width,
        s.start_seconds, s.seconds_mean, s.seconds_p50, s.seconds_p95, s.cost_mean, s.cost_p95
    FROM jsonb_populate_recordset(NULL::easeml.planned_stages, plan -> 'stages') s;
END
$$;
COMMENT ON FUNCTION easeml.keep_plan(bigint, name, jsonb) IS 'Records a plan of a run with its stages (internal).';

CREATE OR REPLACE FUNCTION easeml.keep_first_plan(run easeml.runs, plan jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    total jsonb;
BEGIN
    -- A transaction that drops the list waits for this one, and then finds the run.
    PERFORM FROM easeml.price_lists l WHERE l.price_list = run.price_list FOR KEY SHARE;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML010', format('price list %s was dropped in this moment', run.price_list),
            hint => 'SELECT * FROM easeml.prices lists those that there are.');
    END IF;
    total := jsonb_path_query_first(plan, '$[*] ? (@.plan == "planned" && @.stage == null)');
    PERFORM easeml.keep_plan(run.run_id, run.tenant,
        total || jsonb_build_object('revision', 1, 'reason', 'start', 'is_within_limits', true, 'cost_before', 0,
        'stages', jsonb_path_query_array(plan, '$[*] ? (@.plan == "planned" && @.stage != null)')));
    RAISE NOTICE 'run % is planned: % s (95 %% within % s), cost % (95 %% within %)', run.run_id,
        round((total ->> 'seconds_mean')::numeric), round((total ->> 'seconds_p95')::numeric),
        round((total ->> 'cost_mean')::numeric, 4), round((total ->> 'cost_p95')::numeric, 4) USING hint
            = format('SELECT * FROM easeml.plan_revisions WHERE run_id = %s shows how the plan changes.', run.run_id);
    -- The plan of a run that is cut short ends then, but for rounding.
    IF run.max_seconds IS NOT NULL
        AND (total ->> 'seconds_mean')::double precision > 0.999 * least(run.max_seconds, run.deadline_seconds) THEN
        RAISE NOTICE 'it is cut short after % s, with what it has by then: the whole search takes longer',
            least(run.max_seconds, run.deadline_seconds)
            USING hint = 'Without max_seconds nothing cuts it short.';
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.keep_first_plan(easeml.runs, jsonb) IS
    'Records the plan with which a run begins, and shows it as a notice (internal).';
