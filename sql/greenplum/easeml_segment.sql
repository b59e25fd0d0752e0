-- What a Greenplum cluster holds for the segments of easeml that it is. Executed by `easeml segment install SERVICE
-- --engine greenplum`, once in a database. Nothing here is of PostgreSQL 9.5 or newer, and what differs between
-- versions is in the other files. Rows lie where their segment_key sends them; each segment of the cluster has a key of
-- its own (keys). Rows are inserted and deleted, never updated: units hold no lock that a DELETE waits for.
CREATE SCHEMA easeml_segment;
COMMENT ON SCHEMA easeml_segment IS 'A node of easeml: packed rows, states, and the units that run beside them.';
CREATE SCHEMA easeml_rows;
COMMENT ON SCHEMA easeml_rows IS 'Copies of tenants'' rows, each within the transaction that reads it.';
DO $roles$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'easeml_segment') THEN
        CREATE ROLE easeml_segment NOLOGIN;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_catalog.pg_roles r WHERE r.rolname = 'easeml_segment'
        AND (r.rolcanlogin OR r.rolsuper OR r.rolcreaterole)) THEN
        RAISE EXCEPTION 'role easeml_segment is there already, and can log in or has further rights'
            USING errcode = 'ML004', hint = 'Drop it, and install again.';
    END IF;
    -- What each reader is a member of: a reader is a role through which the rows of one tenant are read.
    IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'easeml_rows') THEN
        CREATE ROLE easeml_rows NOLOGIN;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_catalog.pg_roles r WHERE r.rolname = 'easeml_rows'
        AND (r.rolcanlogin OR r.rolsuper OR r.rolcreaterole
            OR EXISTS (SELECT 1 FROM pg_catalog.pg_auth_members m WHERE m.member = r.oid))) THEN
        RAISE EXCEPTION 'role easeml_rows is there already, and can log in or has further rights'
            USING errcode = 'ML004', hint = 'Drop it, and install again.';
    END IF;
END
$roles$;
GRANT USAGE, CREATE ON SCHEMA easeml_rows TO easeml_rows, easeml_segment;

CREATE TABLE easeml_segment.node (
    identity text NOT NULL
) DISTRIBUTED BY (identity);
COMMENT ON TABLE easeml_segment.node IS
    'Which cluster and database this is; its one row is drawn when this is installed.';
INSERT INTO easeml_segment.node SELECT md5(random()::text || random()::text || clock_timestamp()::text
    || pg_backend_pid()::text);

CREATE TABLE easeml_segment.holders (
    content integer PRIMARY KEY,
    holder text NOT NULL
) DISTRIBUTED BY (content);
COMMENT ON TABLE easeml_segment.holders IS 'Which segment of a control server each segment of the cluster serves.';

CREATE TABLE easeml_segment.keys (
    segment_key integer NOT NULL
) DISTRIBUTED BY (segment_key);
COMMENT ON TABLE easeml_segment.keys IS
    'Numbers of which each segment of the cluster has some: the least of its own is the key of its rows.';
INSERT INTO easeml_segment.keys SELECT generate_series(1, 20000);

CREATE TABLE easeml_segment.datasets (
    segment_key integer NOT NULL,
    dataset_id bigint NOT NULL,
    encoder bytea NOT NULL,
    PRIMARY KEY (segment_key, dataset_id)
) DISTRIBUTED BY (segment_key);
COMMENT ON TABLE easeml_segment.datasets IS
    'The encoders of datasets, as the control server numbers them: JSON in UTF-8.';

CREATE TABLE easeml_segment.partitions (
    segment_key integer NOT NULL,
    dataset_id bigint NOT NULL,
    split text NOT NULL,
    partition_number integer NOT NULL,
    PRIMARY KEY (segment_key, dataset_id, split, partition_number)
) DISTRIBUTED BY (segment_key);
COMMENT ON TABLE easeml_segment.partitions IS 'The parts of datasets whose blocks are all on a segment.';

CREATE TABLE easeml_segment.version_blocks (
    segment_key integer NOT NULL,
    dataset_id bigint NOT NULL,
    split text NOT NULL,
    partition_number integer NOT NULL,
    block_number integer NOT NULL,
    n_rows integer NOT NULL,
    inputs bytea NOT NULL,
    targets bytea NOT NULL,
    PRIMARY KEY (segment_key, dataset_id, split, partition_number, block_number)
) DISTRIBUTED BY (segment_key);
ALTER TABLE easeml_segment.version_blocks ALTER inputs SET STORAGE EXTERNAL, ALTER targets SET STORAGE EXTERNAL;
COMMENT ON TABLE easeml_segment.version_blocks IS 'Packed examples.';

CREATE TABLE easeml_segment.checkpoint_chunks (
    segment_key integer NOT NULL,
    checkpoint_id bigint NOT NULL,
    chunk_number integer NOT NULL,
    trial_id bigint NOT NULL,
    lease_number bigint NOT NULL,
    n_bytes bigint NOT NULL,
    sha256 text NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (segment_key, checkpoint_id, chunk_number)
) DISTRIBUTED BY (segment_key);
ALTER TABLE easeml_segment.checkpoint_chunks ALTER bytes SET STORAGE EXTERNAL;
COMMENT ON TABLE easeml_segment.checkpoint_chunks IS
    'States in chunks of 1 MB. Those that the control server does not point to are garbage.';
COMMENT ON COLUMN easeml_segment.checkpoint_chunks.lease_number IS
    'The coordinator that had it written: an earlier one does not take it for garbage.';

CREATE TYPE easeml_segment.worked AS (
    checkpoint_id bigint, chunk_number integer, trial_id bigint, lease_number bigint, n_bytes bigint,
        sha256 text, bytes bytea, told text
);

CREATE FUNCTION easeml_segment.version() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '{version}'::text $$;
COMMENT ON FUNCTION easeml_segment.version() IS 'Returns the version of what is installed here.';

CREATE FUNCTION easeml_segment.work_on_segment(
    work text,
    unit text,
    context text,
    kinds text[],
    owners bigint[],
    numbers integer[],
    n_rows integer[],
    firsts bytea[],
    seconds bytea[]
) RETURNS SETOF easeml_segment.worked LANGUAGE plpython3u VOLATILE AS $$
from easeml_plpy.nodes.greenplum.segment_units import work_on_segment
return work_on_segment(plpy, GD, work, unit, context, kinds, owners, numbers, n_rows, firsts, seconds)
$$;
COMMENT ON FUNCTION easeml_segment.work_on_segment(text, text, text, text[], bigint[], integer[],
    integer[], bytea[], bytea[]) IS
    'Does a unit with the packed rows and the state that a query hands over, on the segment that '
    'the query is dispatched to.';

CREATE FUNCTION easeml_segment.facts_of_segment() RETURNS text LANGUAGE plpython3u VOLATILE AS $$
from easeml_plpy.nodes.greenplum.segment_units import facts_of_segment
return facts_of_segment(plpy, GD)
$$;
COMMENT ON FUNCTION easeml_segment.facts_of_segment() IS
    'Describes the Python of the segment that it runs on, as JSON, and imports what units need.';

-- Predictions for tables of the cluster, beside their rows.
CREATE TYPE easeml_segment.predicted AS (labels text, separator text, predicted_values bytea, probabilities text);

-- As in the extension: the array's memory as it is, and back.
CREATE FUNCTION easeml_segment.array_bytes(elements anyarray) RETURNS bytea
LANGUAGE internal IMMUTABLE STRICT AS $$byteasend$$;
COMMENT ON FUNCTION easeml_segment.array_bytes(anyarray) IS
    'Returns an array as the server stores it: dimensions, then the elements side by side.';

CREATE FUNCTION easeml_segment.bytes_as_numbers(stored bytea) RETURNS double precision[]
LANGUAGE internal IMMUTABLE STRICT AS $$byteasend$$;
COMMENT ON FUNCTION easeml_segment.bytes_as_numbers(bytea) IS
    'Returns bytes as the array that they are in the server, unchecked (for easeml_segment.numbers_of alone).';

CREATE FUNCTION easeml_segment.numbers_of(numbers bytea) RETURNS double precision[] LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT CASE WHEN octet_length(numbers) < 8 THEN '{}' ELSE easeml_segment.bytes_as_numbers(
        substr(easeml_segment.array_bytes(array_fill(0::double precision, ARRAY[octet_length(numbers) / 8])), 1, 20)
            || substr(numbers, 1, octet_length(numbers) / 8 * 8)) END
$$;
COMMENT ON FUNCTION easeml_segment.numbers_of(bytea) IS
    'Returns numbers given as bytes, 8 for each as the server stores a double precision.';

CREATE FUNCTION easeml_segment.distribution_of(relation oid, OUT is_plain boolean, OUT clause text, OUT columns text[])
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce({is_distributed}, false),
        CASE WHEN p.policytype = 'p' THEN pg_get_table_distributedby(c.oid) END,
        ARRAY(SELECT a.attname::text FROM generate_series(0, coalesce(array_upper(p.distkey, 1), -1)) k
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = p.distkey[k] ORDER BY k)
    FROM pg_class c LEFT JOIN gp_distribution_policy p ON p.localoid = c.oid WHERE c.oid = $1
$$;
COMMENT ON FUNCTION easeml_segment.distribution_of(oid) IS
    'Says of a relation whether each segment has rows of its own in tables of the cluster, what stands behind CREATE '
    'TABLE to have another one distributed alike, and the columns that this names.';

CREATE FUNCTION easeml_segment.reader_of(role name) RETURNS name LANGUAGE sql IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
    SELECT ('easeml_reads_' || CASE WHEN octet_length($1::text) <= 50 THEN $1::text ELSE md5($1::text) END)::name
$$;
COMMENT ON FUNCTION easeml_segment.reader_of(name) IS
    'Returns the name of the role through which the rows of a role are read.';

CREATE FUNCTION easeml_segment.knows_trial(job_id bigint) RETURNS boolean LANGUAGE plpython3u VOLATILE AS $$
from easeml_plpy.nodes.greenplum.segment_prediction import knows_trial
return knows_trial(plpy, GD, job_id)
$$;
COMMENT ON FUNCTION easeml_segment.knows_trial(bigint) IS
    'Says whether the process has been brought the trial that answers for a job.';

CREATE FUNCTION easeml_segment.predict_on_segment(
    told text,
    pieces bytea[],
    n_rows integer,
    payload bytea,
    texts text
) RETURNS easeml_segment.predicted LANGUAGE plpython3u VOLATILE AS $$
from easeml_plpy.nodes.greenplum.segment_prediction import predict_on_segment
return predict_on_segment(plpy, GD, told, pieces, n_rows, payload, texts)
$$;
COMMENT ON FUNCTION easeml_segment.predict_on_segment(text, bytea[], integer, bytea, text) IS
    'Answers for packed rows on the segment that has them, with the trial that the query hands over.';

CREATE FUNCTION easeml_segment.predict_on_node(told jsonb) RETURNS jsonb
LANGUAGE plpython3u VOLATILE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.nodes.greenplum.cluster_prediction import predict_on_cluster
return predict_on_cluster(plpy, GD, told)
$$;
COMMENT ON FUNCTION easeml_segment.predict_on_node(jsonb) IS 'Predicts for tables of the cluster, on the coordinator: '
    'each row on its segment; writes a new table that is distributed alike. Errors of users come as a value.';

DO $privileges$
DECLARE
    item record;
BEGIN
    FOR item IN SELECT c.oid::regclass AS relation FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
        ON n.oid = c.relnamespace WHERE n.nspname = 'easeml_segment' AND c.relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO easeml_segment', item.relation);
    END LOOP;
    FOR item IN SELECT p.oid::regprocedure AS routine FROM pg_catalog.pg_proc p
        JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'easeml_segment' LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', item.routine);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO easeml_segment', item.routine);
    END LOOP;
END
$privileges$;
GRANT USAGE ON SCHEMA easeml_segment TO easeml_segment;
