-- The rest of this script finds only what it names, whatever search_path the installer has.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

-- CREATE EXTENSION takes a schema easeml that is there already. Its owner could replace what superusers call.
DO $install$
DECLARE
    place pg_catalog.pg_namespace;
    foreigner text;
BEGIN
    SELECT n.* INTO STRICT place FROM pg_catalog.pg_namespace n WHERE n.nspname = '@extschema@';
    SELECT r.rolname INTO foreigner FROM pg_catalog.pg_roles r
    WHERE NOT r.rolsuper AND (r.oid = place.nspowner OR EXISTS (
        SELECT FROM pg_catalog.aclexplode(place.nspacl) a WHERE a.privilege_type = 'CREATE'
            AND a.grantee IN (0, r.oid))) LIMIT 1;
    IF foreigner IS NOT NULL THEN
        RAISE EXCEPTION USING errcode = 'ML004', message
            = pg_catalog.format('schema @extschema@ is there already, and role %s can create objects in it', foreigner),
            hint = 'Look what it holds, rename or drop it, and create the extension again.';
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass
        AND d.refobjid = place.oid
        AND d.classid <> 'pg_catalog.pg_extension'::pg_catalog.regclass) THEN
        RAISE EXCEPTION USING errcode = 'ML004', message = 'schema @extschema@ is there already, and holds objects',
            hint = 'Look what it holds, rename or drop it, and create the extension again.';
    END IF;
END
$install$;
