-- Datasets that are trained again on new rows, and the outcome of each time.

CREATE TABLE IF NOT EXISTS easeml.refresh_rules (
    tenant name NOT NULL,
    dataset_name text NOT NULL,
    source_kind text NOT NULL,
    every interval NOT NULL CHECK (every >= '1 minute' AND every <= '1000 years'),
    when_drift double precision CHECK (when_drift > 0 AND when_drift < 'Infinity'),
    set_at timestamptz NOT NULL DEFAULT now(),
    next_at timestamptz NOT NULL CHECK (isfinite(next_at)),
    problem text,
    not_before timestamptz CHECK (isfinite(not_before)),
    PRIMARY KEY (tenant, dataset_name)
);
COMMENT ON TABLE easeml.refresh_rules IS
    'Datasets that the service trains again on new rows, as easeml.set_refresh says.';
COMMENT ON COLUMN easeml.refresh_rules.source_kind IS
    'Kind and owner of the source when the rule was set; the service does not read a source that has changed since.';
COMMENT ON COLUMN easeml.refresh_rules.when_drift IS 'How far new rows must have drifted from the training rows, as a '
    'population stability index beyond chance; null: any new rows.';
COMMENT ON COLUMN easeml.refresh_rules.next_at IS 'When the source is checked next.';
COMMENT ON COLUMN easeml.refresh_rules.problem IS
    'Why the service could not check the source; null if nothing stands in the way.';
COMMENT ON COLUMN easeml.refresh_rules.not_before IS 'When the service tries again, after a problem.';

CREATE TABLE IF NOT EXISTS easeml.refreshes (
    refresh_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant name NOT NULL,
    dataset_name text NOT NULL,
    looked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    outcome text NOT NULL CHECK (outcome IN ('no drift', 'no new rows', 'training', 'served', 'not served', 'failed')),
    drifting text,
    psi double precision,
    run_id bigint,  -- no foreign keys: the history outlives its runs
    before_trial_id bigint,
    after_trial_id bigint,
    metric text,
    before_value double precision,
    after_value double precision,
    n_rows bigint,
    reason text NOT NULL
);
CREATE INDEX IF NOT EXISTS refreshes_dataset ON easeml.refreshes (tenant, dataset_name, refresh_id);
COMMENT ON TABLE easeml.refreshes IS 'Outcome of each check of the source of a refreshed dataset. The last 200 of a '
    'dataset are kept, and those whose run still exists.';
