-- Datasets that are trained again on new rows.

CREATE VIEW easeml.refresh_status WITH (security_invoker) AS
SELECT r.tenant::text AS tenant, r.dataset_name, r.every, r.when_drift, r.next_at, l.outcome AS last_outcome, l.reason AS last_reason, l.looked_at AS last_looked_at, r.problem
FROM easeml.refresh_rules r
LEFT JOIN LATERAL (SELECT f.* FROM easeml.refreshes f WHERE f.tenant = r.tenant AND f.dataset_name = r.dataset_name ORDER BY f.refresh_id DESC LIMIT 1) l ON true;
COMMENT ON VIEW easeml.refresh_status IS 'Datasets that easeml.set_refresh has trained again on new rows, and what came of it last.';
COMMENT ON COLUMN easeml.refresh_status.tenant IS 'Tenant that owns the dataset.';
COMMENT ON COLUMN easeml.refresh_status.dataset_name IS 'The dataset.';
COMMENT ON COLUMN easeml.refresh_status.every IS 'How often its source is looked at.';
COMMENT ON COLUMN easeml.refresh_status.when_drift IS 'How far a column must have moved, as a population stability index beyond chance; null: any new rows.';
COMMENT ON COLUMN easeml.refresh_status.next_at IS 'When the source is looked at next.';
COMMENT ON COLUMN easeml.refresh_status.last_outcome IS 'What came of the last look, as in easeml.refresh_history.';
COMMENT ON COLUMN easeml.refresh_status.last_reason IS 'Why, in words.';
COMMENT ON COLUMN easeml.refresh_status.last_looked_at IS 'When that was.';
COMMENT ON COLUMN easeml.refresh_status.problem IS 'Why the service could not look or compare, for example because it cannot log in as the tenant; null if nothing stands in the way.';

CREATE VIEW easeml.refresh_history WITH (security_invoker) AS
SELECT f.refresh_id, f.tenant::text AS tenant, f.dataset_name, f.looked_at, f.ended_at, f.outcome, f.reason, f.drifting, f.psi, f.run_id, f.before_trial_id, f.after_trial_id, f.metric,
    f.before_value, f.after_value, f.n_rows
FROM easeml.refreshes f;
COMMENT ON VIEW easeml.refresh_history IS 'What came of each look at the source of a dataset that is refreshed: the last 200 of a dataset.';
COMMENT ON COLUMN easeml.refresh_history.refresh_id IS 'Number of the look; later looks have larger numbers.';
COMMENT ON COLUMN easeml.refresh_history.tenant IS 'Tenant that owns the dataset.';
COMMENT ON COLUMN easeml.refresh_history.dataset_name IS 'The dataset.';
COMMENT ON COLUMN easeml.refresh_history.looked_at IS 'When the source was looked at.';
COMMENT ON COLUMN easeml.refresh_history.ended_at IS 'When it was known what came of it; null while it trains.';
COMMENT ON COLUMN easeml.refresh_history.outcome IS 'no drift, no new rows, training, served (the new trial answers), not served (it was not better) or failed.';
COMMENT ON COLUMN easeml.refresh_history.reason IS 'Why, in words.';
COMMENT ON COLUMN easeml.refresh_history.drifting IS 'The column that had moved most.';
COMMENT ON COLUMN easeml.refresh_history.psi IS 'By how much: its population stability index beyond chance.';
COMMENT ON COLUMN easeml.refresh_history.run_id IS 'The run on the new version; null if none was needed.';
COMMENT ON COLUMN easeml.refresh_history.before_trial_id IS 'The trial that answered then.';
COMMENT ON COLUMN easeml.refresh_history.after_trial_id IS 'The best trial of the new run.';
COMMENT ON COLUMN easeml.refresh_history.metric IS 'The metric by which they were compared.';
COMMENT ON COLUMN easeml.refresh_history.before_value IS 'Its value for the trial that answered then.';
COMMENT ON COLUMN easeml.refresh_history.after_value IS 'Its value for the new trial.';
COMMENT ON COLUMN easeml.refresh_history.n_rows IS 'How many rows they were compared on.';
