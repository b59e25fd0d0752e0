-- Workers of a Citus cluster of which only the coordinator is reached. It sends these on to a worker, or runs them
-- itself and says nothing: so they look where they are.

CREATE FUNCTION easeml_segment.check_worker(worker integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here integer := (SELECT g.groupid FROM pg_catalog.pg_dist_local_group g);
BEGIN
    IF here IS DISTINCT FROM worker THEN
        RAISE EXCEPTION USING errcode = 'ML011', message = format('Citus ran this on %s, and it is for worker %s',
            CASE here WHEN 0 THEN 'its coordinator' ELSE 'worker ' || here END, worker),
            hint = CASE here WHEN 0 THEN 'Citus delegates no call within a transaction.'
                ELSE 'A shard of easeml_worker.keys has moved; the next session looks for one that is there.' END;
    END IF;
END
$$;
COMMENT ON FUNCTION easeml_segment.check_worker(integer) IS
    'Refuses to go on in a node of a Citus cluster that is not of this group.';

CREATE FUNCTION easeml_segment.on_worker(worker integer, statement text, pieces bytea[]) RETURNS SETOF record
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml_segment.check_worker(worker);
    RETURN QUERY EXECUTE statement USING pieces;
END
$$;
COMMENT ON FUNCTION easeml_segment.on_worker(integer, text, bytea[]) IS
    'Executes a statement with the caller''s rights, on this worker of a Citus cluster and on no other; $1 is pieces.';

-- It has no search_path of its own, since what it calls commits: every name in it has its schema.
CREATE PROCEDURE easeml_segment.unit_on_worker(
    segment_key integer,
    worker integer,
    work text,
    unit jsonb,
    context jsonb,
    INOUT result jsonb DEFAULT NULL
) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM easeml_segment.check_worker(worker);
    CASE
        WHEN work OPERATOR(pg_catalog.=) 'train_on_node' THEN CALL easeml_segment.train_on_node(unit, context, result);
        WHEN work OPERATOR(pg_catalog.=) 'evaluate_on_node'
            THEN CALL easeml_segment.evaluate_on_node(unit, context, result);
        WHEN work OPERATOR(pg_catalog.=) 'pilot_on_node' THEN CALL easeml_segment.pilot_on_node(unit, context, result);
        WHEN work OPERATOR(pg_catalog.=) 'train_round_on_node'
            THEN CALL easeml_segment.train_round_on_node(unit, context, result);
        WHEN work OPERATOR(pg_catalog.=) 'evaluate_round_on_node'
            THEN CALL easeml_segment.evaluate_round_on_node(unit, context, result);
    END CASE;
END
$$;
COMMENT ON PROCEDURE easeml_segment.unit_on_worker(integer, integer, text, jsonb, jsonb, jsonb) IS
    'Does a unit on this worker of a Citus cluster and on no other; Citus delegates the call by segment_key.';
