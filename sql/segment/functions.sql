-- What a node says of itself, and whom it serves.

CREATE FUNCTION easeml_segment.version() RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'easeml_segment'
$$;
COMMENT ON FUNCTION easeml_segment.version() IS 'Returns the installed version of the extension.';

CREATE FUNCTION easeml_segment.node_facts() RETURNS jsonb LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.node_facts import node_facts
return node_facts(plpy, GD)
$$;
COMMENT ON FUNCTION easeml_segment.node_facts() IS 'Describes the node as JSON: identity, holder, versions of server, extension and Python packages, devices.';

CREATE FUNCTION easeml_segment.hold(wanted text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE easeml_segment.node n SET holder = wanted WHERE n.holder IS NULL;
    IF NOT EXISTS (SELECT FROM easeml_segment.node n WHERE n.holder = wanted) THEN
        RAISE EXCEPTION USING errcode = 'ML004', message = 'this node serves another segment already',
            hint = 'If that segment is gone: SELECT easeml_segment.release() on the node.';
    END IF;
END
$$;
COMMENT ON FUNCTION easeml_segment.hold(text) IS 'Lets the node serve one segment from now on; refuses if it serves another.';

CREATE FUNCTION easeml_segment.release() RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE easeml_segment.node SET holder = NULL;
    DELETE FROM easeml_segment.checkpoints;
    DELETE FROM easeml_segment.datasets;
$$;
COMMENT ON FUNCTION easeml_segment.release() IS 'Lets the node serve no segment any more, and removes what it holds.';

-- As in easeml: it returns the array's memory as it is.
CREATE FUNCTION easeml_segment.array_bytes(elements anyarray) RETURNS bytea LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS $$byteasend$$;
COMMENT ON FUNCTION easeml_segment.array_bytes(anyarray) IS 'Returns an array as the server stores it: dimensions, then the elements side by side.';

CREATE FUNCTION easeml_segment.pack_on_node(step text, told jsonb) RETURNS jsonb LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.spread.steps import pack_on_node
return pack_on_node(plpy, GD, step, told)
$$;
COMMENT ON FUNCTION easeml_segment.pack_on_node(text, jsonb) IS
    'Does a step of packing rows that lie here, and returns what it found. The steps of a dataset are one transaction, which keeps its rows in temporary tables.';
