-- What the coordinator forecast of runs under way, and when.

CREATE TABLE easeml.forecasts (
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    eta_at timestamptz,
    eta_earliest_at timestamptz,
    eta_p95_at timestamptz,
    cost_so_far double precision NOT NULL,
    cost_expected double precision,
    cost_p95 double precision,
    note text,
    PRIMARY KEY (run_id, made_at),
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.forecasts IS 'Forecasts of runs, so that views need not compute them: the newest, and of the '
    'older ones fewer the longer the run takes.';
COMMENT ON COLUMN easeml.forecasts.note IS 'What had to be assumed, or why there is no forecast.';
