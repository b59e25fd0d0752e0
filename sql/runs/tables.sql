-- What users asked for: runs, their arms and their trials.

CREATE TABLE IF NOT EXISTS easeml.runs (
    run_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant name NOT NULL,
    dataset_id bigint NOT NULL,
    procedure text NOT NULL,
    architectures text[] NOT NULL,
    search_space jsonb,
    n_configs integer NOT NULL CHECK (n_configs >= 1),
    procedure_options jsonb,
    search jsonb,
    max_epochs integer NOT NULL CHECK (max_epochs BETWEEN 1 AND 1000000),
    metric text NOT NULL,
    is_higher_better boolean NOT NULL,
    max_seconds double precision CHECK (max_seconds > 0 AND max_seconds < 'Infinity'),
    seed bigint NOT NULL,
    scheduler text NOT NULL DEFAULT 'auto',
    visit_order text NOT NULL DEFAULT 'cyclic' CHECK (visit_order IN ('cyclic', 'free')),
    allocation text NOT NULL DEFAULT 'hopping',
    planned_scheduler text,
    simulated_seconds double precision,
    bound_seconds double precision,
    status text NOT NULL DEFAULT 'queued' CHECK (status IN ('queued', 'running', 'finished', 'failed', 'cancelled')),
    n_resumes integer NOT NULL DEFAULT 0 CHECK (n_resumes >= 0),
    is_ending boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now() CHECK (isfinite(created_at)),
    started_at timestamptz CHECK (isfinite(started_at)),
    finished_at timestamptz CHECK (isfinite(finished_at)),
    failure_reason text,
    UNIQUE (run_id, tenant),
    FOREIGN KEY (dataset_id, tenant) REFERENCES easeml.datasets (dataset_id, tenant)
);
ALTER TABLE easeml.runs
    ADD COLUMN IF NOT EXISTS deadline_seconds double precision CHECK (deadline_seconds > 0 AND deadline_seconds <= 1e9),
    ADD COLUMN IF NOT EXISTS deadline timestamptz CHECK (isfinite(deadline)),
    ADD COLUMN IF NOT EXISTS max_cost double precision CHECK (max_cost > 0 AND max_cost < 'Infinity'),
    ADD COLUMN IF NOT EXISTS price_list text,  -- no foreign key: a list is kept as long as an open run needs it
    ADD COLUMN IF NOT EXISTS slot_seconds double precision CHECK (slot_seconds >= 0),
    ADD COLUMN IF NOT EXISTS record_bytes bigint,
    ADD COLUMN IF NOT EXISTS is_open boolean NOT NULL GENERATED ALWAYS AS (status IN ('queued', 'running')) STORED;
CREATE INDEX IF NOT EXISTS runs_dataset ON easeml.runs (dataset_id);
CREATE INDEX IF NOT EXISTS runs_tenant ON easeml.runs (tenant, run_id) INCLUDE (slot_seconds, record_bytes);
-- Not of the status itself: a run that begins changes nothing that an index holds, so that its row stays in its page.
CREATE INDEX IF NOT EXISTS runs_open ON easeml.runs (tenant, run_id) WHERE is_open;
ALTER TABLE easeml.runs SET (fillfactor = 80);
COMMENT ON TABLE easeml.runs IS 'One row for each call of easeml.select_models.';
COMMENT ON COLUMN easeml.runs.n_configs IS 'Largest number of trials.';
COMMENT ON COLUMN easeml.runs.search IS
    'What a procedure that decides again and again started from, as JSON; null if all trials start at once.';
COMMENT ON COLUMN easeml.runs.allocation IS 'How trials share the slots: hopping (each trial has one slot), batched '
    '(trials of one shape share a slot), data_parallel (one trial has all slots), water_filling, auto, or planned.';
COMMENT ON COLUMN easeml.runs.deadline_seconds IS 'Seconds from its request, or from its resumption, to its deadline.';
COMMENT ON COLUMN easeml.runs.max_cost IS
    'What it may cost at the prices of its price list; at that cost it ends with what it has.';
COMMENT ON COLUMN easeml.runs.price_list IS 'What its slots cost; null unless its allocation is planned.';
COMMENT ON COLUMN easeml.runs.n_resumes IS
    'How often it was resumed: from this a coordinator that finds it open can tell whether it ended in between.';
COMMENT ON COLUMN easeml.runs.is_ending IS 'Whether its search is over, and only its best trial is still to be tested.';
COMMENT ON COLUMN easeml.runs.is_open IS 'Whether it is queued or running.';
COMMENT ON COLUMN easeml.runs.slot_seconds IS
    'Slot time of all its units once it is finished. Null before, and for an imported run, whose trials have it.';
COMMENT ON COLUMN easeml.runs.record_bytes IS 'Bytes that it, its arms, its trials and their measurements take, '
    'estimated when it ended; null before, and for an imported run.';
COMMENT ON COLUMN easeml.runs.planned_scheduler IS
    'The scheduler in use; simulated_seconds and bound_seconds are the forecast at the time it was chosen.';

CREATE TABLE IF NOT EXISTS easeml.arms (
    arm_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    architecture text NOT NULL,
    augmentation text NOT NULL DEFAULT 'none',
    planned_epochs bigint CHECK (planned_epochs BETWEEN 1 AND 1000000000000),
    opening bigint,
    opened_at timestamptz,
    bound double precision,
    closing bigint,
    closed_at timestamptz,
    quality double precision CHECK (quality BETWEEN 0 AND 1),
    cost_seconds double precision CHECK (cost_seconds >= 0),
    UNIQUE (run_id, architecture, augmentation),
    UNIQUE (arm_id, tenant),
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.arms IS 'The candidates of a run: an architecture with its augmentation. The trials of an arm '
    'may run once a decision has opened it.';
COMMENT ON COLUMN easeml.arms.architecture IS
    'One architecture, or several with | between them if one search covers all.';
COMMENT ON COLUMN easeml.arms.planned_epochs IS
    'Largest number of epochs that its trials train together; in a race, its share of those of all arms.';
COMMENT ON COLUMN easeml.arms.opening IS
    'The decision that opened it. With closing it gives the order of all openings and closings.';
COMMENT ON COLUMN easeml.arms.bound IS 'Upper bound of its quality when it was opened.';
COMMENT ON COLUMN easeml.arms.quality IS
    'Best validation metric of its trials as a quality; valid while none of them is open.';

-- Its rules are those of the trigger trial_values: PostgreSQL parses all CHECKs of a table at every UPDATE, and each
-- unit updates the rows of its trial and its slot.
CREATE TABLE IF NOT EXISTS easeml.trials (
    trial_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL,
    arm_id bigint NOT NULL,
    tenant name NOT NULL,
    trial_number integer NOT NULL,
    architecture text NOT NULL,
    config jsonb NOT NULL,
    max_epochs integer NOT NULL,
    target_epochs integer,
    bracket integer NOT NULL DEFAULT 0,
    parent_trial_id bigint,  -- no foreign key: a parent is removed only with its run
    inherited_epochs integer NOT NULL DEFAULT 0,
    status text NOT NULL DEFAULT 'waiting',
    n_steps_done integer NOT NULL DEFAULT 0,
    checkpoint_id bigint,  -- no foreign key: the index that it needs would hold a column that each unit changes
    best_epoch integer,
    best_metric_value double precision,
    best_loss double precision,
    best_checkpoint_id bigint,
    pilot_train_seconds double precision,
    pilot_evaluate_seconds double precision,
    started_at timestamptz,
    finished_at timestamptz,
    failure_reason text,
    UNIQUE (run_id, trial_number),
    UNIQUE (trial_id, tenant),
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE,
    FOREIGN KEY (arm_id, tenant) REFERENCES easeml.arms (arm_id, tenant) ON DELETE CASCADE
);
ALTER TABLE easeml.trials
    ADD COLUMN IF NOT EXISTS slot_seconds double precision NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS training_seconds double precision;
CREATE INDEX IF NOT EXISTS trials_arm ON easeml.trials (arm_id);
-- Each unit updates the row of its trial, and no column that an index holds. There is none of the tenant: to find a few
-- trials of a run, the planner would read all entries of the tenant first.
ALTER TABLE easeml.trials SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON TABLE easeml.trials IS 'The configs of a run that are trained and measured.';
COMMENT ON COLUMN easeml.trials.max_epochs IS
    'Epochs after which it is tested and finished: those of its run, or fewer if the end of the run cut it short.';
COMMENT ON COLUMN easeml.trials.target_epochs IS
    'Epoch after which it pauses until its procedure decides; null means max_epochs.';
COMMENT ON COLUMN easeml.trials.bracket IS 'Bracket of its procedure, from 0; trials of earlier brackets run first.';
COMMENT ON COLUMN easeml.trials.parent_trial_id IS
    'The trial that it began as a copy of, with that trial''s state after inherited_epochs.';
COMMENT ON COLUMN easeml.trials.n_steps_done IS 'Recorded steps, including those of its parent. An epoch has one '
    'training and one validation step for each partition; the test steps come last.';
COMMENT ON COLUMN easeml.trials.slot_seconds IS 'Slot time of its recorded units, added up as they are recorded, so '
    'that the cost of a run needs no sum over units.';
COMMENT ON COLUMN easeml.trials.training_seconds IS
    'Seconds that its recorded training units spent training; null before the first.';
COMMENT ON COLUMN easeml.trials.best_loss IS 'Log loss or RMSE on the validation rows after its best epoch. Of equal '
    'metric values the one with the lower loss is the better.';
COMMENT ON COLUMN easeml.trials.checkpoint_id IS 'The newest state; the transaction that records a unit changes it.';
