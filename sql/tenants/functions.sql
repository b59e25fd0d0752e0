-- Tenants and their settings. Only administrators call these, and a running coordinator finds each change.

CREATE OR REPLACE FUNCTION easeml.check_tenant(
    weight double precision,
    deadline timestamptz,
    max_runs integer,
    max_slots integer,
    max_bytes bigint,
    max_hours double precision
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT (weight > 0 AND weight < 'Infinity') THEN
        PERFORM easeml.fail('ML001', format('weight: expected a positive number, got %s', weight),
            hint => '1 is the weight of everybody else; 2 is twice their share.');
    END IF;
    IF NOT (deadline > clock_timestamp() AND isfinite(deadline)) THEN
        PERFORM easeml.fail('ML001', format('deadline: expected a time in the future, got %s', deadline),
            hint => 'Leave it out, or clear it, for none.');
    END IF;
    IF max_runs <= 0 THEN
        PERFORM easeml.fail('ML001', format('max_runs: expected a positive number, got %s', max_runs),
            hint => 'Leave it out, or clear it, for no limit.');
    END IF;
    IF max_slots <= 0 THEN
        PERFORM easeml.fail('ML001', format('max_slots: expected a positive number, got %s', max_slots),
            hint => 'Leave it out, or clear it, for no limit.');
    END IF;
    IF max_bytes <= 0 THEN
        PERFORM easeml.fail('ML001', format('max_bytes: expected a positive number, got %s', max_bytes),
            hint => 'Leave it out, or clear it, for no limit.');
    END IF;
    IF NOT (max_hours > 0 AND max_hours < 'Infinity') THEN
        PERFORM easeml.fail('ML001', format('max_hours: expected a positive number, got %s', max_hours),
            hint => 'Leave it out, or clear it, for no limit.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_tenant(double precision, timestamptz, integer, integer, bigint, double precision) IS
    'Refuses settings that no tenant can have; NULL passes (internal).';

CREATE OR REPLACE FUNCTION easeml.tenant_named(role text) RETURNS name
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- A tenant whose role is gone, or bears another name now, is found by its own name.
    RETURN coalesce((SELECT t.tenant FROM easeml.tenant_roles t
            WHERE t.role = to_regrole(quote_ident(tenant_named.role))),
        (SELECT t.tenant FROM easeml.tenants t WHERE t.tenant::text = tenant_named.role));
END
$$;
COMMENT ON FUNCTION easeml.tenant_named(text) IS
    'Returns the tenant that a role is, or that had settings under that name; NULL if there is none (internal).';

CREATE OR REPLACE FUNCTION easeml.find_tenant(role text) RETURNS easeml.tenants LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    found easeml.tenants;
BEGIN
    -- Lock the row, so that no run of the tenant starts meanwhile.
    SELECT t.* INTO found FROM easeml.tenants t WHERE t.tenant = easeml.tenant_named(role) FOR UPDATE;
    IF found.tenant IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no tenant %s', quote_nullable(role)),
            hint => coalesce((SELECT format('The role exists; make it one: SELECT easeml.create_tenant(%L).', r.rolname)
                    FROM pg_catalog.pg_roles r WHERE r.rolname::text = find_tenant.role),
                'SELECT tenant FROM easeml.tenant_status lists them.'));
    END IF;
    RETURN found;
EXCEPTION WHEN lock_not_available THEN
    PERFORM easeml.fail('ML016', format('tenant %s starts a run in a transaction that is still open', role),
        hint => 'Try again, or end that session: pg_stat_activity shows it, pg_terminate_backend(pid) ends it.');
END
$$;
COMMENT ON FUNCTION easeml.find_tenant(text) IS 'Returns and locks the row of a tenant, or raises an error (internal).';

-- SECURITY DEFINER, because easeml_admin may not grant easeml_tenant; the function grants it, writes the row, and does
-- no more.
CREATE OR REPLACE FUNCTION easeml.create_tenant(
    role text,
    weight double precision DEFAULT 1,
    deadline timestamptz DEFAULT NULL,
    max_runs integer DEFAULT NULL,
    max_slots integer DEFAULT NULL,
    max_bytes bigint DEFAULT NULL,
    max_hours double precision DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    account pg_catalog.pg_roles;
BEGIN
    SELECT r.* INTO account FROM pg_catalog.pg_roles r WHERE r.rolname::text = create_tenant.role;
    IF account.rolname IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no role %s', quote_nullable(role)),
            hint => 'Create it first: CREATE ROLE name LOGIN.');
    -- A superuser bypasses row-level security and can disable triggers, so limits would not hold.
    ELSIF account.rolsuper THEN
        PERFORM easeml.fail('ML004', format('role %s is a superuser, whom no limit binds', role),
            hint => 'Let it work under a role of its own.');
    -- A grant to a group reaches all its members: those of easeml_reader would become tenants unasked. The service
    -- sees all rows, so nothing would bind it.
    ELSIF easeml.is_reserved(account.oid) OR pg_has_role('easeml_tenant', account.oid, 'MEMBER') THEN
        PERFORM easeml.fail('ML004', format('role %s is a role of easeml or PostgreSQL, with a meaning of its own',
            role), hint => 'Name another role: CREATE ROLE name LOGIN.');
    END IF;
    IF weight IS NULL THEN
        PERFORM easeml.fail('ML001', 'weight: expected a positive number, got NULL', hint => 'Leave it out for 1.');
    END IF;
    PERFORM easeml.check_tenant(weight, deadline, max_runs, max_slots, max_bytes, max_hours);
    INSERT INTO easeml.tenants (tenant, weight, deadline, max_runs, max_slots, max_bytes, max_hours)
    VALUES (easeml.register_tenant(account.rolname), create_tenant.weight, create_tenant.deadline,
        create_tenant.max_runs, create_tenant.max_slots, create_tenant.max_bytes, create_tenant.max_hours)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML004', format('role %s is a tenant already', role),
            hint => format('Change it: SELECT easeml.alter_tenant(%L, ...).', role));
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_auth_members m WHERE m.roleid = 'easeml_tenant'::regrole
        AND m.member = account.oid) THEN
        EXECUTE format('GRANT easeml_tenant TO %I', account.rolname);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.create_tenant(text, double precision, timestamptz, integer,
    integer, bigint, double precision) IS
$$Makes an existing role a tenant: grants it easeml_tenant and records its weight, deadline and limits. NULL means no
deadline or no limit.
weight: share of the slots relative to other tenants. deadline: when its runs should have ended. max_runs: queued and
    running runs at a time.
max_slots: slots at a time. max_bytes: packed rows (copies on nodes included), kept states, examples of tasks, encoders,
    events, refreshes, answers of nodes and records of runs, trials and measurements. max_hours: slot
    hours of all its units.$$;

CREATE OR REPLACE FUNCTION easeml.alter_tenant(
    role text,
    weight double precision DEFAULT NULL,
    deadline timestamptz DEFAULT NULL,
    max_runs integer DEFAULT NULL,
    max_slots integer DEFAULT NULL,
    max_bytes bigint DEFAULT NULL,
    max_hours double precision DEFAULT NULL,
    clear text[] DEFAULT '{}'
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    settings text[] := ARRAY['weight', 'deadline', 'max_runs', 'max_slots', 'max_bytes', 'max_hours'];
    given text[] := array_remove(ARRAY[CASE WHEN weight IS NOT NULL THEN 'weight' END,
            CASE WHEN deadline IS NOT NULL THEN 'deadline' END,
        CASE WHEN max_runs IS NOT NULL THEN 'max_runs' END, CASE WHEN max_slots IS NOT NULL THEN 'max_slots' END,
        CASE WHEN max_bytes IS NOT NULL THEN 'max_bytes' END,
        CASE WHEN max_hours IS NOT NULL THEN 'max_hours' END], NULL);
    setting text;
    old easeml.tenants;
BEGIN
    clear := coalesce(clear, '{}');
    FOREACH setting IN ARRAY clear LOOP
        IF setting IS NULL OR setting <> ALL (settings) THEN
            PERFORM easeml.fail('ML001', format('clear: expected names of settings, got %s', quote_nullable(setting)),
                hint => 'There are: ' || array_to_string(settings, ', ') || '.');
        ELSIF setting = ANY (given) THEN
            PERFORM easeml.fail('ML001', format('clear: %s is set and cleared at once', setting),
                hint => 'Say one of the two.');
        END IF;
    END LOOP;
    PERFORM easeml.check_tenant(weight, deadline, max_runs, max_slots, max_bytes, max_hours);
    old := easeml.find_tenant(role);
    UPDATE easeml.tenants t SET
        weight = CASE WHEN 'weight' = ANY (clear) THEN 1 ELSE coalesce(alter_tenant.weight, t.weight) END,
        deadline = CASE WHEN 'deadline' = ANY (clear) THEN NULL ELSE coalesce(alter_tenant.deadline, t.deadline) END,
        max_runs = CASE WHEN 'max_runs' = ANY (clear) THEN NULL ELSE coalesce(alter_tenant.max_runs, t.max_runs) END,
        max_slots = CASE WHEN 'max_slots' = ANY (clear) THEN NULL
            ELSE coalesce(alter_tenant.max_slots, t.max_slots) END,
        max_bytes = CASE WHEN 'max_bytes' = ANY (clear) THEN NULL
            ELSE coalesce(alter_tenant.max_bytes, t.max_bytes) END,
        max_hours = CASE WHEN 'max_hours' = ANY (clear) THEN NULL ELSE coalesce(alter_tenant.max_hours, t.max_hours) END
    WHERE t.tenant = old.tenant;
END
$$;
COMMENT ON FUNCTION easeml.alter_tenant(text, double precision, timestamptz, integer, integer,
    bigint, double precision, text[]) IS
$$Changes the settings of a tenant that you give and leaves the others. clear: names of settings to reset to their
default, for example {deadline,max_runs}.
A lower limit takes nothing back: open runs continue and stored data stays.$$;

-- Revoking needs the same rights as granting.
CREATE OR REPLACE FUNCTION easeml.drop_tenant(role text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old easeml.tenants := easeml.find_tenant(role);
    account regrole := (SELECT t.role FROM easeml.tenant_roles t WHERE t.tenant = old.tenant);
    grantor text;
    open_runs text;
BEGIN
    SELECT string_agg(r.run_id::text, ', ' ORDER BY r.run_id) INTO open_runs FROM easeml.runs r
    WHERE r.tenant = old.tenant AND r.status IN ('queued', 'running');
    IF open_runs IS NOT NULL THEN
        PERFORM easeml.fail('ML004', format('tenant %s has open runs: %s', role, open_runs),
            hint => 'Wait for them, or cancel them: SELECT easeml.cancel(run_id).');
    END IF;
    DELETE FROM easeml.tenants t WHERE t.tenant = old.tenant;
    -- From PostgreSQL 16 on, each grantor has a grant of its own. A dropped role has none.
    FOR grantor IN SELECT m.grantor::regrole::text FROM pg_catalog.pg_auth_members m
        WHERE m.roleid = 'easeml_tenant'::regrole AND m.member = account LOOP
        EXECUTE format('REVOKE easeml_tenant FROM %s GRANTED BY %s', account, grantor);
    END LOOP;
    IF EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = account
        AND pg_has_role(r.oid, 'easeml_tenant', 'MEMBER')) THEN
        RAISE WARNING 'role % is still a member of easeml_tenant through another role',
            account USING hint = 'Until that ends it may go on, with weight 1 and no limits.';
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.drop_tenant(text) IS
    'Withdraws easeml_tenant and all settings from a role without open runs. Its datasets, runs and results stay.';

CREATE OR REPLACE FUNCTION easeml.adopt_tenant(tenant text, role text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    account regrole := to_regrole(quote_ident(adopt_tenant.role));
    adopted name := (SELECT d.tenant FROM (SELECT t.tenant FROM easeml.tenant_roles t UNION SELECT s.tenant
            FROM easeml.datasets s UNION SELECT l.tenant FROM easeml.tenants l) d
        WHERE d.tenant::text = adopt_tenant.tenant);
BEGIN
    IF account IS NULL OR adopted IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no %s %s', CASE WHEN account IS NULL THEN 'role'
                    ELSE 'tenant' END, quote_nullable(CASE WHEN account IS NULL THEN role ELSE tenant END)));
    ELSIF easeml.is_reserved(account) THEN
        PERFORM easeml.fail('ML004', format('role %s is a role of easeml or PostgreSQL, or a superuser', account),
            hint => 'Name another role: CREATE ROLE name LOGIN.');
    ELSIF EXISTS (SELECT FROM easeml.tenant_roles t JOIN pg_roles r ON r.oid = t.role
        WHERE t.tenant = adopted AND t.role <> account) THEN
        PERFORM easeml.fail('ML004', format('tenant %s has a role: %s', adopted,
                (SELECT t.role FROM easeml.tenant_roles t WHERE t.tenant = adopted)),
            hint => 'Only the rows of a role that was dropped can be handed on.');
    ELSIF EXISTS (SELECT FROM easeml.tenant_roles t JOIN (SELECT d.tenant FROM easeml.datasets d UNION ALL
            SELECT k.tenant FROM easeml.tasks k UNION ALL SELECT p.tenant FROM easeml.packings p) o USING (tenant)
        WHERE t.role = account AND t.tenant <> adopted) THEN
        PERFORM easeml.fail('ML004', format('role %s has datasets or tasks of its own', account),
            hint => 'Name a role that has none, or drop them first.');
    END IF;
    -- Its own settings go with its own name: those of the tenant that it is now hold.
    DELETE FROM easeml.tenants l USING easeml.tenant_roles t WHERE t.role = account
        AND t.tenant <> adopted AND l.tenant = t.tenant;
    DELETE FROM easeml.tenant_roles t WHERE t.tenant = adopted OR t.role = account;
    INSERT INTO easeml.tenant_roles (tenant, role) VALUES (adopted, account);
END
$$;
COMMENT ON FUNCTION easeml.adopt_tenant(text, text) IS
    'Hands the datasets, runs and settings of a tenant whose role was dropped to another role, for example to a new '
    'role of the same name; the other role''s own settings go. Administrators only.';
