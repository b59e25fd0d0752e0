-- Limits of tenants. Runs start and resume behind easeml.requests, for a proven caller. Tenants insert blocks
-- themselves, so a trigger counts them, after the rows, once row-level security has let them pass, so that no tenant
-- learns another's limits by trying.
-- Limits do not apply to superusers: a restore must bring back all rows.

CREATE OR REPLACE FUNCTION easeml.used_hours(tenant name) RETURNS double precision
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT (coalesce((SELECT u.dropped_seconds FROM easeml.tenant_usage u WHERE u.tenant = used_hours.tenant), 0)
        + coalesce((SELECT sum(coalesce(r.slot_seconds,
                        (SELECT sum(t.slot_seconds) FROM easeml.trials t WHERE t.run_id = r.run_id))) FROM easeml.runs r
                WHERE r.tenant = used_hours.tenant), 0)) / 3600
$$;
COMMENT ON FUNCTION easeml.used_hours(name) IS
    'Returns the slot hours that all recorded units of a tenant took, those of dropped runs included, as far as you '
    'may see them (internal: read easeml.tenant_status).';

CREATE OR REPLACE FUNCTION easeml.copied_bytes(tenant name) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT least(coalesce(sum(p.n_bytes), 0), 9223372036854775807)::bigint FROM easeml.partitions p
    JOIN (SELECT DISTINCT c.dataset_id, c.partition_number, c.to_segment_id FROM easeml.row_copies c
        JOIN easeml.segments g ON g.segment_id = c.to_segment_id
        WHERE c.tenant = copied_bytes.tenant) k USING (dataset_id, partition_number)
$$;
COMMENT ON FUNCTION easeml.copied_bytes(name) IS 'Returns the bytes of a tenant''s packed rows that were copied to '
    'further nodes, as far as you may see them (internal: read easeml.tenant_status).';

-- From what is cheap to read, since it is asked at each start of a tenant with a limit: what a row takes with its
-- indexes was measured. A step records a unit or an evaluation, an epoch the metrics of its splits.
CREATE OR REPLACE FUNCTION easeml.record_bytes(run_id bigint) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT 1500 + coalesce(pg_column_size(r.search), 0) + coalesce(pg_column_size(r.search_space), 0)
        + (SELECT coalesce(sum(CASE WHEN a.opening IS NULL THEN 400 ELSE 2000 END), 0) FROM easeml.arms a
            WHERE a.run_id = r.run_id)
        + (SELECT coalesce(sum(600 + pg_column_size(t.config) + 500 * t.n_steps_done::bigint
                    + 700 * t.n_steps_done::bigint / d.n_partitions), 0) FROM easeml.trials t
            WHERE t.run_id = r.run_id)
    FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) WHERE r.run_id = record_bytes.run_id
$$;
COMMENT ON FUNCTION easeml.record_bytes(bigint) IS 'Estimates the bytes that a run, its arms, its trials, their '
    'measurements and the decisions about them take, as far as you may see them (internal: read easeml.tenant_status).';

CREATE OR REPLACE FUNCTION easeml.kept_bytes(tenant name) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- The rows hold the lengths, so no value is read; that of an encoder is what the disk holds.
    SELECT least(coalesce((SELECT sum(octet_length(b.inputs)::bigint + octet_length(b.targets)
                    + coalesce(pg_column_size(b.row_keys), pg_column_size(b.row_hashes), 0)) FROM easeml.datasets d
                JOIN easeml.blocks b USING (dataset_id) WHERE d.tenant = kept_bytes.tenant), 0)
        + coalesce((SELECT sum(p.n_bytes) FROM easeml.partitions p WHERE p.tenant = kept_bytes.tenant
                AND p.home_segment_id IS NOT NULL), 0)
        + easeml.copied_bytes(kept_bytes.tenant)
        + coalesce((SELECT sum(pg_column_size(d.encoder)) FROM easeml.datasets d WHERE d.tenant = kept_bytes.tenant), 0)
        + coalesce((SELECT sum(octet_length(e.message) + 150) FROM easeml.events e
                WHERE e.tenant = kept_bytes.tenant), 0)
        + coalesce((SELECT sum(coalesce(r.record_bytes, easeml.record_bytes(r.run_id))) FROM easeml.runs r
                WHERE r.tenant = kept_bytes.tenant), 0)
        + coalesce((SELECT sum(octet_length(a.outputs)::bigint + octet_length(a.targets)) FROM easeml.node_answers a
                WHERE a.tenant = kept_bytes.tenant), 0)
        + coalesce((SELECT sum(pg_total_relation_size(c.oid)) FROM easeml.tasks t
                JOIN pg_class c ON c.relnamespace = 'easeml_tasks'::regnamespace AND c.relname = 'task_' || t.task_id
                WHERE t.tenant = kept_bytes.tenant), 0)
        + coalesce((SELECT sum(pg_column_size(r.*)) FROM easeml.refreshes r WHERE r.tenant = kept_bytes.tenant), 0)
        + coalesce((SELECT sum(c.n_bytes) FROM easeml.checkpoints c WHERE c.tenant = kept_bytes.tenant), 0),
            9223372036854775807)::bigint
$$;
COMMENT ON FUNCTION easeml.kept_bytes(name) IS
    'Returns the bytes of a tenant''s packed blocks, copies of them on nodes, encoders, events, answers of nodes, '
    'refreshes, live checkpoints and records of runs, and what the disk holds of the examples of its tasks (internal).';

-- A tenant that is dropping a task may keep its table locked for hours; then it counts as nothing in what is shown, and
-- nobody who looks waits.
CREATE OR REPLACE FUNCTION easeml.examples_bytes(relation oid) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '20ms' AS $$
BEGIN
    RETURN pg_total_relation_size(relation);
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END
$$;
COMMENT ON FUNCTION easeml.examples_bytes(oid) IS
    'Returns the size of a table of examples, or 0 while somebody has locked it (internal).';

-- Sizes for those who may know how much a tenant keeps but not read it. It is read with the rights of its owner;
-- current_user is the role that asks.
CREATE OR REPLACE VIEW easeml.kept_sizes WITH (security_barrier) AS
SELECT k.tenant, k.n_bytes FROM (SELECT c.tenant, c.n_bytes FROM easeml.checkpoints c
    UNION ALL SELECT d.tenant, pg_column_size(d.encoder) FROM easeml.datasets d
    UNION ALL SELECT t.tenant, easeml.examples_bytes(c.oid) FROM easeml.tasks t
    JOIN pg_class c ON c.relnamespace = 'easeml_tasks'::regnamespace AND c.relname = 'task_' || t.task_id
    UNION ALL SELECT r.tenant, pg_column_size(r.*) FROM easeml.refreshes r
    UNION ALL SELECT a.tenant, octet_length(a.outputs)::bigint + octet_length(a.targets) FROM easeml.node_answers a
    UNION ALL SELECT n.tenant, coalesce(n.record_bytes, easeml.record_bytes(n.run_id)) FROM easeml.runs n
    UNION ALL SELECT e.tenant, octet_length(e.message) + 150 FROM easeml.events e) k
WHERE k.tenant = (SELECT easeml.current_tenant())
    OR (SELECT pg_has_role('easeml_reader', 'USAGE') OR pg_has_role('easeml_coordinator', 'USAGE'));
COMMENT ON VIEW easeml.kept_sizes IS 'Sizes of the stored states, encoders, tables of examples, refreshes, answers of '
    'nodes, events and records of runs whose tenants you may know (internal: read easeml.tenant_status).';
COMMENT ON COLUMN easeml.kept_sizes.tenant IS 'Tenant that owns it.';
COMMENT ON COLUMN easeml.kept_sizes.n_bytes IS 'Its size.';

CREATE OR REPLACE FUNCTION easeml.used_bytes(tenant name) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF tenant IS DISTINCT FROM easeml.current_tenant() AND NOT pg_has_role('easeml_reader', 'USAGE')
        AND NOT pg_has_role('easeml_coordinator', 'USAGE') THEN
        RETURN NULL;
    END IF;
    RETURN least((SELECT coalesce(sum(p.n_bytes - p.n_kept_bytes), 0) FROM easeml.partitions p
            WHERE p.tenant = used_bytes.tenant) + easeml.copied_bytes(used_bytes.tenant)
        + (SELECT coalesce(sum(s.n_bytes), 0) FROM easeml.kept_sizes s WHERE s.tenant = used_bytes.tenant),
            9223372036854775807);
END
$$;
COMMENT ON FUNCTION easeml.used_bytes(name) IS
    'Returns the bytes that a tenant keeps, or NULL if you may not know (internal: read easeml.tenant_status).';

CREATE OR REPLACE FUNCTION easeml.is_bound_by_limits(role name) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT NOT r.rolsuper FROM pg_roles r WHERE r.rolname = role);
END
$$;
COMMENT ON FUNCTION easeml.is_bound_by_limits(name) IS
    'Returns whether limits apply to a role: to all but superusers (internal).';

-- Each run that a tenant starts or resumes moves its clock on, by a quarter of a second and a millisecond for each
-- trial. Where that clock is more than five seconds ahead, the next start waits for it, whoever else has runs: what is
-- queued and recorded while nobody looks is still there when somebody comes. The clock is not kept in any run, so
-- dropping runs gives nothing back.
CREATE OR REPLACE FUNCTION easeml.seconds_ahead(asker name) RETURNS double precision
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ahead double precision := (SELECT extract(epoch FROM r.paced_until - clock_timestamp()) - 5
        FROM easeml.tenant_roles r WHERE r.tenant = asker);
BEGIN
    RETURN greatest(coalesce(ahead, 0), 0);
END
$$;
COMMENT ON FUNCTION easeml.seconds_ahead(name) IS
    'Returns how long a tenant should wait before it starts another run (internal).';

-- The service, which holds a task by then, neither waits for the row that a tenant's transaction holds, nor packs in
-- vain because of it, nor keeps the row while it packs.
CREATE OR REPLACE FUNCTION easeml.is_starting_runs(asker name) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_free boolean := false;
BEGIN
    BEGIN
        PERFORM FROM easeml.tenant_roles r WHERE r.tenant = asker FOR NO KEY UPDATE SKIP LOCKED;
        is_free := FOUND;
        RAISE lock_not_available;  -- gives the row back
    EXCEPTION WHEN lock_not_available THEN
        RETURN NOT is_free AND EXISTS (SELECT FROM easeml.tenant_roles r WHERE r.tenant = asker);
    END;
END
$$;
COMMENT ON FUNCTION easeml.is_starting_runs(name) IS
    'Returns whether a tenant has an open transaction that is about to begin a run, or has begun one (internal).';

CREATE OR REPLACE FUNCTION easeml.await_pace(caller name, asker name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF easeml.seconds_ahead(asker) = 0 OR NOT easeml.is_bound_by_limits(caller) THEN
        RETURN;
    END IF;
    -- Sessions of one tenant wait for one another; no other role needs the row.
    PERFORM FROM easeml.tenant_roles r WHERE r.tenant = asker FOR NO KEY UPDATE;
    PERFORM pg_sleep(easeml.seconds_ahead(asker));
END
$$;
COMMENT ON FUNCTION easeml.await_pace(name, name) IS
    'Waits, for ten seconds at most, while a tenant starts runs faster than its clock allows (internal).';

CREATE OR REPLACE FUNCTION easeml.check_max_runs(asker name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most integer;
    used bigint;
BEGIN
    SELECT t.max_runs INTO most FROM easeml.tenants t WHERE t.tenant = asker;
    IF NOT FOUND THEN
        most := coalesce((SELECT y.default_max_runs FROM easeml.tenancy y), 100);
    END IF;
    IF most IS NOT NULL THEN
        SELECT count(*) + 1 INTO used FROM easeml.runs r WHERE r.tenant = asker AND r.is_open;
        IF used > most THEN
            PERFORM easeml.fail('ML015',
                format('max_runs: %s may have %s open run(s) at a time, and this would make %s', asker, most, used),
                hint => 'Wait for one, cancel one with easeml.cancel(run_id), or ask an administrator for more.');
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_max_runs(name) IS
    'Refuses another open run if its tenant would have more than it may (internal).';

CREATE OR REPLACE FUNCTION easeml.check_run_limits(caller name, asker name, n_trials bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    limits easeml.tenants;
    used numeric;
BEGIN
    IF NOT easeml.is_bound_by_limits(caller) THEN
        RETURN;
    END IF;
    -- Transactions that start runs of one tenant queue up here. Rows are written, not only locked, so that a
    -- transaction with an older snapshot (REPEATABLE READ) fails instead of missing the run that started meanwhile, or
    -- a limit that was lowered.
    UPDATE easeml.tenant_roles r SET paced_until = least(greatest(r.paced_until, clock_timestamp())
        + make_interval(secs => 0.25 + n_trials / 1000.0), clock_timestamp() + interval '15 seconds')
    WHERE r.tenant = asker;
    UPDATE easeml.tenants t SET weight = t.weight WHERE t.tenant = asker RETURNING t.* INTO limits;
    PERFORM easeml.check_max_runs(asker);
    IF limits.max_hours IS NOT NULL THEN
        used := easeml.used_hours(asker);
        IF used >= limits.max_hours THEN
            PERFORM easeml.fail('ML015', format('max_hours: %s may use %s slot hour(s), and has used %s', asker,
                    limits.max_hours, round(used, 4)),
                hint => 'Runs under way go on. Ask an administrator for more.');
        END IF;
    END IF;
    IF limits.max_bytes IS NOT NULL THEN
        used := easeml.kept_bytes(asker);
        IF used >= limits.max_bytes THEN
            PERFORM easeml.fail('ML015',
                format('max_bytes: %s may keep %s bytes of packed data, states and records of runs, and keeps %s',
                    asker, limits.max_bytes, used),
                hint => 'Remove what is not needed with easeml.drop_run or easeml.drop_dataset, or ask '
                    'an administrator for more.');
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_run_limits(name, name, bigint) IS
    'Refuses another open run with that many trials if its tenant would exceed its limits (internal).';

CREATE OR REPLACE FUNCTION easeml.check_kept_bytes(tenant name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most bigint := (SELECT t.max_bytes FROM easeml.tenants t WHERE t.tenant = check_kept_bytes.tenant);
    used bigint := CASE WHEN most IS NOT NULL THEN easeml.kept_bytes(tenant) END;
BEGIN
    IF used > most THEN
        PERFORM easeml.fail('ML015', format('max_bytes: %s may keep %s bytes of packed data, states and records of '
                'runs, and this would make at least %s', tenant, most, used),
            hint => 'Remove what is not needed with easeml.drop_run or easeml.drop_dataset, or ask '
                'an administrator for more.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_kept_bytes(name) IS 'Refuses if a tenant keeps more bytes than its limit (internal).';

CREATE OR REPLACE FUNCTION easeml.add_bytes(tenant name, transaction text, n_bytes bigint) RETURNS bigint
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.server.kept_bytes import add_bytes
return add_bytes(plpy, GD, tenant, transaction, n_bytes)
$$;
COMMENT ON FUNCTION easeml.add_bytes(name, text, bigint) IS 'Adds to the count of bytes that a tenant keeps, and '
    'returns it; NULL if this transaction has not counted yet (internal).';

CREATE OR REPLACE FUNCTION easeml.begin_count(tenant name, transaction text, n_bytes bigint) RETURNS bigint
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.server.kept_bytes import begin_count
return begin_count(plpy, GD, tenant, transaction, n_bytes)
$$;
COMMENT ON FUNCTION easeml.begin_count(name, text, bigint) IS
    'Begins the count of bytes that a tenant keeps, for easeml.add_bytes (internal).';

CREATE OR REPLACE FUNCTION easeml.check_byte_limit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    limited record;
    this_transaction text := pg_current_xact_id()::text;
    n_bytes bigint;
BEGIN
    FOR limited IN SELECT t.tenant, t.max_bytes FROM easeml.tenants t WHERE t.max_bytes IS NOT NULL
        AND t.tenant IN (SELECT a.tenant FROM added a) LOOP
        IF TG_TABLE_NAME = 'partitions' THEN
            -- Partitions come last: a transaction that packs at the same time waits here, and then counts this dataset,
            -- too. The row is written, so that one with an older snapshot, which cannot count it, fails.
            UPDATE easeml.tenants t SET weight = t.weight WHERE t.tenant = limited.tenant;
            PERFORM easeml.check_kept_bytes(limited.tenant);
            CONTINUE;
        END IF;
        -- Only the first block, and one that may be beyond the limit, is worth a sum over all.
        SELECT sum(octet_length(a.inputs)::bigint + octet_length(a.targets) + coalesce(pg_column_size(a.row_keys),
                pg_column_size(a.row_hashes), 0))
        INTO n_bytes FROM added a WHERE a.tenant = limited.tenant;
        IF coalesce(easeml.add_bytes(limited.tenant, this_transaction, n_bytes) > limited.max_bytes, true)
            AND easeml.begin_count(limited.tenant, this_transaction,
                easeml.kept_bytes(limited.tenant)) > limited.max_bytes THEN
            PERFORM easeml.check_kept_bytes(limited.tenant);
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.check_byte_limit() IS 'Refuses packed data beyond the tenant''s limit (trigger).';
-- The condition is evaluated for the inserting role: easeml_owner adds the partitions, a tenant the blocks, a superuser
-- who restores a dump both.
CREATE OR REPLACE TRIGGER block_bytes AFTER INSERT ON easeml.blocks REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT WHEN (easeml.is_bound_by_limits(current_user)) EXECUTE FUNCTION easeml.check_byte_limit();
CREATE OR REPLACE TRIGGER partition_bytes AFTER INSERT ON easeml.partitions REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT WHEN (easeml.is_bound_by_limits(current_user)) EXECUTE FUNCTION easeml.check_byte_limit();

-- Requests count what their own transaction sees. Transactions side by side count again before they end, one after
-- another: so a tenant's row is held for a moment only, and by that tenant. It is written, so that one with an older
-- snapshot fails.
CREATE OR REPLACE FUNCTION easeml.refuse_too_many() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most integer := CASE TG_TABLE_NAME WHEN 'tasks' THEN 1000 ELSE 20 END;
    n bigint;
BEGIN
    UPDATE easeml.tenant_roles r SET paced_until = r.paced_until WHERE r.tenant = NEW.tenant;
    IF TG_TABLE_NAME = 'tasks' THEN
        n := (SELECT count(*) FROM easeml.tasks t WHERE t.tenant = NEW.tenant);
    ELSIF TG_TABLE_NAME = 'packings' THEN
        n := (SELECT count(*) FROM easeml.packings k WHERE k.tenant = NEW.tenant);
    ELSIF TG_TABLE_NAME = 'node_jobs' THEN
        n := (SELECT count(*) FROM easeml.node_jobs j WHERE j.tenant = NEW.tenant AND j.ended_at IS NULL);
    ELSE
        n := (SELECT count(*) FROM easeml.labelling_functions f WHERE f.task_id = NEW.task_id);
    END IF;
    IF n > most THEN
        PERFORM easeml.fail('ML015',
            format('%s: %s at most, and with those of your other transactions this would make %s',
                translate(TG_TABLE_NAME, '_', ' '), most, n),
            hint => 'Another transaction of yours was faster. Remove some, or wait until they are done.');
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.refuse_too_many() IS 'Refuses to commit what is more than a tenant may have, counted with '
    'what its other transactions have added meanwhile (trigger).';
DROP TRIGGER IF EXISTS task_count ON easeml.tasks;
CREATE CONSTRAINT TRIGGER task_count AFTER INSERT ON easeml.tasks DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (easeml.is_bound_by_limits(current_user)) EXECUTE FUNCTION easeml.refuse_too_many();
DROP TRIGGER IF EXISTS packing_count ON easeml.packings;
CREATE CONSTRAINT TRIGGER packing_count AFTER INSERT ON easeml.packings DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (easeml.is_bound_by_limits(current_user)) EXECUTE FUNCTION easeml.refuse_too_many();
DROP TRIGGER IF EXISTS job_count ON easeml.node_jobs;
CREATE CONSTRAINT TRIGGER job_count AFTER INSERT ON easeml.node_jobs DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (easeml.is_bound_by_limits(current_user)) EXECUTE FUNCTION easeml.refuse_too_many();
DROP TRIGGER IF EXISTS labelling_function_count ON easeml.labelling_functions;
CREATE CONSTRAINT TRIGGER labelling_function_count AFTER INSERT
    ON easeml.labelling_functions DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (easeml.is_bound_by_limits(current_user)) EXECUTE FUNCTION easeml.refuse_too_many();

CREATE OR REPLACE FUNCTION easeml.check_example_limit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    limited easeml.tenants;
    used bigint;
BEGIN
    SELECT t.* INTO limited FROM easeml.tasks k JOIN easeml.tenants t USING (tenant)
    WHERE k.task_id = substr(TG_TABLE_NAME, 6)::bigint AND t.max_bytes IS NOT NULL;
    used := CASE WHEN FOUND THEN easeml.kept_bytes(limited.tenant) END;
    -- Beforehand, as for runs: the disk would hold what a refused statement has written until a vacuum.
    IF used >= limited.max_bytes THEN
        PERFORM easeml.fail('ML015',
            format('max_bytes: %s may keep %s bytes of examples, packed data, states and records of runs, and keeps %s',
                limited.tenant, limited.max_bytes, used),
            hint => 'Remove what is not needed with easeml.drop_run, easeml.drop_dataset or easeml.drop_task, or ask '
                'an administrator for more.');
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.check_example_limit() IS
    'Refuses further examples if the tenant of the task already keeps as much as it may (trigger).';

CREATE OR REPLACE FUNCTION easeml.keep_hours() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO easeml.tenant_usage AS u (tenant, dropped_seconds)
    SELECT OLD.tenant, t.seconds
    FROM (SELECT sum(k.slot_seconds) AS seconds FROM easeml.trials k WHERE k.run_id = OLD.run_id) t WHERE t.seconds > 0
    ON CONFLICT (tenant) DO UPDATE SET dropped_seconds = u.dropped_seconds + EXCLUDED.dropped_seconds;
    RETURN OLD;
END
$$;
COMMENT ON FUNCTION easeml.keep_hours() IS
    'Adds the slot seconds of a dropped run to what its tenant has used (trigger).';
CREATE OR REPLACE TRIGGER run_hours BEFORE DELETE ON easeml.runs FOR EACH ROW EXECUTE FUNCTION easeml.keep_hours();

-- The service may add to what a tenant has used, and nothing else. Its loop waits meanwhile, so it hardly waits for a
-- lock of the tenant.
CREATE OR REPLACE FUNCTION easeml.charge(tenant name, seconds double precision) RETURNS name
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5ms' AS $$
    INSERT INTO easeml.tenant_usage AS u (tenant, dropped_seconds) VALUES (charge.tenant, greatest(charge.seconds, 0))
    ON CONFLICT (tenant) DO UPDATE SET dropped_seconds = u.dropped_seconds + EXCLUDED.dropped_seconds RETURNING u.tenant
$$;
COMMENT ON FUNCTION easeml.charge(name, double precision) IS
    'Adds the slot seconds of units that failed or were cancelled to a tenant''s usage (internal).';
