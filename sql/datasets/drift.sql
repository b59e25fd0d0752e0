-- How far new rows are from those that were trained on. They are read with the rights of the caller.

CREATE OR REPLACE FUNCTION easeml.measure_drift(
    dataset_id bigint,
    relation oid,
    options jsonb,
    OUT rows json,
    OUT failure jsonb
) LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp SET enable_hashagg = off SET jit = off AS $$
from easeml_plpy.drift.measure import measure_drift
return measure_drift(plpy, GD, dataset_id, relation, options)
$$;
COMMENT ON FUNCTION easeml.measure_drift(bigint, oid, jsonb) IS
    'Compares the rows of a relation with the training rows of a version of a dataset, with the rights of the caller; '
    'returns rows as a json array, or an error (internal: use easeml.drift).';

CREATE OR REPLACE FUNCTION easeml.drift_options(source text, time_column text, every interval, n_rows integer)
RETURNS jsonb LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT jsonb_build_object('source', source, 'time_column', time_column, 'every', every, 'every_seconds',
        coalesce(date_part('epoch', every), 0), 'n_rows', n_rows)
$$;
COMMENT ON FUNCTION easeml.drift_options(text, text, interval, integer) IS 'Returns the arguments of easeml.drift as a '
    'json object, the key under which the results of nodes are found again (internal).';

CREATE OR REPLACE FUNCTION easeml.drift_of_nodes(data easeml.datasets, options jsonb) RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found jsonb := (SELECT j.result -> 'rows' FROM easeml.node_jobs j
        WHERE j.kind = 'drift' AND j.dataset_id = data.dataset_id AND j.arguments -> 'options' = drift_of_nodes.options
        AND j.result IS NOT NULL
        ORDER BY j.job_id DESC LIMIT 1);
BEGIN
    IF found IS NULL THEN
        PERFORM easeml.fail('ML010',
            format('the rows of dataset %s are on its nodes, and they have not been asked for this',
                quote_literal(data.dataset_name)),
            hint => format('Ask first, with the same arguments: CALL easeml.drift_on_nodes(%s, ...).',
                quote_literal(data.dataset_name)));
    END IF;
    RETURN found::json;
END
$$;
COMMENT ON FUNCTION easeml.drift_of_nodes(easeml.datasets, jsonb) IS
    'Returns what the nodes found when they last measured the drift of a dataset, or refuses (internal).';

-- Not pinned to a search_path: easeml.find_source needs the caller's. All other names have their schema.
CREATE OR REPLACE FUNCTION easeml.drift(
    dataset text,
    source text DEFAULT NULL,
    time_column text DEFAULT NULL,
    every interval DEFAULT '1 day',
    n_rows integer DEFAULT 100000,
    version integer DEFAULT NULL,
    OUT since timestamptz,
    OUT input text,
    OUT kind text,
    OUT n_compared bigint,
    OUT psi double precision,
    OUT chance_psi double precision,
    OUT drift text,
    OUT trained_missing double precision,
    OUT missing double precision,
    OUT unseen double precision,
    OUT unseen_values text[],
    OUT gone_values text[]
) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
    data easeml.datasets := easeml.find_version(dataset, version);
    found record;
    measured record;
BEGIN
    IF data.source OPERATOR(pg_catalog.=) 'imported'
        AND NOT EXISTS (SELECT FROM easeml.partitions p WHERE p.dataset_id OPERATOR(pg_catalog.=) data.dataset_id) THEN
        PERFORM easeml.fail('ML004',
            pg_catalog.format('dataset %s was imported: it has no training rows to compare with',
                pg_catalog.quote_literal(dataset)),
            hint => 'Where it was trained, easeml.drift compares.');
    ELSIF data.shuffle IS NOT NULL THEN
        SELECT easeml.drift_of_nodes(data,
            easeml.drift_options(coalesce(source, data.source), time_column, every, n_rows)) AS rows INTO measured;
    ELSE
        found := easeml.find_source(coalesce(source, data.source));
        measured := easeml.measure_drift(data.dataset_id, found.relation::pg_catalog.oid,
            easeml.drift_options(NULL, time_column, every, n_rows));
        PERFORM easeml.raise_failure(measured.failure);
    END IF;
    RETURN QUERY SELECT pg_catalog.to_timestamp(m.since), m.input, m.kind, m.n_rows, m.psi, m.chance_psi, m.drift,
        m.trained_missing, m.missing, m.unseen, m.unseen_values, m.gone_values
        FROM pg_catalog.json_to_recordset(measured.rows) m(since double precision, input text, kind text, n_rows bigint,
            psi double precision, chance_psi double precision, drift text,
            trained_missing double precision, missing double precision, unseen double precision,
            unseen_values text[], gone_values text[]);
END
$$;
COMMENT ON FUNCTION easeml.drift(text, text, text, interval, integer, integer) IS
$$Measures how far the rows of a table or view have drifted from the training rows of a dataset: one row for each input
and the target, and with time_column one for each period.
source: by default the table or view of the dataset. It must have the columns of the dataset; the target may be missing.
    It is read with your rights.
time_column: a date or timestamp column of the source that assigns its rows to periods. every: length of a period.
n_rows: the largest number of rows to read, spread evenly over the source (1 to 1,000,000). version: of the dataset, by
    default the newest.
psi is the population stability index over ten bins of numbers (for arrays of their means, for texts of their word
counts), or over the commonest categories. chance_psi is the psi to expect of that many rows by chance alone.
drift rates psi beyond chance: none, moderate (from 0.1) or large (from 0.25). missing is the share of rows without a
value, trained_missing that of the training rows.
unseen is the share of rows with a category that no training row had, or a number outside their range. unseen_values
names the commonest such categories, gone_values those that no longer occur.
If the rows of the dataset are on nodes, call easeml.drift_on_nodes with the same arguments first.$$;
