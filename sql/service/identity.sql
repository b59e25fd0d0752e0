-- Who calls, and what a name means.

-- PL/pgSQL keeps its plan for the session: row-level security calls this once for each table of a query.
CREATE OR REPLACE FUNCTION easeml.current_tenant() RETURNS name
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT t.tenant FROM easeml.tenant_roles t WHERE t.role = to_regrole(quote_ident(current_user)));
END
$$;
COMMENT ON FUNCTION easeml.current_tenant() IS
    'Returns the tenant that you are, the name in the column tenant of your rows; NULL before your first request.';

CREATE OR REPLACE FUNCTION easeml.reads_for_all() RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_has_role(current_user, 'easeml_admin', 'USAGE') OR NOT pg_has_role(current_user, 'easeml_tenant', 'USAGE')
$$;
COMMENT ON FUNCTION easeml.reads_for_all() IS 'Returns whether a reader may read the rows of all tenants: not if it is '
    'a tenant itself, because they hold encoders and statistics (internal).';

CREATE OR REPLACE FUNCTION easeml.near_names(given text, known text[]) RETURNS text
LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.server.near_names import near_names
return near_names(plpy, GD, given, known)
$$;
COMMENT ON FUNCTION easeml.near_names(text, text[]) IS 'Returns a hint for a name that does not exist: the nearest of '
    'the known ones, then some of them; NULL if there are none (internal).';

CREATE OR REPLACE FUNCTION easeml.dataset_of(caller name, tenant name, dataset text) RETURNS easeml.datasets
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.datasets;
    known text[];
BEGIN
    SELECT d.* INTO found FROM easeml.datasets d
    WHERE d.tenant = dataset_of.tenant AND d.dataset_name = dataset_of.dataset ORDER BY d.version DESC LIMIT 1;
    IF found.dataset_id IS NULL THEN
        PERFORM easeml.refuse_unpacked_dataset(tenant, dataset);
        SELECT array_agg(DISTINCT d.dataset_name) INTO known FROM easeml.datasets d WHERE d.tenant = dataset_of.tenant;
        PERFORM easeml.fail('ML003',
            format('there is no dataset %s of role %s', quote_nullable(dataset), quote_ident(caller)),
            hint => coalesce(easeml.near_names(dataset, known),
                'Make one with easeml.create_dataset(name, source, inputs, target).'));
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.dataset_of(name, name, text) IS 'Returns the newest version of a tenant''s dataset, as far '
    'as you may see it, or raises an error that lists the datasets (internal).';

CREATE OR REPLACE FUNCTION easeml.find_dataset(dataset text) RETURNS easeml.datasets
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN easeml.dataset_of(current_user, easeml.current_tenant(), dataset);
END
$$;
COMMENT ON FUNCTION easeml.find_dataset(text) IS
    'Returns the newest version of your dataset of that name, or raises an error that lists your datasets.';

-- The one function that needs the caller's search_path, for the caller's own names; all other names in it have their
-- schema.
CREATE OR REPLACE FUNCTION easeml.find_source(source text, OUT relation regclass, OUT qualified_name text)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    BEGIN
        relation := pg_catalog.to_regclass(source);
    EXCEPTION WHEN invalid_name OR syntax_error OR invalid_text_representation OR feature_not_supported THEN
        relation := NULL;
    END;
    qualified_name := easeml.qualified_name(relation);
    IF qualified_name IS NULL AND source OPERATOR(pg_catalog.~*) '^[\s(]*(select|with|values|table)\M' THEN
        PERFORM easeml.fail('ML001', 'source: expected the name of a table or view, got a query',
            hint => 'Make a view of it: CREATE VIEW my_rows AS SELECT ...; then name the view.');
    ELSIF qualified_name IS NULL AND source OPERATOR(pg_catalog.~) '^\s*\{' THEN
        PERFORM easeml.fail('ML001', 'source: expected the name of a table or view of this server', hint => 'Tables by '
            'segment are predicted where they are: CALL easeml.predict_on_nodes(dataset, source, output).');
    ELSIF qualified_name IS NULL THEN
        PERFORM easeml.fail('ML003',
            pg_catalog.format('source: there is no table or view %s', pg_catalog.quote_nullable(source)),
            hint => 'Give schema and name as in SQL, with double quotes around names in mixed '
                'case: ''public."My Table"''.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.find_source(text) IS
    'Returns the table or view that a name means, with its schema, or raises an error.';

CREATE OR REPLACE FUNCTION easeml.qualified_name(relation regclass) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- With its schema a name means the same under another search_path.
    SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = relation AND c.relkind IN ('r', 'v', 'm', 'p', 'f')
$$;
COMMENT ON FUNCTION easeml.qualified_name(regclass) IS
    'Returns schema and name of a table or view as SQL writes them, or NULL for anything else (internal).';

-- PL/pgSQL because it keeps its plan: planning takes longer than the query.
CREATE OR REPLACE FUNCTION easeml.has_live_coordinator() RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (SELECT FROM easeml.coordinators c JOIN easeml.coordinator_lease l USING (lease_number)
                   WHERE c.stopped_at IS NULL AND c.heartbeat_at > clock_timestamp() - interval '10 seconds');
END
$$;
COMMENT ON FUNCTION easeml.has_live_coordinator() IS
    'Returns whether the coordinator that holds the lease sent a heartbeat within the last ten seconds.';
