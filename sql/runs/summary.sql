-- The summary of a run at its end, in sentences.

CREATE OR REPLACE FUNCTION easeml.metric_text(value double precision) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    -- Four digits, as people compare them.
    SELECT CASE WHEN value IS NULL THEN 'nothing' WHEN value = 0
        OR abs(value) NOT BETWEEN 0.0001 AND 1e9 THEN value::text
        ELSE trim_scale(round(value::numeric, greatest(0, 3 - floor(log(abs(value)))::integer)))::text END
$$;
COMMENT ON FUNCTION easeml.metric_text(double precision) IS 'Writes a metric with four digits (internal).';

CREATE OR REPLACE FUNCTION easeml.tried_sentence(run easeml.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('Run %s is %s%s. It trained %s config%s for %s epoch%s in all: %s.', run.run_id, run.status,
        CASE WHEN run.started_at IS NOT NULL THEN coalesce(' after ' || nullif(l.seconds, 0) || ' second'
                || CASE WHEN l.seconds > 1 THEN 's' ELSE '' END, ' in less than a second') END,
        a.n_trials, CASE WHEN a.n_trials <> 1 THEN 's' END, a.n_epochs, CASE WHEN a.n_epochs <> 1 THEN 's' END, a.tried)
    FROM (SELECT round(extract(epoch FROM coalesce(run.finished_at, clock_timestamp()) - run.started_at)) AS seconds) l
    CROSS JOIN (
        SELECT coalesce(sum(k.n_trials), 0) AS n_trials, coalesce(sum(k.n_epochs), 0) AS n_epochs,
            coalesce(string_agg(format('%s %s', k.n_trials, k.architecture), ', ' ORDER BY k.n_trials DESC,
                    k.architecture), 'nothing yet') AS tried
        FROM (SELECT t.architecture, count(*) AS n_trials, sum((SELECT count(*) FROM easeml.epoch_metrics m
                    WHERE m.trial_id = t.trial_id AND m.split = 'validation')) AS n_epochs
            FROM easeml.trials t WHERE t.run_id = run.run_id AND t.architecture <> 'ensemble'
                AND t.n_steps_done > 0 GROUP BY t.architecture) k) a
$$;
COMMENT ON FUNCTION easeml.tried_sentence(easeml.runs) IS 'Says what a run has tried (internal).';

CREATE OR REPLACE FUNCTION easeml.members_text(config jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN count(*) = 1 THEN '1 trial' ELSE format('%s trials', count(*)) END
        || CASE count(m -> 'refit_epochs') WHEN 0 THEN '' WHEN count(*) THEN ', trained again on validation rows too'
            ELSE format(', %s trained again on validation rows too', count(m -> 'refit_epochs')) END
    FROM jsonb_array_elements(config -> 'members') m
$$;
COMMENT ON FUNCTION easeml.members_text(jsonb) IS 'Says how many members an ensemble has (internal).';

CREATE OR REPLACE FUNCTION easeml.best_sentences(run easeml.runs) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    best record;
    others text;
BEGIN
    SELECT l.trial_id, l.architecture, l.validation_metric, l.test_metric,
        CASE WHEN l.architecture = 'ensemble' THEN format(' of %s', easeml.members_text(l.config)) END AS members
    INTO best FROM easeml.leaderboard l WHERE l.run_id = run.run_id
        AND l.validation_metric IS NOT NULL ORDER BY l.rank, l.trial_number LIMIT 1;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'No trial has been measured.';
        RETURN;
    END IF;
    RETURN QUERY SELECT format('The best is trial %s (%s%s): %s %s on the validation rows%s.', best.trial_id,
        best.architecture, best.members, run.metric, easeml.metric_text(best.validation_metric),
        CASE WHEN best.test_metric IS NOT NULL THEN format(', and %s on the test rows, which no choice has seen',
                easeml.metric_text(best.test_metric)) END);
    SELECT string_agg(format('%s %s (trial %s)', o.architecture, easeml.metric_text(o.validation_metric), o.trial_id),
        ', ' ORDER BY o.rank) INTO others
    FROM (SELECT DISTINCT ON (l.architecture) l.* FROM easeml.leaderboard l
        WHERE l.run_id = run.run_id AND l.validation_metric IS NOT NULL
            AND l.architecture <> best.architecture ORDER BY l.architecture, l.rank, l.trial_number) o;
    IF others IS NOT NULL THEN
        RETURN QUERY SELECT format('The best of each other architecture, on the validation rows: %s.', others);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.best_sentences(easeml.runs) IS
    'Says what was best in a run, of all and of each architecture (internal).';

CREATE OR REPLACE FUNCTION easeml.advice_sentence(run easeml.runs) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    last_seconds double precision;
    total_seconds double precision := extract(epoch FROM coalesce(run.finished_at, clock_timestamp()) - run.started_at);
    more_seconds double precision := coalesce(round(4 * run.max_seconds), 600);
    more text := coalesce(
        (SELECT CASE WHEN length(t.run_options::text) > 1000 THEN format('easeml.alter_task(%L, ...) with '
                    '"max_seconds": %s among its run_options', t.task_name, more_seconds)
            ELSE format('easeml.alter_task(%L, %s, %s, run_options => %L)', t.task_name,
                coalesce(t.run_after_examples::text, 'NULL'), coalesce(t.run_after_minutes::text, 'NULL'),
                t.run_options || jsonb_build_object('max_seconds', more_seconds)) END FROM easeml.task_versions v
                    JOIN easeml.tasks t USING (task_id) WHERE v.dataset_id = run.dataset_id),
        (SELECT format('easeml.select_models(%L, max_seconds => %s)', d.dataset_name, more_seconds)
            FROM easeml.datasets d WHERE d.dataset_id = run.dataset_id));
BEGIN
    -- When a single trial was last better than all before it.
    -- The limit of each trial keeps the planner from reading the curves of all runs first.
    SELECT extract(epoch FROM m.measured_at - run.started_at) INTO last_seconds
    FROM easeml.trials t CROSS JOIN LATERAL (
        SELECT CASE WHEN run.is_higher_better THEN -e.metric_value ELSE e.metric_value END AS score, e.measured_at
        FROM easeml.epoch_metrics e
        WHERE e.trial_id = t.trial_id AND e.split = 'validation'
            AND e.metric_value IS NOT NULL ORDER BY score, e.measured_at LIMIT 1) m
    WHERE t.run_id = run.run_id AND t.architecture <> 'ensemble' ORDER BY m.score, m.measured_at LIMIT 1;
    IF last_seconds IS NULL THEN
        RETURN CASE WHEN run.max_seconds IS NOT NULL
            THEN format('No epoch ended within the time: give it more, for example %s.', more) END;
    ELSIF last_seconds > 0.75 * total_seconds AND run.max_seconds IS NOT NULL THEN
        RETURN format('It was still improving in the last quarter of the time. For more: %s.', more);
    ELSIF last_seconds > 0.75 * total_seconds OR total_seconds < 5 AND run.max_seconds IS NULL THEN
        RETURN format('It was still improving in the last quarter of the time. For more: more configs or epochs, or a '
            'time limit instead: %s.', more);
    END IF;
    RETURN format('The last improvement came after %s of %s. More of the same is not likely to help; more rows, '
        'further columns or another search_space may.',
        round(last_seconds),
        format('%s second%s', round(total_seconds), CASE WHEN round(total_seconds) <> 1 THEN 's' END));
END
$$;
COMMENT ON FUNCTION easeml.advice_sentence(easeml.runs) IS
    'Returns whether a run was still improving, and what to do for more (internal).';

CREATE OR REPLACE FUNCTION easeml.run_summary(run_id bigint) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs := easeml.find_run(run_id);
BEGIN
    RETURN QUERY SELECT easeml.tried_sentence(run);
    RETURN QUERY SELECT s FROM easeml.best_sentences(run) s;
    RETURN QUERY SELECT a FROM easeml.advice_sentence(run) a WHERE a IS NOT NULL AND run.status = 'finished';
END
$$;
COMMENT ON FUNCTION easeml.run_summary(bigint) IS
    'Summarises in sentences what a run has tried, what was best, whether it was still improving when it ended, and '
    'what to do for better results: SELECT * FROM easeml.run_summary(1).';
