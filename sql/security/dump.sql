-- Without this, a dump would contain the extension but none of its rows.
DO $dump$
DECLARE
    item record;
BEGIN
    FOR item IN
        SELECT c.oid::regclass AS relation, c.relname AS relation_name FROM pg_catalog.pg_class c
        WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind IN ('r', 'S')
    LOOP
        PERFORM pg_catalog.pg_extension_config_dump(item.relation, CASE item.relation_name
            WHEN 'segments' THEN 'WHERE segment_id <> 1'  -- made by CREATE EXTENSION itself
            WHEN 'coordinator_lease' THEN 'WHERE false'
            WHEN 'coordinators' THEN 'WHERE false'
            -- A role that is gone would come back as a number, and be whichever role has that number in the other cluster.
            WHEN 'tenant_roles' THEN 'WHERE role IN (SELECT oid FROM pg_catalog.pg_roles)'
            WHEN 'dataset_grants' THEN 'WHERE grantee IN (SELECT oid FROM pg_catalog.pg_roles)'
            ELSE '' END);
    END LOOP;
END
$dump$;
