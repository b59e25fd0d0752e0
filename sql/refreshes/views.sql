-- Datasets that are trained again on new rows.

CREATE OR REPLACE VIEW easeml.refresh_status WITH (security_invoker) AS
SELECT r.tenant::text AS tenant, r.dataset_name, r.every, r.when_drift, r.next_at, l.outcome AS last_outcome,
    l.reason AS last_reason, l.looked_at AS last_looked_at, r.problem
FROM easeml.refresh_rules r
LEFT JOIN LATERAL (SELECT f.* FROM easeml.refreshes f WHERE f.tenant = r.tenant
    AND f.dataset_name = r.dataset_name ORDER BY f.refresh_id DESC LIMIT 1) l ON true;
COMMENT ON VIEW easeml.refresh_status IS
    'Datasets that the service trains again on new rows (easeml.set_refresh), with the last outcome.';
COMMENT ON COLUMN easeml.refresh_status.tenant IS 'Tenant that owns the dataset.';
COMMENT ON COLUMN easeml.refresh_status.dataset_name IS 'The dataset.';
COMMENT ON COLUMN easeml.refresh_status.every IS 'How often the service checks the source.';
COMMENT ON COLUMN easeml.refresh_status.when_drift IS
    'How far a column must have drifted, as a population stability index beyond chance; null: any new rows.';
COMMENT ON COLUMN easeml.refresh_status.next_at IS 'When the source is checked next.';
COMMENT ON COLUMN easeml.refresh_status.last_outcome IS 'Outcome of the last check, as in easeml.refresh_history.';
COMMENT ON COLUMN easeml.refresh_status.last_reason IS 'Reason of that outcome, in words.';
COMMENT ON COLUMN easeml.refresh_status.last_looked_at IS 'When the source was last checked.';
COMMENT ON COLUMN easeml.refresh_status.problem IS 'Why the service could not check or compare, for example because it '
    'cannot log in as the tenant; null if nothing stands in the way.';

CREATE OR REPLACE VIEW easeml.refresh_history WITH (security_invoker) AS
SELECT f.refresh_id, f.tenant::text AS tenant, f.dataset_name, f.looked_at, f.ended_at, f.outcome, f.reason, f.drifting,
    f.psi, f.run_id, f.before_trial_id, f.after_trial_id, f.metric,
    f.before_value, f.after_value, f.n_rows
FROM easeml.refreshes f;
COMMENT ON VIEW easeml.refresh_history IS
    'Outcome of each check of the source of a refreshed dataset: the last 200 of a dataset.';
COMMENT ON COLUMN easeml.refresh_history.refresh_id IS 'Number of the check; later checks have larger numbers.';
COMMENT ON COLUMN easeml.refresh_history.tenant IS 'Tenant that owns the dataset.';
COMMENT ON COLUMN easeml.refresh_history.dataset_name IS 'The dataset.';
COMMENT ON COLUMN easeml.refresh_history.looked_at IS 'When the source was checked.';
COMMENT ON COLUMN easeml.refresh_history.ended_at IS 'When the outcome was known; null while the run trains.';
COMMENT ON COLUMN easeml.refresh_history.outcome IS
    'no drift, no new rows, training, served (the new trial answers), not served (it was not better) or failed.';
COMMENT ON COLUMN easeml.refresh_history.reason IS 'Reason of the outcome, in words.';
COMMENT ON COLUMN easeml.refresh_history.drifting IS 'The column that had drifted most.';
COMMENT ON COLUMN easeml.refresh_history.psi IS 'Its population stability index beyond chance.';
COMMENT ON COLUMN easeml.refresh_history.run_id IS 'The run on the new version; null if none was needed.';
COMMENT ON COLUMN easeml.refresh_history.before_trial_id IS 'The trial that answered at that time.';
COMMENT ON COLUMN easeml.refresh_history.after_trial_id IS 'The best trial of the new run.';
COMMENT ON COLUMN easeml.refresh_history.metric IS 'The metric by which they were compared.';
COMMENT ON COLUMN easeml.refresh_history.before_value IS
    'Value of that metric for the trial that answered at that time.';
COMMENT ON COLUMN easeml.refresh_history.after_value IS 'Value of that metric for the new trial.';
COMMENT ON COLUMN easeml.refresh_history.n_rows IS 'Number of rows on which they were compared.';
