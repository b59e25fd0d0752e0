-- Tables that this server distributes where it is the coordinator of a Citus cluster.

CREATE OR REPLACE FUNCTION easeml.cluster_places(relation regclass) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    workers text;
BEGIN
    -- The catalog of Citus is there where this server is a node of a cluster, and has no type that could be named here.
    -- A table of the coordinator's own has its rows here.
    IF to_regclass('pg_catalog.pg_dist_partition') IS NULL OR to_regclass('pg_catalog.pg_dist_node') IS NULL THEN
        RETURN NULL;
    END IF;
    EXECUTE 'SELECT string_agg(concat_ws('' '', n.groupid, n.nodename, n.nodeport), ''/'' ORDER BY n.groupid)
        FROM pg_dist_node n
        WHERE n.noderole = ''primary'' AND EXISTS (SELECT FROM pg_dist_partition p
            WHERE p.logicalrelid = $1 AND (p.partmethod, p.repmodel, p.colocationid) <> (''n'', ''s'', 0))'
    INTO workers USING relation;
    RETURN CASE WHEN workers IS NOT NULL
        THEN jsonb_build_array(jsonb_build_object('table', easeml.qualified_name(relation), 'workers', workers)) END;
END
$$;
COMMENT ON FUNCTION easeml.cluster_places(regclass) IS 'Returns a table that Citus distributes from this server, as '
    '[{"table", "workers"}], to be resolved by one of them; NULL if Citus does not distribute it (internal).';

CREATE OR REPLACE FUNCTION easeml.segment_of_worker(place jsonb) RETURNS easeml.segments
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.segments;
BEGIN
    -- Any of them that answers; a segment that has never been checked may be one of them.
    SELECT g.* INTO found FROM easeml.segments g WHERE g.engine = 'citus'
        AND (g.facts IS NULL OR concat_ws(' ', g.facts #>> '{citus,group}', g.facts #>> '{citus,name}',
            g.facts #>> '{citus,port}') = ANY (string_to_array(place ->> 'workers', '/'))
        AND g.facts ->> 'database' = current_database())
    ORDER BY g.facts IS NULL, g.segment_id LIMIT 1;
    IF found.segment_id IS NULL THEN
        PERFORM easeml.fail('ML003', format('source: table %s is distributed by Citus, and no worker of that '
                'cluster is a segment', place ->> 'table'),
            hint => 'An administrator adds them all: SELECT easeml.add_segment(''name'', service => '
                '''...'', engine => ''citus'').');
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.segment_of_worker(jsonb) IS
    'Returns a segment whose server can resolve a distributed table, or refuses if none is one (internal).';
