-- Versions and runs of tasks, in the background: the coordinator asks which tasks changed, and has each packed and run.
-- It all happens with the rights of easeml_owner, on tables of easeml_owner: no code of a tenant runs.

CREATE OR REPLACE FUNCTION easeml.pack_task(task_id bigint, OUT dataset_id bigint, OUT failure jsonb)
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.tasks.task_packing import pack_task
return pack_task(plpy, GD, task_id)
$$;
COMMENT ON FUNCTION easeml.pack_task(bigint) IS 'Packs the examples of a task that are switched on as a new version, '
    'as far as they changed; returns its dataset id or an error (internal).';

CREATE OR REPLACE FUNCTION easeml.begin_task_version(
    task_id bigint,
    n_partitions integer,
    settings jsonb
) RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT easeml.begin_version(t.tenant, 1 + coalesce((SELECT max(d.version) FROM easeml.datasets d
            WHERE d.tenant = t.tenant AND d.dataset_name = t.task_name), 0),
        settings || jsonb_build_object('name', t.task_name, 'source', t.examples, 'inputs', (SELECT
                jsonb_agg(i ->> 'column') FROM jsonb_array_elements(t.specification -> 'inputs') i),
            'target', 'output', 'n_partitions', begin_task_version.n_partitions, 'placement', 'shared'))
    FROM easeml.tasks t WHERE t.task_id = begin_task_version.task_id
$$;
COMMENT ON FUNCTION easeml.begin_task_version(bigint, integer, jsonb) IS
    'Inserts a version of a task that this transaction packs; returns its dataset id (internal).';

CREATE OR REPLACE FUNCTION easeml.finish_task_version(dataset_id bigint, task_id bigint, facts jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    task easeml.tasks;
BEGIN
    SELECT t.* INTO task FROM easeml.tasks t WHERE t.task_id = finish_task_version.task_id;
    PERFORM easeml.add_partitions(easeml.fill_version(dataset_id, facts),
        ARRAY(SELECT jsonb_array_elements_text(facts -> 'checksums')::bigint));
    INSERT INTO easeml.task_versions (dataset_id, tenant, task_id, n_examples, n_off, n_changed,
        n_packed_bytes, n_kept_bytes)
    SELECT p.dataset_id, task.tenant, task.task_id, sum(p.n_train_rows + p.n_validation_rows + p.n_test_rows),
        (facts ->> 'n_skipped_rows')::bigint, (facts ->> 'n_changed')::bigint,
        sum(p.n_bytes - p.n_kept_bytes), sum(p.n_kept_bytes) FROM easeml.partitions p
            WHERE p.dataset_id = finish_task_version.dataset_id GROUP BY p.dataset_id;
    -- Versions that no run trained on, and whose blocks no other version shares, are no longer needed.
    DELETE FROM easeml.datasets d WHERE d.tenant = task.tenant AND d.dataset_name = task.task_name
        AND d.dataset_id <> finish_task_version.dataset_id
        AND NOT EXISTS (SELECT FROM easeml.runs r WHERE r.dataset_id = d.dataset_id) AND NOT EXISTS (SELECT
            FROM easeml.kept_blocks k WHERE k.holder_id = d.dataset_id AND k.dataset_id <> d.dataset_id);
END
$$;
COMMENT ON FUNCTION easeml.finish_task_version(bigint, bigint, jsonb) IS
    'Records the results of packing a version of a task, and removes versions that are no longer needed (internal).';

CREATE OR REPLACE FUNCTION easeml.run_reason(
    n_pending integer,
    pending_minutes double precision,
    has_run boolean,
    is_wanted boolean,
    n_new_architectures integer,
    after_examples integer,
    after_minutes double precision
) RETURNS text LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.templates.starting import run_reason
from easeml_plpy.server.entry_points import guarded
return guarded(plpy, run_reason, n_pending, pending_minutes, has_run, is_wanted, n_new_architectures,
    after_examples, after_minutes)
$$;
COMMENT ON FUNCTION easeml.run_reason(integer, double precision, boolean, boolean, integer, integer,
    double precision) IS 'Returns why a run of a task is due, or NULL, a pure function of its arguments (internal).';

-- The server counts the rows that transactions insert and change, so a check costs nothing, whatever tenants feed; a
-- count that was lost in a crash differs, too.
CREATE OR REPLACE FUNCTION easeml.counted_changes(examples text) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_stat_get_tuples_inserted(r) + pg_stat_get_tuples_updated(r) + pg_stat_get_tuples_deleted(r)
    FROM (SELECT to_regclass(examples)::oid) c(r)
$$;
COMMENT ON FUNCTION easeml.counted_changes(text) IS
    'Returns how many rows of a table were ever changed, as the server counts them (internal).';

CREATE OR REPLACE FUNCTION easeml.pending_examples(task easeml.tasks, dataset_id bigint) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n_pending bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM (SELECT e.example_id FROM %s e WHERE e.is_on AND e.output IS NOT NULL) e
        FULL JOIN (SELECT unnest(b.row_hashes) AS example_id FROM easeml.version_blocks b WHERE b.dataset_id = $1) p
        USING (example_id) WHERE e IS NULL OR p IS NULL', task.examples)
    INTO n_pending USING dataset_id;
    RETURN least(n_pending, 2147483647);
END
$$;
COMMENT ON FUNCTION easeml.pending_examples(easeml.tasks, bigint) IS
    'Returns how many examples differ from those of a version (internal).';

CREATE OR REPLACE FUNCTION easeml.is_task_running(task easeml.tasks) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) WHERE d.tenant = task.tenant
        AND d.dataset_name = task.task_name AND r.is_open)
$$;
COMMENT ON FUNCTION easeml.is_task_running(easeml.tasks) IS 'Returns whether a task has an open run (internal).';

CREATE OR REPLACE FUNCTION easeml.due_tasks(is_first boolean) RETURNS SETOF bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    -- Tenants take turns: a list has one task of each, so that nobody waits for all tasks of another to be packed.
    SELECT d.task_id FROM (SELECT t.task_id, t.wanted_at, t.pending_since,
        row_number() OVER (PARTITION BY t.tenant ORDER BY t.wanted_at NULLS LAST, t.pending_since NULLS LAST,
            t.task_id) AS place FROM easeml.tasks t
    WHERE (is_first OR t.wanted_at IS NOT NULL OR easeml.counted_changes(t.examples) <> t.n_seen_changes
            OR t.n_pending > 0 AND t.problem IS NULL
                AND t.pending_since + least(t.run_after_minutes, 1e6) * interval '1 minute' <= clock_timestamp()
            OR t.not_before <= clock_timestamp())
        AND (t.not_before IS NULL OR t.not_before <= clock_timestamp())
        AND (is_first OR NOT easeml.is_task_running(t))) d
    WHERE is_first OR d.place = 1 ORDER BY d.place, d.wanted_at NULLS LAST, d.pending_since NULLS LAST, d.task_id
$$;
COMMENT ON FUNCTION easeml.due_tasks(boolean) IS 'Returns the tasks that the service should check next, one of each '
    'tenant: of those that were fed, switched or asked to run since its last check; is_first: all (internal).';

CREATE OR REPLACE FUNCTION easeml.advance_task(task_id bigint, lease_number bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    task easeml.tasks;
    newest bigint;
    n_changes bigint;
    arms text[];
    new_arms text[];
    has_run boolean;
    reason text;
    packed record;
    new_run_id bigint;
    new_n_pending integer;
    new_pending_since timestamptz;
    new_problem text;
    new_not_before timestamptz;
    wait_seconds double precision;
BEGIN
    -- First, and without writing: a tenant may keep a transaction open for hours.
    IF easeml.is_starting_runs((SELECT t.tenant FROM easeml.tasks t WHERE t.task_id = advance_task.task_id)) THEN
        RETURN 0;
    END IF;
    SELECT t.* INTO task FROM easeml.tasks t WHERE t.task_id = advance_task.task_id FOR NO KEY UPDATE SKIP LOCKED;
    IF task.task_id IS NULL THEN
        RETURN CASE WHEN EXISTS (SELECT FROM easeml.tasks t WHERE t.task_id = advance_task.task_id) THEN 0 END;
    ELSIF easeml.is_task_running(task) THEN
        RETURN 0;
    END IF;
    wait_seconds := easeml.seconds_ahead(task.tenant);
    IF wait_seconds > 0 THEN
        -- No tenant may make the service begin runs faster than the tenant could begin them itself. The reason why the
        -- task was due may be known only to this coordinator.
        UPDATE easeml.tasks t SET not_before = clock_timestamp() + make_interval(secs => wait_seconds)
        WHERE t.task_id = task.task_id;
        PERFORM easeml.fence(jsonb_build_object('lease_number', lease_number));
        RETURN NULL;
    END IF;
    -- before the rows are counted, so that rows fed meanwhile show at the next check
    n_changes := easeml.counted_changes(task.examples);
    BEGIN
        newest := (SELECT d.dataset_id FROM easeml.datasets d WHERE d.tenant = task.tenant
            AND d.dataset_name = task.task_name ORDER BY d.version DESC LIMIT 1);
        new_n_pending := easeml.pending_examples(task, newest);
        new_pending_since := CASE WHEN new_n_pending > 0 THEN coalesce(task.pending_since, clock_timestamp()) END;
        arms := easeml.task_arms(task.specification);
        has_run := EXISTS (SELECT FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
            WHERE d.tenant = task.tenant AND d.dataset_name = task.task_name AND r.status = 'finished');
        new_arms := ARRAY(SELECT unnest(arms) EXCEPT SELECT unnest(r.architectures) FROM easeml.runs r
            JOIN easeml.datasets d USING (dataset_id) WHERE d.tenant = task.tenant AND d.dataset_name = task.task_name);
        reason := easeml.run_reason(new_n_pending, coalesce(extract(epoch FROM clock_timestamp() - new_pending_since)
                / 60, 0)::float8, has_run, task.wanted_at IS NOT NULL,
            CASE WHEN task.run_options ? 'architectures' THEN 0 ELSE cardinality(new_arms) END,
            task.run_after_examples, task.run_after_minutes);
        IF reason IS NOT NULL THEN
            IF new_n_pending > 0 OR newest IS NULL THEN
                -- A run that its tenant may not begin is refused before the examples are packed for it, and not after.
                -- Limits do not hold for superusers.
                IF EXISTS (SELECT FROM easeml.tenant_roles r JOIN pg_roles a ON a.oid = r.role
                    WHERE r.tenant = task.tenant AND easeml.is_bound_by_limits(a.rolname)) THEN
                    PERFORM easeml.check_max_runs(task.tenant);
                END IF;
                packed := easeml.pack_task(task.task_id);
                PERFORM easeml.raise_failure(packed.failure);
            END IF;
            new_run_id := easeml.start_task_run(task,
                CASE WHEN reason = 'new architecture' AND new_n_pending = 0 THEN new_arms ELSE arms END, reason);
            new_n_pending := 0;
            new_pending_since := NULL;
        END IF;
    -- Not what is over by itself: locks, a full disk, a server that stops.
    EXCEPTION WHEN SQLSTATE 'ML001' OR SQLSTATE 'ML002' OR SQLSTATE 'ML003' OR SQLSTATE 'ML004' OR SQLSTATE 'ML005'
        OR SQLSTATE 'ML008' OR SQLSTATE 'ML009' OR SQLSTATE 'ML015'
        OR data_exception OR program_limit_exceeded OR syntax_error_or_access_rule_violation
            OR integrity_constraint_violation OR feature_not_supported OR external_routine_exception THEN
        new_problem := left(SQLERRM, 1000);
        -- Too few examples wait for more; a limit of the tenant may be lifted.
        new_not_before := CASE WHEN SQLSTATE <> 'ML002' THEN clock_timestamp() + interval '1 minute' END;
    END;
    UPDATE easeml.tasks t SET n_seen_changes = coalesce(n_changes, -1), n_pending = coalesce(new_n_pending,
        t.n_pending), pending_since = new_pending_since, problem = new_problem, not_before = new_not_before,
        wanted_at = CASE WHEN new_not_before IS NOT NULL THEN t.wanted_at END WHERE t.task_id = task.task_id;
    -- At last, since the lock that it takes delays a takeover.
    PERFORM easeml.fence(jsonb_build_object('lease_number', lease_number));
    RETURN new_run_id;
END
$$;
COMMENT ON FUNCTION easeml.advance_task(bigint, bigint) IS
    'Takes the next step of a task: packs what changed and begins a run if its rule says so. Returns the run, NULL if '
    'none is due, or 0 if the task is locked, or a run of it is open or about to begin (internal).';

CREATE OR REPLACE FUNCTION easeml.start_task_run(task easeml.tasks, arms text[], reason text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    caller name := (SELECT a.rolname FROM easeml.tenant_roles r JOIN pg_roles a ON a.oid = r.role
        WHERE r.tenant = task.tenant);
    new_run_id bigint;
BEGIN
    IF caller IS NULL THEN
        PERFORM easeml.fail('ML003', format('tenant %s has no role', quote_ident(task.tenant)),
            hint => 'An administrator gives it one with easeml.adopt_tenant.');
    END IF;
    new_run_id := easeml.perform_select_models(caller, task.tenant,
        jsonb_build_object('dataset', task.task_name, 'architectures', arms, 'seed', 0, 'scheduler', 'auto',
            'visit_order', 'cyclic') || task.run_options)::bigint;
    INSERT INTO easeml.task_runs (run_id, tenant, task_id, reason)
    VALUES (new_run_id, task.tenant, task.task_id, start_task_run.reason);
    RETURN new_run_id;
END
$$;
COMMENT ON FUNCTION easeml.start_task_run(easeml.tasks, text[], text) IS
    'Begins a run of a task in the name of its tenant, within the tenant''s limits (internal).';
