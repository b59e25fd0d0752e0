-- Without this, a dump would contain the extension but none of its rows.
DO $dump$
DECLARE
    item record;
    -- A setting that pg_dump, pg_restore and psql with a plain dump make, and no other session. Functions of easeml
    -- have a search_path of their own, so what they insert in such a session is no restore.
    is_restore text := $$current_setting('row_security') = 'off' AND current_setting('check_function_bodies') = 'off'
        AND current_setting('search_path') = '' AND current_setting('is_superuser') = 'on'$$;
    -- Tables of which a dump has all rows: that a restore brings them all can be counted.
    counts text := (SELECT string_agg(format('(%L, (SELECT count(*) FROM %s))', c.relname, c.oid::regclass),
            ', ' ORDER BY c.relname) FROM pg_catalog.pg_class c
        WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind = 'r' AND c.relname NOT IN
            ('segments', 'price_lists', 'instance_types', 'coordinator_lease', 'coordinators', 'tenant_roles',
                'dataset_grants', 'dumps', 'restored_tables', 'lock_holders'));
    -- Roles belong to the cluster, so a dump has none: easeml restore makes those that another cluster lacks. What lets
    -- them log in stays here.
    roles text := $$(SELECT coalesce(jsonb_object_agg(a.rolname, jsonb_build_object('login', a.rolcanlogin,
        'superuser', a.rolsuper, 'groups',
        (SELECT coalesce(jsonb_agg(g.rolname ORDER BY g.rolname), '[]') FROM pg_catalog.pg_auth_members m
            JOIN pg_catalog.pg_roles g ON g.oid = m.roleid WHERE m.member = a.oid))), '{}')
        FROM pg_catalog.pg_roles a WHERE a.rolname !~ '^pg_' AND a.rolname NOT IN ('easeml_owner', 'easeml_admin',
            'easeml_coordinator', 'easeml_tenant', 'easeml_reader') AND (a.oid = 10
            OR EXISTS (SELECT FROM pg_catalog.pg_shdepend d
                WHERE d.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass AND d.refobjid = a.oid
                AND d.dbid = (SELECT b.oid FROM pg_catalog.pg_database b
                    WHERE b.datname = pg_catalog.current_database()))
            OR EXISTS (SELECT FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles g ON g.oid = m.roleid
                WHERE m.member = a.oid
                    AND g.rolname IN ('easeml_admin', 'easeml_coordinator', 'easeml_tenant', 'easeml_reader'))))$$;
BEGIN
    FOR item IN
        SELECT c.oid::regclass AS relation, c.relname AS relation_name, c.relkind FROM pg_catalog.pg_class c
        WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind IN ('r', 'S')
    LOOP
        IF item.relkind = 'r'
            AND item.relation_name NOT IN ('coordinator_lease', 'coordinators', 'restored_tables') THEN
            EXECUTE format('CREATE OR REPLACE TRIGGER restore_1_begins BEFORE INSERT ON %s FOR EACH STATEMENT WHEN '
                '(%s) EXECUTE FUNCTION easeml.begin_restoring()', item.relation, is_restore);
            EXECUTE format('CREATE OR REPLACE TRIGGER restore_2_ends AFTER INSERT ON %s FOR EACH STATEMENT WHEN (%s) '
                'EXECUTE FUNCTION easeml.end_restoring()', item.relation, is_restore);
            EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER restore_1_begins, ENABLE '
                'ALWAYS TRIGGER restore_2_ends', item.relation);
        END IF;
        PERFORM pg_catalog.pg_extension_config_dump(item.relation, CASE item.relation_name
            WHEN 'segments' THEN 'WHERE segment_id <> 1'  -- made by CREATE EXTENSION itself
            WHEN 'price_lists' THEN 'WHERE NOT is_shipped'  -- CREATE EXTENSION makes the others
            WHEN 'instance_types'
                THEN 'WHERE price_list NOT IN (SELECT price_list FROM easeml.price_lists WHERE is_shipped)'
            WHEN 'coordinator_lease' THEN 'WHERE false'
            WHEN 'coordinators' THEN 'WHERE false'
            WHEN 'restored_tables' THEN 'WHERE false'
            WHEN 'lock_holders' THEN 'WHERE false'  -- roles and databases of this cluster
            WHEN 'dumps' THEN format('WHERE false UNION ALL SELECT easeml.version(), (SELECT jsonb_object_agg(k.name, '
                'k.n) FROM (VALUES %s) k(name, n)), %s', counts, roles)
            -- pg_dump puts this behind SELECT columns FROM table. A role goes into the dump as a name that nothing
            -- checks, since one row with a role that the other cluster lacks would fail the whole table;
            -- easeml.restore_role and easeml.restore_grantee look for it there. A role that is gone already has no
            -- name, and must not be whichever role has its number there.
            WHEN 'tenant_roles' THEN 'WHERE false UNION ALL SELECT t.tenant, NULL, t.since, a.rolname, NULL FROM '
                'easeml.tenant_roles t JOIN pg_catalog.pg_roles a ON a.oid = t.role'
            WHEN 'dataset_grants' THEN 'WHERE false UNION ALL SELECT g.tenant, g.dataset_name, NULL, '
                'g.granted_at, g.serving_only, a.rolname'
                || ' FROM easeml.dataset_grants g JOIN pg_catalog.pg_roles a ON a.oid = g.grantee'
            ELSE '' END);
    END LOOP;
END
$dump$;
-- The rows of a dump about roles and about itself are checked even while foreign keys are off.
ALTER TABLE easeml.tenant_roles ENABLE ALWAYS TRIGGER restored_role;
ALTER TABLE easeml.dataset_grants ENABLE ALWAYS TRIGGER restored_grantee;
ALTER TABLE easeml.dumps ENABLE ALWAYS TRIGGER dump_version;
-- And so are the rules of rows that stand in triggers, as CHECKs are.
ALTER TABLE easeml.trials ENABLE ALWAYS TRIGGER trial_values;
ALTER TABLE easeml.slots ENABLE ALWAYS TRIGGER slot_values;
