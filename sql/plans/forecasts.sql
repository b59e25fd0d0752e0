-- When runs under way will be done, and what they will have cost. Everything is read with the rights of the role that
-- asks.

CREATE OR REPLACE FUNCTION easeml.make_forecast(state jsonb, OUT forecast jsonb, OUT failure jsonb)
LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.planner.forecast_documents import make_forecast
from easeml_plpy.server.entry_points import answered_by
return answered_by(plpy, make_forecast, state)
$$;
COMMENT ON FUNCTION easeml.make_forecast(jsonb) IS 'Forecasts when a run will be done, as a pure function of its '
    'progress, or returns an error (internal: use easeml.forecast).';

CREATE OR REPLACE PROCEDURE easeml.make_forecast_apart(state jsonb, OUT forecast jsonb, OUT failure jsonb)
LANGUAGE plpython3u AS $$
from easeml_plpy.server.entry_points import answered_apart
return answered_apart(plpy, "easeml_db.decisions.planner.forecast_documents", "make_forecast", state)
$$;
COMMENT ON PROCEDURE easeml.make_forecast_apart(jsonb) IS
    'Forecasts as easeml.make_forecast does, but has no snapshot meanwhile: as long as a forecast takes, vacuums would '
    'leave the states that were pruned since it began (internal).';

CREATE OR REPLACE FUNCTION easeml.run_standing(run easeml.runs) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := (SELECT d FROM easeml.datasets d WHERE d.dataset_id = run.dataset_id);
    is_played boolean := run.procedure IN ('asha', 'race');
BEGIN
    IF (SELECT count(*) FROM easeml.trials t WHERE t.run_id = run.run_id) > 20000 THEN
        RETURN NULL;
    END IF;
    RETURN (
        -- The slots that the run has, and those that no other run has now.
        WITH slots AS (
            SELECT split_part(s.device, ':', 1) AS device_kind, count(*) AS n FROM easeml.slots s
            WHERE s.status = 'active' AND (s.trial_id IS NULL
                OR s.trial_id IN (SELECT t.trial_id FROM easeml.trials t WHERE t.run_id = run.run_id))
            GROUP BY 1 ORDER BY 2 DESC LIMIT 1
        )
        SELECT jsonb_build_object('run_id', run.run_id, 'dataset', data.dataset_name, 'seed', run.seed, 'allocation',
            run.allocation, 'device_kind', coalesce((SELECT device_kind FROM slots), 'cpu'),
            'n_slots', least(coalesce((SELECT n FROM slots), 1),
                (SELECT t.max_slots FROM easeml.tenants t WHERE t.tenant = run.tenant)),
            'price_per_hour', coalesce((SELECT p.price_per_hour / p.n_slots FROM easeml.prices p
                WHERE p.price_list = 'local' AND p.device_kind = coalesce((SELECT device_kind FROM slots), 'cpu')), 1),
            'seconds_to_limit', run.max_seconds - coalesce(extract(epoch FROM clock_timestamp() - run.started_at), 0),
            'search', CASE WHEN run.search IS NOT NULL AND NOT run.is_ending
                THEN jsonb_build_object('architectures_json', (run.search -> 'architectures')::text,
                'search_space_json', run.search_space::text, 'procedure', run.procedure, 'n_configs',
                run.search -> 'n_configs', 'max_epochs', run.max_epochs, 'seed', run.seed,
                'options_json', run.procedure_options::text, 'portfolio_json', (run.search -> 'portfolio')::text) END,
            'arms', (SELECT coalesce(jsonb_agg(jsonb_build_object('name', a.architecture, 'trials', (
                    SELECT coalesce(jsonb_agg(jsonb_build_object('architecture', t.architecture, 'trial_number',
                                t.trial_number, 'bracket', t.bracket,
                        'n_epochs', least(t.n_steps_done / (2.0 * data.n_partitions), t.max_epochs), 'target_epochs',
                        coalesce(t.target_epochs, t.max_epochs),
                        'is_open', t.status IN ('waiting', 'running', 'paused'), 'config',
                        CASE WHEN is_played THEN t.config END,
                        'scores', CASE WHEN is_played THEN (SELECT jsonb_agg(CASE WHEN run.is_higher_better THEN 1
                                        ELSE -1 END * coalesce(e.metric_value, 0) ORDER BY e.epoch)
                            FROM easeml.epoch_metrics e WHERE e.trial_id = t.trial_id
                                AND e.split = 'validation') END) ORDER BY t.trial_number), '[]')
                    FROM easeml.trials t WHERE t.arm_id = a.arm_id
                        AND t.architecture <> 'ensemble')) ORDER BY a.arm_id), '[]')
                FROM easeml.arms a WHERE a.run_id = run.run_id
                    AND (a.closed_at IS NULL OR run.search IS NULL OR is_played)),
            'knowledge', easeml.known_times(data, run.procedure) || (SELECT jsonb_build_object(
                    'trainers', jsonb_object_agg(f.architecture, f.trainer),
                    -- A plan may give each trial several slots.
                    'joint', coalesce(jsonb_agg(f.architecture) FILTER (WHERE f.is_joint
                        AND run.price_list IS NOT NULL), '[]'),
                    'whole', coalesce(jsonb_agg(f.architecture) FILTER (WHERE f.does_whole_rounds), '[]'),
                    'growing', coalesce(jsonb_agg(f.architecture) FILTER (WHERE f.has_growing_epochs), '[]'))
                FROM easeml.architecture_facts() f WHERE f.architecture = ANY (run.architectures))));
END
$$;
COMMENT ON FUNCTION easeml.run_standing(easeml.runs) IS 'Returns the progress of a run, and how long its trials are '
    'known to take, as a json object; null if it has too many trials to forecast (internal: use easeml.forecast).';

CREATE OR REPLACE FUNCTION easeml.forecasts_with(
    run_id bigint,
    known jsonb,
    OUT run bigint,
    OUT dataset_name text,
    OUT status text,
    OUT eta_at timestamptz,
    OUT eta_earliest_at timestamptz,
    OUT eta_p95_at timestamptz,
    OUT seconds_left double precision,
    OUT cost_so_far double precision,
    OUT cost_expected double precision,
    OUT cost_p95 double precision,
    OUT deadline timestamptz,
    OUT is_at_risk boolean,
    OUT note text
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found record;
    made jsonb;
    standing jsonb;
    seconds jsonb;
BEGIN
    IF run_id IS NOT NULL THEN
        PERFORM easeml.find_run(run_id);
    END IF;
    FOR found IN
        SELECT r AS row, s.status, s.dataset_name,
            least(r.deadline, (SELECT t.deadline FROM easeml.tenants t WHERE t.tenant = r.tenant)) AS deadline,
            r.max_cost,
            s.cost_so_far, p.cost_mean, p.cost_p95
        FROM easeml.runs r JOIN easeml.run_status s USING (run_id)
        LEFT JOIN LATERAL (SELECT l.cost_before + l.cost_mean AS cost_mean,
            l.cost_before + l.cost_p95 AS cost_p95 FROM easeml.plans l
            WHERE l.run_id = r.run_id ORDER BY l.revision DESC LIMIT 1) p ON r.price_list IS NOT NULL
        WHERE r.status IN ('queued', 'running') AND (forecasts_with.run_id IS NULL OR r.run_id = forecasts_with.run_id)
            ORDER BY r.run_id LIMIT 100
    LOOP
        run := (found.row).run_id;
        dataset_name := found.dataset_name;
        status := found.status;
        deadline := found.deadline;
        eta_at := NULL; eta_earliest_at := NULL; eta_p95_at := NULL; seconds_left := NULL; cost_expected := NULL;
        cost_p95 := NULL; is_at_risk := NULL; note := NULL;
        cost_so_far := found.cost_so_far;
        made := known;
        IF made IS NULL THEN
            standing := easeml.run_standing(found.row);
            made := CASE WHEN standing IS NULL THEN '{"failure": {"message": "too many trials to forecast"}}'
                ELSE (SELECT to_jsonb(f) FROM easeml.make_forecast(standing) f) END;
        END IF;
        seconds := made -> 'forecast';
        IF jsonb_typeof(seconds) IS DISTINCT FROM 'object' THEN
            note := made -> 'failure' ->> 'message';
        ELSE
            seconds_left := (seconds ->> 'seconds')::double precision;
            eta_at := clock_timestamp() + make_interval(secs => seconds_left);
            eta_earliest_at := clock_timestamp()
                + make_interval(secs => (seconds ->> 'seconds_least')::double precision);
            eta_p95_at := clock_timestamp() + make_interval(secs => (seconds ->> 'seconds_most')::double precision);
            -- A plan knows what its price list bills, and is made again when it does not hold.
            cost_expected := greatest(cost_so_far,
                coalesce(found.cost_mean, cost_so_far + (seconds ->> 'cost')::double precision));
            cost_p95 := greatest(cost_so_far,
                coalesce(found.cost_p95, cost_so_far + (seconds ->> 'cost_most')::double precision));
            is_at_risk := coalesce(eta_p95_at > deadline, false) OR coalesce(cost_p95 > found.max_cost, false);
            note := seconds ->> 'note';
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION easeml.forecasts_with(bigint, jsonb) IS
    'Forecasts of runs under way as easeml.forecast returns them; known: what easeml.make_forecast has answered about '
    'the run, made here if null (internal: use easeml.forecast).';

CREATE OR REPLACE FUNCTION easeml.forecast(
    run_id bigint DEFAULT NULL,
    OUT run bigint,
    OUT dataset_name text,
    OUT status text,
    OUT eta_at timestamptz,
    OUT eta_earliest_at timestamptz,
    OUT eta_p95_at timestamptz,
    OUT seconds_left double precision,
    OUT cost_so_far double precision,
    OUT cost_expected double precision,
    OUT cost_p95 double precision,
    OUT deadline timestamptz,
    OUT is_at_risk boolean,
    OUT note text
) RETURNS SETOF record LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM easeml.forecasts_with(forecast.run_id, NULL)
$$;
COMMENT ON FUNCTION easeml.forecast(bigint) IS
$$Forecasts when your runs under way, or one of them, will be done and what they will have cost. In 90 of 100 cases a
run ends between eta_earliest_at and eta_p95_at.
Costs are slot time at the prices of price list local; those of a planned run come from its instances and its newest
plan. is_at_risk: whether eta_p95_at is after the deadline of the run or its tenant, or cost_p95 above its max_cost. The
forecast assumes the slots that the run has now, and the idle ones.
As long as it is unknown how long the trials of a run take, the times are null and note says so.$$;

-- A transaction of the coordinator's own session for forecasts: it takes no lock but that of the foreign key, at its
-- end.
CREATE OR REPLACE FUNCTION easeml.record_forecast(run_id bigint, made jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- The newest goes if it lies close to the one before it, by the age of the run: a run of ten days keeps some 250.
    DELETE FROM easeml.forecasts f USING (
        SELECT n.made_at, lead(n.made_at) OVER (ORDER BY n.made_at DESC) AS before_at
        FROM (SELECT k.made_at FROM easeml.forecasts k
            WHERE k.run_id = record_forecast.run_id ORDER BY k.made_at DESC LIMIT 2) n) last
    WHERE f.run_id = record_forecast.run_id AND f.made_at = last.made_at
        AND last.made_at - last.before_at < 0.05
            * (last.made_at - (SELECT r.created_at FROM easeml.runs r WHERE r.run_id = record_forecast.run_id));
    INSERT INTO easeml.forecasts (run_id, tenant, eta_at, eta_earliest_at, eta_p95_at, cost_so_far,
        cost_expected, cost_p95, note)
    SELECT r.run_id, r.tenant, f.eta_at, f.eta_earliest_at, f.eta_p95_at, coalesce(f.cost_so_far, 0), f.cost_expected,
        f.cost_p95, left(f.note, 1000)
    FROM easeml.forecasts_with(record_forecast.run_id, record_forecast.made) f JOIN easeml.runs r ON r.run_id = f.run;
END
$$;
COMMENT ON FUNCTION easeml.record_forecast(bigint, jsonb) IS 'Keeps a forecast that easeml.make_forecast_apart has '
    'made for easeml.run_status; thins out the older ones (internal).';

CREATE OR REPLACE VIEW easeml.run_forecasts WITH (security_invoker) AS
SELECT f.run_id, d.dataset_name, f.made_at, f.eta_at, f.eta_earliest_at, f.eta_p95_at, f.cost_so_far,
    f.cost_expected, f.cost_p95, f.note,
    r.finished_at, f.tenant::text AS tenant
FROM easeml.forecasts f JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id);
COMMENT ON VIEW easeml.run_forecasts IS
    'Forecasts that the coordinator made of each run while it ran, beside its end. easeml.forecast makes one now.';

COMMENT ON COLUMN easeml.run_forecasts.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.run_forecasts.dataset_name IS 'Dataset that it searches on.';
COMMENT ON COLUMN easeml.run_forecasts.made_at IS 'When the forecast was made.';
COMMENT ON COLUMN easeml.run_forecasts.eta_at IS 'When the run was expected to be done; null if that was unknown.';
COMMENT ON COLUMN easeml.run_forecasts.eta_earliest_at IS 'In 90 of 100 cases a run ends between this and eta_p95_at.';
COMMENT ON COLUMN easeml.run_forecasts.eta_p95_at IS 'When the run was expected to be done in 95 of 100 cases.';
COMMENT ON COLUMN easeml.run_forecasts.cost_so_far IS 'What it had cost by then.';
COMMENT ON COLUMN easeml.run_forecasts.cost_expected IS 'What it was expected to cost in the end.';
COMMENT ON COLUMN easeml.run_forecasts.cost_p95 IS 'What it was expected to cost at most, in 95 of 100 cases.';
COMMENT ON COLUMN easeml.run_forecasts.note IS 'What had to be assumed, or why there is no forecast.';
COMMENT ON COLUMN easeml.run_forecasts.finished_at IS 'When the run ended.';
COMMENT ON COLUMN easeml.run_forecasts.tenant IS 'Tenant that owns the run.';
