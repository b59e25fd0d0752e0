-- What easeml does with refreshes for tenants, with the rights of easeml_owner: behind easeml.requests, for a proven
-- caller.

CREATE OR REPLACE FUNCTION easeml.kind_of_source(dataset_source text, OUT kind text, OUT relation oid)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- By the catalog, because the service may have no right to its schema.
    SELECT CASE c.relkind WHEN 'v' THEN 'a view' WHEN 'm' THEN 'a materialized view' WHEN 'f' THEN 'a foreign table'
        ELSE 'a table' END || ' of ' || quote_ident(a.rolname), c.oid
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_roles a ON a.oid = c.relowner
    WHERE format('%I.%I', n.nspname, c.relname) = dataset_source AND c.relkind IN ('r', 'v', 'm', 'p', 'f')
$$;
COMMENT ON FUNCTION easeml.kind_of_source(text) IS 'Returns the kind and owner of a source, and its oid; NULL if '
    'the source is gone (internal).';

CREATE OR REPLACE FUNCTION easeml.check_refreshed_source(tenant name, dataset text, known_kind text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    dataset_source text := (SELECT d.source FROM easeml.datasets d WHERE d.tenant = check_refreshed_source.tenant
        AND d.dataset_name = dataset ORDER BY d.version DESC LIMIT 1);
    found record;
BEGIN
    SELECT k.kind, k.relation INTO found FROM easeml.kind_of_source(dataset_source) k;
    IF found.kind IS NULL THEN
        PERFORM easeml.fail('ML004', format('dataset %s has no source to look at: there is no table or view %s',
                quote_literal(dataset), dataset_source),
            hint => 'An imported dataset has no rows; it cannot be refreshed.');
    ELSIF found.kind <> known_kind THEN
        PERFORM easeml.fail('ML004', format('the source %s is %s, and was %s when easeml.set_refresh was called',
                dataset_source, found.kind, known_kind), hint => 'Reading it would run code that nobody has chosen. '
            'Look at it, then call easeml.set_refresh again.');
    END IF;
    PERFORM easeml.refuse_foreign_code(found.relation, ARRAY(SELECT a.rolname FROM easeml.tenant_roles t
        JOIN pg_roles a ON a.oid = t.role WHERE t.tenant = check_refreshed_source.tenant));
    RETURN found.kind;
END
$$;
COMMENT ON FUNCTION easeml.check_refreshed_source(name, text, text) IS
    'Returns the kind and owner of a dataset''s source; refuses a source that has become something else, or that '
    'would run code of other roles as the tenant (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_set_refresh(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text := (easeml.dataset_of(caller, asker, arguments ->> 'dataset')).dataset_name;
    wanted record;
    moment timestamptz := clock_timestamp();  -- one for both ends, or the shortest interval is refused at random
BEGIN
    PERFORM easeml.refuse_task(asker, name, 'easeml.alter_task'),
        easeml.refuse_rows_elsewhere(easeml.dataset_of(caller, asker, name), 'easeml.set_refresh');
    SELECT w.* INTO wanted FROM jsonb_to_record(arguments) w(every interval, when_drift float8);
    IF wanted.every IS NULL AND wanted.when_drift IS NULL THEN
        DELETE FROM easeml.refresh_rules r WHERE r.tenant = asker AND r.dataset_name = name;
        UPDATE easeml.refreshes f SET outcome = 'failed', ended_at = clock_timestamp(),
            reason = format('the dataset is refreshed no more, so nobody compares run %s', f.run_id)
        WHERE f.tenant = asker AND f.dataset_name = name AND f.outcome = 'training';
        RETURN NULL;
    -- days and months may differ in sign
    ELSIF wanted.every < '1 minute' OR wanted.every > '1000 years'
        OR moment + wanted.every NOT BETWEEN moment + interval '1 minute' AND moment + interval '1000 years' THEN
        PERFORM easeml.fail('ML001', format('every: expected 1 minute to 1000 years, got %s', wanted.every),
            hint => 'For example ''1 day''; without every and when_drift it is refreshed no more.');
    ELSIF NOT (wanted.when_drift > 0 AND wanted.when_drift < 'Infinity') THEN
        PERFORM easeml.fail('ML001', format('when_drift: expected a positive number, got %s', wanted.when_drift),
            hint => '0.1 is moderate, 0.25 large.');
    END IF;
    IF (easeml.answering_trial(asker, name)).trial_id IS NULL THEN
        PERFORM easeml.fail_unanswered(asker, name, name);
    END IF;
    INSERT INTO easeml.refresh_rules AS r (tenant, dataset_name, source_kind, every, when_drift, next_at)
    VALUES (asker, name, easeml.check_refreshed_source(asker, name, NULL), coalesce(wanted.every, '1 day'),
        wanted.when_drift, moment + coalesce(wanted.every, '1 day'))
    ON CONFLICT ON CONSTRAINT refresh_rules_pkey DO UPDATE SET source_kind = excluded.source_kind,
        every = excluded.every, when_drift = excluded.when_drift, next_at = excluded.next_at, set_at = now(),
        problem = NULL, not_before = NULL;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_set_refresh(name, name, jsonb) IS
    'Sets when a dataset is refreshed, for easeml.set_refresh (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_run_refresh(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE easeml.refresh_rules r SET next_at = clock_timestamp(), not_before = NULL WHERE r.tenant = asker
        AND r.dataset_name = arguments ->> 'dataset';
    IF NOT FOUND THEN
        PERFORM easeml.fail_unrefreshed(arguments ->> 'dataset');
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_run_refresh(name, name, jsonb) IS
    'Makes the next check of a source due now, for easeml.run_refresh (internal).';

CREATE OR REPLACE FUNCTION easeml.fail_unrefreshed(dataset text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fail('ML003', format('dataset %s of yours is not refreshed', quote_nullable(dataset)),
        hint => format('SELECT easeml.set_refresh(%L, every => ''1 day'') has it refreshed.', dataset));
END
$$;
COMMENT ON FUNCTION easeml.fail_unrefreshed(text) IS 'Raises the error that a dataset is not refreshed (internal).';

CREATE OR REPLACE FUNCTION easeml.best_of_run(run_id bigint) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.trial_id FROM easeml.trials t JOIN easeml.runs r USING (run_id)
    WHERE t.run_id = best_of_run.run_id AND t.best_checkpoint_id IS NOT NULL AND t.best_metric_value IS NOT NULL
    ORDER BY easeml.rank_key(t, r.is_higher_better) LIMIT 1
$$;
COMMENT ON FUNCTION easeml.best_of_run(bigint) IS
    'Returns the best trial of a run that can answer, or NULL if there is none (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_take_refresh(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rule easeml.refresh_rules;
    begun easeml.refreshes;
    status text;
    before record;
BEGIN
    SELECT r.* INTO rule FROM easeml.refresh_rules r WHERE r.tenant = asker AND r.dataset_name = arguments ->> 'dataset'
    FOR NO KEY UPDATE SKIP LOCKED;
    IF rule.tenant IS NULL AND EXISTS (SELECT FROM easeml.refresh_rules r WHERE r.tenant = asker
        AND r.dataset_name = arguments ->> 'dataset') THEN
        PERFORM easeml.fail('ML016', format('dataset %s is being refreshed, or an open transaction holds its rule',
                quote_literal(arguments ->> 'dataset')), hint => 'Wait until that is over.');
    ELSIF rule.tenant IS NULL THEN
        PERFORM easeml.fail_unrefreshed(arguments ->> 'dataset');
    END IF;
    SELECT f.* INTO begun FROM easeml.refreshes f WHERE f.tenant = asker AND f.dataset_name = rule.dataset_name
        AND f.outcome = 'training' ORDER BY f.refresh_id DESC LIMIT 1;
    IF begun.refresh_id IS NOT NULL THEN
        status := (SELECT r.status FROM easeml.runs r WHERE r.run_id = begun.run_id);
        IF status IN ('queued', 'running') THEN
            RETURN '{"step": "training"}';
        ELSIF status = 'finished' AND easeml.best_of_run(begun.run_id) IS NOT NULL AND EXISTS (SELECT
            FROM easeml.trials t WHERE t.trial_id = begun.before_trial_id AND t.best_checkpoint_id IS NOT NULL) THEN
            RETURN jsonb_build_object('step', 'compare', 'refresh_id', begun.refresh_id, 'before_trial_id',
                begun.before_trial_id, 'after_trial_id', easeml.best_of_run(begun.run_id));
        END IF;
        UPDATE easeml.refreshes f SET outcome = 'failed', ended_at = clock_timestamp(),
            reason = format('run %s is %s, so there is nothing to compare', begun.run_id, coalesce(status, 'gone'))
        WHERE f.refresh_id = begun.refresh_id;
        RETURN '{"step": "failed"}';
    ELSIF rule.next_at > clock_timestamp() THEN
        RETURN '{"step": "not due"}';
    END IF;
    PERFORM easeml.check_refreshed_source(asker, rule.dataset_name, rule.source_kind);
    SELECT a.trial_id, a.run_id, a.metric, d.dataset_id, d.version INTO before FROM easeml.answering a
    JOIN easeml.datasets d USING (dataset_id)
    WHERE a.tenant = asker AND a.dataset_name = rule.dataset_name AND a.trial_id IS NOT NULL;
    IF before.trial_id IS NULL THEN
        PERFORM easeml.fail_unanswered(asker, rule.dataset_name, rule.dataset_name);
    END IF;
    UPDATE easeml.refresh_rules r SET next_at = clock_timestamp() + r.every, problem = NULL, not_before = NULL
    WHERE r.tenant = asker AND r.dataset_name = rule.dataset_name;
    RETURN (SELECT jsonb_build_object('step', 'look', 'when_drift', rule.when_drift, 'before_trial_id', before.trial_id,
            'before_dataset_id', before.dataset_id, 'version', before.version, 'metric', before.metric,
            -- One config of each of the best three architectures, for as many epochs as the best state took; a list of
            -- one value is that value.
            'architectures', jsonb_agg(b.architecture), 'max_epochs', max(b.best_epoch), 'search_space',
                jsonb_object_agg(b.architecture,
                (SELECT coalesce(jsonb_object_agg(c.key, jsonb_build_array(c.value)), '{}')
                    FROM jsonb_each(b.config) c)))
        FROM (SELECT o.* FROM (SELECT DISTINCT ON (t.architecture) t.architecture, t.config, t.best_epoch,
                easeml.rank_key(t, r.is_higher_better) AS rank_key
                FROM easeml.trials t JOIN easeml.runs r USING (run_id) WHERE t.run_id = before.run_id
                    AND t.architecture <> 'ensemble' AND t.best_metric_value IS NOT NULL
                ORDER BY t.architecture, rank_key) o ORDER BY o.rank_key LIMIT 3) b);
END
$$;
COMMENT ON FUNCTION easeml.perform_take_refresh(name, name, jsonb) IS 'Returns the next step of a refresh, and '
    'postpones the next check of the source, for easeml.advance_refresh (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_record_refresh(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text := (easeml.dataset_of(caller, asker, arguments ->> 'dataset')).dataset_name;
    told record;
BEGIN
    SELECT w.* INTO told FROM jsonb_to_record(arguments) w(outcome text, drifting text, psi float8, run_id bigint,
        before_trial_id bigint, reason text);
    IF told.outcome IS NULL OR told.outcome NOT IN ('no drift', 'no new rows', 'training')
        OR NOT EXISTS (SELECT FROM easeml.refresh_rules r WHERE r.tenant = asker AND r.dataset_name = name)
        OR told.outcome = 'training' AND NOT EXISTS (SELECT FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
            WHERE r.run_id = told.run_id AND d.tenant = asker AND d.dataset_name = name
            AND told.before_trial_id = (SELECT a.trial_id FROM easeml.answering a WHERE a.tenant = asker
                AND a.dataset_name = name)) THEN
        PERFORM easeml.fail('ML001', 'outcome: nothing of the kind has happened',
            hint => 'Call easeml.advance_refresh.');
    END IF;
    IF told.outcome = 'training' THEN
        -- The present trial keeps answering until the new trials have been compared with it.
        PERFORM easeml.lock_serving(asker, name);
        INSERT INTO easeml.deployments (tenant, dataset_name, trial_id)
        VALUES (asker, name, told.before_trial_id) ON CONFLICT DO NOTHING;
        PERFORM easeml.note_serving(asker, name, 'deployed');
    END IF;
    INSERT INTO easeml.refreshes (tenant, dataset_name, ended_at, outcome, drifting, psi,
        run_id, before_trial_id, reason)
    VALUES (asker, name, CASE WHEN told.outcome <> 'training' THEN clock_timestamp() END, told.outcome,
        left(told.drifting, 200), told.psi, told.run_id, told.before_trial_id, left(coalesce(told.reason, ''), 500));
    DELETE FROM easeml.refreshes f WHERE f.tenant = asker AND f.dataset_name = name AND f.refresh_id <= (
        SELECT o.refresh_id FROM easeml.refreshes o WHERE o.tenant = asker
            AND o.dataset_name = name ORDER BY o.refresh_id DESC OFFSET 200 LIMIT 1)
        -- easeml prune asks which runs refreshes began
        AND NOT EXISTS (SELECT FROM easeml.runs r WHERE r.run_id = f.run_id);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_record_refresh(name, name, jsonb) IS
    'Records the outcome of checking a source, for easeml.advance_refresh (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_finish_refresh(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    told record;
    begun easeml.refreshes;
    ranking record;
    is_better boolean;
    is_same boolean;
    new_outcome text;
BEGIN
    SELECT w.* INTO told FROM jsonb_to_record(arguments) w(refresh_id bigint, before_value float8, after_value float8,
        n_rows bigint, failure text);
    SELECT f.* INTO begun FROM easeml.refreshes f WHERE f.refresh_id = told.refresh_id AND f.tenant = asker
        AND f.outcome = 'training' FOR NO KEY UPDATE;
    SELECT r.metric, r.is_higher_better, easeml.best_of_run(r.run_id) AS trial_id INTO ranking FROM easeml.runs r
    WHERE r.run_id = begun.run_id AND r.status = 'finished';
    IF ranking.trial_id IS NULL THEN
        PERFORM easeml.fail('ML001', 'refresh_id: no refresh of yours waits to be finished',
            hint => 'Call easeml.advance_refresh.');
    END IF;
    IF told.failure IS NOT NULL THEN
        UPDATE easeml.refreshes f SET outcome = 'failed', ended_at = clock_timestamp(),
            after_trial_id = ranking.trial_id, reason = left('the trials cannot be compared: ' || told.failure, 500)
        WHERE f.refresh_id = begun.refresh_id;
        RETURN '"failed"';
    END IF;
    -- What was deployed by hand meanwhile stays.
    PERFORM easeml.lock_serving(asker, begun.dataset_name);
    is_same := EXISTS (SELECT FROM easeml.deployments p WHERE p.tenant = asker AND p.dataset_name = begun.dataset_name
        AND p.trial_id = begun.before_trial_id);
    -- A trial that is not a number anywhere is not better.
    is_better := is_same
        AND coalesce(CASE WHEN told.after_value = 'NaN' THEN false WHEN told.before_value = 'NaN' THEN true
        WHEN ranking.is_higher_better THEN told.after_value > told.before_value
            ELSE told.after_value < told.before_value END, false);
    new_outcome := CASE WHEN is_better THEN 'served' ELSE 'not served' END;
    IF is_better THEN
        UPDATE easeml.deployments p SET trial_id = ranking.trial_id, deployed_at = now() WHERE p.tenant = asker
            AND p.dataset_name = begun.dataset_name;
        PERFORM easeml.note_serving(asker, begun.dataset_name, 'refreshed');
    END IF;
    UPDATE easeml.refreshes f SET outcome = new_outcome, ended_at = clock_timestamp(),
        after_trial_id = ranking.trial_id, metric = ranking.metric,
        before_value = told.before_value, after_value = told.after_value, n_rows = told.n_rows,
        reason = format('on %s rows that are new to it trial %s has %s %s, trial %s of the new rows has %s: %s',
            told.n_rows, begun.before_trial_id, ranking.metric, round(told.before_value::numeric, 4), ranking.trial_id,
            round(told.after_value::numeric, 4), CASE WHEN is_better THEN 'the new one answers' WHEN is_same
                THEN 'the former goes on answering' ELSE 'what answers was changed meanwhile, and stays' END)
    WHERE f.refresh_id = begun.refresh_id;
    RETURN to_jsonb(new_outcome);
END
$$;
COMMENT ON FUNCTION easeml.perform_finish_refresh(name, name, jsonb) IS
    'Lets the better of two trials answer, and records why, for easeml.advance_refresh (internal).';
