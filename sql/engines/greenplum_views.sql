-- easeml inside Greenplum: scripts for a superuser of the cluster. No function here connects to it, so no secret of it
-- is on this server.

CREATE OR REPLACE FUNCTION easeml.greenplum_script(offered jsonb, address text) RETURNS text
LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.nodes.greenplum.greenplum_views import installation_script
from easeml_plpy.server.entry_points import guarded
return guarded(plpy, installation_script, offered, address)
$$;
COMMENT ON FUNCTION easeml.greenplum_script(jsonb, text) IS 'Returns the script that makes views and functions of this '
    'server in a Greenplum database (internal: call easeml.install_greenplum_views).';

CREATE OR REPLACE FUNCTION easeml.connection_word(name text, value text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s=''%s''', name, replace(replace(value, '\', '\\'), '''', '\'''))
$$;
COMMENT ON FUNCTION easeml.connection_word(text, text) IS
    'Returns a parameter of a connection string as libpq reads it; NULL for no value (internal).';

-- Types that came after PostgreSQL 9.4, and those of an extension, are read as text there.
CREATE OR REPLACE FUNCTION easeml.offered_views() RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT jsonb_agg(jsonb_build_object('name', v.relname, 'quoted', quote_ident(v.relname), 'remark',
            obj_description(v.oid, 'pg_class'), 'columns', v.columns) ORDER BY v.relname)
    FROM (SELECT c.oid, c.relname, jsonb_agg(jsonb_build_array(quote_ident(a.attname),
            CASE WHEN t.typnamespace = 'pg_catalog'::regnamespace AND ltrim(t.typname, '_') IN ('bool', 'int2', 'int4',
                    'int8', 'float4', 'float8', 'numeric', 'text', 'name', 'bytea', 'date', 'timestamp',
                'timestamptz', 'interval', 'json', 'jsonb', 'uuid') THEN format_type(t.oid,
                NULL) ELSE 'text' END) ORDER BY a.attnum) AS columns
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 JOIN pg_type t ON t.oid = a.atttypid
        WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind = 'v'
            AND has_table_privilege('easeml_tenant', c.oid, 'SELECT')
        GROUP BY c.oid) v
$$;
COMMENT ON FUNCTION easeml.offered_views() IS 'Returns the views that tenants may read, with their columns, as users '
    'of a Greenplum cluster are to see them (internal).';

CREATE OR REPLACE FUNCTION easeml.offered_calls() RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT jsonb_agg(jsonb_build_object('name', p.proname, 'quoted', quote_ident(p.proname), 'remark',
            obj_description(p.oid, 'pg_proc'), 'result', format_type(p.prorettype, NULL),
        'arguments', (SELECT jsonb_agg(jsonb_build_array(quote_ident(p.proargnames[u.k]), format_type(u.type, NULL),
                    pg_get_function_arg_default(p.oid, u.k::integer)) ORDER BY u.k)
            FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS u (type, k))) ORDER BY p.proname)
    FROM pg_proc p
    WHERE p.pronamespace = 'easeml'::regnamespace AND p.prokind = 'f'
        AND p.proname
            = ANY ('{select_models,cancel,resume,drop_run,create_dataset,refresh_dataset,drop_dataset}'::name[])
$$;
COMMENT ON FUNCTION easeml.offered_calls() IS
    'Returns what users of a Greenplum cluster may call from inside, with arguments (internal).';

CREATE OR REPLACE FUNCTION easeml.install_greenplum_views(
    service text DEFAULT NULL,
    host text DEFAULT NULL,
    port integer DEFAULT NULL,
    dbname text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- What is no name may be a connection string with a password, so no error repeats it.
    IF (service IS NULL) = (host IS NULL) THEN
        PERFORM easeml.fail('ML001', 'expected service or host: how the coordinator of the cluster reaches this server',
            hint => 'service => ''name'', a section of pg_service.conf there, or host => ''name''.');
    ELSIF service !~ '^[A-Za-z0-9_.-]{1,63}$' THEN
        PERFORM easeml.fail('ML001', 'service: expected the name of a libpq service, not a connection string',
            hint => 'Write a section [name] with host, port and dbname of this server into pg_service.conf on the '
                'machine of the cluster''s coordinator.');
    ELSIF host !~ '^[A-Za-z0-9_.:/-]{1,255}$' THEN
        PERFORM easeml.fail('ML001', 'host: expected the name or address of a machine, not a connection string',
            hint => 'Passwords are in .pgpass of the system user that runs the cluster.');
    ELSIF service IS NOT NULL AND (port IS NOT NULL OR dbname IS NOT NULL) THEN
        PERFORM easeml.fail('ML001', 'port, dbname: expected NULL with a service, which says them');
    ELSIF port NOT BETWEEN 1 AND 65535 THEN
        PERFORM easeml.fail('ML001', format('port: expected 1 to 65535, got %s', port));
    END IF;
    RETURN easeml.greenplum_script(jsonb_build_object('views', easeml.offered_views(), 'calls', easeml.offered_calls()),
        concat_ws(' ', easeml.connection_word('service', service), easeml.connection_word('host', host),
            CASE WHEN host IS NOT NULL THEN easeml.connection_word('port',
                    coalesce(port::text, current_setting('port'))) || ' ' || easeml.connection_word('dbname',
                    coalesce(dbname, current_database())) END,
            'connect_timeout=10 application_name=easeml_inside'));
END
$$;
COMMENT ON FUNCTION easeml.install_greenplum_views(text, text, integer, text) IS
$$Returns a script that lets users of a Greenplum database start runs and read leaderboards from inside: execute it
there as a superuser, or let easeml segment views do both. It makes a schema easeml with the views and functions of
this server; when it is executed again it brings them to what this server has. service: the name of a libpq service in
pg_service.conf on the machine of the cluster's coordinator, which leads to this server; or host, with port and dbname
(by default those of this server). Users come as the role that they have logged in as there. No password is in the
script or in a table: those of the users are in .pgpass of the system user that runs the cluster.$$;

CREATE OR REPLACE FUNCTION easeml.remove_greenplum_views() RETURNS text
LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.nodes.greenplum.greenplum_views import removal_script
from easeml_plpy.server.entry_points import guarded
return guarded(plpy, removal_script)
$$;
COMMENT ON FUNCTION easeml.remove_greenplum_views() IS
    'Returns a script that removes what the script of easeml.install_greenplum_views has made in a '
    'Greenplum database: execute it there as a superuser, or run easeml segment views --remove. It fails if views of '
    'others depend on what it removes.';
