-- Plans of runs: what was planned when, and what came of it.

CREATE TABLE easeml.plans (
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    revision integer NOT NULL CHECK (revision >= 1),
    reason text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    is_within_limits boolean NOT NULL,
    cost_before double precision NOT NULL DEFAULT 0,
    seconds_mean double precision NOT NULL,
    seconds_p95 double precision NOT NULL,
    cost_mean double precision NOT NULL,
    cost_p95 double precision NOT NULL,
    note text,
    PRIMARY KEY (run_id, revision),
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.plans IS 'A row for each time that a run was planned: the first when it was asked for, the others on the way, of what was left then.';
COMMENT ON COLUMN easeml.plans.reason IS 'Why it was planned: start, or what had changed.';
COMMENT ON COLUMN easeml.plans.is_within_limits IS 'Whether deadline and max_cost are kept in 95 of 100 cases, as far as is predicted.';
COMMENT ON COLUMN easeml.plans.cost_before IS 'What the run had cost by then.';
COMMENT ON COLUMN easeml.plans.seconds_mean IS 'Seconds from then to the end.';
COMMENT ON COLUMN easeml.plans.cost_mean IS 'What the rest costs, without cost_before.';
COMMENT ON COLUMN easeml.plans.note IS 'What had to be assumed.';

CREATE TABLE easeml.planned_stages (
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    revision integer NOT NULL,
    stage integer NOT NULL CHECK (stage >= 0),
    label text NOT NULL,
    arm text NOT NULL,
    bracket integer NOT NULL,
    target_epochs integer NOT NULL,
    n_trials integer NOT NULL,
    n_epochs double precision NOT NULL,
    instance_type text NOT NULL,
    n_slots integer NOT NULL CHECK (n_slots >= 1),
    n_instances integer NOT NULL CHECK (n_instances >= 1),
    width integer NOT NULL CHECK (width >= 1),
    start_seconds double precision NOT NULL,
    seconds_mean double precision NOT NULL,
    seconds_p50 double precision NOT NULL,
    seconds_p95 double precision NOT NULL,
    cost_mean double precision NOT NULL,
    cost_p95 double precision NOT NULL,
    PRIMARY KEY (run_id, revision, stage),
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.planned_stages IS 'The stages of each plan of a run: so many trials train so many epochs on so many slots.';
COMMENT ON COLUMN easeml.planned_stages.arm IS 'The arm whose trials train; empty: those of all arms.';
COMMENT ON COLUMN easeml.planned_stages.target_epochs IS 'The epoch up to which they train; 0: to the end, or as the procedure says on the way.';
COMMENT ON COLUMN easeml.planned_stages.width IS 'Slots that a trial trains on at once.';
COMMENT ON COLUMN easeml.planned_stages.start_seconds IS 'Expected seconds from the plan to the beginning of the stage.';
