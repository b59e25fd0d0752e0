CREATE VIEW easeml.run_forecasts WITH (security_invoker) AS
SELECT f.run_id, d.dataset_name, f.made_at, f.eta_at, f.eta_earliest_at, f.eta_p95_at, f.cost_so_far,
    f.cost_expected, f.cost_p95, f.note,
    r.finished_at, f.tenant::text AS tenant
FROM easeml.forecasts f JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id);
COMMENT ON VIEW easeml.run_forecasts IS
    'Forecasts that the coordinator made of each run while it ran, beside its end. easeml.forecast makes one now.';

COMMENT ON COLUMN easeml.run_forecasts.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.run_forecasts.dataset_name IS 'Dataset that it searches on.';
COMMENT ON COLUMN easeml.run_forecasts.made_at IS 'When the forecast was made.';
COMMENT ON COLUMN easeml.run_forecasts.eta_at IS 'When the run was expected to be done; null if that was unknown.';
COMMENT ON COLUMN easeml.run_forecasts.eta_earliest_at IS 'In 90 of 100 cases a run ends between this and eta_p95_at.';
COMMENT ON COLUMN easeml.run_forecasts.eta_p95_at IS 'When the run was expected to be done in 95 of 100 cases.';
COMMENT ON COLUMN easeml.run_forecasts.cost_so_far IS 'What it had cost by then.';
COMMENT ON COLUMN easeml.run_forecasts.cost_expected IS 'What it was expected to cost in the end.';
COMMENT ON COLUMN easeml.run_forecasts.cost_p95 IS 'What it was expected to cost at most, in 95 of 100 cases.';
COMMENT ON COLUMN easeml.run_forecasts.note IS 'What had to be assumed, or why there is no forecast.';
COMMENT ON COLUMN easeml.run_forecasts.finished_at IS 'When the run ended.';
COMMENT ON COLUMN easeml.run_forecasts.tenant IS 'Tenant that owns the run.';
