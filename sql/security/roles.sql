-- Group roles. They belong to the cluster, not to the database, so they may exist already.
DO $roles$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['easeml_admin', 'easeml_coordinator', 'easeml_tenant', 'easeml_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = role_name) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        END IF;
    END LOOP;
END
$roles$;
COMMENT ON SCHEMA easeml IS 'Model selection, training and prediction where the data lives.';
