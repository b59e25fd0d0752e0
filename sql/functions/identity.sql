-- Who calls, and what a name means.

CREATE FUNCTION easeml.caller() RETURNS name LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role')::name END
$$;
COMMENT ON FUNCTION easeml.caller() IS 'Returns the role that called, even inside a SECURITY DEFINER function: the role that SET ROLE chose, else the session''s user.';

CREATE FUNCTION easeml.find_dataset(dataset text) RETURNS easeml.datasets LANGUAGE plpgsql STABLE AS $$
DECLARE
    found easeml.datasets;
    known text;
BEGIN
    SELECT d.* INTO found FROM easeml.datasets d
    WHERE d.tenant = current_user AND d.dataset_name = find_dataset.dataset ORDER BY d.version DESC LIMIT 1;
    IF found.dataset_id IS NULL THEN
        SELECT string_agg(DISTINCT d.dataset_name, ', ') INTO known FROM easeml.datasets d WHERE d.tenant = current_user;
        PERFORM easeml.fail('ML003', format('there is no dataset %s of role %s', quote_nullable(dataset), quote_ident(current_user)),
            hint => coalesce('You have: ' || known || '.', 'Make one with easeml.create_dataset(name, source, inputs, target).'));
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.find_dataset(text) IS 'Returns the newest version of your dataset of that name, or raises an error that lists your datasets.';

CREATE FUNCTION easeml.find_source(source text, OUT relation regclass, OUT qualified_name text) LANGUAGE plpgsql STABLE AS $$
BEGIN
    BEGIN
        -- Keep the schema with the name, so that it means the same under another search_path.
        SELECT c.oid::regclass, format('%I.%I', n.nspname, c.relname) INTO relation, qualified_name
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = to_regclass(source) AND c.relkind IN ('r', 'v', 'm', 'p', 'f');
    EXCEPTION WHEN invalid_name OR syntax_error OR invalid_text_representation OR feature_not_supported THEN
        relation := NULL;
    END;
    IF relation IS NULL THEN
        PERFORM easeml.fail('ML003', format('source: there is no table or view %s', quote_nullable(source)),
            hint => 'Give schema and name as in SQL, with double quotes around names in mixed case: ''public."My Table"''.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.find_source(text) IS 'Returns the table or view that a name means, with its schema, or raises an error.';

CREATE FUNCTION easeml.has_live_coordinator() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM easeml.coordinators c JOIN easeml.coordinator_lease l USING (lease_number)
                   WHERE c.stopped_at IS NULL AND c.heartbeat_at > clock_timestamp() - interval '10 seconds')
$$;
COMMENT ON FUNCTION easeml.has_live_coordinator() IS 'Says whether the coordinator that holds the lease sent a heartbeat within the last ten seconds.';
