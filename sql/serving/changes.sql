-- What changes the trial that answers, written down as it happens: easeml.rollback reads it.

CREATE OR REPLACE FUNCTION easeml.note_serving(
    tenant name,
    dataset_name text,
    reason text,
    restored_id bigint DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answering record;
    last easeml.servings;
    value double precision;
BEGIN
    SELECT a.* INTO answering FROM easeml.answering a WHERE a.tenant = note_serving.tenant
        AND a.dataset_name = note_serving.dataset_name;
    SELECT s.* INTO last FROM easeml.servings s WHERE s.tenant = note_serving.tenant
        AND s.dataset_name = note_serving.dataset_name ORDER BY s.serving_id DESC LIMIT 1;
    IF answering.metric IS NULL OR answering.trial_id IS NOT DISTINCT FROM last.trial_id
        AND answering.is_deployed = coalesce(last.is_deployed, false) THEN
        RETURN;
    END IF;
    SELECT v.value INTO value FROM easeml.trials t JOIN easeml.metric_values v ON v.trial_id = t.trial_id
        AND v.epoch = t.best_epoch AND v.split = 'validation' AND v.metric = answering.metric
    WHERE t.trial_id = answering.trial_id;
    INSERT INTO easeml.servings (tenant, dataset_name, trial_id, is_deployed, metric, metric_value, reason, restored_id)
    VALUES (note_serving.tenant, note_serving.dataset_name, answering.trial_id, answering.is_deployed, answering.metric,
        value, note_serving.reason, note_serving.restored_id);
    -- Deploying in turn must not fill the disk.
    DELETE FROM easeml.servings s WHERE s.tenant = note_serving.tenant
        AND s.dataset_name = note_serving.dataset_name AND s.serving_id <= (
        SELECT o.serving_id FROM easeml.servings o WHERE o.tenant = note_serving.tenant
            AND o.dataset_name = note_serving.dataset_name ORDER BY o.serving_id DESC OFFSET 200 LIMIT 1);
    IF answering.trial_id IS NULL THEN
        RAISE WARNING 'no trial answers for dataset % any more', quote_literal(note_serving.dataset_name)
            USING hint = format('No trial of a run that ranks by %s is left. Start one, or choose a '
                'trial: SELECT easeml.deploy(trial_id).', answering.metric);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.note_serving(name, text, text, bigint) IS
    'Records which trial answers for a dataset now, if that has changed since it was last recorded (internal).';

CREATE OR REPLACE FUNCTION easeml.lock_serving(tenant name, dataset_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM easeml.serving_metrics m WHERE m.tenant = lock_serving.tenant
        AND m.dataset_name = lock_serving.dataset_name FOR NO KEY UPDATE;
    -- A unit that found it locked has written nothing down.
    PERFORM easeml.note_serving(tenant, dataset_name, 'better');
END
$$;
COMMENT ON FUNCTION easeml.lock_serving(name, text) IS
    'Makes manual changes of what answers for a dataset wait for one another (internal).';

CREATE OR REPLACE FUNCTION easeml.note_takeover(trial_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    better record;
    answering bigint;
BEGIN
    SELECT d.tenant, d.dataset_name, r.metric, easeml.rank_key(t, r.is_higher_better) AS rank_key INTO better
    FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
    WHERE t.ctid = easeml.trial_place(note_takeover.trial_id);
    SELECT s.trial_id INTO answering FROM easeml.servings s WHERE s.tenant = better.tenant
        AND s.dataset_name = better.dataset_name ORDER BY s.serving_id DESC LIMIT 1;
    IF answering = note_takeover.trial_id THEN
        RETURN;
    END IF;
    -- A unit never waits for another transaction: a change that it cannot record now is recorded with the next one.
    PERFORM FROM easeml.serving_metrics m WHERE m.tenant = better.tenant AND m.dataset_name = better.dataset_name
        AND m.metric = better.metric
        AND NOT EXISTS (SELECT FROM easeml.deployments p WHERE p.tenant = m.tenant AND p.dataset_name = m.dataset_name)
        AND NOT EXISTS (SELECT FROM easeml.trials l WHERE l.trial_id = answering
            AND easeml.rank_key(l, m.is_higher_better) < better.rank_key)
    FOR NO KEY UPDATE OF m SKIP LOCKED;
    IF FOUND THEN
        PERFORM easeml.note_serving(better.tenant, better.dataset_name, 'better');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.note_takeover(bigint) IS
    'Records that a trial answers from now on, if its newly measured epoch makes it the best (internal).';

CREATE OR REPLACE FUNCTION easeml.rollback(dataset text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN easeml.request('rollback', jsonb_build_object('dataset', dataset))::bigint;
END
$$;
COMMENT ON FUNCTION easeml.rollback(text) IS
$$Goes back to the trial that answered before the present one, and returns its number. That trial stays deployed, as
after easeml.deploy. Each further call goes back one more.
easeml.serving_history shows what answered when; dropped trials are skipped.$$;

CREATE OR REPLACE FUNCTION easeml.perform_rollback(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text := (easeml.dataset_of(caller, asker, arguments ->> 'dataset')).dataset_name;
    present easeml.servings;
    former easeml.servings;
BEGIN
    PERFORM easeml.lock_serving(asker, name);
    SELECT s.* INTO present FROM easeml.servings s WHERE s.tenant = asker
        AND s.dataset_name = name ORDER BY s.serving_id DESC LIMIT 1;
    former := present;
    LOOP
        -- What was gone back from is not gone back to.
        SELECT s.* INTO former FROM easeml.servings s WHERE s.tenant = asker AND s.dataset_name = name
            AND s.serving_id < coalesce(former.restored_id, former.serving_id)
        ORDER BY s.serving_id DESC LIMIT 1;
        EXIT WHEN NOT FOUND OR former.trial_id IS DISTINCT FROM present.trial_id
            AND EXISTS (SELECT FROM easeml.trials t WHERE t.trial_id = former.trial_id);
    END LOOP;
    IF former.serving_id IS NULL THEN
        PERFORM easeml.fail('ML004', format('dataset %s has nothing to go back to: %s', quote_literal(name),
            CASE WHEN present.trial_id IS NULL THEN 'no trial has answered yet'
                ELSE format('trial %s was the first to answer, of those that are left', present.trial_id) END),
            hint => format('SELECT * FROM easeml.serving_history WHERE dataset_name = %L shows what answered. '
                'easeml.deploy(trial_id) lets any trial answer.', name));
    END IF;
    INSERT INTO easeml.deployments (tenant, dataset_name, trial_id) VALUES (asker, name, former.trial_id)
    ON CONFLICT ON CONSTRAINT deployments_pkey DO UPDATE SET trial_id = excluded.trial_id, deployed_at = now();
    PERFORM easeml.note_serving(asker, name, 'rolled back', coalesce(former.restored_id, former.serving_id));
    RETURN to_jsonb(former.trial_id);
END
$$;
COMMENT ON FUNCTION easeml.perform_rollback(name, name, jsonb) IS
    'Goes back to the trial that answered before, for easeml.rollback (internal).';

CREATE OR REPLACE FUNCTION easeml.set_serving_metric(dataset text, metric text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('set_serving_metric', jsonb_build_object('dataset', dataset, 'metric', metric));
END
$$;
COMMENT ON FUNCTION easeml.set_serving_metric(text, text) IS
$$Chooses the metric that decides which trial of a dataset answers, in place of the metric of its first run. Only trials
of runs that rank by it take part.
Later runs rank by it, too, unless they name another. A deployed trial goes on answering.$$;

CREATE OR REPLACE FUNCTION easeml.perform_set_serving_metric(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := easeml.dataset_of(caller, asker, arguments ->> 'dataset');
    chosen record := easeml.ranking_metric(data, coalesce(arguments ->> 'metric', ''));
BEGIN
    PERFORM easeml.lock_serving(asker, data.dataset_name);
    INSERT INTO easeml.serving_metrics (tenant, dataset_name, metric, is_higher_better, is_chosen)
    VALUES (asker, data.dataset_name, chosen.metric, chosen.is_higher_better, true)
    ON CONFLICT ON CONSTRAINT serving_metrics_pkey DO UPDATE SET metric = excluded.metric,
        is_higher_better = excluded.is_higher_better, is_chosen = true, set_at = now();
    PERFORM easeml.note_serving(asker, data.dataset_name, 'metric');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_set_serving_metric(name, name, jsonb) IS
    'Chooses the metric of a dataset for easeml.set_serving_metric (internal).';
