-- What tenants have done where rows lie on other servers, besides packing: held-out rows answered, tables predicted, trials replayed. A tenant asks and
-- waits, the coordinator has the nodes do it.

CREATE FUNCTION easeml.trial_on_nodes(asker name, dataset text, trial_id bigint) RETURNS easeml.trials LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted bigint := coalesce(trial_id, (easeml.answering_trial(asker, dataset)).trial_id);
    data easeml.datasets;
    found easeml.trials;
BEGIN
    IF wanted IS NULL THEN
        PERFORM easeml.dataset_of(asker, asker, dataset), easeml.fail_unanswered(asker, dataset, dataset);
    END IF;
    SELECT t.* INTO found FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
    WHERE t.trial_id = wanted AND t.tenant = asker AND d.dataset_name = coalesce(dataset, d.dataset_name);
    IF found.trial_id IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no trial %s of yours', wanted) || coalesce(' on dataset ' || quote_literal(dataset), ''), hint => 'SELECT trial_id FROM easeml.leaderboard lists them.');
    END IF;
    SELECT d.* INTO data FROM easeml.datasets d JOIN easeml.runs r USING (dataset_id) WHERE r.run_id = found.run_id;
    IF data.shuffle IS NULL THEN
        PERFORM easeml.fail('ML004', format('the rows of dataset %s are on this server', quote_literal(data.dataset_name)), hint => 'Call easeml.evaluate or easeml.replay, which read them here.');
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.trial_on_nodes(name, text, bigint) IS 'Returns a trial of a tenant whose rows are on nodes: the one named, else the one that answers; or refuses (internal).';

CREATE FUNCTION easeml.check_replay_on_nodes(trial easeml.trials, arguments jsonb) RETURNS void LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    until_epoch integer := (arguments ->> 'until_epoch')::integer;
BEGIN
    IF arguments ->> 'device' IS NULL OR arguments ->> 'device' !~ '^(cpu|cuda:[0-9]+)$' THEN
        PERFORM easeml.fail('ML001', format('device: expected cpu or cuda:N, got %s', quote_nullable(arguments ->> 'device')), hint => 'cuda:0 is the first GPU of each node.');
    ELSIF coalesce((arguments ->> 'n_threads')::integer, 0) NOT BETWEEN 1 AND 1024 THEN
        PERFORM easeml.fail('ML001', format('n_threads: expected 1 to 1024, got %s', coalesce(arguments ->> 'n_threads', 'NULL')));
    ELSIF until_epoch < 1 THEN
        PERFORM easeml.fail('ML001', format('until_epoch: expected at least 1, or NULL for all, got %s', until_epoch));
    ELSIF trial.parent_trial_id IS NOT NULL THEN
        PERFORM easeml.fail('ML004', format('trial %s goes on from a copy of trial %s, and only the rows of the first are on this server', trial.trial_id, trial.parent_trial_id),
            hint => 'On nodes, trials are replayed that began by themselves.');
    ELSIF EXISTS (SELECT FROM easeml.training_units u WHERE u.trial_id = trial.trial_id AND (u.n_slots > 1 OR u.stack IS NOT NULL)) THEN
        PERFORM easeml.fail('ML004', format('trial %s cannot be replayed on nodes: several slots, or several trials, shared one computation', trial.trial_id));
    ELSIF NOT EXISTS (SELECT FROM easeml.training_units u WHERE u.trial_id = trial.trial_id) THEN
        PERFORM easeml.fail('ML010', format('trial %s has no recorded training unit', trial.trial_id));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_replay_on_nodes(easeml.trials, jsonb) IS 'Refuses what no replay on nodes can do (internal).';

CREATE FUNCTION easeml.begin_node_job(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted text := arguments ->> 'kind';
    dataset text := arguments ->> 'dataset';
    trial easeml.trials;
    serving record;
    tables jsonb;
    new_id bigint;
BEGIN
    PERFORM easeml.check_json('arguments', arguments, 1000000, 4);
    IF wanted = 'predictions' THEN
        serving := easeml.serving_trial(caller, dataset, (arguments ->> 'trial_id')::bigint);
        SELECT t.* INTO trial FROM easeml.trials t WHERE t.trial_id = serving.serving_trial_id;
        tables := easeml.tables_by_segment(coalesce(arguments -> 'places', '[]'));
        IF tables IS NULL THEN
            PERFORM easeml.fail('ML001', 'source: expected a table of foreign partitions, or a json object of tables by segment', hint => 'Rows of this server are predicted by easeml.predict_table.');
        ELSIF coalesce(octet_length(arguments ->> 'output'), 0) NOT BETWEEN 1 AND 300 OR arguments ->> 'output' !~ '^("([^"]|"")+"|[[:alpha:]_][[:alnum:]_$]*)\.("([^"]|"")+"|[[:alpha:]_][[:alnum:]_$]*)$' THEN
            PERFORM easeml.fail('ML001', 'output: expected schema and name of a new table, as on the nodes', hint => 'For example public.sales_predicted.');
        ELSIF jsonb_typeof(arguments -> 'key') NOT IN ('array', 'null') OR jsonb_typeof(arguments -> 'probabilities') <> 'boolean' THEN
            PERFORM easeml.fail('ML001', 'key: expected a list of columns; probabilities: true or false');
        END IF;
        IF serving.is_audited THEN
            PERFORM easeml.log_prediction(serving.tenant, serving.dataset_name, caller, serving.serving_trial_id);
        END IF;
    ELSIF wanted IN ('answers', 'replay') THEN
        trial := easeml.trial_on_nodes(asker, dataset, (arguments ->> 'trial_id')::bigint);
        IF wanted = 'replay' THEN
            PERFORM easeml.check_replay_on_nodes(trial, arguments);
        END IF;
    ELSE
        PERFORM easeml.fail('ML001', format('kind: expected answers, predictions or replay, got %s', quote_nullable(wanted)));
    END IF;
    IF wanted = 'answers' AND easeml.is_bound_by_limits(caller) THEN
        PERFORM easeml.check_kept_bytes(asker);
    END IF;
    DELETE FROM easeml.node_jobs j WHERE j.job_id IN (SELECT o.job_id FROM easeml.node_jobs o WHERE o.tenant = asker AND o.ended_at IS NOT NULL ORDER BY o.job_id DESC OFFSET 20);
    IF (SELECT count(*) FROM easeml.node_jobs j WHERE j.tenant = asker AND j.ended_at IS NULL) >= 20 THEN
        PERFORM easeml.fail('ML015', '20 jobs of yours wait for nodes', hint => 'Wait for them: SELECT * FROM easeml.node_job_status.');
    END IF;
    -- The statement that asks, by which easeml.wanted_node_jobs sees whether somebody still waits.
    INSERT INTO easeml.node_jobs (tenant, caller, kind, dataset_id, trial_id, arguments, places, asker_pid, asker_started, asker_asked)
    SELECT asker, begin_node_job.caller, wanted, r.dataset_id, trial.trial_id, begin_node_job.arguments - '{places,kind}'::text[], tables, a.pid, a.backend_start, a.query_start
    FROM easeml.runs r LEFT JOIN pg_stat_activity a ON a.pid = pg_backend_pid() WHERE r.run_id = trial.run_id RETURNING job_id INTO new_id;
    RETURN to_jsonb(new_id);
END
$$;
COMMENT ON FUNCTION easeml.begin_node_job(name, name, jsonb) IS 'Notes down what a tenant asks of nodes; returns the number of the job (internal).';

CREATE FUNCTION easeml.nodes_of(segments text[]) RETURNS jsonb LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(g.segment_name, jsonb_build_object('segment_id', g.segment_id, 'segment_name', g.segment_name, 'service', g.service, 'token', g.token)), '{}')
    FROM easeml.segments g WHERE g.service IS NOT NULL AND g.segment_name = ANY (segments)
$$;
COMMENT ON FUNCTION easeml.nodes_of(text[]) IS 'Returns what it takes to work with the nodes of segments (internal).';

CREATE FUNCTION easeml.units_to_replay(trial_id bigint, until_epoch integer) RETURNS jsonb LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('epoch', u.epoch, 'position', u.position, 'partition_number', u.partition_number, 'seed', u.seed, 'sha256', u.state_sha256) ORDER BY u.epoch, u.position), '[]')
    FROM easeml.training_units u WHERE u.trial_id = units_to_replay.trial_id AND (until_epoch IS NULL OR u.epoch <= until_epoch)
$$;
COMMENT ON FUNCTION easeml.units_to_replay(bigint, integer) IS 'Returns the training units of a trial in their order, with the hashes of their states (internal).';

CREATE FUNCTION easeml.wanted_node_jobs() RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Its own statement waits for each, in a session that only easeml_owner and its role see.
    UPDATE easeml.node_jobs j SET ended_at = clock_timestamp(), problem = '{"sqlstate": "57014", "message": "whoever asked for it does not wait any more"}'
    WHERE j.ended_at IS NULL AND j.asker_pid IS NOT NULL AND NOT EXISTS (SELECT FROM pg_stat_activity a
        WHERE a.pid = j.asker_pid AND a.backend_start = j.asker_started AND a.query_start IS NOT DISTINCT FROM j.asker_asked AND a.state IN ('active', 'disabled'));
    RETURN ARRAY(SELECT j.job_id FROM easeml.node_jobs j WHERE j.ended_at IS NULL);
END
$$;
COMMENT ON FUNCTION easeml.wanted_node_jobs() IS 'Ends the jobs on nodes for which nobody waits any more, and returns the open ones (internal).';

CREATE FUNCTION easeml.next_node_job(busy name[] DEFAULT '{}') RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asked easeml.node_jobs;
BEGIN
    -- Tenants take turns: whose last one began earliest is next.
    SELECT j.* INTO asked FROM easeml.node_jobs j WHERE j.ended_at IS NULL AND (j.not_before IS NULL OR j.not_before <= clock_timestamp()) AND j.tenant <> ALL (busy)
    ORDER BY (SELECT max(o.started_at) FROM easeml.node_jobs o WHERE o.tenant = j.tenant) NULLS FIRST, j.asked_at LIMIT 1;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    UPDATE easeml.node_jobs j SET started_at = clock_timestamp() WHERE j.job_id = asked.job_id;
    RETURN jsonb_build_object('number', asked.job_id, 'tenant', asked.tenant);
END
$$;
COMMENT ON FUNCTION easeml.next_node_job(name[]) IS 'Returns number and tenant of what the service is to have nodes do next, of tenants that are not busy; NULL if there is nothing (internal).';

CREATE FUNCTION easeml.node_limits(segments text[]) RETURNS jsonb LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(g.segment_name, jsonb_build_object('memory_limit_bytes', l.least, 'n_slots', l.n + 1)), '{}')
    FROM easeml.segments g CROSS JOIN LATERAL (SELECT min(s.memory_limit_bytes) AS least, count(*) AS n FROM easeml.slots s WHERE s.segment_id = g.segment_id) l
    WHERE g.segment_name = ANY (segments)
$$;
COMMENT ON FUNCTION easeml.node_limits(text[]) IS 'Returns by segment the memory of its smallest slot, and among how many the machine is shared while a job runs beside them (internal).';

CREATE FUNCTION easeml.open_node_job(job_id bigint) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asked easeml.node_jobs;
    trial easeml.trials;
    homes jsonb;
    segments text[];
    lost text;
BEGIN
    SELECT j.* INTO asked FROM easeml.node_jobs j WHERE j.job_id = open_node_job.job_id AND j.ended_at IS NULL;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- Since it was asked for, the right may have been withdrawn, and another trial may answer.
    IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = asked.caller AND pg_has_role(r.oid, 'easeml_tenant', 'USAGE')) THEN
        PERFORM easeml.fail('ML004', format('role %s is no tenant any more', quote_ident(asked.caller)));
    ELSIF asked.kind = 'predictions' THEN
        SELECT t.* INTO trial FROM easeml.trials t
        WHERE t.trial_id = (easeml.serving_trial(asked.caller, asked.arguments ->> 'dataset', (asked.arguments ->> 'trial_id')::bigint)).serving_trial_id;
    ELSE
        trial := easeml.trial_on_nodes(asked.tenant, asked.arguments ->> 'dataset', (asked.arguments ->> 'trial_id')::bigint);
        IF asked.kind = 'replay' THEN
            PERFORM easeml.check_replay_on_nodes(trial, asked.arguments);
        END IF;
    END IF;
    IF trial.best_checkpoint_id IS NULL AND asked.kind <> 'replay' THEN
        PERFORM easeml.fail('ML010', format('trial %s has no state that answers: none is measured yet, or it was old and was removed', trial.trial_id));
    END IF;
    UPDATE easeml.node_jobs j SET trial_id = trial.trial_id, dataset_id = r.dataset_id FROM easeml.runs r WHERE r.run_id = trial.run_id AND j.job_id = asked.job_id RETURNING j.* INTO asked;
    SELECT coalesce(jsonb_object_agg(h.segment_name, h.parts), '{}') INTO homes FROM (SELECT g.segment_name, jsonb_agg(p.partition_number ORDER BY p.partition_number) AS parts
        FROM easeml.partitions p JOIN easeml.segments g ON g.segment_id = p.home_segment_id WHERE p.dataset_id = asked.dataset_id GROUP BY g.segment_name) h;
    segments := ARRAY(SELECT jsonb_object_keys(CASE asked.kind WHEN 'predictions' THEN asked.places ELSE homes END));
    lost := (SELECT min(s) FROM unnest(segments) s WHERE NOT easeml.nodes_of(segments) ? s);
    IF lost IS NOT NULL OR cardinality(segments) = 0 THEN
        PERFORM easeml.fail('ML004', coalesce(format('segment %s is no node any more', quote_literal(lost)), 'its rows are on no node'));
    END IF;
    RETURN (SELECT asked.arguments || jsonb_build_object('job_id', asked.job_id, 'kind', asked.kind, 'role', asked.caller, 'tenant', t.tenant, 'dataset', d.dataset_name, 'dataset_id', d.dataset_id,
            'trial_id', t.trial_id, 'checkpoint_id', t.best_checkpoint_id, 'architecture', t.architecture, 'config', t.config, 'max_epochs', r.max_epochs, 'metric', r.metric, 'encoder', d.encoder,
            'train_rows', (SELECT jsonb_agg(p.n_train_rows ORDER BY p.partition_number) FROM easeml.partitions p WHERE p.dataset_id = d.dataset_id),
            'checksums', (SELECT jsonb_agg(p.checksum ORDER BY p.partition_number) FROM easeml.partitions p WHERE p.dataset_id = d.dataset_id),
            'registered', (SELECT to_jsonb(a) FROM easeml.registered_architectures a WHERE a.architecture = t.architecture), 'places', asked.places, 'homes', homes,
            'units', CASE asked.kind WHEN 'replay' THEN easeml.units_to_replay(t.trial_id, (asked.arguments ->> 'until_epoch')::integer) END,
            'nodes', easeml.nodes_of(segments), 'limits', easeml.node_limits(segments), 'seconds', coalesce((SELECT y.node_job_seconds FROM easeml.tenancy y), 14400))
        FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id) WHERE t.trial_id = asked.trial_id);
END
$$;
COMMENT ON FUNCTION easeml.open_node_job(bigint) IS 'Returns all that it takes to do a job on nodes, or refuses one whose asker may not have it any more; NULL if it is over (internal).';

CREATE FUNCTION easeml.keep_node_answers(job_id bigint, checkpoint_id bigint, segment text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asked easeml.node_jobs;
    n_outputs integer;
    wrong text;
BEGIN
    -- A node says what its rows are answered with, and not whose they are.
    SELECT j.* INTO asked FROM easeml.node_jobs j WHERE j.job_id = keep_node_answers.job_id AND j.ended_at IS NULL FOR KEY SHARE;
    SELECT d.n_outputs INTO n_outputs FROM easeml.datasets d WHERE d.dataset_id = asked.dataset_id;
    SELECT format('%s rows of partition %s', e.split, e.partition_number) INTO wrong FROM (
        SELECT s.split, p.partition_number, CASE s.split WHEN 'test' THEN p.n_test_rows ELSE p.n_validation_rows END AS n FROM easeml.partitions p JOIN easeml.segments g ON g.segment_id = p.home_segment_id
        CROSS JOIN (VALUES ('validation'), ('test')) s(split) WHERE p.dataset_id = asked.dataset_id AND g.segment_name = segment) e
    FULL JOIN (SELECT a.split, a.partition_number, sum(a.n_rows) AS n FROM pg_temp.easeml_answers a GROUP BY 1, 2) f USING (split, partition_number)
    WHERE coalesce(e.n, 0) <> coalesce(f.n, 0) LIMIT 1;
    IF FOUND OR EXISTS (SELECT FROM pg_temp.easeml_answers a WHERE a.n_rows < 1 OR octet_length(a.outputs) <> 8 * n_outputs::bigint * a.n_rows) THEN
        PERFORM easeml.fail('ML002', format('segment %s has answered other rows than it was asked for', segment) || coalesce(': ' || wrong, ''), hint => 'Its packed rows were changed: pack the dataset again with easeml.refresh_dataset.');
    END IF;
    INSERT INTO easeml.node_answers (trial_id, tenant, checkpoint_id, split, partition_number, block_number, n_rows, outputs, targets)
    SELECT asked.trial_id, t.tenant, keep_node_answers.checkpoint_id, a.split, a.partition_number, a.block_number, a.n_rows, a.outputs, a.targets
    FROM pg_temp.easeml_answers a JOIN easeml.trials t ON t.trial_id = asked.trial_id;
    DELETE FROM pg_temp.easeml_answers;
END
$$;
COMMENT ON FUNCTION easeml.keep_node_answers(bigint, bigint, text) IS 'Keeps what a node has answered for the held-out rows of some partitions, and nothing else that it says (internal).';

CREATE FUNCTION easeml.note_node_job(job_id bigint, problem jsonb, is_over boolean, lease_number bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE easeml.node_jobs j SET ended_at = CASE WHEN is_over THEN clock_timestamp() END, not_before = clock_timestamp() + interval '5 seconds',
        problem = (SELECT jsonb_object_agg(e.key, left(e.value, 1000)) FROM jsonb_each_text(note_node_job.problem) e)
    WHERE j.job_id = note_node_job.job_id AND j.ended_at IS NULL;
    PERFORM easeml.fence(jsonb_build_object('lease_number', lease_number));
END
$$;
COMMENT ON FUNCTION easeml.note_node_job(bigint, jsonb, boolean, bigint) IS 'Notes down why a job on nodes is not done yet, or will not be (internal).';

CREATE FUNCTION easeml.finish_node_job(job_id bigint, result jsonb, lease_number bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended easeml.node_jobs;
BEGIN
    UPDATE easeml.node_jobs j SET ended_at = clock_timestamp(), problem = NULL, result = finish_node_job.result WHERE j.job_id = finish_node_job.job_id AND j.ended_at IS NULL RETURNING j.* INTO ended;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', format('job %s is not wanted any more', job_id));
    END IF;
    IF ended.kind = 'answers' THEN
        -- Of each tenant so many trials have their answers kept.
        DELETE FROM easeml.node_answers a USING easeml.trials t WHERE t.trial_id = a.trial_id AND t.tenant = ended.tenant AND a.trial_id NOT IN (
            SELECT j.trial_id FROM easeml.node_jobs j WHERE j.tenant = ended.tenant AND j.kind = 'answers' AND j.ended_at IS NOT NULL GROUP BY 1 ORDER BY max(j.ended_at) DESC LIMIT 20);
        IF easeml.is_bound_by_limits(ended.caller) THEN
            PERFORM easeml.check_kept_bytes(ended.tenant);
        END IF;
    END IF;
    PERFORM easeml.fence(jsonb_build_object('lease_number', lease_number));
END
$$;
COMMENT ON FUNCTION easeml.finish_node_job(bigint, jsonb, bigint) IS 'Records what came of a job on nodes (internal).';

CREATE PROCEDURE easeml.ask_nodes(kind text, arguments jsonb, INOUT result jsonb DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
    asked easeml.node_jobs;
    wanted bigint;
    shown text;
    started timestamptz := pg_catalog.clock_timestamp();
    failure jsonb;
BEGIN
    -- A procedure that commits can have no setting of its own, and a commit ends this one.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    CALL easeml.commit_first('work on nodes can never be waited for inside an open transaction', 'it outside of one', failure);
    PERFORM easeml.raise_failure(failure);
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    wanted := easeml.request('begin_node_job', arguments || jsonb_build_object('kind', kind))::bigint;
    LOOP
        COMMIT;
        PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
        SELECT j.* INTO asked FROM easeml.node_jobs j WHERE j.job_id = wanted;
        IF NOT FOUND THEN
            PERFORM easeml.fail('ML003', 'the dataset or the trial was dropped meanwhile');
        END IF;
        IF asked.ended_at IS NOT NULL AND asked.problem IS NOT NULL THEN
            PERFORM easeml.fail(coalesce(asked.problem ->> 'sqlstate', 'ML000'), asked.problem ->> 'message', asked.problem ->> 'detail', asked.problem ->> 'hint');
        ELSIF asked.ended_at IS NOT NULL THEN
            result := asked.result;
            RETURN;
        ELSIF asked.problem ->> 'message' IS DISTINCT FROM shown THEN
            shown := asked.problem ->> 'message';
            RAISE NOTICE 'it waits: %', shown;
        END IF;
        IF NOT easeml.has_live_coordinator() AND clock_timestamp() > started + interval '15 seconds' THEN
            PERFORM easeml.fail('ML010', format('no coordinator is running, so job %s cannot be done', wanted), hint => 'Start one from a shell: easeml up, or easeml coordinator --dsn ...; then ask again.');
        END IF;
        COMMIT;  -- no snapshot is held while it sleeps
        PERFORM pg_catalog.pg_sleep(0.2);
    END LOOP;
END
$$;
COMMENT ON PROCEDURE easeml.ask_nodes(text, jsonb, jsonb) IS 'Asks the service for a job on nodes, and waits for it (internal: call easeml.evaluate_on_nodes, easeml.predict_on_nodes or easeml.replay).';

CREATE PROCEDURE easeml.evaluate_on_nodes(dataset text, trial_id bigint DEFAULT NULL, INOUT n_rows bigint DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
    result jsonb;
BEGIN
    CALL easeml.ask_nodes('answers', pg_catalog.jsonb_build_object('dataset', dataset, 'trial_id', trial_id), result);
    n_rows := (result OPERATOR(pg_catalog.->>) 'n_rows')::pg_catalog.int8;
END
$$;
COMMENT ON PROCEDURE easeml.evaluate_on_nodes(text, bigint, bigint) IS
$$Has the nodes answer the held-out rows of a dataset that lies on them, and waits for it; then easeml.evaluate, confusion_matrix, roc_curve, calibration, class_metrics, residuals
and held_out_answers know the trial: CALL easeml.evaluate_on_nodes('visits'). Answers and targets of these rows come to this server, and no input.
trial_id: by default the trial that answers predictions. Returns the number of rows. A trial that has trained further is answered anew; the last 20 trials are kept.$$;

CREATE PROCEDURE easeml.predict_on_nodes(dataset text, source text, output text, trial_id bigint DEFAULT NULL, key text[] DEFAULT NULL, probabilities boolean DEFAULT false,
    INOUT n_rows bigint DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
    own regclass;
    result jsonb;
BEGIN
    IF source OPERATOR(pg_catalog.!~) '^\s*\{' THEN
        own := (SELECT f.relation FROM easeml.find_source(source) f);
    END IF;
    CALL easeml.ask_nodes('predictions', pg_catalog.jsonb_build_object('dataset', dataset, 'trial_id', trial_id, 'output', output, 'key', key, 'probabilities', probabilities,
        'places', easeml.places_of(source, own)), result);
    n_rows := (result OPERATOR(pg_catalog.->>) 'n_rows')::pg_catalog.int8;
END
$$;
COMMENT ON PROCEDURE easeml.predict_on_nodes(text, text, text, bigint, text[], boolean, bigint) IS
$$Predicts for tables on nodes where they lie, writes the predictions beside them, and waits for it: CALL easeml.predict_on_nodes('visits', '{"east": "public.new_visits"}', 'public.predicted').
source: a table of foreign partitions, or tables by segment, as in easeml.create_dataset. output: schema and name of a table that is made on each of these nodes. It has the columns of
easeml.predict_table, whose further arguments these are. Returns the number of rows. A role of your name on each node must be able to read the source and to make tables in the schema.$$;
