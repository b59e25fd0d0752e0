-- What became of a task, dated.

CREATE OR REPLACE FUNCTION easeml.task_report(
    task text
) RETURNS TABLE (at timestamptz, event text, architecture text, metric text, value double precision, n_examples bigint,
    run_id bigint, trial_id bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.tasks := easeml.find_task(task);
BEGIN
    RETURN QUERY
    WITH version AS (
        SELECT d.dataset_id, d.version, v.n_examples, v.n_off, v.n_changed,
            v.n_packed_bytes, v.n_kept_bytes, v.packed_at
        FROM easeml.task_versions v JOIN easeml.datasets d USING (dataset_id) WHERE v.task_id = found.task_id
    ), ended AS (
        SELECT r.run_id, v.dataset_id, coalesce(q.reason, 'by hand') AS reason, r.status, r.finished_at, r.metric,
            r.is_higher_better, r.architectures, v.n_examples, r.failure_reason
        FROM easeml.runs r JOIN version v USING (dataset_id) LEFT JOIN easeml.task_runs q USING (run_id)
        WHERE r.finished_at IS NOT NULL
    ), arm AS (
        SELECT DISTINCT ON (e.run_id, t.architecture) e.run_id, e.dataset_id, t.architecture,
            t.trial_id, t.best_metric_value AS value, k.rank_key, e.finished_at, e.metric, e.is_higher_better,
            e.n_examples
        FROM ended e JOIN easeml.trials t USING (run_id)
        CROSS JOIN LATERAL (SELECT easeml.rank_key(t, e.is_higher_better) AS rank_key) k
        WHERE t.best_metric_value IS NOT NULL ORDER BY e.run_id, t.architecture, k.rank_key
    ), best AS (
        SELECT DISTINCT ON (a.run_id) a.* FROM arm a ORDER BY a.run_id, a.rank_key
    ), so_far AS (
        -- Another version has other validation rows: what answers from then on is the best of that one.
        SELECT k.*, lag(k.best_now) OVER (PARTITION BY k.metric ORDER BY k.finished_at, k.run_id) AS before FROM (
            SELECT b.*, CASE WHEN b.is_higher_better THEN max(b.value) OVER own
                ELSE min(b.value) OVER own END AS best_now FROM best b
            WINDOW own AS (PARTITION BY b.metric, b.dataset_id ORDER BY b.finished_at, b.run_id)) k
    ), under_way AS (
        SELECT r.run_id, coalesce(q.reason, 'by hand') AS reason, r.status, greatest(r.created_at,
            v.packed_at) AS began_at, r.metric, v.n_examples, t.architecture, t.trial_id, t.best_metric_value AS value
        FROM easeml.runs r JOIN version v USING (dataset_id)
        LEFT JOIN easeml.task_runs q USING (run_id) LEFT JOIN LATERAL (
            SELECT t.* FROM easeml.trials t WHERE t.run_id = r.run_id AND t.best_metric_value IS NOT NULL
            ORDER BY easeml.rank_key(t, r.is_higher_better) LIMIT 1) t ON true
        WHERE r.finished_at IS NULL
    )
    SELECT found.created_at, format('task created: %s', found.specification ->> 'workload'), NULL::text, NULL::text,
        NULL::float8, NULL::bigint, NULL::bigint, NULL::bigint
    UNION ALL
    SELECT v.packed_at, format('version %s: %s examples, %s switched off, %s changed; packed %s, kept %s', v.version,
        v.n_examples, v.n_off, v.n_changed, pg_size_pretty(v.n_packed_bytes), pg_size_pretty(v.n_kept_bytes)),
        NULL, NULL, NULL, v.n_examples, NULL, NULL FROM version v
    UNION ALL
    SELECT e.finished_at, CASE WHEN s.value IS NULL THEN format('run %s: %s', e.status,
            coalesce(e.failure_reason, 'nothing was measured'))
            WHEN e.reason = 'new architecture' THEN format('new architecture %s: %s -> %s',
                array_to_string(e.architectures, ', '), coalesce(round(s.before::numeric, 4)::text, '-'),
                round(s.best_now::numeric, 4))
            WHEN s.before IS NULL THEN format('first model: %s', round(s.value::numeric, 4))
            ELSE format('run (%s): %s -> %s', e.reason, round(s.before::numeric, 4), round(s.best_now::numeric, 4)) END,
        s.architecture, e.metric, s.value, e.n_examples, e.run_id, s.trial_id
    FROM ended e LEFT JOIN so_far s USING (run_id)
    UNION ALL
    SELECT u.began_at, format('run %s (%s)%s', u.status, u.reason, ': ' || round(u.value::numeric, 4) || ' so far'),
        u.architecture, u.metric, u.value, u.n_examples, u.run_id, u.trial_id FROM under_way u
    UNION ALL
    SELECT a.finished_at, 'arm', a.architecture, a.metric, a.value, a.n_examples, a.run_id, a.trial_id FROM arm a
    ORDER BY 1, 7 NULLS FIRST, 2 DESC;
END
$$;
COMMENT ON FUNCTION easeml.task_report(text) IS
$$Lists the history of your task by date: its creation, each version with what was packed anew and what was kept, and
the result of each run, or its result so far, such as "new architecture resnet18: 0.75 -> 0.77", and for each run the
best value of each architecture (event arm). Values are those of the metric that ranks the run, on the validation rows
of its version.$$;
