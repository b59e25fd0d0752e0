-- Which run opens its next arm, which arm, and what the coordinator believed when it decided.

CREATE TABLE IF NOT EXISTS easeml.tenancy (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    policy text NOT NULL DEFAULT 'robust',
    prior text NOT NULL DEFAULT 'auto',
    seed bigint NOT NULL DEFAULT 0,
    max_wait_seconds double precision NOT NULL DEFAULT 60 CHECK (max_wait_seconds > 0 AND max_wait_seconds <> 'NaN'),
    default_max_runs integer NOT NULL DEFAULT 100 CHECK (default_max_runs > 0),
    changed_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE easeml.tenancy
    ADD COLUMN IF NOT EXISTS state_copies integer NOT NULL DEFAULT 1 CHECK (state_copies BETWEEN 1 AND 16),
    ADD COLUMN IF NOT EXISTS node_job_seconds double precision NOT NULL DEFAULT 14400
        CHECK (node_job_seconds > 0 AND node_job_seconds <= 1e7);
-- The extension inserts no row: a restored dump brings its own.
COMMENT ON TABLE easeml.tenancy IS 'The policy, prior and seed in use, and what holds for every tenant; no row means '
    'the defaults. easeml.set_policy changes them.';
COMMENT ON COLUMN easeml.tenancy.max_wait_seconds IS
    'Longest time that a tenant without a slot waits for arms of others; infinite: as long as they take.';
COMMENT ON COLUMN easeml.tenancy.default_max_runs IS
    'Largest number of queued and running runs of a tenant that has no row in easeml.tenants.';
COMMENT ON COLUMN easeml.tenancy.state_copies IS
    'Number of nodes that keep a state that one of them made within an epoch.';
COMMENT ON COLUMN easeml.tenancy.node_job_seconds IS
    'Largest number of seconds that a packing on nodes, or a job there, may take.';
COMMENT ON COLUMN easeml.tenancy.seed IS 'Seeds the policies that draw at random.';

CREATE TABLE IF NOT EXISTS easeml.priors (
    run_id bigint PRIMARY KEY,
    tenant name NOT NULL,
    prior text NOT NULL,
    link text NOT NULL CHECK (link IN ('identity', 'logit')),
    degrees_of_freedom double precision NOT NULL,
    noise_variance double precision NOT NULL,
    mean double precision[] NOT NULL,
    covariance double precision[] NOT NULL,
    fitted jsonb NOT NULL,
    arm_ids bigint[] NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.priors IS 'What the coordinator believed of a run''s arms before the run opened any; it never '
    'changes. Arrays follow the order of arm_ids.';
COMMENT ON COLUMN easeml.priors.arm_ids IS
    'The arms that the run began with; the coordinator never opens one that was added later.';
COMMENT ON COLUMN easeml.priors.link IS 'Scale of means and covariances: the quality itself (identity) or its logit.';
COMMENT ON COLUMN easeml.priors.degrees_of_freedom IS
    'Degrees of freedom of the Student t process; infinite for a Gaussian process.';
COMMENT ON COLUMN easeml.priors.fitted IS
    'The hyperparameters of the prior, and the number of past runs that they were fitted to.';

CREATE TABLE IF NOT EXISTS easeml.posteriors (
    arm_id bigint PRIMARY KEY,
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    mean double precision NOT NULL,
    deviation double precision NOT NULL,
    bound double precision,
    cost double precision NOT NULL,
    expected_seconds double precision NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    FOREIGN KEY (arm_id, tenant) REFERENCES easeml.arms (arm_id, tenant) ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS posteriors_run ON easeml.posteriors (run_id);
ALTER TABLE easeml.posteriors SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON TABLE easeml.posteriors IS
    'What the coordinator now believes of each arm of an open run; it updates the row after each observation.';

CREATE TABLE IF NOT EXISTS easeml.arm_openings (
    decision_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    decided_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    run_id bigint NOT NULL,
    arm_id bigint NOT NULL,
    tenant name NOT NULL,
    policy text NOT NULL,
    phase text NOT NULL,
    opening_number integer NOT NULL,
    beta double precision NOT NULL,
    mean double precision NOT NULL,
    deviation double precision NOT NULL,
    bound double precision NOT NULL,
    cost double precision NOT NULL,
    expected_seconds double precision NOT NULL,
    best_quality double precision NOT NULL,
    sig double precision,
    gap double precision NOT NULL,
    score double precision NOT NULL,
    pending bigint[] NOT NULL,
    n_runs integer NOT NULL,
    lease_number bigint NOT NULL,
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE
);
ALTER TABLE easeml.arm_openings ADD COLUMN IF NOT EXISTS history_weight double precision;
CREATE INDEX IF NOT EXISTS arm_openings_run ON easeml.arm_openings (run_id);
COMMENT ON TABLE easeml.arm_openings IS
    'One row for each arm that a run opened, with everything that the policy saw when it decided.';
COMMENT ON COLUMN easeml.arm_openings.phase IS
    'The rule that chose: first_service, last_call, or a rule of the policy.';
COMMENT ON COLUMN easeml.arm_openings.opening_number IS 'Order in which the run opened this arm, from 1.';
COMMENT ON COLUMN easeml.arm_openings.beta IS 'Weight of the variance in the upper bounds.';
COMMENT ON COLUMN easeml.arm_openings.mean IS 'Expected quality of the arm, on the scale of the prior.';
COMMENT ON COLUMN easeml.arm_openings.cost IS
    'Expected cost of the arm, divided by the mean cost of all arms of open runs.';
COMMENT ON COLUMN easeml.arm_openings.sig IS
    'Least upper bound among the arms that the run has opened, minus its last quality; null before its first quality.';
COMMENT ON COLUMN easeml.arm_openings.gap IS
    'Largest upper bound among the arms that wait, minus the best quality so far.';
COMMENT ON COLUMN easeml.arm_openings.history_weight IS 'Weight from 0 to 1 of the belief that this run is like past '
    'ones, against two that trust the history less; null for a policy or a run with one belief.';
COMMENT ON COLUMN easeml.arm_openings.pending IS 'Other arms of the run that were open.';

-- Not in easeml.arm_openings: the memory concerns runs of all tenants, and outlives the run that was chosen last.
CREATE TABLE IF NOT EXISTS easeml.policy_memory (
    policy text PRIMARY KEY,
    memory jsonb NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE easeml.policy_memory IS
    'What each policy needs to continue after a restart; only the coordinator reads it.';

CREATE TABLE IF NOT EXISTS easeml.arm_opening_candidates (
    decision_id bigint NOT NULL REFERENCES easeml.arm_openings ON DELETE CASCADE,
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    is_candidate boolean NOT NULL,
    is_chosen boolean NOT NULL,
    best_quality double precision NOT NULL,
    sig double precision,
    gap double precision NOT NULL,
    score double precision NOT NULL,
    decided_at timestamptz NOT NULL,
    policy text NOT NULL,
    phase text NOT NULL,
    chosen_gap double precision NOT NULL,
    chosen_score double precision NOT NULL,
    n_runs integer NOT NULL,
    PRIMARY KEY (decision_id, run_id),
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS arm_opening_candidates_run ON easeml.arm_opening_candidates (run_id, decision_id);
COMMENT ON TABLE easeml.arm_opening_candidates IS 'How each run stood at each decision, so that its tenant sees why it '
    'waited. The row shows the numbers of the chosen run but not whose it was.';
COMMENT ON COLUMN easeml.arm_opening_candidates.is_candidate IS 'Whether the rule considered the run.';
COMMENT ON COLUMN easeml.arm_opening_candidates.n_runs IS 'Number of runs with a waiting arm; if there are more than '
    '20, the chosen one, those with the largest gaps and some others by turns have rows here.';
