-- Limits of tenants. Tenants insert rows themselves, so triggers enforce the limits, with rights to count rows that the writer cannot see.
-- They run after the row, once row-level security has let it pass, so that nobody learns another's limits by trying.
-- Limits do not apply to superusers: a restore must bring back all rows.

CREATE FUNCTION easeml.used_hours(tenant name) RETURNS double precision LANGUAGE sql STABLE AS $$
    SELECT (coalesce((SELECT u.dropped_seconds FROM easeml.tenant_usage u WHERE u.tenant = used_hours.tenant), 0)
        + coalesce((SELECT extract(epoch FROM sum(u.finished_at - u.started_at)) FROM easeml.training_units u WHERE u.tenant = used_hours.tenant)::double precision, 0)
        + coalesce((SELECT extract(epoch FROM sum(e.finished_at - e.started_at)) FROM easeml.evaluations e WHERE e.tenant = used_hours.tenant)::double precision, 0)) / 3600
$$;
COMMENT ON FUNCTION easeml.used_hours(name) IS
    'Returns the slot hours that all recorded units of a tenant took, those of dropped runs included, as far as you may see them (internal: read easeml.tenant_status).';

CREATE FUNCTION easeml.kept_bytes(tenant name) RETURNS bigint LANGUAGE sql STABLE AS $$
    -- The rows hold the lengths, so no value is read.
    SELECT coalesce((SELECT sum(octet_length(b.inputs) + octet_length(b.targets)) FROM easeml.datasets d JOIN easeml.blocks b USING (dataset_id) WHERE d.tenant = kept_bytes.tenant), 0)::bigint
        + coalesce((SELECT sum(c.n_bytes) FROM easeml.checkpoints c WHERE c.tenant = kept_bytes.tenant), 0)::bigint
$$;
COMMENT ON FUNCTION easeml.kept_bytes(name) IS 'Returns the bytes of a tenant''s packed blocks and live checkpoints (internal).';

-- Readers may know how much a tenant keeps, but not read it.
CREATE FUNCTION easeml.used_bytes(tenant name) RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN tenant = easeml.caller() OR pg_has_role(easeml.caller(), 'easeml_reader', 'USAGE') OR pg_has_role(easeml.caller(), 'easeml_coordinator', 'USAGE')
        THEN easeml.kept_bytes(tenant) END
$$;
COMMENT ON FUNCTION easeml.used_bytes(name) IS 'Returns the bytes that a tenant keeps, or NULL if you may not know (internal: read easeml.tenant_status).';

CREATE FUNCTION easeml.is_bound_by_limits() RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = easeml.caller()
$$;
COMMENT ON FUNCTION easeml.is_bound_by_limits() IS 'Says whether limits apply to the caller: to everybody but superusers (internal).';

CREATE FUNCTION easeml.check_run_limits() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    limits easeml.tenants;
    used numeric;
BEGIN
    IF NOT easeml.is_bound_by_limits() THEN
        RETURN NULL;
    END IF;
    -- Transactions that start runs of one tenant queue up here. The row is written, not only locked, so that a transaction
    -- with an older snapshot (REPEATABLE READ) fails instead of missing the run that started meanwhile.
    UPDATE easeml.tenants t SET weight = t.weight WHERE t.tenant = NEW.tenant RETURNING t.* INTO limits;
    IF limits.max_runs IS NOT NULL THEN
        SELECT count(*) INTO used FROM easeml.runs r WHERE r.tenant = NEW.tenant AND r.status IN ('queued', 'running');
        IF used > limits.max_runs THEN
            PERFORM easeml.fail('ML015', format('max_runs: %s may have %s open run(s) at a time, and this would make %s', NEW.tenant, limits.max_runs, used),
                hint => 'Wait for one, cancel one with easeml.cancel(run_id), or ask an administrator for more.');
        END IF;
    END IF;
    IF limits.max_hours IS NOT NULL THEN
        used := easeml.used_hours(NEW.tenant);
        IF used >= limits.max_hours THEN
            PERFORM easeml.fail('ML015', format('max_hours: %s may use %s slot hour(s), and has used %s', NEW.tenant, limits.max_hours, round(used, 4)),
                hint => 'Runs under way go on. Ask an administrator for more.');
        END IF;
    END IF;
    IF limits.max_bytes IS NOT NULL THEN
        used := easeml.kept_bytes(NEW.tenant);
        IF used >= limits.max_bytes THEN
            PERFORM easeml.fail('ML015', format('max_bytes: %s may keep %s bytes of packed data and states, and keeps %s', NEW.tenant, limits.max_bytes, used),
                hint => 'Remove what is not needed with easeml.drop_run or easeml.drop_dataset, or ask an administrator for more.');
        END IF;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.check_run_limits() IS 'Refuses a new or resumed run beyond the tenant''s limits (trigger).';
CREATE TRIGGER run_limits_at_start AFTER INSERT ON easeml.runs
    FOR EACH ROW WHEN (NEW.status IN ('queued', 'running')) EXECUTE FUNCTION easeml.check_run_limits();
CREATE TRIGGER run_limits_at_resume AFTER UPDATE OF status ON easeml.runs
    FOR EACH ROW WHEN (NEW.status IN ('queued', 'running') AND OLD.status NOT IN ('queued', 'running')) EXECUTE FUNCTION easeml.check_run_limits();

CREATE FUNCTION easeml.check_byte_limit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    limits record;
    used bigint;
BEGIN
    IF NOT easeml.is_bound_by_limits() THEN
        RETURN NULL;
    END IF;
    FOR limits IN SELECT t.tenant, t.max_bytes FROM easeml.tenants t WHERE t.max_bytes IS NOT NULL AND t.tenant IN (SELECT a.tenant FROM added a) LOOP
        -- Partitions come last: a transaction that packs at the same time waits here, and then counts this dataset, too.
        IF TG_TABLE_NAME = 'partitions' THEN
            PERFORM FROM easeml.tenants t WHERE t.tenant = limits.tenant FOR UPDATE;
        END IF;
        used := easeml.kept_bytes(limits.tenant);
        IF used > limits.max_bytes THEN
            PERFORM easeml.fail('ML015', format('max_bytes: %s may keep %s bytes of packed data and states, and this would make at least %s', limits.tenant, limits.max_bytes, used),
                hint => 'Remove what is not needed with easeml.drop_run or easeml.drop_dataset, or ask an administrator for more.');
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.check_byte_limit() IS 'Refuses packed data beyond the tenant''s limit (trigger).';
CREATE TRIGGER block_bytes AFTER INSERT ON easeml.blocks REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION easeml.check_byte_limit();
CREATE TRIGGER partition_bytes AFTER INSERT ON easeml.partitions REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION easeml.check_byte_limit();

CREATE FUNCTION easeml.keep_hours() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO easeml.tenant_usage AS u (tenant, dropped_seconds)
    SELECT OLD.tenant, extract(epoch FROM sum(s.seconds))::double precision
    FROM (SELECT t.finished_at - t.started_at AS seconds FROM easeml.training_units t WHERE t.run_id = OLD.run_id
        UNION ALL SELECT e.finished_at - e.started_at FROM easeml.evaluations e WHERE e.run_id = OLD.run_id) s
    HAVING count(*) > 0
    ON CONFLICT (tenant) DO UPDATE SET dropped_seconds = u.dropped_seconds + EXCLUDED.dropped_seconds;
    RETURN OLD;
END
$$;
COMMENT ON FUNCTION easeml.keep_hours() IS 'Adds the slot seconds of a dropped run to what its tenant has used (trigger).';
CREATE TRIGGER run_hours BEFORE DELETE ON easeml.runs FOR EACH ROW EXECUTE FUNCTION easeml.keep_hours();
