-- Who else may use a dataset: behind easeml.requests, for a proven caller.

-- A tenant that keeps a grant uncommitted must not end up with an older grant than one that has granted meanwhile. A
-- row that never stays shows it: a transaction that writes the same waits until the first has ended.
CREATE OR REPLACE FUNCTION easeml.claim_name(dataset_name text, grantee regrole) RETURNS timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
    INSERT INTO easeml.dataset_grants (tenant, dataset_name, grantee)
    VALUES ('', claim_name.dataset_name, claim_name.grantee);
    DELETE FROM easeml.dataset_grants g WHERE g.tenant = '' AND g.dataset_name = claim_name.dataset_name
        AND g.grantee = claim_name.grantee;
    RETURN clock_timestamp();
EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.claim_name(text, regrole) IS 'Returns the time of a new grant, later than those of all '
    'other grants of the same name to the role; NULL while another such grant is not committed (internal).';

-- On a private server nobody connects whom nobody has let in, and predicting takes a connection. All these rights stand
-- in one row of pg_database, and nobody waits long for a transaction that keeps it.
CREATE OR REPLACE FUNCTION easeml.let_in(account regrole) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
    IF has_database_privilege(account, current_database(), 'CONNECT') THEN
        RETURN;
    ELSIF has_database_privilege(current_user, current_database(), 'CONNECT WITH GRANT OPTION') THEN
        BEGIN
            EXECUTE format('GRANT CONNECT ON DATABASE %I TO %s', current_database(), account);
            RETURN;
        EXCEPTION WHEN lock_not_available OR internal_error THEN  -- "tuple concurrently updated" is the latter
            NULL;
        END;
    END IF;
    RAISE WARNING 'role % may not connect to this database', account
        USING hint = format('Grant again later, or an administrator lets it in: GRANT CONNECT ON DATABASE %I TO %s;',
            current_database(), account);
END
$$;
COMMENT ON FUNCTION easeml.let_in(regrole) IS
    'Lets a role connect that was granted use of a dataset, if PUBLIC may not (internal).';

-- What let_in has granted, and no other grant of CONNECT: those have other grantors.
CREATE OR REPLACE FUNCTION easeml.let_out(account regrole) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_database d, aclexplode(d.datacl) a WHERE d.datname = current_database()
        AND a.grantee = account AND a.grantor = 'easeml_owner'::regrole)
        AND NOT EXISTS (SELECT FROM easeml.dataset_grants g WHERE g.grantee = account) THEN
        EXECUTE format('REVOKE CONNECT ON DATABASE %I FROM %s', current_database(), account);
    END IF;
EXCEPTION WHEN lock_not_available OR internal_error THEN
    RAISE WARNING 'role % may still connect to this database', account
        USING hint = 'It can predict nothing any more. Another transaction just changes who may connect.';
END
$$;
COMMENT ON FUNCTION easeml.let_out(regrole) IS
    'Takes back what easeml.let_in has granted, when the role may use no dataset any more (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_grant_use(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := easeml.dataset_of(caller, asker, arguments ->> 'dataset');
    account regrole := to_regrole(quote_ident(arguments ->> 'role'));
    is_late boolean;
BEGIN
    IF account IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no role %s', quote_nullable(arguments ->> 'role')),
            hint => 'An administrator makes it: CREATE ROLE name LOGIN.');
    -- All readers, or all tenants, are meaningful grantees.
    ELSIF account::text <> ALL ('{easeml_reader,easeml_tenant}') AND easeml.is_reserved(account) THEN
        PERFORM easeml.fail('ML004', format('role %s is a role of easeml or PostgreSQL, or a superuser', account),
            hint => 'Name the role that predicts, or a group: easeml_reader, easeml_tenant.');
    ELSIF arguments ->> 'serving_only' IS NULL THEN
        PERFORM easeml.fail('ML001', 'serving_only: expected true or false, got NULL');
    END IF;
    -- The time of the grant stays: it decides which of several grants of one name answers.
    INSERT INTO easeml.dataset_grants AS g (tenant, dataset_name, grantee, serving_only, granted_at)
    VALUES (asker, data.dataset_name, account, (arguments ->> 'serving_only')::boolean,
        easeml.claim_name(data.dataset_name, account))
    ON CONFLICT ON CONSTRAINT dataset_grants_pkey DO UPDATE SET serving_only = excluded.serving_only,
        granted_at = coalesce(g.granted_at, excluded.granted_at)
    RETURNING granted_at IS NULL INTO is_late;
    PERFORM easeml.let_in(account);
    IF is_late THEN
        RAISE WARNING 'a transaction that is still open lets role % use a dataset %, too', account,
            quote_literal(data.dataset_name)
            USING hint = format('The role can say %L. Grant again later for the short name.',
                asker || '.' || data.dataset_name);
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_grant_use(name, name, jsonb) IS
    'Lets a role predict, for easeml.grant_use (internal).';

CREATE OR REPLACE FUNCTION easeml.perform_revoke_use(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM easeml.dataset_grants g
    WHERE g.tenant = asker AND g.dataset_name = arguments ->> 'dataset'
        AND g.grantee = to_regrole(quote_ident(arguments ->> 'role'));
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', format('role %s has no use of a dataset %s of yours',
                quote_literal(arguments ->> 'role'), quote_literal(arguments ->> 'dataset')),
            hint => 'Only what easeml.grant_use(dataset, role) has granted can be withdrawn.');
    END IF;
    PERFORM easeml.let_out(to_regrole(quote_ident(arguments ->> 'role')));
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_revoke_use(name, name, jsonb) IS
    'Withdraws a role''s use of a dataset, for easeml.revoke_use (internal).';
