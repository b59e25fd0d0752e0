-- The role that works on a node: the login role that the coordinator's service names is a member. And the group of the
-- readers: of the roles through which the rows of a tenant each are read. Roles belong to the cluster, so they may
-- exist already.
DO $roles$
DECLARE
    own name;
BEGIN
    FOREACH own IN ARRAY ARRAY['easeml_segment', 'easeml_rows'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = own) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', own);
        END IF;
        IF EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = own
            AND (r.rolcanlogin OR r.rolsuper OR r.rolbypassrls OR r.rolcreaterole OR own = 'easeml_rows'
                AND EXISTS (SELECT FROM pg_catalog.pg_auth_members m WHERE m.member = r.oid))) THEN
            RAISE EXCEPTION USING errcode = 'ML004',
                message = format('role %s is there already, and can log in or has further rights', own),
                hint = 'Drop it, and create the extension again.';
        END IF;
    END LOOP;
END
$roles$;
-- Apart from easeml_segment: what readers make here stands in the place of no function of ours.
CREATE SCHEMA easeml_rows;
COMMENT ON SCHEMA easeml_rows IS 'Copies of tenants'' rows, each within the transaction that reads it.';
GRANT USAGE, CREATE ON SCHEMA easeml_rows TO easeml_rows, easeml_segment;
COMMENT ON SCHEMA easeml_segment IS 'A node of easeml: packed rows, states, and the units that run beside them.';
