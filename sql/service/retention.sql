-- Old rows leave when an administrator asks for it (easeml prune), in short transactions. What answers, what answered,
-- what can still be resumed, what replays the best trial of a run, and what teaches priors stays, however old it is.

CREATE OR REPLACE FUNCTION easeml.retention_rules(
    OUT what text,
    OUT keep interval,
    OUT shortest interval,
    OUT summary text
) RETURNS SETOF record LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT v.what, v.keep::interval, v.shortest::interval, v.summary FROM (VALUES
        ('decisions', '30 days', '1 day', 'which run was served or waited, of runs that ended'),
        ('beliefs', '30 days', '1 day', 'priors and posteriors of finished runs'),
        ('forecasts', '30 days', '1 day', 'forecasts of runs that ended'),
        ('allocations', '30 days', '1 day', 'trial groups and allocations of runs that ended'),
        ('coordinators', '30 days', '1 day', 'coordinators that are gone'),
        ('events', '30 days', '1 day', 'what happened to runs that ended, in words'),
        ('units', '30 days', '1 day', 'training units of finished runs: timeline, traffic and replay; the best trial '
            'of a run and trials that answered keep theirs'),
        ('evaluations', '30 days', '1 day', 'evaluation units of finished runs, but for the same trials; metrics stay'),
        ('states', NULL, '1 day',
            'states of trials of finished runs, which then predict no more, but for the same trials'),
        ('runs', NULL, '1 day', 'runs that ended with all that they have, unless a trial answers or answered; the '
            'newest 500 teach priors and stay'),
        ('refreshed', '30 days', '1 day', 'runs that refreshes of a dataset began, with their versions, unless a trial '
            'answers; the newest ten of each dataset stay'),
        ('versions', NULL, '1 day', 'versions of datasets that no run has used, but for the newest'),
        ('dropped_tenants', NULL, '1 day', 'all rows of tenants whose role was dropped, or is no member of '
            'easeml_tenant any more, unless they have tasks or open runs')
    ) v(what, keep, shortest, summary)
$$;
COMMENT ON FUNCTION easeml.retention_rules() IS
    'Lists what easeml prune can remove, and for how long it is kept by default (internal: read easeml.retention).';

CREATE OR REPLACE VIEW easeml.retention WITH (security_invoker) AS
SELECT u.what, CASE WHEN s.what IS NULL THEN u.keep ELSE s.keep END AS keep,
    s.what IS NULL AS is_default, u.summary, s.set_at
FROM easeml.retention_rules() u LEFT JOIN easeml.retention_settings s USING (what);
COMMENT ON VIEW easeml.retention IS 'What easeml prune removes, and at what age. Nothing is removed automatically.';
COMMENT ON COLUMN easeml.retention.what IS 'Name that easeml.set_retention takes.';
COMMENT ON COLUMN easeml.retention.keep IS 'How long it is kept after its run has ended (versions: after they were '
    'made; dropped tenants: after their last run or dataset); null: forever.';
COMMENT ON COLUMN easeml.retention.is_default IS 'Whether nobody has changed it.';
COMMENT ON COLUMN easeml.retention.summary IS 'What it is, and what remains of it.';
COMMENT ON COLUMN easeml.retention.set_at IS 'When it was set.';

CREATE OR REPLACE FUNCTION easeml.set_retention(what text, keep interval) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rule record;
BEGIN
    SELECT u.* INTO rule FROM easeml.retention_rules() u WHERE u.what = set_retention.what;
    IF rule.what IS NULL THEN
        PERFORM easeml.fail('ML001', format('what: there is nothing called %s to keep', quote_nullable(what)),
            hint => (SELECT 'Choose one of: ' || string_agg(u.what, ', ') || '.' FROM easeml.retention_rules() u));
    ELSIF keep <= '0' THEN
        PERFORM easeml.fail('ML001', format('keep: expected a time to keep %s for, got %s', what, keep),
            hint => 'For example ''90 days''. NULL keeps them forever; for easeml retention the word is forever.');
    ELSIF keep < rule.shortest THEN
        PERFORM easeml.fail('ML001', format('keep: expected at least %s, got %s', rule.shortest, keep),
            hint => 'What is younger may still be of use to somebody at work.');
    ELSIF keep > '1000 years' THEN
        PERFORM easeml.fail('ML001', format('keep: expected at most 1000 years, got %s', keep),
            hint => 'NULL keeps them forever; for easeml retention the word is forever.');
    END IF;
    INSERT INTO easeml.retention_settings AS s (what, keep) VALUES (set_retention.what, set_retention.keep)
    ON CONFLICT ON CONSTRAINT retention_settings_pkey DO UPDATE SET keep = excluded.keep, set_at = now();
END
$$;
COMMENT ON FUNCTION easeml.set_retention(text, interval) IS
    'Sets how long something is kept, one of easeml.retention; NULL: forever. Nothing is removed until an '
    'administrator calls easeml prune. Administrators only.';

CREATE OR REPLACE FUNCTION easeml.kept_trials(run_ids bigint[]) RETURNS SETOF bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- The best trial of each run, those that answer or answered, and what they are made of: parents of copies, members
    -- of ensembles.
    WITH RECURSIVE kept(trial_id) AS (
        SELECT t.trial_id FROM easeml.trials t WHERE t.run_id = ANY (run_ids)
            AND (t.trial_id IN (SELECT p.trial_id FROM easeml.deployments p)
                OR t.trial_id IN (SELECT s.trial_id FROM easeml.servings s))
        UNION SELECT b.trial_id FROM easeml.runs r CROSS JOIN LATERAL (
            SELECT t.trial_id FROM easeml.trials t WHERE t.run_id = r.run_id AND t.best_metric_value IS NOT NULL
            ORDER BY easeml.rank_key(t, r.is_higher_better) LIMIT 1) b
        WHERE r.run_id = ANY (run_ids)
        UNION SELECT o.trial_id FROM kept k JOIN easeml.trials t USING (trial_id)
        JOIN easeml.trials o ON o.run_id = t.run_id
            AND (o.trial_id = t.parent_trial_id OR t.architecture = 'ensemble' AND jsonb_path_exists(t.config,
                    '$.members[*] ? (@.trial == $n)', jsonb_build_object('n', o.trial_number)))
    )
    SELECT k.trial_id FROM kept k
$$;
COMMENT ON FUNCTION easeml.kept_trials(bigint[]) IS
    'Returns the trials of runs whose units and states are kept (internal).';

CREATE OR REPLACE FUNCTION easeml.prune_rows(table_name name, condition text, run_ids bigint[], is_dry boolean)
RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n bigint;
BEGIN
    IF is_dry THEN
        EXECUTE format('SELECT count(*) FROM easeml.%I x WHERE %s', table_name, condition) INTO n USING run_ids;
    ELSE
        EXECUTE format('DELETE FROM easeml.%I x WHERE %s', table_name, condition) USING run_ids;
        GET DIAGNOSTICS n = ROW_COUNT;
    END IF;
    RETURN n;
END
$$;
COMMENT ON FUNCTION easeml.prune_rows(name, text, bigint[], boolean) IS
    'Removes the rows of some runs from a table, or counts them (internal).';

CREATE OR REPLACE FUNCTION easeml.prune_of_runs(what text, run_ids bigint[], is_dry boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    of_runs text := 'x.run_id = ANY ($1)';
    -- What is not finished can be resumed: then it needs its units and what was believed of it.
    of_finished text := of_runs || ' AND x.run_id IN (SELECT r.run_id FROM easeml.runs r WHERE r.run_id = ANY ($1) '
        'AND r.status = ''finished'')';
    of_others text := of_finished || ' AND x.trial_id NOT IN (SELECT k FROM easeml.kept_trials($1) k)';
BEGIN
    RETURN (SELECT sum(easeml.prune_rows(p.table_name, p.condition, run_ids, is_dry)) FROM (VALUES
        ('decisions', 'arm_opening_candidates', of_runs), ('decisions', 'arm_openings', of_runs),
        ('beliefs', 'posteriors', of_finished), ('beliefs', 'priors', of_finished),
        ('forecasts', 'forecasts', of_runs), ('allocations', 'allocations', of_runs),
        ('allocations', 'trial_groups', of_runs), ('events', 'events', of_runs),
        ('units', 'training_units', of_others), ('units', 'node_hops', of_others),
        ('evaluations', 'evaluations', of_others)) p(what, table_name, condition)
        WHERE p.what = prune_of_runs.what);
END
$$;
COMMENT ON FUNCTION easeml.prune_of_runs(text, bigint[], boolean) IS
    'Removes one kind of data of runs that ended, or counts it (internal).';

CREATE OR REPLACE FUNCTION easeml.prune_runs(what text, run_ids bigint[], is_dry boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    free bigint[];
    versions bigint[];
    n bigint;
BEGIN
    IF is_dry THEN
        free := ARRAY(SELECT r.run_id FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
            JOIN easeml.serving_metrics m ON m.tenant = d.tenant AND m.dataset_name = d.dataset_name
            WHERE r.run_id = ANY (run_ids));
    ELSE
        -- A transaction that deploys a trial locks this row first. So a trial that is being deployed stays, and nothing
        -- waits.
        free := ARRAY(SELECT r.run_id FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
            JOIN easeml.serving_metrics m ON m.tenant = d.tenant AND m.dataset_name = d.dataset_name
            WHERE r.run_id = ANY (run_ids) FOR NO KEY UPDATE OF m SKIP LOCKED);
    END IF;
    IF what = 'states' THEN
        RETURN easeml.prune_states(free, is_dry);
    END IF;
    -- Of many runs at once, each question is asked once: what answers for their datasets, and which trials are or were
    -- in use.
    free := ARRAY(SELECT f FROM unnest(free) f EXCEPT (
        SELECT a.run_id FROM easeml.answering a WHERE (a.tenant, a.dataset_name) IN (SELECT d.tenant, d.dataset_name
            FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) WHERE r.run_id = ANY (free))
        UNION ALL SELECT t.run_id FROM easeml.trials t
        WHERE t.run_id = ANY (free) AND (t.trial_id IN (SELECT p.trial_id FROM easeml.deployments p) OR what = 'runs'
            AND t.trial_id IN (SELECT s.trial_id FROM easeml.servings s))));
    IF is_dry THEN
        RETURN cardinality(free);
    END IF;
    versions := ARRAY(SELECT DISTINCT r.dataset_id FROM easeml.runs r
        WHERE what = 'refreshed' AND r.run_id = ANY (free));
    DELETE FROM easeml.runs r WHERE r.run_id = ANY (ARRAY(SELECT w.run_id FROM easeml.runs w WHERE w.run_id = ANY (free)
            AND NOT w.is_open FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS n = ROW_COUNT;
    DELETE FROM easeml.instances i WHERE i.run_id = ANY (free) AND i.status IN ('released', 'failed')
        AND NOT EXISTS (SELECT FROM easeml.runs r WHERE r.run_id = i.run_id);
    PERFORM easeml.drop_versions(versions);
    RETURN n;
END
$$;
COMMENT ON FUNCTION easeml.prune_runs(text, bigint[], boolean) IS
    'Removes the states of runs that ended, or the runs themselves, unless they are needed; or counts them (internal).';

CREATE OR REPLACE FUNCTION easeml.prune_states(run_ids bigint[], is_dry boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    others bigint[] := ARRAY(SELECT t.trial_id FROM easeml.trials t WHERE t.run_id = ANY (run_ids)
        AND coalesce(t.checkpoint_id, t.best_checkpoint_id) IS NOT NULL
        AND t.trial_id NOT IN (SELECT k FROM easeml.kept_trials(run_ids) k));
    n bigint := (SELECT count(*) FROM easeml.checkpoints c WHERE c.trial_id = ANY (others));
BEGIN
    IF is_dry OR cardinality(others) = 0 THEN
        RETURN n;
    END IF;
    UPDATE easeml.trials t SET checkpoint_id = NULL, best_checkpoint_id = NULL WHERE t.trial_id = ANY (others);
    DELETE FROM easeml.checkpoints c WHERE c.trial_id = ANY (others);
    RETURN n;
END
$$;
COMMENT ON FUNCTION easeml.prune_states(bigint[], boolean) IS
    'Removes the states of trials of finished runs, except those that are kept, or counts them (internal).';

CREATE OR REPLACE FUNCTION easeml.unused_versions() RETURNS SETOF easeml.datasets
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT d.* FROM easeml.datasets d WHERE d.packing_xid IS NULL
        AND EXISTS (SELECT FROM easeml.datasets n WHERE n.tenant = d.tenant AND n.dataset_name = d.dataset_name
            AND n.version > d.version AND n.packing_xid IS NULL)
        AND NOT EXISTS (SELECT FROM easeml.runs r WHERE r.dataset_id = d.dataset_id)
            AND NOT EXISTS (SELECT FROM easeml.kept_blocks k WHERE k.holder_id = d.dataset_id)
$$;
COMMENT ON FUNCTION easeml.unused_versions() IS
    'Returns the versions of datasets that no run and no later version uses, but for the newest of each (internal).';

CREATE OR REPLACE FUNCTION easeml.drop_versions(dataset_ids bigint[]) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n bigint;
BEGIN
    DELETE FROM easeml.datasets d WHERE d.dataset_id = ANY (ARRAY(SELECT w.dataset_id FROM easeml.datasets w
        WHERE w.dataset_id IN (SELECT u.dataset_id FROM easeml.unused_versions() u
            WHERE u.dataset_id = ANY (dataset_ids)) FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END
$$;
COMMENT ON FUNCTION easeml.drop_versions(bigint[]) IS
    'Removes versions of datasets that nothing uses, except those that another transaction has locked (internal).';

CREATE OR REPLACE FUNCTION easeml.prune_versions(before timestamptz, is_dry boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old bigint[] := ARRAY(SELECT u.dataset_id FROM easeml.unused_versions() u
        WHERE u.created_at < before ORDER BY u.dataset_id LIMIT CASE WHEN NOT is_dry THEN 5 END);
BEGIN
    RETURN CASE WHEN is_dry THEN cardinality(old) ELSE easeml.drop_versions(old) END;
END
$$;
COMMENT ON FUNCTION easeml.prune_versions(timestamptz, boolean) IS
    'Removes a few versions of datasets that nothing needs, or counts all of them (internal).';

CREATE OR REPLACE FUNCTION easeml.gone_tenants(before timestamptz) RETURNS SETOF name
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- Where a dump brought rows without their role, they wait for easeml.adopt_tenant.
    SELECT t.tenant FROM easeml.tenant_roles t
    WHERE t.role IS NOT NULL AND NOT EXISTS (SELECT FROM pg_roles a WHERE a.oid = t.role
        AND pg_has_role(a.oid, 'easeml_tenant', 'MEMBER')) AND t.since < before
        AND NOT EXISTS (SELECT FROM easeml.tasks k WHERE k.tenant = t.tenant)
        AND NOT EXISTS (SELECT FROM easeml.runs r WHERE r.tenant = t.tenant
            AND (r.is_open OR coalesce(r.finished_at, r.created_at) >= before))
        AND NOT EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = t.tenant AND d.created_at >= before)
$$;
COMMENT ON FUNCTION easeml.gone_tenants(timestamptz) IS
    'Returns the former tenants that have done nothing since a given time (internal).';

CREATE OR REPLACE FUNCTION easeml.prune_tenants(before timestamptz, is_dry boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    gone name[] := ARRAY(SELECT g FROM easeml.gone_tenants(before) g ORDER BY g LIMIT CASE WHEN NOT is_dry THEN 1 END);
    n bigint;
BEGIN
    IF is_dry THEN
        RETURN (SELECT count(*) FROM easeml.runs r WHERE r.tenant = ANY (gone)) + (SELECT count(*)
            FROM easeml.datasets d WHERE d.tenant = ANY (gone)) + cardinality(gone);
    END IF;
    DELETE FROM easeml.runs r
    WHERE r.run_id IN (SELECT o.run_id FROM easeml.runs o WHERE o.tenant = ANY (gone) ORDER BY o.run_id LIMIT 20);
    GET DIAGNOSTICS n = ROW_COUNT;
    IF n = 0 AND cardinality(gone) > 0 THEN
        DELETE FROM easeml.datasets d WHERE d.dataset_id IN (SELECT o.dataset_id FROM easeml.datasets o
            WHERE o.tenant = ANY (gone) ORDER BY o.dataset_id LIMIT 5);
        GET DIAGNOSTICS n = ROW_COUNT;
    END IF;
    IF n = 0 AND cardinality(gone) > 0 THEN
        DELETE FROM easeml.servings x WHERE x.tenant = ANY (gone);
        DELETE FROM easeml.serving_metrics x WHERE x.tenant = ANY (gone);
        DELETE FROM easeml.dataset_grants x WHERE x.tenant = ANY (gone);
        DELETE FROM easeml.prediction_audits x WHERE x.tenant = ANY (gone);
        DELETE FROM easeml.prediction_log x WHERE x.tenant = ANY (gone);
        DELETE FROM easeml.refresh_rules x WHERE x.tenant = ANY (gone);
        DELETE FROM easeml.refreshes x WHERE x.tenant = ANY (gone);
        DELETE FROM easeml.packings x WHERE x.tenant = ANY (gone);
        DELETE FROM easeml.node_jobs x WHERE x.tenant = ANY (gone);
        DELETE FROM easeml.instances x WHERE x.tenant = ANY (gone) AND x.status IN ('released', 'failed');
        DELETE FROM easeml.tenant_usage x WHERE x.tenant = ANY (gone);
        DELETE FROM easeml.tenants x WHERE x.tenant = ANY (gone);
        DELETE FROM easeml.tenant_roles x WHERE x.tenant = ANY (gone);
        n := 1;
    END IF;
    RETURN n;
END
$$;
COMMENT ON FUNCTION easeml.prune_tenants(timestamptz, boolean) IS
    'Removes some rows of a former tenant, or counts the runs and datasets of all of them (internal).';

CREATE OR REPLACE FUNCTION easeml.prune_once(what text, before timestamptz, is_dry boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n bigint;
BEGIN
    IF what = 'versions' THEN
        RETURN easeml.prune_versions(before, is_dry);
    ELSIF what = 'dropped_tenants' THEN
        RETURN easeml.prune_tenants(before, is_dry);
    ELSIF is_dry THEN
        RETURN (SELECT count(*) FROM easeml.coordinators c WHERE c.heartbeat_at < before
            AND c.lease_number <> (SELECT l.lease_number FROM easeml.coordinator_lease l));
    END IF;
    DELETE FROM easeml.coordinators c WHERE c.heartbeat_at < before
        AND c.lease_number <> (SELECT l.lease_number FROM easeml.coordinator_lease l);
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END
$$;
COMMENT ON FUNCTION easeml.prune_once(text, timestamptz, boolean) IS
    'Removes some of what belongs to no run, or counts all of it (internal).';

CREATE OR REPLACE FUNCTION easeml.prune_unlocked(what text, run_ids bigint[], is_dry boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE WHEN what IN ('runs', 'states', 'refreshed') THEN easeml.prune_runs(what, run_ids, is_dry)
        ELSE easeml.prune_of_runs(what, run_ids, is_dry) END;
EXCEPTION WHEN lock_not_available THEN  -- an open transaction of one tenant keeps the rows of others from nothing
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.prune_unlocked(text, bigint[], boolean) IS
    'Removes one kind of data of some runs, or counts it; NULL where somebody has locked rows of it (internal).';

CREATE OR REPLACE FUNCTION easeml.prune_batch(
    what text,
    after bigint DEFAULT 0,
    is_dry boolean DEFAULT true,
    OUT n_rows bigint,
    OUT last bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    before timestamptz;
    run_ids bigint[];
BEGIN
    after := coalesce(after, 0);
    is_dry := coalesce(is_dry, true); -- nothing is removed unless an administrator says so
    IF NOT EXISTS (SELECT FROM easeml.retention_rules() u WHERE u.what = prune_batch.what) THEN
        PERFORM easeml.fail('ML001', format('what: there is nothing called %s to remove', quote_nullable(what)),
            hint => (SELECT 'Choose one of: ' || string_agg(u.what, ', ') || '.' FROM easeml.retention_rules() u));
    END IF;
    n_rows := 0;
    SELECT clock_timestamp() - r.keep INTO before FROM easeml.retention r WHERE r.what = prune_batch.what;
    IF before IS NULL THEN
        RETURN;
    ELSIF what IN ('versions', 'dropped_tenants', 'coordinators') THEN
        n_rows := easeml.prune_once(what, before, is_dry);
        last := CASE WHEN n_rows > 0 AND what <> 'coordinators' AND NOT is_dry THEN 0 END;
        RETURN;
    END IF;
    run_ids := ARRAY(SELECT r.run_id FROM easeml.runs r WHERE r.run_id > after
        AND NOT r.is_open AND r.finished_at < before
        AND (what <> 'runs' OR r.run_id <= (SELECT w.run_id FROM easeml.runs w ORDER BY w.run_id DESC OFFSET 500
                LIMIT 1)) AND (what <> 'states' OR r.status = 'finished')
        AND (what <> 'refreshed' OR r.run_id IN (SELECT k.run_id FROM (SELECT f.run_id,
                    row_number() OVER (PARTITION BY f.tenant, f.dataset_name ORDER BY f.run_id DESC) AS place
            FROM easeml.refreshes f JOIN easeml.runs w USING (run_id)) k WHERE k.place > 10))
        ORDER BY r.run_id
        LIMIT CASE WHEN is_dry THEN 1000 WHEN what = 'refreshed' THEN 5 WHEN what = 'runs' THEN 20 ELSE 100 END);
    IF NOT is_dry THEN
        -- A batch is as long as its trials are many.
        run_ids := ARRAY(SELECT c.run_id
            FROM (SELECT i AS run_id, sum((SELECT count(*) FROM easeml.trials t WHERE t.run_id = i))
                OVER (ORDER BY i ROWS UNBOUNDED PRECEDING) AS n_trials FROM unnest(run_ids) i) c
            WHERE c.n_trials <= 2000 OR c.run_id = run_ids[1]);
    END IF;
    last := (SELECT max(i) FROM unnest(run_ids) i);
    IF NOT is_dry THEN
        -- Runs that somebody is dropping stay for now.
        run_ids := ARRAY(SELECT w.run_id FROM easeml.runs w WHERE w.run_id = ANY (run_ids) ORDER BY w.run_id
            FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
    n_rows := easeml.prune_unlocked(what, run_ids, is_dry);
    IF n_rows IS NULL THEN  -- some of their rows are locked: one by one, the others leave
        PERFORM set_config('lock_timeout', '10ms', true);
        n_rows := (SELECT coalesce(sum(easeml.prune_unlocked(what, ARRAY[i], is_dry)), 0) FROM unnest(run_ids) i);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.prune_batch(text, bigint, boolean) IS
    'Removes what is older than easeml.retention allows from the next hundred runs after a given one (fewer if '
    'they have many trials), or counts it for the next thousand. Returns where to continue, or NULL at the end. easeml '
    'prune calls it repeatedly, each time in a transaction of its own. Administrators only.';
