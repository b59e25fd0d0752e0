-- Jobs of tenants where rows lie on other servers, besides packing: held-out rows predicted, tables predicted, trials
-- replayed. A tenant asks and waits, the coordinator has the nodes do it.

CREATE OR REPLACE FUNCTION easeml.trial_on_nodes(asker name, dataset text, trial_id bigint) RETURNS easeml.trials
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted bigint := coalesce(trial_id, (easeml.answering_trial(asker, dataset)).trial_id);
    data easeml.datasets;
    found easeml.trials;
BEGIN
    IF wanted IS NULL THEN
        PERFORM easeml.dataset_of(asker, asker, dataset), easeml.fail_unanswered(asker, dataset, dataset);
    END IF;
    SELECT t.* INTO found FROM easeml.trials t JOIN easeml.runs r USING (run_id)
    JOIN easeml.datasets d USING (dataset_id)
    WHERE t.trial_id = wanted AND t.tenant = asker AND d.dataset_name = coalesce(dataset, d.dataset_name);
    IF found.trial_id IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no trial %s of yours', wanted) || coalesce(' on dataset '
                || quote_literal(dataset), ''), hint => 'SELECT trial_id FROM easeml.leaderboard lists them.');
    END IF;
    SELECT d.* INTO data FROM easeml.datasets d JOIN easeml.runs r USING (dataset_id) WHERE r.run_id = found.run_id;
    IF data.shuffle IS NULL THEN
        PERFORM easeml.fail('ML004',
            format('the rows of dataset %s are on this server', quote_literal(data.dataset_name)),
            hint => 'Call easeml.evaluate or easeml.replay, which read them here.');
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.trial_on_nodes(name, text, bigint) IS 'Returns a trial of a tenant whose rows are on nodes: '
    'the one named, else the one that answers; or refuses (internal).';

CREATE OR REPLACE FUNCTION easeml.check_replay_on_nodes(trial easeml.trials, arguments jsonb) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    until_epoch integer := (arguments ->> 'until_epoch')::integer;
BEGIN
    IF arguments ->> 'device' IS NULL OR arguments ->> 'device' !~ '^(cpu|cuda:[0-9]+)$' THEN
        PERFORM easeml.fail('ML001', format('device: expected cpu or cuda:N, got %s',
                quote_nullable(arguments ->> 'device')), hint => 'cuda:0 is the first GPU of each node.');
    ELSIF coalesce((arguments ->> 'n_threads')::integer, 0) NOT BETWEEN 1 AND 1024 THEN
        PERFORM easeml.fail('ML001',
            format('n_threads: expected 1 to 1024, got %s', coalesce(arguments ->> 'n_threads', 'NULL')));
    ELSIF until_epoch < 1 THEN
        PERFORM easeml.fail('ML001', format('until_epoch: expected at least 1, or NULL for all, got %s', until_epoch));
    ELSIF trial.parent_trial_id IS NOT NULL THEN
        PERFORM easeml.fail('ML004',
            format('trial %s goes on from a copy of trial %s, and only the rows of the first are on this server',
                trial.trial_id, trial.parent_trial_id),
            hint => 'On nodes, trials are replayed that began by themselves.');
    ELSIF EXISTS (SELECT FROM easeml.training_units u WHERE u.trial_id = trial.trial_id
        AND (u.n_slots > 1 OR u.stack IS NOT NULL)) THEN
        PERFORM easeml.fail('ML004', format('trial %s cannot be replayed on nodes: several slots, or several trials, '
                'shared one computation', trial.trial_id));
    ELSIF NOT EXISTS (SELECT FROM easeml.training_units u WHERE u.trial_id = trial.trial_id) THEN
        PERFORM easeml.fail('ML010', format('trial %s has no recorded training unit', trial.trial_id));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_replay_on_nodes(easeml.trials, jsonb) IS
    'Refuses arguments that a replay on nodes cannot carry out (internal).';

CREATE OR REPLACE FUNCTION easeml.version_on_nodes(caller name, asker name, dataset text, version integer)
RETURNS easeml.datasets LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    newest easeml.datasets := easeml.dataset_of(caller, asker, dataset);
    found easeml.datasets;
BEGIN
    SELECT d.* INTO found FROM easeml.datasets d WHERE d.tenant = newest.tenant AND d.dataset_name = newest.dataset_name
        AND d.version = coalesce(version_on_nodes.version, newest.version);
    IF found.dataset_id IS NULL THEN
        PERFORM easeml.fail('ML003', format('dataset %s has no version %s', quote_literal(dataset), version),
            hint => format('It has versions up to %s.', newest.version));
    ELSIF found.shuffle IS NULL THEN
        PERFORM easeml.fail('ML004', format('the rows of dataset %s are on this server',
                quote_literal(found.dataset_name)), hint => 'Call easeml.drift, which reads them here.');
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.version_on_nodes(name, name, text, integer) IS
    'Returns a version of a dataset whose rows are on nodes, by default the newest, or refuses (internal).';

CREATE OR REPLACE FUNCTION easeml.begin_node_job(caller name, asker name, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted text := arguments ->> 'kind';
    dataset text := arguments ->> 'dataset';
    trial easeml.trials;
    serving record;
    tables jsonb;
    new_id bigint;
    data_id bigint;
BEGIN
    PERFORM easeml.check_json('arguments', arguments, 1000000, 4);
    IF wanted = 'predictions' THEN
        serving := easeml.serving_trial(caller, dataset, (arguments ->> 'trial_id')::bigint);
        SELECT t.* INTO trial FROM easeml.trials t WHERE t.trial_id = serving.serving_trial_id;
        tables := easeml.tables_by_segment(coalesce(arguments -> 'places', '[]'));
        IF tables IS NULL THEN
            PERFORM easeml.fail('ML001',
                'source: expected a table of foreign partitions, or a json object of tables by segment',
                hint => 'Rows of this server are predicted by easeml.predict_table.');
        ELSIF coalesce(octet_length(arguments ->> 'output'), 0) NOT BETWEEN 1 AND 300 OR arguments ->>
            'output' !~ '^("([^"]|"")+"|[[:alpha:]_][[:alnum:]_$]*)\.("([^"]|"")+"|[[:alpha:]_][[:alnum:]_$]*)$' THEN
            PERFORM easeml.fail('ML001', 'output: expected schema and name of a new table, as on the nodes',
                hint => 'For example public.sales_predicted.');
        ELSIF jsonb_typeof(arguments -> 'key') NOT IN ('array', 'null')
            OR jsonb_typeof(arguments -> 'probabilities') <> 'boolean' THEN
            PERFORM easeml.fail('ML001', 'key: expected a list of columns; probabilities: true or false');
        END IF;
        IF serving.is_audited THEN
            PERFORM easeml.log_prediction(serving.tenant, serving.dataset_name, caller, serving.serving_trial_id);
        END IF;
    ELSIF wanted IN ('answers', 'replay', 'explanation') THEN
        trial := easeml.trial_on_nodes(asker, dataset, (arguments ->> 'trial_id')::bigint);
        IF wanted = 'replay' THEN
            PERFORM easeml.check_replay_on_nodes(trial, arguments);
        ELSIF wanted = 'explanation' AND coalesce(arguments ->> 'subject' NOT IN ('explain', 'explain_row'), true) THEN
            PERFORM easeml.fail('ML001',
                format('subject: expected explain or explain_row, got %s', quote_nullable(arguments ->> 'subject')));
        ELSIF arguments ->> 'subject' = 'explain'
            AND coalesce(arguments #>> '{options,split}' NOT IN ('validation', 'test'), true) THEN
            PERFORM easeml.fail('ML001',
                format('split: expected validation or test, got %s', quote_nullable(arguments #>> '{options,split}')));
        END IF;
    ELSIF wanted = 'drift' THEN
        data_id := (easeml.version_on_nodes(caller, asker, dataset, (arguments ->> 'version')::integer)).dataset_id;
        tables := easeml.tables_by_segment(coalesce(nullif(arguments -> 'places', 'null'), '[]'));
        IF tables IS NULL THEN
            PERFORM easeml.fail('ML001',
                'source: expected a table of foreign partitions, or a json object of tables by segment',
                hint => 'Only rows on nodes are compared with rows on nodes.');
        ELSIF jsonb_typeof(arguments -> 'options') IS DISTINCT FROM 'object'
            OR jsonb_typeof(arguments #> '{options,every_seconds}') IS DISTINCT FROM 'number' THEN
            PERFORM easeml.fail('ML001', 'every: expected an interval', hint => 'For example ''1 day''.');
        END IF;
    ELSE
        PERFORM easeml.fail('ML001', format('kind: expected answers, predictions, replay, explanation or drift, got %s',
                quote_nullable(wanted)));
    END IF;
    IF wanted = 'answers' AND easeml.is_bound_by_limits(caller) THEN
        PERFORM easeml.check_kept_bytes(asker);
    END IF;
    -- easeml.finish_node_job sees by these jobs which answers are the newest, so the last one of each trial with
    -- answers stays.
    DELETE FROM easeml.node_jobs j WHERE j.job_id IN (SELECT o.job_id FROM easeml.node_jobs o WHERE o.tenant = asker
        AND o.ended_at IS NOT NULL ORDER BY o.job_id DESC OFFSET 20)
        AND NOT (j.kind = 'answers' AND j.problem IS NULL
            AND EXISTS (SELECT FROM easeml.node_answers a WHERE a.trial_id = j.trial_id)
            AND NOT EXISTS (SELECT FROM easeml.node_jobs n WHERE n.trial_id = j.trial_id AND n.kind = 'answers'
                AND n.problem IS NULL AND n.ended_at > j.ended_at));
    IF (SELECT count(*) FROM easeml.node_jobs j WHERE j.tenant = asker AND j.ended_at IS NULL) >= 20 THEN
        PERFORM easeml.fail('ML015', '20 jobs of yours wait for nodes',
            hint => 'Wait for them: SELECT * FROM easeml.node_job_status.');
    END IF;
    -- The asking statement, from which easeml.wanted_node_jobs sees whether its session still waits.
    INSERT INTO easeml.node_jobs (tenant, caller, kind, dataset_id, trial_id, arguments, places,
        asker_pid, asker_started, asker_asked)
    SELECT asker, begin_node_job.caller, wanted,
        coalesce(data_id, (SELECT r.dataset_id FROM easeml.runs r WHERE r.run_id = trial.run_id)), trial.trial_id,
        begin_node_job.arguments - '{places,kind}'::text[], tables, a.pid, a.backend_start, a.query_start
    FROM (SELECT pg_backend_pid() AS pid) own LEFT JOIN pg_stat_activity a USING (pid) RETURNING job_id INTO new_id;
    RETURN to_jsonb(new_id);
END
$$;
COMMENT ON FUNCTION easeml.begin_node_job(name, name, jsonb) IS
    'Records a tenant''s request to nodes; returns the number of the job (internal).';

CREATE OR REPLACE PROCEDURE easeml.ask_nodes(kind text, arguments jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
    asked easeml.node_jobs;
    wanted bigint;
    shown text;
    started timestamptz := pg_catalog.clock_timestamp();
    failure jsonb;
BEGIN
    -- A procedure that commits can have no setting of its own, and a commit ends this one.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    CALL easeml.commit_first('work on nodes can never be waited for inside an open transaction',
        'it outside of one', failure);
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
            PERFORM easeml.fail(coalesce(asked.problem ->> 'sqlstate', 'ML000'), asked.problem ->> 'message',
                asked.problem ->> 'detail', asked.problem ->> 'hint');
        ELSIF asked.ended_at IS NOT NULL THEN
            result := asked.result;
            RETURN;
        ELSIF asked.problem ->> 'message' IS DISTINCT FROM shown THEN
            shown := asked.problem ->> 'message';
            RAISE NOTICE 'it waits: %', shown;
        END IF;
        IF NOT easeml.has_live_coordinator() AND clock_timestamp() > started + interval '15 seconds' THEN
            PERFORM easeml.fail('ML010', format('no coordinator is running, so job %s cannot be done', wanted),
                hint => 'Start one from a shell: easeml up, or easeml coordinator --dsn ...; then ask again.');
        END IF;
        CALL easeml.rest(0.2);
    END LOOP;
END
$$;
COMMENT ON PROCEDURE easeml.ask_nodes(text, jsonb, jsonb) IS
    'Asks the service for a job on nodes, and waits for it (internal: call easeml.evaluate_on_nodes, '
    'easeml.predict_on_nodes, easeml.explain_on_nodes, easeml.explain_row_on_nodes or easeml.replay).';

CREATE OR REPLACE PROCEDURE easeml.evaluate_on_nodes(
    dataset text,
    trial_id bigint DEFAULT NULL,
    INOUT n_rows bigint DEFAULT NULL
) LANGUAGE plpgsql AS $$
DECLARE
    result jsonb;
BEGIN
    CALL easeml.ask_nodes('answers', pg_catalog.jsonb_build_object('dataset', dataset, 'trial_id', trial_id), result);
    n_rows := (result OPERATOR(pg_catalog.->>) 'n_rows')::pg_catalog.int8;
END
$$;
COMMENT ON PROCEDURE easeml.evaluate_on_nodes(text, bigint, bigint) IS
$$Lets the nodes predict the held-out rows of a dataset that lies on them, and waits until they have. Afterwards
easeml.evaluate, confusion_matrix, roc_curve, calibration, class_metrics, residuals
and held_out_answers work for the trial: CALL easeml.evaluate_on_nodes('visits'). The nodes send answers and targets of
these rows to this server, but no inputs.
trial_id: by default the trial that answers predictions. Returns the number of rows. If the trial has trained further
    since, the nodes predict again; answers of the last 20 trials are kept.$$;

CREATE OR REPLACE PROCEDURE easeml.predict_on_nodes(
    dataset text,
    source text,
    output text,
    trial_id bigint DEFAULT NULL,
    key text[] DEFAULT NULL,
    probabilities boolean DEFAULT false,
    INOUT n_rows bigint DEFAULT NULL
) LANGUAGE plpgsql AS $$
DECLARE
    own regclass;
    result jsonb;
BEGIN
    IF source OPERATOR(pg_catalog.!~) '^\s*\{' THEN
        own := (SELECT f.relation FROM easeml.find_source(source) f);
    END IF;
    CALL easeml.ask_nodes('predictions', pg_catalog.jsonb_build_object('dataset', dataset, 'trial_id', trial_id,
            'output', output, 'key', key, 'probabilities', probabilities,
        'places', easeml.places_of(source, own)), result);
    n_rows := (result OPERATOR(pg_catalog.->>) 'n_rows')::pg_catalog.int8;
END
$$;
COMMENT ON PROCEDURE easeml.predict_on_nodes(text, text, text, bigint, text[], boolean, bigint) IS
$$Predicts for tables on the nodes that hold them, writes the predictions beside them, and waits until that is done:
CALL easeml.predict_on_nodes('visits', '{"east": "public.new_visits"}', 'public.predicted').
source: a table of foreign partitions, or tables by segment, as in easeml.create_dataset. output: schema and name of a
table that is made on each of these nodes. It has the columns that easeml.predict_table writes, which also explains the
further arguments. Returns the number of rows. A role of your name on each node must be able to read the source and to
make tables in the schema.$$;

CREATE OR REPLACE PROCEDURE easeml.explain_on_nodes(
    dataset text,
    trial_id bigint DEFAULT NULL,
    split text DEFAULT 'test',
    metric text DEFAULT NULL,
    n_rows integer DEFAULT NULL,
    n_repeats integer DEFAULT 5,
    seed bigint DEFAULT 0,
    INOUT n_inputs bigint DEFAULT NULL
) LANGUAGE plpgsql AS $$
DECLARE
    result jsonb;
BEGIN
    CALL easeml.ask_nodes('explanation',
        pg_catalog.jsonb_build_object('subject', 'explain', 'dataset', dataset, 'trial_id', trial_id,
        'options', pg_catalog.jsonb_build_object('split', split, 'metric', metric, 'n_rows', n_rows, 'n_repeats',
            n_repeats, 'seed', seed)), result);
    n_inputs := pg_catalog.jsonb_array_length(result OPERATOR(pg_catalog.->) 'rows');
END
$$;
COMMENT ON PROCEDURE easeml.explain_on_nodes(text, bigint, text, text, integer, integer, bigint, bigint) IS
$$Lets nodes measure which inputs a trial relies on, if its rows lie on nodes, and waits until they have. Afterwards
easeml.explain with the same arguments returns the result: CALL easeml.explain_on_nodes('visits').
With shuffle => 'across' one node receives the held-out rows that it lacks, and the numbers equal those of a single
server. With 'within' each node permutes its own rows, and this server receives means over the nodes, weighted by their
rows. The nodes send no input to this server. Arguments as in easeml.explain. Returns the number of inputs.$$;

CREATE OR REPLACE PROCEDURE easeml.explain_row_on_nodes(
    dataset text,
    inputs jsonb,
    trial_id bigint DEFAULT NULL,
    label text DEFAULT NULL,
    n_orders integer DEFAULT NULL,
    seed bigint DEFAULT 0,
    INOUT n_inputs bigint DEFAULT NULL
) LANGUAGE plpgsql AS $$
DECLARE
    result jsonb;
BEGIN
    CALL easeml.ask_nodes('explanation',
        pg_catalog.jsonb_build_object('subject', 'explain_row', 'dataset', dataset, 'trial_id', trial_id,
        'options', pg_catalog.jsonb_build_object('inputs', inputs::pg_catalog.text, 'label', label, 'n_orders',
            n_orders, 'seed', seed)), result);
    n_inputs := pg_catalog.jsonb_array_length(result OPERATOR(pg_catalog.->) 'rows') OPERATOR(pg_catalog.-) 1;
END
$$;
COMMENT ON PROCEDURE easeml.explain_row_on_nodes(text, jsonb, bigint, text, integer, bigint, bigint) IS
$$Lets nodes measure what each input of a row contributes to the answer, if the validation rows of the trial lie on
nodes, and waits until they have. Afterwards easeml.explain_row with the same arguments returns the result:
CALL easeml.explain_row_on_nodes('visits', '{"age": 44, "ward": "B"}'). With shuffle => 'across' one node receives the
validation rows that it lacks, and the numbers equal those of a single server. With 'within' each node mixes the row
with its own rows, and this server receives means over the nodes, weighted by their rows, which estimate the same
contributions. The nodes send no other row to this server. Arguments as in easeml.explain_row.
Returns the number of inputs. Boosted trees need no rows: easeml.explain_row answers at once.$$;

CREATE OR REPLACE PROCEDURE easeml.drift_on_nodes(
    dataset text,
    source text DEFAULT NULL,
    time_column text DEFAULT NULL,
    every interval DEFAULT '1 day',
    n_rows integer DEFAULT 100000,
    version integer DEFAULT NULL,
    INOUT n_compared bigint DEFAULT NULL
) LANGUAGE plpgsql AS $$
DECLARE
    data easeml.datasets := easeml.find_version(dataset, version);
    named text := coalesce(source, data.source);
    own regclass;
    result jsonb;
BEGIN
    IF named OPERATOR(pg_catalog.!~) '^\s*\{' THEN
        own := (SELECT f.relation FROM easeml.find_source(named) f);
    END IF;
    CALL easeml.ask_nodes('drift', pg_catalog.jsonb_build_object('dataset', dataset, 'version', data.version, 'places',
            easeml.places_of(named, own),
        'options', easeml.drift_options(named, time_column, every, n_rows)), result);
    n_compared := pg_catalog.jsonb_array_length(result OPERATOR(pg_catalog.->) 'rows');
END
$$;
COMMENT ON PROCEDURE easeml.drift_on_nodes(text, text, text, interval, integer, integer, bigint) IS
$$Lets nodes compare their rows with the training rows, if these lie on nodes, and waits until they have. Afterwards
easeml.drift with the same arguments returns the result: CALL easeml.drift_on_nodes('visits').
Each node counts its own rows by bin, so the numbers equal those of a single server. source: a table of foreign
partitions, or tables by segment; by default that of the dataset. Arguments as in easeml.drift.
A role of your name on each node must be able to read the source. Returns the number of rows of easeml.drift.$$;
