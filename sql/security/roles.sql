-- Group roles. They belong to the cluster, not to the database, so they may exist already.
DO $roles$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['easeml_owner', 'easeml_admin', 'easeml_coordinator',
        'easeml_tenant', 'easeml_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = role_name) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        END IF;
    END LOOP;
    -- A user who became easeml_owner would see and write the rows of all tenants.
    IF EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = 'easeml_owner'
        AND (r.rolcanlogin OR r.rolsuper OR r.rolbypassrls OR r.rolcreaterole))
        OR EXISTS (SELECT FROM pg_catalog.pg_auth_members m WHERE m.roleid = 'easeml_owner'::regrole
            OR m.member = 'easeml_owner'::regrole AND m.roleid <> 'pg_read_all_stats'::regrole) THEN
        RAISE EXCEPTION USING errcode = 'ML004',
            message = 'role easeml_owner is there already, and can log in, has members or further rights',
            hint = 'The role must be one that nobody can become. Drop it, and create the extension again.';
    END IF;
    -- Predictions ask what kind of session they are in (prediction/serving.py); that of another role does not say.
    GRANT pg_read_all_stats TO easeml_owner;
END
$roles$;
COMMENT ON SCHEMA easeml IS 'Model selection, training and prediction where the data lives.';
