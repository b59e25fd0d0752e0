-- Segments: this server as several places, and other servers. A table holds only what libpq calls a server: no host, no
-- user, no password.

CREATE OR REPLACE FUNCTION easeml.check_engine(engine text, service text, content integer) RETURNS void
LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.postgres.nodes.engines import check_engine
from easeml_plpy.server.entry_points import guarded
return guarded(plpy, check_engine, engine, service, content)
$$;
COMMENT ON FUNCTION easeml.check_engine(text, text, integer) IS
    'Refuses an engine that is not there, and what is no segment of it (internal).';

CREATE OR REPLACE FUNCTION easeml.check_segment(segment text, service text, engine text, content integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF segment IS NULL OR btrim(segment) = '' OR length(segment) > 200 THEN
        PERFORM easeml.fail('ML001',
            format('segment: expected a name of 1 to 200 characters, got %s', quote_nullable(segment)));
    END IF;
    -- What is no name may be a connection string with a password, so no error repeats it.
    IF service !~ '^[A-Za-z0-9_.-]{1,63}$' THEN
        PERFORM easeml.fail('ML001', 'service: expected the name of a libpq service, not a connection string',
            hint => 'Write a section [name] with host, dbname and user into pg_service.conf, the password into '
                '.pgpass, and say service => ''name''.');
    END IF;
    PERFORM easeml.check_engine(engine, service, content);
END
$$;
COMMENT ON FUNCTION easeml.check_segment(text, text, text, integer) IS
    'Refuses an invalid name of a segment (internal).';

CREATE OR REPLACE FUNCTION easeml.add_segment(
    segment text,
    service text DEFAULT NULL,
    engine text DEFAULT 'postgres',
    content integer DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    new_segment_id integer;
    other text;
BEGIN
    PERFORM easeml.check_segment(segment, service, engine, content);
    PERFORM easeml.lock_topology();
    SELECT g.segment_name INTO other FROM easeml.segments g
    WHERE g.service = add_segment.service
        AND (g.content IS NULL OR add_segment.content IS NULL OR g.content = add_segment.content);
    IF FOUND THEN
        PERFORM easeml.fail('ML001', format('service %s is segment %s already',
                concat_ws(', content ', quote_literal(service), content), quote_literal(other)),
            hint => format('Give that segment more slots: SELECT easeml.add_slots(1, %L).', other));
    END IF;
    INSERT INTO easeml.segments (segment_name, service, engine, content, token)
    VALUES (segment, service, engine, content, CASE WHEN service IS NOT NULL THEN gen_random_uuid()::text END)
    ON CONFLICT (segment_name) DO NOTHING RETURNING segment_id INTO new_segment_id;
    IF new_segment_id IS NULL THEN
        PERFORM easeml.fail('ML001', format('there is a segment %s already', quote_literal(segment)));
    END IF;
    RETURN new_segment_id;
END
$$;
COMMENT ON FUNCTION easeml.add_segment(text, text, text, integer) IS
$$Adds a segment, a place that holds partitions of datasets with bound placement, and returns its number. Give it slots
with easeml.add_slots(n, segment).
service: another server with the extension easeml_segment, by its name in pg_service.conf on the machine of the
    coordinator; without one the segment is a part of this server.
engine: what the server is: postgres; citus: a worker of a Citus cluster, whose distributed tables may be sources; or
    greenplum: the coordinator of a Greenplum cluster, of which the segment is the one with the number content.
content: with engine citus, the service is the coordinator of the cluster, which alone can be reached, and the segment
    is the worker of this group (groupid in pg_dist_node): units are calls that Citus delegates to it. The command
    easeml segment add looks at the server first; else the coordinator does, before it opens a slot there.$$;

CREATE OR REPLACE FUNCTION easeml.note_segment(segment_id integer, facts jsonb, refusal text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    other text;
BEGIN
    PERFORM easeml.check_json('facts', facts, 100000, 4);
    SELECT g.segment_name INTO other FROM easeml.segments g WHERE g.identity = note_segment.facts ->> 'identity'
        AND g.segment_id <> note_segment.segment_id;
    IF FOUND THEN
        PERFORM easeml.fail('ML004', format('this is the same server as segment %s', quote_literal(other)),
            hint => 'Add each server once, and give it as many slots as it can take.');
    END IF;
    UPDATE easeml.segments g SET facts = coalesce(note_segment.facts, g.facts),
        identity = coalesce(note_segment.facts ->> 'identity', g.identity), refusal = left(note_segment.refusal, 1000),
        checked_at = clock_timestamp()
    WHERE g.segment_id = note_segment.segment_id AND g.service IS NOT NULL;
END
$$;
COMMENT ON FUNCTION easeml.note_segment(integer, jsonb, text) IS 'Records what the server of a segment says of itself, '
    'or why it is refused; refuses one that is another segment already (internal).';

CREATE OR REPLACE FUNCTION easeml.is_unfit(segment easeml.segments) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    -- One that has served and does not answer now is waited for. The facts of one that serves another segment are
    -- known, and it never serves this one.
    SELECT (segment).refusal IS NOT NULL
        AND ((segment).facts IS NULL OR coalesce((segment).facts ->> 'holder' <> (segment).token, false))
$$;
COMMENT ON FUNCTION easeml.is_unfit(easeml.segments) IS 'Returns whether the server of a segment was checked and has '
    'never been fit to serve it, also because it serves another segment (internal).';

CREATE OR REPLACE FUNCTION easeml.segments_for(data easeml.datasets) RETURNS SETOF integer
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH able AS (SELECT g.segment_id, easeml.is_unfit(g) AS is_unfit FROM easeml.segments g
        WHERE EXISTS (SELECT FROM easeml.slots s WHERE s.segment_id = g.segment_id)
            AND ((data).shuffle IS NULL OR g.service IS NOT NULL))
    SELECT a.segment_id FROM able a WHERE NOT a.is_unfit OR NOT EXISTS (SELECT FROM able o WHERE NOT o.is_unfit)
$$;
COMMENT ON FUNCTION easeml.segments_for(easeml.datasets) IS 'Returns the segments that may hold partitions of a '
    'dataset: those with slots, and of these no refused server while there are others (internal).';

CREATE OR REPLACE FUNCTION easeml.segment_facts(segment text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.segments;
BEGIN
    SELECT g.* INTO found FROM easeml.segments g WHERE g.segment_id = easeml.find_segment(segment);
    IF found.service IS NULL THEN
        RETURN easeml.python_facts();
    ELSIF found.checked_at IS NULL THEN
        PERFORM easeml.fail('ML010', format('nobody has looked at segment %s yet', quote_literal(segment)),
            hint => 'A running coordinator does once it has slots; easeml segment check does at once.');
    END IF;
    RETURN coalesce(found.facts, '{}') || jsonb_build_object('checked_at', found.checked_at, 'refusal', found.refusal);
END
$$;
COMMENT ON FUNCTION easeml.segment_facts(text) IS
    'Returns what the server of a segment said of itself when it was last looked at: Python, packages, devices, '
    'versions of server and extension, and why it is refused if it is.';

-- Others wait for the topology meanwhile, so it does not wait long for a tenant that is just placing rows there.
CREATE OR REPLACE FUNCTION easeml.remove_segment(segment text, force boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    leaving integer := easeml.find_segment(segment);
    orphan record;
BEGIN
    PERFORM easeml.lock_topology();
    IF leaving = 1 THEN
        PERFORM easeml.fail('ML004', 'segment local cannot be removed: it is this server');
    END IF;
    IF EXISTS (SELECT FROM easeml.slots s WHERE s.segment_id = leaving) THEN
        PERFORM easeml.fail('ML004', format('segment %s still has slots', segment),
            hint => 'Remove them first: SELECT easeml.remove_slot(slot_id).');
    END IF;
    SELECT d.dataset_name, d.tenant, d.dataset_id, p.partition_number INTO orphan FROM easeml.partitions p
    JOIN easeml.datasets d USING (dataset_id) WHERE p.home_segment_id = leaving LIMIT 1;
    IF FOUND THEN
        PERFORM easeml.fail('ML004',
            format('segment %s has the rows of partition %s of dataset %s of %s, which are nowhere else', segment,
                orphan.partition_number, quote_literal(orphan.dataset_name), quote_ident(orphan.tenant)),
            hint => 'Their owner packs them again without it (easeml.drop_dataset, easeml.create_dataset).');
    END IF;
    SELECT d.dataset_name, c.partition_number INTO orphan
    FROM easeml.replicas c JOIN easeml.datasets d USING (dataset_id)
    WHERE c.segment_id = leaving AND NOT EXISTS (SELECT FROM easeml.replicas o
        WHERE o.dataset_id = c.dataset_id AND o.partition_number = c.partition_number
            AND o.segment_id <> leaving) LIMIT 1;
    IF FOUND THEN
        PERFORM easeml.fail('ML004', format('segment %s is the only holder of partition %s of dataset %s', segment,
                orphan.partition_number, quote_literal(orphan.dataset_name)),
            hint => format('Place it anew first: SELECT easeml.replicate_dataset(%L, 1).', orphan.dataset_name));
    END IF;
    SELECT t.trial_id, t.run_id INTO orphan FROM easeml.checkpoint_copies k
    JOIN easeml.checkpoints c USING (checkpoint_id) JOIN easeml.trials t ON t.checkpoint_id = c.checkpoint_id
    WHERE k.segment_id = leaving AND c.is_elsewhere AND t.status IN ('waiting', 'running', 'paused')
        AND NOT EXISTS (SELECT FROM easeml.checkpoint_copies o WHERE o.checkpoint_id = k.checkpoint_id
            AND o.segment_id <> leaving) LIMIT 1;
    IF FOUND AND NOT coalesce(force, false) THEN
        PERFORM easeml.fail('ML004',
            format('segment %s has the only copy of the newest state of trial %s', segment, orphan.trial_id),
            hint => format('Wait until run %s is over, or say force => true: what the epoch has done so far '
                'is done again.', orphan.run_id));
    END IF;
    DELETE FROM easeml.replicas c WHERE c.segment_id = leaving;
    DELETE FROM easeml.segments g WHERE g.segment_id = leaving;
END
$$;
COMMENT ON FUNCTION easeml.remove_segment(text, boolean) IS
    'Removes a segment. Refuses if it has slots, is the only holder of a partition, or has the only copy of a state '
    'that an open run needs, unless that is forced. Its server goes on serving it and no other: before it is added '
    'again, SELECT easeml_segment.release() there.';

CREATE OR REPLACE FUNCTION easeml.set_state_copies(n integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF n IS NULL OR n NOT BETWEEN 1 AND 16 THEN
        PERFORM easeml.fail('ML001', format('n: expected 1 to 16 copies, got %s', coalesce(n::text, 'NULL')),
            hint => '1 is the default: a state that is lost is made again from the beginning of its epoch.');
    END IF;
    INSERT INTO easeml.tenancy AS y (state_copies) VALUES (n) ON CONFLICT ON CONSTRAINT tenancy_pkey
    DO UPDATE SET state_copies = excluded.state_copies, changed_at = now();
END
$$;
COMMENT ON FUNCTION easeml.set_state_copies(integer) IS
$$Sets how many nodes keep each state that a node makes within an epoch (1 to 16;
by default 1). Copies are sent after the unit is recorded,
    while the slot trains another trial. With 2, a node may be lost
for good, and work whose state has a copy is not repeated; a trial whose newest state was still on its way begins its
epoch again. The state at the end of an epoch is always on this server, too.$$;

CREATE OR REPLACE FUNCTION easeml.set_node_job_limit(seconds double precision) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF seconds IS NULL OR NOT (seconds > 0 AND seconds <= 1e7) THEN
        PERFORM easeml.fail('ML001', format('seconds: expected a positive number up to 1e7, got %s',
                coalesce(seconds::text, 'NULL')), hint => '14400 is the default: four hours.');
    END IF;
    INSERT INTO easeml.tenancy AS y (node_job_seconds) VALUES (seconds) ON CONFLICT ON CONSTRAINT tenancy_pkey
    DO UPDATE SET node_job_seconds = excluded.node_job_seconds, changed_at = now();
END
$$;
COMMENT ON FUNCTION easeml.set_node_job_limit(double precision) IS
'Sets how many seconds a packing, evaluation, prediction or replay of rows on nodes may take (by default 14400). A job '
'that takes longer ends with an error, and its tenant may ask again.';
