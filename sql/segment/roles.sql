-- The role that works on a node: the login role that the coordinator's service names is a member. Roles belong to the
-- cluster, so it may exist already.
DO $roles$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'easeml_segment') THEN
        CREATE ROLE easeml_segment NOLOGIN;
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = 'easeml_segment'
        AND (r.rolcanlogin OR r.rolsuper OR r.rolbypassrls OR r.rolcreaterole)) THEN
        RAISE EXCEPTION USING errcode = 'ML004',
            message = 'role easeml_segment is there already, and can log in or has further rights',
            hint = 'Drop it, and create the extension again.';
    END IF;
END
$roles$;
-- What each reader is a member of: a reader is a role through which the rows of one tenant are read.
DO $roles$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'easeml_rows') THEN
        CREATE ROLE easeml_rows NOLOGIN;
    END IF;
END
$roles$;
-- Apart from easeml_segment: what readers make here stands in the place of no function of ours.
CREATE SCHEMA easeml_rows;
COMMENT ON SCHEMA easeml_rows IS 'Copies of tenants'' rows, each within the transaction that reads it.';
GRANT USAGE, CREATE ON SCHEMA easeml_rows TO easeml_rows, easeml_segment;
COMMENT ON SCHEMA easeml_segment IS 'A node of easeml: packed rows, states, and the units that run beside them.';
