CREATE VIEW easeml.plan_revisions WITH (security_invoker) AS
SELECT p.run_id, p.revision, p.made_at, p.reason, p.is_within_limits, r.deadline, r.max_cost, r.price_list, p.cost_before,
    p.made_at + make_interval(secs => p.seconds_mean) AS end_expected_at, p.made_at + make_interval(secs => p.seconds_p95) AS end_p95_at,
    p.cost_before + p.cost_mean AS cost_expected, p.cost_before + p.cost_p95 AS cost_p95,
    ARRAY(SELECT s.n_slots FROM easeml.planned_stages s WHERE s.run_id = p.run_id AND s.revision = p.revision ORDER BY s.stage) AS n_slots, p.note, p.tenant::text AS tenant
FROM easeml.plans p JOIN easeml.runs r USING (run_id);
COMMENT ON VIEW easeml.plan_revisions IS 'Every plan of a run: the first, and each time that the rest was planned again, with the reason.';

COMMENT ON COLUMN easeml.plan_revisions.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.plan_revisions.revision IS '1: the plan with which the run began.';
COMMENT ON COLUMN easeml.plan_revisions.made_at IS 'When it was planned.';
COMMENT ON COLUMN easeml.plan_revisions.reason IS 'Why: start, or what had changed.';
COMMENT ON COLUMN easeml.plan_revisions.is_within_limits IS 'Whether deadline and max_cost are kept in 95 of 100 cases, as far as is predicted.';
COMMENT ON COLUMN easeml.plan_revisions.deadline IS 'When the run should have ended.';
COMMENT ON COLUMN easeml.plan_revisions.max_cost IS 'What it may cost.';
COMMENT ON COLUMN easeml.plan_revisions.price_list IS 'What its slots cost, see easeml.prices.';
COMMENT ON COLUMN easeml.plan_revisions.cost_before IS 'What the run had cost by then.';
COMMENT ON COLUMN easeml.plan_revisions.end_expected_at IS 'When it was expected to end.';
COMMENT ON COLUMN easeml.plan_revisions.end_p95_at IS 'In 95 of 100 cases it ends before.';
COMMENT ON COLUMN easeml.plan_revisions.cost_expected IS 'What it was expected to cost in all.';
COMMENT ON COLUMN easeml.plan_revisions.cost_p95 IS 'In 95 of 100 cases it costs less.';
COMMENT ON COLUMN easeml.plan_revisions.n_slots IS 'Slots of each stage that was left.';
COMMENT ON COLUMN easeml.plan_revisions.note IS 'What had to be assumed.';
COMMENT ON COLUMN easeml.plan_revisions.tenant IS 'Tenant that owns the run.';
