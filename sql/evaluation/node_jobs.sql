-- How the service finds, opens and records what tenants have asked of nodes.

CREATE OR REPLACE FUNCTION easeml.nodes_of(segments text[]) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(g.segment_name,
            jsonb_build_object('segment_id', g.segment_id, 'segment_name', g.segment_name, 'service', g.service,
                'token', g.token, 'engine', g.engine, 'content', g.content)), '{}')
    FROM easeml.segments g WHERE g.service IS NOT NULL AND g.segment_name = ANY (segments)
$$;
COMMENT ON FUNCTION easeml.nodes_of(text[]) IS
    'Returns everything needed to work with the nodes of segments (internal).';

CREATE OR REPLACE FUNCTION easeml.peers_of(places jsonb) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- Where an engine has clusters, a table may be a distributed one, and any member may have a part of it.
    SELECT ARRAY(SELECT g.segment_name FROM easeml.segments g WHERE g.service IS NOT NULL
        AND g.engine IN (SELECT o.engine FROM easeml.segments o WHERE places ? o.segment_name))
$$;
COMMENT ON FUNCTION easeml.peers_of(jsonb) IS
    'Returns the other servers of the engines of the segments on which tables are named (internal).';

CREATE OR REPLACE FUNCTION easeml.units_to_replay(trial_id bigint, until_epoch integer) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('epoch', u.epoch, 'position', u.position, 'partition_number',
                u.partition_number, 'seed', u.seed, 'sha256', u.state_sha256) ORDER BY u.epoch, u.position), '[]')
    FROM easeml.training_units u WHERE u.trial_id = units_to_replay.trial_id
        AND (until_epoch IS NULL OR u.epoch <= until_epoch)
$$;
COMMENT ON FUNCTION easeml.units_to_replay(bigint, integer) IS
    'Returns the training units of a trial in their order, with the hashes of their states (internal).';

CREATE OR REPLACE FUNCTION easeml.wanted_node_jobs() RETURNS bigint[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Its own statement waits for each, in a session that only easeml_owner and its role see.
    UPDATE easeml.node_jobs j SET ended_at = clock_timestamp(),
        problem = '{"sqlstate": "57014", "message": "whoever asked for it does not wait any more"}'
    WHERE j.job_id IN (SELECT o.job_id FROM easeml.node_jobs o WHERE o.ended_at IS NULL AND o.asker_pid IS NOT NULL
        AND NOT EXISTS (SELECT FROM pg_stat_activity a
        WHERE a.pid = o.asker_pid AND a.backend_start = o.asker_started
            AND a.query_start IS NOT DISTINCT FROM o.asker_asked AND a.state IN ('active', 'disabled'))
        FOR NO KEY UPDATE OF o SKIP LOCKED);
    RETURN ARRAY(SELECT j.job_id FROM easeml.node_jobs j WHERE j.ended_at IS NULL);
END
$$;
COMMENT ON FUNCTION easeml.wanted_node_jobs() IS
    'Ends the jobs on nodes for which nobody waits any more, and returns the open ones (internal).';

CREATE OR REPLACE FUNCTION easeml.next_node_job(busy name[] DEFAULT '{}') RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asked easeml.node_jobs;
BEGIN
    -- Tenants take turns: whose last one began earliest is next. One that an open transaction has locked waits for it,
    -- and for it alone.
    SELECT j.* INTO asked FROM easeml.node_jobs j WHERE j.ended_at IS NULL
        AND (j.not_before IS NULL OR j.not_before <= clock_timestamp()) AND j.tenant <> ALL (busy)
    ORDER BY (SELECT max(o.started_at) FROM easeml.node_jobs o WHERE o.tenant = j.tenant) NULLS FIRST, j.asked_at
    LIMIT 1 FOR NO KEY UPDATE OF j SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    UPDATE easeml.node_jobs j SET started_at = clock_timestamp() WHERE j.job_id = asked.job_id;
    RETURN jsonb_build_object('number', asked.job_id, 'tenant', asked.tenant);
END
$$;
COMMENT ON FUNCTION easeml.next_node_job(name[]) IS 'Returns the number and tenant of the next job that nodes are to '
    'do, skipping tenants that are busy; NULL if there is none (internal).';

CREATE OR REPLACE FUNCTION easeml.node_limits(segments text[]) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(g.segment_name,
            jsonb_build_object('memory_limit_bytes', l.least, 'n_slots', l.n + 1)), '{}')
    FROM easeml.segments g CROSS JOIN LATERAL (SELECT min(s.memory_limit_bytes) AS least, count(*) AS n
        FROM easeml.slots s WHERE s.segment_id = g.segment_id) l
    WHERE g.segment_name = ANY (segments)
$$;
COMMENT ON FUNCTION easeml.node_limits(text[]) IS 'Returns, for each segment, the memory of its smallest slot, and how '
    'many share the machine while a job runs beside its slots (internal).';

CREATE OR REPLACE FUNCTION easeml.settle_drift(step text, told jsonb) RETURNS jsonb
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.drift.agreeing_bins import settle_drift
return settle_drift(plpy, GD, step, told)
$$;
COMMENT ON FUNCTION easeml.settle_drift(text, jsonb) IS
    'Combines what the nodes found in a step of comparing rows, and returns what follows (internal).';

CREATE OR REPLACE FUNCTION easeml.open_drift_job(asked easeml.node_jobs) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    homes jsonb := (SELECT coalesce(jsonb_object_agg(h.segment_name, h.parts), '{}')
        FROM (SELECT g.segment_name, jsonb_agg(p.partition_number ORDER BY p.partition_number) AS parts
        FROM easeml.partitions p JOIN easeml.segments g ON g.segment_id = p.home_segment_id
        WHERE p.dataset_id = asked.dataset_id GROUP BY g.segment_name) h);
    segments text[] := ARRAY(SELECT jsonb_object_keys(homes) UNION SELECT jsonb_object_keys(asked.places));
    peers text[] := easeml.peers_of(asked.places);
    lost text := (SELECT min(s) FROM unnest(segments) s WHERE NOT easeml.nodes_of(segments) ? s);
BEGIN
    IF lost IS NOT NULL OR homes = '{}' THEN
        PERFORM easeml.fail('ML004',
            coalesce(format('segment %s is no node any more', quote_literal(lost)), 'its rows are on no node'));
    END IF;
    RETURN (SELECT asked.arguments || jsonb_build_object('job_id', asked.job_id,
            'kind', asked.kind, 'role', asked.caller, 'tenant', d.tenant, 'dataset', d.dataset_name, 'dataset_id',
            d.dataset_id, 'encoder', d.encoder,
            'registered', '[]'::jsonb, 'places', asked.places, 'homes', homes, 'nodes', easeml.nodes_of(segments),
            'peers', easeml.nodes_of(peers), 'limits', easeml.node_limits(segments || peers),
            'seconds', coalesce((SELECT y.node_job_seconds FROM easeml.tenancy y), 14400))
        FROM easeml.datasets d WHERE d.dataset_id = asked.dataset_id);
END
$$;
COMMENT ON FUNCTION easeml.open_drift_job(easeml.node_jobs) IS
    'Returns everything needed to compare rows on nodes with the training rows (internal).';

CREATE OR REPLACE FUNCTION easeml.open_node_job(job_id bigint) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asked easeml.node_jobs;
    trial easeml.trials;
    homes jsonb;
    segments text[];
    peers text[] := '{}';
    lost text;
BEGIN
    SELECT j.* INTO asked FROM easeml.node_jobs j WHERE j.job_id = open_node_job.job_id AND j.ended_at IS NULL;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- Since it was asked for, the right may have been withdrawn, and another trial may answer.
    IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = asked.caller
        AND pg_has_role(r.oid, 'easeml_tenant', 'USAGE')) THEN
        PERFORM easeml.fail('ML004', format('role %s is no tenant any more', quote_ident(asked.caller)));
    ELSIF NOT EXISTS (SELECT FROM easeml.datasets d WHERE d.dataset_id = asked.dataset_id) THEN
        PERFORM easeml.fail('ML003', 'the dataset was dropped meanwhile');
    ELSIF asked.kind = 'drift' THEN
        RETURN easeml.open_drift_job(asked);
    ELSIF asked.kind = 'predictions' THEN
        SELECT t.* INTO trial FROM easeml.trials t
        WHERE t.trial_id = (easeml.serving_trial(asked.caller, asked.arguments ->> 'dataset',
                (asked.arguments ->> 'trial_id')::bigint)).serving_trial_id;
    ELSE
        trial := easeml.trial_on_nodes(asked.tenant, asked.arguments ->> 'dataset',
            (asked.arguments ->> 'trial_id')::bigint);
        IF asked.kind = 'replay' THEN
            PERFORM easeml.check_replay_on_nodes(trial, asked.arguments);
        END IF;
    END IF;
    IF trial.best_checkpoint_id IS NULL AND asked.kind <> 'replay' THEN
        PERFORM easeml.fail('ML010', format('trial %s has no state that answers: none is measured yet, or it was old '
                'and was removed', trial.trial_id));
    END IF;
    UPDATE easeml.node_jobs j SET trial_id = trial.trial_id, dataset_id = r.dataset_id FROM easeml.runs r
    WHERE r.run_id = trial.run_id AND j.job_id = asked.job_id RETURNING j.* INTO asked;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', 'the dataset or the trial was dropped meanwhile');
    END IF;
    SELECT coalesce(jsonb_object_agg(h.segment_name, h.parts), '{}') INTO homes
    FROM (SELECT g.segment_name, jsonb_agg(p.partition_number ORDER BY p.partition_number) AS parts
        FROM easeml.partitions p JOIN easeml.segments g ON g.segment_id = p.home_segment_id
        WHERE p.dataset_id = asked.dataset_id GROUP BY g.segment_name) h;
    segments := ARRAY(SELECT jsonb_object_keys(CASE asked.kind WHEN 'predictions' THEN asked.places ELSE homes END));
    lost := (SELECT min(s) FROM unnest(segments) s WHERE NOT easeml.nodes_of(segments) ? s);
    IF lost IS NOT NULL OR cardinality(segments) = 0 THEN
        PERFORM easeml.fail('ML004',
            coalesce(format('segment %s is no node any more', quote_literal(lost)), 'its rows are on no node'));
    END IF;
    IF asked.kind = 'predictions' THEN
        peers := easeml.peers_of(asked.places);
    END IF;
    RETURN (SELECT asked.arguments || jsonb_build_object('job_id', asked.job_id, 'kind', asked.kind, 'role',
            asked.caller, 'tenant', t.tenant, 'dataset', d.dataset_name, 'dataset_id', d.dataset_id,
            'trial_id', t.trial_id, 'checkpoint_id', t.best_checkpoint_id,
            'state', (SELECT jsonb_build_object('n_bytes', c.n_bytes, 'sha256', c.sha256) FROM easeml.checkpoints c
                WHERE c.checkpoint_id = t.best_checkpoint_id),
            'architecture', t.architecture, 'config', t.config, 'max_epochs', r.max_epochs, 'metric',
            r.metric, 'encoder', d.encoder,
            'train_rows', (SELECT jsonb_agg(p.n_train_rows ORDER BY p.partition_number) FROM easeml.partitions p
                WHERE p.dataset_id = d.dataset_id),
            'checksums', (SELECT jsonb_agg(p.checksum ORDER BY p.partition_number) FROM easeml.partitions p
                WHERE p.dataset_id = d.dataset_id),
            'shuffle', d.shuffle, 'n_partitions', d.n_partitions, 'n_held_out',
            (SELECT jsonb_object_agg(h.segment_name, h.n) FROM (SELECT g.segment_name,
                sum(CASE asked.arguments #>> '{options,split}' WHEN 'test' THEN p.n_test_rows
                        ELSE p.n_validation_rows END) AS n
                FROM easeml.partitions p JOIN easeml.segments g ON g.segment_id = p.home_segment_id
                WHERE p.dataset_id = d.dataset_id GROUP BY g.segment_name) h),
            'is_whole', d.n_partitions > 1 AND EXISTS (SELECT FROM easeml.architecture_facts() f
                WHERE f.architecture = t.architecture AND f.does_whole_rounds),
            'registered', easeml.registered_for(t.trial_id), 'composition',
            CASE WHEN asked.kind = 'replay' AND t.architecture = 'ensemble' THEN easeml.composition(t.trial_id) END,
            'places', asked.places, 'homes', homes,
            'units', CASE asked.kind WHEN 'replay' THEN easeml.units_to_replay(t.trial_id,
                    (asked.arguments ->> 'until_epoch')::integer) END,
            'nodes', easeml.nodes_of(segments),
            'peers', easeml.nodes_of(peers), 'limits', easeml.node_limits(segments || peers), 'seconds',
            coalesce((SELECT y.node_job_seconds FROM easeml.tenancy y), 14400))
        FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
        WHERE t.trial_id = asked.trial_id);
END
$$;
COMMENT ON FUNCTION easeml.open_node_job(bigint) IS 'Returns everything needed to do a job on nodes. Refuses if its '
    'asker has lost the right to it; returns NULL if the job is over (internal).';

CREATE OR REPLACE FUNCTION easeml.keep_node_answers(job_id bigint, checkpoint_id bigint, segment text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asked easeml.node_jobs;
    n_outputs integer;
    wrong text;
BEGIN
    -- A node reports the answers for its rows, but not whose rows they are.
    SELECT j.* INTO asked FROM easeml.node_jobs j WHERE j.job_id = keep_node_answers.job_id
        AND j.ended_at IS NULL FOR KEY SHARE;
    SELECT d.n_outputs INTO n_outputs FROM easeml.datasets d WHERE d.dataset_id = asked.dataset_id;
    SELECT format('%s rows of partition %s', e.split, e.partition_number) INTO wrong FROM (
        SELECT s.split, p.partition_number,
            CASE s.split WHEN 'test' THEN p.n_test_rows ELSE p.n_validation_rows END AS n FROM easeml.partitions p
        JOIN easeml.segments g ON g.segment_id = p.home_segment_id
        CROSS JOIN (VALUES ('validation'), ('test')) s(split) WHERE p.dataset_id = asked.dataset_id
            AND g.segment_name = segment) e
    FULL JOIN (SELECT a.split, a.partition_number, sum(a.n_rows) AS n FROM pg_temp.easeml_answers a GROUP BY 1,
        2) f USING (split, partition_number)
    WHERE coalesce(e.n, 0) <> coalesce(f.n, 0) LIMIT 1;
    IF FOUND OR EXISTS (SELECT FROM pg_temp.easeml_answers a WHERE a.n_rows < 1
        OR octet_length(a.outputs) <> 8 * n_outputs::bigint * a.n_rows) THEN
        PERFORM easeml.fail('ML002',
            format('segment %s has answered other rows than it was asked for', segment) || coalesce(': ' || wrong, ''),
            hint => 'Its packed rows were changed: pack the dataset again with easeml.refresh_dataset.');
    END IF;
    INSERT INTO easeml.node_answers (trial_id, tenant, checkpoint_id, split, partition_number,
        block_number, n_rows, outputs, targets)
    SELECT asked.trial_id, t.tenant, keep_node_answers.checkpoint_id, a.split, a.partition_number, a.block_number,
        a.n_rows, a.outputs, a.targets
    FROM pg_temp.easeml_answers a JOIN easeml.trials t ON t.trial_id = asked.trial_id;
    DELETE FROM pg_temp.easeml_answers;
END
$$;
COMMENT ON FUNCTION easeml.keep_node_answers(bigint, bigint, text) IS 'Stores a node''s answers for the held-out rows '
    'of some partitions, and nothing else that the node sends (internal).';

CREATE OR REPLACE FUNCTION easeml.note_node_job(job_id bigint, problem jsonb, is_over boolean, lease_number bigint)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE easeml.node_jobs j SET ended_at = CASE WHEN is_over THEN clock_timestamp() END,
        not_before = clock_timestamp() + interval '5 seconds',
        problem = (SELECT jsonb_object_agg(e.key, left(e.value, 1000)) FROM jsonb_each_text(note_node_job.problem) e)
    WHERE j.job_id = note_node_job.job_id AND j.ended_at IS NULL;
    PERFORM easeml.fence(jsonb_build_object('lease_number', lease_number));
END
$$;
COMMENT ON FUNCTION easeml.note_node_job(bigint, jsonb, boolean, bigint) IS
    'Records why a job on nodes is not done yet, or will not be (internal).';

CREATE OR REPLACE FUNCTION easeml.finish_node_job(job_id bigint, result jsonb, lease_number bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended easeml.node_jobs;
BEGIN
    UPDATE easeml.node_jobs j SET ended_at = clock_timestamp(), problem = NULL, result = finish_node_job.result
    WHERE j.job_id = finish_node_job.job_id AND j.ended_at IS NULL RETURNING j.* INTO ended;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', format('job %s is not wanted any more', job_id));
    END IF;
    IF ended.kind = 'answers' THEN
        -- Answers are kept for this many trials of each tenant.
        DELETE FROM easeml.node_answers a USING easeml.trials t WHERE t.trial_id = a.trial_id
            AND t.tenant = ended.tenant AND a.trial_id NOT IN (
            SELECT j.trial_id FROM easeml.node_jobs j WHERE j.tenant = ended.tenant AND j.kind = 'answers'
                AND j.ended_at IS NOT NULL AND j.problem IS NULL GROUP BY 1 ORDER BY max(j.ended_at) DESC LIMIT 20);
        IF easeml.is_bound_by_limits(ended.caller) THEN
            PERFORM easeml.check_kept_bytes(ended.tenant);
        END IF;
    END IF;
    PERFORM easeml.fence(jsonb_build_object('lease_number', lease_number));
END
$$;
COMMENT ON FUNCTION easeml.finish_node_job(bigint, jsonb, bigint) IS 'Records the result of a job on nodes (internal).';
