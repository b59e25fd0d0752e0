-- What was done: units, checkpoints, evaluations, events. Each unit writes its rows in the transaction that records it.
-- Units, checkpoints, evaluations and metrics have no foreign key to trials, whose rows each unit changes: as long as
-- anybody's snapshot is old, each check would go through all versions of the trial. The transaction that writes them
-- holds the trial, the trigger trial_results removes them with it, and easeml.broken_references looks at them.

CREATE TABLE IF NOT EXISTS easeml.checkpoints (
    checkpoint_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    trial_id bigint NOT NULL,
    tenant name NOT NULL,
    epoch integer NOT NULL,
    n_bytes bigint NOT NULL,
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    state bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (checkpoint_id, tenant)
);
ALTER TABLE easeml.checkpoints ADD COLUMN IF NOT EXISTS is_elsewhere boolean NOT NULL DEFAULT false;
ALTER TABLE easeml.checkpoints ALTER state SET STORAGE EXTERNAL;
-- Before PostgreSQL 17 only an owner may vacuum a table, so there autovacuum does what the coordinator does later: once
-- 2 MB of states and a tenth of the kept ones are gone, at full speed, without the lock that cutting the end off takes.
ALTER TABLE easeml.checkpoints SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false, toast.autovacuum_vacuum_scale_factor = 0.1,
    toast.autovacuum_vacuum_threshold = 1000, toast.autovacuum_vacuum_cost_delay = 0, toast.vacuum_truncate = false);
CREATE INDEX IF NOT EXISTS checkpoints_trial ON easeml.checkpoints (trial_id);
COMMENT ON TABLE easeml.checkpoints IS 'Stored states (safetensors), never overwritten. Of each trial the newest state '
    'and that of its best epoch are kept.';
COMMENT ON COLUMN easeml.checkpoints.state IS
    'The bytes of a small state; null if they lie in easeml.checkpoint_chunks, or elsewhere.';
COMMENT ON COLUMN easeml.checkpoints.is_elsewhere IS
    'The bytes lie only on the servers of easeml.checkpoint_copies: those of a state within an epoch.';

CREATE TABLE IF NOT EXISTS easeml.checkpoint_chunks (
    checkpoint_id bigint NOT NULL,
    tenant name NOT NULL,
    chunk_number integer NOT NULL CHECK (chunk_number >= 0),
    bytes bytea NOT NULL,
    PRIMARY KEY (checkpoint_id, chunk_number),
    FOREIGN KEY (checkpoint_id, tenant) REFERENCES easeml.checkpoints (checkpoint_id, tenant) ON DELETE CASCADE
);
ALTER TABLE easeml.checkpoint_chunks ALTER bytes SET STORAGE EXTERNAL;
ALTER TABLE easeml.checkpoint_chunks SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false, toast.autovacuum_vacuum_scale_factor = 0.1,
    toast.autovacuum_vacuum_threshold = 1000, toast.autovacuum_vacuum_cost_delay = 0, toast.vacuum_truncate = false);
COMMENT ON TABLE easeml.checkpoint_chunks IS 'States of more than 4 MB in chunks of 1 MB: a value cannot exceed 1 GB, '
    'and needs its size in memory several times.';
COMMENT ON COLUMN easeml.checkpoint_chunks.chunk_number IS 'Place of the chunk in the state, from 0.';

CREATE TABLE IF NOT EXISTS easeml.checkpoint_copies (
    checkpoint_id bigint NOT NULL,
    tenant name NOT NULL,
    segment_id integer NOT NULL REFERENCES easeml.segments ON DELETE CASCADE,
    PRIMARY KEY (checkpoint_id, segment_id),
    FOREIGN KEY (checkpoint_id, tenant) REFERENCES easeml.checkpoints (checkpoint_id, tenant) ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS checkpoint_copies_segment ON easeml.checkpoint_copies (segment_id);
COMMENT ON TABLE easeml.checkpoint_copies IS 'Segments that hold the bytes of a state that was made on another server.';

CREATE TABLE IF NOT EXISTS easeml.training_units (
    trial_id bigint NOT NULL,
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    epoch integer NOT NULL,
    position integer NOT NULL,
    partition_number integer NOT NULL,
    slot_id integer NOT NULL,
    attempt integer NOT NULL,
    seed bigint NOT NULL,
    lease_number bigint NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    training_seconds double precision NOT NULL,
    n_rows bigint NOT NULL,
    loss double precision,
    from_checkpoint_id bigint,
    checkpoint_id bigint NOT NULL,
    state_bytes bigint NOT NULL,
    state_sha256 text NOT NULL,
    read_bytes bigint NOT NULL DEFAULT 0,
    n_slots integer NOT NULL DEFAULT 1 CHECK (n_slots >= 1),
    stack integer[] CHECK (cardinality(stack) = 3 AND array_position(stack, NULL) IS NULL),
    PRIMARY KEY (trial_id, epoch, partition_number)
);
CREATE INDEX IF NOT EXISTS training_units_run ON easeml.training_units (run_id);
CREATE INDEX IF NOT EXISTS training_units_started ON easeml.training_units (started_at);
COMMENT ON TABLE easeml.training_units IS
    'Every recorded training unit: the coordinator''s memory, the visit log that replay needs, and the Gantt chart.';
COMMENT ON COLUMN easeml.training_units.from_checkpoint_id IS
    'The state it started from; null for a fresh one. It may have been pruned since.';
COMMENT ON COLUMN easeml.training_units.read_bytes IS
    'Bytes of the state that it read from the tables; 0 if its session still held the trial.';
COMMENT ON COLUMN easeml.training_units.state_bytes IS
    'Size of the recorded state; in a gang only the first unit has it, the others 0.';
COMMENT ON COLUMN easeml.training_units.n_slots IS
    'Number of slots that trained the trial together: 1, or the width of its gang.';

CREATE TABLE IF NOT EXISTS easeml.evaluations (
    trial_id bigint NOT NULL,
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    epoch integer NOT NULL,
    split text NOT NULL CHECK (split IN ('validation', 'test')),
    partition_number integer NOT NULL,
    slot_id integer NOT NULL,
    attempt integer NOT NULL,
    lease_number bigint NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    statistics jsonb NOT NULL,
    read_bytes bigint NOT NULL DEFAULT 0,
    n_slots integer NOT NULL DEFAULT 1 CHECK (n_slots >= 1),
    n_rows bigint GENERATED ALWAYS AS ((statistics ->> 'n_rows')::bigint) STORED,
    PRIMARY KEY (trial_id, epoch, split, partition_number)
);
CREATE INDEX IF NOT EXISTS evaluations_run ON easeml.evaluations (run_id);
CREATE INDEX IF NOT EXISTS evaluations_started ON easeml.evaluations (started_at);
COMMENT ON COLUMN easeml.training_units.stack IS
    'Of a unit that trained as one computation with those of other trials: how many there were, its place among them '
    'from 0, and the steps that they did together. Null if it trained alone.';

COMMENT ON TABLE easeml.evaluations IS
    'Every recorded evaluation unit, with the sums from which the metrics of the whole split are computed.';
COMMENT ON COLUMN easeml.evaluations.statistics IS
    'The sums. For a few rows they are the targets themselves, so readers do not see them.';
COMMENT ON COLUMN easeml.evaluations.n_rows IS 'Number of rows that were measured.';
COMMENT ON COLUMN easeml.evaluations.read_bytes IS
    'Bytes of the state that it read from the tables; 0 if its session still held the trial.';
COMMENT ON COLUMN easeml.evaluations.n_slots IS
    'Number of slots that measured the trial together: 1, or the width of its gang.';

CREATE TABLE IF NOT EXISTS easeml.epoch_metrics (
    trial_id bigint NOT NULL,
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    epoch integer NOT NULL,
    split text NOT NULL CHECK (split IN ('validation', 'test')),
    n_rows bigint NOT NULL,
    metric_value double precision,
    n_classes integer,
    metric_error double precision,
    measured_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (trial_id, epoch, split)
);
ALTER TABLE easeml.epoch_metrics
    ADD COLUMN IF NOT EXISTS training_loss double precision,
    ADD COLUMN IF NOT EXISTS training_seconds double precision;
CREATE INDEX IF NOT EXISTS epoch_metrics_run ON easeml.epoch_metrics (run_id);
COMMENT ON TABLE easeml.epoch_metrics IS
    'What was measured of a trial after an epoch over a whole split. metric_value is the metric of the run, which is '
    'also a row of easeml.metric_values, as all others are: the leaderboard reads it here.';
COMMENT ON COLUMN easeml.epoch_metrics.n_classes IS
    'Number of classes with rows in the split; the metrics ignore all others. Null if the target is a number.';
COMMENT ON COLUMN easeml.epoch_metrics.training_loss IS 'Mean loss over the training rows of the epoch, in the row of '
    'the validation split: learning curves outlive the units.';
COMMENT ON COLUMN easeml.epoch_metrics.training_seconds IS
    'Seconds that the training units of the epoch spent training, in the same row.';
COMMENT ON COLUMN easeml.epoch_metrics.metric_error IS
    'Standard error of metric_value as the mean over folds; null without folds.';

-- There is a row for each metric of each epoch, so rows are narrow: a tenant as a name takes 64 bytes.
CREATE TABLE IF NOT EXISTS easeml.metric_values (
    trial_id bigint NOT NULL,
    epoch integer NOT NULL,
    tenant text NOT NULL,
    split text NOT NULL,
    metric text NOT NULL CHECK (length(metric) BETWEEN 1 AND 63),
    value double precision NOT NULL,
    PRIMARY KEY (trial_id, epoch, split, metric)
);
COMMENT ON TABLE easeml.metric_values IS
    'Every metric of easeml.epoch_metrics that is a finite number, a row for each: a new metric changes no table.';

CREATE TABLE IF NOT EXISTS easeml.events (
    event_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant name NOT NULL,
    run_id bigint,
    trial_id bigint,
    happened_at timestamptz NOT NULL DEFAULT now(),
    kind text NOT NULL,
    message text NOT NULL,
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS events_run ON easeml.events (run_id);
COMMENT ON TABLE easeml.events IS 'What happened to runs and trials, in words: retries, failures, cancels, resumes.';

CREATE TABLE IF NOT EXISTS easeml.node_jobs (
    job_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant name NOT NULL,
    caller name NOT NULL,
    kind text NOT NULL CHECK (kind IN ('answers', 'predictions', 'replay', 'explanation', 'drift')),
    -- no foreign keys: a grantee's open transaction would lock the owner's dataset and trial
    dataset_id bigint NOT NULL,
    trial_id bigint,
    arguments jsonb NOT NULL,
    places jsonb,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    not_before timestamptz,
    ended_at timestamptz,
    problem jsonb,
    result jsonb,
    asker_pid integer,
    asker_started timestamptz,
    asker_asked timestamptz
);
CREATE INDEX IF NOT EXISTS node_jobs_dataset ON easeml.node_jobs (dataset_id);
CREATE INDEX IF NOT EXISTS node_jobs_trial ON easeml.node_jobs (trial_id);
CREATE INDEX IF NOT EXISTS node_jobs_open ON easeml.node_jobs (asked_at) WHERE ended_at IS NULL;
COMMENT ON TABLE easeml.node_jobs IS
    'Jobs besides packing that tenants have requested where rows lie on other servers.';
COMMENT ON COLUMN easeml.node_jobs.kind IS 'answers: of a trial for held-out rows; predictions: for tables; replay: of '
    'a trial; explanation: of a trial''s inputs, on held-out rows or for one row; drift: of tables.';
COMMENT ON COLUMN easeml.node_jobs.caller IS
    'The role that asked: a role of that name reads and writes tables on the nodes.';
COMMENT ON COLUMN easeml.node_jobs.trial_id IS 'The trial; null for drift, which concerns none.';
COMMENT ON COLUMN easeml.node_jobs.places IS 'For predictions and drift the tables, by segment.';
COMMENT ON COLUMN easeml.node_jobs.not_before IS 'When the service tries again, after a node did not answer.';
COMMENT ON COLUMN easeml.node_jobs.problem IS 'What it waits for, or why it failed: the parts of an error.';
COMMENT ON COLUMN easeml.node_jobs.asker_pid IS
    'The session that waits for it; null: the job is done even if nobody waits.';
COMMENT ON COLUMN easeml.node_jobs.asker_started IS 'When that session began.';
COMMENT ON COLUMN easeml.node_jobs.asker_asked IS 'When its statement began.';

CREATE TABLE IF NOT EXISTS easeml.node_answers (
    trial_id bigint NOT NULL REFERENCES easeml.trials ON DELETE CASCADE,
    tenant name NOT NULL,
    -- no foreign key: every unit removes a state, and this is looked up with the state's number
    checkpoint_id bigint NOT NULL,
    split text NOT NULL CHECK (split IN ('validation', 'test')),
    partition_number integer NOT NULL,
    block_number integer NOT NULL,
    n_rows integer NOT NULL,
    outputs bytea NOT NULL,
    targets bytea NOT NULL,
    PRIMARY KEY (trial_id, split, partition_number, block_number)
);
ALTER TABLE easeml.node_answers ALTER outputs SET STORAGE EXTERNAL, ALTER targets SET STORAGE EXTERNAL;
COMMENT ON TABLE easeml.node_answers IS 'What trials answer for held-out rows that lie on nodes, with the targets of '
    'these rows (easeml.evaluate_on_nodes).';
COMMENT ON COLUMN easeml.node_answers.checkpoint_id IS 'The state that answered.';
COMMENT ON COLUMN easeml.node_answers.outputs IS
    'Probabilities, or values in the units of the target, row after row, as float64.';
COMMENT ON COLUMN easeml.node_answers.targets IS 'As in easeml.blocks.';

CREATE TABLE IF NOT EXISTS easeml.node_hops (
    hop_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    trial_id bigint NOT NULL REFERENCES easeml.trials ON DELETE CASCADE,
    from_segment_id integer NOT NULL,  -- no foreign key: hops outlive segments
    to_segment_id integer NOT NULL,
    n_bytes bigint NOT NULL CHECK (n_bytes >= 0),
    seconds double precision NOT NULL CHECK (seconds >= 0 AND seconds < 1e9),
    is_ahead boolean NOT NULL,
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS node_hops_run ON easeml.node_hops (run_id);
CREATE INDEX IF NOT EXISTS node_hops_trial ON easeml.node_hops (trial_id);
COMMENT ON TABLE easeml.node_hops IS 'States that went from server to server, and that a unit then started from.';
COMMENT ON COLUMN easeml.node_hops.n_bytes IS 'Bytes on the wire.';
COMMENT ON COLUMN easeml.node_hops.is_ahead IS 'Whether it was there before its unit asked for it.';
