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
            WHEN 'price_lists' THEN 'WHERE NOT is_shipped'  -- CREATE EXTENSION makes the others
            WHEN 'instance_types' THEN 'WHERE price_list NOT IN (SELECT price_list FROM easeml.price_lists WHERE is_shipped)'
            WHEN 'coordinator_lease' THEN 'WHERE false'
            WHEN 'coordinators' THEN 'WHERE false'
            -- pg_dump puts this behind SELECT columns FROM table. A role goes into the dump as a name that nothing checks, since one row with
            -- a role that the other cluster lacks would fail the whole table; easeml.restore_role and easeml.restore_grantee look for it there.
            -- A role that is gone already has no name, and must not be whichever role has its number there.
            WHEN 'tenant_roles' THEN 'WHERE false UNION ALL SELECT t.tenant, NULL, t.since, a.rolname FROM easeml.tenant_roles t JOIN pg_catalog.pg_roles a ON a.oid = t.role'
            WHEN 'dataset_grants' THEN 'WHERE false UNION ALL SELECT g.tenant, g.dataset_name, NULL, g.granted_at, g.serving_only, a.rolname'
                || ' FROM easeml.dataset_grants g JOIN pg_catalog.pg_roles a ON a.oid = g.grantee'
            ELSE '' END);
    END LOOP;
END
$dump$;
