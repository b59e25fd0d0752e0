-- What a run would cost, and when it would be done, before anything runs.

CREATE OR REPLACE FUNCTION easeml.make_plan(
    architectures jsonb,
    search_space jsonb,
    procedure text,
    n_configs integer,
    max_epochs integer,
    seed bigint,
    procedure_options jsonb,
    request jsonb,
    OUT plans jsonb,
    OUT failure jsonb
) LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.planner.documents import make_plan
from easeml_plpy.server.entry_points import answered_by
return answered_by(plpy, make_plan, architectures, search_space, procedure, n_configs, max_epochs,
    seed, procedure_options, request)
$$;
COMMENT ON FUNCTION easeml.make_plan(jsonb, jsonb, text, integer, integer, bigint, jsonb, jsonb) IS
    'Returns a plan and its alternatives as a json array of stages, a pure function of its arguments, or an error '
    '(internal: use easeml.plan).';

-- With the rights of its caller, so that no tenant learns how long other tenants' trials take.
CREATE OR REPLACE FUNCTION easeml.timed_trials(data easeml.datasets) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n_rows bigint := (SELECT greatest(sum(p.n_train_rows), 1) FROM easeml.partitions p
        WHERE p.dataset_id = data.dataset_id);
BEGIN
    RETURN (
        WITH trials AS (
            SELECT t.trial_id, t.run_id, t.architecture, d.dataset_id = data.dataset_id AS is_same, d.n_partitions,
                n_rows / (SELECT greatest(sum(p.n_train_rows), 1) FROM easeml.partitions p
                    WHERE p.dataset_id = d.dataset_id)::float8 AS scale
            FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) JOIN easeml.trials t ON t.run_id = r.run_id
            WHERE r.tenant = data.tenant AND d.task = data.task AND t.status <> 'waiting' AND t.n_steps_done > 0
            ORDER BY d.dataset_id = data.dataset_id DESC, t.trial_id DESC LIMIT 200
        ), units AS (
            SELECT t.run_id, t.trial_id, t.architecture, t.n_partitions, u.epoch, u.n_slots, u.slot_id,
                u.stack IS NOT NULL AS is_batched, extract(epoch FROM u.finished_at - u.started_at)::float8 AS seconds,
                row_number() OVER (PARTITION BY t.run_id, u.slot_id,
                    u.partition_number ORDER BY u.started_at) = 1 AS is_first
            FROM trials t CROSS JOIN LATERAL (SELECT v.* FROM easeml.training_units v
                WHERE v.trial_id = t.trial_id AND v.epoch <= 25) u
        ), usual AS (
            -- The first unit of a slot on a partition reads its rows, which a run does once: much of the few units that
            -- a pilot has, little of those of a search.
            SELECT u.*, CASE WHEN u.is_first
                THEN least(u.seconds, coalesce(avg(u.seconds) FILTER (WHERE NOT u.is_first) OVER (PARTITION BY u.run_id,
                            u.architecture, u.n_slots, u.is_batched), u.seconds))
                ELSE u.seconds END AS usual_seconds
            FROM units u
        ), epochs AS (
            -- If an epoch was cut short, its recorded units stand for all.
            SELECT u.trial_id, u.epoch, u.n_slots, bool_or(u.is_batched) AS is_batched,
                split_part(coalesce(min(s.device), 'cpu'), ':', 1) AS device_kind,
                ceil(u.n_partitions::float8 / u.n_slots) * avg(u.usual_seconds) AS train_seconds,
                avg(u.seconds - u.usual_seconds) FILTER (WHERE u.is_first) AS reading_seconds,
                ceil(u.n_partitions::float8 / u.n_slots) * coalesce((
                    SELECT avg(extract(epoch FROM e.finished_at - e.started_at))::float8 FROM easeml.evaluations e
                    WHERE e.trial_id = u.trial_id AND e.epoch = u.epoch
                        AND e.split = 'validation'), 0) AS evaluate_seconds
            FROM usual u LEFT JOIN easeml.slots s ON s.slot_id = u.slot_id
            GROUP BY u.trial_id, u.n_partitions, u.epoch, u.n_slots
        )
        SELECT coalesce(jsonb_agg(jsonb_build_object('architecture', t.architecture, 'device_kind', e.device_kind,
                    'n_slots', e.n_slots, 'is_same', t.is_same, 'scale', t.scale,
            'epoch_seconds', e.mean, 'sd_seconds', e.sd, 'n_epochs', e.n, 'test_seconds', e.evaluate_seconds,
            'run_id', t.run_id, 'mean_epoch', e.epoch, 'growth_seconds', e.growth, 'is_batched', e.is_batched,
            'reading_seconds', e.reading_seconds,
            'tested_seconds', v.seconds, 'tested_epoch', v.epoch) ORDER BY t.trial_id), '[]')
        FROM trials t JOIN (
            SELECT p.trial_id, p.n_slots, p.device_kind, bool_or(p.is_batched) AS is_batched,
                avg(p.train_seconds + p.evaluate_seconds) AS mean,
                coalesce(stddev_samp(p.train_seconds + p.evaluate_seconds), 0) AS sd, count(*) AS n,
                avg(p.evaluate_seconds) AS evaluate_seconds, avg(p.reading_seconds) AS reading_seconds,
                avg(p.epoch)::float8 AS epoch,
                coalesce(regr_slope(p.train_seconds + p.evaluate_seconds, p.epoch), 0) AS growth
            FROM epochs p GROUP BY p.trial_id, p.n_slots, p.device_kind) e USING (trial_id)
        LEFT JOIN LATERAL (
            SELECT t.n_partitions * avg(extract(epoch FROM x.finished_at - x.started_at))::float8 AS seconds,
                max(x.epoch) AS epoch
            FROM easeml.evaluations x WHERE x.trial_id = t.trial_id AND x.split = 'test' AND x.n_slots = 1) v ON true
        WHERE e.mean > 0);
END
$$;
COMMENT ON FUNCTION easeml.timed_trials(easeml.datasets) IS 'Returns how long the epochs of your trials took on a '
    'dataset, and on others of its task, as a json array (internal: use easeml.plan).';

CREATE OR REPLACE FUNCTION easeml.known_times(data easeml.datasets, procedure text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN jsonb_build_object('trials', easeml.timed_trials(data), 'n_partitions', data.n_partitions,
        'starts', (SELECT jsonb_object_agg(k.device_kind, k.seconds) FROM (
            SELECT n.device_kind, jsonb_object_agg(n.name, n.seconds) AS seconds FROM (
                SELECT split_part(s.device, ':', 1) AS device_kind, e.key AS name,
                    avg(e.value::double precision) AS seconds
                FROM easeml.slots s, jsonb_each_text(s.start_seconds) e GROUP BY 1, 2) n GROUP BY n.device_kind) k),
        -- Without slots that could be added, a planned run takes slots whose sessions are open.
        'adds_slots', coalesce((SELECT p.max_slots FROM easeml.provisioners p WHERE p.provisioner = 'local')
            > (SELECT count(*) FROM easeml.slots s WHERE s.segment_id = 1 AND s.status = 'active'
                AND NOT s.is_added), false),
        -- Before each unit of an architecture, whose states differ in size: the newest runs, a minute of each. What is
        -- longer by far is a wait for work.
        'turn_seconds', (
            WITH newest AS (
                SELECT r.run_id, r.started_at FROM easeml.runs r
                WHERE r.tenant = data.tenant AND r.started_at IS NOT NULL
                    AND EXISTS (SELECT FROM easeml.trials t WHERE t.run_id = r.run_id AND t.n_steps_done > 0)
                ORDER BY r.run_id DESC LIMIT 5
            ), units AS (
                SELECT n.run_id, u.slot_id, u.trial_id, u.started_at, u.finished_at FROM newest n
                JOIN easeml.training_units u ON u.run_id = n.run_id
                    AND u.started_at < n.started_at + interval '1 minute'
                UNION ALL SELECT n.run_id, e.slot_id, e.trial_id, e.started_at, e.finished_at FROM newest n
                JOIN easeml.evaluations e ON e.run_id = n.run_id AND e.started_at < n.started_at + interval '1 minute'
            ), waits AS (
                SELECT u.trial_id, extract(epoch FROM u.started_at
                    - greatest(lag(u.finished_at) OVER (PARTITION BY u.run_id, u.slot_id ORDER BY u.started_at),
                    lag(u.finished_at) OVER (PARTITION BY u.trial_id ORDER BY u.started_at)))::float8 AS seconds
                        FROM units u
            )
            SELECT jsonb_object_agg(m.architecture, m.seconds) FROM (
                -- A trial is looked up once, not for each of its units: if an old snapshot keeps the versions of its
                -- row, each lookup goes through all of them.
                SELECT t.architecture, sum(o.seconds) / sum(o.n) AS seconds FROM (
                    SELECT w.trial_id, sum(w.seconds) AS seconds, count(*) AS n FROM waits w
                    WHERE w.seconds BETWEEN 0.0005 AND (SELECT greatest(0.5,
                            10 * percentile_cont(0.5) WITHIN GROUP (ORDER BY v.seconds))
                        FROM waits v WHERE v.seconds >= 0.0005)
                    GROUP BY w.trial_id) o JOIN easeml.trials t USING (trial_id)
                GROUP BY t.architecture) m),
        -- From the call of the newest runs to their first unit, and from their last one to their end; runs that waited
        -- for others do not count.
        'margin_seconds', (
            SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY m.seconds) FROM (
                SELECT extract(epoch FROM min(t.started_at) - r.created_at
                    + (r.finished_at - max(t.finished_at)))::float8 AS seconds
                FROM easeml.runs r JOIN easeml.trials t USING (run_id)
                WHERE r.run_id IN (SELECT n.run_id FROM easeml.runs n WHERE n.tenant = data.tenant
                    AND n.status = 'finished' AND n.n_resumes = 0 ORDER BY n.run_id DESC LIMIT 5)
                GROUP BY r.run_id) m
            WHERE m.seconds BETWEEN 0 AND 5),
        'max_slots', (SELECT t.max_slots FROM easeml.tenants t WHERE t.tenant = data.tenant),
        'data_gb',
        coalesce((SELECT sum(p.n_bytes) FROM easeml.partitions p WHERE p.dataset_id = data.dataset_id), 0) / 1e9,
        'speedups', (SELECT jsonb_agg(jsonb_build_object('architecture', p.architecture, 'device_kind', p.device_kind,
                    'is_same', p.dataset_id = data.dataset_id,
                'speedups', p.measurements -> 'speedups', 'restore_seconds',
                p.eps_seconds) ORDER BY p.dataset_id = data.dataset_id DESC, p.measured_at DESC)
            FROM easeml.device_profiles p WHERE p.tenant = data.tenant
                AND jsonb_typeof(p.measurements -> 'speedups') = 'array'),
        -- Only these procedures are played on curves of the past.
        'curves', CASE WHEN procedure IN ('asha', 'race') THEN (
            SELECT jsonb_object_agg(c.architecture, c.curves) FROM (
                SELECT t.architecture, jsonb_agg(t.scores) AS curves FROM (
                    SELECT t.architecture, (SELECT jsonb_agg(CASE WHEN r.is_higher_better THEN 1 ELSE -1 END
                            * coalesce(e.metric_value, 0) ORDER BY e.epoch)
                        FROM easeml.epoch_metrics e WHERE e.trial_id = t.trial_id AND e.split = 'validation'
                            AND e.epoch <= 200) AS scores
                    FROM easeml.trials t JOIN easeml.runs r USING (run_id)
                    WHERE r.tenant = data.tenant AND r.dataset_id = data.dataset_id
                        AND t.n_steps_done > 0 ORDER BY t.trial_id DESC LIMIT 200) t
                WHERE t.scores IS NOT NULL GROUP BY t.architecture) c) END);
END
$$;
COMMENT ON FUNCTION easeml.known_times(easeml.datasets, text) IS
    'Returns how long your trials are known to take on a dataset, as a json object (internal: use easeml.plan).';

CREATE OR REPLACE FUNCTION easeml.plan_goal(
    deadline interval,
    max_cost double precision,
    confidence double precision
) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT extract(epoch FROM deadline) BETWEEN 0.001 AND 1e9 THEN
        PERFORM easeml.fail('ML001',
            format('deadline: expected an interval above 0 and below 30 years, got %s', deadline),
            hint => 'It counts from the start of the run: deadline => interval ''20 minutes''.');
    ELSIF NOT (max_cost > 0 AND max_cost < 'Infinity') THEN
        PERFORM easeml.fail('ML001', format('max_cost: expected a number above 0, got %s', max_cost),
            hint => 'It is for the whole run, in the money of its price list: max_cost => 3.50. '
                'Without it there is no limit.');
    ELSIF confidence IS NOT NULL AND NOT (confidence >= 0.5 AND confidence < 1) THEN
        PERFORM easeml.fail('ML001', format('confidence: expected at least 0.5 and less than 1, got %s', confidence),
            hint => 'NULL: the limits hold in the mean.');
    END IF;
    RETURN jsonb_build_object('deadline_seconds', extract(epoch FROM deadline), 'max_cost',
        max_cost, 'confidence', confidence);
END
$$;
COMMENT ON FUNCTION easeml.plan_goal(interval, double precision, double precision) IS
    'Checks the limits of a plan and returns them as a json object (internal: use easeml.plan).';

-- SECURITY DEFINER, because only easeml.make_plan plans, and it trusts its arguments. It reads no row of a tenant: rows
-- come as values, and are checked first. Where partitions are and what their tenant keeps, easeml.choose_architectures
-- has looked up with the caller's rights: the caller may have invented the dataset.
CREATE OR REPLACE FUNCTION easeml.plan_search_on(
    data easeml.datasets,
    search jsonb,
    price_list text,
    goal jsonb,
    known jsonb
) RETURNS jsonb LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs := jsonb_populate_record(NULL::easeml.runs, search);
    chosen text[];
    list easeml.price_lists;
    types jsonb;
    plan record;
BEGIN
    data.placement := 'shared';
    PERFORM easeml.check_search(run.max_epochs, run.n_configs, run.seed, run.search_space, run.procedure_options);
    PERFORM easeml.check_json('known times', known, 4000000, 8);
    PERFORM easeml.check_json('goal', goal, 1000, 2);
    run := jsonb_populate_record(run, easeml.complete_budget(run.procedure, run.n_configs, run.max_epochs, NULL));
    SELECT l.* INTO list FROM easeml.price_lists l WHERE l.price_list = plan_search_on.price_list;
    IF list.price_list IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no price list %s', quote_nullable(price_list)),
            hint => (SELECT 'There are: ' || string_agg(l.price_list, ', ' ORDER BY l.price_list) || '.'
                FROM easeml.price_lists l));
    END IF;
    SELECT jsonb_agg(to_jsonb(p) ORDER BY p.price_per_hour, p.instance_type) INTO types FROM easeml.prices p
    WHERE p.price_list = list.price_list AND coalesce(p.max_instances, 1) > 0;
    IF types IS NULL THEN
        PERFORM easeml.fail('ML010', format('no slot of this server is in service for price list %s', list.price_list),
            hint => 'Add some: SELECT easeml.add_slots(2).');
    END IF;
    chosen := easeml.choose_architectures(data, run.architectures);
    plan := easeml.make_plan(easeml.specifications(chosen, data.encoder -> 'target'), run.search_space, run.procedure,
        run.n_configs, run.max_epochs, run.seed, easeml.complete_options(run.procedure, run.procedure_options),
        jsonb_build_object('types', types, 'price_list', list.price_list, 'is_local', list.is_local, 'dataset',
            data.dataset_name, 'goal', goal,
            'knowledge', known || (SELECT jsonb_build_object(
                    'trainers', jsonb_object_agg(f.architecture, f.trainer),
                    'whole', coalesce(jsonb_agg(f.architecture) FILTER (WHERE f.does_whole_rounds), '[]'),
                    'joint', coalesce(jsonb_agg(f.architecture) FILTER (WHERE f.is_joint), '[]'),
                    'growing', coalesce(jsonb_agg(f.architecture) FILTER (WHERE f.has_growing_epochs), '[]'))
                FROM easeml.architecture_facts() f WHERE f.architecture = ANY (chosen))));
    PERFORM easeml.raise_failure(plan.failure);
    RETURN plan.plans;
END
$$;
COMMENT ON FUNCTION easeml.plan_search_on(easeml.datasets, jsonb, text, jsonb, jsonb) IS
    'Checks the arguments of a search, and returns its plan as json (internal: use easeml.plan).';

CREATE OR REPLACE FUNCTION easeml.plan(
    dataset text,
    architectures text[] DEFAULT NULL,
    search_space jsonb DEFAULT NULL,
    procedure text DEFAULT NULL,
    n_configs integer DEFAULT NULL,
    max_epochs integer DEFAULT NULL,
    seed bigint DEFAULT 0,
    procedure_options jsonb DEFAULT NULL,
    deadline interval DEFAULT NULL,
    max_cost double precision DEFAULT NULL,
    price_list text DEFAULT 'local',
    confidence double precision DEFAULT 0.95,
    OUT plan text,
    OUT stage integer,
    OUT label text,
    OUT n_trials integer,
    OUT n_epochs double precision,
    OUT instance_type text,
    OUT n_slots integer,
    OUT n_instances integer,
    OUT start_seconds double precision,
    OUT seconds_mean double precision,
    OUT seconds_p50 double precision,
    OUT seconds_p95 double precision,
    OUT cost_mean double precision,
    OUT cost_p95 double precision,
    OUT note text,
    OUT chance double precision
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    goal jsonb := easeml.plan_goal(deadline, max_cost, confidence);
    data easeml.datasets := easeml.find_dataset(dataset);
    search jsonb := jsonb_build_object('architectures', easeml.choose_architectures(data, architectures),
        'search_space', search_space, 'procedure', procedure, 'n_configs', n_configs,
        'max_epochs', max_epochs, 'seed', seed,
        'procedure_options', procedure_options);
BEGIN
    RETURN QUERY SELECT p.* FROM jsonb_to_recordset(easeml.plan_search_on(data, search, price_list, goal,
            easeml.known_times(data, coalesce(procedure, 'race')))) p(
        plan text, stage integer, label text, n_trials integer, n_epochs double precision, instance_type text,
            n_slots integer, n_instances integer,
        start_seconds double precision, seconds_mean double precision, seconds_p50 double precision,
        seconds_p95 double precision,
        cost_mean double precision, cost_p95 double precision, note text, chance double precision);
END
$$;
COMMENT ON FUNCTION easeml.plan(text, text[], jsonb, text, integer, integer, bigint, jsonb, interval,
    double precision, text, double precision) IS
$$Says what a search with these arguments of easeml.select_models would cost and when it would be done;
it starts nothing. Each row is a stage of a plan: how many trials train how many epochs on how many slots.
The row without a stage describes the whole plan; its note says what had to be assumed. plan: planned (the cheapest plan
that keeps the deadline; with max_cost alone the fastest that costs no more), static (the best cluster of constant
size), naive_elastic (the best number of slots for each trial). deadline: counts from the start. price_list: one of
easeml.prices; local is this server's slots.
confidence: probability with which the limits must be kept; NULL: on average. chance: probability that the whole plan
    keeps deadline and max_cost. Times come from earlier trials. asha and race, which have no stages, are simulated on
    past learning curves.
A search over several architectures is planned one architecture after the other, Hyperband one bracket after the
other.$$;

CREATE OR REPLACE FUNCTION easeml.plan_frontier(
    dataset text,
    architectures text[] DEFAULT NULL,
    search_space jsonb DEFAULT NULL,
    procedure text DEFAULT NULL,
    n_configs integer DEFAULT NULL,
    max_epochs integer DEFAULT NULL,
    seed bigint DEFAULT 0,
    procedure_options jsonb DEFAULT NULL,
    price_list text DEFAULT 'local',
    n_points integer DEFAULT 20,
    OUT point integer,
    OUT seconds_mean double precision,
    OUT seconds_p50 double precision,
    OUT seconds_p95 double precision,
    OUT cost_mean double precision,
    OUT cost_p95 double precision,
    OUT n_slots integer[],
    OUT instance_types text[]
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := easeml.find_dataset(dataset);
    search jsonb := jsonb_build_object('architectures', easeml.choose_architectures(data, architectures),
        'search_space', search_space, 'procedure', procedure, 'n_configs', n_configs,
        'max_epochs', max_epochs, 'seed', seed,
        'procedure_options', procedure_options);
BEGIN
    RETURN QUERY SELECT p.* FROM jsonb_to_recordset(easeml.plan_search_on(data, search, price_list,
            jsonb_build_object('n_points', coalesce(n_points, 0)),
            easeml.known_times(data, coalesce(procedure, 'race')))) p(
        point integer, seconds_mean double precision, seconds_p50 double precision, seconds_p95 double precision,
            cost_mean double precision, cost_p95 double precision,
        n_slots integer[], instance_types text[]);
END
$$;
COMMENT ON FUNCTION easeml.plan_frontier(text, text[], jsonb, text, integer, integer, bigint, jsonb, text, integer) IS
$$Returns plans from the fastest to the cheapest, with the arguments of easeml.plan. No plan is both faster and cheaper
    than another. n_slots and instance_types: what each stage gets.$$;

CREATE OR REPLACE FUNCTION easeml.profile_dataset(
    dataset text,
    architectures text[] DEFAULT NULL,
    search_space jsonb DEFAULT NULL,
    n_configs integer DEFAULT 3,
    max_epochs integer DEFAULT NULL,
    max_seconds double precision DEFAULT 60,
    seed bigint DEFAULT 0,
    allocation text DEFAULT 'hopping'
) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := easeml.find_dataset(dataset);
    chosen text[] := easeml.choose_architectures(data, architectures);
    -- Two epochs do not show by how much later ones take longer.
    n_epochs integer := coalesce(max_epochs, (SELECT CASE WHEN bool_or(f.has_growing_epochs) THEN 6 ELSE 2 END
            FROM easeml.architecture_facts() f WHERE f.architecture = ANY (chosen)));
BEGIN
    IF n_configs IS NULL OR n_configs NOT BETWEEN 1 AND 100 THEN
        PERFORM easeml.fail('ML001', format('n_configs: expected 1 to 100, got %s', coalesce(n_configs::text, 'NULL')),
            hint => 'It is the number of trials of each architecture that are timed.');
    ELSIF max_seconds IS NULL THEN
        PERFORM easeml.fail('ML001', 'max_seconds: expected a number above 0, got NULL',
            hint => 'It is how long the measurement takes at most.');
    END IF;
    -- Trials alone, not in batches, which take less: plans count what a trial takes by itself. The time may be too
    -- short for all: any trial may be next, so that none waits for the longest ones, and each architecture is timed.
    RETURN easeml.select_models(dataset, architectures, search_space, 'random',
        n_configs * cardinality(chosen), n_epochs,
        max_seconds => max_seconds, seed => seed, allocation => allocation,
        scheduler => CASE WHEN allocation = 'hopping' THEN 'random' ELSE 'auto' END);
END
$$;
COMMENT ON FUNCTION easeml.profile_dataset(text, text[], jsonb, integer, integer, double precision, bigint, text) IS
$$Starts a run that measures how long trials take on a dataset, so that easeml.plan can plan what was never trained
there. Returns the run's id: wait for it with CALL easeml.wait(run_id).
It trains n_configs random trials of each architecture for max_epochs (by default 2; with boosted trees 6, whose epochs
grow), and takes at most max_seconds; cost_so_far in easeml.run_status says what it cost. Given the search_space and
seed of the search to plan, it times the first trials of that search.
allocation: hopping times trials on one slot each; data_parallel times networks on all slots at once, so that plans know
    what a wider trial gains. It is an ordinary run: its trials and their measurements stay until easeml.drop_run
    removes them.$$;
