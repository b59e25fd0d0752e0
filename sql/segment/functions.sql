-- The facts of a node, and the segment that it serves.

CREATE FUNCTION easeml_segment.version() RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'easeml_segment'
$$;
COMMENT ON FUNCTION easeml_segment.version() IS 'Returns the installed version of the extension.';

CREATE FUNCTION easeml_segment.node_facts() RETURNS jsonb
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.nodes.node_facts import node_facts
return node_facts(plpy, GD)
$$;
COMMENT ON FUNCTION easeml_segment.node_facts() IS
    'Describes the node as JSON: identity, holder, versions of server, extension and Python packages, devices.';

CREATE FUNCTION easeml_segment.hold(wanted text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE easeml_segment.node n SET holder = wanted WHERE n.holder IS NULL;
    IF NOT EXISTS (SELECT FROM easeml_segment.node n WHERE n.holder = wanted) THEN
        RAISE EXCEPTION USING errcode = 'ML004', message = 'this node serves another segment already',
            hint = 'If that segment is gone: SELECT easeml_segment.release() on the node.';
    END IF;
END
$$;
COMMENT ON FUNCTION easeml_segment.hold(text) IS
    'Lets the node serve one segment from now on; refuses if it serves another.';

CREATE FUNCTION easeml_segment.release() RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE easeml_segment.node SET holder = NULL;
    DELETE FROM easeml_segment.checkpoints;
    DELETE FROM easeml_segment.datasets;
$$;
COMMENT ON FUNCTION easeml_segment.release() IS 'Frees the node from its segment, and removes what it holds.';

-- As in easeml: it returns the array's memory as it is.
CREATE FUNCTION easeml_segment.array_bytes(elements anyarray) RETURNS bytea
LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS $$byteasend$$;
COMMENT ON FUNCTION easeml_segment.array_bytes(anyarray) IS
    'Returns an array as the server stores it: dimensions, then the elements side by side.';

CREATE FUNCTION easeml_segment.reader_of(role name) RETURNS name
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT ('easeml_reads_' || CASE WHEN octet_length($1::text) <= 50 THEN $1::text ELSE md5($1::text) END)::name
$$;
COMMENT ON FUNCTION easeml_segment.reader_of(name) IS
    'Returns the name of the role through which the rows of a role are read.';

CREATE FUNCTION easeml_segment.pack_on_node(step text, told jsonb) RETURNS jsonb
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.packing.on_nodes.steps import pack_on_node
return pack_on_node(plpy, GD, step, told)
$$;
COMMENT ON FUNCTION easeml_segment.pack_on_node(text, jsonb) IS
    'Performs a step of packing the rows that lie here, and returns what it found. The steps of a dataset are one '
    'transaction, which keeps its rows in temporary tables.';

-- As in easeml: whole columns of numbers come back from Python as bytes.
CREATE FUNCTION easeml_segment.bytes_as_numbers(stored bytea) RETURNS double precision[]
LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS $$byteasend$$;
COMMENT ON FUNCTION easeml_segment.bytes_as_numbers(bytea) IS 'Reinterprets bytes as the array that the server stores '
    'as those bytes, unchecked (for easeml_segment.numbers_of alone).';

CREATE FUNCTION easeml_segment.numbers_of(numbers bytea) RETURNS double precision[]
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN octet_length(numbers) < 8 THEN '{}' ELSE easeml_segment.bytes_as_numbers(
        substr(easeml_segment.array_bytes(array_fill(0::double precision, ARRAY[octet_length(numbers) / 8])), 1, 20)
            || substr(numbers, 1, octet_length(numbers) / 8 * 8)) END
$$;
COMMENT ON FUNCTION easeml_segment.numbers_of(bytea) IS
    'Returns numbers given as bytes, 8 for each as the server stores a double precision.';

CREATE FUNCTION easeml_segment.predict_packed_on_node(
    dataset text,
    trial_id bigint,
    n_rows integer,
    payload bytea,
    texts text,
    OUT labels text,
    OUT separator text,
    OUT predicted_values bytea,
    OUT probabilities text,
    OUT serving_trial_id bigint
) LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.prediction.prediction import predict_packed_on_node
return predict_packed_on_node(plpy, GD, dataset, trial_id, n_rows, payload, texts)
$$;
COMMENT ON FUNCTION easeml_segment.predict_packed_on_node(text, bigint, integer, bytea, text) IS
    'Predicts for rows whose columns come as bytes, within easeml_segment.predict_on_node (refuses direct calls).';

CREATE FUNCTION easeml_segment.predict_on_node(told jsonb) RETURNS jsonb
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.nodes.node_prediction import predict_on_node
return predict_on_node(plpy, GD, told)
$$;
COMMENT ON FUNCTION easeml_segment.predict_on_node(jsonb) IS
    'Predicts for tables of this server, and writes a new table beside them; returns the number of rows.';

CREATE FUNCTION easeml_segment.answer_on_node(told jsonb) RETURNS jsonb
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.evaluation.on_node import answer_on_node
return answer_on_node(plpy, GD, told)
$$;
COMMENT ON FUNCTION easeml_segment.answer_on_node(jsonb) IS 'Has a trial answer the held-out rows that lie here; the '
    'answers are in a temporary table until the transaction ends.';

CREATE FUNCTION easeml_segment.explain_on_node(told jsonb) RETURNS jsonb
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.evaluation.on_node import explain_on_node
return explain_on_node(plpy, GD, told)
$$;
COMMENT ON FUNCTION easeml_segment.explain_on_node(jsonb) IS 'Returns the importance of a trial''s inputs on the '
    'held-out rows that lie here, or their contributions to the answer for one row.';

CREATE FUNCTION easeml_segment.drift_on_node(step text, told jsonb) RETURNS jsonb
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp SET enable_hashagg = off SET jit = off AS $$
from easeml_plpy.drift.on_node import drift_on_node
return drift_on_node(plpy, GD, step, told)
$$;
COMMENT ON FUNCTION easeml_segment.drift_on_node(text, jsonb) IS 'Performs a step of comparing rows of this server '
    'with training rows that lie on several, and returns counts. The steps are calls of one session.';

CREATE FUNCTION easeml_segment.check_part(dataset_id bigint, partition_number integer, checksum bigint) RETURNS void
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.units.replay import check_part
return check_part(plpy, GD, dataset_id, partition_number, checksum)
$$;
COMMENT ON FUNCTION easeml_segment.check_part(bigint, integer, bigint) IS
    'Refuses a replay on packed training rows other than those of a checksum.';
