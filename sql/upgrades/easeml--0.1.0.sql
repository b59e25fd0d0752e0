\echo Use "CREATE EXTENSION easeml CASCADE" to load this file. \quit
-- security/install.sql
-- The rest of this script finds only what it names, whatever search_path the installer has.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

-- CREATE EXTENSION takes a schema easeml that is there already. Its owner could replace what superusers call.
DO $install$
DECLARE
    place pg_catalog.pg_namespace;
    foreigner text;
BEGIN
    SELECT n.* INTO STRICT place FROM pg_catalog.pg_namespace n WHERE n.nspname = 'easeml';
    SELECT r.rolname INTO foreigner FROM pg_catalog.pg_roles r
    WHERE NOT r.rolsuper AND (r.oid = place.nspowner OR EXISTS (
        SELECT FROM pg_catalog.aclexplode(place.nspacl) a WHERE a.privilege_type = 'CREATE' AND a.grantee IN (0, r.oid))) LIMIT 1;
    IF foreigner IS NOT NULL THEN
        RAISE EXCEPTION USING errcode = 'ML004', message = pg_catalog.format('schema easeml is there already, and role %s can create objects in it', foreigner),
            hint = 'Look what it holds, rename or drop it, and create the extension again.';
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass AND d.refobjid = place.oid
        AND d.classid <> 'pg_catalog.pg_extension'::pg_catalog.regclass) THEN
        RAISE EXCEPTION USING errcode = 'ML004', message = 'schema easeml is there already, and holds objects',
            hint = 'Look what it holds, rename or drop it, and create the extension again.';
    END IF;
END
$install$;

-- security/roles.sql
-- Group roles. They belong to the cluster, not to the database, so they may exist already.
DO $roles$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['easeml_owner', 'easeml_admin', 'easeml_coordinator', 'easeml_tenant', 'easeml_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = role_name) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        END IF;
    END LOOP;
    -- Whoever became easeml_owner would see and write the rows of all tenants.
    IF EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = 'easeml_owner' AND (r.rolcanlogin OR r.rolsuper OR r.rolbypassrls OR r.rolcreaterole))
        OR EXISTS (SELECT FROM pg_catalog.pg_auth_members m WHERE m.roleid = 'easeml_owner'::regrole
            OR m.member = 'easeml_owner'::regrole AND m.roleid <> 'pg_read_all_stats'::regrole) THEN
        RAISE EXCEPTION USING errcode = 'ML004', message = 'role easeml_owner is there already, and can log in, has members or further rights',
            hint = 'The role must be one that nobody can become. Drop it, and create the extension again.';
    END IF;
    -- Predictions ask what kind of session they are in (easeml_plpy.serving); that of another role does not say.
    GRANT pg_read_all_stats TO easeml_owner;
END
$roles$;
COMMENT ON SCHEMA easeml IS 'Model selection, training and prediction where the data lives.';

-- tables/topology.sql
-- Where units run, and which coordinator may record them.

CREATE TABLE easeml.segments (
    segment_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    segment_name text NOT NULL UNIQUE,
    engine text NOT NULL DEFAULT 'postgres' CHECK (engine IN ('postgres'))
);
COMMENT ON TABLE easeml.segments IS 'Places that hold partitions and run units; this server is the first.';
INSERT INTO easeml.segments (segment_id, segment_name) OVERRIDING SYSTEM VALUE VALUES (1, 'local');
SELECT setval('easeml.segments_segment_id_seq', 1);

CREATE TABLE easeml.slots (
    slot_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot_name text NOT NULL UNIQUE,
    segment_id integer NOT NULL DEFAULT 1 REFERENCES easeml.segments,
    device text NOT NULL DEFAULT 'cpu' CHECK (device ~ '^(cpu(:[0-9]+)?|cuda:[0-9]+)$'),
    n_threads integer NOT NULL DEFAULT 1 CHECK (n_threads BETWEEN 1 AND 1024),
    memory_limit_bytes bigint CHECK (memory_limit_bytes >= 268435456),
    status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'draining', 'lost')),
    lost_reason text,
    lost_at timestamptz,
    backend_pid integer,
    trial_id bigint,
    kind text CHECK (kind IN ('train', 'validate', 'test', 'pilot')),
    epoch integer,
    partition_number integer,
    unit_started_at timestamptz,
    n_units_done bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE easeml.slots IS 'Sessions that run one unit at a time, each bound to one device; easeml.set_slots and the units themselves write them.';
COMMENT ON COLUMN easeml.slots.device IS 'cuda:N: a GPU; cpu: cores of its own; cpu:N: the N-th n_threads cores. Slots of a segment with the same cuda:N or cpu:N share it.';
COMMENT ON COLUMN easeml.slots.memory_limit_bytes IS 'RLIMIT_DATA of the session: a unit beyond it fails with out of memory and does not take the server down. NULL: its share of the machine''s memory; on a GPU no limit.';

CREATE TABLE easeml.coordinator_lease (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    lease_number bigint NOT NULL DEFAULT 0,
    acquired_at timestamptz,
    holder_pid integer,
    holder_started timestamptz
);
COMMENT ON TABLE easeml.coordinator_lease IS 'The number that a coordinator draws when it takes over. Units that an earlier coordinator started can no longer be recorded.';
COMMENT ON COLUMN easeml.coordinator_lease.holder_pid IS 'The session that holds it; once that is gone, or its last heartbeat older than 30 seconds, another coordinator takes over.';
COMMENT ON COLUMN easeml.coordinator_lease.holder_started IS 'When that session began.';
INSERT INTO easeml.coordinator_lease DEFAULT VALUES;

CREATE TABLE easeml.coordinators (
    lease_number bigint PRIMARY KEY,
    host text NOT NULL,
    process_id integer NOT NULL,
    version text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now(),
    stopped_at timestamptz
);
COMMENT ON TABLE easeml.coordinators IS 'Coordinators that have held the lease, with their last heartbeat.';

-- tables/datasets.sql
-- Datasets: a registered source, shuffled once, split, and packed into blocks over partitions.

CREATE TABLE easeml.datasets (
    dataset_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant name NOT NULL,
    dataset_name text NOT NULL CHECK (dataset_name <> '' AND length(dataset_name) <= 200),
    version integer NOT NULL CHECK (version >= 1),
    source text NOT NULL,
    input_columns text[] NOT NULL,
    target_column text NOT NULL,
    task text NOT NULL CHECK (task IN ('classification', 'regression')),
    input_shape integer[] NOT NULL,
    n_outputs integer NOT NULL CHECK (n_outputs >= 1),
    n_partitions integer NOT NULL CHECK (n_partitions BETWEEN 1 AND 10000),
    placement text NOT NULL DEFAULT 'shared' CHECK (placement IN ('shared', 'bound')),
    validation_fraction double precision NOT NULL CHECK (validation_fraction > 0 AND validation_fraction < 1),
    test_fraction double precision NOT NULL CHECK (test_fraction > 0 AND test_fraction < 1),
    seed bigint NOT NULL,
    block_rows integer NOT NULL CHECK (block_rows BETWEEN 1 AND 1000000),
    options jsonb NOT NULL DEFAULT '{}',
    encoder jsonb NOT NULL,
    n_skipped_rows bigint NOT NULL DEFAULT 0 CHECK (n_skipped_rows BETWEEN 0 AND 1000000000000),
    created_at timestamptz NOT NULL DEFAULT now() CHECK (isfinite(created_at)),
    packing_seconds double precision CHECK (packing_seconds >= 0 AND packing_seconds < 1e9),
    packing_xid xid8,
    explanations jsonb NOT NULL DEFAULT '{}',
    row_key text,
    UNIQUE (tenant, dataset_name, version),
    UNIQUE (dataset_id, tenant)  -- children carry (id, tenant) so that no row can hang on another tenant's parent
);
COMMENT ON TABLE easeml.datasets IS 'Registered datasets, one row for each version.';
COMMENT ON COLUMN easeml.datasets.encoder IS 'How columns become numbers, with statistics of the training rows; prediction applies the same encoding.';
COMMENT ON COLUMN easeml.datasets.explanations IS 'By input column, what it became and why.';
COMMENT ON COLUMN easeml.datasets.packing_xid IS 'The transaction that is packing it: its tenant may add blocks in that transaction only. Null once it is packed.';
COMMENT ON COLUMN easeml.datasets.row_key IS 'SQL of what names a row of the source in easeml.dataset_rows.';
COMMENT ON COLUMN easeml.datasets.options IS 'Further arguments of create_dataset, kept so that refresh_dataset can repeat them.';

CREATE TABLE easeml.partitions (
    dataset_id bigint NOT NULL,
    tenant name NOT NULL,
    partition_number integer NOT NULL CHECK (partition_number BETWEEN 0 AND 9999),
    n_train_rows bigint NOT NULL CHECK (n_train_rows BETWEEN 0 AND 1000000000000),
    n_validation_rows bigint NOT NULL CHECK (n_validation_rows BETWEEN 0 AND 1000000000000),
    n_test_rows bigint NOT NULL CHECK (n_test_rows BETWEEN 0 AND 1000000000000),
    n_bytes bigint NOT NULL CHECK (n_bytes BETWEEN 0 AND 100000000000000),
    checksum bigint NOT NULL,
    PRIMARY KEY (dataset_id, partition_number),
    FOREIGN KEY (dataset_id, tenant) REFERENCES easeml.datasets (dataset_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.partitions IS 'The partitions of each dataset; a training unit reads one of them.';
COMMENT ON COLUMN easeml.partitions.checksum IS 'CRC-32 over inputs and targets of its training blocks, block after block; easeml.replay refuses other rows.';

CREATE TABLE easeml.replicas (
    dataset_id bigint NOT NULL,
    tenant name NOT NULL,
    partition_number integer NOT NULL,
    segment_id integer NOT NULL REFERENCES easeml.segments,
    PRIMARY KEY (dataset_id, partition_number, segment_id),
    FOREIGN KEY (dataset_id, partition_number) REFERENCES easeml.partitions (dataset_id, partition_number) ON DELETE CASCADE,
    FOREIGN KEY (dataset_id, tenant) REFERENCES easeml.datasets (dataset_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.replicas IS 'Which segments hold which partition of the datasets with bound placement.';
CREATE INDEX replicas_segment ON easeml.replicas (segment_id);

CREATE TABLE easeml.blocks (
    dataset_id bigint NOT NULL,
    tenant name NOT NULL,
    split text NOT NULL CHECK (split IN ('train', 'validation', 'test')),
    partition_number integer NOT NULL CHECK (partition_number BETWEEN 0 AND 9999),
    block_number integer NOT NULL CHECK (block_number >= 0),
    n_rows integer NOT NULL CHECK (n_rows BETWEEN 1 AND 1000000),
    inputs bytea NOT NULL,
    targets bytea NOT NULL,
    row_keys text[] CHECK (cardinality(row_keys) = n_rows),
    row_hashes bigint[] CHECK (cardinality(row_hashes) = n_rows),
    PRIMARY KEY (dataset_id, split, partition_number, block_number),
    FOREIGN KEY (dataset_id, tenant) REFERENCES easeml.datasets (dataset_id, tenant) ON DELETE CASCADE
);
-- Numbers compress badly and decompression would cost more than reading: keep them as they are.
ALTER TABLE easeml.blocks ALTER inputs SET STORAGE EXTERNAL, ALTER targets SET STORAGE EXTERNAL;
COMMENT ON TABLE easeml.blocks IS 'Packed examples: a row holds some thousand of them as contiguous little-endian arrays.';
COMMENT ON COLUMN easeml.blocks.inputs IS 'The input columns one after another, each as an array of n_rows entries of the type that the encoder names.';
COMMENT ON COLUMN easeml.blocks.targets IS 'Labels as int32 codes, or numbers as float64.';
COMMENT ON COLUMN easeml.blocks.row_keys IS 'The key of each row in the source, for easeml.dataset_rows; nothing else reads it.';
COMMENT ON COLUMN easeml.blocks.row_hashes IS 'The hash of each row of a source without a key, for easeml.dataset_rows.';

CREATE TABLE easeml.dataset_grants (
    tenant name NOT NULL,
    dataset_name text NOT NULL,
    grantee regrole NOT NULL,
    granted_at timestamptz,
    serving_only boolean NOT NULL DEFAULT false,
    grantee_name name,
    PRIMARY KEY (tenant, dataset_name, grantee)
);
CREATE INDEX dataset_grants_grantee ON easeml.dataset_grants (grantee, dataset_name);
COMMENT ON TABLE easeml.dataset_grants IS 'Roles that may predict with the trials of a dataset (easeml.grant_use).';
COMMENT ON COLUMN easeml.dataset_grants.granted_at IS 'Of several grants of one name the oldest answers. Null: an open transaction granted that name to the role, too, so this one answers as tenant.dataset only.';
COMMENT ON COLUMN easeml.dataset_grants.grantee_name IS 'In a dump the name of the role; null in the table.';
COMMENT ON COLUMN easeml.dataset_grants.serving_only IS 'Whether the role may ask only the trial that answers unless another is named.';

CREATE TABLE easeml.prediction_audits (
    tenant name NOT NULL,
    dataset_name text NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, dataset_name)
);
COMMENT ON TABLE easeml.prediction_audits IS 'Datasets whose tenant wants to know who predicts with them (easeml.set_prediction_audit).';

CREATE TABLE easeml.prediction_log (
    tenant name NOT NULL,
    dataset_name text NOT NULL,
    day date NOT NULL,
    asker name NOT NULL,
    trial_id bigint NOT NULL,  -- no foreign key: the count outlives its run
    n_statements bigint NOT NULL DEFAULT 1 CHECK (n_statements >= 1),
    first_at timestamptz NOT NULL DEFAULT now(),
    last_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, dataset_name, day, asker, trial_id)
);
COMMENT ON TABLE easeml.prediction_log IS 'Who predicted, for datasets under easeml.set_prediction_audit: a row for each day, role and trial, kept for 90 days.';
COMMENT ON COLUMN easeml.prediction_log.day IS 'The day in UTC.';
COMMENT ON COLUMN easeml.prediction_log.asker IS 'The role that predicted.';
COMMENT ON COLUMN easeml.prediction_log.n_statements IS 'Statements that predicted and committed. Read-only transactions do not count, nor does a statement while another session of the role holds the row.';

-- tables/runs.sql
-- What users asked for: runs, their arms and their trials.

CREATE TABLE easeml.runs (
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
CREATE INDEX runs_dataset ON easeml.runs (dataset_id);
CREATE INDEX runs_open ON easeml.runs (run_id) WHERE status IN ('queued', 'running');
COMMENT ON TABLE easeml.runs IS 'One row for each call of easeml.select_models.';
COMMENT ON COLUMN easeml.runs.n_configs IS 'Largest number of trials.';
COMMENT ON COLUMN easeml.runs.search IS 'What a procedure that decides again and again started from, as JSON; null if all trials start at once.';
COMMENT ON COLUMN easeml.runs.allocation IS 'How trials share the slots: hopping (each trial has one slot), batched (trials of one shape share a slot), data_parallel (one trial has all slots), water_filling, or auto.';
COMMENT ON COLUMN easeml.runs.n_resumes IS 'How often it was resumed: a coordinator that finds it open tells from this whether it ended in between.';
COMMENT ON COLUMN easeml.runs.is_ending IS 'Whether its search is over, and only its best trial is still to be tested.';
COMMENT ON COLUMN easeml.runs.planned_scheduler IS 'The scheduler in use; simulated_seconds and bound_seconds are the forecast at the time it was chosen.';

CREATE TABLE easeml.arms (
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
COMMENT ON TABLE easeml.arms IS 'The candidates of a run: an architecture with its augmentation. The trials of an arm may run once a decision has opened it.';
COMMENT ON COLUMN easeml.arms.architecture IS 'One architecture, or several with | between them if one search covers all.';
COMMENT ON COLUMN easeml.arms.planned_epochs IS 'Largest number of epochs that its trials train together.';
COMMENT ON COLUMN easeml.arms.opening IS 'The decision that opened it. With closing it gives the order of all openings and closings.';
COMMENT ON COLUMN easeml.arms.bound IS 'Upper bound of its quality when it was opened.';
COMMENT ON COLUMN easeml.arms.quality IS 'Best validation metric of its trials as a quality; valid while none of them is open.';

CREATE TABLE easeml.trials (
    trial_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL,
    arm_id bigint NOT NULL,
    tenant name NOT NULL,
    trial_number integer NOT NULL CHECK (trial_number >= 1),
    architecture text NOT NULL,
    config jsonb NOT NULL,
    max_epochs integer NOT NULL CHECK (max_epochs BETWEEN 1 AND 1000000),
    target_epochs integer CHECK (target_epochs BETWEEN 1 AND max_epochs),
    bracket integer NOT NULL DEFAULT 0 CHECK (bracket >= 0),
    parent_trial_id bigint,  -- no foreign key: a parent is removed only with its run
    inherited_epochs integer NOT NULL DEFAULT 0 CHECK (inherited_epochs BETWEEN 0 AND max_epochs),
    status text NOT NULL DEFAULT 'waiting'
        CHECK (status IN ('waiting', 'running', 'paused', 'finished', 'failed', 'cancelled', 'stopped')),
    n_steps_done integer NOT NULL DEFAULT 0,
    checkpoint_id bigint,  -- no foreign key: a cycle with checkpoints would lose every row at a plain restore
    best_epoch integer,
    best_metric_value double precision,
    best_loss double precision,
    best_checkpoint_id bigint,
    pilot_train_seconds double precision,
    pilot_evaluate_seconds double precision,
    started_at timestamptz CHECK (isfinite(started_at)),
    finished_at timestamptz CHECK (isfinite(finished_at)),
    failure_reason text,
    UNIQUE (run_id, trial_number),
    UNIQUE (trial_id, tenant),
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE,
    FOREIGN KEY (arm_id, tenant) REFERENCES easeml.arms (arm_id, tenant) ON DELETE CASCADE
);
CREATE INDEX trials_arm ON easeml.trials (arm_id);
COMMENT ON TABLE easeml.trials IS 'The configs of a run that are trained and measured.';
COMMENT ON COLUMN easeml.trials.max_epochs IS 'Epochs after which it is tested and finished: those of its run, or fewer if the end of the run cut it short.';
COMMENT ON COLUMN easeml.trials.target_epochs IS 'Epoch after which it pauses until its procedure decides; null means max_epochs.';
COMMENT ON COLUMN easeml.trials.bracket IS 'Bracket of its procedure, from 0; trials of earlier brackets run first.';
COMMENT ON COLUMN easeml.trials.parent_trial_id IS 'The trial that it began as a copy of, with that trial''s state after inherited_epochs.';
COMMENT ON COLUMN easeml.trials.n_steps_done IS 'Recorded steps, including those of its parent. An epoch has one training and one validation step for each partition; the test steps come last.';
COMMENT ON COLUMN easeml.trials.best_loss IS 'Log loss or RMSE on the validation rows after its best epoch. Of equal metric values the one with the lower loss is the better.';
COMMENT ON COLUMN easeml.trials.checkpoint_id IS 'The newest state; the transaction that records a unit changes it.';

-- tables/serving.sql
-- What answers for a dataset: chosen by its metric or by hand, and what answered before.

CREATE TABLE easeml.serving_metrics (
    tenant name NOT NULL,
    dataset_name text NOT NULL,
    metric text NOT NULL,
    is_higher_better boolean NOT NULL,
    is_chosen boolean NOT NULL DEFAULT false,
    set_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, dataset_name)
);
COMMENT ON TABLE easeml.serving_metrics IS 'The metric that chooses what answers for a dataset, for all of its versions.';
COMMENT ON COLUMN easeml.serving_metrics.is_chosen IS 'Whether easeml.set_serving_metric set it; otherwise it is that of the first run, and goes with the last run.';

CREATE TABLE easeml.deployments (
    tenant name NOT NULL,
    dataset_name text NOT NULL,
    trial_id bigint NOT NULL,
    deployed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, dataset_name),
    FOREIGN KEY (trial_id, tenant) REFERENCES easeml.trials (trial_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.deployments IS 'Trials that their tenants chose to answer easeml.predict, at most one for each dataset.';

CREATE TABLE easeml.servings (
    serving_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant name NOT NULL,
    dataset_name text NOT NULL,
    trial_id bigint,  -- no foreign key: the history outlives its runs
    is_deployed boolean NOT NULL,
    metric text NOT NULL,
    metric_value double precision,
    reason text NOT NULL CHECK (reason IN ('better', 'deployed', 'undeployed', 'rolled back', 'dropped', 'metric')),
    restored_id bigint,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX servings_dataset ON easeml.servings (tenant, dataset_name, serving_id);
COMMENT ON TABLE easeml.servings IS 'What answered for each dataset, one row for each change; the last 200 of a dataset are kept.';
COMMENT ON COLUMN easeml.servings.trial_id IS 'The trial that answers from then on; null if none does.';
COMMENT ON COLUMN easeml.servings.metric_value IS 'Value of the metric on the validation rows at that moment.';
COMMENT ON COLUMN easeml.servings.restored_id IS 'The change that easeml.rollback went back to: the next rollback goes on before that one.';

-- tables/results.sql
-- What was done: units, checkpoints, evaluations, events. Each unit writes its rows in the transaction that records it.

CREATE TABLE easeml.checkpoints (
    checkpoint_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    trial_id bigint NOT NULL,
    tenant name NOT NULL,
    epoch integer NOT NULL,
    n_bytes bigint NOT NULL,
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    state bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (checkpoint_id, tenant),
    FOREIGN KEY (trial_id, tenant) REFERENCES easeml.trials (trial_id, tenant) ON DELETE CASCADE
);
ALTER TABLE easeml.checkpoints ALTER state SET STORAGE EXTERNAL;
ALTER TABLE easeml.checkpoints SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000);
CREATE INDEX checkpoints_trial ON easeml.checkpoints (trial_id);
COMMENT ON TABLE easeml.checkpoints IS 'Stored states (safetensors), never overwritten. Of each trial the newest state and that of its best epoch are kept.';
COMMENT ON COLUMN easeml.checkpoints.state IS 'The bytes of a small state; null if they lie in easeml.checkpoint_chunks.';

CREATE TABLE easeml.checkpoint_chunks (
    checkpoint_id bigint NOT NULL,
    tenant name NOT NULL,
    chunk_number integer NOT NULL CHECK (chunk_number >= 0),
    bytes bytea NOT NULL,
    PRIMARY KEY (checkpoint_id, chunk_number),
    FOREIGN KEY (checkpoint_id, tenant) REFERENCES easeml.checkpoints (checkpoint_id, tenant) ON DELETE CASCADE
);
ALTER TABLE easeml.checkpoint_chunks ALTER bytes SET STORAGE EXTERNAL;
ALTER TABLE easeml.checkpoint_chunks SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000);
COMMENT ON TABLE easeml.checkpoint_chunks IS 'States of more than 4 MB in chunks of 1 MB: a value cannot exceed 1 GB, and needs its size in memory several times.';
COMMENT ON COLUMN easeml.checkpoint_chunks.chunk_number IS 'Place of the chunk in the state, from 0.';

CREATE TABLE easeml.training_units (
    unit_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
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
    UNIQUE (trial_id, epoch, partition_number),
    FOREIGN KEY (trial_id, tenant) REFERENCES easeml.trials (trial_id, tenant) ON DELETE CASCADE
);
CREATE INDEX training_units_run ON easeml.training_units (run_id);
COMMENT ON TABLE easeml.training_units IS 'Every recorded training unit: the coordinator''s memory, the visit log that replay needs, and the Gantt chart.';
COMMENT ON COLUMN easeml.training_units.from_checkpoint_id IS 'The state it started from; null for a fresh one. It may have been pruned since.';
COMMENT ON COLUMN easeml.training_units.read_bytes IS 'Bytes of the state that it read from the tables; 0 if its session still held the trial.';
COMMENT ON COLUMN easeml.training_units.state_bytes IS 'Size of the recorded state; in a gang only the first unit has it, the others 0.';
COMMENT ON COLUMN easeml.training_units.n_slots IS 'Number of slots that trained the trial together: 1, or the width of its gang.';

CREATE TABLE easeml.evaluations (
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
    PRIMARY KEY (trial_id, epoch, split, partition_number),
    FOREIGN KEY (trial_id, tenant) REFERENCES easeml.trials (trial_id, tenant) ON DELETE CASCADE
);
CREATE INDEX evaluations_run ON easeml.evaluations (run_id);
COMMENT ON COLUMN easeml.training_units.stack IS 'Of a unit that trained as one computation with those of other trials: how many there were, its place among them from 0, and the steps that they did together. Null if it trained alone.';

COMMENT ON TABLE easeml.evaluations IS 'Every recorded evaluation unit, with the sums from which the metrics of the whole split are computed.';
COMMENT ON COLUMN easeml.evaluations.statistics IS 'The sums. Of a few rows they are the targets themselves, so readers do not see them.';
COMMENT ON COLUMN easeml.evaluations.n_rows IS 'Number of rows that were measured.';
COMMENT ON COLUMN easeml.evaluations.read_bytes IS 'Bytes of the state that it read from the tables; 0 if its session still held the trial.';
COMMENT ON COLUMN easeml.evaluations.n_slots IS 'Number of slots that measured the trial together: 1, or the width of its gang.';

CREATE TABLE easeml.epoch_metrics (
    trial_id bigint NOT NULL,
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    epoch integer NOT NULL,
    split text NOT NULL CHECK (split IN ('validation', 'test')),
    n_rows bigint NOT NULL,
    metric_value double precision,
    accuracy double precision,
    balanced_accuracy double precision,
    macro_f1 double precision,
    log_loss double precision,
    rmse double precision,
    mae double precision,
    r2 double precision,
    n_classes integer,
    metric_error double precision,
    measured_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (trial_id, epoch, split),
    FOREIGN KEY (trial_id, tenant) REFERENCES easeml.trials (trial_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.epoch_metrics IS 'Metrics of a trial after an epoch over a whole split; metric_value is the metric of the run.';
COMMENT ON COLUMN easeml.epoch_metrics.n_classes IS 'How many classes had rows in the split: metrics know nothing of the others. Null for numbers.';
COMMENT ON COLUMN easeml.epoch_metrics.metric_error IS 'Standard error of metric_value as the mean over folds; null without folds.';

CREATE TABLE easeml.events (
    event_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant name NOT NULL,
    run_id bigint,
    trial_id bigint,
    happened_at timestamptz NOT NULL DEFAULT now(),
    kind text NOT NULL,
    message text NOT NULL,
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE
);
CREATE INDEX events_run ON easeml.events (run_id);
COMMENT ON TABLE easeml.events IS 'What happened to runs and trials, in words: retries, failures, cancels, resumes.';

-- tables/allocation.sql
-- Trial groups: which devices each trial of a run with water-filling got, and the measurements behind that.

CREATE TABLE easeml.device_profiles (
    tenant name NOT NULL,
    dataset_id bigint NOT NULL,
    architecture text NOT NULL,
    device_kind text NOT NULL CHECK (device_kind IN ('cpu', 'cuda')),
    alpha double precision NOT NULL CHECK (alpha >= 1),
    beta double precision NOT NULL CHECK (beta >= 1),
    c integer NOT NULL CHECK (c >= 1),
    d integer NOT NULL CHECK (d >= 1),
    eps_seconds double precision NOT NULL CHECK (eps_seconds >= 0),
    n_packed integer NOT NULL CHECK (n_packed >= 1),
    n_devices integer NOT NULL CHECK (n_devices >= 1),
    is_bounded boolean NOT NULL,
    measurements jsonb NOT NULL,
    run_id bigint,
    measured_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, dataset_id, architecture, device_kind),
    FOREIGN KEY (dataset_id, tenant) REFERENCES easeml.datasets (dataset_id, tenant) ON DELETE CASCADE,
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE SET NULL (run_id)
);
COMMENT ON TABLE easeml.device_profiles IS 'What the trials of an architecture lose when they share a device or spread over several. The coordinator measures it when a run with water-filling first needs it.';
COMMENT ON COLUMN easeml.device_profiles.alpha IS 'Each further trial on a device slows the others by this factor.';
COMMENT ON COLUMN easeml.device_profiles.beta IS 'Each further device of a trial costs this factor of the ideal speed.';
COMMENT ON COLUMN easeml.device_profiles.c IS 'Largest number of trials that fit on a device and are worthwhile.';
COMMENT ON COLUMN easeml.device_profiles.d IS 'Largest number of devices that is worthwhile for a trial.';
COMMENT ON COLUMN easeml.device_profiles.eps_seconds IS 'Seconds to bring a trial onto another slot.';
COMMENT ON COLUMN easeml.device_profiles.n_packed IS 'Largest number of trials that were tried on a device.';
COMMENT ON COLUMN easeml.device_profiles.n_devices IS 'Largest number of devices that were tried for a trial.';
COMMENT ON COLUMN easeml.device_profiles.is_bounded IS 'Whether packing ended because more trials would not have paid or fitted; false if slots or trials ran out.';
COMMENT ON COLUMN easeml.device_profiles.measurements IS 'slowdowns: seconds of 1, 2, ... trials on a device relative to each alone; speedups: on 1, 2, ... devices; seconds_per_row of a trial alone; open_seconds; trial_bytes and device_bytes, if known; threshold; n_discarded rounds.';
COMMENT ON COLUMN easeml.device_profiles.run_id IS 'The run that measured it before its first units; null once that run is dropped.';

CREATE TABLE easeml.trial_groups (
    group_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    lease_number bigint NOT NULL,
    group_number integer NOT NULL CHECK (group_number >= 1),
    label text NOT NULL,
    n_trials integer NOT NULL CHECK (n_trials >= 1),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    UNIQUE (run_id, lease_number, group_number),
    UNIQUE (group_id, tenant),
    FOREIGN KEY (run_id, tenant) REFERENCES easeml.runs (run_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.trial_groups IS 'Trials of a run with water-filling that became runnable together: a grid, a rung, or all open trials when a coordinator took over.';
COMMENT ON COLUMN easeml.trial_groups.lease_number IS 'The coordinator that made the group; the next coordinator makes its own groups from the open trials.';
COMMENT ON COLUMN easeml.trial_groups.group_number IS 'Order in which this coordinator made the groups of the run, from 1.';
COMMENT ON COLUMN easeml.trial_groups.label IS 'What its trials share: architectures, and the epoch up to which they train.';
COMMENT ON COLUMN easeml.trial_groups.ended_at IS 'When the last of its trials ended or was stopped.';

CREATE TABLE easeml.allocations (
    allocation_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id bigint NOT NULL,
    trial_id bigint NOT NULL,
    run_id bigint NOT NULL,
    tenant name NOT NULL,
    width double precision NOT NULL CHECK (width > 0),
    devices text[] NOT NULL,
    slot_ids integer[] NOT NULL,
    reason text NOT NULL CHECK (reason IN ('static', 'dynamic')),
    decided_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    FOREIGN KEY (group_id, tenant) REFERENCES easeml.trial_groups (group_id, tenant) ON DELETE CASCADE,
    FOREIGN KEY (trial_id, tenant) REFERENCES easeml.trials (trial_id, tenant) ON DELETE CASCADE
);
CREATE INDEX allocations_run ON easeml.allocations (run_id);
CREATE INDEX allocations_group ON easeml.allocations (group_id);
COMMENT ON TABLE easeml.allocations IS 'Which devices a trial has from its next unit on: one row for each decision.';
COMMENT ON COLUMN easeml.allocations.width IS 'Number of devices of its own; below 1, its share of one device.';
COMMENT ON COLUMN easeml.allocations.slot_ids IS 'Slots of these devices; a unit runs on one slot of each.';
COMMENT ON COLUMN easeml.allocations.reason IS 'static: the trial was new or had lost its devices; dynamic: the coordinator resized it.';

-- tables/prices.sql
-- Price lists: what slots cost, and how long they take to start. Administrators write them, everybody reads them.

CREATE TABLE easeml.price_lists (
    price_list text PRIMARY KEY CHECK (length(price_list) BETWEEN 1 AND 200),
    caveat text,
    is_local boolean NOT NULL DEFAULT false,
    is_shipped boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE easeml.price_lists IS 'Price lists by name; easeml.create_price_list writes them.';
COMMENT ON COLUMN easeml.price_lists.caveat IS 'What to know before one trusts the figures.';
COMMENT ON COLUMN easeml.price_lists.is_local IS 'Whether its slots are those of this server: no more than there are, ready at once.';
COMMENT ON COLUMN easeml.price_lists.is_shipped IS 'Whether it came with easeml.';

CREATE TABLE easeml.instance_types (
    price_list text NOT NULL REFERENCES easeml.price_lists ON DELETE CASCADE,
    instance_type text NOT NULL,
    device_kind text NOT NULL CHECK (device_kind IN ('cpu', 'cuda')),
    n_slots integer NOT NULL CHECK (n_slots BETWEEN 1 AND 4096),
    price_per_hour double precision NOT NULL CHECK (price_per_hour >= 0 AND price_per_hour <= 1e9),
    billed_by text NOT NULL DEFAULT 'second' CHECK (billed_by IN ('second', 'minute')),
    billed_per text NOT NULL DEFAULT 'instance' CHECK (billed_per IN ('instance', 'function')),
    minimum_seconds double precision NOT NULL DEFAULT 0 CHECK (minimum_seconds >= 0 AND minimum_seconds <= 1e7),
    price_per_gb double precision NOT NULL DEFAULT 0 CHECK (price_per_gb >= 0 AND price_per_gb <= 1e9),
    queue_seconds double precision NOT NULL DEFAULT 0 CHECK (queue_seconds >= 0 AND queue_seconds <= 1e7),
    queue_sd_seconds double precision NOT NULL DEFAULT 0 CHECK (queue_sd_seconds >= 0 AND queue_sd_seconds <= 1e7),
    start_seconds double precision NOT NULL DEFAULT 0 CHECK (start_seconds >= 0 AND start_seconds <= 1e7),
    start_sd_seconds double precision NOT NULL DEFAULT 0 CHECK (start_sd_seconds >= 0 AND start_sd_seconds <= 1e7),
    max_instances integer CHECK (max_instances >= 1),
    speed double precision NOT NULL DEFAULT 1 CHECK (speed > 0 AND speed < 'Infinity'),
    PRIMARY KEY (price_list, instance_type)
);
COMMENT ON TABLE easeml.instance_types IS 'What a price list offers: instances with slots of one kind of device.';
COMMENT ON COLUMN easeml.instance_types.price_per_hour IS 'Of an instance with all its slots.';
COMMENT ON COLUMN easeml.instance_types.billed_by IS 'second, or minute: each started minute is billed.';
COMMENT ON COLUMN easeml.instance_types.billed_per IS 'instance: from when the provider has it ready, its start included and the queue not, until its release; function: only slots on which something trains.';
COMMENT ON COLUMN easeml.instance_types.minimum_seconds IS 'Billed at least, for each instance.';
COMMENT ON COLUMN easeml.instance_types.price_per_gb IS 'Of the data that an instance brings in once, when it starts.';
COMMENT ON COLUMN easeml.instance_types.queue_seconds IS 'Mean wait in the provider''s queue, not billed; with its standard deviation.';
COMMENT ON COLUMN easeml.instance_types.start_seconds IS 'Mean time until an instance can train, billed; with its standard deviation.';
COMMENT ON COLUMN easeml.instance_types.max_instances IS 'How many there are at most; null: as many as one wants.';
COMMENT ON COLUMN easeml.instance_types.speed IS 'How much faster one of its slots is than what was measured on its kind of device.';

INSERT INTO easeml.price_lists (price_list, caveat, is_local, is_shipped) VALUES
    ('local', 'This server''s slots, at 1 for each slot and hour.', true, true),
    ('aws-p3', 'RubberBand''s figures of 2021: about 3 an hour for p3.2xlarge and 24 for p3.16xlarge in its text, 12.24 for p3.8xlarge as its table 2 implies; section 6.2 says 7.50 for p3.16xlarge. 15 s to start, of a warm pool. Look up today''s prices.', false, true);
INSERT INTO easeml.instance_types (price_list, instance_type, device_kind, n_slots, price_per_hour, minimum_seconds, start_seconds) VALUES
    ('local', 'cpu slot', 'cpu', 1, 1, 0, 0), ('local', 'cuda slot', 'cuda', 1, 1, 0, 0),
    ('aws-p3', 'p3.2xlarge', 'cuda', 1, 3.06, 60, 15), ('aws-p3', 'p3.8xlarge', 'cuda', 4, 12.24, 60, 15), ('aws-p3', 'p3.16xlarge', 'cuda', 8, 24.48, 60, 15);

-- tables/tenants.sql
-- What administrators allow each tenant, and what tenants used up by runs that are gone.

CREATE TABLE easeml.tenants (
    tenant name PRIMARY KEY,
    weight double precision NOT NULL DEFAULT 1 CHECK (weight > 0 AND weight < 'Infinity'),
    deadline timestamptz CHECK (isfinite(deadline)),
    max_runs integer CHECK (max_runs > 0),
    max_slots integer CHECK (max_slots > 0),
    max_bytes bigint CHECK (max_bytes > 0),
    max_hours double precision CHECK (max_hours > 0 AND max_hours < 'Infinity'),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE easeml.tenants IS 'Roles with their own weight, deadline or limits. A member of easeml_tenant without a row has weight 1, as many open runs as easeml.tenancy.default_max_runs says, and no other limits.';
COMMENT ON COLUMN easeml.tenants.tenant IS 'The tenant, see easeml.tenant_roles.';
COMMENT ON COLUMN easeml.tenants.weight IS 'Share of the slots relative to other tenants.';
COMMENT ON COLUMN easeml.tenants.deadline IS 'When its runs should have ended.';
COMMENT ON COLUMN easeml.tenants.max_runs IS 'Queued and running runs at a time; null: no limit, also below.';
COMMENT ON COLUMN easeml.tenants.max_slots IS 'Slots at a time.';
COMMENT ON COLUMN easeml.tenants.max_bytes IS 'Bytes of packed blocks, encoders, events and live checkpoints.';
COMMENT ON COLUMN easeml.tenants.max_hours IS 'Slot hours of all its units, those of dropped runs included.';

-- A tenant is a name that stays; its role is an oid, which a dump writes as the role's name. So a role that was renamed keeps
-- its rows, and one that was dropped and made again is another tenant.
CREATE TABLE easeml.tenant_roles (
    tenant name PRIMARY KEY,
    role regrole UNIQUE,
    since timestamptz NOT NULL DEFAULT now(),
    role_name name
);
COMMENT ON TABLE easeml.tenant_roles IS 'Which role each tenant is. The first request of a role writes its row; easeml.adopt_tenant changes it.';
COMMENT ON COLUMN easeml.tenant_roles.tenant IS 'The name in the column tenant of all tables: the role''s name when it first asked for something, with a number where a former role has rows under that name.';
COMMENT ON COLUMN easeml.tenant_roles.role IS 'Null where the rows came from a dump, and the role is not there.';
COMMENT ON COLUMN easeml.tenant_roles.role_name IS 'In a dump the name of the role; null in the table.';

-- Not in easeml.tenants: a role without a row uses hours, too, and they outlive the row.
CREATE TABLE easeml.tenant_usage (
    tenant name PRIMARY KEY,
    dropped_seconds double precision NOT NULL CHECK (dropped_seconds >= 0)
);
COMMENT ON TABLE easeml.tenant_usage IS 'Slot seconds of dropped runs, which give no hours back, and of units that failed or were cancelled.';

-- Sums over one tenant read only these indexes; row-level security, which compares the tenant, uses them, too.
CREATE INDEX training_units_tenant ON easeml.training_units (tenant) INCLUDE (started_at, finished_at);
CREATE INDEX evaluations_tenant ON easeml.evaluations (tenant) INCLUDE (started_at, finished_at);
CREATE INDEX checkpoints_tenant ON easeml.checkpoints (tenant) INCLUDE (n_bytes);
CREATE INDEX events_tenant ON easeml.events (tenant);

-- tables/tenancy.sql
-- Which run opens its next arm, which arm, and what the coordinator believed when it decided.

CREATE TABLE easeml.tenancy (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    policy text NOT NULL DEFAULT 'hybrid',
    prior text NOT NULL DEFAULT 'auto',
    seed bigint NOT NULL DEFAULT 0,
    max_wait_seconds double precision NOT NULL DEFAULT 60 CHECK (max_wait_seconds > 0 AND max_wait_seconds <> 'NaN'),
    default_max_runs integer NOT NULL DEFAULT 100 CHECK (default_max_runs > 0),
    changed_at timestamptz NOT NULL DEFAULT now()
);
-- The extension inserts no row: a restored dump brings its own.
COMMENT ON TABLE easeml.tenancy IS 'The policy, prior and seed in use, and what holds for every tenant; no row means the defaults. easeml.set_policy changes them.';
COMMENT ON COLUMN easeml.tenancy.max_wait_seconds IS 'A tenant that wants slots and has none waits no longer for arms of others; infinite: as long as they take.';
COMMENT ON COLUMN easeml.tenancy.default_max_runs IS 'Queued and running runs at a time of a tenant that has no row in easeml.tenants.';
COMMENT ON COLUMN easeml.tenancy.seed IS 'Seeds the policies that draw at random.';

CREATE TABLE easeml.priors (
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
COMMENT ON TABLE easeml.priors IS 'What the coordinator believed of a run''s arms before the run opened any; it never changes. Arrays follow the order of arm_ids.';
COMMENT ON COLUMN easeml.priors.arm_ids IS 'The arms that the run began with; the coordinator never opens one that was added later.';
COMMENT ON COLUMN easeml.priors.link IS 'Scale of means and covariances: the quality itself (identity) or its logit.';
COMMENT ON COLUMN easeml.priors.degrees_of_freedom IS 'Degrees of freedom of the Student t process; infinite for a Gaussian process.';
COMMENT ON COLUMN easeml.priors.fitted IS 'The hyperparameters of the prior, and the number of past runs that they were fitted to.';

CREATE TABLE easeml.posteriors (
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
CREATE INDEX posteriors_run ON easeml.posteriors (run_id);
COMMENT ON TABLE easeml.posteriors IS 'What the coordinator now believes of each arm of an open run; it updates the row after each observation.';

CREATE TABLE easeml.arm_openings (
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
CREATE INDEX arm_openings_run ON easeml.arm_openings (run_id);
COMMENT ON TABLE easeml.arm_openings IS 'One row for each arm that a run opened, with everything that the policy saw when it decided.';
COMMENT ON COLUMN easeml.arm_openings.phase IS 'The rule that chose: first_service, last_call, or a rule of the policy.';
COMMENT ON COLUMN easeml.arm_openings.opening_number IS 'Order in which the run opened this arm, from 1.';
COMMENT ON COLUMN easeml.arm_openings.beta IS 'Weight of the variance in the upper bounds.';
COMMENT ON COLUMN easeml.arm_openings.mean IS 'Expected quality of the arm, on the scale of the prior.';
COMMENT ON COLUMN easeml.arm_openings.cost IS 'Expected cost of the arm, divided by the mean cost of all arms of open runs.';
COMMENT ON COLUMN easeml.arm_openings.sig IS 'Least upper bound among the arms that the run has opened, minus its last quality; null before its first quality.';
COMMENT ON COLUMN easeml.arm_openings.gap IS 'Largest upper bound among the arms that wait, minus the best quality so far.';
COMMENT ON COLUMN easeml.arm_openings.pending IS 'Other arms of the run that were open.';

-- Not in easeml.arm_openings: the memory concerns runs of all tenants, and outlives the run that was chosen last.
CREATE TABLE easeml.policy_memory (
    policy text PRIMARY KEY,
    memory jsonb NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE easeml.policy_memory IS 'What each policy needs to continue after a restart; only the coordinator reads it.';

CREATE TABLE easeml.arm_opening_candidates (
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
CREATE INDEX arm_opening_candidates_run ON easeml.arm_opening_candidates (run_id);
COMMENT ON TABLE easeml.arm_opening_candidates IS 'How each run stood at each decision, so that its tenant sees why it waited. The row shows the numbers of the chosen run but not whose it was.';
COMMENT ON COLUMN easeml.arm_opening_candidates.is_candidate IS 'Whether the rule considered the run.';
COMMENT ON COLUMN easeml.arm_opening_candidates.n_runs IS 'Number of runs with a waiting arm; if there are more than 200, only those with the largest gaps have rows here.';

-- functions/errors.sql
-- Errors carry an SQLSTATE of class ML, so that callers can tell them apart, and a hint that says what to do.
-- PL/Python functions that users reach return such an error in a column `failure`, and their callers raise it with
-- easeml.raise_failure. Raised in Python, it would show "plpy.Error:" before its message and a traceback below it;
-- catching it in PL/pgSQL would open a subtransaction at every call, for predictions at every row. Errors of the server within those
-- functions (a right that is missing) go the same way. docs/design/errors.md says how an error comes without lines of CONTEXT.

CREATE FUNCTION easeml.hide_context() RETURNS void LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.error_context import hide_context
return hide_context(plpy, GD)
$$;
COMMENT ON FUNCTION easeml.hide_context() IS 'Lets the error that its caller raises next show no lines of CONTEXT (internal).';

CREATE FUNCTION easeml.fail(sqlstate_code text, message text, detail text DEFAULT NULL, hint text DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    callers text;
BEGIN
    -- Somebody's own function that calls ours wants to see where.
    GET DIAGNOSTICS callers = PG_CONTEXT;
    IF callers !~ '(^|\n)[^"\n]*function (?!easeml\.)' THEN
        PERFORM easeml.hide_context();
    END IF;
    -- PL/Python puts the name of the exception's class before the message.
    message := regexp_replace(message, '^((plpy\.(SPI)?Error|spiexceptions\.\w+): )+', '');
    detail := nullif(detail, '');
    hint := nullif(hint, '');
    IF detail IS NULL AND hint IS NULL THEN
        RAISE EXCEPTION USING errcode = sqlstate_code, message = message;
    ELSIF detail IS NULL THEN
        RAISE EXCEPTION USING errcode = sqlstate_code, message = message, hint = hint;
    ELSIF hint IS NULL THEN
        RAISE EXCEPTION USING errcode = sqlstate_code, message = message, detail = detail;
    ELSE
        RAISE EXCEPTION USING errcode = sqlstate_code, message = message, detail = detail, hint = hint;
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.fail(text, text, text, text) IS 'Raises an error of class ML (internal).';

CREATE FUNCTION easeml.raise_failure(failure jsonb) RETURNS void LANGUAGE plpgsql STRICT SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fail(failure ->> 'sqlstate', failure ->> 'message', failure ->> 'detail', failure ->> 'hint');
END
$$;
COMMENT ON FUNCTION easeml.raise_failure(jsonb) IS 'Raises the error that a PL/Python function returned; does nothing if it is NULL (internal).';

CREATE FUNCTION easeml.check_run_transition() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.status <> OLD.status AND (OLD.status, NEW.status) NOT IN (
        ('queued', 'running'), ('queued', 'cancelled'), ('queued', 'failed'),
        ('running', 'finished'), ('running', 'cancelled'), ('running', 'failed'),
        ('failed', 'queued'), ('cancelled', 'queued')
    ) THEN
        PERFORM easeml.fail('ML004', format('run %s cannot go from %s to %s', OLD.run_id, OLD.status, NEW.status));
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION easeml.check_run_transition() IS 'Refuses an illegal change of a run''s status (trigger).';
CREATE TRIGGER run_transition BEFORE UPDATE OF status ON easeml.runs
    FOR EACH ROW EXECUTE FUNCTION easeml.check_run_transition();

CREATE FUNCTION easeml.check_trial_transition() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.status <> OLD.status AND (OLD.status, NEW.status) NOT IN (
        ('waiting', 'running'), ('waiting', 'cancelled'), ('waiting', 'failed'), ('waiting', 'stopped'),
        ('running', 'finished'), ('running', 'failed'), ('running', 'cancelled'), ('running', 'stopped'), ('running', 'paused'),
        ('paused', 'waiting'), ('paused', 'cancelled'), ('paused', 'stopped'), ('stopped', 'waiting'),
        ('cancelled', 'waiting'), ('cancelled', 'paused'), ('failed', 'waiting'), ('failed', 'paused')
    ) THEN
        PERFORM easeml.fail('ML004', format('trial %s cannot go from %s to %s', OLD.trial_id, OLD.status, NEW.status));
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION easeml.check_trial_transition() IS 'Refuses an illegal change of a trial''s status (trigger).';
CREATE TRIGGER trial_transition BEFORE UPDATE OF status ON easeml.trials
    FOR EACH ROW EXECUTE FUNCTION easeml.check_trial_transition();

-- functions/identity.sql
-- Who calls, and what a name means.

-- PL/pgSQL keeps its plan for the session: row-level security calls this once for each table of a query.
CREATE FUNCTION easeml.current_tenant() RETURNS name LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT t.tenant FROM easeml.tenant_roles t WHERE t.role = to_regrole(quote_ident(current_user)));
END
$$;
COMMENT ON FUNCTION easeml.current_tenant() IS 'Returns the tenant that you are, the name in the column tenant of your rows; NULL before your first request.';

CREATE FUNCTION easeml.reads_for_all() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_has_role(current_user, 'easeml_admin', 'USAGE') OR NOT pg_has_role(current_user, 'easeml_tenant', 'USAGE')
$$;
COMMENT ON FUNCTION easeml.reads_for_all() IS 'Says whether a reader reads what belongs to others: not if it is a tenant too, which may read encoders and statistics (internal).';

CREATE FUNCTION easeml.near_names(given text, known text[]) RETURNS text LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.near_names import near_names
return near_names(plpy, GD, given, known)
$$;
COMMENT ON FUNCTION easeml.near_names(text, text[]) IS 'Returns a hint for a name that does not exist: the nearest of the known ones, then some of them; NULL if there are none (internal).';

CREATE FUNCTION easeml.dataset_of(caller name, tenant name, dataset text) RETURNS easeml.datasets LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.datasets;
    known text[];
BEGIN
    SELECT d.* INTO found FROM easeml.datasets d
    WHERE d.tenant = dataset_of.tenant AND d.dataset_name = dataset_of.dataset ORDER BY d.version DESC LIMIT 1;
    IF found.dataset_id IS NULL THEN
        SELECT array_agg(DISTINCT d.dataset_name) INTO known FROM easeml.datasets d WHERE d.tenant = dataset_of.tenant;
        PERFORM easeml.fail('ML003', format('there is no dataset %s of role %s', quote_nullable(dataset), quote_ident(caller)),
            hint => coalesce(easeml.near_names(dataset, known), 'Make one with easeml.create_dataset(name, source, inputs, target).'));
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.dataset_of(name, name, text) IS 'Returns the newest version of a tenant''s dataset, as far as you may see it, or raises an error that lists the datasets (internal).';

CREATE FUNCTION easeml.find_dataset(dataset text) RETURNS easeml.datasets LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN easeml.dataset_of(current_user, easeml.current_tenant(), dataset);
END
$$;
COMMENT ON FUNCTION easeml.find_dataset(text) IS 'Returns the newest version of your dataset of that name, or raises an error that lists your datasets.';

-- The one function that needs the caller's search_path, for the caller's own names: all else in it is named with its schema.
CREATE FUNCTION easeml.find_source(source text, OUT relation regclass, OUT qualified_name text) LANGUAGE plpgsql STABLE AS $$
BEGIN
    BEGIN
        relation := pg_catalog.to_regclass(source);
    EXCEPTION WHEN invalid_name OR syntax_error OR invalid_text_representation OR feature_not_supported THEN
        relation := NULL;
    END;
    qualified_name := easeml.qualified_name(relation);
    IF qualified_name IS NULL AND source OPERATOR(pg_catalog.~*) '^[\s(]*(select|with|values|table)\M' THEN
        PERFORM easeml.fail('ML001', 'source: expected the name of a table or view, got a query',
            hint => 'Make a view of it: CREATE VIEW my_rows AS SELECT ...; then name the view.');
    ELSIF qualified_name IS NULL THEN
        PERFORM easeml.fail('ML003', pg_catalog.format('source: there is no table or view %s', pg_catalog.quote_nullable(source)),
            hint => 'Give schema and name as in SQL, with double quotes around names in mixed case: ''public."My Table"''.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.find_source(text) IS 'Returns the table or view that a name means, with its schema, or raises an error.';

CREATE FUNCTION easeml.qualified_name(relation regclass) RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- With its schema a name means the same under another search_path.
    SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = relation AND c.relkind IN ('r', 'v', 'm', 'p', 'f')
$$;
COMMENT ON FUNCTION easeml.qualified_name(regclass) IS 'Returns schema and name of a table or view as SQL writes them, or NULL for anything else (internal).';

CREATE FUNCTION easeml.has_live_coordinator() RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM easeml.coordinators c JOIN easeml.coordinator_lease l USING (lease_number)
                   WHERE c.stopped_at IS NULL AND c.heartbeat_at > clock_timestamp() - interval '10 seconds')
$$;
COMMENT ON FUNCTION easeml.has_live_coordinator() IS 'Says whether the coordinator that holds the lease sent a heartbeat within the last ten seconds.';

-- functions/requests.sql
-- The door: how tenants reach the service. They write no table; a public function that writes inserts a request, and what
-- easeml does for it runs with the rights of easeml_owner. docs/design/callers.md says why it is built so.

CREATE VIEW easeml.requests WITH (security_invoker) AS
SELECT NULL::name AS caller, NULL::text AS action, NULL::jsonb AS arguments, NULL::jsonb AS result FROM (SELECT) nothing WHERE false;
COMMENT ON VIEW easeml.requests IS 'Holds nothing: a row that is inserted is carried out, for the role that inserts it (internal: call the functions).';
COMMENT ON COLUMN easeml.requests.caller IS 'The role that asks; nobody can choose it.';
COMMENT ON COLUMN easeml.requests.action IS 'What to do: cancel, deploy and so on.';
COMMENT ON COLUMN easeml.requests.arguments IS 'A json object.';
COMMENT ON COLUMN easeml.requests.result IS 'What INSERT ... RETURNING gives back.';

-- Not a column default: a view over this one could put another default in its place. This trigger runs with the rights of
-- whoever inserts, so current_user is true here, and it fires first, since triggers fire in the order of their names.
CREATE FUNCTION easeml.stamp_caller() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.caller := current_user;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION easeml.stamp_caller() IS 'Writes who inserts into the request (trigger).';
CREATE TRIGGER request_1_caller INSTEAD OF INSERT ON easeml.requests FOR EACH ROW EXECUTE FUNCTION easeml.stamp_caller();

CREATE FUNCTION easeml.perform_request() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asker name;
BEGIN
    IF jsonb_typeof(NEW.arguments) IS DISTINCT FROM 'object' THEN
        PERFORM easeml.fail('ML001', format('arguments: expected a json object, got %s', coalesce(jsonb_typeof(NEW.arguments), 'NULL')), hint => 'Call the functions of the guide instead.');
    END IF;
    -- Somebody's view over the door lets others in.
    IF NOT pg_has_role(NEW.caller, 'easeml_tenant', 'USAGE') THEN
        PERFORM easeml.fail('ML004', format('role %s is no tenant', quote_ident(NEW.caller)), hint => 'An administrator makes it one: SELECT easeml.create_tenant(role).');
    END IF;
    asker := easeml.register_tenant(NEW.caller);
    NEW.result := CASE NEW.action
        WHEN 'begin_dataset' THEN easeml.begin_dataset(NEW.caller, asker, NEW.arguments)
        WHEN 'begin_refresh' THEN easeml.begin_refresh(NEW.caller, asker, NEW.arguments)
        WHEN 'finish_dataset' THEN easeml.finish_dataset(NEW.caller, asker, NEW.arguments)
        WHEN 'drop_dataset' THEN easeml.perform_drop_dataset(NEW.caller, asker, NEW.arguments)
        WHEN 'grant_use' THEN easeml.perform_grant_use(NEW.caller, asker, NEW.arguments)
        WHEN 'revoke_use' THEN easeml.perform_revoke_use(NEW.caller, asker, NEW.arguments)
        WHEN 'replicate_dataset' THEN easeml.perform_replicate_dataset(NEW.caller, asker, NEW.arguments)
        WHEN 'select_models' THEN easeml.perform_select_models(NEW.caller, asker, NEW.arguments)
        WHEN 'cancel' THEN easeml.perform_cancel(NEW.caller, asker, NEW.arguments)
        WHEN 'resume' THEN easeml.perform_resume(NEW.caller, asker, NEW.arguments)
        WHEN 'drop_run' THEN easeml.perform_drop_run(NEW.caller, asker, NEW.arguments)
        WHEN 'deploy' THEN easeml.perform_deploy(NEW.caller, asker, NEW.arguments)
        WHEN 'undeploy' THEN easeml.perform_undeploy(NEW.caller, asker, NEW.arguments)
        WHEN 'rollback' THEN easeml.perform_rollback(NEW.caller, asker, NEW.arguments)
        WHEN 'set_serving_metric' THEN easeml.perform_set_serving_metric(NEW.caller, asker, NEW.arguments)
        WHEN 'set_prediction_audit' THEN easeml.perform_set_prediction_audit(NEW.caller, asker, NEW.arguments)
        ELSE easeml.refuse_action(NEW.action) END;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION easeml.perform_request() IS 'Carries a request out with the rights of easeml_owner, for the role that the trigger before it wrote down (trigger).';
CREATE TRIGGER request_2_perform INSTEAD OF INSERT ON easeml.requests FOR EACH ROW EXECUTE FUNCTION easeml.perform_request();

CREATE FUNCTION easeml.refuse_action(action text) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fail('ML001', format('action: there is no action %s', quote_nullable(action)), hint => 'Call the functions of the guide instead.');
END
$$;
COMMENT ON FUNCTION easeml.refuse_action(text) IS 'Refuses a request for something that does not exist (internal).';

CREATE FUNCTION easeml.request(action text, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer jsonb;
BEGIN
    INSERT INTO easeml.requests AS r (action, arguments) VALUES (request.action, request.arguments) RETURNING r.result INTO answer;
    RETURN answer;
END
$$;
COMMENT ON FUNCTION easeml.request(text, jsonb) IS 'Asks for an action in the name of the current role and returns what came of it (internal).';

CREATE FUNCTION easeml.register_tenant(role name) RETURNS name LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    account regrole := quote_ident(role)::regrole;
    found name;
    candidate text := role;
    n integer := 1;
BEGIN
    SELECT t.tenant INTO found FROM easeml.tenant_roles t WHERE t.role = account;
    IF found IS NOT NULL THEN
        RETURN found;
    END IF;
    -- A name with rows belongs to whoever made them, even if that role is gone and this one has its name.
    WHILE EXISTS (SELECT FROM easeml.tenant_roles t WHERE t.tenant = candidate::name) OR EXISTS (SELECT FROM easeml.tenants t WHERE t.tenant = candidate::name)
        OR EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = candidate::name) OR EXISTS (SELECT FROM easeml.tenant_usage u WHERE u.tenant = candidate::name) LOOP
        n := n + 1;
        candidate := role;
        WHILE octet_length(candidate || '_' || n) > 63 LOOP
            candidate := left(candidate, -1);
        END LOOP;
        candidate := candidate || '_' || n;
    END LOOP;
    INSERT INTO easeml.tenant_roles (tenant, role) VALUES (candidate, account) ON CONFLICT DO NOTHING;
    SELECT t.tenant INTO found FROM easeml.tenant_roles t WHERE t.role = account;
    IF found IS NULL THEN
        PERFORM easeml.fail('ML010', format('role %s became a tenant in another transaction at the same time', quote_ident(role)), hint => 'Try again.');
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.register_tenant(name) IS 'Returns which tenant a role is; makes it one at its first request (internal).';

-- What a dump says of roles, see security/dump.sql.
CREATE FUNCTION easeml.restore_role() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.role := to_regrole(quote_ident(NEW.role_name));
    NEW.role_name := NULL;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION easeml.restore_role() IS 'Finds the role that a dump names; without it the tenant waits for easeml.adopt_tenant (trigger).';
CREATE TRIGGER restored_role BEFORE INSERT ON easeml.tenant_roles FOR EACH ROW WHEN (NEW.role_name IS NOT NULL) EXECUTE FUNCTION easeml.restore_role();

CREATE FUNCTION easeml.restore_grantee() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.grantee := to_regrole(quote_ident(NEW.grantee_name));
    NEW.grantee_name := NULL;
    RETURN CASE WHEN NEW.grantee IS NOT NULL THEN NEW END;
END
$$;
COMMENT ON FUNCTION easeml.restore_grantee() IS 'Finds the role that a dump names; without it nobody has the grant (trigger).';
CREATE TRIGGER restored_grantee BEFORE INSERT ON easeml.dataset_grants FOR EACH ROW WHEN (NEW.grantee_name IS NOT NULL) EXECUTE FUNCTION easeml.restore_grantee();

CREATE FUNCTION easeml.is_administrator(role name) RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_has_role(role, 'easeml_admin', 'USAGE')
$$;
COMMENT ON FUNCTION easeml.is_administrator(name) IS 'Says whether a role may act on the rows of all tenants: members of easeml_admin and superusers (internal).';

CREATE FUNCTION easeml.check_json(argument text, value jsonb, max_bytes integer, max_depth integer) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF octet_length(value::text) > max_bytes THEN
        PERFORM easeml.fail('ML001', format('%s: expected at most %s bytes of json, got %s', argument, max_bytes, octet_length(value::text)));
    ELSIF jsonb_path_exists(value, format('$.**{%s}', max_depth)::jsonpath) THEN
        PERFORM easeml.fail('ML001', format('%s: expected json nested at most %s deep', argument, max_depth));
    ELSIF jsonb_path_exists(value, '$.** ? (@.type() == "number" && (@ > 1e308 || @ < -1e308))') THEN
        PERFORM easeml.fail('ML001', format('%s: expected numbers between -1e308 and 1e308', argument));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_json(text, jsonb, integer, integer) IS 'Refuses json that is too large, nested too deep, or has numbers that no computation can hold (internal).';

-- functions/topology.sql
-- Segments and slots: where units run. Administrators change them while runs go on, and a running coordinator adapts at once.

CREATE FUNCTION easeml.check_slot_options(n integer, n_threads integer, device text, memory_limit_bytes bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF n IS NULL OR n NOT BETWEEN 1 AND 1000 THEN
        PERFORM easeml.fail('ML001', format('n: expected 1 to 1000 slots, got %s', coalesce(n::text, 'NULL')),
            hint => 'One slot for each core is a good number; easeml.drain_slot and easeml.remove_slot take some away.');
    END IF;
    IF device IS NULL OR device !~ '^(cpu(:[0-9]+)?|cuda:[0-9]+)$' THEN
        PERFORM easeml.fail('ML001', format('device: expected cpu, cpu:N or cuda:N, got %s', quote_nullable(device)),
            hint => 'cuda:0 is the first GPU of the server, cpu:0 its first core.');
    END IF;
    IF n_threads IS NULL OR n_threads NOT BETWEEN 1 AND 1024 THEN
        PERFORM easeml.fail('ML001', format('n_threads: expected 1 to 1024, got %s', coalesce(n_threads::text, 'NULL')));
    END IF;
    IF memory_limit_bytes < 268435456 THEN
        PERFORM easeml.fail('ML001', format('memory_limit_bytes: expected at least 256 MB (268435456), got %s', memory_limit_bytes));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_slot_options(integer, integer, text, bigint) IS 'Refuses options that no slot can have (internal).';

CREATE FUNCTION easeml.lock_topology() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- A row that only administrators can lock. An advisory lock is anybody's; and tenants who place datasets hold weaker locks of segments.
    PERFORM FROM easeml.segments g WHERE g.segment_id = 1 FOR NO KEY UPDATE;
END
$$;
COMMENT ON FUNCTION easeml.lock_topology() IS 'Lets one transaction at a time decide about slots and segments (internal).';

CREATE FUNCTION easeml.find_segment(segment text) RETURNS integer LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found integer;
BEGIN
    SELECT g.segment_id INTO found FROM easeml.segments g WHERE g.segment_name = find_segment.segment;
    IF found IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no segment %s', quote_nullable(segment)),
            hint => (SELECT 'There are: ' || string_agg(g.segment_name, ', ' ORDER BY g.segment_id) || '. Add one: SELECT easeml.add_segment(name).' FROM easeml.segments g));
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.find_segment(text) IS 'Returns the number of a segment, or raises an error (internal).';

CREATE FUNCTION easeml.find_slot(slot_id integer) RETURNS easeml.slots LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.slots;
BEGIN
    SELECT s.* INTO found FROM easeml.slots s WHERE s.slot_id = find_slot.slot_id;
    IF found.slot_id IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no slot %s', coalesce(slot_id::text, 'NULL')), hint => 'SELECT * FROM easeml.slot_status lists them.');
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.find_slot(integer) IS 'Returns the row of a slot, or raises an error (internal).';

CREATE FUNCTION easeml.check_leaving(slot_ids integer[], force boolean) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    orphan record;
BEGIN
    -- One transaction at a time: two that remove slots at once would each count on the other's slots.
    PERFORM easeml.lock_topology();
    IF force THEN
        RETURN;
    END IF;
    WITH staying AS (SELECT s.segment_id FROM easeml.slots s WHERE s.status = 'active' AND s.slot_id <> ALL (slot_ids)),
    leaving AS (SELECT s.segment_id FROM easeml.slots s WHERE s.status = 'active' AND s.slot_id = ANY (slot_ids))
    SELECT d.dataset_name, d.tenant, p.partition_number, d.placement,
        (SELECT count(*) FROM easeml.replicas c WHERE c.dataset_id = d.dataset_id AND c.partition_number = p.partition_number) AS n_holders INTO orphan
    FROM easeml.datasets d JOIN easeml.partitions p USING (dataset_id)
    WHERE CASE d.placement
        WHEN 'shared' THEN NOT EXISTS (SELECT FROM staying) AND EXISTS (SELECT FROM leaving)
        ELSE NOT EXISTS (SELECT FROM staying s JOIN easeml.replicas c USING (segment_id) WHERE c.dataset_id = d.dataset_id AND c.partition_number = p.partition_number)
            AND EXISTS (SELECT FROM leaving l JOIN easeml.replicas c USING (segment_id) WHERE c.dataset_id = d.dataset_id AND c.partition_number = p.partition_number) END
    ORDER BY d.dataset_id DESC, p.partition_number LIMIT 1;
    IF FOUND THEN
        PERFORM easeml.fail('ML004', format('%s the last that can run partition %s of dataset %s (tenant %s)',
                (SELECT string_agg(format('slot %s on segment %s', s.slot_id, g.segment_name), ', ' ORDER BY s.slot_id) || CASE count(*) WHEN 1 THEN ' is' ELSE ' are' END
                 FROM easeml.slots s JOIN easeml.segments g USING (segment_id) WHERE s.slot_id = ANY (slot_ids)),
                orphan.partition_number, quote_literal(orphan.dataset_name), orphan.tenant),
            hint => CASE orphan.placement WHEN 'bound' THEN format('Replicate it first: SELECT easeml.replicate_dataset(%L, %s). Or add slots there, or say force => true.', orphan.dataset_name, orphan.n_holders + 1)
                ELSE 'Add slots first: SELECT easeml.add_slots(1). Or say force => true: runs then wait.' END);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_leaving(integer[], boolean) IS 'Refuses to take away the last slots that can run a partition, unless forced (internal).';

CREATE FUNCTION easeml.set_slots(n integer, n_threads integer DEFAULT 1, device text DEFAULT 'cpu', memory_limit_bytes bigint DEFAULT NULL) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept integer[];
    leaving integer[];
BEGIN
    PERFORM easeml.check_slot_options(n, n_threads, device, memory_limit_bytes);
    SELECT array_agg(s.slot_id ORDER BY s.slot_id) FILTER (WHERE s.place <= n), array_agg(s.slot_id) FILTER (WHERE s.place > n) INTO kept, leaving
    FROM (SELECT s.slot_id, row_number() OVER (ORDER BY s.slot_id) AS place FROM easeml.slots s WHERE s.segment_id = 1) s;
    DELETE FROM easeml.slots s WHERE s.slot_id = ANY (leaving);
    UPDATE easeml.slots s SET device = set_slots.device, n_threads = set_slots.n_threads, memory_limit_bytes = set_slots.memory_limit_bytes WHERE s.slot_id = ANY (kept);
    IF n > coalesce(cardinality(kept), 0) THEN
        PERFORM easeml.add_slots(n - coalesce(cardinality(kept), 0), 'local', n_threads, device, memory_limit_bytes);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.set_slots(integer, integer, text, bigint) IS
    'Sets the number of slots of segment local, and of each the CPU threads, the device and the memory limit. device: cpu, cuda:N, or cpu:N (the N-th n_threads cores; several slots may share them). memory_limit_bytes: by default each slot on the CPU has its share of three quarters of the machine''s memory. A running coordinator adapts at once; units of removed slots run again elsewhere.';

CREATE FUNCTION easeml.add_slots(n integer, segment text DEFAULT 'local', n_threads integer DEFAULT 1, device text DEFAULT 'cpu', memory_limit_bytes bigint DEFAULT NULL)
RETURNS integer[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    added integer[];
BEGIN
    PERFORM easeml.check_slot_options(n, n_threads, device, memory_limit_bytes);
    -- The number of a removed slot is never reused: the history of units names slots by number.
    WITH numbered AS MATERIALIZED (SELECT nextval('easeml.slots_slot_id_seq')::integer AS slot_id FROM generate_series(1, n)),
    inserted AS (
        INSERT INTO easeml.slots (slot_id, slot_name, segment_id, device, n_threads, memory_limit_bytes) OVERRIDING SYSTEM VALUE
        SELECT i.slot_id, 'slot-' || i.slot_id, easeml.find_segment(segment), add_slots.device, add_slots.n_threads, add_slots.memory_limit_bytes FROM numbered i
        RETURNING slot_id)
    SELECT array_agg(i.slot_id ORDER BY i.slot_id) INTO added FROM inserted i;
    RETURN added;
END
$$;
COMMENT ON FUNCTION easeml.add_slots(integer, text, integer, text, bigint) IS
    'Adds slots to a segment and returns their numbers. A running coordinator opens them at once, and open runs use them.';

CREATE FUNCTION easeml.drain_slot(slot_id integer, force boolean DEFAULT false) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    slot easeml.slots := easeml.find_slot(slot_id);
BEGIN
    IF slot.status = 'lost' THEN
        PERFORM easeml.fail('ML004', format('slot %s is lost: %s', slot.slot_id, slot.lost_reason), hint => 'It gets no units. Remove it, or make it active again with easeml.resume_slot.');
    END IF;
    PERFORM easeml.check_leaving(ARRAY[slot.slot_id], force);
    UPDATE easeml.slots s SET status = 'draining' WHERE s.slot_id = slot.slot_id;
END
$$;
COMMENT ON FUNCTION easeml.drain_slot(integer, boolean) IS
    'Lets a slot finish its unit and gives it no other. Refuses for the last slot that can run a partition, unless force => true. easeml.resume_slot undoes it.';

CREATE FUNCTION easeml.resume_slot(slot_id integer) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    slot easeml.slots := easeml.find_slot(slot_id);
BEGIN
    UPDATE easeml.slots s SET status = 'active', lost_reason = NULL, lost_at = NULL WHERE s.slot_id = slot.slot_id;
END
$$;
COMMENT ON FUNCTION easeml.resume_slot(integer) IS 'Gives units again to a slot that was drained or lost.';

CREATE FUNCTION easeml.remove_slot(slot_id integer, force boolean DEFAULT false) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    slot easeml.slots := easeml.find_slot(slot_id);
BEGIN
    PERFORM easeml.check_leaving(ARRAY[slot.slot_id], force);
    DELETE FROM easeml.slots s WHERE s.slot_id = slot.slot_id;
END
$$;
COMMENT ON FUNCTION easeml.remove_slot(integer, boolean) IS
    'Removes a slot at once. The coordinator cancels its unit and runs it again elsewhere. Refuses for the last slot that can run a partition, unless force => true.';

CREATE FUNCTION easeml.add_segment(segment text) RETURNS integer LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    new_segment_id integer;
BEGIN
    IF segment IS NULL OR btrim(segment) = '' OR length(segment) > 200 THEN
        PERFORM easeml.fail('ML001', format('segment: expected a name of 1 to 200 characters, got %s', quote_nullable(segment)));
    END IF;
    INSERT INTO easeml.segments (segment_name) VALUES (segment) ON CONFLICT (segment_name) DO NOTHING RETURNING segment_id INTO new_segment_id;
    IF new_segment_id IS NULL THEN
        PERFORM easeml.fail('ML001', format('there is a segment %s already', quote_literal(segment)));
    END IF;
    RETURN new_segment_id;
END
$$;
COMMENT ON FUNCTION easeml.add_segment(text) IS
    'Adds a segment, a place that holds partitions of datasets with bound placement, and returns its number. Give it slots with easeml.add_slots(n, segment).';

CREATE FUNCTION easeml.drain_segment(segment text, force boolean DEFAULT false) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own integer[] := (SELECT array_agg(s.slot_id) FROM easeml.slots s WHERE s.segment_id = easeml.find_segment(segment) AND s.status = 'active');
BEGIN
    IF own IS NOT NULL THEN
        PERFORM easeml.check_leaving(own, force);
        UPDATE easeml.slots s SET status = 'draining' WHERE s.slot_id = ANY (own);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.drain_segment(text, boolean) IS 'Drains all slots of a segment, as easeml.drain_slot does.';

CREATE FUNCTION easeml.resume_segment(segment text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE easeml.slots s SET status = 'active', lost_reason = NULL, lost_at = NULL WHERE s.segment_id = easeml.find_segment(segment);
END
$$;
COMMENT ON FUNCTION easeml.resume_segment(text) IS 'Gives units again to all slots of a segment.';

CREATE FUNCTION easeml.remove_segment(segment text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    leaving integer := easeml.find_segment(segment);
    orphan record;
BEGIN
    PERFORM easeml.lock_topology();
    IF leaving = 1 THEN
        PERFORM easeml.fail('ML004', 'segment local cannot be removed: it is this server');
    END IF;
    IF EXISTS (SELECT FROM easeml.slots s WHERE s.segment_id = leaving) THEN
        PERFORM easeml.fail('ML004', format('segment %s still has slots', segment), hint => 'Remove them first: SELECT easeml.remove_slot(slot_id).');
    END IF;
    SELECT d.dataset_name, c.partition_number INTO orphan
    FROM easeml.replicas c JOIN easeml.datasets d USING (dataset_id)
    WHERE c.segment_id = leaving AND NOT EXISTS (SELECT FROM easeml.replicas o
        WHERE o.dataset_id = c.dataset_id AND o.partition_number = c.partition_number AND o.segment_id <> leaving) LIMIT 1;
    IF FOUND THEN
        PERFORM easeml.fail('ML004', format('segment %s is the only holder of partition %s of dataset %s', segment, orphan.partition_number, quote_literal(orphan.dataset_name)),
            hint => format('Place it anew first: SELECT easeml.replicate_dataset(%L, 1).', orphan.dataset_name));
    END IF;
    DELETE FROM easeml.replicas c WHERE c.segment_id = leaving;
    DELETE FROM easeml.segments g WHERE g.segment_id = leaving;
END
$$;
COMMENT ON FUNCTION easeml.remove_segment(text) IS 'Removes a segment. Refuses if the segment has slots or is the only holder of a partition.';

-- functions/datasets.sql
-- What users do with datasets. Packing reads the source with the rights of the caller; whatever is recorded goes through easeml.requests.

-- byteasend returns a bytea unchanged. Declared for arrays, it returns the array's memory as it is, at a thirtieth of the cost
-- of array_send, which rebuilds each element. array.h defines the layout, and the Python side checks it.
CREATE FUNCTION easeml.array_bytes(elements anyarray) RETURNS bytea LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS $$byteasend$$;
COMMENT ON FUNCTION easeml.array_bytes(anyarray) IS 'Returns an array as the server stores it: dimensions, then the elements side by side (internal).';

CREATE FUNCTION easeml.pack_begun_dataset(dataset_id bigint, OUT n_rows bigint, OUT failure jsonb) LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.packing import pack_begun_dataset
return pack_begun_dataset(plpy, GD, dataset_id)
$$;
COMMENT ON FUNCTION easeml.pack_begun_dataset(bigint) IS
    'Shuffles, splits, encodes and packs the source of a dataset that was begun in this transaction, with the rights of the caller; returns the number of rows or an error (internal: use easeml.create_dataset).';

CREATE FUNCTION easeml.pack_version(action text, request jsonb) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    begun bigint := easeml.request(action, request)::bigint;
BEGIN
    PERFORM easeml.raise_failure(p.failure) FROM easeml.pack_begun_dataset(begun) p;
    RETURN begun;
END
$$;
COMMENT ON FUNCTION easeml.pack_version(text, jsonb) IS 'Begins a version of a dataset, and packs it; returns its id (internal).';

-- Not pinned to a search_path: easeml.find_source needs the caller's. All else is named with its schema.
CREATE FUNCTION easeml.create_dataset(
    name text,
    source text,
    inputs text[],
    target text,
    n_partitions integer DEFAULT 4,
    validation_fraction double precision DEFAULT 0.15,
    test_fraction double precision DEFAULT 0.15,
    seed bigint DEFAULT 0,
    task text DEFAULT NULL,
    input_shape integer[] DEFAULT NULL,
    block_rows integer DEFAULT NULL,
    placement text DEFAULT 'shared',
    split_column text DEFAULT NULL,
    time_column text DEFAULT NULL,
    group_column text DEFAULT NULL,
    key_columns text[] DEFAULT NULL,
    n_folds integer DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    request jsonb := pg_catalog.jsonb_build_object('name', name, 'inputs', inputs, 'target', target, 'n_partitions', n_partitions,
        'validation_fraction', validation_fraction, 'test_fraction', test_fraction, 'seed', seed, 'task', task, 'input_shape', input_shape,
        'block_rows', block_rows, 'placement', placement, 'split_column', split_column, 'time_column', time_column, 'group_column', group_column,
        'key_columns', key_columns, 'n_folds', n_folds);
BEGIN
    -- One refusal at a time: what is wrong with the arguments comes before a source that does not exist.
    PERFORM easeml.check_dataset(request);
    RETURN easeml.pack_version('begin_dataset', pg_catalog.jsonb_insert(request, '{source}', pg_catalog.to_jsonb((easeml.find_source(source)).qualified_name)));
END
$$;
COMMENT ON FUNCTION easeml.create_dataset(text, text, text[], text, integer, double precision, double precision, bigint, text, integer[], integer, text, text, text, text, text[], integer) IS
$$Registers a table or view as a dataset and returns the dataset's id. It shuffles the rows once, splits them into training, validation and test rows
(stratified for labels, with a row of each class that has three in each split), and packs them into partitions. No row leaves the database.
name: any text; only your own datasets must differ from it. source: a table or view that you may read, written as in SQL.
inputs: columns of numbers, booleans, dates, text and other categories, arrays of numbers of one shape, or one bytea of 8-bit values with input_shape. A NULL input is imputed and flagged.
target: text, integer or boolean (labels), or a real number (regression). Rows with a NULL target are left out.
n_partitions: parts that train side by side. validation_fraction, test_fraction: between 0 and 1. seed: the same rows and seed give the same split.
task: classification or regression; by default the target's type decides. input_shape: for bytea and one-dimensional arrays, e.g. {28,28}.
block_rows: rows of a packed block; by default a block holds about 2 MB.
placement: shared (every slot may run every partition) or bound (a partition runs only on slots of its segments, see easeml.replicate_dataset).
split_column: says of each row which split it is in, in the words train, validation and test; the fractions count for nothing then.
time_column: the newest rows test, those before them validate, the oldest train. group_column: rows of one group are never in two splits.
key_columns: name the rows in easeml.dataset_rows; by default the primary key, or without one a hash of inputs and target.
n_folds: for small tables, cross-validation with so many folds: all rows but the test rows train, and validate in turn. There are as many partitions, whatever n_partitions says.$$;

CREATE FUNCTION easeml.dataset_rows(dataset text, version integer DEFAULT NULL) RETURNS TABLE (row_key text, split text, partition_number integer, fold integer)
LANGUAGE plpgsql STABLE ROWS 10000 SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    newest easeml.datasets := easeml.find_dataset(dataset);
    wanted easeml.datasets;
BEGIN
    SELECT d.* INTO wanted FROM easeml.datasets d
    WHERE d.tenant = newest.tenant AND d.dataset_name = newest.dataset_name AND d.version = coalesce(dataset_rows.version, newest.version);
    IF wanted.dataset_id IS NULL THEN
        PERFORM easeml.fail('ML003', format('dataset %s has no version %s', quote_literal(dataset), version), hint => format('It has versions up to %s.', newest.version));
    END IF;
    RETURN QUERY SELECT k.row_key, b.split, b.partition_number, CASE WHEN wanted.options ? 'n_folds' AND b.split = 'train' THEN b.partition_number END FROM easeml.blocks b, unnest(coalesce(b.row_keys, b.row_hashes::text[])) k(row_key) WHERE b.dataset_id = wanted.dataset_id;
END
$$;
COMMENT ON FUNCTION easeml.dataset_rows(text, integer) IS
$$Says of each row of your dataset in which split it is: train, validation or test, and with n_folds in which fold. version: by default the newest.
row_key is the row's primary key as text (several columns as ROW(a, b)::text), or what key_columns of easeml.create_dataset named; without either it is a hash of inputs and target.
easeml.dataset_info.row_key is the expression that makes it of a row of the source: SELECT s.*, r.split FROM sales s JOIN easeml.dataset_rows('sales') r ON r.row_key = s.id::text.$$;

CREATE FUNCTION easeml.refresh_dataset(dataset text) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old easeml.datasets := easeml.find_dataset(dataset);
BEGIN
    IF to_regclass(old.source) IS NULL THEN
        PERFORM easeml.fail('ML003', format('the source %s of dataset %s is gone', old.source, quote_literal(dataset)),
            hint => 'Make a table or view of that name again, or another dataset with easeml.create_dataset.');
    END IF;
    RETURN easeml.pack_version('begin_refresh', jsonb_build_object('dataset', dataset));
END
$$;
COMMENT ON FUNCTION easeml.refresh_dataset(text) IS
    'Packs the present rows of the source into a new version of the dataset, with the arguments that created it, and returns the version''s id. New runs use the new version; earlier runs keep theirs.';

CREATE FUNCTION easeml.drop_dataset(dataset text, cascade boolean DEFAULT false) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('drop_dataset', jsonb_build_object('dataset', dataset, 'cascade', cascade));
END
$$;
COMMENT ON FUNCTION easeml.drop_dataset(text, boolean) IS
    'Removes a dataset with all its versions. Refuses if it has runs, unless cascade => true, which removes them, too. The source stays.';

CREATE FUNCTION easeml.grant_use(dataset text, role name, serving_only boolean DEFAULT false) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('grant_use', jsonb_build_object('dataset', dataset, 'role', role, 'serving_only', serving_only));
END
$$;
COMMENT ON FUNCTION easeml.grant_use(text, name, boolean) IS
$$Lets another role predict with the trials of a dataset, as 'tenant.dataset'; the role needs no other right. It sees neither the data nor the runs.
serving_only => true: it may ask only the trial that answers unless another is named, the one that easeml.serving shows. Grant again to change that.$$;

CREATE FUNCTION easeml.revoke_use(dataset text, role name) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('revoke_use', jsonb_build_object('dataset', dataset, 'role', role));
END
$$;
COMMENT ON FUNCTION easeml.revoke_use(text, name) IS 'Withdraws what easeml.grant_use granted.';

CREATE FUNCTION easeml.replicate_dataset(dataset text, factor integer) RETURNS integer LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN easeml.request('replicate_dataset', jsonb_build_object('dataset', dataset, 'factor', factor))::integer;
END
$$;
COMMENT ON FUNCTION easeml.replicate_dataset(text, integer) IS
    'Sets how many segments hold each partition of a dataset with bound placement, spreads the copies evenly over the segments that have slots, and returns that number. Open runs use the copies at once. Call it again after you have added or removed segments.';

-- functions/dataset_requests.sql
-- What easeml does with datasets for tenants, with the rights of easeml_owner: behind easeml.requests, for a proven caller.

-- Everybody may call this: it looks at its argument only.
CREATE FUNCTION easeml.check_dataset(request jsonb) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted record;
BEGIN
    SELECT w.* INTO wanted FROM jsonb_to_record(request) w(name text, inputs text[], target text, n_partitions integer, validation_fraction float8,
        test_fraction float8, seed bigint, task text, input_shape integer[], block_rows integer, placement text, split_column text, time_column text,
        group_column text, key_columns text[], n_folds integer);
    IF wanted.name IS NULL OR btrim(wanted.name) = '' OR length(wanted.name) > 200 THEN
        PERFORM easeml.fail('ML001', format('name: expected 1 to 200 characters, got %s', quote_nullable(wanted.name)),
            hint => 'Give the dataset a name: easeml.create_dataset(name, source, inputs, target).');
    END IF;
    IF wanted.n_partitions IS NULL OR wanted.n_partitions NOT BETWEEN 1 AND 10000 THEN
        PERFORM easeml.fail('ML001', format('n_partitions: expected 1 to 10000, got %s', coalesce(wanted.n_partitions::text, 'NULL')),
            hint => 'Take at least as many as there are slots; 4 is the default.');
    END IF;
    IF wanted.validation_fraction IS NULL OR NOT (wanted.validation_fraction > 0 AND wanted.validation_fraction < 1) THEN
        PERFORM easeml.fail('ML001', format('validation_fraction: expected a number between 0 and 1, got %s', coalesce(wanted.validation_fraction::text, 'NULL')),
            hint => 'It is a share of the rows: 0.15 means 15 %.');
    END IF;
    IF wanted.test_fraction IS NULL OR NOT (wanted.test_fraction > 0 AND wanted.test_fraction < 1) THEN
        PERFORM easeml.fail('ML001', format('test_fraction: expected a number between 0 and 1, got %s', coalesce(wanted.test_fraction::text, 'NULL')),
            hint => 'It is a share of the rows: 0.15 means 15 %.');
    END IF;
    IF wanted.validation_fraction + wanted.test_fraction >= 1 THEN
        PERFORM easeml.fail('ML001', format('validation_fraction and test_fraction leave nothing to train on: %s + %s >= 1', wanted.validation_fraction, wanted.test_fraction),
            hint => '0.15 and 0.15, the defaults, leave 70 % of the rows to train on.');
    END IF;
    IF wanted.task IS NOT NULL AND wanted.task NOT IN ('classification', 'regression') THEN
        PERFORM easeml.fail('ML001', format('task: expected classification, regression or NULL (by the type of the target), got %s', quote_literal(wanted.task)),
            hint => 'Leave the task out, unless whole numbers are not what they look like.');
    END IF;
    IF wanted.block_rows IS NOT NULL AND wanted.block_rows NOT BETWEEN 1 AND 1000000 THEN
        PERFORM easeml.fail('ML001', format('block_rows: expected 1 to 1000000, got %s', wanted.block_rows));
    END IF;
    IF wanted.seed IS NULL THEN
        PERFORM easeml.fail('ML001', 'seed: expected a whole number, got NULL');
    END IF;
    IF wanted.placement IS NULL OR wanted.placement NOT IN ('shared', 'bound') THEN
        PERFORM easeml.fail('ML001', format('placement: expected shared or bound, got %s', quote_nullable(wanted.placement)),
            hint => 'shared: every slot may run every partition; bound: a partition belongs to a segment, see easeml.replicate_dataset.');
    END IF;
    IF wanted.placement = 'bound' AND NOT EXISTS (SELECT FROM easeml.slots) THEN
        PERFORM easeml.fail('ML004', 'placement: bound partitions need a segment with slots, and there are no slots', hint => 'An administrator adds them: SELECT easeml.set_slots(2).');
    END IF;
    IF array_ndims(wanted.inputs) > 1 THEN
        PERFORM easeml.fail('ML001', format('inputs: expected a list of columns, got %s', wanted.inputs));
    END IF;
    IF array_ndims(wanted.input_shape) > 1 THEN
        PERFORM easeml.fail('ML001', format('input_shape: expected a list of sizes, got %s', wanted.input_shape));
    END IF;
    IF cardinality(wanted.inputs) > 1600 OR EXISTS (SELECT FROM unnest(wanted.inputs || wanted.target) c WHERE octet_length(c) > 63) THEN
        PERFORM easeml.fail('ML001', 'inputs: expected at most 1600 columns, whose names have at most 63 bytes');
    END IF;
    IF wanted.target IS NULL THEN
        PERFORM easeml.fail('ML001', 'target: expected a column, got NULL',
            hint => 'Name the column to predict.');
    END IF;
    IF num_nonnulls(wanted.split_column, wanted.time_column, wanted.group_column) > 1 THEN
        PERFORM easeml.fail('ML001', 'split_column, time_column and group_column exclude each other', hint => 'Name the one that says which rows a model is to be tested on.');
    END IF;
    IF wanted.n_folds NOT BETWEEN 2 AND 20 THEN
        PERFORM easeml.fail('ML001', format('n_folds: expected 2 to 20 or NULL (rows of their own validate), got %s', wanted.n_folds), hint => '5 and 10 are usual.');
    END IF;
    IF wanted.n_folds IS NOT NULL AND wanted.time_column IS NOT NULL THEN
        PERFORM easeml.fail('ML001', 'n_folds and time_column exclude each other: older rows would be predicted from newer ones');
    END IF;
    IF wanted.n_folds IS NOT NULL AND wanted.placement = 'bound' THEN
        PERFORM easeml.fail('ML001', 'n_folds and placement bound exclude each other', hint => 'Folds are for small tables: leave placement out.');
    END IF;
    IF octet_length(concat(wanted.split_column, wanted.time_column, wanted.group_column)) > 63 OR array_ndims(wanted.key_columns) > 1 OR cardinality(wanted.key_columns) > 32
        OR EXISTS (SELECT FROM unnest(wanted.key_columns) c WHERE c IS NULL OR octet_length(c) > 63) THEN
        PERFORM easeml.fail('ML001', 'split_column, time_column, group_column, key_columns: expected names of columns, which have at most 63 bytes, and at most 32 keys');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_dataset(jsonb) IS 'Refuses arguments of easeml.create_dataset that no dataset can have (internal).';

CREATE FUNCTION easeml.begin_dataset(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.check_dataset(arguments);
    IF coalesce(octet_length(arguments ->> 'source'), 0) NOT BETWEEN 1 AND 300 THEN
        PERFORM easeml.fail('ML003', 'source: expected schema and name of a table or view');
    END IF;
    IF EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = asker AND d.dataset_name = arguments ->> 'name') THEN
        PERFORM easeml.fail('ML001', format('you have a dataset %s already', quote_literal(arguments ->> 'name')),
            hint => format('Pack its source again with easeml.refresh_dataset(%s), or remove it with easeml.drop_dataset(%1$s).', quote_literal(arguments ->> 'name')));
    END IF;
    RETURN to_jsonb(easeml.begin_version(asker, 1, arguments));
END
$$;
COMMENT ON FUNCTION easeml.begin_dataset(name, name, jsonb) IS 'Begins the first version of a dataset, for this transaction to pack; returns its id (internal).';

CREATE FUNCTION easeml.begin_refresh(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old easeml.datasets := easeml.dataset_of(caller, asker, arguments ->> 'dataset');
BEGIN
    RETURN to_jsonb(easeml.begin_version(asker, old.version + 1, jsonb_build_object('name', old.dataset_name, 'source', old.source, 'inputs', old.input_columns,
        'target', old.target_column, 'n_partitions', old.n_partitions, 'validation_fraction', old.validation_fraction, 'test_fraction', old.test_fraction,
        'seed', old.seed, 'placement', old.placement) || old.options));
END
$$;
COMMENT ON FUNCTION easeml.begin_refresh(name, name, jsonb) IS 'Begins a further version of a dataset, for this transaction to pack; returns its id (internal).';

CREATE FUNCTION easeml.begin_version(asker name, version integer, arguments jsonb) RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    -- What packing finds out is filled in by easeml.finish_dataset.
    INSERT INTO easeml.datasets (tenant, dataset_name, version, source, input_columns, target_column, task, input_shape, n_outputs, n_partitions, placement,
        validation_fraction, test_fraction, seed, block_rows, options, encoder, packing_xid)
    SELECT begin_version.asker, w.name, begin_version.version, w.source, coalesce(w.inputs, '{}'), w.target, coalesce(w.task, 'classification'), '{1}', 1, coalesce(w.n_folds, w.n_partitions), w.placement,
        w.validation_fraction, w.test_fraction, w.seed, coalesce(w.block_rows, 1), jsonb_build_object('task', w.task, 'input_shape', w.input_shape, 'block_rows', w.block_rows)
            || jsonb_strip_nulls(jsonb_build_object('split_column', w.split_column, 'time_column', w.time_column, 'group_column', w.group_column, 'key_columns', w.key_columns, 'n_folds', w.n_folds)), '{}',
        pg_current_xact_id()
    FROM jsonb_to_record(arguments) w(name text, source text, inputs text[], target text, n_partitions integer, validation_fraction float8, test_fraction float8, seed bigint,
        task text, input_shape integer[], block_rows integer, placement text, split_column text, time_column text, group_column text, key_columns text[], n_folds integer)
    RETURNING dataset_id
$$;
COMMENT ON FUNCTION easeml.begin_version(name, integer, jsonb) IS 'Inserts a version of a dataset that this transaction packs; returns its id (internal).';

CREATE FUNCTION easeml.finish_dataset(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets;
    found record;
BEGIN
    SELECT d.* INTO data FROM easeml.datasets d
    WHERE d.dataset_id = (arguments ->> 'dataset_id')::bigint AND d.tenant = asker AND d.packing_xid = pg_current_xact_id();
    IF data.dataset_id IS NULL THEN
        PERFORM easeml.fail('ML003', format('dataset %s is not being packed by this transaction', arguments ->> 'dataset_id'));
    END IF;
    SELECT f.* INTO found FROM jsonb_to_record(arguments) f(task text, input_shape integer[], n_outputs integer, block_rows integer, n_skipped_rows bigint,
        packing_seconds float8, encoder jsonb, explanations jsonb, checksums bigint[], row_key text);
    IF octet_length(found.row_key) > 1000000 THEN
        PERFORM easeml.fail('ML004', 'row_key: expected at most 1000000 bytes');
    END IF;
    PERFORM easeml.check_json('encoder', found.encoder, 33554432, 8);
    PERFORM easeml.check_json('explanations', found.explanations, 1000000, 2);
    PERFORM easeml.add_partitions(data, found.checksums);
    PERFORM easeml.check_shape(data, found.input_shape);
    UPDATE easeml.datasets d SET task = found.task, input_shape = found.input_shape, n_outputs = found.n_outputs, block_rows = found.block_rows,
        n_skipped_rows = found.n_skipped_rows, packing_seconds = found.packing_seconds, encoder = found.encoder, packing_xid = NULL, explanations = coalesce(found.explanations, '{}'), row_key = found.row_key,
        options = d.options || jsonb_build_object('block_rows', found.block_rows)
    WHERE d.dataset_id = data.dataset_id;
    -- The encoder counts, too; the partitions before it have this tenant's row locked.
    IF easeml.is_bound_by_limits(caller) THEN
        PERFORM easeml.check_kept_bytes(asker);
    END IF;
    IF data.placement = 'bound' THEN
        PERFORM easeml.place_dataset(data.dataset_id, (SELECT greatest(max(c.n), 1)::integer FROM (SELECT count(*) AS n FROM easeml.replicas r JOIN easeml.datasets d USING (dataset_id)
            WHERE d.tenant = data.tenant AND d.dataset_name = data.dataset_name AND d.version = data.version - 1 GROUP BY r.partition_number) c));
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.finish_dataset(name, name, jsonb) IS 'Records what packing found out, after which nobody can add to the dataset (internal).';

-- VOLATILE, so that it sees what the statement that inserts a block has done before: it may have finished the dataset.
CREATE FUNCTION easeml.is_being_packed(dataset_id bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (SELECT FROM easeml.datasets d WHERE d.dataset_id = is_being_packed.dataset_id AND d.packing_xid = pg_current_xact_id());
END
$$;
COMMENT ON FUNCTION easeml.is_being_packed(bigint) IS 'Says whether this transaction packs that dataset of yours (internal).';

CREATE FUNCTION easeml.add_partitions(data easeml.datasets, checksums bigint[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Counted here, not told by whoever packed: only the checksum is taken on trust, and it proves rows to their tenant alone.
    INSERT INTO easeml.partitions (dataset_id, tenant, partition_number, n_train_rows, n_validation_rows, n_test_rows, n_bytes, checksum)
    SELECT data.dataset_id, data.tenant, b.partition_number, coalesce(sum(b.n_rows) FILTER (WHERE b.split = 'train'), 0), coalesce(sum(b.n_rows) FILTER (WHERE b.split = 'validation'), 0),
        coalesce(sum(b.n_rows) FILTER (WHERE b.split = 'test'), 0), sum(octet_length(b.inputs)::bigint + octet_length(b.targets) + coalesce(pg_column_size(b.row_keys), pg_column_size(b.row_hashes), 0)), checksums[b.partition_number + 1]
    FROM easeml.blocks b WHERE b.dataset_id = data.dataset_id GROUP BY b.partition_number;
    IF (SELECT count(*) FILTER (WHERE p.n_train_rows > 0 AND p.partition_number < data.n_partitions) FROM easeml.partitions p WHERE p.dataset_id = data.dataset_id) <> data.n_partitions THEN
        PERFORM easeml.fail('ML004', format('dataset %s: expected %s partitions with rows to train on, numbered from 0', data.dataset_id, data.n_partitions));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.add_partitions(easeml.datasets, bigint[]) IS 'Records the partitions of the blocks that were packed, and refuses if one is missing (internal).';

CREATE FUNCTION easeml.check_shape(data easeml.datasets, input_shape integer[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    row_bytes numeric;
    n_values numeric := (SELECT round(exp(sum(ln(s::numeric)))) FROM unnest(input_shape) s WHERE s > 0);
BEGIN
    SELECT max(octet_length(b.inputs)::numeric / b.n_rows) INTO row_bytes FROM easeml.blocks b WHERE b.dataset_id = data.dataset_id;
    -- A category takes a byte or more and becomes at most 66 numbers, all else fewer: a larger shape is made up, and would take memory.
    IF coalesce(array_ndims(input_shape), 0) <> 1 OR cardinality(input_shape) > 16 OR EXISTS (SELECT FROM unnest(input_shape) s WHERE s IS NULL OR s < 1) OR n_values > 66 * row_bytes THEN
        PERFORM easeml.fail('ML004', format('dataset %s: expected an input_shape that rows of %s bytes can have, got %s', data.dataset_id, ceil(row_bytes), input_shape));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_shape(easeml.datasets, integer[]) IS 'Refuses an input shape that has nothing to do with the rows that were packed (internal).';

CREATE FUNCTION easeml.refuse_unpacked() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM easeml.datasets d WHERE d.dataset_id = NEW.dataset_id AND d.packing_xid IS NOT NULL) THEN
        PERFORM easeml.fail('ML004', format('dataset %s was begun and not packed', NEW.dataset_id), hint => 'Use easeml.create_dataset, which does both.');
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.refuse_unpacked() IS 'Refuses to commit a dataset that was begun and not packed (trigger).';
CREATE CONSTRAINT TRIGGER dataset_is_packed AFTER INSERT ON easeml.datasets DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.packing_xid IS NOT NULL) EXECUTE FUNCTION easeml.refuse_unpacked();

CREATE FUNCTION easeml.perform_drop_dataset(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    newest easeml.datasets := easeml.dataset_of(caller, asker, arguments ->> 'dataset');
    run_ids bigint[] := (SELECT array_agg(r.run_id) FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
        WHERE d.tenant = newest.tenant AND d.dataset_name = newest.dataset_name);
BEGIN
    IF run_ids IS NOT NULL AND NOT (arguments ->> 'cascade')::boolean THEN
        PERFORM easeml.fail('ML004', format('dataset %s has %s run(s), which would be lost with it', quote_literal(newest.dataset_name), cardinality(run_ids)),
            hint => format('To remove them all: SELECT easeml.drop_dataset(%s, cascade => true).', quote_literal(newest.dataset_name)));
    END IF;
    DELETE FROM easeml.serving_metrics m WHERE m.tenant = newest.tenant AND m.dataset_name = newest.dataset_name;
    DELETE FROM easeml.servings s WHERE s.tenant = newest.tenant AND s.dataset_name = newest.dataset_name;
    PERFORM easeml.perform_drop_run(caller, asker, jsonb_build_object('run_id', i)) FROM unnest(run_ids) i;
    DELETE FROM easeml.dataset_grants g WHERE g.tenant = newest.tenant AND g.dataset_name = newest.dataset_name;
    DELETE FROM easeml.prediction_audits a WHERE a.tenant = newest.tenant AND a.dataset_name = newest.dataset_name;
    DELETE FROM easeml.prediction_log l WHERE l.tenant = newest.tenant AND l.dataset_name = newest.dataset_name;
    DELETE FROM easeml.datasets d WHERE d.tenant = newest.tenant AND d.dataset_name = newest.dataset_name;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_drop_dataset(name, name, jsonb) IS 'Removes a dataset for easeml.drop_dataset (internal).';

-- Whoever keeps a grant uncommitted must not have an older one, in the end, than somebody who has granted meanwhile. A row that never
-- stays shows it: a transaction that writes the same waits until the first has ended.
CREATE FUNCTION easeml.claim_name(dataset_name text, grantee regrole) RETURNS timestamptz LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
    INSERT INTO easeml.dataset_grants (tenant, dataset_name, grantee) VALUES ('', claim_name.dataset_name, claim_name.grantee);
    DELETE FROM easeml.dataset_grants g WHERE g.tenant = '' AND g.dataset_name = claim_name.dataset_name AND g.grantee = claim_name.grantee;
    RETURN clock_timestamp();
EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.claim_name(text, regrole) IS 'Returns the time of a grant, later than that of all others of the name to the role; NULL while one of them is not committed (internal).';

CREATE FUNCTION easeml.perform_grant_use(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := easeml.dataset_of(caller, asker, arguments ->> 'dataset');
    account regrole := to_regrole(quote_ident(arguments ->> 'role'));
    is_late boolean;
BEGIN
    IF account IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no role %s', quote_nullable(arguments ->> 'role')), hint => 'An administrator makes it: CREATE ROLE name LOGIN.');
    ELSIF arguments ->> 'serving_only' IS NULL THEN
        PERFORM easeml.fail('ML001', 'serving_only: expected true or false, got NULL');
    END IF;
    -- The time of the grant stays: it decides which of several grants of one name answers.
    INSERT INTO easeml.dataset_grants AS g (tenant, dataset_name, grantee, serving_only, granted_at)
    VALUES (asker, data.dataset_name, account, (arguments ->> 'serving_only')::boolean, easeml.claim_name(data.dataset_name, account))
    ON CONFLICT ON CONSTRAINT dataset_grants_pkey DO UPDATE SET serving_only = excluded.serving_only, granted_at = coalesce(g.granted_at, excluded.granted_at)
    RETURNING granted_at IS NULL INTO is_late;
    IF is_late THEN
        RAISE WARNING 'a transaction that is still open lets role % use a dataset %, too', account, quote_literal(data.dataset_name)
            USING hint = format('The role can say %L. Grant again later for the short name.', asker || '.' || data.dataset_name);
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_grant_use(name, name, jsonb) IS 'Lets a role predict, for easeml.grant_use (internal).';

CREATE FUNCTION easeml.perform_revoke_use(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM easeml.dataset_grants g
    WHERE g.tenant = asker AND g.dataset_name = arguments ->> 'dataset' AND g.grantee = to_regrole(quote_ident(arguments ->> 'role'));
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', format('role %s has no use of a dataset %s of yours', quote_literal(arguments ->> 'role'), quote_literal(arguments ->> 'dataset')),
            hint => 'Only what easeml.grant_use(dataset, role) has granted can be withdrawn.');
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_revoke_use(name, name, jsonb) IS 'Withdraws a role''s use of a dataset, for easeml.revoke_use (internal).';

-- functions/replicas.sql
-- Which segments hold the partitions of datasets with bound placement.

CREATE FUNCTION easeml.place_dataset(dataset_id bigint, factor integer) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets;
    part integer;
    n_wanted integer;
BEGIN
    SELECT d.* INTO data FROM easeml.datasets d WHERE d.dataset_id = place_dataset.dataset_id;
    -- A copy on a segment without slots is useless.
    DELETE FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id AND NOT EXISTS (SELECT FROM easeml.slots s WHERE s.segment_id = c.segment_id);
    FOR part IN SELECT p.partition_number FROM easeml.partitions p WHERE p.dataset_id = data.dataset_id ORDER BY p.partition_number LOOP
        SELECT factor - count(*) INTO n_wanted FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id AND c.partition_number = part;
        -- Too few copies: the emptiest segments get one. Too many: the fullest lose theirs.
        INSERT INTO easeml.replicas (dataset_id, tenant, partition_number, segment_id)
        SELECT data.dataset_id, data.tenant, part, g.segment_id FROM easeml.segments g
        WHERE EXISTS (SELECT FROM easeml.slots s WHERE s.segment_id = g.segment_id)
            AND NOT EXISTS (SELECT FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id AND c.partition_number = part AND c.segment_id = g.segment_id)
        ORDER BY (SELECT count(*) FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id AND c.segment_id = g.segment_id), g.segment_id
        LIMIT greatest(n_wanted, 0);
        DELETE FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id AND c.partition_number = part AND c.segment_id IN (
            SELECT o.segment_id FROM easeml.replicas o WHERE o.dataset_id = data.dataset_id AND o.partition_number = part
            ORDER BY (SELECT count(*) FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id AND c.segment_id = o.segment_id) DESC, o.segment_id DESC
            LIMIT greatest(-n_wanted, 0));
    END LOOP;
    -- Move copies from the fullest segment to the emptiest, as long as that evens them out.
    LOOP
        WITH held AS (
            SELECT g.segment_id, (SELECT count(*) FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id AND c.segment_id = g.segment_id) AS n
            FROM easeml.segments g WHERE EXISTS (SELECT FROM easeml.slots s WHERE s.segment_id = g.segment_id)),
        ends AS (SELECT (SELECT h.segment_id FROM held h ORDER BY h.n DESC, h.segment_id LIMIT 1) AS fullest,
            (SELECT h.segment_id FROM held h ORDER BY h.n, h.segment_id LIMIT 1) AS emptiest, max(h.n) - min(h.n) AS gap FROM held h),
        moved AS (SELECT c.partition_number, e.fullest, e.emptiest FROM easeml.replicas c, ends e
            WHERE e.gap > 1 AND c.dataset_id = data.dataset_id AND c.segment_id = e.fullest AND NOT EXISTS (SELECT FROM easeml.replicas o
                WHERE o.dataset_id = c.dataset_id AND o.partition_number = c.partition_number AND o.segment_id = e.emptiest)
            ORDER BY c.partition_number DESC LIMIT 1),
        gone AS (DELETE FROM easeml.replicas c USING moved m
            WHERE c.dataset_id = data.dataset_id AND c.partition_number = m.partition_number AND c.segment_id = m.fullest)
        INSERT INTO easeml.replicas (dataset_id, tenant, partition_number, segment_id) SELECT data.dataset_id, data.tenant, m.partition_number, m.emptiest FROM moved m;
        EXIT WHEN NOT FOUND;
    END LOOP;
END
$$;
COMMENT ON FUNCTION easeml.place_dataset(bigint, integer) IS
    'Gives each partition of a dataset `factor` holders, evenly over the segments that have slots; moves as few copies as possible (internal).';

CREATE FUNCTION easeml.perform_replicate_dataset(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := easeml.dataset_of(caller, asker, arguments ->> 'dataset');
    factor integer := (arguments ->> 'factor')::integer;
    n_segments integer := (SELECT count(DISTINCT s.segment_id) FROM easeml.slots s);
    version_id bigint;
BEGIN
    IF data.placement = 'shared' THEN
        PERFORM easeml.fail('ML004', format('dataset %s is shared: every slot may run every partition already', quote_literal(data.dataset_name)),
            hint => 'Replicas are for datasets created with placement => ''bound''.');
    END IF;
    IF factor IS NULL OR factor NOT BETWEEN 1 AND n_segments THEN
        PERFORM easeml.fail('ML001', format('factor: expected 1 to %s, the number of segments that have slots, got %s', n_segments, coalesce(factor::text, 'NULL')),
            hint => 'An administrator adds segments: SELECT easeml.add_segment(name), then easeml.add_slots(n, name).');
    END IF;
    FOR version_id IN SELECT d.dataset_id FROM easeml.datasets d WHERE d.tenant = data.tenant AND d.dataset_name = data.dataset_name AND d.placement = 'bound' LOOP
        PERFORM easeml.place_dataset(version_id, factor);
    END LOOP;
    RETURN to_jsonb(factor);
END
$$;
COMMENT ON FUNCTION easeml.perform_replicate_dataset(name, name, jsonb) IS 'Sets how many segments hold each partition, for easeml.replicate_dataset (internal).';

-- functions/catalogue.sql
-- What a run can ask for: architectures, metrics, procedures, schedulers and allocations, as the installed Python packages list them.

CREATE FUNCTION easeml.list_architectures(
    OUT architecture text, OUT trainer text, OUT tasks text[], OUT input_ranks integer[], OUT summary text, OUT hyperparameters jsonb
) RETURNS SETOF record LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.catalog import list_architectures
return list_architectures(plpy, GD)
$$;
COMMENT ON FUNCTION easeml.list_architectures() IS 'Lists the architectures that the installed package can train (internal: read easeml.architectures).';

-- Every run is asked for it, so it is said here, too: the installed package is not loaded for it.
CREATE FUNCTION easeml.does_whole_rounds(architecture text) RETURNS boolean LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT architecture = ANY ('{lightgbm,extra_trees,random_forest,ensemble}')
$$;
COMMENT ON FUNCTION easeml.does_whole_rounds(text) IS 'Says whether trials of an architecture take all partitions at once: a round of theirs is one unit on one slot (internal).';

CREATE FUNCTION easeml.batch_key(architecture text, config jsonb) RETURNS text LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT architecture || ' ' || md5((config - '{learning_rate,weight_decay,momentum,schedule,dropout,averaging}'::text[])::text)
    WHERE architecture = ANY ('{linear,mlp,lenet,resnet,tabm}')
$$;
COMMENT ON FUNCTION easeml.batch_key(text, jsonb) IS
    'Returns what two trials have in common that may train as one computation, a hash of all that shapes it; NULL for an architecture that never does (internal).';

CREATE FUNCTION easeml.list_metrics(OUT metric text, OUT task text, OUT is_higher_better boolean, OUT is_default boolean, OUT summary text)
RETURNS SETOF record LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.catalog import list_metrics
return list_metrics(plpy, GD)
$$;
COMMENT ON FUNCTION easeml.list_metrics() IS 'Lists the metrics by which a run can rank its trials (internal: read easeml.metrics).';

CREATE FUNCTION easeml.fitting_architectures(task text, input_shape integer[], n_outputs integer, has_texts boolean DEFAULT false, OUT architecture text, OUT misfit text, OUT is_default boolean)
RETURNS SETOF record LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.catalog import fitting_architectures
return fitting_architectures(plpy, GD, task, input_shape, n_outputs, has_texts)
$$;
COMMENT ON FUNCTION easeml.fitting_architectures(text, integer[], integer, boolean) IS
    'Lists every architecture with the reason why it does not fit data of that task and shape, or NULL if it fits; has_texts says whether an input is a free text.';

CREATE FUNCTION easeml.list_procedures(OUT procedure text, OUT is_one_shot boolean, OUT options text[], OUT summary text)
RETURNS SETOF record LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.procedures import list_procedures
from easeml_plpy.session import guarded
return guarded(plpy, list_procedures)
$$;
COMMENT ON FUNCTION easeml.list_procedures() IS 'Lists the procedures that a run can use (internal: read easeml.procedures).';

CREATE FUNCTION easeml.list_schedulers(OUT scheduler text, OUT needs_free_order boolean, OUT needs_single_holders boolean, OUT is_default boolean, OUT summary text)
RETURNS SETOF record LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.hopper.schedulers import list_schedulers
from easeml_plpy.session import guarded
return guarded(plpy, list_schedulers)
$$;
COMMENT ON FUNCTION easeml.list_schedulers() IS 'Lists the schedulers that a run can use (internal: read easeml.schedulers).';

CREATE FUNCTION easeml.complete_allocation(allocation text, has_time_limit boolean) RETURNS text LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.hopper.allocation.registry import complete_allocation
from easeml_plpy.session import guarded
return guarded(plpy, complete_allocation, allocation, has_time_limit)
$$;
COMMENT ON FUNCTION easeml.complete_allocation(text, boolean) IS 'Returns the allocation of a run: the one that it asks for, or the default (internal).';

CREATE FUNCTION easeml.list_allocations() RETURNS SETOF text LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.hopper.allocation.registry import list_allocations
from easeml_plpy.session import guarded
return guarded(plpy, list_allocations)
$$;
COMMENT ON FUNCTION easeml.list_allocations() IS 'Lists the allocations that a run can use: how its trials share the slots (internal).';

-- functions/run_options.sql
-- The arguments of easeml.select_models: checked, and completed with what the user left out.

CREATE FUNCTION easeml.complete_budget(procedure text, n_configs integer, max_epochs integer, max_seconds double precision) RETURNS jsonb
LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.procedures.budget import complete_budget
from easeml_plpy.session import guarded
return guarded(plpy, complete_budget, procedure, n_configs, max_epochs, max_seconds)
$$;
COMMENT ON FUNCTION easeml.complete_budget(text, integer, integer, double precision) IS
    'Returns procedure, max_epochs and max_seconds of a run as a json object, completed where the user left them out (internal).';

CREATE FUNCTION easeml.measured_configs(tenant name, task text) RETURNS jsonb LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Of the newest trials that trained for more than a moment; those of other tenants are theirs.
    RETURN (SELECT jsonb_agg(jsonb_build_object('architecture', m.architecture, 'dataset', m.dataset_name, 'config', m.config, 'quality', m.quality)) FROM (
        SELECT t.architecture, d.dataset_name, t.config, easeml.quality(r.metric, t.best_metric_value, e.r2) AS quality
        FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) JOIN easeml.trials t ON t.run_id = r.run_id
        JOIN easeml.epoch_metrics e ON e.trial_id = t.trial_id AND e.epoch = t.best_epoch AND e.split = 'validation'
        WHERE r.tenant = measured_configs.tenant AND d.task = measured_configs.task AND r.status = 'finished' AND t.architecture <> 'ensemble'
            AND octet_length(t.config::text) < 10000
        ORDER BY t.trial_id DESC LIMIT 2000) m WHERE m.quality IS NOT NULL);
END
$$;
COMMENT ON FUNCTION easeml.measured_configs(name, text) IS 'Returns what a tenant''s newest trials of a task came to, as a json array (internal).';

CREATE FUNCTION easeml.choose_portfolio(specifications jsonb, measured jsonb) RETURNS jsonb LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.procedures.portfolio import choose_portfolio
from easeml_plpy.session import guarded
return guarded(plpy, choose_portfolio, specifications, measured)
$$;
COMMENT ON FUNCTION easeml.choose_portfolio(jsonb, jsonb) IS
    'Returns the configs that a race tries first, by architecture, as a json object: those that were best across the tenant''s datasets, then those shipped (internal).';

CREATE FUNCTION easeml.check_schedule(data easeml.datasets, scheduler text, visit_order text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted record;
BEGIN
    IF visit_order IS NULL OR visit_order NOT IN ('cyclic', 'free') THEN
        PERFORM easeml.fail('ML001', format('visit_order: expected cyclic or free, got %s', quote_nullable(visit_order)),
            hint => 'cyclic: the order, and so every byte, is fixed beforehand; free: the scheduler also chooses the partition.');
    END IF;
    SELECT s.* INTO wanted FROM easeml.list_schedulers() s WHERE s.scheduler = check_schedule.scheduler;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML001', format('scheduler: there is no scheduler %s', quote_nullable(scheduler)),
            hint => (SELECT 'Choose one of: ' || string_agg(s.scheduler, ', ') || '.' FROM easeml.list_schedulers() s));
    ELSIF wanted.needs_free_order AND visit_order <> 'free' THEN
        PERFORM easeml.fail('ML001', format('scheduler: %s chooses the partitions, so it needs the visit order free, got %s', scheduler, visit_order),
            hint => 'Add visit_order => ''free'', or leave the scheduler to easeml.');
    ELSIF wanted.needs_single_holders AND EXISTS (SELECT FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id GROUP BY c.partition_number HAVING count(*) > 1) THEN
        PERFORM easeml.fail('ML001', format('scheduler: %s needs one holder for each partition, and dataset %s is replicated', scheduler, quote_literal(data.dataset_name)),
            hint => 'Choose longest_remaining or random, or leave the scheduler to easeml.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_schedule(easeml.datasets, text, text) IS 'Refuses a scheduler or visit order that does not exist or does not fit the dataset (internal).';

CREATE FUNCTION easeml.choose_architectures(data easeml.datasets, architectures text[]) RETURNS text[] LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    chosen text[];
    unfit record;
    is_together boolean := data.placement <> 'bound' OR EXISTS (
        SELECT FROM easeml.replicas c WHERE c.dataset_id = data.dataset_id GROUP BY c.segment_id HAVING count(*) = data.n_partitions);
BEGIN
    IF architectures IS NULL THEN
        SELECT array_agg(f.architecture) INTO chosen
        FROM easeml.fitting_architectures(data.task, data.input_shape, data.n_outputs, data.encoder @> '{"inputs": [{"kind": "text"}]}') f WHERE f.misfit IS NULL AND f.is_default
            AND (is_together OR NOT easeml.does_whole_rounds(f.architecture));
    ELSE
        SELECT array_agg(DISTINCT a) INTO chosen FROM unnest(architectures) a;
        chosen := (SELECT array_agg(a ORDER BY array_position(architectures, a)) FROM unnest(chosen) a);
    END IF;
    IF coalesce(cardinality(chosen), 0) = 0 THEN
        PERFORM easeml.fail('ML001', 'architectures: expected at least one name, got an empty list',
            hint => 'SELECT * FROM easeml.architectures shows them; NULL lets easeml choose.');
    END IF;
    SELECT a AS architecture, f.misfit INTO unfit
    FROM unnest(chosen) a LEFT JOIN easeml.fitting_architectures(data.task, data.input_shape, data.n_outputs) f ON f.architecture = a
    WHERE f.architecture IS NULL OR f.misfit IS NOT NULL LIMIT 1;
    IF FOUND AND unfit.misfit IS NOT NULL THEN
        PERFORM easeml.fail('ML001', format('architectures: %s does not fit dataset %s: %s', unfit.architecture, quote_literal(data.dataset_name), unfit.misfit),
            hint => 'SELECT * FROM easeml.architectures says what fits what; NULL lets easeml choose.');
    ELSIF FOUND THEN
        PERFORM easeml.fail('ML001', format('architectures: there is no architecture %s', quote_nullable(unfit.architecture)),
            hint => (SELECT 'Choose from: ' || string_agg(a.architecture, ', ') || '.' FROM easeml.list_architectures() a));
    END IF;
    SELECT a AS architecture INTO unfit FROM unnest(chosen) a WHERE easeml.does_whole_rounds(a) AND NOT is_together LIMIT 1;
    IF FOUND THEN
        PERFORM easeml.fail('ML001', format('architectures: %s takes all partitions at once, and no segment holds all of dataset %s', unfit.architecture, quote_literal(data.dataset_name)),
            hint => 'Replicate the dataset so that one segment holds all its partitions (easeml.replicate_dataset), or leave this architecture out.');
    END IF;
    RETURN chosen;
END
$$;
COMMENT ON FUNCTION easeml.choose_architectures(easeml.datasets, text[]) IS
    'Returns the architectures of a run, each once: those named, or those that suit the data. Refuses one that does not fit (internal).';

CREATE FUNCTION easeml.specifications(architectures text[]) RETURNS jsonb LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.catalog import specifications
return specifications(plpy, GD, architectures)
$$;
COMMENT ON FUNCTION easeml.specifications(text[]) IS 'Returns what architectures declare of their hyperparameters, as a procedure reads it (internal).';

CREATE FUNCTION easeml.check_memory(encoder jsonb, train_rows bigint[], trials jsonb, OUT limit_bytes bigint, OUT failure jsonb)
LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.config_memory import check_memory
return check_memory(plpy, GD, encoder, train_rows, trials)
$$;
COMMENT ON FUNCTION easeml.check_memory(jsonb, bigint[], jsonb) IS
    'Refuses trials that no slot has the memory to train; train_rows are the rows of each partition. Returns what a slot may take at most, NULL if one is on a GPU, or an error (internal).';

-- PL/pgSQL because it keeps its plans: planning takes longer than the query.
CREATE FUNCTION easeml.complete_options(procedure text, options jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF jsonb_typeof(options) <> 'object' OR NOT EXISTS (SELECT FROM easeml.list_procedures() p
        WHERE p.procedure = complete_options.procedure AND 'n_parallel' = ANY (p.options)) THEN
        RETURN options;
    END IF;
    RETURN jsonb_build_object('n_parallel', (SELECT greatest(count(*), 1) FROM easeml.slots s WHERE s.status = 'active')) || coalesce(options, '{}');
END
$$;
COMMENT ON FUNCTION easeml.complete_options(text, jsonb) IS
    'Completes the options of a procedure: n_parallel, if the procedure has it and the user did not set it, becomes the number of slots (internal).';

-- functions/run_start.sql
-- Starting a run: arms and first trials are queued, and a coordinator trains them.

CREATE FUNCTION easeml.begin_search(architectures jsonb, search_space jsonb, procedure text, n_configs integer, max_epochs integer, seed bigint, procedure_options jsonb,
    portfolio jsonb, OUT search jsonb, OUT failure jsonb) LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.procedures.proposal import begin_search
from easeml_plpy.session import answered_by
return answered_by(plpy, begin_search, architectures, search_space, procedure, n_configs, max_epochs, seed, procedure_options, portfolio)
$$;
COMMENT ON FUNCTION easeml.begin_search(jsonb, jsonb, text, integer, integer, bigint, jsonb, jsonb) IS
    'Returns a run''s arms, its first trials and the largest number of trials as a json object, a pure function of its arguments, or an error (internal).';

CREATE FUNCTION easeml.select_models(
    dataset text,
    architectures text[] DEFAULT NULL,
    search_space jsonb DEFAULT NULL,
    procedure text DEFAULT NULL,
    n_configs integer DEFAULT NULL,
    max_epochs integer DEFAULT NULL,
    metric text DEFAULT NULL,
    max_seconds double precision DEFAULT NULL,
    seed bigint DEFAULT 0,
    scheduler text DEFAULT 'auto',
    visit_order text DEFAULT 'cyclic',
    procedure_options jsonb DEFAULT NULL,
    allocation text DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN easeml.request('select_models', jsonb_build_object('dataset', dataset, 'architectures', architectures, 'search_space', search_space, 'procedure', procedure, 'n_configs', n_configs, 'max_epochs', max_epochs, 'metric', metric, 'max_seconds', max_seconds, 'seed', seed, 'scheduler', scheduler, 'visit_order', visit_order, 'procedure_options', procedure_options, 'allocation', allocation))::bigint;
END
$$;
COMMENT ON FUNCTION easeml.select_models(text, text[], jsonb, text, integer, integer, text, double precision, bigint, text, text, jsonb, text) IS
$$Starts a search for a good model on a dataset and returns the run's id at once. A coordinator trains in the background once this transaction has committed.
architectures: names from easeml.architectures; by default those that suit the data.
search_space: a json object, for example {"learning_rate": {"type": "float", "low": 1e-4, "high": 1e-1, "log": true}, "batch_size": [32, 256], "mlp": {"hidden_units": [[128], [256, 128]]}}.
A list is a choice, an object a range, anything else a fixed value. A key that names an architecture holds values for that architecture only. By default each architecture uses its own ranges.
Without max_seconds, max_epochs and n_configs it searches for two minutes (120 seconds), or until nothing improves.
procedure: one of easeml.procedures. race, the default without max_epochs, gives the slots to the architectures whose metric improves fastest, and gives up what improves no more.
random, the default with max_epochs, and grid train every trial to the end; the others look at the results of an arm (an architecture) after each epoch and stop, continue and start its trials.
easeml.preview_procedure shows what a run would train. procedure_options: a json object of options that easeml.procedures lists, for example {"eta": 3}; {"joint": true} searches all architectures at once.
n_configs: number of trials; by default random tries 8, grid all, race as many as there is time for, and the others, in each arm, as many as max_epochs needs.
max_epochs: passes of a trial over the training rows, at most; by default 100. With max_epochs and without max_seconds no clock decides, and the same seed gives the same bytes.
metric: ranks the trials by their best epoch on the validation rows; by default the metric of the dataset (that of its first run, see easeml.set_serving_metric), at first accuracy for labels, rmse for numbers. Only trials of runs that rank by the metric of the dataset answer by themselves. max_seconds: the time of the run; training that is under way at its end is cut short, and the best trial is tested.
seed: the same data, arguments and seed give the same result, unless a time limit cuts it short; easeml.replay proves any trial.
scheduler: chooses which trial runs next on which slot, one of easeml.schedulers; auto simulates longest_remaining and rotation before the run and takes the shorter.
visit_order: cyclic (the order in which a trial visits the partitions is fixed beforehand, so that failures and timing change no byte of the result) or free (the scheduler chooses the partition, too; easeml.replay proves the result).
allocation: hopping (each trial has one slot at a time; the default without max_seconds), batched (hopping, but trials that differ only in numbers such as the learning rate
train on one slot as one computation where that is faster; the default with max_seconds), data_parallel (one trial after another uses all slots), water_filling (slots follow the work that each trial has left)
or auto (data_parallel when few trials remain for many slots). Only hopping gives the same bytes whatever slots there are.$$;

-- functions/run_requests.sql
-- Starting a run with the rights of easeml_owner, behind easeml.requests, for a proven caller.

CREATE FUNCTION easeml.check_search(max_epochs integer, n_configs integer, seed bigint, search_space jsonb, procedure_options jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF max_epochs NOT BETWEEN 1 AND 1000000 THEN
        PERFORM easeml.fail('ML001', format('max_epochs: expected 1 to 1000000, got %s', max_epochs),
            hint => 'It is the number of epochs of a trial at most; leave it out to let easeml choose.');
    END IF;
    IF n_configs IS NOT NULL AND n_configs NOT BETWEEN 1 AND 10000 THEN
        PERFORM easeml.fail('ML001', format('n_configs: expected 1 to 10000, got %s', n_configs),
            hint => 'It is the number of configs that are tried; leave it out to let easeml choose.');
    END IF;
    IF seed IS NULL THEN
        PERFORM easeml.fail('ML001', 'seed: expected a whole number, got NULL');
    END IF;
    PERFORM easeml.check_json('search_space', search_space, 1000000, 32);
    PERFORM easeml.check_json('procedure_options', procedure_options, 100000, 32);
END
$$;
COMMENT ON FUNCTION easeml.check_search(integer, integer, bigint, jsonb, jsonb) IS 'Refuses arguments of a search that would take more than anybody can mean (internal).';

CREATE FUNCTION easeml.check_allocation(allocation text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF allocation NOT IN (SELECT easeml.list_allocations()) THEN
        PERFORM easeml.fail('ML001', format('allocation: there is no allocation %s', quote_nullable(allocation)),
            hint => (SELECT 'Choose one of: ' || string_agg(a, ', ') || '.' FROM easeml.list_allocations() a));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_allocation(text) IS 'Refuses an allocation that does not exist (internal).';

CREATE FUNCTION easeml.ranking_metric(data easeml.datasets, wanted text, OUT metric text, OUT is_higher_better boolean) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT m.metric, m.is_higher_better INTO metric, is_higher_better
    FROM easeml.list_metrics() m LEFT JOIN easeml.serving_metrics s ON s.tenant = data.tenant AND s.dataset_name = data.dataset_name AND s.metric = m.metric
    WHERE m.task = data.task AND (m.metric = wanted OR wanted IS NULL AND (m.is_default OR s.metric IS NOT NULL)) ORDER BY s.metric IS NULL LIMIT 1;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML001', format('metric: there is no %s metric %s', data.task, quote_literal(wanted)),
            hint => (SELECT 'Choose one of: ' || string_agg(m.metric, ', ') || '.' FROM easeml.list_metrics() m WHERE m.task = data.task));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.ranking_metric(easeml.datasets, text) IS 'Returns the metric of that name; without a name, that of the dataset, else the default of its task (internal).';

CREATE FUNCTION easeml.perform_select_models(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := easeml.dataset_of(caller, asker, arguments ->> 'dataset');
    run easeml.runs;
    ranking record;
    begun record;
    chosen text[];
    options jsonb;
    specifications jsonb;
    portfolio jsonb;
BEGIN
    -- Those of the arguments that are columns of easeml.runs.
    run := jsonb_populate_record(NULL::easeml.runs, arguments - 'dataset');
    PERFORM easeml.check_search(run.max_epochs, (arguments ->> 'n_configs')::integer, run.seed, run.search_space, run.procedure_options);
    IF run.max_seconds IS NOT NULL AND NOT (run.max_seconds > 0 AND run.max_seconds < 'Infinity') THEN
        PERFORM easeml.fail('ML001', format('max_seconds: expected a positive number, got %s', run.max_seconds),
            hint => 'It is the time of the run in seconds; leave it out for two minutes.');
    END IF;
    run := jsonb_populate_record(run, easeml.complete_budget(run.procedure, run.n_configs, run.max_epochs, run.max_seconds));
    run := jsonb_populate_record(run, jsonb_build_object('allocation', easeml.complete_allocation(run.allocation, run.max_seconds IS NOT NULL)));
    PERFORM easeml.check_schedule(data, run.scheduler, run.visit_order);
    PERFORM easeml.check_allocation(run.allocation);
    ranking := easeml.ranking_metric(data, arguments ->> 'metric');
    IF NOT EXISTS (SELECT FROM easeml.partitions p WHERE p.dataset_id = data.dataset_id) THEN
        PERFORM easeml.fail('ML004', format('dataset %s was imported: it has no rows to train on', quote_literal(data.dataset_name)),
            hint => 'Make a dataset of a table: easeml.create_dataset(name, source, inputs, target).');
    END IF;
    chosen := easeml.choose_architectures(data, run.architectures);
    options := easeml.complete_options(run.procedure, run.procedure_options);
    specifications := easeml.specifications(chosen);
    IF run.procedure = 'race' AND run.search_space IS NULL THEN
        portfolio := easeml.choose_portfolio(specifications, easeml.measured_configs(asker, data.task));
    END IF;
    begun := easeml.begin_search(specifications, run.search_space, run.procedure, run.n_configs, run.max_epochs, run.seed, options, portfolio);
    PERFORM easeml.raise_failure(begun.failure);
    PERFORM easeml.raise_failure(m.failure) FROM easeml.check_memory(data.encoder,
        (SELECT coalesce(array_agg(p.n_train_rows ORDER BY p.partition_number), '{}') FROM easeml.partitions p WHERE p.dataset_id = data.dataset_id), begun.search -> 'trials') m;
    PERFORM easeml.check_run_limits(caller, asker);
    run := jsonb_populate_record(run, jsonb_build_object('tenant', asker, 'dataset_id', data.dataset_id, 'architectures', chosen, 'procedure_options', options,
        'metric', ranking.metric, 'is_higher_better', ranking.is_higher_better, 'n_configs', begun.search -> 'n_configs',
        'search', CASE WHEN NOT (begun.search ->> 'is_one_shot')::boolean THEN jsonb_build_object('architectures', specifications, 'n_configs', run.n_configs, 'portfolio', portfolio) END));
    run := jsonb_populate_record(run, jsonb_build_object('run_id', easeml.insert_run(run, begun.search)));
    PERFORM easeml.announce_run(run, begun.search, (arguments ->> 'n_configs')::integer);
    RETURN to_jsonb(run.run_id);
END
$$;
COMMENT ON FUNCTION easeml.perform_select_models(name, name, jsonb) IS 'Checks the arguments of easeml.select_models, and queues a run; returns its id (internal).';

CREATE FUNCTION easeml.insert_run(run easeml.runs, search jsonb) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    new_run_id bigint;
BEGIN
    INSERT INTO easeml.runs (tenant, dataset_id, procedure, procedure_options, architectures, search_space, n_configs, max_epochs, metric, is_higher_better, max_seconds, seed,
        scheduler, visit_order, allocation, search)
    VALUES (run.tenant, run.dataset_id, run.procedure, run.procedure_options, run.architectures, run.search_space, run.n_configs, run.max_epochs, run.metric, run.is_higher_better,
        run.max_seconds, run.seed, run.scheduler, run.visit_order, run.allocation, run.search)
    RETURNING run_id INTO new_run_id;
    INSERT INTO easeml.serving_metrics (tenant, dataset_name, metric, is_higher_better)
    SELECT run.tenant, d.dataset_name, run.metric, run.is_higher_better FROM easeml.datasets d WHERE d.dataset_id = run.dataset_id ON CONFLICT DO NOTHING;
    INSERT INTO easeml.arms (run_id, tenant, architecture, planned_epochs)
    SELECT new_run_id, run.tenant, a.architecture, a.planned_epochs
    FROM ROWS FROM (jsonb_to_recordset(search -> 'arms') AS (architecture text, planned_epochs bigint)) WITH ORDINALITY a
    ORDER BY array_position(run.architectures, a.architecture), a.ordinality;
    INSERT INTO easeml.trials (run_id, arm_id, tenant, trial_number, architecture, config, max_epochs, target_epochs, bracket)
    SELECT new_run_id, a.arm_id, run.tenant, c.trial_number, c.architecture, c.config, run.max_epochs, c.target_epochs, c.bracket
    FROM jsonb_to_recordset(search -> 'trials') c(arm text, trial_number integer, architecture text, config jsonb, target_epochs integer, bracket integer)
    JOIN easeml.arms a ON a.run_id = new_run_id AND a.architecture = c.arm ORDER BY c.trial_number;
    RETURN new_run_id;
END
$$;
COMMENT ON FUNCTION easeml.insert_run(easeml.runs, jsonb) IS 'Inserts a run with its arms and first trials; returns its id (internal).';

CREATE FUNCTION easeml.announce_run(run easeml.runs, search jsonb, n_wanted integer) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    up_to text := CASE WHEN NOT (search ->> 'is_one_shot')::boolean THEN 'up to ' END;
    serving record;
    watch text := format('Watch it: SELECT * FROM easeml.leaderboard WHERE run_id = %s; progress: easeml.run_status.', run.run_id);
BEGIN
    IF run.procedure = 'race' AND run.max_seconds IS NOT NULL THEN
        RAISE NOTICE 'run % searches for % seconds, or until nothing improves', run.run_id, run.max_seconds USING hint = watch;
    ELSE
        RAISE NOTICE 'run % trains % for %', run.run_id,
            format('%s%s trial%s', up_to, run.n_configs, CASE WHEN run.n_configs > 1 THEN 's' END),
            format('%s%s epoch%s', up_to, run.max_epochs, CASE WHEN run.max_epochs > 1 THEN 's' END) USING hint = watch;
    END IF;
    IF run.procedure = 'random' AND run.n_configs < coalesce(n_wanted, 8) THEN
        RAISE NOTICE 'the search space holds only % different configs', run.n_configs
            USING hint = 'What search_space does not mention keeps its default; widen it, or leave it out to search the default ranges.';
    END IF;
    SELECT m.dataset_name, m.metric INTO serving FROM easeml.datasets d JOIN easeml.serving_metrics m ON m.tenant = d.tenant AND m.dataset_name = d.dataset_name
    WHERE d.dataset_id = run.dataset_id AND m.metric <> run.metric;
    IF FOUND THEN
        RAISE NOTICE 'run % ranks by %, and what answers for dataset % is chosen by %: no trial of the run takes over by itself', run.run_id, run.metric, quote_literal(serving.dataset_name), serving.metric
            USING hint = format('Let one answer with easeml.deploy(trial_id), or choose by this metric from now on: SELECT easeml.set_serving_metric(%L, %L).', serving.dataset_name, run.metric);
    END IF;
    IF NOT easeml.has_live_coordinator() THEN
        RAISE WARNING 'no coordinator is running, so run % waits in the queue', run.run_id
            USING hint = 'Start one from a shell: easeml up (private server), or easeml coordinator --dsn ...';
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.announce_run(easeml.runs, jsonb, integer) IS 'Tells the coordinator of a new run, and its tenant what it will do (internal).';

-- functions/preview.sql
-- What a run would train, before anything runs.

CREATE FUNCTION easeml.plan_search(architectures jsonb, search_space jsonb, procedure text, n_configs integer, max_epochs integer, seed bigint, procedure_options jsonb,
    OUT rungs jsonb, OUT failure jsonb) LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.procedures.proposal import preview
from easeml_plpy.session import answered_by
return answered_by(plpy, preview, architectures, search_space, procedure, n_configs, max_epochs, seed, procedure_options)
$$;
COMMENT ON FUNCTION easeml.plan_search(jsonb, jsonb, text, integer, integer, bigint, jsonb) IS
    'Returns the rungs of a run as a json array, a pure function of its arguments, or an error (internal: use easeml.preview_procedure).';

-- SECURITY DEFINER, because only easeml.plan_search knows the plan, and it takes whatever it is given. It takes values only, and checks them first.
CREATE FUNCTION easeml.preview_search(
    data easeml.datasets, procedure text, max_epochs integer, n_configs integer, procedure_options jsonb, architectures text[], search_space jsonb, seed bigint,
    OUT arm text, OUT bracket integer, OUT rung integer, OUT n_trials integer, OUT n_epochs integer, OUT total_epochs bigint
) RETURNS SETOF record LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    chosen text[];
    plan record;
BEGIN
    PERFORM easeml.check_search(max_epochs, n_configs, seed, search_space, procedure_options);
    max_epochs := (easeml.complete_budget(procedure, n_configs, max_epochs, NULL) ->> 'max_epochs')::integer;
    IF data.dataset_id IS NOT NULL THEN
        chosen := easeml.choose_architectures(data, architectures);
    ELSE
        chosen := coalesce(architectures, '{mlp}');
        PERFORM easeml.fail('ML001', format('architectures: there is no architecture %s', quote_nullable(a)), hint => 'SELECT * FROM easeml.architectures shows them.')
        FROM unnest(chosen) a WHERE NOT EXISTS (SELECT FROM easeml.list_architectures() l WHERE l.architecture = a);
    END IF;
    plan := easeml.plan_search(easeml.specifications(chosen), search_space, procedure, n_configs, max_epochs, seed, easeml.complete_options(procedure, procedure_options));
    PERFORM easeml.raise_failure(plan.failure);
    RETURN QUERY SELECT CASE WHEN data.dataset_id IS NOT NULL OR architectures IS NOT NULL THEN p.arm END, p.bracket, p.rung, p.n_trials, p.n_epochs, p.total_epochs
    FROM jsonb_to_recordset(plan.rungs) p(arm text, bracket integer, rung integer, n_trials integer, n_epochs integer, total_epochs bigint);
END
$$;
COMMENT ON FUNCTION easeml.preview_search(easeml.datasets, text, integer, integer, jsonb, text[], jsonb, bigint) IS
    'Returns the rungs of a run on that dataset, which may be NULL, after checking the arguments (internal: use easeml.preview_procedure).';

CREATE FUNCTION easeml.preview_procedure(
    procedure text, max_epochs integer DEFAULT NULL, n_configs integer DEFAULT NULL, procedure_options jsonb DEFAULT NULL, dataset text DEFAULT NULL,
    architectures text[] DEFAULT NULL, search_space jsonb DEFAULT NULL, seed bigint DEFAULT 0,
    OUT arm text, OUT bracket integer, OUT rung integer, OUT n_trials integer, OUT n_epochs integer, OUT total_epochs bigint
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets;
BEGIN
    IF dataset IS NOT NULL THEN
        data := easeml.find_dataset(dataset);
    END IF;
    RETURN QUERY SELECT s.* FROM easeml.preview_search(data, procedure, max_epochs, n_configs, procedure_options, architectures, search_space, seed) s;
END
$$;
COMMENT ON FUNCTION easeml.preview_procedure(text, integer, integer, jsonb, text, text[], jsonb, bigint) IS
$$Shows what a run would train, with the arguments of easeml.select_models; it writes nothing. A row is a rung: at most n_trials trials of a bracket reach n_epochs epochs,
and together they train total_epochs epochs beyond the rung before. Without a dataset and architectures it shows the plan of one arm. max_epochs: by default 100. For asha and race the figures are upper limits; for pbt a rung is a round.$$;

-- functions/prices.sql
-- Price lists: administrators write them.

CREATE FUNCTION easeml.read_price_list(price_list text, types jsonb, OUT completed jsonb, OUT failure jsonb) LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.planner.documents import read_price_list
from easeml_plpy.session import answered_by
return answered_by(plpy, read_price_list, price_list, types)
$$;
COMMENT ON FUNCTION easeml.read_price_list(text, jsonb) IS 'Returns the instance types of a price list, completed, as a json array, or an error (internal).';

CREATE FUNCTION easeml.create_price_list(price_list text, types jsonb, caveat text DEFAULT NULL, is_local boolean DEFAULT false) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    read record;
BEGIN
    PERFORM easeml.check_json('types', types, 100000, 4);
    IF length(caveat) > 2000 THEN
        PERFORM easeml.fail('ML001', format('caveat: expected at most 2000 characters, got %s', length(caveat)));
    END IF;
    read := easeml.read_price_list(coalesce(price_list, ''), types);
    PERFORM easeml.raise_failure(read.failure);
    INSERT INTO easeml.price_lists (price_list, caveat, is_local) VALUES (price_list, caveat, coalesce(is_local, false)) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML001', format('there is a price list %s already', quote_literal(price_list)), hint => 'Drop it first with easeml.drop_price_list, or choose another name.');
    END IF;
    INSERT INTO easeml.instance_types SELECT (jsonb_populate_record(NULL::easeml.instance_types, jsonb_build_object('price_list', create_price_list.price_list) || t.value)).*
    FROM jsonb_array_elements(read.completed) t;
END
$$;
COMMENT ON FUNCTION easeml.create_price_list(text, jsonb, text, boolean) IS
$$Makes a price list for easeml.plan. types: a json array of instance types, {"instance_type": "g5", "device_kind": "cuda", "n_slots": 4, "price_per_hour": 5.67}. Further keys, with their defaults:
billed_by ("second"; "minute": each started minute), billed_per ("instance"; "function": only slots on which something trains), minimum_seconds (0), price_per_gb (0) of data brought in,
queue_seconds and queue_sd_seconds (0), start_seconds and start_sd_seconds (0), max_instances (null: as many as one wants), speed (1: a slot is as fast as those measured).
is_local: its slots are those of this server, no more than there are.$$;

CREATE FUNCTION easeml.drop_price_list(price_list text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.price_lists;
BEGIN
    SELECT l.* INTO found FROM easeml.price_lists l WHERE l.price_list = drop_price_list.price_list;
    IF found.price_list IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no price list %s', quote_nullable(price_list)), hint => 'SELECT * FROM easeml.prices lists them.');
    ELSIF found.is_shipped THEN
        PERFORM easeml.fail('ML004', format('price list %s comes with easeml and is in use', price_list), hint => 'Make one of your own with easeml.create_price_list, and name it where you plan.');
    END IF;
    DELETE FROM easeml.price_lists l WHERE l.price_list = found.price_list;
END
$$;
COMMENT ON FUNCTION easeml.drop_price_list(text) IS 'Drops a price list. Refuses for one that comes with easeml.';

-- functions/run_lifecycle.sql
-- What users do to a run after its start: cancel, resume, drop.

CREATE FUNCTION easeml.fail_run(run_id bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fail('ML003', format('there is no run %s that you can see', coalesce(run_id::text, 'NULL')),
        hint => 'SELECT run_id, dataset_name, status FROM easeml.run_status lists your runs.');
END
$$;
COMMENT ON FUNCTION easeml.fail_run(bigint) IS 'Raises the error that there is no such run (internal).';

CREATE FUNCTION easeml.find_run(run_id bigint) RETURNS easeml.runs LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found easeml.runs;
BEGIN
    SELECT r.* INTO found FROM easeml.runs r WHERE r.run_id = find_run.run_id;
    IF found.run_id IS NULL THEN
        PERFORM easeml.fail_run(run_id);
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION easeml.find_run(bigint) IS 'Returns the run of that number, or raises an error if you cannot see it.';

CREATE FUNCTION easeml.cancel(run_id bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('cancel', jsonb_build_object('run_id', run_id));
END
$$;
COMMENT ON FUNCTION easeml.cancel(bigint) IS 'Stops a run within a second. Recorded units stay, trials can still predict, and easeml.resume continues the run.';

CREATE FUNCTION easeml.resume(run_id bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('resume', jsonb_build_object('run_id', run_id));
END
$$;
COMMENT ON FUNCTION easeml.resume(bigint) IS 'Continues a cancelled or failed run from its last recorded units. It tries failed trials again and starts max_seconds anew.';

CREATE FUNCTION easeml.drop_run(run_id bigint, force boolean DEFAULT false) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('drop_run', jsonb_build_object('run_id', run_id, 'force', force));
END
$$;
COMMENT ON FUNCTION easeml.drop_run(bigint, boolean) IS
    'Removes a run with its trials, states and history. If the run is open, it cancels it first. Refuses if one of its trials answers for the dataset (easeml.serving), unless force => true; then the best of the others answers.';

-- With the rights of easeml_owner, behind easeml.requests, for a proven caller.

CREATE FUNCTION easeml.run_of(caller name, asker name, run_id bigint) RETURNS easeml.runs LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs := easeml.find_run(run_id);
BEGIN
    IF run.tenant <> asker AND NOT easeml.is_administrator(caller) THEN
        PERFORM easeml.fail_run(run_id);
    END IF;
    RETURN run;
END
$$;
COMMENT ON FUNCTION easeml.run_of(name, name, bigint) IS 'Returns the run of that number, or raises an error unless it is the tenant''s, or the caller an administrator (internal).';

CREATE FUNCTION easeml.note_run(run easeml.runs, kind text, caller name) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO easeml.events (tenant, run_id, kind, message) VALUES (run.tenant, run.run_id, note_run.kind, format('%s by %s', note_run.kind, caller));
    -- Cancelling and resuming in turn must not fill the disk.
    DELETE FROM easeml.events e WHERE e.run_id = run.run_id AND e.kind IN ('cancelled', 'resumed') AND e.event_id <= (
        SELECT o.event_id FROM easeml.events o WHERE o.run_id = run.run_id AND o.kind IN ('cancelled', 'resumed') ORDER BY o.event_id DESC OFFSET 200 LIMIT 1);
END
$$;
COMMENT ON FUNCTION easeml.note_run(easeml.runs, text, name) IS 'Tells the coordinator of a change to a run and writes it into the run''s history, which keeps the last 200 of them (internal).';

CREATE FUNCTION easeml.perform_cancel(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs := easeml.run_of(caller, asker, (arguments ->> 'run_id')::bigint);
BEGIN
    IF run.status NOT IN ('queued', 'running') THEN
        PERFORM easeml.fail('ML004', format('run %s is %s: only a queued or running run can be cancelled', run.run_id, run.status),
            hint => CASE run.status WHEN 'cancelled' THEN 'easeml.resume goes on with it, easeml.drop_run removes it.' ELSE 'There is nothing to stop; easeml.drop_run removes it.' END);
    END IF;
    UPDATE easeml.runs r SET status = 'cancelled', finished_at = clock_timestamp() WHERE r.run_id = run.run_id;
    UPDATE easeml.trials t SET status = 'cancelled' WHERE t.run_id = run.run_id AND t.status IN ('waiting', 'running', 'paused');
    PERFORM easeml.note_run(run, 'cancelled', caller);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_cancel(name, name, jsonb) IS 'Cancels a run for easeml.cancel (internal).';

CREATE FUNCTION easeml.perform_resume(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs := easeml.run_of(caller, asker, (arguments ->> 'run_id')::bigint);
BEGIN
    IF run.status NOT IN ('cancelled', 'failed') THEN
        PERFORM easeml.fail('ML004', format('run %s is %s: only a cancelled or failed run can be resumed', run.run_id, run.status),
            hint => CASE WHEN run.status IN ('queued', 'running') AND NOT easeml.has_live_coordinator()
                THEN 'It goes on by itself as soon as a coordinator runs: easeml up, or easeml coordinator --dsn ...'
                WHEN run.status = 'finished' THEN 'Start another with more time: easeml.select_models(dataset, max_seconds => 600).' ELSE 'It goes on by itself.' END);
    END IF;
    PERFORM easeml.check_run_limits(caller, run.tenant);
    UPDATE easeml.trials t SET status = CASE WHEN t.n_steps_done = 2 * t.target_epochs * d.n_partitions::bigint AND t.target_epochs < t.max_epochs THEN 'paused' ELSE 'waiting' END,
        failure_reason = NULL, finished_at = NULL
    FROM easeml.datasets d WHERE t.run_id = run.run_id AND t.status IN ('cancelled', 'failed') AND d.dataset_id = run.dataset_id;
    UPDATE easeml.runs r SET status = 'queued', n_resumes = r.n_resumes + 1, started_at = NULL, finished_at = NULL, failure_reason = NULL WHERE r.run_id = run.run_id;
    PERFORM easeml.note_run(run, 'resumed', caller);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_resume(name, name, jsonb) IS 'Continues a run for easeml.resume (internal).';

CREATE FUNCTION easeml.perform_drop_run(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs := easeml.run_of(caller, asker, (arguments ->> 'run_id')::bigint);
    name text := (SELECT d.dataset_name FROM easeml.datasets d WHERE d.dataset_id = run.dataset_id);
    answering record;
BEGIN
    PERFORM easeml.lock_serving(run.tenant, name);
    SELECT a.* INTO answering FROM easeml.answering a WHERE a.tenant = run.tenant AND a.dataset_name = name AND a.run_id = run.run_id;
    IF FOUND AND (arguments ->> 'force')::boolean IS NOT TRUE THEN
        PERFORM easeml.fail('ML004', format('run %s has trial %s, which answers for dataset %s', run.run_id, answering.trial_id, quote_literal(name)),
            hint => format('Deploy a trial of another run first, or drop it all the same: SELECT easeml.drop_run(%s, force => true).', run.run_id));
    END IF;
    IF run.status IN ('queued', 'running') THEN
        PERFORM easeml.perform_cancel(caller, asker, arguments);
    END IF;
    DELETE FROM easeml.runs r WHERE r.run_id = run.run_id;
    PERFORM easeml.note_serving(run.tenant, name, 'dropped');
    -- Without runs a dataset is as new: its next run says the metric, unless somebody has.
    DELETE FROM easeml.serving_metrics m WHERE m.tenant = run.tenant AND m.dataset_name = name AND NOT m.is_chosen
        AND NOT EXISTS (SELECT FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) WHERE d.tenant = m.tenant AND d.dataset_name = m.dataset_name);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_drop_run(name, name, jsonb) IS 'Removes a run for easeml.drop_run (internal).';

-- functions/wait.sql
-- Waiting for the end of a run.

CREATE PROCEDURE easeml.commit_first(message text, call text, INOUT failure jsonb) LANGUAGE plpython3u AS $$
from easeml_plpy.transactions import commit_first
return commit_first(plpy, GD, message, call, failure)
$$;
COMMENT ON PROCEDURE easeml.commit_first(text, text, jsonb) IS
    'Commits, or returns the error that a routine which commits was called inside a transaction (internal).';

CREATE PROCEDURE easeml.wait(run_id bigint, timeout_seconds double precision DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
    run easeml.runs;
    n_total bigint;
    n_done bigint;
    shown text;
    seen text;
    sentence text;
    started timestamptz := pg_catalog.clock_timestamp();
    failure jsonb;
BEGIN
    -- A procedure that commits can have no setting of its own, and a commit ends this one.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    run := easeml.find_run(run_id);
    IF NOT (timeout_seconds > 0 AND timeout_seconds < 'Infinity') THEN
        PERFORM easeml.fail('ML001', format('timeout_seconds: expected a positive number or NULL, got %s', timeout_seconds),
            hint => 'NULL, the default, waits for as long as it takes.');
    END IF;
    CALL easeml.commit_first('easeml.wait can never see progress inside an open transaction', 'CALL easeml.wait(run_id)', failure);
    PERFORM easeml.raise_failure(failure);
    LOOP
        COMMIT;
        PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
        SELECT r.* INTO run FROM easeml.runs r WHERE r.run_id = wait.run_id;
        IF NOT FOUND THEN
            PERFORM easeml.fail('ML003', format('run %s was dropped meanwhile', run_id));
        END IF;
        SELECT s.n_units_done, s.n_units INTO n_done, n_total FROM easeml.run_status s WHERE s.run_id = run.run_id;
        seen := format('run %s: %s, %s of %s units', run.run_id, run.status, n_done, n_total);
        IF seen <> shown OR shown IS NULL THEN
            RAISE NOTICE '%', seen;
            shown := seen;
        END IF;
        IF run.status = 'finished' THEN
            FOR sentence IN SELECT s FROM easeml.run_summary(run.run_id) s LOOP
                RAISE NOTICE '%', sentence;
            END LOOP;
        END IF;
        EXIT WHEN run.status IN ('finished', 'failed', 'cancelled');
        IF NOT easeml.has_live_coordinator() AND clock_timestamp() > started + interval '15 seconds' THEN
            PERFORM easeml.fail('ML010', format('no coordinator is running, so run %s cannot go on', run_id),
                hint => 'Start one from a shell: easeml up, or easeml coordinator --dsn ...; the run resumes by itself.');
        END IF;
        IF clock_timestamp() > started + timeout_seconds * interval '1 second' THEN
            PERFORM easeml.fail('ML010', format('run %s is still %s after %s seconds', run_id, run.status, timeout_seconds));
        END IF;
        COMMIT;  -- no snapshot is held while it sleeps
        PERFORM pg_catalog.pg_sleep(least(0.5, coalesce(timeout_seconds, 0.5)));
    END LOOP;
END
$$;
COMMENT ON PROCEDURE easeml.wait(bigint, double precision) IS
    'Blocks until a run has ended and shows its progress, and at the end its summary, as notices: CALL easeml.wait(1). It is a procedure, because a function would never see what others commit meanwhile. timeout_seconds: raise an error after that time.';

-- functions/units.sql
-- Units of work. The coordinator calls them, for each slot in a session of its own. They commit, so they are procedures.
-- A unit is {trial_id, step, kind, epoch, position, partition_number, seed, slot_id, lease_number, attempt}. One of a gang also has
-- gang {token, rank, timeout_seconds, members}; the rank that records it has gang {n_ranks, others}: the other ranks and their results.
-- A whole round is a gang with one rank: all members are on its slot, and what is recorded has n_ranks 1.
-- A batch is {batch: [unit, ...]}, units of several trials on one slot. Each is recorded with batch {rank, n_members}, and with
-- stack [width, place, steps] where it trained as one computation with others.

CREATE FUNCTION easeml.warm_up() RETURNS void LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.warming import warm_up
return warm_up(plpy, GD)
$$;
COMMENT ON FUNCTION easeml.warm_up() IS 'Imports what units need, when the session of a slot is opened (internal).';

CREATE PROCEDURE easeml.train_unit(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.training import train_unit
return train_unit(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.train_unit(jsonb, jsonb) IS
    'Trains a trial over one partition once, then records the new state, the unit and its loss in one short transaction. Refuses if the lease is stale or the step is already recorded.';

CREATE PROCEDURE easeml.evaluate_unit(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.evaluation import evaluate_unit
return evaluate_unit(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.evaluate_unit(jsonb, jsonb) IS
    'Measures a trial on the validation or test rows of one partition and records the sums; the last partition of a split also records the metrics.';

CREATE PROCEDURE easeml.train_round(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.rounds import train_round
return train_round(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.train_round(jsonb, jsonb) IS
    'Trains a trial over all partitions at once, as architectures do that want all rows, then records the new state and all units of the round in one short transaction.';

CREATE PROCEDURE easeml.evaluate_round(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.rounds import evaluate_round
return evaluate_round(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.evaluate_round(jsonb, jsonb) IS
    'Measures a trial on the validation or test rows of all partitions at once, and records the sums of each and the metrics.';

CREATE PROCEDURE easeml.train_batch(batch jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.batch import train_batch
return train_batch(plpy, GD, batch, result)
$$;
COMMENT ON PROCEDURE easeml.train_batch(jsonb, jsonb) IS
    'Trains several trials, each over one partition once, those of one shape as one computation where that is faster, and records all in one short transaction. Returns the errors of those that came to nothing.';

CREATE PROCEDURE easeml.evaluate_batch(batch jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.batch import evaluate_batch
return evaluate_batch(plpy, GD, batch, result)
$$;
COMMENT ON PROCEDURE easeml.evaluate_batch(jsonb, jsonb) IS
    'Measures several trials, each on the validation or test rows of one partition, and records all in one short transaction. Returns the errors of those that came to nothing.';

CREATE PROCEDURE easeml.train_gang(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.gang import train_gang
return train_gang(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.train_gang(jsonb, jsonb) IS
    'Trains a trial over several partitions at once, together with sessions of other slots that call it at the same time. The first of them records the new state and all units in one short transaction. As a pilot it times a few steps and records nothing.';

CREATE PROCEDURE easeml.evaluate_gang(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.gang import evaluate_gang
return evaluate_gang(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.evaluate_gang(jsonb, jsonb) IS
    'Measures a trial on several partitions at once, one on each slot that calls it at the same time. The first of them records the sums of all.';

CREATE PROCEDURE easeml.pilot_unit(unit jsonb, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.pilot import pilot_unit
return pilot_unit(plpy, GD, unit, result)
$$;
COMMENT ON PROCEDURE easeml.pilot_unit(jsonb, jsonb) IS
    'Times a few mini-batches of a fresh trial, discards them, and records how long the trial''s units are expected to take.';

-- functions/unit_progress.sql
-- Opening a unit, and counting it as done: each step refuses a unit that is no longer due. All run in the session of the slot.

CREATE FUNCTION easeml.open_unit(unit jsonb,
    OUT architecture text, OUT config jsonb, OUT max_epochs integer, OUT checkpoint_id bigint,
    OUT best_checkpoint_id bigint, OUT best_epoch integer, OUT best_metric_value double precision, OUT best_loss double precision,
    OUT metric text, OUT dataset_id bigint, OUT n_partitions integer, OUT train_rows bigint[],
    OUT device text, OUT n_threads integer, OUT memory_limit_bytes bigint, OUT started_at timestamptz
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    trial easeml.trials;
    rank integer := coalesce((unit #>> '{gang,rank}')::integer, 0);
    first_step integer := (unit ->> 'step')::integer - rank;
BEGIN
    -- What somebody's open transaction holds could not be recorded in the end: better to know before the work than after.
    -- Of a gang only the first rank asks, or the ranks would hold the row from one another.
    IF rank = 0 THEN
        SELECT t.* INTO trial FROM easeml.trials t WHERE t.trial_id = (unit ->> 'trial_id')::bigint FOR NO KEY UPDATE NOWAIT;
    ELSE
        SELECT t.* INTO trial FROM easeml.trials t WHERE t.trial_id = (unit ->> 'trial_id')::bigint;
    END IF;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', format('trial %s is gone', unit ->> 'trial_id'));
    ELSIF trial.n_steps_done <> first_step OR trial.status NOT IN ('waiting', 'running') THEN
        PERFORM easeml.fail('ML006', format('trial %s is %s with %s steps done: step %s is not due',
            trial.trial_id, trial.status, trial.n_steps_done, unit ->> 'step'));
    END IF;
    -- This transaction writes only what is displayed, and a crash may lose that: do not wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    started_at := clock_timestamp();
    -- Schedules span the epochs of the run, also where its end cut this trial short.
    SELECT trial.architecture, trial.config, r.max_epochs, trial.checkpoint_id, trial.best_checkpoint_id, trial.best_epoch,
        trial.best_metric_value, trial.best_loss, r.metric, d.dataset_id, d.n_partitions,
        (SELECT array_agg(p.n_train_rows ORDER BY p.partition_number) FROM easeml.partitions p WHERE p.dataset_id = d.dataset_id)
    INTO architecture, config, max_epochs, checkpoint_id, best_checkpoint_id, best_epoch, best_metric_value, best_loss, metric, dataset_id, n_partitions, train_rows
    FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) WHERE r.run_id = trial.run_id;
    IF trial.status = 'waiting' AND rank = 0 THEN
        UPDATE easeml.trials t SET status = 'running', started_at = coalesce(t.started_at, open_unit.started_at)
        WHERE t.trial_id = trial.trial_id AND t.status = 'waiting';
    END IF;
    UPDATE easeml.slots s SET trial_id = trial.trial_id, kind = unit ->> 'kind', epoch = (unit ->> 'epoch')::integer,
        partition_number = (unit ->> 'partition_number')::integer, unit_started_at = open_unit.started_at, backend_pid = pg_backend_pid()
    WHERE s.slot_id = (unit ->> 'slot_id')::integer
    RETURNING s.device, s.n_threads, s.memory_limit_bytes INTO device, n_threads, memory_limit_bytes;
END
$$;
COMMENT ON FUNCTION easeml.open_unit(jsonb) IS
    'Returns all that a unit needs to know and shows the unit in the row of its slot. Refuses if the trial''s next step is another one, or an open transaction holds the trial (internal).';

CREATE FUNCTION easeml.fence(unit jsonb) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    holder bigint;
BEGIN
    -- The lock delays a takeover until this transaction has ended.
    SELECT l.lease_number INTO holder FROM easeml.coordinator_lease l FOR SHARE;
    IF holder <> (unit ->> 'lease_number')::bigint THEN
        PERFORM easeml.fail('ML006', format('lease %s is over, %s holds: the unit is not recorded', unit ->> 'lease_number', holder));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.fence(jsonb) IS 'Refuses to record a unit whose coordinator no longer holds the lease (internal).';

CREATE FUNCTION easeml.leave_slot(unit jsonb) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE easeml.slots s SET unit_started_at = NULL, n_units_done = s.n_units_done + (unit ->> 'kind' <> 'pilot')::integer
    WHERE s.slot_id = (unit ->> 'slot_id')::integer AND s.backend_pid = coalesce((unit ->> 'backend_pid')::integer, pg_backend_pid()) AND s.status <> 'lost';
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML006', format('slot %s was given up or taken away meanwhile: step %s is not recorded', unit ->> 'slot_id', unit ->> 'step'));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.leave_slot(jsonb) IS
    'Clears the unit from the row of its slot. Refuses if the slot was given up, so that a stuck unit that wakes up records nothing (internal).';

CREATE FUNCTION easeml.advance(unit jsonb) RETURNS easeml.trials LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    trial easeml.trials;
    n_partitions bigint;
    others jsonb := coalesce(unit #> '{gang,others}', '[]');
    n_steps integer := 1 + jsonb_array_length(others);
BEGIN
    SELECT d.n_partitions INTO n_partitions
    FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id) WHERE t.trial_id = (unit ->> 'trial_id')::bigint;
    UPDATE easeml.trials t SET n_steps_done = t.n_steps_done + n_steps,
        status = CASE WHEN t.n_steps_done + n_steps = (2 * t.max_epochs + 1) * n_partitions THEN 'finished'
            WHEN t.n_steps_done + n_steps = 2 * t.target_epochs * n_partitions AND t.target_epochs < t.max_epochs THEN 'paused' ELSE t.status END,
        finished_at = CASE WHEN t.n_steps_done + n_steps = (2 * t.max_epochs + 1) * n_partitions THEN clock_timestamp() END
    WHERE t.trial_id = (unit ->> 'trial_id')::bigint AND t.n_steps_done = (unit ->> 'step')::integer AND t.status = 'running'
    RETURNING t.* INTO trial;
    IF trial.trial_id IS NULL THEN
        PERFORM easeml.fail('ML006', format('trial %s was stopped or moved on meanwhile: step %s is not recorded', unit ->> 'trial_id', unit ->> 'step'));
    END IF;
    PERFORM easeml.leave_slot(unit);
    PERFORM easeml.leave_slot(unit || other) FROM jsonb_array_elements(others) other WHERE other -> 'slot_id' <> unit -> 'slot_id';
    RETURN trial;
END
$$;
COMMENT ON FUNCTION easeml.advance(jsonb) IS
    'Counts the step of a trial, or the steps of a gang, and clears the rows of their slots; pauses a trial that reached its target. Refuses if the trial has moved on (internal).';

-- functions/unit_records.sql
-- What a unit records in its final transaction: the new state, the unit itself, its metrics.

CREATE FUNCTION easeml.store_chunked(unit jsonb, n_bytes bigint, sha256 text) RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO easeml.checkpoints (trial_id, tenant, epoch, n_bytes, sha256)
    SELECT t.trial_id, t.tenant, (unit ->> 'epoch')::integer, n_bytes, sha256 FROM easeml.trials t WHERE t.trial_id = (unit ->> 'trial_id')::bigint
    RETURNING checkpoint_id
$$;
COMMENT ON FUNCTION easeml.store_chunked(jsonb, bigint, text) IS
    'Inserts the row of a large state, whose chunks follow in the same transaction before easeml.record_training; returns NULL if the trial is gone (internal).';

CREATE FUNCTION easeml.store_chunk(checkpoint_id bigint, chunk_number integer, bytes bytea) RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO easeml.checkpoint_chunks (checkpoint_id, tenant, chunk_number, bytes)
    SELECT c.checkpoint_id, c.tenant, store_chunk.chunk_number, store_chunk.bytes FROM easeml.checkpoints c WHERE c.checkpoint_id = store_chunk.checkpoint_id
$$;
COMMENT ON FUNCTION easeml.store_chunk(bigint, integer, bytea) IS 'Adds a chunk to a large state (internal).';

CREATE FUNCTION easeml.share_of_time(unit jsonb, rank integer, INOUT started_at timestamptz, INOUT finished_at timestamptz) LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n_units integer := CASE WHEN (unit #>> '{gang,n_ranks}')::integer = 1 THEN 1 + jsonb_array_length(unit #> '{gang,others}')
        ELSE coalesce((unit #>> '{batch,n_members}')::integer, 1) END;
    place integer := coalesce((unit #>> '{batch,rank}')::integer, rank);
    seconds interval := (finished_at - started_at) / n_units;
BEGIN
    IF n_units > 1 THEN
        finished_at := CASE place WHEN n_units - 1 THEN finished_at ELSE started_at + (place + 1) * seconds END;
        started_at := started_at + place * seconds;
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.share_of_time(jsonb, integer, timestamptz, timestamptz) IS
    'Returns the times of a unit: of a whole round, or a batch, on one slot each unit has an equal share, one after the other, so that the time of a slot is counted once (internal).';

CREATE FUNCTION easeml.record_training(
    unit jsonb, started_at timestamptz, training_seconds double precision, n_rows bigint, loss double precision, read_bytes bigint,
    sha256 text, state bytea, chunked_checkpoint_id bigint DEFAULT NULL, OUT new_checkpoint_id bigint, OUT pruned_bytes bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    trial easeml.trials;
    state_bytes bigint;
    finished timestamptz;
BEGIN
    PERFORM easeml.fence(unit);
    trial := easeml.advance(unit);
    IF chunked_checkpoint_id IS NULL THEN
        INSERT INTO easeml.checkpoints (trial_id, tenant, epoch, n_bytes, sha256, state)
        VALUES (trial.trial_id, trial.tenant, (unit ->> 'epoch')::integer, length(state), sha256, state)
        RETURNING checkpoint_id, n_bytes INTO new_checkpoint_id, state_bytes;
    ELSE
        SELECT c.checkpoint_id, c.n_bytes INTO STRICT new_checkpoint_id, state_bytes
        FROM easeml.checkpoints c WHERE c.checkpoint_id = chunked_checkpoint_id AND c.trial_id = trial.trial_id;
    END IF;
    finished := clock_timestamp();
    -- The unit of this rank, which alone counts the bytes of the state, then those of the other ranks of its gang.
    INSERT INTO easeml.training_units (trial_id, run_id, tenant, epoch, position, partition_number, slot_id, attempt, seed, lease_number,
        started_at, finished_at, training_seconds, n_rows, loss, from_checkpoint_id, checkpoint_id, state_bytes, state_sha256, read_bytes, n_slots, stack)
    SELECT trial.trial_id, trial.run_id, trial.tenant, g.epoch, u.position, u.partition_number, u.slot_id, g.attempt, u.seed, g.lease_number,
        (easeml.share_of_time(unit, u.rank, record_training.started_at, finished)).*, u.training_seconds, u.n_rows, u.loss, trial.checkpoint_id, new_checkpoint_id, u.state_bytes,
        record_training.sha256, u.read_bytes, coalesce((unit #>> '{gang,n_ranks}')::integer, 1),
        (SELECT array_agg(k.value::integer ORDER BY k.ordinality) FROM jsonb_array_elements_text(unit -> 'stack') WITH ORDINALITY k)
    FROM jsonb_to_record(unit) g(epoch integer, attempt integer, lease_number bigint) CROSS JOIN (
        SELECT 0 AS rank, f.position, f.partition_number, f.slot_id, f.seed, record_training.training_seconds, record_training.n_rows, record_training.loss,
            record_training.read_bytes, state_bytes
        FROM jsonb_to_record(unit) f(position integer, partition_number integer, slot_id integer, seed bigint)
        UNION ALL
        SELECT o.position - (unit ->> 'position')::integer, o.position, o.partition_number, o.slot_id, o.seed, o.training_seconds, o.n_rows, o.loss, o.read_bytes, 0
        FROM jsonb_to_recordset(unit #> '{gang,others}') o(position integer, partition_number integer, slot_id integer, seed bigint,
            training_seconds double precision, n_rows bigint, loss double precision, read_bytes bigint)) u;
    UPDATE easeml.trials t SET checkpoint_id = new_checkpoint_id WHERE t.trial_id = trial.trial_id;
    -- Keep, of each trial, the newest state and that of its best epoch.
    DELETE FROM easeml.checkpoints c WHERE c.checkpoint_id = trial.checkpoint_id AND c.checkpoint_id IS DISTINCT FROM trial.best_checkpoint_id
    RETURNING c.n_bytes INTO pruned_bytes;
END
$$;
COMMENT ON FUNCTION easeml.record_training(jsonb, timestamptz, double precision, bigint, double precision, bigint, text, bytea, bigint) IS
    'Records a training unit, or all units of a gang: checks the lease, counts the steps, stores the new state unless it lies in chunks already, writes the visit log and prunes the old state. Returns the new checkpoint and the bytes that it pruned (internal).';

CREATE FUNCTION easeml.record_evaluation(unit jsonb, started_at timestamptz, epoch integer, split text, statistics jsonb, read_bytes bigint) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    trial easeml.trials;
    all_statistics jsonb;
    n_partitions integer;
    finished timestamptz;
BEGIN
    PERFORM easeml.fence(unit);
    trial := easeml.advance(unit);
    finished := clock_timestamp();
    INSERT INTO easeml.evaluations (trial_id, run_id, tenant, epoch, split, partition_number, slot_id, attempt, lease_number, started_at, finished_at, statistics, read_bytes, n_slots)
    SELECT trial.trial_id, trial.run_id, trial.tenant, record_evaluation.epoch, record_evaluation.split, u.partition_number, u.slot_id, g.attempt, g.lease_number,
        (easeml.share_of_time(unit, u.rank, record_evaluation.started_at, finished)).*, u.statistics, u.read_bytes, coalesce((unit #>> '{gang,n_ranks}')::integer, 1)
    FROM jsonb_to_record(unit) g(attempt integer, lease_number bigint) CROSS JOIN (
        SELECT 0 AS rank, f.partition_number, f.slot_id, record_evaluation.statistics, record_evaluation.read_bytes
        FROM jsonb_to_record(unit) f(partition_number integer, slot_id integer)
        UNION ALL
        SELECT o.position - (unit ->> 'position')::integer, o.partition_number, o.slot_id, o.statistics, o.read_bytes
        FROM jsonb_to_recordset(unit #> '{gang,others}') o(position integer, partition_number integer, slot_id integer, statistics jsonb, read_bytes bigint)) u;
    SELECT d.n_partitions INTO n_partitions FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) WHERE r.run_id = trial.run_id;
    SELECT CASE WHEN count(*) = n_partitions THEN jsonb_agg(e.statistics ORDER BY e.partition_number) END INTO all_statistics
    FROM easeml.evaluations e WHERE e.trial_id = trial.trial_id AND e.epoch = record_evaluation.epoch AND e.split = record_evaluation.split;
    RETURN all_statistics;
END
$$;
COMMENT ON FUNCTION easeml.record_evaluation(jsonb, timestamptz, integer, text, jsonb, bigint) IS
    'Records an evaluation unit, or all units of a gang; returns the statistics of all partitions once the split is complete, else NULL (internal).';

CREATE FUNCTION easeml.record_metrics(unit jsonb, epoch integer, split text, n_rows bigint, metrics jsonb, new_best_checkpoint_id bigint) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    trial easeml.trials;
    pruned_bytes bigint;
    metric_value double precision;
BEGIN
    SELECT t.* INTO trial FROM easeml.trials t WHERE t.trial_id = (unit ->> 'trial_id')::bigint;
    SELECT (metrics ->> r.metric)::double precision INTO metric_value FROM easeml.runs r WHERE r.run_id = trial.run_id;
    INSERT INTO easeml.epoch_metrics (trial_id, run_id, tenant, epoch, split, n_rows, metric_value, accuracy, balanced_accuracy, macro_f1, log_loss, rmse, mae, r2, n_classes, metric_error)
    SELECT trial.trial_id, trial.run_id, trial.tenant, record_metrics.epoch, record_metrics.split, record_metrics.n_rows, metric_value,
        m.accuracy, m.balanced_accuracy, m.macro_f1, m.log_loss, m.rmse, m.mae, m.r2, m.n_classes, m.metric_error
    FROM jsonb_to_record(metrics) m(accuracy double precision, balanced_accuracy double precision, macro_f1 double precision, log_loss double precision,
        rmse double precision, mae double precision, r2 double precision, n_classes integer, metric_error double precision);
    IF new_best_checkpoint_id IS NOT NULL THEN
        UPDATE easeml.trials t SET best_epoch = record_metrics.epoch, best_metric_value = metric_value, best_checkpoint_id = new_best_checkpoint_id,
            best_loss = coalesce(metrics ->> 'log_loss', metrics ->> 'rmse')::double precision
        WHERE t.trial_id = trial.trial_id;
        DELETE FROM easeml.checkpoints c WHERE c.checkpoint_id = trial.best_checkpoint_id AND c.checkpoint_id <> new_best_checkpoint_id
        RETURNING c.n_bytes INTO pruned_bytes;
        PERFORM easeml.note_takeover(trial.trial_id);
    END IF;
    RETURN pruned_bytes;
END
$$;
COMMENT ON FUNCTION easeml.record_metrics(jsonb, integer, text, bigint, jsonb, bigint) IS
    'Records the metrics of a complete split and, if the epoch is the trial''s best, its state; returns the bytes of the former best state, which it prunes (internal).';

CREATE FUNCTION easeml.record_pilot(unit jsonb, train_seconds double precision, evaluate_seconds double precision) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fence(unit);
    PERFORM easeml.leave_slot(unit);
    UPDATE easeml.trials t SET pilot_train_seconds = record_pilot.train_seconds, pilot_evaluate_seconds = record_pilot.evaluate_seconds
    WHERE t.trial_id = (unit ->> 'trial_id')::bigint;
END
$$;
COMMENT ON FUNCTION easeml.record_pilot(jsonb, double precision, double precision) IS 'Records how long the units of a trial are expected to take (internal).';

-- functions/searches.sql
-- The coordinator calls this with what a procedure decided about the trials of an arm.
-- A decision is {kind: start, trial_number, architecture, config, target_epochs, bracket, parent, inherited_epochs}, {kind: continue, trial_number, target_epochs}
-- or {kind: stop, trial_number}; parent and trial_number are numbers within the run.

CREATE FUNCTION easeml.copy_state(from_trial easeml.trials, to_trial_id bigint) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    copied_id bigint;
BEGIN
    INSERT INTO easeml.checkpoints (trial_id, tenant, epoch, n_bytes, sha256, state)
    SELECT to_trial_id, c.tenant, c.epoch, c.n_bytes, c.sha256, c.state FROM easeml.checkpoints c
    WHERE c.checkpoint_id = from_trial.checkpoint_id AND c.trial_id = from_trial.trial_id
    RETURNING checkpoint_id INTO copied_id;
    INSERT INTO easeml.checkpoint_chunks (checkpoint_id, tenant, chunk_number, bytes)
    SELECT copied_id, h.tenant, h.chunk_number, h.bytes FROM easeml.checkpoint_chunks h WHERE h.checkpoint_id = from_trial.checkpoint_id AND copied_id IS NOT NULL;
    RETURN copied_id;
END
$$;
COMMENT ON FUNCTION easeml.copy_state(easeml.trials, bigint) IS
    'Gives a trial a copy of another trial''s newest state; returns the new checkpoint, or NULL if there is no state (internal).';

CREATE FUNCTION easeml.apply_decisions(arm_id bigint, decisions jsonb, lease_number bigint) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    arm easeml.arms;
    run easeml.runs;
    parent easeml.trials;
    decision record;
    new_trial_id bigint;
    n_held bigint;
    n_partitions bigint;
    bytes bigint;
    pruned_bytes bigint := 0;
BEGIN
    PERFORM easeml.fence(jsonb_build_object('lease_number', lease_number));
    SELECT a.* INTO arm FROM easeml.arms a JOIN easeml.runs r USING (run_id)
    WHERE a.arm_id = apply_decisions.arm_id AND r.status IN ('queued', 'running') FOR SHARE OF a, r SKIP LOCKED;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', format('arm %s is gone, its run is over, or somebody is at it', arm_id));
    END IF;
    -- The coordinator waits for no tenant that locks its trials: it decides about them later. No unit runs on a paused trial.
    SELECT count(*) INTO n_held FROM easeml.trials t WHERE t.arm_id = arm.arm_id AND t.status = 'paused'
        AND t.trial_number IN (SELECT d.number FROM jsonb_to_recordset(decisions) j(trial_number integer, parent integer) CROSS JOIN LATERAL (VALUES (j.trial_number), (j.parent)) d(number))
        AND t.trial_id NOT IN (SELECT w.trial_id FROM easeml.trials w WHERE w.arm_id = arm.arm_id AND w.status = 'paused' FOR NO KEY UPDATE SKIP LOCKED);
    IF n_held > 0 THEN
        PERFORM easeml.fail('ML003', format('somebody is at %s trial(s) of arm %s', n_held, arm_id));
    END IF;
    SELECT r.* INTO run FROM easeml.runs r WHERE r.run_id = arm.run_id;
    SELECT d.n_partitions INTO n_partitions FROM easeml.datasets d WHERE d.dataset_id = run.dataset_id;
    FOR decision IN
        SELECT * FROM ROWS FROM (jsonb_to_recordset(decisions) AS (kind text, trial_number integer, architecture text, config jsonb, target_epochs integer,
            bracket integer, parent integer, inherited_epochs integer)) WITH ORDINALITY d ORDER BY d.ordinality
    LOOP
        IF decision.kind = 'start' THEN
            parent := NULL;
            IF decision.parent IS NOT NULL THEN
                SELECT t.* INTO parent FROM easeml.trials t WHERE t.run_id = run.run_id AND t.trial_number = decision.parent
                    AND t.status = 'paused' AND t.n_steps_done = 2 * decision.inherited_epochs * n_partitions;
                IF NOT FOUND THEN
                    PERFORM easeml.fail('ML006', format('trial %s of run %s went on meanwhile and cannot be copied', decision.parent, run.run_id));
                END IF;
            END IF;
            INSERT INTO easeml.trials (run_id, arm_id, tenant, trial_number, architecture, config, max_epochs, target_epochs, bracket, parent_trial_id, inherited_epochs, n_steps_done)
            VALUES (run.run_id, arm.arm_id, arm.tenant, decision.trial_number, decision.architecture, decision.config, run.max_epochs, decision.target_epochs, coalesce(decision.bracket, 0),
                parent.trial_id, coalesce(decision.inherited_epochs, 0), 2 * coalesce(decision.inherited_epochs, 0) * n_partitions)
            ON CONFLICT DO NOTHING RETURNING trial_id INTO new_trial_id;
            IF new_trial_id IS NULL THEN
                PERFORM easeml.fail('ML006', format('trial %s of run %s was started meanwhile', decision.trial_number, run.run_id));
            ELSIF parent.trial_id IS NOT NULL THEN
                UPDATE easeml.trials t SET checkpoint_id = easeml.copy_state(parent, new_trial_id) WHERE t.trial_id = new_trial_id;
            END IF;
        ELSIF decision.kind = 'continue' THEN
            UPDATE easeml.trials t SET status = 'waiting', target_epochs = decision.target_epochs
            WHERE t.arm_id = arm.arm_id AND t.trial_number = decision.trial_number AND t.status = 'paused' AND t.target_epochs < decision.target_epochs;
            IF NOT FOUND THEN
                PERFORM easeml.fail('ML006', format('trial %s of run %s does not wait to go on', decision.trial_number, run.run_id));
            END IF;
        ELSE
            -- A stopped trial never trains again, so only the state of its best epoch is kept.
            WITH stopped AS (
                UPDATE easeml.trials t SET status = 'stopped', finished_at = clock_timestamp(), checkpoint_id = t.best_checkpoint_id
                FROM easeml.trials before WHERE before.trial_id = t.trial_id AND t.arm_id = arm.arm_id AND t.trial_number = decision.trial_number AND t.status = 'paused'
                RETURNING before.checkpoint_id, t.best_checkpoint_id
            ), pruned AS (
                DELETE FROM easeml.checkpoints c USING stopped s WHERE c.checkpoint_id = s.checkpoint_id AND c.checkpoint_id IS DISTINCT FROM s.best_checkpoint_id
                RETURNING c.n_bytes
            )
            SELECT p.n_bytes INTO bytes FROM stopped LEFT JOIN pruned p ON true;
            IF NOT FOUND THEN
                PERFORM easeml.fail('ML006', format('trial %s of run %s does not wait to be stopped', decision.trial_number, run.run_id));
            END IF;
            pruned_bytes := pruned_bytes + coalesce(bytes, 0);
        END IF;
    END LOOP;
    RETURN pruned_bytes;
END
$$;
COMMENT ON FUNCTION easeml.apply_decisions(bigint, jsonb, bigint) IS
    'Starts, continues and stops trials of an arm as its procedure decided, all or none. Refuses if the lease is stale or a trial has moved on since the decision. Returns the bytes of the states that it pruned (internal).';

-- functions/run_ending.sql
-- The end of a run's search: whatever stopped the best trial, it is tested.

CREATE FUNCTION easeml.add_ensemble(run easeml.runs) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ensemble_arm_id bigint;
BEGIN
    IF run.procedure <> 'race' OR run.procedure_options ->> 'ensemble' = 'false'
        OR (SELECT count(*) < 2 FROM easeml.trials t WHERE t.run_id = run.run_id AND t.best_metric_value IS NOT NULL)
        OR EXISTS (SELECT FROM easeml.datasets d WHERE d.dataset_id = run.dataset_id AND d.placement = 'bound'
            AND NOT EXISTS (SELECT FROM easeml.replicas c WHERE c.dataset_id = d.dataset_id GROUP BY c.segment_id HAVING count(*) = d.n_partitions)) THEN
        RETURN false;
    END IF;
    INSERT INTO easeml.arms (run_id, tenant, architecture) VALUES (run.run_id, run.tenant, 'ensemble') RETURNING arm_id INTO ensemble_arm_id;
    INSERT INTO easeml.trials (run_id, arm_id, tenant, trial_number, architecture, config, max_epochs)
    SELECT run.run_id, ensemble_arm_id, run.tenant, max(t.trial_number) + 1, 'ensemble', '{}', 1 FROM easeml.trials t WHERE t.run_id = run.run_id;
    RETURN true;
END
$$;
COMMENT ON FUNCTION easeml.add_ensemble(easeml.runs) IS
    'Adds a trial to a race that ends: the ensemble of its best trials, unless that is not wanted, or no slot has all partitions. Returns whether it did (internal).';

CREATE FUNCTION easeml.begin_ending(run_id bigint, lease_number bigint) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs;
    best easeml.trials;
    n_partitions bigint;
    is_untested boolean;
BEGIN
    IF lease_number IS DISTINCT FROM (SELECT l.lease_number FROM easeml.coordinator_lease l) THEN
        RETURN false;
    END IF;
    SELECT r.* INTO run FROM easeml.runs r WHERE r.run_id = begin_ending.run_id AND r.status IN ('queued', 'running') AND NOT r.is_ending FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT d.n_partitions INTO n_partitions FROM easeml.datasets d WHERE d.dataset_id = run.dataset_id;
    SELECT t.* INTO best FROM easeml.trials t WHERE t.run_id = run.run_id AND t.best_metric_value IS NOT NULL
    ORDER BY CASE WHEN run.is_higher_better THEN -t.best_metric_value ELSE t.best_metric_value END, t.best_loss, t.trial_number LIMIT 1;
    is_untested := FOUND AND best.status IN ('waiting', 'running', 'paused', 'stopped');
    IF NOT FOUND OR NOT (easeml.add_ensemble(run) OR is_untested) THEN
        RETURN false;
    END IF;
    UPDATE easeml.runs r SET is_ending = true WHERE r.run_id = run.run_id;
    UPDATE easeml.trials t SET status = 'stopped', finished_at = clock_timestamp(), failure_reason = 'the run ended before this trial'
    WHERE t.run_id = run.run_id AND t.trial_id <> best.trial_id AND t.architecture <> 'ensemble' AND t.status IN ('waiting', 'running', 'paused');
    IF NOT is_untested THEN
        RETURN true;
    END IF;
    -- Its life ends after the epochs that it has; units of an epoch that is not complete stay in the log. The test takes the state of its best epoch.
    UPDATE easeml.trials t SET status = CASE best.status WHEN 'running' THEN 'running' ELSE 'waiting' END, finished_at = NULL, failure_reason = NULL, target_epochs = NULL, checkpoint_id = best.best_checkpoint_id,
        max_epochs = best.n_steps_done / (2 * n_partitions), n_steps_done = best.n_steps_done / (2 * n_partitions) * 2 * n_partitions
    WHERE t.trial_id = best.trial_id;
    DELETE FROM easeml.checkpoints c WHERE c.checkpoint_id = best.checkpoint_id AND c.checkpoint_id <> best.best_checkpoint_id;
    RETURN true;
END
$$;
COMMENT ON FUNCTION easeml.begin_ending(bigint, bigint) IS
    'Ends the search of a run: stops its trials, cuts the life of the best one so that only its test is left, unless it has had it, and adds an ensemble to a race. Returns whether there is something left to do (internal).';

CREATE FUNCTION easeml.drop_vain_ensemble(run_id bigint, lease_number bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM easeml.arms a USING easeml.runs r
    WHERE r.run_id = drop_vain_ensemble.run_id AND a.run_id = r.run_id AND a.architecture = 'ensemble'
        AND drop_vain_ensemble.lease_number = (SELECT l.lease_number FROM easeml.coordinator_lease l)
        AND r.run_id = (SELECT w.run_id FROM easeml.runs w WHERE w.run_id = r.run_id AND w.status = 'running' FOR NO KEY UPDATE SKIP LOCKED)
        AND EXISTS (SELECT FROM easeml.trials e WHERE e.arm_id = a.arm_id AND e.best_metric_value IS NOT NULL
            AND NOT EXISTS (SELECT FROM easeml.deployments p WHERE p.trial_id = e.trial_id) FOR UPDATE SKIP LOCKED)
        -- A member that was trained again is worth more than its validation metric says.
        AND NOT EXISTS (SELECT FROM easeml.trials e WHERE e.arm_id = a.arm_id AND NOT EXISTS (
            SELECT FROM easeml.trials t WHERE t.run_id = r.run_id AND t.trial_id <> e.trial_id
                AND CASE WHEN t.best_metric_value = e.best_metric_value THEN NOT jsonb_path_exists(e.config, '$.members[*].refit_epochs') AND (e.best_loss IS NULL OR t.best_loss <= e.best_loss)
                    ELSE r.is_higher_better = (t.best_metric_value > e.best_metric_value) END));
END
$$;
COMMENT ON FUNCTION easeml.drop_vain_ensemble(bigint, bigint) IS 'Removes the ensemble of a run that ends if a single trial is as good on the validation rows, unless it is deployed, or being so (internal).';

-- functions/serving.sql
-- Which trial answers a prediction, and for whom. Only easeml.open_serving calls these: they trust the name of the asking role.

CREATE FUNCTION easeml.usable_dataset(asker name, dataset text, trial_id bigint, OUT tenant name, OUT dataset_name text, OUT serving_only boolean, OUT passed_over text[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    dot integer := strpos(dataset, '.');
    prefix text := left(dataset, dot - 1);
    rest text := substr(dataset, dot + 1);
    account regrole := quote_ident(asker)::regrole;
    own name;
    is_own boolean;
    is_owned boolean;
    known text[];
BEGIN
    SELECT r.tenant, EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = r.tenant AND d.dataset_name = dataset) INTO own, is_own
    FROM easeml.tenant_roles r WHERE r.role = account;
    -- What others grant comes after what is one's own and what is named in full: no grant changes what those mean.
    IF is_own THEN
        tenant := own;
        dataset_name := dataset;
    ELSIF dot > 1 AND prefix = own AND EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = own AND d.dataset_name = rest) THEN
        tenant := own;
        dataset_name := rest;
    ELSE
        IF dot > 1 AND octet_length(prefix) < 64 THEN
            SELECT g.tenant, g.dataset_name, g.serving_only INTO tenant, dataset_name, serving_only FROM easeml.dataset_grants g
            WHERE g.tenant = prefix::name AND g.dataset_name = rest AND g.grantee = account;
        END IF;
        IF tenant IS NULL THEN
            -- The oldest grant answers, so that a later one of somebody else stops no call that works. A name that begins with a
            -- tenant's means no dataset of others, also when that tenant's is gone.
            is_owned := dot > 1 AND (EXISTS (SELECT FROM easeml.tenant_roles r WHERE r.tenant::text = prefix) OR EXISTS (SELECT FROM pg_roles r WHERE r.rolname::text = prefix));
            SELECT (array_agg(g.tenant ORDER BY g.granted_at, g.tenant))[1], dataset, (array_agg(g.serving_only ORDER BY g.granted_at, g.tenant))[1],
                (array_agg(g.tenant || '.' || dataset ORDER BY g.granted_at, g.tenant))[2:]
            INTO tenant, dataset_name, serving_only, passed_over
            FROM easeml.dataset_grants g WHERE g.grantee = account AND g.dataset_name = dataset AND g.granted_at IS NOT NULL AND (NOT is_owned OR g.tenant::text = prefix)
                AND (trial_id IS NULL OR EXISTS (SELECT FROM easeml.trials t WHERE t.trial_id = usable_dataset.trial_id AND t.tenant = g.tenant));
        END IF;
    END IF;
    IF tenant IS NULL THEN
        SELECT array_agg(DISTINCT u.name) INTO known FROM (
            SELECT d.dataset_name AS name FROM easeml.datasets d WHERE d.tenant = own
            UNION ALL SELECT g.tenant || '.' || g.dataset_name FROM easeml.dataset_grants g WHERE g.grantee = account) u;
        PERFORM easeml.fail('ML003', format('there is no dataset %s that role %s may use', quote_nullable(dataset), quote_ident(asker)),
            hint => concat_ws(' ', easeml.near_names(dataset, known), 'The tenant of another one can allow it: SELECT easeml.grant_use(dataset, role).'));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.usable_dataset(name, text, bigint) IS
    'Says which dataset a name means for a role: its own, else tenant.dataset, else the oldest grant of that name; passed_over lists younger grants of that name (internal).';

CREATE FUNCTION easeml.answering_trial(tenant name, dataset_name text, OUT trial_id bigint, OUT dataset_id bigint, OUT checkpoint_id bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT a.trial_id, a.dataset_id, a.checkpoint_id INTO trial_id, dataset_id, checkpoint_id
    FROM easeml.answering a WHERE a.tenant = answering_trial.tenant AND a.dataset_name = answering_trial.dataset_name;
END
$$;
COMMENT ON FUNCTION easeml.answering_trial(name, text) IS
    'Returns the trial that answers for a dataset unless another is named, with its version and its state, by the rule of the view easeml.answering (internal).';

CREATE FUNCTION easeml.fail_unanswered(tenant name, dataset_name text, asked text) RETURNS void LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    other_metric text := (SELECT a.metric FROM easeml.answering a WHERE a.tenant = fail_unanswered.tenant AND a.dataset_name = fail_unanswered.dataset_name AND EXISTS (
        SELECT FROM easeml.datasets d JOIN easeml.runs r USING (dataset_id) JOIN easeml.trials t USING (run_id)
        WHERE d.tenant = a.tenant AND d.dataset_name = a.dataset_name AND t.best_checkpoint_id IS NOT NULL));
BEGIN
    IF other_metric IS NULL THEN
        PERFORM easeml.fail('ML010', format('dataset %s has no trained trial yet', quote_literal(asked)),
            hint => format('Start one with SELECT easeml.select_models(%s), or wait for the first epoch to be measured.', quote_literal(asked)));
    END IF;
    PERFORM easeml.fail('ML010', format('dataset %s has no trained trial of a run that ranks by %s, its metric', quote_literal(asked), other_metric),
        hint => format('Wait for such a run, let a trial of another answer with easeml.deploy(trial_id), or choose another metric: easeml.set_serving_metric(%s, metric).', quote_literal(asked)));
END
$$;
COMMENT ON FUNCTION easeml.fail_unanswered(name, text, text) IS 'Says why no trial answers for a dataset (internal).';

CREATE FUNCTION easeml.serving_trial(asker name, dataset text, trial_id bigint, OUT tenant name, OUT dataset_name text, OUT dataset_id bigint,
    OUT serving_trial_id bigint, OUT checkpoint_id bigint, OUT passed_over text[], OUT is_audited boolean)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    usable record := easeml.usable_dataset(asker, dataset, trial_id);
    answering record;
BEGIN
    tenant := usable.tenant;
    dataset_name := usable.dataset_name;
    passed_over := usable.passed_over;
    IF trial_id IS NULL OR usable.serving_only THEN
        answering := easeml.answering_trial(tenant, dataset_name);
        dataset_id := answering.dataset_id;
        serving_trial_id := answering.trial_id;
        checkpoint_id := answering.checkpoint_id;
        IF trial_id IS NOT NULL AND trial_id IS DISTINCT FROM serving_trial_id THEN
            PERFORM easeml.fail('ML004', format('role %s may use only the trial that answers for dataset %s', quote_ident(asker), quote_literal(dataset)),
                hint => 'Leave the trial out.');
        END IF;
    ELSE
        SELECT r.dataset_id, t.trial_id, t.best_checkpoint_id INTO dataset_id, serving_trial_id, checkpoint_id
        FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
        WHERE t.trial_id = serving_trial.trial_id AND d.tenant = serving_trial.tenant AND d.dataset_name = serving_trial.dataset_name;
        IF serving_trial_id IS NULL THEN
            PERFORM easeml.fail('ML003', format('dataset %s has no trial %s', quote_literal(dataset), trial_id),
            hint => 'SELECT trial_id FROM easeml.leaderboard lists them; without a trial the one that serves answers.');
        END IF;
    END IF;
    IF checkpoint_id IS NULL THEN
        PERFORM easeml.fail_unanswered(tenant, dataset_name, dataset);
    END IF;
    is_audited := EXISTS (SELECT FROM easeml.prediction_audits a WHERE a.tenant = serving_trial.tenant AND a.dataset_name = serving_trial.dataset_name);
END
$$;
COMMENT ON FUNCTION easeml.serving_trial(name, text, bigint) IS
    'Finds the trial that answers a role for a dataset: the one named, else the one that easeml.serving shows. Refuses roles to which the tenant has not granted use (internal).';

-- The role waits for nobody: what another session of it holds locked is not counted. Nor does its time zone choose the day.
CREATE FUNCTION easeml.log_prediction(tenant name, dataset_name text, asker name, trial_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' SET timezone = 'UTC' AS $$
DECLARE
    is_new boolean;
BEGIN
    IF current_setting('transaction_read_only')::boolean THEN
        RETURN;
    END IF;
    INSERT INTO easeml.prediction_log AS l (tenant, dataset_name, day, asker, trial_id)
    VALUES (log_prediction.tenant, log_prediction.dataset_name, current_date, log_prediction.asker, log_prediction.trial_id)
    ON CONFLICT ON CONSTRAINT prediction_log_pkey DO UPDATE SET n_statements = l.n_statements + 1, last_at = now()
    RETURNING l.n_statements = 1 INTO is_new;
    IF is_new THEN
        DELETE FROM easeml.prediction_log l
        WHERE l.tenant = log_prediction.tenant AND l.dataset_name = log_prediction.dataset_name AND l.day < current_date - 90;
    END IF;
EXCEPTION WHEN lock_not_available OR serialization_failure THEN
    RETURN;
END
$$;
COMMENT ON FUNCTION easeml.log_prediction(name, text, name, bigint) IS 'Counts a statement that predicted; a read-only transaction leaves no row (internal).';

CREATE FUNCTION easeml.set_prediction_audit(dataset text, is_on boolean) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('set_prediction_audit', jsonb_build_object('dataset', dataset, 'is_on', is_on));
END
$$;
COMMENT ON FUNCTION easeml.set_prediction_audit(text, boolean) IS
    'Says whether easeml.prediction_log counts who predicts with a dataset of yours: by day, role and trial, the statements that committed. Off by default; rows are kept for 90 days.';

CREATE FUNCTION easeml.perform_set_prediction_audit(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := easeml.dataset_of(caller, asker, arguments ->> 'dataset');
    is_on boolean := (arguments ->> 'is_on')::boolean;
BEGIN
    IF is_on IS NULL THEN
        PERFORM easeml.fail('ML001', 'is_on: expected true or false, got NULL');
    ELSIF is_on THEN
        INSERT INTO easeml.prediction_audits (tenant, dataset_name) VALUES (asker, data.dataset_name) ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM easeml.prediction_audits a WHERE a.tenant = asker AND a.dataset_name = data.dataset_name;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_set_prediction_audit(name, name, jsonb) IS 'Begins or ends counting predictions, for easeml.set_prediction_audit (internal).';

-- functions/prediction.sql
-- Prediction. The functions that predict run with the rights of whoever asks: there current_user is true, also below SET ROLE and inside
-- another's SECURITY DEFINER function. They leave that name with the session, in PL/Python's GD, which only a superuser's code can write.
-- easeml.open_serving alone runs with the owner's rights: it takes the name from there, takes values only, and refuses without a name.

CREATE FUNCTION easeml.open_serving(dataset text, trial_id bigint, OUT serving_trial_id bigint, OUT failure jsonb)
LANGUAGE plpython3u SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.serving import open_serving
return open_serving(plpy, GD, dataset, trial_id)
$$;
COMMENT ON FUNCTION easeml.open_serving(text, bigint) IS
    'Restores the trial that answers for the role that a predicting function has named, and keeps it in the session; returns the trial or an error (internal: refuses direct calls).';

CREATE FUNCTION easeml.predict_json(dataset text, inputs text, trial_id bigint, OUT label text, OUT probability double precision, OUT value double precision, OUT serving_trial_id bigint, OUT failure jsonb)
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.prediction import predict_json
return predict_json(plpy, GD, dataset, inputs, trial_id)
$$;
COMMENT ON FUNCTION easeml.predict_json(text, text, bigint) IS 'Predicts for one row given as a json object; returns the prediction or an error (internal).';

CREATE FUNCTION easeml.predict_numbers(dataset text, inputs bytea, trial_id bigint, OUT label text, OUT probability double precision, OUT value double precision, OUT serving_trial_id bigint, OUT failure jsonb)
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.prediction import predict_numbers
return predict_numbers(plpy, GD, dataset, inputs, trial_id)
$$;
COMMENT ON FUNCTION easeml.predict_numbers(text, bytea, bigint) IS 'Predicts for one row given as easeml.array_bytes of an array of double precision; returns the prediction or an error (internal).';

CREATE FUNCTION easeml.predict_bytes(dataset text, inputs bytea, trial_id bigint, OUT label text, OUT probability double precision, OUT value double precision, OUT serving_trial_id bigint, OUT failure jsonb)
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.prediction import predict_bytes
return predict_bytes(plpy, GD, dataset, inputs, trial_id)
$$;
COMMENT ON FUNCTION easeml.predict_bytes(text, bytea, bigint) IS 'Predicts for one row given as 8-bit values; returns the prediction or an error (internal).';

-- All of these call Python themselves, in an expression that PL/pgSQL keeps: a query around that call takes longer than the call.
CREATE FUNCTION easeml.predict_row(dataset text, inputs anyarray, trial_id bigint DEFAULT NULL,
    OUT label text, OUT probability double precision, OUT value double precision, OUT serving_trial_id bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.predict_numbers(dataset, easeml.array_bytes(inputs::double precision[]), trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    label := answer.label;
    probability := answer.probability;
    value := answer.value;
    serving_trial_id := answer.serving_trial_id;
END
$$;
COMMENT ON FUNCTION easeml.predict_row(text, anyarray, bigint) IS
$$Predicts for one row given as an array of numbers, in the order of the dataset's inputs. Returns label and probability, or value, and the trial that answered.
dataset: a name of your own, or one that its tenant lets you use, as 'tenant.dataset'.
A number beyond the range of the training rows counts as the nearest end of that range, NaN as missing; infinity is refused.
Use it in LATERAL: SELECT n.id, p.* FROM new_rows n, LATERAL easeml.predict_row('digits', n.pixels) p.$$;

CREATE FUNCTION easeml.predict_row(dataset text, inputs jsonb, trial_id bigint DEFAULT NULL,
    OUT label text, OUT probability double precision, OUT value double precision, OUT serving_trial_id bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.predict_json(dataset, inputs::text, trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    label := answer.label;
    probability := answer.probability;
    value := answer.value;
    serving_trial_id := answer.serving_trial_id;
END
$$;
COMMENT ON FUNCTION easeml.predict_row(text, jsonb, bigint) IS
$$Predicts for one row given as a json object of columns, for example to_jsonb(t). Returns label and probability, or value, and the trial that answered.
A number beyond the range of the training rows counts as the nearest end of that range, NaN as missing; infinity is refused.$$;

CREATE FUNCTION easeml.predict_row(dataset text, inputs text, trial_id bigint DEFAULT NULL,
    OUT label text, OUT probability double precision, OUT value double precision, OUT serving_trial_id bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.predict_json(dataset, inputs, trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    label := answer.label;
    probability := answer.probability;
    value := answer.value;
    serving_trial_id := answer.serving_trial_id;
END
$$;
COMMENT ON FUNCTION easeml.predict_row(text, text, bigint) IS
    'Predicts for one row given as the text of a json object: a literal such as ''{"x": 1}'' means this one. Returns label and probability, or value, and the trial that answered.';

CREATE FUNCTION easeml.predict_row(dataset text, inputs bytea, trial_id bigint DEFAULT NULL,
    OUT label text, OUT probability double precision, OUT value double precision, OUT serving_trial_id bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.predict_bytes(dataset, inputs, trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    label := answer.label;
    probability := answer.probability;
    value := answer.value;
    serving_trial_id := answer.serving_trial_id;
END
$$;
COMMENT ON FUNCTION easeml.predict_row(text, bytea, bigint) IS
    'Predicts for one image given as bytea of 8-bit values. Returns label and probability, or value, and the trial that answered.';

CREATE FUNCTION easeml.predict(dataset text, inputs anyarray, trial_id bigint DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.predict_numbers(dataset, easeml.array_bytes(inputs::double precision[]), trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    RETURN answer.label;
END
$$;
COMMENT ON FUNCTION easeml.predict(text, anyarray, bigint) IS
    'Predicts the label (or the value, as text) of one row given as an array of numbers in the order of the dataset''s inputs. dataset: your own, or ''tenant.dataset'' of a tenant who lets you use it. trial_id: the trial to ask; by default the one that easeml.serving shows.';
CREATE FUNCTION easeml.predict(dataset text, inputs jsonb, trial_id bigint DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.predict_json(dataset, inputs::text, trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    RETURN answer.label;
END
$$;
COMMENT ON FUNCTION easeml.predict(text, jsonb, bigint) IS
    'Predicts the label (or the value, as text) of one row given as a json object, for example to_jsonb(t).';
CREATE FUNCTION easeml.predict(dataset text, inputs text, trial_id bigint DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.predict_json(dataset, inputs, trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    RETURN answer.label;
END
$$;
COMMENT ON FUNCTION easeml.predict(text, text, bigint) IS
    'Predicts the label (or the value, as text) of one row given as the text of a json object.';
CREATE FUNCTION easeml.predict(dataset text, inputs bytea, trial_id bigint DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.predict_bytes(dataset, inputs, trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    RETURN answer.label;
END
$$;
COMMENT ON FUNCTION easeml.predict(text, bytea, bigint) IS
    'Predicts the label of one image given as bytea of 8-bit values.';

CREATE FUNCTION easeml.predict_value(dataset text, inputs anyarray, trial_id bigint DEFAULT NULL) RETURNS double precision
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.predict_numbers(dataset, easeml.array_bytes(inputs::double precision[]), trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    RETURN answer.value;
END
$$;
COMMENT ON FUNCTION easeml.predict_value(text, anyarray, bigint) IS
    'Predicts the value of one row of a regression dataset, given as an array of numbers; NULL for classification.';
CREATE FUNCTION easeml.predict_value(dataset text, inputs jsonb, trial_id bigint DEFAULT NULL) RETURNS double precision
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.predict_json(dataset, inputs::text, trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    RETURN answer.value;
END
$$;
COMMENT ON FUNCTION easeml.predict_value(text, jsonb, bigint) IS
    'Predicts the value of one row of a regression dataset, given as a json object; NULL for classification.';
CREATE FUNCTION easeml.predict_value(dataset text, inputs text, trial_id bigint DEFAULT NULL) RETURNS double precision
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.predict_json(dataset, inputs, trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    RETURN answer.value;
END
$$;
COMMENT ON FUNCTION easeml.predict_value(text, text, bigint) IS
    'Predicts the value of one row of a regression dataset, given as the text of a json object; NULL for classification.';
CREATE FUNCTION easeml.predict_value(dataset text, inputs bytea, trial_id bigint DEFAULT NULL) RETURNS double precision
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.predict_bytes(dataset, inputs, trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    RETURN answer.value;
END
$$;
COMMENT ON FUNCTION easeml.predict_value(text, bytea, bigint) IS
    'Predicts the value of one image of a regression dataset, given as bytea of 8-bit values; NULL for classification.';

CREATE FUNCTION easeml.class_probabilities(dataset text, given text, inputs bytea, trial_id bigint, OUT probabilities jsonb, OUT failure jsonb)
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.probabilities import class_probabilities
return class_probabilities(plpy, GD, dataset, given, inputs, trial_id)
$$;
COMMENT ON FUNCTION easeml.class_probabilities(text, text, bytea, bigint) IS
    'Returns the probabilities of all classes for one row, given as json in UTF8, as numbers by easeml.array_bytes, or as bytes of an image, or an error (internal).';

CREATE FUNCTION easeml.predict_probabilities(dataset text, inputs jsonb, trial_id bigint DEFAULT NULL) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.class_probabilities(dataset, 'json', convert_to(inputs::text, 'UTF8'), trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    RETURN answer.probabilities;
END
$$;
COMMENT ON FUNCTION easeml.predict_probabilities(text, jsonb, bigint) IS
    'Predicts the probability of every class for one row given as a json object, for example to_jsonb(t): a json object of labels and probabilities.';
CREATE FUNCTION easeml.predict_probabilities(dataset text, inputs text, trial_id bigint DEFAULT NULL) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.class_probabilities(dataset, 'json', convert_to(inputs, 'UTF8'), trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    RETURN answer.probabilities;
END
$$;
COMMENT ON FUNCTION easeml.predict_probabilities(text, text, bigint) IS
    'Predicts the probability of every class for one row given as the text of a json object.';
CREATE FUNCTION easeml.predict_probabilities(dataset text, inputs anyarray, trial_id bigint DEFAULT NULL) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.class_probabilities(dataset, 'numbers', easeml.array_bytes(inputs::double precision[]), trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    RETURN answer.probabilities;
END
$$;
COMMENT ON FUNCTION easeml.predict_probabilities(text, anyarray, bigint) IS
    'Predicts the probability of every class for one row given as an array of numbers in the order of the dataset''s inputs.';
CREATE FUNCTION easeml.predict_probabilities(dataset text, inputs bytea, trial_id bigint DEFAULT NULL) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.class_probabilities(dataset, 'bytes', inputs, trial_id);
BEGIN
    IF answer.failure IS NOT NULL THEN
        PERFORM easeml.raise_failure(answer.failure);
    END IF;
    RETURN answer.probabilities;
END
$$;
COMMENT ON FUNCTION easeml.predict_probabilities(text, bytea, bigint) IS
    'Predicts the probability of every class for one image given as bytea of 8-bit values.';

-- functions/table_prediction.sql
-- Predicting for a whole table: reads the caller's relation with the caller's rights, packs it, and passes packed bytes.

CREATE FUNCTION easeml.predict_packed(dataset text, trial_id bigint, n_rows integer, payload bytea, texts text, OUT labels text[], OUT predicted_values double precision[], OUT serving_trial_id bigint)
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.prediction import predict_packed
return predict_packed(plpy, GD, dataset, trial_id, n_rows, payload, texts)
$$;
COMMENT ON FUNCTION easeml.predict_packed(text, bigint, integer, bytea, text) IS
    'Predicts for rows that the binary send functions packed, within easeml.predict_table (internal: refuses direct calls).';

CREATE FUNCTION easeml.write_predictions(dataset text, relation oid, output text, trial_id bigint, if_exists text, key text[], OUT n_rows bigint, OUT failure jsonb)
LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.table_prediction import write_predictions
return write_predictions(plpy, GD, dataset, relation, output, trial_id, if_exists, key)
$$;
COMMENT ON FUNCTION easeml.write_predictions(text, oid, text, bigint, text, text[]) IS
    'Reads a relation with the rights of the caller, predicts in batches, and fills a new table or adds to one that is there; returns the number of rows or an error (internal: use easeml.predict_table).';

-- The two functions below mean names as the caller's search_path says, so they do not set one: each name and operator in them is qualified.
CREATE FUNCTION easeml.find_output(output text, if_exists text) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    parts text[];
    taken regclass;
BEGIN
    BEGIN
        parts := pg_catalog.parse_ident(output);
        taken := pg_catalog.to_regclass(output);
    EXCEPTION WHEN invalid_parameter_value OR invalid_name OR syntax_error OR feature_not_supported THEN
        parts := NULL;
    END;
    IF if_exists IS NULL OR if_exists OPERATOR(pg_catalog.<>) ALL ('{refuse,append,update}') THEN
        PERFORM easeml.fail('ML001', pg_catalog.format('if_exists: expected refuse, append or update, got %s', pg_catalog.quote_nullable(if_exists)),
            hint => 'append predicts for rows whose key the table does not have, update for all rows.');
    ELSIF parts IS NULL OR pg_catalog.cardinality(parts) OPERATOR(pg_catalog.>) 2 THEN
        PERFORM easeml.fail('ML001', pg_catalog.format('output: expected the name of a new table, got %s', pg_catalog.quote_nullable(output)),
            hint => 'Write it as in SQL, with double quotes where it holds spaces or capitals: ''"My Table"''.');
    ELSIF taken IS NOT NULL AND if_exists OPERATOR(pg_catalog.=) ANY ('{append,update}') THEN
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) taken AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p}')) THEN
            PERFORM easeml.fail('ML004', pg_catalog.format('output: %s is no table', output), hint => 'Give the name of a table.');
        END IF;
        RETURN easeml.qualified_name(taken);
    ELSIF taken IS NOT NULL THEN
        PERFORM easeml.fail('ML004', pg_catalog.format('output: %s exists already', output), hint => 'Drop it, give another name, or add to it: if_exists => ''append'' or ''update''.');
    ELSIF pg_catalog.cardinality(parts) OPERATOR(pg_catalog.=) 2 AND pg_catalog.to_regnamespace(pg_catalog.quote_ident(parts[1])) IS NULL THEN
        PERFORM easeml.fail('ML003', pg_catalog.format('output: there is no schema %s', pg_catalog.quote_ident(parts[1])),
            hint => pg_catalog.format('Make it: CREATE SCHEMA %I. Or name another one.', parts[1]));
    ELSIF pg_catalog.cardinality(parts) OPERATOR(pg_catalog.=) 2 THEN
        RETURN pg_catalog.format('%I.%I', parts[1], parts[2]);
    ELSIF pg_catalog.current_schema() IS NULL THEN
        PERFORM easeml.fail('ML001', pg_catalog.format('output: no schema of the search_path is there to create %s in', output), hint => 'Give the schema, too: schema.table.');
    END IF;
    RETURN pg_catalog.format('%I.%I', pg_catalog.current_schema(), parts[1]);
END
$$;
COMMENT ON FUNCTION easeml.find_output(text, text) IS 'Returns the full name, quoted for SQL, of a table that is to be made or added to, or raises an error (internal).';

CREATE FUNCTION easeml.predict_table(dataset text, source text, output text, trial_id bigint DEFAULT NULL, if_exists text DEFAULT 'refuse', key text[] DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    found record;
    written record;
BEGIN
    found := easeml.find_source(source);
    written := easeml.write_predictions(dataset, found.relation::pg_catalog.oid, easeml.find_output(output, if_exists), trial_id, if_exists, key);
    PERFORM easeml.raise_failure(written.failure);
    RETURN written.n_rows;
END
$$;
COMMENT ON FUNCTION easeml.predict_table(text, text, text, bigint, text, text[]) IS
$$Predicts for every row of a table or view, writes the predictions to a table and returns how many rows it wrote.
The output has the columns of the key, then predicted_label and probability, or predicted_value. key: columns of the source that tell its rows apart; by default its primary key,
or without one, in a new table, all columns that are neither inputs nor arrays.
if_exists: refuse (the output must not be there yet), append (predicts for the rows whose key it does not have) or update (predicts for all rows: new values for keys that it has, new
rows for others). It reads and writes with your rights.$$;

-- functions/evaluation.sql
-- How good a trial is on rows that it did not train on. All of these run with the caller's rights: row-level security shows a role the blocks and states
-- of its own datasets only, and easeml.examined_trial refuses in words whoever may not see them. They are open to everybody for those words.

CREATE FUNCTION easeml.examined_trial(dataset text, trial_id bigint, OUT dataset_name text, OUT dataset_id bigint, OUT n_partitions integer,
    OUT examined_trial_id bigint, OUT checkpoint_id bigint, OUT architecture text, OUT config jsonb, OUT metric text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owner name;
    hint text;
    is_visible boolean := has_table_privilege('easeml.blocks', 'SELECT');
BEGIN
    IF is_visible THEN
        -- One's own comes first; administrators name the datasets of others in full.
        SELECT d.tenant, d.dataset_name INTO owner, dataset_name FROM easeml.datasets d
        WHERE d.tenant = easeml.current_tenant() AND d.dataset_name = dataset OR d.tenant || '.' || d.dataset_name = dataset
        ORDER BY d.tenant = easeml.current_tenant() AND d.dataset_name = dataset DESC NULLS LAST LIMIT 1;
        -- Readers see that there is a dataset, and none of its rows.
        is_visible := EXISTS (SELECT FROM easeml.blocks b JOIN easeml.datasets d USING (dataset_id) WHERE d.tenant = owner AND d.dataset_name = examined_trial.dataset_name);
        IF NOT is_visible THEN
            hint := easeml.near_names(dataset, (SELECT array_agg(DISTINCT d.dataset_name) FROM easeml.datasets d WHERE d.tenant = easeml.current_tenant()));
        END IF;
    END IF;
    IF NOT is_visible THEN
        PERFORM easeml.fail('ML003', format('there is no dataset %s whose rows role %s may see', quote_nullable(dataset), quote_ident(current_user)),
            hint => coalesce(hint, 'The tenant who made a dataset may see its rows. Whoever was given use of it may predict, and no more.'));
    END IF;
    IF trial_id IS NULL THEN
        examined_trial_id := (easeml.answering_trial(owner, dataset_name)).trial_id;
        IF examined_trial_id IS NULL THEN
            PERFORM easeml.fail_unanswered(owner, dataset_name, dataset);
        END IF;
    END IF;
    SELECT d.dataset_id, d.n_partitions, t.trial_id, t.best_checkpoint_id, t.architecture, t.config, r.metric
    INTO dataset_id, n_partitions, examined_trial_id, checkpoint_id, architecture, config, metric
    FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
    WHERE t.trial_id = coalesce(examined_trial.trial_id, examined_trial.examined_trial_id) AND d.tenant = owner AND d.dataset_name = examined_trial.dataset_name;
    IF dataset_id IS NULL THEN
        PERFORM easeml.fail('ML003', format('dataset %s has no trial %s', quote_literal(dataset), trial_id), hint => 'SELECT trial_id FROM easeml.leaderboard lists them.');
    ELSIF checkpoint_id IS NULL THEN
        PERFORM easeml.fail('ML010', format('trial %s has no measured epoch yet', examined_trial_id));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.examined_trial(text, bigint) IS
    'Returns the trial of a dataset whose rows you may see: the one named, else the one that answers predictions. Refuses everybody else (internal).';

CREATE FUNCTION easeml.examine_trial(subject text, dataset text, trial_id bigint, options jsonb, OUT rows json, OUT failure jsonb)
LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.held_out.examine import examine_trial
return examine_trial(plpy, GD, subject, dataset, trial_id, options)
$$;
COMMENT ON FUNCTION easeml.examine_trial(text, text, bigint, jsonb) IS
    'Has a trial answer for held-out rows that the caller may see, and returns rows about that as a json array, or an error (internal: use easeml.evaluate and the functions beside it).';

CREATE FUNCTION easeml.examination(subject text, dataset text, trial_id bigint, options jsonb) RETURNS json LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.examine_trial(subject, dataset, trial_id, options);
BEGIN
    PERFORM easeml.raise_failure(answer.failure);
    RETURN answer.rows;
END
$$;
COMMENT ON FUNCTION easeml.examination(text, text, bigint, jsonb) IS 'Returns what easeml.examine_trial returns, or raises its error (internal).';

CREATE FUNCTION easeml.evaluate(
    dataset text, trial_id bigint DEFAULT NULL, threshold double precision DEFAULT NULL, positive text DEFAULT NULL,
    OUT metric text, OUT validation double precision, OUT test double precision, OUT is_higher_better boolean, OUT summary text, OUT evaluated_trial_id bigint
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('evaluate', dataset, trial_id, jsonb_build_object('threshold', threshold, 'positive', positive)))
        e(metric text, validation double precision, test double precision, is_higher_better boolean, summary text, evaluated_trial_id bigint);
END
$$;
COMMENT ON FUNCTION easeml.evaluate(text, bigint, double precision, text) IS
$$Measures a trial on the validation and the test rows: a row for each metric, NULL where it is not defined. Metrics are those of scikit-learn.
dataset: your own. trial_id: by default the trial that answers predictions; its best epoch is measured.
positive: the class that precision, recall, f1 and specificity are about; by default the second of two classes. roc_auc and average_precision of more than two classes are means over the classes, each against the rest.
threshold: from this probability on (0 to 1) a row counts as positive; by default the most probable class counts.$$;

CREATE FUNCTION easeml.confusion_matrix(
    dataset text, trial_id bigint DEFAULT NULL, split text DEFAULT 'test', threshold double precision DEFAULT NULL, positive text DEFAULT NULL,
    OUT actual text, OUT predicted text, OUT n_rows bigint, OUT share double precision
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('confusion_matrix', dataset, trial_id, jsonb_build_object('split', split, 'threshold', threshold, 'positive', positive)))
        e(actual text, predicted text, n_rows bigint, share double precision);
END
$$;
COMMENT ON FUNCTION easeml.confusion_matrix(text, bigint, text, double precision, text) IS
$$Counts the rows of each actual class by the class that a trial predicts: a row for each pair. share is that of the actual class's rows.
split: test or validation. threshold, positive: as in easeml.evaluate, for two classes.$$;

CREATE FUNCTION easeml.roc_curve(
    dataset text, trial_id bigint DEFAULT NULL, split text DEFAULT 'test', positive text DEFAULT NULL,
    OUT positive_class text, OUT threshold double precision, OUT false_positive_rate double precision, OUT true_positive_rate double precision, OUT "precision" double precision,
    OUT true_positives bigint, OUT false_positives bigint, OUT true_negatives bigint, OUT false_negatives bigint
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('roc_curve', dataset, trial_id, jsonb_build_object('split', split, 'positive', positive)))
        e(positive_class text, threshold double precision, false_positive_rate double precision, true_positive_rate double precision, "precision" double precision,
            true_positives bigint, false_positives bigint, true_negatives bigint, false_negatives bigint);
END
$$;
COMMENT ON FUNCTION easeml.roc_curve(text, bigint, text, text) IS
$$Returns the corners of the ROC curve, from the highest threshold down: what share of the rows a trial rightly, and what share it wrongly calls positive if it does so from that probability on.
positive: one class against the rest; by default the second of two classes, or each of more. split: test or validation.$$;

CREATE FUNCTION easeml.calibration(
    dataset text, trial_id bigint DEFAULT NULL, split text DEFAULT 'test', n_bins integer DEFAULT 10, positive text DEFAULT NULL,
    OUT positive_class text, OUT from_probability double precision, OUT to_probability double precision, OUT n_rows bigint, OUT mean_probability double precision, OUT positive_share double precision
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('calibration', dataset, trial_id, jsonb_build_object('split', split, 'n_bins', n_bins, 'positive', positive)))
        e(positive_class text, from_probability double precision, to_probability double precision, n_rows bigint, mean_probability double precision, positive_share double precision);
END
$$;
COMMENT ON FUNCTION easeml.calibration(text, bigint, text, integer, text) IS
$$Says whether probabilities mean what they say: for each interval of the probability of a class, the mean probability and the share of the rows that are of that class. Intervals without rows are left out.
n_bins: the number of intervals between 0 and 1. positive, split: as in easeml.roc_curve.$$;

CREATE FUNCTION easeml.class_metrics(
    dataset text, trial_id bigint DEFAULT NULL, split text DEFAULT 'test', threshold double precision DEFAULT NULL, positive text DEFAULT NULL,
    OUT label text, OUT n_rows bigint, OUT n_predicted bigint, OUT n_correct bigint, OUT "precision" double precision, OUT recall double precision, OUT f1 double precision,
    OUT roc_auc double precision, OUT average_precision double precision
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('class_metrics', dataset, trial_id, jsonb_build_object('split', split, 'threshold', threshold, 'positive', positive)))
        e(label text, n_rows bigint, n_predicted bigint, n_correct bigint, "precision" double precision, recall double precision, f1 double precision,
            roc_auc double precision, average_precision double precision);
END
$$;
COMMENT ON FUNCTION easeml.class_metrics(text, bigint, text, double precision, text) IS
$$Counts and measures each class: rows that are of it, rows predicted to be, and both; a class without rows is there, too. Arguments as in easeml.confusion_matrix.$$;

CREATE FUNCTION easeml.residuals(
    dataset text, trial_id bigint DEFAULT NULL, split text DEFAULT 'test',
    OUT row_key text, OUT actual double precision, OUT predicted double precision, OUT residual double precision
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('residuals', dataset, trial_id, jsonb_build_object('split', split)))
        e(row_key text, actual double precision, predicted double precision, residual double precision);
END
$$;
COMMENT ON FUNCTION easeml.residuals(text, bigint, text) IS
$$Returns target, answer and their difference (actual minus predicted) for each held-out row of a regression. row_key is that of easeml.dataset_rows.
split: test or validation.$$;

CREATE FUNCTION easeml.held_out_answers(
    dataset text, trial_id bigint DEFAULT NULL, split text DEFAULT 'test', threshold double precision DEFAULT NULL, positive text DEFAULT NULL,
    OUT row_key text, OUT actual text, OUT predicted text, OUT probability double precision, OUT probabilities jsonb
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('held_out_answers', dataset, trial_id, jsonb_build_object('split', split, 'threshold', threshold, 'positive', positive)))
        e(row_key text, actual text, predicted text, probability double precision, probabilities jsonb);
END
$$;
COMMENT ON FUNCTION easeml.held_out_answers(text, bigint, text, double precision, text) IS
$$Returns the class of each held-out row, the predicted class, its probability, and the probabilities of all classes as json. row_key is that of easeml.dataset_rows.
Arguments as in easeml.confusion_matrix. easeml.residuals is its sister for regressions.$$;

CREATE FUNCTION easeml.explain(
    dataset text, trial_id bigint DEFAULT NULL, split text DEFAULT 'test', metric text DEFAULT NULL, n_rows integer DEFAULT 2000, n_repeats integer DEFAULT 5,
    seed bigint DEFAULT 0, OUT input text, OUT importance double precision, OUT standard_deviation double precision
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('explain', dataset, trial_id,
        jsonb_build_object('split', split, 'metric', metric, 'n_rows', n_rows, 'n_repeats', n_repeats, 'seed', seed)))
        e(input text, importance double precision, standard_deviation double precision);
END
$$;
COMMENT ON FUNCTION easeml.explain(text, bigint, text, text, integer, integer, bigint) IS
$$Says which inputs a trial needs: how much worse its metric gets when the values of one input are permuted among held-out rows (permutation importance), the most important first.
An element of a short array is an input of its own. Inputs that tell the same may each look unimportant.
metric: one of easeml.evaluate; by default that of the trial's run. n_rows: how many rows are drawn at most. n_repeats: permutations of each input, of which mean and standard deviation are shown.
split: test or validation. seed: the same seed gives the same numbers.$$;

CREATE FUNCTION easeml.explain_row(
    dataset text, inputs jsonb, trial_id bigint DEFAULT NULL, label text DEFAULT NULL, n_orders integer DEFAULT 100, seed bigint DEFAULT 0,
    OUT input text, OUT value text, OUT contribution double precision, OUT standard_error double precision, OUT explained_label text, OUT unit text
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM json_to_recordset(easeml.examination('explain_row', dataset, trial_id,
        jsonb_build_object('inputs', inputs::text, 'label', label, 'n_orders', n_orders, 'seed', seed)))
        e(input text, value text, contribution double precision, standard_error double precision, explained_label text, unit text);
END
$$;
COMMENT ON FUNCTION easeml.explain_row(text, jsonb, bigint, text, integer, bigint) IS
$$Says what each input of one row adds to the answer (Shapley values), the largest part first. The row without an input is the base, what is answered without knowing the row; base and contributions add up to the answer.
inputs: a json object of the columns, for example to_jsonb(t). label: the class whose answer is explained; by default the predicted one.
Boosted trees have exact values from LightGBM, in log odds (or units of the target). Other trials are asked for rows mixed of this one and validation rows, along n_orders random orders of the inputs; contributions are estimates in probability (or units of the target), with their standard errors.$$;

CREATE FUNCTION easeml.hyperparameter_importances(trials jsonb, specifications jsonb, OUT importances json, OUT failure jsonb)
LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.procedures.hyperparameter_importance import hyperparameter_importances
from easeml_plpy.session import answered_by
return answered_by(plpy, hyperparameter_importances, trials, specifications)
$$;
COMMENT ON FUNCTION easeml.hyperparameter_importances(jsonb, jsonb) IS
    'Returns the importance of each hyperparameter that trials varied as a json array, a pure function of its arguments, or an error (internal: use easeml.hyperparameter_importance).';

CREATE FUNCTION easeml.hyperparameter_importance(run_id bigint, OUT architecture text, OUT hyperparameter text, OUT importance double precision, OUT n_values integer, OUT n_trials integer)
RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    trials jsonb;
    declared jsonb;
    answer record;
BEGIN
    IF NOT EXISTS (SELECT FROM easeml.run_status r WHERE r.run_id = hyperparameter_importance.run_id) THEN
        PERFORM easeml.fail('ML003', format('there is no run %s that you can see', coalesce(run_id::text, 'NULL')), hint => 'SELECT run_id FROM easeml.run_status lists them.');
    END IF;
    SELECT jsonb_agg(jsonb_build_object('architecture', l.architecture, 'config', l.config, 'value', l.validation_metric) ORDER BY l.trial_number)
    INTO trials FROM easeml.leaderboard l WHERE l.run_id = hyperparameter_importance.run_id AND l.validation_metric IS NOT NULL;
    SELECT jsonb_object_agg(a.architecture, a.hyperparameters) INTO declared FROM easeml.architectures a
    WHERE a.architecture IN (SELECT t ->> 'architecture' FROM jsonb_array_elements(trials) t);
    answer := easeml.hyperparameter_importances(coalesce(trials, '[]'), coalesce(declared, '{}'));
    PERFORM easeml.raise_failure(answer.failure);
    RETURN QUERY SELECT i.* FROM json_to_recordset(answer.importances) i(architecture text, hyperparameter text, importance double precision, n_values integer, n_trials integer);
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML010', format('run %s has no architecture with 4 measured trials that differ', run_id), hint => 'Ask again when more trials are measured, or search over more hyperparameters.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.hyperparameter_importance(bigint) IS
$$Says which hyperparameters mattered in a run: for each architecture with at least four measured trials, the share of the variance of the validation metric that a hyperparameter explains by itself (functional ANOVA).
Where all trials do equally well nothing is left to explain; few trials give rough numbers. n_values: how many different values were tried.$$;

-- functions/deployments.sql
-- Which trial answers for a dataset, when its tenant chooses one.

CREATE FUNCTION easeml.deploy(trial_id bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('deploy', jsonb_build_object('trial_id', trial_id));
END
$$;
COMMENT ON FUNCTION easeml.deploy(bigint) IS 'Makes this trial answer easeml.predict for its dataset, even if later trials are better. easeml.rollback goes back to what answered before, easeml.undeploy to the best trial.';

CREATE FUNCTION easeml.undeploy(dataset text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('undeploy', jsonb_build_object('dataset', dataset));
END
$$;
COMMENT ON FUNCTION easeml.undeploy(text) IS 'Withdraws the deployed trial of a dataset, so that the best trial by the dataset''s metric answers easeml.predict again.';

CREATE FUNCTION easeml.perform_deploy(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    trial record;
BEGIN
    SELECT t.trial_id, t.best_checkpoint_id, t.tenant, d.dataset_name INTO trial
    FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
    WHERE t.trial_id = (arguments ->> 'trial_id')::bigint AND t.tenant = asker;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', format('there is no trial %s of yours', coalesce(arguments ->> 'trial_id', 'NULL')), hint => 'SELECT trial_id FROM easeml.leaderboard lists them.');
    ELSIF trial.best_checkpoint_id IS NULL THEN
        PERFORM easeml.fail('ML010', format('trial %s has no measured epoch yet', trial.trial_id));
    END IF;
    PERFORM easeml.lock_serving(asker, trial.dataset_name);
    INSERT INTO easeml.deployments (tenant, dataset_name, trial_id) VALUES (asker, trial.dataset_name, trial.trial_id)
    ON CONFLICT ON CONSTRAINT deployments_pkey DO UPDATE SET trial_id = excluded.trial_id, deployed_at = now();
    PERFORM easeml.note_serving(asker, trial.dataset_name, 'deployed');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_deploy(name, name, jsonb) IS 'Deploys a trial for easeml.deploy (internal).';

CREATE FUNCTION easeml.perform_undeploy(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.lock_serving(asker, arguments ->> 'dataset');
    DELETE FROM easeml.deployments p WHERE p.tenant = asker AND p.dataset_name = arguments ->> 'dataset';
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', format('no trial of dataset %s is deployed', quote_nullable(arguments ->> 'dataset')),
            hint => 'easeml.deploy(trial_id) chooses one; until then the best answers.');
    END IF;
    PERFORM easeml.note_serving(asker, arguments ->> 'dataset', 'undeployed');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_undeploy(name, name, jsonb) IS 'Withdraws a deployment for easeml.undeploy (internal).';

-- functions/serving_changes.sql
-- What changes the trial that answers, written down as it happens: easeml.rollback reads it.

CREATE FUNCTION easeml.note_serving(tenant name, dataset_name text, reason text, restored_id bigint DEFAULT NULL) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answering record;
    last easeml.servings;
    value double precision;
BEGIN
    SELECT a.* INTO answering FROM easeml.answering a WHERE a.tenant = note_serving.tenant AND a.dataset_name = note_serving.dataset_name;
    SELECT s.* INTO last FROM easeml.servings s WHERE s.tenant = note_serving.tenant AND s.dataset_name = note_serving.dataset_name ORDER BY s.serving_id DESC LIMIT 1;
    IF answering.metric IS NULL OR answering.trial_id IS NOT DISTINCT FROM last.trial_id AND answering.is_deployed = coalesce(last.is_deployed, false) THEN
        RETURN;
    END IF;
    SELECT (to_jsonb(e) ->> answering.metric)::double precision INTO value
    FROM easeml.trials t JOIN easeml.epoch_metrics e ON e.trial_id = t.trial_id AND e.epoch = t.best_epoch AND e.split = 'validation' WHERE t.trial_id = answering.trial_id;
    INSERT INTO easeml.servings (tenant, dataset_name, trial_id, is_deployed, metric, metric_value, reason, restored_id)
    VALUES (note_serving.tenant, note_serving.dataset_name, answering.trial_id, answering.is_deployed, answering.metric, value, note_serving.reason, note_serving.restored_id);
    -- Deploying in turn must not fill the disk.
    DELETE FROM easeml.servings s WHERE s.tenant = note_serving.tenant AND s.dataset_name = note_serving.dataset_name AND s.serving_id <= (
        SELECT o.serving_id FROM easeml.servings o WHERE o.tenant = note_serving.tenant AND o.dataset_name = note_serving.dataset_name ORDER BY o.serving_id DESC OFFSET 200 LIMIT 1);
    IF answering.trial_id IS NULL THEN
        RAISE WARNING 'no trial answers for dataset % any more', quote_literal(note_serving.dataset_name)
            USING hint = format('No trial of a run that ranks by %s is left. Start one, or choose a trial: SELECT easeml.deploy(trial_id).', answering.metric);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.note_serving(name, text, text, bigint) IS 'Writes down what answers for a dataset now, if that has changed since it was last written down (internal).';

CREATE FUNCTION easeml.lock_serving(tenant name, dataset_name text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM easeml.serving_metrics m WHERE m.tenant = lock_serving.tenant AND m.dataset_name = lock_serving.dataset_name FOR NO KEY UPDATE;
    -- A unit that found it locked has written nothing down.
    PERFORM easeml.note_serving(tenant, dataset_name, 'better');
END
$$;
COMMENT ON FUNCTION easeml.lock_serving(name, text) IS 'Makes changes by hand of what answers for a dataset wait for one another (internal).';

CREATE FUNCTION easeml.note_takeover(trial_id bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    serving record;
BEGIN
    -- A unit waits for nobody's transaction: what it cannot write down is written down with the next change.
    SELECT m.tenant, m.dataset_name INTO serving
    FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id) JOIN easeml.serving_metrics m ON m.tenant = d.tenant AND m.dataset_name = d.dataset_name
    WHERE t.trial_id = note_takeover.trial_id AND m.metric = r.metric
        AND NOT EXISTS (SELECT FROM easeml.deployments p WHERE p.tenant = m.tenant AND p.dataset_name = m.dataset_name)
        AND NOT EXISTS (SELECT FROM easeml.trials l
            WHERE l.trial_id = (SELECT s.trial_id FROM easeml.servings s WHERE s.tenant = m.tenant AND s.dataset_name = m.dataset_name ORDER BY s.serving_id DESC LIMIT 1)
                AND (l.trial_id = t.trial_id OR CASE WHEN m.is_higher_better THEN l.best_metric_value > t.best_metric_value ELSE l.best_metric_value < t.best_metric_value END))
    FOR NO KEY UPDATE OF m SKIP LOCKED;
    IF FOUND THEN
        PERFORM easeml.note_serving(serving.tenant, serving.dataset_name, 'better');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.note_takeover(bigint) IS 'Writes down that a trial answers from now on, if its newly measured epoch makes it the best (internal).';

CREATE FUNCTION easeml.rollback(dataset text) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN easeml.request('rollback', jsonb_build_object('dataset', dataset))::bigint;
END
$$;
COMMENT ON FUNCTION easeml.rollback(text) IS
$$Lets the trial answer that answered before the present one, and returns its number. It stays deployed, as by easeml.deploy; called again, it goes back one more.
easeml.serving_history shows what answered when; trials that were dropped are passed over.$$;

CREATE FUNCTION easeml.perform_rollback(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text := (easeml.dataset_of(caller, asker, arguments ->> 'dataset')).dataset_name;
    present easeml.servings;
    former easeml.servings;
BEGIN
    PERFORM easeml.lock_serving(asker, name);
    SELECT s.* INTO present FROM easeml.servings s WHERE s.tenant = asker AND s.dataset_name = name ORDER BY s.serving_id DESC LIMIT 1;
    former := present;
    LOOP
        -- What was gone back from is not gone back to.
        SELECT s.* INTO former FROM easeml.servings s WHERE s.tenant = asker AND s.dataset_name = name AND s.serving_id < coalesce(former.restored_id, former.serving_id)
        ORDER BY s.serving_id DESC LIMIT 1;
        EXIT WHEN NOT FOUND OR former.trial_id IS DISTINCT FROM present.trial_id AND EXISTS (SELECT FROM easeml.trials t WHERE t.trial_id = former.trial_id);
    END LOOP;
    IF former.serving_id IS NULL THEN
        PERFORM easeml.fail('ML004', format('dataset %s has nothing to go back to: %s', quote_literal(name),
            coalesce(format('trial %s was the first to answer, of those that are left', present.trial_id), 'no trial has answered yet, of those that are left')),
            hint => format('SELECT * FROM easeml.serving_history WHERE dataset_name = %L shows what answered. easeml.deploy(trial_id) lets any trial answer.', name));
    END IF;
    INSERT INTO easeml.deployments (tenant, dataset_name, trial_id) VALUES (asker, name, former.trial_id)
    ON CONFLICT ON CONSTRAINT deployments_pkey DO UPDATE SET trial_id = excluded.trial_id, deployed_at = now();
    PERFORM easeml.note_serving(asker, name, 'rolled back', coalesce(former.restored_id, former.serving_id));
    RETURN to_jsonb(former.trial_id);
END
$$;
COMMENT ON FUNCTION easeml.perform_rollback(name, name, jsonb) IS 'Goes back to the trial that answered before, for easeml.rollback (internal).';

CREATE FUNCTION easeml.set_serving_metric(dataset text, metric text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.request('set_serving_metric', jsonb_build_object('dataset', dataset, 'metric', metric));
END
$$;
COMMENT ON FUNCTION easeml.set_serving_metric(text, text) IS
$$Chooses the metric by which the best trial of a dataset answers, in place of that of its first run. Only trials of runs that rank by it take part.
Later runs rank by it, too, unless they name another. A deployed trial goes on answering.$$;

CREATE FUNCTION easeml.perform_set_serving_metric(caller name, asker name, arguments jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := easeml.dataset_of(caller, asker, arguments ->> 'dataset');
    chosen record := easeml.ranking_metric(data, coalesce(arguments ->> 'metric', ''));
BEGIN
    PERFORM easeml.lock_serving(asker, data.dataset_name);
    INSERT INTO easeml.serving_metrics (tenant, dataset_name, metric, is_higher_better, is_chosen) VALUES (asker, data.dataset_name, chosen.metric, chosen.is_higher_better, true)
    ON CONFLICT ON CONSTRAINT serving_metrics_pkey DO UPDATE SET metric = excluded.metric, is_higher_better = excluded.is_higher_better, is_chosen = true, set_at = now();
    PERFORM easeml.note_serving(asker, data.dataset_name, 'metric');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.perform_set_serving_metric(name, name, jsonb) IS 'Chooses the metric of a dataset for easeml.set_serving_metric (internal).';

-- functions/exports.sql
-- Trials as files: out with the rights of the caller, in as a dataset without rows that has one trial.

CREATE FUNCTION easeml.export_file(dataset text, trial_id bigint, OUT contents bytea, OUT failure jsonb) LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.exports import export_file
return export_file(plpy, GD, dataset, trial_id)
$$;
COMMENT ON FUNCTION easeml.export_file(text, bigint) IS 'Returns the file of a trial that you may see, or an error (internal: use easeml.export_trial).';

CREATE FUNCTION easeml.export_trial(dataset text, trial_id bigint DEFAULT NULL) RETURNS bytea LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := easeml.find_dataset(dataset);
    chosen bigint := coalesce(trial_id, (easeml.answering_trial(data.tenant, data.dataset_name)).trial_id);
    answer record;
BEGIN
    IF chosen IS NULL THEN
        PERFORM easeml.fail_unanswered(data.tenant, data.dataset_name, dataset);
    END IF;
    answer := easeml.export_file(data.dataset_name, chosen);
    PERFORM easeml.raise_failure(answer.failure);
    RETURN answer.contents;
END
$$;
COMMENT ON FUNCTION easeml.export_trial(text, bigint) IS
$$Returns a trial of a dataset of yours with its encoder as the bytes of one file (safetensors with a JSON document in its header), which easeml.import_trial and the Python
package easeml_model read. trial_id: by default the trial that answers. The file holds labels, categories and statistics of the training rows, but no row. From a shell: easeml export.$$;

CREATE FUNCTION easeml.import_model(contents bytea, name text, OUT trial_id bigint, OUT failure jsonb) LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.exports import import_model
return import_model(plpy, GD, contents, name)
$$;
COMMENT ON FUNCTION easeml.import_model(bytea, text) IS 'Checks a file with the rights of the caller, and has it stored; returns the trial or an error (internal: use easeml.import_trial).';

CREATE FUNCTION easeml.import_trial(contents bytea, name text DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answer record := easeml.import_model(contents, name);
BEGIN
    PERFORM easeml.raise_failure(answer.failure);
    RETURN answer.trial_id;
END
$$;
COMMENT ON FUNCTION easeml.import_trial(bytea, text) IS
$$Stores a file that easeml.export_trial has made as a dataset of yours with one trial, and returns the trial's number. The dataset has no rows: it predicts, is deployed,
granted, evaluated nowhere and trained on never. name: by default that of the dataset that it was exported from; it must be new. Files that were changed, or are of another
version, are refused. From a shell: easeml import.$$;

-- With the owner's rights, for what easeml.import_model has left in PL/Python's GD, which only a superuser's code can write.
CREATE FUNCTION easeml.store_import(OUT trial_id bigint, OUT failure jsonb) LANGUAGE plpython3u SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.exports import store_import
return store_import(plpy, GD)
$$;
COMMENT ON FUNCTION easeml.store_import() IS 'Stores the file that easeml.import_model has just checked; returns the trial or an error (internal: refuses direct calls).';

CREATE FUNCTION easeml.begin_import(caller name, name text, facts jsonb, n_bytes bigint, sha256 text, state bytea, OUT trial_id bigint, OUT checkpoint_id bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asker name;
    data easeml.datasets;
    run easeml.runs;
    trial easeml.trials;
    new_dataset_id bigint;
    new_run_id bigint;
    new_arm_id bigint;
    new_trial_id bigint;
    new_checkpoint_id bigint;
BEGIN
    IF NOT pg_has_role(caller, 'easeml_tenant', 'USAGE') THEN
        PERFORM easeml.fail('ML004', format('role %s is no tenant', quote_ident(caller)), hint => 'An administrator makes it one: SELECT easeml.create_tenant(role).');
    ELSIF btrim(name) = '' OR length(name) > 200 THEN
        PERFORM easeml.fail('ML001', format('name: expected 1 to 200 characters, got %s', quote_literal(left(name, 40))), hint => 'Give the dataset a name: easeml.import_trial(contents, name).');
    END IF;
    asker := easeml.register_tenant(caller);
    IF EXISTS (SELECT FROM easeml.datasets d WHERE d.tenant = asker AND d.dataset_name = begin_import.name) THEN
        PERFORM easeml.fail('ML001', format('you have a dataset %s already', quote_literal(name)),
            hint => format('Give another name: easeml.import_trial(contents, name), or remove it with easeml.drop_dataset(%L).', name));
    END IF;
    data := jsonb_populate_record(NULL::easeml.datasets, facts);
    run := jsonb_populate_record(NULL::easeml.runs, facts);
    trial := jsonb_populate_record(NULL::easeml.trials, facts);
    INSERT INTO easeml.datasets (tenant, dataset_name, version, source, input_columns, target_column, task, input_shape, n_outputs, n_partitions, validation_fraction, test_fraction,
        seed, block_rows, encoder, explanations, packing_seconds)
    VALUES (asker, name, 1, 'imported', data.input_columns, data.target_column, data.task, data.input_shape, data.n_outputs, 1, 0.15, 0.15, 0, 1, data.encoder, data.explanations, 0)
    RETURNING dataset_id INTO new_dataset_id;
    INSERT INTO easeml.runs (tenant, dataset_id, procedure, architectures, n_configs, max_epochs, metric, is_higher_better, seed, status, started_at, finished_at)
    VALUES (asker, new_dataset_id, 'import', ARRAY[trial.architecture], 1, trial.best_epoch, run.metric, run.is_higher_better, 0, 'finished', now(), now())
    RETURNING run_id INTO new_run_id;
    INSERT INTO easeml.arms (run_id, tenant, architecture, planned_epochs) VALUES (new_run_id, asker, trial.architecture, trial.best_epoch) RETURNING arm_id INTO new_arm_id;
    INSERT INTO easeml.trials (run_id, arm_id, tenant, trial_number, architecture, config, max_epochs, status, best_epoch, best_metric_value, best_loss, started_at, finished_at)
    SELECT new_run_id, new_arm_id, asker, 1, trial.architecture, trial.config, trial.best_epoch, 'finished', trial.best_epoch, (v ->> 'metric_value')::double precision,
        coalesce(v ->> 'log_loss', v ->> 'rmse')::double precision, now(), now() FROM (SELECT facts #> '{metrics,validation}' AS v) m
    RETURNING trials.trial_id INTO new_trial_id;
    INSERT INTO easeml.epoch_metrics
    SELECT (jsonb_populate_record(NULL::easeml.epoch_metrics, m.value || jsonb_build_object('trial_id', new_trial_id, 'run_id', new_run_id, 'tenant', asker,
        'epoch', trial.best_epoch, 'split', m.key, 'measured_at', now()))).* FROM jsonb_each(facts -> 'metrics') m;
    INSERT INTO easeml.checkpoints (trial_id, tenant, epoch, n_bytes, sha256, state)
    VALUES (new_trial_id, asker, trial.best_epoch, begin_import.n_bytes, begin_import.sha256, begin_import.state) RETURNING checkpoints.checkpoint_id INTO new_checkpoint_id;
    INSERT INTO easeml.events (tenant, run_id, trial_id, kind, message) VALUES (asker, new_run_id, new_trial_id, 'imported', format('imported by %s: %s', caller, facts ->> 'origin'));
    trial_id := new_trial_id;
    checkpoint_id := new_checkpoint_id;
END
$$;
COMMENT ON FUNCTION easeml.begin_import(name, text, jsonb, bigint, text, bytea) IS
    'Inserts the rows of an imported trial: dataset, run, trial, metrics and a state, whose chunks follow if it is large; returns trial and state (internal).';

CREATE FUNCTION easeml.finish_import(caller name, trial_id bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asker name;
    name text;
BEGIN
    UPDATE easeml.trials t SET checkpoint_id = c.checkpoint_id, best_checkpoint_id = c.checkpoint_id
    FROM easeml.checkpoints c WHERE t.trial_id = finish_import.trial_id AND c.trial_id = t.trial_id;
    INSERT INTO easeml.serving_metrics (tenant, dataset_name, metric, is_higher_better)
    SELECT d.tenant, d.dataset_name, r.metric, r.is_higher_better FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
    WHERE t.trial_id = finish_import.trial_id RETURNING tenant, dataset_name INTO asker, name;
    PERFORM easeml.note_serving(asker, name, 'better');
    IF easeml.is_bound_by_limits(caller) THEN
        -- Transactions that add to what a tenant keeps queue up here.
        UPDATE easeml.tenants t SET weight = t.weight WHERE t.tenant = asker;
        PERFORM easeml.check_kept_bytes(asker);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.finish_import(name, bigint) IS 'Lets an imported trial answer, and refuses it beyond the limits of its tenant (internal).';

-- functions/replay.sql
-- Training a trial again along the stored visit order, to check that the same bytes result. Nothing is written.

-- Everybody may call it, and so do the routines below, which tenants may call as well.
CREATE FUNCTION easeml.check_replay_options(trial_id bigint, device text, n_threads integer, until_epoch integer) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM easeml.trials t WHERE t.trial_id = check_replay_options.trial_id) THEN
        PERFORM easeml.fail('ML003', format('there is no trial %s that you can see', coalesce(trial_id::text, 'NULL')),
            hint => 'SELECT trial_id FROM easeml.leaderboard lists them.');
    ELSIF device IS NULL OR device !~ '^(cpu|cuda:[0-9]+)$' THEN
        PERFORM easeml.fail('ML001', format('device: expected cpu or cuda:N, got %s', quote_nullable(device)),
            hint => 'cuda:0 is the first GPU of the server.');
    ELSIF n_threads IS NULL OR n_threads NOT BETWEEN 1 AND 1024 THEN
        PERFORM easeml.fail('ML001', format('n_threads: expected 1 to 1024, got %s', coalesce(n_threads::text, 'NULL')));
    ELSIF until_epoch < 1 THEN
        PERFORM easeml.fail('ML001', format('until_epoch: expected at least 1, or NULL for all, got %s', until_epoch));
    ELSIF NOT EXISTS (SELECT FROM easeml.training_units u WHERE u.trial_id = check_replay_options.trial_id)
        AND NOT EXISTS (SELECT FROM easeml.trials t WHERE t.trial_id = check_replay_options.trial_id AND t.parent_trial_id IS NOT NULL) THEN
        PERFORM easeml.fail('ML010', format('trial %s has no recorded training unit yet', trial_id));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_replay_options(bigint, text, integer, integer) IS
    'Refuses arguments of easeml.replay that no replay can have, and a trial without units that you can see (internal).';

CREATE FUNCTION easeml.check_replay(trial_id bigint, device text, until_epoch integer, OUT n_partitions bigint, OUT failure jsonb) LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
from easeml_plpy.replay import check_replay
return check_replay(plpy, GD, trial_id, device, until_epoch)
$$;
COMMENT ON FUNCTION easeml.check_replay(bigint, text, integer) IS
    'Refuses a device that does not exist, a trial that a gang trained, and packed training rows that differ from those that it trained on; returns the number of partitions that it compared, or an error (internal).';

CREATE PROCEDURE easeml.replay_units(trial_id bigint, device text, n_threads integer, until_epoch integer, INOUT result jsonb DEFAULT NULL)
LANGUAGE plpython3u AS $$
from easeml_plpy.replay import replay_units
return replay_units(plpy, GD, trial_id, device, n_threads, until_epoch, result)
$$;
COMMENT ON PROCEDURE easeml.replay_units(bigint, text, integer, integer, jsonb) IS
    'Trains a trial again unit by unit and compares the states (internal: use easeml.replay).';

CREATE PROCEDURE easeml.replay(
    trial_id bigint, device text DEFAULT 'cpu', n_threads integer DEFAULT 1, until_epoch integer DEFAULT NULL, INOUT result jsonb DEFAULT NULL
) LANGUAGE plpgsql AS $$
DECLARE
    failure jsonb;
BEGIN
    -- A procedure that commits can have no setting of its own.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    PERFORM easeml.check_replay_options(trial_id, device, n_threads, until_epoch);
    CALL easeml.commit_first('easeml.replay commits between units, so it cannot run inside an open transaction', 'CALL easeml.replay(trial_id)', failure);
    PERFORM easeml.raise_failure(failure);
    PERFORM easeml.raise_failure(c.failure) FROM easeml.check_replay(trial_id, device, until_epoch) c;
    CALL easeml.replay_units(trial_id, device, n_threads, until_epoch, result);
END
$$;
COMMENT ON PROCEDURE easeml.replay(bigint, text, integer, integer, jsonb) IS
$$Trains a trial again from its beginning, in your session, in the stored order and with the stored seeds, and compares the state after every unit with the recorded hash.
It writes nothing. The device and number of threads of the slots that trained the trial give the same bytes (default: cpu, one thread).
device: cpu or cuda:N. until_epoch: stop after that epoch. Returns json: trial_id, n_units, n_matching, is_identical, first_difference, final_sha256, device, n_threads.
first_difference has epoch, position, partition_number, stored_sha256 and replayed_sha256; if the stored state is still kept, tensors has the largest absolute difference of each tensor that differs.$$;

-- functions/operations.sql
CREATE FUNCTION easeml.version() RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'easeml'
$$;
COMMENT ON FUNCTION easeml.version() IS 'Returns the installed version of the extension.';

CREATE FUNCTION easeml.python_facts() RETURNS jsonb LANGUAGE plpython3u SET search_path = pg_catalog, pg_temp AS $$
import importlib, json, sys
facts = {"python": sys.version.split()[0], "path": list(sys.path), "modules": {}, "faults": {}}
for name in ("numpy", "torch", "sklearn", "safetensors", "easeml_plpy", "easeml_db"):
    try:
        module = importlib.import_module(name)
        facts["modules"][name] = {"version": getattr(module, "__version__", None), "file": module.__file__}
    except Exception as error:  # whatever keeps a package from importing is what the doctor wants to know
        facts["faults"][name] = f"{type(error).__name__}: {error}"
if "torch" in facts["modules"]:
    import torch
    facts["devices"] = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
return json.dumps(facts)
$$;
COMMENT ON FUNCTION easeml.python_facts() IS 'Describes the server''s Python as JSON for easeml doctor: version, path, packages that it can import, devices.';

-- functions/tenants.sql
-- Tenants and their settings. Only administrators call these, and a running coordinator finds each change.

CREATE FUNCTION easeml.check_tenant(weight double precision, deadline timestamptz, max_runs integer, max_slots integer, max_bytes bigint, max_hours double precision)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT (weight > 0 AND weight < 'Infinity') THEN
        PERFORM easeml.fail('ML001', format('weight: expected a positive number, got %s', weight), hint => '1 is the weight of everybody else; 2 is twice their share.');
    END IF;
    IF NOT (deadline > clock_timestamp() AND isfinite(deadline)) THEN
        PERFORM easeml.fail('ML001', format('deadline: expected a time in the future, got %s', deadline), hint => 'Leave it out, or clear it, for none.');
    END IF;
    IF max_runs <= 0 THEN
        PERFORM easeml.fail('ML001', format('max_runs: expected a positive number, got %s', max_runs), hint => 'Leave it out, or clear it, for no limit.');
    END IF;
    IF max_slots <= 0 THEN
        PERFORM easeml.fail('ML001', format('max_slots: expected a positive number, got %s', max_slots), hint => 'Leave it out, or clear it, for no limit.');
    END IF;
    IF max_bytes <= 0 THEN
        PERFORM easeml.fail('ML001', format('max_bytes: expected a positive number, got %s', max_bytes), hint => 'Leave it out, or clear it, for no limit.');
    END IF;
    IF NOT (max_hours > 0 AND max_hours < 'Infinity') THEN
        PERFORM easeml.fail('ML001', format('max_hours: expected a positive number, got %s', max_hours), hint => 'Leave it out, or clear it, for no limit.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_tenant(double precision, timestamptz, integer, integer, bigint, double precision) IS
    'Refuses settings that no tenant can have; NULL passes (internal).';

CREATE FUNCTION easeml.tenant_named(role text) RETURNS name LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- A tenant whose role is gone, or bears another name now, is found by its own name.
    RETURN coalesce((SELECT t.tenant FROM easeml.tenant_roles t WHERE t.role = to_regrole(quote_ident(tenant_named.role))),
        (SELECT t.tenant FROM easeml.tenants t WHERE t.tenant::text = tenant_named.role));
END
$$;
COMMENT ON FUNCTION easeml.tenant_named(text) IS 'Returns the tenant that a role is, or that had settings under that name; NULL if there is none (internal).';

CREATE FUNCTION easeml.find_tenant(role text) RETURNS easeml.tenants LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    found easeml.tenants;
BEGIN
    -- Lock the row, so that no run of the tenant starts meanwhile.
    SELECT t.* INTO found FROM easeml.tenants t WHERE t.tenant = easeml.tenant_named(role) FOR UPDATE;
    IF found.tenant IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no tenant %s', quote_nullable(role)),
            hint => coalesce((SELECT format('The role exists; make it one: SELECT easeml.create_tenant(%L).', r.rolname) FROM pg_catalog.pg_roles r WHERE r.rolname::text = find_tenant.role),
                'SELECT tenant FROM easeml.tenant_status lists them.'));
    END IF;
    RETURN found;
EXCEPTION WHEN lock_not_available THEN
    PERFORM easeml.fail('ML016', format('tenant %s starts a run in a transaction that is still open', role),
        hint => 'Try again, or end that session: pg_stat_activity shows it, pg_terminate_backend(pid) ends it.');
END
$$;
COMMENT ON FUNCTION easeml.find_tenant(text) IS 'Returns and locks the row of a tenant, or raises an error (internal).';

-- SECURITY DEFINER, because easeml_admin may not grant easeml_tenant; the function grants it, writes the row, and does no more.
CREATE FUNCTION easeml.create_tenant(
    role text,
    weight double precision DEFAULT 1,
    deadline timestamptz DEFAULT NULL,
    max_runs integer DEFAULT NULL,
    max_slots integer DEFAULT NULL,
    max_bytes bigint DEFAULT NULL,
    max_hours double precision DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    account pg_catalog.pg_roles;
BEGIN
    SELECT r.* INTO account FROM pg_catalog.pg_roles r WHERE r.rolname::text = create_tenant.role;
    IF account.rolname IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no role %s', quote_nullable(role)), hint => 'Create it first: CREATE ROLE name LOGIN.');
    -- A superuser bypasses row-level security and can disable triggers, so limits would not hold.
    ELSIF account.rolsuper THEN
        PERFORM easeml.fail('ML004', format('role %s is a superuser, whom no limit binds', role), hint => 'Let it work under a role of its own.');
    -- A grant to a group reaches all its members: those of easeml_reader would become tenants unasked.
    ELSIF account.rolname ~ '^pg_' OR account.rolname IN ('easeml_admin', 'easeml_coordinator', 'easeml_reader') OR pg_has_role('easeml_tenant', account.oid, 'MEMBER') THEN
        PERFORM easeml.fail('ML004', format('role %s is a group of roles with a meaning of its own', role), hint => 'Name one of its members.');
    END IF;
    IF weight IS NULL THEN
        PERFORM easeml.fail('ML001', 'weight: expected a positive number, got NULL', hint => 'Leave it out for 1.');
    END IF;
    PERFORM easeml.check_tenant(weight, deadline, max_runs, max_slots, max_bytes, max_hours);
    INSERT INTO easeml.tenants (tenant, weight, deadline, max_runs, max_slots, max_bytes, max_hours)
    VALUES (easeml.register_tenant(account.rolname), create_tenant.weight, create_tenant.deadline, create_tenant.max_runs, create_tenant.max_slots, create_tenant.max_bytes, create_tenant.max_hours)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML004', format('role %s is a tenant already', role), hint => format('Change it: SELECT easeml.alter_tenant(%L, ...).', role));
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_auth_members m WHERE m.roleid = 'easeml_tenant'::regrole AND m.member = account.oid) THEN
        EXECUTE format('GRANT easeml_tenant TO %I', account.rolname);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.create_tenant(text, double precision, timestamptz, integer, integer, bigint, double precision) IS
$$Makes an existing role a tenant: grants it easeml_tenant and records its weight, deadline and limits. NULL means no deadline or no limit.
weight: share of the slots relative to other tenants. deadline: when its runs should have ended. max_runs: queued and running runs at a time.
max_slots: slots at a time. max_bytes: packed blocks and kept states. max_hours: slot hours of all its units.$$;

CREATE FUNCTION easeml.alter_tenant(
    role text,
    weight double precision DEFAULT NULL,
    deadline timestamptz DEFAULT NULL,
    max_runs integer DEFAULT NULL,
    max_slots integer DEFAULT NULL,
    max_bytes bigint DEFAULT NULL,
    max_hours double precision DEFAULT NULL,
    clear text[] DEFAULT '{}'
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    settings text[] := ARRAY['weight', 'deadline', 'max_runs', 'max_slots', 'max_bytes', 'max_hours'];
    given text[] := array_remove(ARRAY[CASE WHEN weight IS NOT NULL THEN 'weight' END, CASE WHEN deadline IS NOT NULL THEN 'deadline' END,
        CASE WHEN max_runs IS NOT NULL THEN 'max_runs' END, CASE WHEN max_slots IS NOT NULL THEN 'max_slots' END,
        CASE WHEN max_bytes IS NOT NULL THEN 'max_bytes' END, CASE WHEN max_hours IS NOT NULL THEN 'max_hours' END], NULL);
    setting text;
    old easeml.tenants;
BEGIN
    clear := coalesce(clear, '{}');
    FOREACH setting IN ARRAY clear LOOP
        IF setting IS NULL OR setting <> ALL (settings) THEN
            PERFORM easeml.fail('ML001', format('clear: expected names of settings, got %s', quote_nullable(setting)), hint => 'There are: ' || array_to_string(settings, ', ') || '.');
        ELSIF setting = ANY (given) THEN
            PERFORM easeml.fail('ML001', format('clear: %s is set and cleared at once', setting), hint => 'Say one of the two.');
        END IF;
    END LOOP;
    PERFORM easeml.check_tenant(weight, deadline, max_runs, max_slots, max_bytes, max_hours);
    old := easeml.find_tenant(role);
    UPDATE easeml.tenants t SET
        weight = CASE WHEN 'weight' = ANY (clear) THEN 1 ELSE coalesce(alter_tenant.weight, t.weight) END,
        deadline = CASE WHEN 'deadline' = ANY (clear) THEN NULL ELSE coalesce(alter_tenant.deadline, t.deadline) END,
        max_runs = CASE WHEN 'max_runs' = ANY (clear) THEN NULL ELSE coalesce(alter_tenant.max_runs, t.max_runs) END,
        max_slots = CASE WHEN 'max_slots' = ANY (clear) THEN NULL ELSE coalesce(alter_tenant.max_slots, t.max_slots) END,
        max_bytes = CASE WHEN 'max_bytes' = ANY (clear) THEN NULL ELSE coalesce(alter_tenant.max_bytes, t.max_bytes) END,
        max_hours = CASE WHEN 'max_hours' = ANY (clear) THEN NULL ELSE coalesce(alter_tenant.max_hours, t.max_hours) END
    WHERE t.tenant = old.tenant;
END
$$;
COMMENT ON FUNCTION easeml.alter_tenant(text, double precision, timestamptz, integer, integer, bigint, double precision, text[]) IS
$$Changes the settings of a tenant that you give and leaves the others. clear: names of settings to reset to their default, for example {deadline,max_runs}.
A lower limit takes nothing back: open runs continue and stored data stays.$$;

-- Revoking needs the same rights as granting.
CREATE FUNCTION easeml.drop_tenant(role text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old easeml.tenants := easeml.find_tenant(role);
    account regrole := (SELECT t.role FROM easeml.tenant_roles t WHERE t.tenant = old.tenant);
    grantor text;
    open_runs text;
BEGIN
    SELECT string_agg(r.run_id::text, ', ' ORDER BY r.run_id) INTO open_runs FROM easeml.runs r WHERE r.tenant = old.tenant AND r.status IN ('queued', 'running');
    IF open_runs IS NOT NULL THEN
        PERFORM easeml.fail('ML004', format('tenant %s has open runs: %s', role, open_runs), hint => 'Wait for them, or cancel them: SELECT easeml.cancel(run_id).');
    END IF;
    DELETE FROM easeml.tenants t WHERE t.tenant = old.tenant;
    -- From PostgreSQL 16 on, each grantor has a grant of its own. A dropped role has none.
    FOR grantor IN SELECT m.grantor::regrole::text FROM pg_catalog.pg_auth_members m
        WHERE m.roleid = 'easeml_tenant'::regrole AND m.member = account LOOP
        EXECUTE format('REVOKE easeml_tenant FROM %s GRANTED BY %s', account, grantor);
    END LOOP;
    IF EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = account AND pg_has_role(r.oid, 'easeml_tenant', 'MEMBER')) THEN
        RAISE WARNING 'role % is still a member of easeml_tenant through another role', account USING hint = 'Until that ends it may go on, with weight 1 and no limits.';
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.drop_tenant(text) IS 'Withdraws easeml_tenant and all settings from a role without open runs. Its datasets, runs and results stay.';

CREATE FUNCTION easeml.adopt_tenant(tenant text, role text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    account regrole := to_regrole(quote_ident(adopt_tenant.role));
    adopted name := (SELECT d.tenant FROM (SELECT t.tenant FROM easeml.tenant_roles t UNION SELECT s.tenant FROM easeml.datasets s UNION SELECT l.tenant FROM easeml.tenants l) d
        WHERE d.tenant::text = adopt_tenant.tenant);
BEGIN
    IF account IS NULL OR adopted IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no %s %s', CASE WHEN account IS NULL THEN 'role' ELSE 'tenant' END, quote_nullable(CASE WHEN account IS NULL THEN role ELSE tenant END)));
    ELSIF EXISTS (SELECT FROM easeml.tenant_roles t JOIN pg_roles r ON r.oid = t.role WHERE t.tenant = adopted AND t.role <> account) THEN
        PERFORM easeml.fail('ML004', format('tenant %s has a role: %s', adopted, (SELECT t.role FROM easeml.tenant_roles t WHERE t.tenant = adopted)),
            hint => 'Only the rows of a role that was dropped can be handed on.');
    ELSIF EXISTS (SELECT FROM easeml.tenant_roles t JOIN easeml.datasets d USING (tenant) WHERE t.role = account AND t.tenant <> adopted) THEN
        PERFORM easeml.fail('ML004', format('role %s has datasets of its own', account), hint => 'Name a role that has none, or drop them first.');
    END IF;
    DELETE FROM easeml.tenant_roles t WHERE t.tenant = adopted OR t.role = account;
    INSERT INTO easeml.tenant_roles (tenant, role) VALUES (adopted, account);
END
$$;
COMMENT ON FUNCTION easeml.adopt_tenant(text, text) IS
    'Hands the datasets, runs and settings of a tenant whose role was dropped to another role, for example to one that was made again under the same name. Administrators only.';

-- functions/tenancy.sql
-- Policies and priors, and what the coordinator records when it opens and closes arms.

CREATE FUNCTION easeml.list_policies(OUT policy text, OUT is_default boolean, OUT arm_rule text, OUT summary text)
RETURNS SETOF record LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.tenancy.policies import list_policies
from easeml_plpy.session import guarded
return guarded(plpy, list_policies)
$$;
COMMENT ON FUNCTION easeml.list_policies() IS 'Lists the policies (internal: read easeml.policies).';

CREATE FUNCTION easeml.list_priors(OUT prior text, OUT is_default boolean, OUT summary text)
RETURNS SETOF record LANGUAGE plpython3u STABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.bandits.priors import list_priors
from easeml_plpy.session import guarded
return guarded(plpy, list_priors)
$$;
COMMENT ON FUNCTION easeml.list_priors() IS 'Lists the priors (internal: read easeml.policies).';

CREATE FUNCTION easeml.current_tenancy(OUT policy text, OUT prior text, OUT seed bigint) RETURNS record LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(t.policy, 'hybrid'), coalesce(t.prior, 'auto'), coalesce(t.seed, 0) FROM (SELECT) d LEFT JOIN easeml.tenancy t ON true
$$;
COMMENT ON FUNCTION easeml.current_tenancy() IS 'Returns the policy, prior and seed in use.';

CREATE FUNCTION easeml.set_policy(policy text, prior text DEFAULT NULL, seed bigint DEFAULT NULL, max_wait_seconds double precision DEFAULT NULL,
    default_max_runs integer DEFAULT NULL) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM easeml.list_policies() p WHERE p.policy = set_policy.policy) THEN
        PERFORM easeml.fail('ML001', format('policy: there is no tenancy policy %s', quote_nullable(policy)),
            hint => (SELECT 'Choose one of: ' || string_agg(p.policy, ', ') || '.' FROM easeml.list_policies() p));
    ELSIF prior IS NOT NULL AND NOT EXISTS (SELECT FROM easeml.list_priors() p WHERE p.prior = set_policy.prior) THEN
        PERFORM easeml.fail('ML001', format('prior: there is no prior %s', quote_literal(prior)),
            hint => (SELECT 'Choose one of: ' || string_agg(p.prior, ', ') || '.' FROM easeml.list_priors() p));
    ELSIF NOT (max_wait_seconds > 0 AND max_wait_seconds <> 'NaN') THEN
        PERFORM easeml.fail('ML001', format('max_wait_seconds: expected a positive number, got %s', max_wait_seconds), hint => '''Infinity'' lets tenants wait for as long as arms of others take.');
    ELSIF default_max_runs <= 0 THEN
        PERFORM easeml.fail('ML001', format('default_max_runs: expected a positive number, got %s', default_max_runs));
    END IF;
    INSERT INTO easeml.tenancy DEFAULT VALUES ON CONFLICT DO NOTHING;
    UPDATE easeml.tenancy t SET policy = set_policy.policy, prior = coalesce(set_policy.prior, t.prior), seed = coalesce(set_policy.seed, t.seed),
        max_wait_seconds = coalesce(set_policy.max_wait_seconds, t.max_wait_seconds), default_max_runs = coalesce(set_policy.default_max_runs, t.default_max_runs),
        changed_at = clock_timestamp();
END
$$;
COMMENT ON FUNCTION easeml.set_policy(text, text, bigint, double precision, integer) IS
    'Sets the policy by which the coordinator chooses, from its next decision on, which run opens its next arm, and the prior of runs that begin later; easeml.policies lists both. max_wait_seconds: how long a tenant without a slot waits for arms of others (60 at first). default_max_runs: queued and running runs at a time of tenants without a limit of their own (100 at first). NULL leaves a setting as it is. Administrators only.';

CREATE FUNCTION easeml.quality(metric text, metric_value double precision, r2 double precision) RETURNS double precision LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    -- greatest and least ignore NULL, and treat NaN as the largest number.
    SELECT CASE WHEN q.value = 'NaN' THEN 0 WHEN q.value IS NOT NULL THEN greatest(0, least(1, q.value)) END
    FROM (SELECT CASE WHEN metric IN ('rmse', 'mae', 'r2') THEN r2 WHEN metric = 'log_loss' THEN exp(-least(metric_value, 700)) ELSE metric_value END) q(value)  -- exp(-746) is an error
$$;
COMMENT ON FUNCTION easeml.quality(text, double precision, double precision) IS
    'Converts a validation metric to a quality from 0 to 1, the scale on which policies compare arms: a share stays as it is, log_loss becomes exp(-x), and rmse and mae become their r2. NaN gives 0, NULL gives NULL.';

CREATE FUNCTION easeml.open_arm(decision jsonb) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    chosen easeml.arms;
    number bigint;
BEGIN
    PERFORM easeml.fence(decision);
    SELECT a.* INTO chosen FROM easeml.arms a JOIN easeml.runs r USING (run_id)
    WHERE a.arm_id = (decision ->> 'arm_id')::bigint AND r.status IN ('queued', 'running') FOR UPDATE OF a SKIP LOCKED FOR SHARE OF r SKIP LOCKED;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML003', format('arm %s is gone, its run is over, or somebody is at it', decision ->> 'arm_id'));
    ELSIF chosen.opening IS NOT NULL THEN
        PERFORM easeml.fail('ML006', format('arm %s was opened meanwhile', chosen.arm_id));
    END IF;
    INSERT INTO easeml.arm_openings (run_id, arm_id, tenant, policy, phase, opening_number, beta, mean, deviation, bound, cost, expected_seconds, best_quality,
        sig, gap, score, pending, n_runs, lease_number)
    SELECT chosen.run_id, chosen.arm_id, chosen.tenant, o.policy, o.phase, o.opening_number, o.beta, o.mean, o.deviation, o.bound, o.cost, o.expected_seconds, o.best_quality,
        o.sig, o.gap, o.score, o.pending, o.n_runs, o.lease_number
    FROM jsonb_to_record(decision) o(policy text, phase text, opening_number integer, beta float8, mean float8, deviation float8, bound float8, cost float8,
        expected_seconds float8, best_quality float8, sig float8, gap float8, score float8, pending bigint[], n_runs integer, lease_number bigint)
    RETURNING decision_id INTO number;
    INSERT INTO easeml.arm_opening_candidates (decision_id, run_id, tenant, is_candidate, is_chosen, best_quality, sig, gap, score, decided_at, policy, phase,
        chosen_gap, chosen_score, n_runs)
    SELECT number, r.run_id, r.tenant, s.is_candidate, s.is_chosen, s.best_quality, s.sig, s.gap, s.score, d.decided_at, d.policy, d.phase, d.gap, d.score, d.n_runs
    FROM jsonb_to_recordset(decision -> 'standings') s(run_id bigint, is_candidate boolean, is_chosen boolean, best_quality float8, sig float8, gap float8, score float8)
    JOIN easeml.runs r USING (run_id) JOIN easeml.arm_openings d ON d.decision_id = number
    FOR KEY SHARE OF r SKIP LOCKED;  -- the coordinator waits for no tenant that is about to drop a run
    INSERT INTO easeml.policy_memory AS m (policy, memory) VALUES (decision ->> 'policy', decision -> 'memory')
    ON CONFLICT (policy) DO UPDATE SET memory = excluded.memory, written_at = clock_timestamp();
    UPDATE easeml.arms a SET opening = number, opened_at = clock_timestamp(), bound = (decision ->> 'bound')::double precision WHERE a.arm_id = chosen.arm_id;
    RETURN number;
END
$$;
COMMENT ON FUNCTION easeml.open_arm(jsonb) IS 'Records a decision and lets the arm''s trials run; refuses if the lease is stale or the run has ended (internal).';

CREATE FUNCTION easeml.close_arm(arm_id bigint, lease_number bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fence(jsonb_build_object('lease_number', lease_number));
    PERFORM FROM easeml.arms a WHERE a.arm_id = close_arm.arm_id FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;  -- gone, or about to be
    END IF;
    UPDATE easeml.arms a SET closing = nextval(pg_get_serial_sequence('easeml.arm_openings', 'decision_id')), closed_at = clock_timestamp(),
        quality = coalesce((
            SELECT easeml.quality(r.metric, t.best_metric_value, m.r2) FROM easeml.trials t JOIN easeml.runs r USING (run_id)
            LEFT JOIN easeml.epoch_metrics m ON m.trial_id = t.trial_id AND m.epoch = t.best_epoch AND m.split = 'validation'
            WHERE t.arm_id = a.arm_id AND t.best_metric_value IS NOT NULL
            ORDER BY CASE WHEN r.is_higher_better THEN -t.best_metric_value ELSE t.best_metric_value END LIMIT 1), 0),
        cost_seconds = (
            SELECT coalesce(sum(extract(epoch FROM w.finished_at - w.started_at)), 0)::double precision FROM easeml.trials t CROSS JOIN LATERAL (
                SELECT u.started_at, u.finished_at FROM easeml.training_units u WHERE u.trial_id = t.trial_id
                UNION ALL SELECT e.started_at, e.finished_at FROM easeml.evaluations e WHERE e.trial_id = t.trial_id) w
            WHERE t.arm_id = a.arm_id)
    WHERE a.arm_id = close_arm.arm_id AND a.opening IS NOT NULL
        AND NOT EXISTS (SELECT FROM easeml.trials t WHERE t.arm_id = a.arm_id AND t.status IN ('waiting', 'running', 'paused'));
END
$$;
COMMENT ON FUNCTION easeml.close_arm(bigint, bigint) IS 'Records the quality and cost of an arm whose trials have all ended: its best validation metric as a quality (0 if nothing was measured), and the seconds of its units (internal).';

CREATE FUNCTION easeml.keep_beliefs(run_id bigint, beliefs jsonb, lease_number bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fence(jsonb_build_object('lease_number', lease_number));
    INSERT INTO easeml.posteriors AS p (arm_id, run_id, tenant, mean, deviation, bound, cost, expected_seconds)
    SELECT a.arm_id, a.run_id, a.tenant, b.mean, b.deviation, b.bound, b.cost, b.expected_seconds
    FROM jsonb_to_recordset(beliefs) b(arm_id bigint, mean float8, deviation float8, bound float8, cost float8, expected_seconds float8)
    JOIN easeml.arms a USING (arm_id) WHERE a.run_id = keep_beliefs.run_id FOR KEY SHARE OF a SKIP LOCKED
    ON CONFLICT (arm_id) DO UPDATE SET mean = excluded.mean, deviation = excluded.deviation, bound = excluded.bound, cost = excluded.cost,
        expected_seconds = excluded.expected_seconds, updated_at = clock_timestamp();
END
$$;
COMMENT ON FUNCTION easeml.keep_beliefs(bigint, jsonb, bigint) IS 'Updates what is believed of a run''s arms (internal).';

-- functions/quotas.sql
-- Limits of tenants. Runs start and resume behind easeml.requests, for a proven caller. Tenants insert blocks themselves, so a trigger
-- counts them, after the rows, once row-level security has let them pass, so that nobody learns another's limits by trying.
-- Limits do not apply to superusers: a restore must bring back all rows.

CREATE FUNCTION easeml.used_hours(tenant name) RETURNS double precision LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT (coalesce((SELECT u.dropped_seconds FROM easeml.tenant_usage u WHERE u.tenant = used_hours.tenant), 0)
        + coalesce((SELECT extract(epoch FROM sum(u.finished_at - u.started_at)) FROM easeml.training_units u WHERE u.tenant = used_hours.tenant)::double precision, 0)
        + coalesce((SELECT extract(epoch FROM sum(e.finished_at - e.started_at)) FROM easeml.evaluations e WHERE e.tenant = used_hours.tenant)::double precision, 0)) / 3600
$$;
COMMENT ON FUNCTION easeml.used_hours(name) IS
    'Returns the slot hours that all recorded units of a tenant took, those of dropped runs included, as far as you may see them (internal: read easeml.tenant_status).';

CREATE FUNCTION easeml.kept_bytes(tenant name) RETURNS bigint LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- The rows hold the lengths, so no value is read; that of an encoder is what the disk holds.
    SELECT least(coalesce((SELECT sum(octet_length(b.inputs)::bigint + octet_length(b.targets) + coalesce(pg_column_size(b.row_keys), pg_column_size(b.row_hashes), 0)) FROM easeml.datasets d JOIN easeml.blocks b USING (dataset_id) WHERE d.tenant = kept_bytes.tenant), 0)
        + coalesce((SELECT sum(pg_column_size(d.encoder)) FROM easeml.datasets d WHERE d.tenant = kept_bytes.tenant), 0)
        + coalesce((SELECT sum(octet_length(e.message)) FROM easeml.events e WHERE e.tenant = kept_bytes.tenant), 0)
        + coalesce((SELECT sum(c.n_bytes) FROM easeml.checkpoints c WHERE c.tenant = kept_bytes.tenant), 0), 9223372036854775807)::bigint
$$;
COMMENT ON FUNCTION easeml.kept_bytes(name) IS 'Returns the bytes of a tenant''s packed blocks, encoders, events and live checkpoints (internal).';

-- Sizes for those who may know how much a tenant keeps but not read it. It is read with the rights of easeml_owner;
-- current_user is who asks.
CREATE VIEW easeml.kept_sizes WITH (security_barrier) AS
SELECT k.tenant, k.n_bytes FROM (SELECT c.tenant, c.n_bytes FROM easeml.checkpoints c
    UNION ALL SELECT d.tenant, pg_column_size(d.encoder) FROM easeml.datasets d
    UNION ALL SELECT e.tenant, octet_length(e.message) FROM easeml.events e) k
WHERE k.tenant = (SELECT easeml.current_tenant()) OR (SELECT pg_has_role('easeml_reader', 'USAGE') OR pg_has_role('easeml_coordinator', 'USAGE'));
COMMENT ON VIEW easeml.kept_sizes IS 'Sizes of the stored states, encoders and events whose tenants you may know (internal: read easeml.tenant_status).';
COMMENT ON COLUMN easeml.kept_sizes.tenant IS 'Tenant that owns it.';
COMMENT ON COLUMN easeml.kept_sizes.n_bytes IS 'Its size.';

CREATE FUNCTION easeml.used_bytes(tenant name) RETURNS bigint LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF tenant IS DISTINCT FROM easeml.current_tenant() AND NOT pg_has_role('easeml_reader', 'USAGE') AND NOT pg_has_role('easeml_coordinator', 'USAGE') THEN
        RETURN NULL;
    END IF;
    RETURN least((SELECT coalesce(sum(p.n_bytes), 0) FROM easeml.partitions p WHERE p.tenant = used_bytes.tenant)
        + (SELECT coalesce(sum(s.n_bytes), 0) FROM easeml.kept_sizes s WHERE s.tenant = used_bytes.tenant), 9223372036854775807);
END
$$;
COMMENT ON FUNCTION easeml.used_bytes(name) IS 'Returns the bytes that a tenant keeps, or NULL if you may not know (internal: read easeml.tenant_status).';

CREATE FUNCTION easeml.is_bound_by_limits(role name) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT NOT r.rolsuper FROM pg_roles r WHERE r.rolname = role);
END
$$;
COMMENT ON FUNCTION easeml.is_bound_by_limits(name) IS 'Says whether limits apply to what a role does: to everybody but superusers (internal).';

CREATE FUNCTION easeml.check_run_limits(caller name, asker name) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    limits easeml.tenants;
    most_runs integer;
    used numeric;
BEGIN
    IF NOT easeml.is_bound_by_limits(caller) THEN
        RETURN;
    END IF;
    -- Transactions that start runs of one tenant queue up here, at the row of its role if it has no settings. The row is written,
    -- not only locked, so that a transaction with an older snapshot (REPEATABLE READ) fails instead of missing the run that started meanwhile.
    UPDATE easeml.tenants t SET weight = t.weight WHERE t.tenant = asker RETURNING t.* INTO limits;
    IF FOUND THEN
        most_runs := limits.max_runs;
    ELSE
        UPDATE easeml.tenant_roles r SET since = r.since WHERE r.tenant = asker;
        most_runs := coalesce((SELECT y.default_max_runs FROM easeml.tenancy y), 100);
    END IF;
    IF most_runs IS NOT NULL THEN
        SELECT count(*) + 1 INTO used FROM easeml.runs r WHERE r.tenant = asker AND r.status IN ('queued', 'running');
        IF used > most_runs THEN
            PERFORM easeml.fail('ML015', format('max_runs: %s may have %s open run(s) at a time, and this would make %s', asker, most_runs, used),
                hint => 'Wait for one, cancel one with easeml.cancel(run_id), or ask an administrator for more.');
        END IF;
    END IF;
    IF limits.max_hours IS NOT NULL THEN
        used := easeml.used_hours(asker);
        IF used >= limits.max_hours THEN
            PERFORM easeml.fail('ML015', format('max_hours: %s may use %s slot hour(s), and has used %s', asker, limits.max_hours, round(used, 4)),
                hint => 'Runs under way go on. Ask an administrator for more.');
        END IF;
    END IF;
    IF limits.max_bytes IS NOT NULL THEN
        used := easeml.kept_bytes(asker);
        IF used >= limits.max_bytes THEN
            PERFORM easeml.fail('ML015', format('max_bytes: %s may keep %s bytes of packed data and states, and keeps %s', asker, limits.max_bytes, used),
                hint => 'Remove what is not needed with easeml.drop_run or easeml.drop_dataset, or ask an administrator for more.');
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_run_limits(name, name) IS 'Refuses a further open run beyond the limits of its tenant (internal).';

CREATE FUNCTION easeml.check_kept_bytes(tenant name) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most bigint := (SELECT t.max_bytes FROM easeml.tenants t WHERE t.tenant = check_kept_bytes.tenant);
    used bigint := CASE WHEN most IS NOT NULL THEN easeml.kept_bytes(tenant) END;
BEGIN
    IF used > most THEN
        PERFORM easeml.fail('ML015', format('max_bytes: %s may keep %s bytes of packed data and states, and this would make at least %s', tenant, most, used),
            hint => 'Remove what is not needed with easeml.drop_run or easeml.drop_dataset, or ask an administrator for more.');
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.check_kept_bytes(name) IS 'Refuses what a tenant keeps beyond its limit (internal).';

CREATE FUNCTION easeml.check_byte_limit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    added_tenant name;
BEGIN
    FOR added_tenant IN SELECT t.tenant FROM easeml.tenants t WHERE t.max_bytes IS NOT NULL AND t.tenant IN (SELECT a.tenant FROM added a) LOOP
        -- Partitions come last: a transaction that packs at the same time waits here, and then counts this dataset, too. The row is
        -- written, so that one with an older snapshot, which cannot count it, fails.
        IF TG_TABLE_NAME = 'partitions' THEN
            UPDATE easeml.tenants t SET weight = t.weight WHERE t.tenant = added_tenant;
        END IF;
        PERFORM easeml.check_kept_bytes(added_tenant);
    END LOOP;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.check_byte_limit() IS 'Refuses packed data beyond the tenant''s limit (trigger).';
-- The condition is evaluated for whoever inserts: easeml_owner adds the partitions, a tenant the blocks, a superuser who restores a dump both.
CREATE TRIGGER block_bytes AFTER INSERT ON easeml.blocks REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT WHEN (easeml.is_bound_by_limits(current_user)) EXECUTE FUNCTION easeml.check_byte_limit();
CREATE TRIGGER partition_bytes AFTER INSERT ON easeml.partitions REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT WHEN (easeml.is_bound_by_limits(current_user)) EXECUTE FUNCTION easeml.check_byte_limit();

CREATE FUNCTION easeml.keep_hours() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO easeml.tenant_usage AS u (tenant, dropped_seconds)
    SELECT OLD.tenant, extract(epoch FROM sum(s.seconds))::double precision
    FROM (SELECT t.finished_at - t.started_at AS seconds FROM easeml.training_units t WHERE t.run_id = OLD.run_id
        UNION ALL SELECT e.finished_at - e.started_at FROM easeml.evaluations e WHERE e.run_id = OLD.run_id) s
    HAVING count(*) > 0
    ON CONFLICT (tenant) DO UPDATE SET dropped_seconds = u.dropped_seconds + EXCLUDED.dropped_seconds;
    RETURN OLD;
END
$$;
COMMENT ON FUNCTION easeml.keep_hours() IS 'Adds the slot seconds of a dropped run to what its tenant has used (trigger).';
CREATE TRIGGER run_hours BEFORE DELETE ON easeml.runs FOR EACH ROW EXECUTE FUNCTION easeml.keep_hours();

-- The service may add to what a tenant has used, and nothing else.
CREATE FUNCTION easeml.charge(tenant name, seconds double precision) RETURNS name LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO easeml.tenant_usage AS u (tenant, dropped_seconds) VALUES (charge.tenant, greatest(charge.seconds, 0))
    ON CONFLICT (tenant) DO UPDATE SET dropped_seconds = u.dropped_seconds + EXCLUDED.dropped_seconds RETURNING u.tenant
$$;
COMMENT ON FUNCTION easeml.charge(name, double precision) IS 'Adds slot seconds of units that came to nothing to what a tenant has used (internal).';

-- functions/allocation.sql
-- Records what a coordinator decides about trial groups.

CREATE FUNCTION easeml.keep_allocations(journal jsonb) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs;
BEGIN
    PERFORM easeml.fence(journal);
    -- The coordinator waits for no tenant that locks the run: the decision holds anyway, and this only records it.
    SELECT r.* INTO run FROM easeml.runs r WHERE r.run_id = (journal ->> 'run_id')::bigint FOR KEY SHARE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO easeml.trial_groups (run_id, tenant, lease_number, group_number, label, n_trials)
    SELECT run.run_id, run.tenant, (journal ->> 'lease_number')::bigint, g.group_number, g.label, g.n_trials
    FROM jsonb_to_recordset(journal -> 'groups') g(group_number integer, label text, n_trials integer) ON CONFLICT DO NOTHING;
    INSERT INTO easeml.allocations (group_id, trial_id, run_id, tenant, width, devices, slot_ids, reason)
    SELECT g.group_id, t.trial_id, run.run_id, run.tenant, a.width, a.devices, a.slot_ids, a.reason
    FROM jsonb_to_recordset(journal -> 'decisions') a(group_number integer, trial_id bigint, width float8, devices text[], slot_ids integer[], reason text)
    JOIN easeml.trial_groups g ON g.run_id = run.run_id AND g.lease_number = (journal ->> 'lease_number')::bigint AND g.group_number = a.group_number
    JOIN easeml.trials t ON t.trial_id = a.trial_id AND t.run_id = run.run_id;
    UPDATE easeml.trial_groups g SET ended_at = clock_timestamp()
    WHERE g.run_id = run.run_id AND g.lease_number = (journal ->> 'lease_number')::bigint
        AND g.group_number IN (SELECT e.value::integer FROM jsonb_array_elements_text(journal -> 'ended') e);
END
$$;
COMMENT ON FUNCTION easeml.keep_allocations(jsonb) IS 'Records new trial groups, allocations, and groups that have ended; refuses if the lease is stale (internal).';

-- views/datasets.sql
-- BI tools read views: flat, typed, and under the row-level security of the reader.

CREATE VIEW easeml.dataset_info WITH (security_invoker) AS
SELECT d.dataset_id, d.tenant::text AS tenant, d.dataset_name, d.version, d.source, d.input_columns, d.target_column, d.task, d.input_shape, d.n_outputs,
    d.n_partitions, p.n_train_rows, p.n_validation_rows, p.n_test_rows, d.n_skipped_rows, p.n_bytes, d.seed, d.created_at, d.packing_seconds,
    d.version = max(d.version) OVER (PARTITION BY d.tenant, d.dataset_name) AS is_newest,
    (SELECT count(*) FROM easeml.runs r WHERE r.dataset_id = d.dataset_id) AS n_runs,
    d.placement, (SELECT min(c.n) FROM (SELECT count(*) AS n FROM easeml.replicas r WHERE r.dataset_id = d.dataset_id GROUP BY r.partition_number) c) AS replication_factor,
    d.explanations, d.options - '{task,input_shape,block_rows}'::text[] AS split_options, d.row_key
FROM easeml.datasets d
LEFT JOIN (SELECT dataset_id, sum(n_train_rows)::bigint AS n_train_rows, sum(n_validation_rows)::bigint AS n_validation_rows,
               sum(n_test_rows)::bigint AS n_test_rows, sum(n_bytes)::bigint AS n_bytes
           FROM easeml.partitions GROUP BY dataset_id) p USING (dataset_id);
COMMENT ON VIEW easeml.dataset_info IS 'Your datasets with their sizes, one row for each version.';

CREATE VIEW easeml.partition_status WITH (security_invoker) AS
SELECT p.dataset_id, d.tenant::text AS tenant, d.dataset_name, d.version, p.partition_number, p.n_train_rows, p.n_validation_rows, p.n_test_rows, p.n_bytes,
    CASE d.placement WHEN 'bound' THEN ARRAY(SELECT g.segment_name FROM easeml.replicas c JOIN easeml.segments g USING (segment_id)
        WHERE c.dataset_id = p.dataset_id AND c.partition_number = p.partition_number ORDER BY g.segment_id) END AS holders
FROM easeml.partitions p JOIN easeml.datasets d USING (dataset_id);
COMMENT ON VIEW easeml.partition_status IS 'Partitions of datasets, with their sizes and the segments that hold them.';

CREATE VIEW easeml.architectures WITH (security_invoker) AS
SELECT a.architecture, a.trainer, a.tasks, a.input_ranks, a.summary, a.hyperparameters FROM easeml.list_architectures() a;
COMMENT ON VIEW easeml.architectures IS 'Architectures that easeml.select_models can train, with their hyperparameters.';

CREATE VIEW easeml.metrics WITH (security_invoker) AS
SELECT m.metric, m.task, m.is_higher_better, m.is_default, m.summary FROM easeml.list_metrics() m;
COMMENT ON VIEW easeml.metrics IS 'Metrics by which a run can rank its trials.';

COMMENT ON COLUMN easeml.dataset_info.placement IS 'shared (every slot may run every partition) or bound (only slots of its segments run a partition).';
COMMENT ON COLUMN easeml.dataset_info.replication_factor IS 'Least number of segments that hold a partition; null if the dataset is shared.';

COMMENT ON COLUMN easeml.partition_status.dataset_id IS 'Version of the dataset, see easeml.dataset_info.';
COMMENT ON COLUMN easeml.partition_status.tenant IS 'Tenant that owns the dataset.';
COMMENT ON COLUMN easeml.partition_status.dataset_name IS 'Name of the dataset.';
COMMENT ON COLUMN easeml.partition_status.version IS 'Version of the dataset.';
COMMENT ON COLUMN easeml.partition_status.partition_number IS 'Number of the partition, from 0.';
COMMENT ON COLUMN easeml.partition_status.n_train_rows IS 'Rows to train on.';
COMMENT ON COLUMN easeml.partition_status.n_validation_rows IS 'Rows that rank trials.';
COMMENT ON COLUMN easeml.partition_status.n_test_rows IS 'Rows that no choice sees.';
COMMENT ON COLUMN easeml.partition_status.n_bytes IS 'Packed size in bytes.';
COMMENT ON COLUMN easeml.partition_status.holders IS 'Segments that hold it; null if every slot may run it.';

COMMENT ON COLUMN easeml.dataset_info.explanations IS 'By input column, what it became (number, time, categories, words, pieces of characters, array, or left out) and why.';
COMMENT ON COLUMN easeml.dataset_info.split_options IS 'The arguments of easeml.create_dataset that say how rows are split and named; empty: at random.';
COMMENT ON COLUMN easeml.dataset_info.row_key IS 'SQL of what names a row of the source: JOIN easeml.dataset_rows(dataset) r ON r.row_key = this.';
COMMENT ON COLUMN easeml.dataset_info.dataset_id IS 'Number of this version.';
COMMENT ON COLUMN easeml.dataset_info.tenant IS 'Tenant that owns the dataset.';
COMMENT ON COLUMN easeml.dataset_info.dataset_name IS 'Name, unique for its tenant.';
COMMENT ON COLUMN easeml.dataset_info.version IS '1, and one more for each easeml.refresh_dataset.';
COMMENT ON COLUMN easeml.dataset_info.source IS 'Table or view that was packed.';
COMMENT ON COLUMN easeml.dataset_info.input_columns IS 'Columns that models see.';
COMMENT ON COLUMN easeml.dataset_info.target_column IS 'Column to predict.';
COMMENT ON COLUMN easeml.dataset_info.task IS 'classification or regression.';
COMMENT ON COLUMN easeml.dataset_info.input_shape IS 'Shape of one encoded example.';
COMMENT ON COLUMN easeml.dataset_info.n_outputs IS 'Number of classes; 1 for regression.';
COMMENT ON COLUMN easeml.dataset_info.n_partitions IS 'Number of parts that train side by side.';
COMMENT ON COLUMN easeml.dataset_info.n_train_rows IS 'Rows to train on.';
COMMENT ON COLUMN easeml.dataset_info.n_validation_rows IS 'Rows that rank trials.';
COMMENT ON COLUMN easeml.dataset_info.n_test_rows IS 'Rows that no choice sees.';
COMMENT ON COLUMN easeml.dataset_info.n_skipped_rows IS 'Rows left out for a NULL target.';
COMMENT ON COLUMN easeml.dataset_info.n_bytes IS 'Packed size in bytes.';
COMMENT ON COLUMN easeml.dataset_info.seed IS 'Seed of shuffle and split.';
COMMENT ON COLUMN easeml.dataset_info.created_at IS 'When it was packed.';
COMMENT ON COLUMN easeml.dataset_info.packing_seconds IS 'Seconds that packing took.';
COMMENT ON COLUMN easeml.dataset_info.is_newest IS 'Whether new runs use this version.';
COMMENT ON COLUMN easeml.dataset_info.n_runs IS 'Number of runs on this version.';

COMMENT ON COLUMN easeml.architectures.architecture IS 'What easeml.select_models takes.';
COMMENT ON COLUMN easeml.architectures.trainer IS 'torch (gradient descent, also on several slots at once) or partial_fit (scikit-learn).';
COMMENT ON COLUMN easeml.architectures.tasks IS 'Tasks that it can learn.';
COMMENT ON COLUMN easeml.architectures.input_ranks IS 'Ranks of the input shapes that it accepts; empty: any.';
COMMENT ON COLUMN easeml.architectures.summary IS 'What it is, in a sentence.';
COMMENT ON COLUMN easeml.architectures.hyperparameters IS 'Hyperparameters with legal values, defaults and default search ranges.';

COMMENT ON COLUMN easeml.metrics.metric IS 'What easeml.select_models takes.';
COMMENT ON COLUMN easeml.metrics.task IS 'Task that it measures.';
COMMENT ON COLUMN easeml.metrics.is_higher_better IS 'Whether a higher value is better.';
COMMENT ON COLUMN easeml.metrics.is_default IS 'Whether a run of that task uses it by default.';
COMMENT ON COLUMN easeml.metrics.summary IS 'What it measures.';

-- views/runs.sql
CREATE VIEW easeml.run_status WITH (security_invoker) AS
SELECT r.run_id, r.tenant::text AS tenant, d.dataset_name, d.version AS dataset_version,
    CASE WHEN r.status = 'running' AND NOT easeml.has_live_coordinator() THEN 'interrupted' ELSE r.status END AS status,
    r.procedure, r.metric, r.max_epochs, r.seed,
    t.n_trials, t.n_finished, t.n_failed, t.n_units_done, w.n_units,
    round(100.0 * t.n_units_done / nullif(w.n_units, 0), 1)::double precision AS percent_done,
    b.trial_id AS best_trial_id, b.best_metric_value,
    r.created_at, r.started_at, r.finished_at,
    extract(epoch FROM coalesce(r.finished_at, clock_timestamp()) - r.started_at)::double precision AS elapsed_seconds,
    r.failure_reason, r.scheduler, r.visit_order, r.planned_scheduler, r.simulated_seconds, r.bound_seconds,
    t.n_paused, t.n_stopped, r.procedure_options, r.allocation
FROM easeml.runs r
JOIN easeml.datasets d USING (dataset_id)
LEFT JOIN LATERAL (
    SELECT count(*) AS n_trials, count(*) FILTER (WHERE status = 'finished') AS n_finished, count(*) FILTER (WHERE status = 'failed') AS n_failed,
        count(*) FILTER (WHERE status = 'paused') AS n_paused, count(*) FILTER (WHERE status = 'stopped') AS n_stopped,
        least(coalesce(sum(n_steps_done - 2 * inherited_epochs * d.n_partitions::bigint), 0), 9223372036854775807)::bigint AS n_units_done,
        -- Only a trial that trains to its end is tested.
        count(*) FILTER (WHERE n_steps_done > 2 * max_epochs * d.n_partitions::bigint OR target_epochs = max_epochs AND status IN ('waiting', 'running')) AS n_tests
    FROM easeml.trials WHERE run_id = r.run_id) t ON true
LEFT JOIN LATERAL (
    -- The trials of a search with a time limit are as many as there is time for: at the pace so far.
    SELECT CASE WHEN r.search IS NULL THEN t.n_trials * (2 * r.max_epochs + 1) * d.n_partitions
        WHEN r.status = 'running' AND r.max_seconds IS NOT NULL
            THEN least(ceil(t.n_units_done * least(r.max_seconds, 1e9) / greatest(extract(epoch FROM clock_timestamp() - r.started_at), 0.001)), 9e18)::bigint
        WHEN r.status IN ('queued', 'running') AND r.max_seconds IS NULL
            THEN least((2 * sum(a.planned_epochs) + t.n_tests) * d.n_partitions, 9223372036854775807)::bigint END AS n_planned
    FROM easeml.arms a WHERE a.run_id = r.run_id) q ON true
LEFT JOIN LATERAL (SELECT greatest(coalesce(q.n_planned, t.n_units_done), t.n_units_done) AS n_units) w ON true
LEFT JOIN LATERAL (
    SELECT trial_id, best_metric_value FROM easeml.trials WHERE run_id = r.run_id AND best_metric_value IS NOT NULL
    ORDER BY CASE WHEN r.is_higher_better THEN -best_metric_value ELSE best_metric_value END, best_loss, architecture <> 'ensemble', trial_number LIMIT 1) b ON true;
COMMENT ON VIEW easeml.run_status IS 'Runs with their progress. A run is interrupted if it is running and no coordinator is alive.';

CREATE VIEW easeml.schedulers WITH (security_invoker) AS
SELECT s.scheduler, s.needs_free_order, s.needs_single_holders, s.is_default, s.summary FROM easeml.list_schedulers() s;
COMMENT ON VIEW easeml.schedulers IS 'Schedulers that easeml.select_models accepts.';

CREATE VIEW easeml.procedures WITH (security_invoker) AS
SELECT p.procedure, p.is_one_shot, p.options, p.summary FROM easeml.list_procedures() p;
COMMENT ON VIEW easeml.procedures IS 'Procedures that easeml.select_models accepts, with their options; easeml.preview_procedure shows what one would train.';

CREATE VIEW easeml.leaderboard WITH (security_invoker) AS
SELECT t.run_id, CASE WHEN t.best_metric_value IS NOT NULL THEN
        rank() OVER (PARTITION BY t.run_id ORDER BY CASE WHEN r.is_higher_better THEN -t.best_metric_value ELSE t.best_metric_value END NULLS LAST, t.best_loss, t.architecture <> 'ensemble') END AS rank,
    t.trial_id, t.trial_number, d.dataset_name, t.architecture, t.status,
    r.metric, t.best_metric_value AS validation_metric, e.metric_value AS test_metric, t.best_epoch,
    coalesce(m.epoch, t.inherited_epochs) AS n_epochs_done, t.max_epochs,
    p.trial_id IS NOT NULL AS is_deployed,
    u.training_seconds, t.config, t.failure_reason, t.tenant::text AS tenant,
    coalesce(t.target_epochs, t.max_epochs) AS target_epochs, t.parent_trial_id, t.bracket,
    b.n_classes AS n_validation_classes, e.n_classes AS n_test_classes, b.metric_error AS validation_error
FROM easeml.trials t
JOIN easeml.runs r USING (run_id)
JOIN easeml.datasets d USING (dataset_id)
LEFT JOIN easeml.epoch_metrics e ON e.trial_id = t.trial_id AND e.epoch = t.best_epoch AND e.split = 'test'
LEFT JOIN easeml.epoch_metrics b ON b.trial_id = t.trial_id AND b.epoch = t.best_epoch AND b.split = 'validation'
LEFT JOIN LATERAL (SELECT max(epoch) AS epoch FROM easeml.epoch_metrics v WHERE v.trial_id = t.trial_id AND v.split = 'validation') m ON true
LEFT JOIN LATERAL (SELECT sum(training_seconds) AS training_seconds FROM easeml.training_units s WHERE s.trial_id = t.trial_id) u ON true
LEFT JOIN easeml.deployments p ON p.trial_id = t.trial_id;
COMMENT ON VIEW easeml.leaderboard IS 'Trials of each run, best first by the validation metric of their best epoch, where it is equal by the loss. test_metric measures the same epoch on rows that no choice has seen.';

CREATE VIEW easeml.learning_curves WITH (security_invoker) AS
SELECT t.run_id, t.trial_id, t.trial_number, t.architecture, e.epoch, l.training_loss, r.metric, e.metric_value AS validation_metric,
    e.accuracy, e.balanced_accuracy, e.macro_f1, e.log_loss, e.rmse, e.mae, e.r2, e.measured_at,
    extract(epoch FROM e.measured_at - r.started_at)::double precision AS elapsed_seconds, l.training_seconds, t.tenant::text AS tenant, e.n_classes, e.metric_error AS validation_error
FROM easeml.epoch_metrics e
JOIN easeml.trials t USING (trial_id)
JOIN easeml.runs r ON r.run_id = t.run_id
LEFT JOIN LATERAL (
    SELECT sum(u.loss * u.n_rows) / nullif(sum(u.n_rows), 0) AS training_loss, sum(u.training_seconds) AS training_seconds
    FROM easeml.training_units u WHERE u.trial_id = e.trial_id AND u.epoch = e.epoch) l ON true
WHERE e.split = 'validation';
COMMENT ON VIEW easeml.learning_curves IS 'Training loss and validation metrics of each trial after each epoch.';

CREATE VIEW easeml.trial_metrics WITH (security_invoker) AS
SELECT t.run_id, t.trial_id, t.trial_number, d.dataset_name, t.architecture, e.split, e.epoch, e.n_rows, r.metric, e.metric_value,
    e.accuracy, e.balanced_accuracy, e.macro_f1, e.log_loss, e.rmse, e.mae, e.r2, e.measured_at, t.tenant::text AS tenant
FROM easeml.trials t
JOIN easeml.runs r USING (run_id)
JOIN easeml.datasets d USING (dataset_id)
JOIN easeml.epoch_metrics e ON e.trial_id = t.trial_id AND e.epoch = t.best_epoch;
COMMENT ON VIEW easeml.trial_metrics IS 'All metrics of the best epoch of each trial, as its units measured them: a row for validation, and one for test where it is measured. easeml.evaluate measures many more.';

CREATE VIEW easeml.training_timeline WITH (security_invoker) AS
SELECT u.run_id, u.trial_id, t.trial_number, t.architecture, 'train'::text AS kind, u.epoch, u.position, u.partition_number, u.slot_id, u.attempt,
    u.started_at, u.finished_at, extract(epoch FROM u.finished_at - u.started_at)::double precision AS seconds, u.training_seconds,
    u.n_rows, u.loss, u.state_bytes, u.state_sha256, u.tenant::text AS tenant, u.n_slots, coalesce(u.stack[1], 1) AS n_stacked
FROM easeml.training_units u JOIN easeml.trials t USING (trial_id)
UNION ALL
SELECT v.run_id, v.trial_id, t.trial_number, t.architecture, CASE v.split WHEN 'validation' THEN 'validate' ELSE 'test' END, v.epoch, NULL, v.partition_number, v.slot_id, v.attempt,
    v.started_at, v.finished_at, extract(epoch FROM v.finished_at - v.started_at)::double precision, NULL,
    v.n_rows, NULL, NULL, NULL, v.tenant::text, v.n_slots, 1
FROM easeml.evaluations v JOIN easeml.trials t USING (trial_id);
COMMENT ON VIEW easeml.training_timeline IS 'Every recorded unit with its slot and times: the Gantt chart of a run.';

CREATE VIEW easeml.run_events WITH (security_invoker) AS
SELECT e.event_id, e.happened_at, e.run_id, e.trial_id, e.kind, e.message, e.tenant::text AS tenant FROM easeml.events e;
COMMENT ON VIEW easeml.run_events IS 'What happened to runs and trials, in words.';

COMMENT ON COLUMN easeml.run_status.run_id IS 'Number that easeml.select_models returned.';
COMMENT ON COLUMN easeml.run_status.tenant IS 'Tenant that owns the run.';
COMMENT ON COLUMN easeml.run_status.dataset_name IS 'Dataset that the run searches on.';
COMMENT ON COLUMN easeml.run_status.dataset_version IS 'Version of the dataset.';
COMMENT ON COLUMN easeml.run_status.status IS 'queued, running, interrupted, finished, failed or cancelled.';
COMMENT ON COLUMN easeml.run_status.procedure IS 'How the run chooses configs, one of easeml.procedures.';
COMMENT ON COLUMN easeml.run_status.metric IS 'Metric that ranks the trials.';
COMMENT ON COLUMN easeml.run_status.max_epochs IS 'Largest number of epochs of a trial.';
COMMENT ON COLUMN easeml.run_status.seed IS 'Seed of configs, states and order.';
COMMENT ON COLUMN easeml.run_status.n_trials IS 'Number of trials so far.';
COMMENT ON COLUMN easeml.run_status.n_finished IS 'Number of trials that trained to their end.';
COMMENT ON COLUMN easeml.run_status.n_failed IS 'Number of trials that failed.';
COMMENT ON COLUMN easeml.run_status.n_units_done IS 'Number of recorded units.';
COMMENT ON COLUMN easeml.run_status.n_units IS 'Number of units in all; an upper limit if the procedure decides as the run goes on, an estimate from the time left if that is limited.';
COMMENT ON COLUMN easeml.run_status.percent_done IS 'Recorded share of the units.';
COMMENT ON COLUMN easeml.run_status.best_trial_id IS 'Best trial so far.';
COMMENT ON COLUMN easeml.run_status.best_metric_value IS 'Validation metric of the best trial.';
COMMENT ON COLUMN easeml.run_status.created_at IS 'When easeml.select_models was called.';
COMMENT ON COLUMN easeml.run_status.started_at IS 'When the first unit started.';
COMMENT ON COLUMN easeml.run_status.finished_at IS 'When the run ended.';
COMMENT ON COLUMN easeml.run_status.elapsed_seconds IS 'Seconds since started_at, until finished_at if the run has ended.';
COMMENT ON COLUMN easeml.run_status.failure_reason IS 'Why the run failed.';

COMMENT ON COLUMN easeml.run_status.scheduler IS 'Scheduler that was asked for.';
COMMENT ON COLUMN easeml.run_status.visit_order IS 'cyclic or free, see easeml.select_models.';
COMMENT ON COLUMN easeml.run_status.planned_scheduler IS 'Scheduler in use.';
COMMENT ON COLUMN easeml.run_status.simulated_seconds IS 'Simulated makespan of the work that was left when the scheduler was chosen.';
COMMENT ON COLUMN easeml.run_status.bound_seconds IS 'Lower bound of that makespan: no schedule is shorter.';

COMMENT ON COLUMN easeml.run_status.n_paused IS 'Number of trials that wait for their procedure to decide.';
COMMENT ON COLUMN easeml.run_status.n_stopped IS 'Number of trials that their procedure, or the end of the run, stopped.';
COMMENT ON COLUMN easeml.run_status.procedure_options IS 'Options of the procedure.';
COMMENT ON COLUMN easeml.run_status.allocation IS 'How trials share the slots, see easeml.select_models.';

COMMENT ON COLUMN easeml.procedures.procedure IS 'What easeml.select_models takes.';
COMMENT ON COLUMN easeml.procedures.is_one_shot IS 'Whether all trials start at once and train to the end; the other procedures decide again after every epoch.';
COMMENT ON COLUMN easeml.procedures.options IS 'Names of its options, for procedure_options.';
COMMENT ON COLUMN easeml.procedures.summary IS 'What it does, in a sentence.';

COMMENT ON COLUMN easeml.schedulers.scheduler IS 'What easeml.select_models takes.';
COMMENT ON COLUMN easeml.schedulers.needs_free_order IS 'Whether it chooses the partitions, and so needs visit_order free.';
COMMENT ON COLUMN easeml.schedulers.needs_single_holders IS 'Whether each partition must have only one holder.';
COMMENT ON COLUMN easeml.schedulers.is_default IS 'Whether runs use it by default.';
COMMENT ON COLUMN easeml.schedulers.summary IS 'What it does, in a sentence.';

COMMENT ON COLUMN easeml.leaderboard.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.leaderboard.rank IS '1 is best; equal metrics share a rank; NULL if the trial was not measured.';
COMMENT ON COLUMN easeml.leaderboard.trial_id IS 'Number of the trial, for easeml.deploy, easeml.replay and easeml.predict.';
COMMENT ON COLUMN easeml.leaderboard.trial_number IS 'Number of the trial within its run.';
COMMENT ON COLUMN easeml.leaderboard.dataset_name IS 'Dataset that the run searches on.';
COMMENT ON COLUMN easeml.leaderboard.architecture IS 'Architecture, see easeml.architectures.';
COMMENT ON COLUMN easeml.leaderboard.status IS 'waiting, running, paused (waits for its procedure), finished, failed, stopped or cancelled.';
COMMENT ON COLUMN easeml.leaderboard.metric IS 'Metric that ranks the trials.';
COMMENT ON COLUMN easeml.leaderboard.validation_metric IS 'Metric of the best epoch on the validation rows.';
COMMENT ON COLUMN easeml.leaderboard.test_metric IS 'Metric of the same epoch on the test rows; measured when the trial ends.';
COMMENT ON COLUMN easeml.leaderboard.best_epoch IS 'Epoch with the best validation metric.';
COMMENT ON COLUMN easeml.leaderboard.n_epochs_done IS 'Number of measured epochs.';
COMMENT ON COLUMN easeml.leaderboard.max_epochs IS 'Largest number of epochs.';
COMMENT ON COLUMN easeml.leaderboard.is_deployed IS 'Whether easeml.deploy chose it to answer predictions.';
COMMENT ON COLUMN easeml.leaderboard.training_seconds IS 'Seconds spent in training steps.';
COMMENT ON COLUMN easeml.leaderboard.config IS 'Hyperparameters.';
COMMENT ON COLUMN easeml.leaderboard.failure_reason IS 'Why the trial failed.';
COMMENT ON COLUMN easeml.leaderboard.tenant IS 'Tenant that owns the run.';
COMMENT ON COLUMN easeml.leaderboard.target_epochs IS 'Epoch after which the trial ends or waits for its procedure.';
COMMENT ON COLUMN easeml.leaderboard.bracket IS 'Bracket of its procedure, from 0.';
COMMENT ON COLUMN easeml.leaderboard.parent_trial_id IS 'The trial that it began as a copy of.';

COMMENT ON COLUMN easeml.learning_curves.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.learning_curves.trial_id IS 'The trial, see easeml.leaderboard.';
COMMENT ON COLUMN easeml.learning_curves.trial_number IS 'Number of the trial within its run.';
COMMENT ON COLUMN easeml.learning_curves.architecture IS 'Architecture of the trial, see easeml.architectures.';
COMMENT ON COLUMN easeml.learning_curves.epoch IS 'Epoch, from 1.';
COMMENT ON COLUMN easeml.learning_curves.training_loss IS 'Mean loss over the epoch''s training rows, while training.';
COMMENT ON COLUMN easeml.learning_curves.metric IS 'Metric of the run.';
COMMENT ON COLUMN easeml.learning_curves.validation_metric IS 'Value of that metric on the validation rows.';
COMMENT ON COLUMN easeml.learning_curves.accuracy IS 'Share of correct labels.';
COMMENT ON COLUMN easeml.learning_curves.balanced_accuracy IS 'Mean recall over classes.';
COMMENT ON COLUMN easeml.learning_curves.macro_f1 IS 'Mean F1 over classes.';
COMMENT ON COLUMN easeml.learning_curves.log_loss IS 'Mean negative log probability of the true label.';
COMMENT ON COLUMN easeml.learning_curves.rmse IS 'Root mean squared error.';
COMMENT ON COLUMN easeml.learning_curves.mae IS 'Mean absolute error.';
COMMENT ON COLUMN easeml.learning_curves.r2 IS 'Coefficient of determination.';
COMMENT ON COLUMN easeml.learning_curves.measured_at IS 'When the last partition was measured.';
COMMENT ON COLUMN easeml.learning_curves.elapsed_seconds IS 'Seconds from the start of the run to measured_at.';
COMMENT ON COLUMN easeml.learning_curves.training_seconds IS 'Seconds of training steps in this epoch.';
COMMENT ON COLUMN easeml.learning_curves.tenant IS 'Tenant that owns the run.';
COMMENT ON COLUMN easeml.learning_curves.n_classes IS 'How many classes have validation rows: metrics know nothing of the others. Null for numbers.';

COMMENT ON COLUMN easeml.leaderboard.n_validation_classes IS 'How many classes have validation rows: validation metrics know nothing of the others. Null for numbers.';
COMMENT ON COLUMN easeml.leaderboard.validation_error IS 'Standard error of validation_metric as the mean over folds; null without folds.';
COMMENT ON COLUMN easeml.learning_curves.validation_error IS 'Standard error of validation_metric as the mean over folds; null without folds.';
COMMENT ON COLUMN easeml.leaderboard.n_test_classes IS 'How many classes have test rows: test metrics know nothing of the others. Null for numbers, and before the test.';

COMMENT ON COLUMN easeml.trial_metrics.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.trial_metrics.trial_id IS 'The trial, see easeml.leaderboard.';
COMMENT ON COLUMN easeml.trial_metrics.trial_number IS 'Number of the trial within its run.';
COMMENT ON COLUMN easeml.trial_metrics.dataset_name IS 'Dataset that the run searches on.';
COMMENT ON COLUMN easeml.trial_metrics.architecture IS 'Architecture of the trial, see easeml.architectures.';
COMMENT ON COLUMN easeml.trial_metrics.split IS 'validation or test.';
COMMENT ON COLUMN easeml.trial_metrics.epoch IS 'The trial''s best epoch.';
COMMENT ON COLUMN easeml.trial_metrics.n_rows IS 'Rows of the split.';
COMMENT ON COLUMN easeml.trial_metrics.metric IS 'Metric that ranks the trials of the run.';
COMMENT ON COLUMN easeml.trial_metrics.metric_value IS 'Value of that metric.';
COMMENT ON COLUMN easeml.trial_metrics.accuracy IS 'Share of correct labels.';
COMMENT ON COLUMN easeml.trial_metrics.balanced_accuracy IS 'Mean recall over classes.';
COMMENT ON COLUMN easeml.trial_metrics.macro_f1 IS 'Mean F1 over classes.';
COMMENT ON COLUMN easeml.trial_metrics.log_loss IS 'Mean negative log probability of the true label.';
COMMENT ON COLUMN easeml.trial_metrics.rmse IS 'Root mean squared error.';
COMMENT ON COLUMN easeml.trial_metrics.mae IS 'Mean absolute error.';
COMMENT ON COLUMN easeml.trial_metrics.r2 IS 'Coefficient of determination.';
COMMENT ON COLUMN easeml.trial_metrics.measured_at IS 'When the last partition was measured.';
COMMENT ON COLUMN easeml.trial_metrics.tenant IS 'Tenant that owns the run.';

COMMENT ON COLUMN easeml.training_timeline.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.training_timeline.trial_id IS 'The trial, see easeml.leaderboard.';
COMMENT ON COLUMN easeml.training_timeline.trial_number IS 'Number of the trial within its run.';
COMMENT ON COLUMN easeml.training_timeline.architecture IS 'Architecture of the trial, see easeml.architectures.';
COMMENT ON COLUMN easeml.training_timeline.kind IS 'train, validate or test.';
COMMENT ON COLUMN easeml.training_timeline.epoch IS 'Epoch, from 1.';
COMMENT ON COLUMN easeml.training_timeline.position IS 'Place in the epoch''s visit order, from 0.';
COMMENT ON COLUMN easeml.training_timeline.partition_number IS 'Partition that it read, from 0.';
COMMENT ON COLUMN easeml.training_timeline.slot_id IS 'Slot that ran it.';
COMMENT ON COLUMN easeml.training_timeline.attempt IS '1, or more after a lost slot.';
COMMENT ON COLUMN easeml.training_timeline.started_at IS 'When it started.';
COMMENT ON COLUMN easeml.training_timeline.finished_at IS 'When it was recorded.';
COMMENT ON COLUMN easeml.training_timeline.seconds IS 'Seconds from started_at to finished_at.';
COMMENT ON COLUMN easeml.training_timeline.training_seconds IS 'Seconds in training steps alone.';
COMMENT ON COLUMN easeml.training_timeline.n_rows IS 'Number of rows that it read.';
COMMENT ON COLUMN easeml.training_timeline.loss IS 'Mean training loss.';
COMMENT ON COLUMN easeml.training_timeline.state_bytes IS 'Size of the recorded state; in a gang only the first unit has it.';
COMMENT ON COLUMN easeml.training_timeline.state_sha256 IS 'Hash of the recorded state.';
COMMENT ON COLUMN easeml.training_timeline.tenant IS 'Tenant that owns the run.';
COMMENT ON COLUMN easeml.training_timeline.n_stacked IS 'Number of trials that trained as one computation with it: 1, or more in a batch.';
COMMENT ON COLUMN easeml.training_timeline.n_slots IS 'Number of slots that worked on it together: 1, or the width of its gang.';

COMMENT ON COLUMN easeml.run_events.event_id IS 'Number of the event; later events have larger numbers.';
COMMENT ON COLUMN easeml.run_events.happened_at IS 'When it happened.';
COMMENT ON COLUMN easeml.run_events.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.run_events.trial_id IS 'Trial that it concerns; null if it concerns the whole run.';
COMMENT ON COLUMN easeml.run_events.kind IS 'One word for it, such as failed, cancelled, resumed or scheduled.';
COMMENT ON COLUMN easeml.run_events.message IS 'What happened, in a sentence.';
COMMENT ON COLUMN easeml.run_events.tenant IS 'Tenant that owns the run.';

-- views/serving.sql
-- What answers, and why. The rule stands here once: functions that predict ask easeml.answering, too.

CREATE VIEW easeml.answering WITH (security_invoker) AS
SELECT m.tenant, m.dataset_name, m.metric, m.is_higher_better, p.trial_id IS NOT NULL AS is_deployed, t.trial_id, t.run_id, r.dataset_id, t.best_checkpoint_id AS checkpoint_id
FROM easeml.serving_metrics m
LEFT JOIN easeml.deployments p USING (tenant, dataset_name)
LEFT JOIN LATERAL (
    SELECT c.trial_id FROM easeml.datasets d JOIN easeml.runs n USING (dataset_id) JOIN easeml.trials c USING (run_id)
    WHERE d.tenant = m.tenant AND d.dataset_name = m.dataset_name AND n.metric = m.metric AND c.best_checkpoint_id IS NOT NULL
    ORDER BY CASE WHEN m.is_higher_better THEN -c.best_metric_value ELSE c.best_metric_value END NULLS LAST, c.best_loss, c.architecture <> 'ensemble', c.trial_id LIMIT 1) b ON p.trial_id IS NULL
LEFT JOIN easeml.trials t ON t.trial_id = coalesce(p.trial_id, b.trial_id)
LEFT JOIN easeml.runs r ON r.run_id = t.run_id;
COMMENT ON VIEW easeml.answering IS 'The trial that answers for each dataset: the deployed one, else the best of the runs that rank by the dataset''s metric, over all versions; of equals that with the lower loss, then the oldest (internal).';
COMMENT ON COLUMN easeml.answering.tenant IS 'Tenant that owns the dataset.';
COMMENT ON COLUMN easeml.answering.dataset_name IS 'The dataset.';
COMMENT ON COLUMN easeml.answering.metric IS 'Metric of the dataset.';
COMMENT ON COLUMN easeml.answering.is_higher_better IS 'Whether a higher value of it is better.';
COMMENT ON COLUMN easeml.answering.is_deployed IS 'Whether it answers because it was deployed.';
COMMENT ON COLUMN easeml.answering.trial_id IS 'The trial; null if none answers.';
COMMENT ON COLUMN easeml.answering.run_id IS 'Its run.';
COMMENT ON COLUMN easeml.answering.dataset_id IS 'The version that it was trained on.';
COMMENT ON COLUMN easeml.answering.checkpoint_id IS 'The state of its best epoch.';

CREATE VIEW easeml.serving WITH (security_invoker) AS
SELECT a.tenant::text AS tenant, a.dataset_name, a.trial_id, a.run_id, d.version AS dataset_version, t.architecture, a.metric,
    (to_jsonb(e) ->> a.metric)::double precision AS validation_metric, t.best_epoch, a.is_deployed,
    CASE WHEN a.is_deployed AND s.reason = 'rolled back' THEN 'easeml.rollback went back to it; no other takes over until easeml.undeploy'
        WHEN a.is_deployed THEN 'easeml.deploy chose it; no other takes over until easeml.undeploy'
        WHEN a.trial_id IS NOT NULL THEN format('it has the best %s on the validation rows', a.metric)
        ELSE format('no trial of a run that ranks by %s has been measured', a.metric) END AS reason,
    s.since
FROM easeml.answering a
LEFT JOIN easeml.trials t USING (trial_id)
LEFT JOIN easeml.datasets d USING (dataset_id)
LEFT JOIN easeml.epoch_metrics e ON e.trial_id = t.trial_id AND e.epoch = t.best_epoch AND e.split = 'validation'
LEFT JOIN LATERAL (SELECT h.trial_id, h.reason, h.since FROM easeml.servings h WHERE h.tenant = a.tenant AND h.dataset_name = a.dataset_name
    ORDER BY h.serving_id DESC LIMIT 1) s ON s.trial_id = a.trial_id;
COMMENT ON VIEW easeml.serving IS 'What answers easeml.predict for each dataset, and why. easeml.serving_history shows what answered before.';
COMMENT ON COLUMN easeml.serving.tenant IS 'Tenant that owns the dataset.';
COMMENT ON COLUMN easeml.serving.dataset_name IS 'The dataset.';
COMMENT ON COLUMN easeml.serving.trial_id IS 'The trial that answers, see easeml.leaderboard; null if none does.';
COMMENT ON COLUMN easeml.serving.run_id IS 'Its run, see easeml.run_status.';
COMMENT ON COLUMN easeml.serving.dataset_version IS 'The version of the dataset that it was trained on.';
COMMENT ON COLUMN easeml.serving.architecture IS 'Its architecture, see easeml.architectures.';
COMMENT ON COLUMN easeml.serving.metric IS 'The metric of the dataset: that of its first run, or the one that easeml.set_serving_metric chose.';
COMMENT ON COLUMN easeml.serving.validation_metric IS 'Value of that metric on the validation rows, at the trial''s best epoch.';
COMMENT ON COLUMN easeml.serving.best_epoch IS 'The epoch whose state answers.';
COMMENT ON COLUMN easeml.serving.is_deployed IS 'Whether it was chosen by hand (easeml.deploy, easeml.rollback).';
COMMENT ON COLUMN easeml.serving.reason IS 'Why it answers, in words.';
COMMENT ON COLUMN easeml.serving.since IS 'Since when it answers.';

CREATE VIEW easeml.serving_history WITH (security_invoker) AS
SELECT s.serving_id, s.tenant::text AS tenant, s.dataset_name, s.since, s.trial_id, s.reason, s.is_deployed, s.metric, s.metric_value,
    t.trial_id IS NOT NULL AS is_kept
FROM easeml.servings s LEFT JOIN easeml.trials t USING (trial_id);
COMMENT ON VIEW easeml.serving_history IS 'What answered for each dataset: one row for each change, the last 200 of a dataset.';
COMMENT ON COLUMN easeml.serving_history.serving_id IS 'Number of the change; later changes have larger numbers.';
COMMENT ON COLUMN easeml.serving_history.tenant IS 'Tenant that owns the dataset.';
COMMENT ON COLUMN easeml.serving_history.dataset_name IS 'The dataset.';
COMMENT ON COLUMN easeml.serving_history.since IS 'When the trial began to answer.';
COMMENT ON COLUMN easeml.serving_history.trial_id IS 'The trial that answered from then on; null if none did.';
COMMENT ON COLUMN easeml.serving_history.reason IS 'better (by the metric), deployed, undeployed, rolled back, dropped (the former one, by force) or metric (another one was chosen).';
COMMENT ON COLUMN easeml.serving_history.is_deployed IS 'Whether it was chosen by hand.';
COMMENT ON COLUMN easeml.serving_history.metric IS 'The metric of the dataset then.';
COMMENT ON COLUMN easeml.serving_history.metric_value IS 'Value of that metric on the validation rows then.';
COMMENT ON COLUMN easeml.serving_history.is_kept IS 'Whether the trial is still there, so that easeml.deploy can choose it.';

-- functions/run_summary.sql
-- What a run tells at its end, in sentences.

CREATE FUNCTION easeml.metric_text(value double precision) RETURNS text LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    -- Four digits, as people compare them.
    SELECT CASE WHEN value IS NULL THEN 'nothing' WHEN value = 0 OR abs(value) NOT BETWEEN 0.0001 AND 1e9 THEN value::text
        ELSE trim_scale(round(value::numeric, greatest(0, 3 - floor(log(abs(value)))::integer)))::text END
$$;
COMMENT ON FUNCTION easeml.metric_text(double precision) IS 'Writes a metric with four digits (internal).';

CREATE FUNCTION easeml.tried_sentence(run easeml.runs) RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('Run %s is %s%s. It trained %s configs for %s epochs in all: %s.', run.run_id, run.status,
        CASE WHEN run.started_at IS NOT NULL THEN format(' after %s seconds', round(extract(epoch FROM coalesce(run.finished_at, clock_timestamp()) - run.started_at))) END,
        coalesce(sum(a.n_trials), 0), coalesce(sum(a.n_epochs), 0), coalesce(string_agg(format('%s %s', a.n_trials, a.architecture), ', ' ORDER BY a.n_trials DESC, a.architecture), 'nothing yet'))
    FROM (SELECT t.architecture, count(*) AS n_trials, sum((SELECT count(*) FROM easeml.epoch_metrics m WHERE m.trial_id = t.trial_id AND m.split = 'validation')) AS n_epochs
        FROM easeml.trials t WHERE t.run_id = run.run_id AND t.architecture <> 'ensemble' AND t.n_steps_done > 0 GROUP BY t.architecture) a
$$;
COMMENT ON FUNCTION easeml.tried_sentence(easeml.runs) IS 'Says what a run has tried (internal).';

CREATE FUNCTION easeml.members_text(config jsonb) RETURNS text LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN count(*) = 1 THEN '1 trial' ELSE format('%s trials', count(*)) END
        || CASE count(m -> 'refit_epochs') WHEN 0 THEN '' WHEN count(*) THEN ', trained again on validation rows too' ELSE format(', %s trained again on validation rows too', count(m -> 'refit_epochs')) END
    FROM jsonb_array_elements(config -> 'members') m
$$;
COMMENT ON FUNCTION easeml.members_text(jsonb) IS 'Says how many members an ensemble has (internal).';

CREATE FUNCTION easeml.best_sentences(run easeml.runs) RETURNS SETOF text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    best record;
    others text;
BEGIN
    SELECT l.trial_id, l.architecture, l.validation_metric, l.test_metric, CASE WHEN l.architecture = 'ensemble' THEN format(' of %s', easeml.members_text(l.config)) END AS members
    INTO best FROM easeml.leaderboard l WHERE l.run_id = run.run_id AND l.validation_metric IS NOT NULL ORDER BY l.rank, l.trial_number LIMIT 1;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'No trial has been measured.';
        RETURN;
    END IF;
    RETURN QUERY SELECT format('The best is trial %s (%s%s): %s %s on the validation rows%s.', best.trial_id, best.architecture, best.members, run.metric, easeml.metric_text(best.validation_metric),
        CASE WHEN best.test_metric IS NOT NULL THEN format(', and %s on the test rows, which no choice has seen', easeml.metric_text(best.test_metric)) END);
    SELECT string_agg(format('%s %s (trial %s)', o.architecture, easeml.metric_text(o.validation_metric), o.trial_id), ', ' ORDER BY o.rank) INTO others
    FROM (SELECT DISTINCT ON (l.architecture) l.* FROM easeml.leaderboard l
        WHERE l.run_id = run.run_id AND l.validation_metric IS NOT NULL AND l.architecture <> best.architecture ORDER BY l.architecture, l.rank, l.trial_number) o;
    IF others IS NOT NULL THEN
        RETURN QUERY SELECT format('The best of each other architecture, on the validation rows: %s.', others);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.best_sentences(easeml.runs) IS 'Says what was best in a run, of all and of each architecture (internal).';

CREATE FUNCTION easeml.advice_sentence(run easeml.runs) RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    last_seconds double precision;
    total_seconds double precision := extract(epoch FROM coalesce(run.finished_at, clock_timestamp()) - run.started_at);
    name text := (SELECT d.dataset_name FROM easeml.datasets d WHERE d.dataset_id = run.dataset_id);
BEGIN
    -- When a single trial was last better than all before it.
    SELECT extract(epoch FROM m.measured_at - run.started_at) INTO last_seconds FROM easeml.trials t JOIN easeml.epoch_metrics m USING (trial_id)
    WHERE t.run_id = run.run_id AND t.architecture <> 'ensemble' AND m.split = 'validation' AND m.metric_value IS NOT NULL
    ORDER BY CASE WHEN run.is_higher_better THEN -m.metric_value ELSE m.metric_value END, m.measured_at LIMIT 1;
    IF last_seconds IS NULL THEN
        RETURN CASE WHEN run.max_seconds IS NOT NULL THEN format('No epoch ended within the time: give it more, for example easeml.select_models(%L, max_seconds => %s).', name, round(4 * run.max_seconds)) END;
    ELSIF last_seconds > 0.75 * total_seconds AND run.max_seconds IS NOT NULL THEN
        RETURN format('It was still improving in the last quarter of the time. For more: easeml.select_models(%L, max_seconds => %s).', name, round(4 * run.max_seconds));
    ELSIF last_seconds > 0.75 * total_seconds THEN
        RETURN format('It was still improving in the last quarter of the time. For more: more configs or epochs, or a time limit instead: easeml.select_models(%L, max_seconds => 600).', name);
    END IF;
    RETURN format('The last improvement came after %s of %s seconds. More of the same is not likely to help; more rows, further columns or another search_space may.', round(last_seconds), round(total_seconds));
END
$$;
COMMENT ON FUNCTION easeml.advice_sentence(easeml.runs) IS 'Says whether a run was still improving, and what to do for more (internal).';

CREATE FUNCTION easeml.run_summary(run_id bigint) RETURNS SETOF text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs := easeml.find_run(run_id);
BEGIN
    RETURN QUERY SELECT easeml.tried_sentence(run);
    RETURN QUERY SELECT s FROM easeml.best_sentences(run) s;
    RETURN QUERY SELECT a FROM easeml.advice_sentence(run) a WHERE a IS NOT NULL AND run.status = 'finished';
END
$$;
COMMENT ON FUNCTION easeml.run_summary(bigint) IS
    'Tells in sentences what a run has tried, what was best, whether it was still improving when it ended, and what to do for more: SELECT * FROM easeml.run_summary(1).';

-- views/allocation.sql
CREATE VIEW easeml.trial_group_status WITH (security_invoker) AS
SELECT g.run_id, g.group_id, g.label, g.n_trials, a.n_allocations, a.n_resizes, g.created_at, g.ended_at,
    extract(epoch FROM g.ended_at - g.created_at)::double precision AS makespan_seconds, g.tenant::text AS tenant
FROM easeml.trial_groups g
CROSS JOIN LATERAL (SELECT count(*) AS n_allocations, count(*) FILTER (WHERE reason = 'dynamic') AS n_resizes FROM easeml.allocations WHERE group_id = g.group_id) a;
COMMENT ON VIEW easeml.trial_group_status IS 'Trial groups of runs with water-filling, and how long each took.';

CREATE VIEW easeml.trial_allocations WITH (security_invoker) AS
SELECT a.run_id, a.group_id, a.trial_id, t.trial_number, t.architecture, a.width, cardinality(a.devices) AS n_devices, a.devices, a.slot_ids, a.reason, a.decided_at,
    coalesce(lead(a.decided_at) OVER (PARTITION BY a.trial_id ORDER BY a.allocation_id), t.finished_at, g.ended_at) AS until,
    -- The coordinator's clock says when it decided, the server's when the run began.
    greatest(extract(epoch FROM a.decided_at - r.started_at)::double precision, 0) AS elapsed_seconds, a.tenant::text AS tenant
FROM easeml.allocations a JOIN easeml.trials t USING (trial_id) JOIN easeml.trial_groups g USING (group_id) JOIN easeml.runs r ON r.run_id = a.run_id;
COMMENT ON VIEW easeml.trial_allocations IS 'Which devices each trial had, and from when to when.';

COMMENT ON COLUMN easeml.trial_group_status.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.trial_group_status.group_id IS 'Number of the group, as in easeml.trial_allocations.';
COMMENT ON COLUMN easeml.trial_group_status.label IS 'What its trials share: architectures, and the epoch up to which they train.';
COMMENT ON COLUMN easeml.trial_group_status.n_trials IS 'Number of its trials.';
COMMENT ON COLUMN easeml.trial_group_status.n_allocations IS 'Number of decisions about its trials.';
COMMENT ON COLUMN easeml.trial_group_status.n_resizes IS 'Number of decisions that gave a trial other devices than it had.';
COMMENT ON COLUMN easeml.trial_group_status.created_at IS 'When its trials became runnable.';
COMMENT ON COLUMN easeml.trial_group_status.ended_at IS 'When its last trial ended or was stopped; null before that, or if another coordinator took over.';
COMMENT ON COLUMN easeml.trial_group_status.makespan_seconds IS 'Seconds from created_at to ended_at.';
COMMENT ON COLUMN easeml.trial_group_status.tenant IS 'Tenant that owns the run.';

COMMENT ON COLUMN easeml.trial_allocations.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.trial_allocations.group_id IS 'Trial group, see easeml.trial_group_status.';
COMMENT ON COLUMN easeml.trial_allocations.trial_id IS 'The trial, see easeml.leaderboard.';
COMMENT ON COLUMN easeml.trial_allocations.trial_number IS 'Number of the trial within its run.';
COMMENT ON COLUMN easeml.trial_allocations.architecture IS 'Architecture of the trial, see easeml.architectures.';
COMMENT ON COLUMN easeml.trial_allocations.width IS 'Number of devices of its own; below 1, its share of one device.';
COMMENT ON COLUMN easeml.trial_allocations.n_devices IS 'Number of its devices.';
COMMENT ON COLUMN easeml.trial_allocations.devices IS 'Its devices as segment/device.';
COMMENT ON COLUMN easeml.trial_allocations.slot_ids IS 'Slots of these devices; a unit runs on one slot of each.';
COMMENT ON COLUMN easeml.trial_allocations.reason IS 'static: the trial was new or had lost its devices; dynamic: the coordinator resized it.';
COMMENT ON COLUMN easeml.trial_allocations.decided_at IS 'When the coordinator decided; it counts from the trial''s next unit on.';
COMMENT ON COLUMN easeml.trial_allocations.until IS 'Time of the next decision about the trial, or its end.';
COMMENT ON COLUMN easeml.trial_allocations.elapsed_seconds IS 'Seconds from the start of the run to the decision.';
COMMENT ON COLUMN easeml.trial_allocations.tenant IS 'Tenant that owns the run.';

-- views/prices.sql
CREATE VIEW easeml.prices WITH (security_invoker) AS
SELECT l.price_list, t.instance_type, t.device_kind, t.n_slots, t.price_per_hour, t.billed_by, t.billed_per, t.minimum_seconds, t.price_per_gb,
    t.queue_seconds, t.queue_sd_seconds, t.start_seconds, t.start_sd_seconds,
    CASE WHEN l.is_local THEN (SELECT count(*)::integer FROM easeml.slots s WHERE s.status = 'active' AND split_part(s.device, ':', 1) = t.device_kind) / t.n_slots
        ELSE t.max_instances END AS max_instances,
    t.speed, l.caveat, l.is_local, l.is_shipped
FROM easeml.price_lists l JOIN easeml.instance_types t USING (price_list);
COMMENT ON VIEW easeml.prices IS 'Price lists: what slots cost, how they are billed and how long they take to start. easeml.plan reckons with them.';

COMMENT ON COLUMN easeml.prices.price_list IS 'Name of the list.';
COMMENT ON COLUMN easeml.prices.instance_type IS 'Name of the instance type within its list.';
COMMENT ON COLUMN easeml.prices.device_kind IS 'cpu or cuda.';
COMMENT ON COLUMN easeml.prices.n_slots IS 'Number of slots of an instance.';
COMMENT ON COLUMN easeml.prices.price_per_hour IS 'Price of an instance with all its slots.';
COMMENT ON COLUMN easeml.prices.billed_by IS 'second, or minute: each started minute is billed.';
COMMENT ON COLUMN easeml.prices.billed_per IS 'instance: from when the provider has it ready until its release; function: only slots on which something trains.';
COMMENT ON COLUMN easeml.prices.minimum_seconds IS 'Seconds billed at least, for each instance.';
COMMENT ON COLUMN easeml.prices.price_per_gb IS 'Price of a GB of the data that each instance brings in once.';
COMMENT ON COLUMN easeml.prices.queue_seconds IS 'Mean wait in the provider''s queue, which is not billed.';
COMMENT ON COLUMN easeml.prices.queue_sd_seconds IS 'Standard deviation of that wait.';
COMMENT ON COLUMN easeml.prices.start_seconds IS 'Mean time until an instance can train, which is billed.';
COMMENT ON COLUMN easeml.prices.start_sd_seconds IS 'Standard deviation of that time.';
COMMENT ON COLUMN easeml.prices.max_instances IS 'How many there are at most; null: as many as one wants. Of this server''s slots: those in service.';
COMMENT ON COLUMN easeml.prices.speed IS 'How much faster one of its slots is than what was measured on its kind of device.';
COMMENT ON COLUMN easeml.prices.caveat IS 'What to know before one trusts the figures.';
COMMENT ON COLUMN easeml.prices.is_local IS 'Whether its slots are those of this server.';
COMMENT ON COLUMN easeml.prices.is_shipped IS 'Whether it came with easeml.';

-- functions/plan.sql
-- What a run would cost, and when it would be done, before anything runs.

CREATE FUNCTION easeml.make_plan(architectures jsonb, search_space jsonb, procedure text, n_configs integer, max_epochs integer, seed bigint, procedure_options jsonb, request jsonb,
    OUT plans jsonb, OUT failure jsonb) LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.planner.documents import make_plan
from easeml_plpy.session import answered_by
return answered_by(plpy, make_plan, architectures, search_space, procedure, n_configs, max_epochs, seed, procedure_options, request)
$$;
COMMENT ON FUNCTION easeml.make_plan(jsonb, jsonb, text, integer, integer, bigint, jsonb, jsonb) IS
    'Returns a plan and its alternatives as a json array of stages, a pure function of its arguments, or an error (internal: use easeml.plan).';

-- With the rights of its caller: nobody learns how long other tenants' trials take.
CREATE FUNCTION easeml.timed_trials(data easeml.datasets) RETURNS jsonb LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n_rows bigint := (SELECT greatest(sum(p.n_train_rows), 1) FROM easeml.partitions p WHERE p.dataset_id = data.dataset_id);
BEGIN
    RETURN (
        WITH trials AS (
            SELECT t.trial_id, t.architecture, d.dataset_id = data.dataset_id AS is_same, d.n_partitions,
                n_rows / (SELECT greatest(sum(p.n_train_rows), 1) FROM easeml.partitions p WHERE p.dataset_id = d.dataset_id)::float8 AS scale
            FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) JOIN easeml.trials t ON t.run_id = r.run_id
            WHERE r.tenant = data.tenant AND d.task = data.task AND t.status <> 'waiting' AND t.n_steps_done > 0
            ORDER BY d.dataset_id = data.dataset_id DESC, t.trial_id DESC LIMIT 400
        ), epochs AS (
            -- Of an epoch that was cut short, the units that there are stand for all.
            SELECT t.trial_id, u.epoch, u.n_slots, split_part(coalesce(min(s.device), 'cpu'), ':', 1) AS device_kind,
                ceil(t.n_partitions::float8 / u.n_slots) * (avg(extract(epoch FROM u.finished_at - u.started_at))::float8 + coalesce((
                    SELECT avg(extract(epoch FROM e.finished_at - e.started_at))::float8 FROM easeml.evaluations e
                    WHERE e.trial_id = t.trial_id AND e.epoch = u.epoch AND e.split = 'validation'), 0)) AS seconds
            FROM trials t CROSS JOIN LATERAL (SELECT v.* FROM easeml.training_units v WHERE v.trial_id = t.trial_id AND v.epoch <= 100) u
            LEFT JOIN easeml.slots s ON s.slot_id = u.slot_id
            GROUP BY t.trial_id, t.n_partitions, u.epoch, u.n_slots
        )
        SELECT coalesce(jsonb_agg(jsonb_build_object('architecture', t.architecture, 'device_kind', e.device_kind, 'n_slots', e.n_slots, 'is_same', t.is_same, 'scale', t.scale,
            'epoch_seconds', e.mean, 'sd_seconds', e.sd, 'n_epochs', e.n) ORDER BY t.trial_id), '[]')
        FROM trials t JOIN (
            SELECT p.trial_id, p.n_slots, p.device_kind, avg(p.seconds) AS mean, coalesce(stddev_samp(p.seconds), 0) AS sd, count(*) AS n
            FROM epochs p GROUP BY p.trial_id, p.n_slots, p.device_kind) e USING (trial_id)
        WHERE e.mean > 0);
END
$$;
COMMENT ON FUNCTION easeml.timed_trials(easeml.datasets) IS 'Returns how long the epochs of your trials took on a dataset, and on others of its task, as a json array (internal: use easeml.plan).';

CREATE FUNCTION easeml.known_times(data easeml.datasets, procedure text) RETURNS jsonb LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN jsonb_build_object('trials', easeml.timed_trials(data), 'n_partitions', data.n_partitions,
        'max_slots', (SELECT t.max_slots FROM easeml.tenants t WHERE t.tenant = data.tenant),
        'data_gb', coalesce((SELECT sum(p.n_bytes) FROM easeml.partitions p WHERE p.dataset_id = data.dataset_id), 0) / 1e9,
        'speedups', (SELECT jsonb_agg(jsonb_build_object('architecture', p.architecture, 'device_kind', p.device_kind, 'is_same', p.dataset_id = data.dataset_id,
                'speedups', p.measurements -> 'speedups', 'restore_seconds', p.eps_seconds) ORDER BY p.dataset_id = data.dataset_id DESC, p.measured_at DESC)
            FROM easeml.device_profiles p WHERE p.tenant = data.tenant AND jsonb_typeof(p.measurements -> 'speedups') = 'array'),
        -- Only these procedures are played on curves of the past.
        'curves', CASE WHEN procedure IN ('asha', 'race') THEN (
            SELECT jsonb_object_agg(c.architecture, c.curves) FROM (
                SELECT t.architecture, jsonb_agg(t.scores) AS curves FROM (
                    SELECT t.architecture, (SELECT jsonb_agg(CASE WHEN r.is_higher_better THEN 1 ELSE -1 END * coalesce(e.metric_value, 0) ORDER BY e.epoch)
                        FROM easeml.epoch_metrics e WHERE e.trial_id = t.trial_id AND e.split = 'validation' AND e.epoch <= 200) AS scores
                    FROM easeml.trials t JOIN easeml.runs r USING (run_id)
                    WHERE r.tenant = data.tenant AND r.dataset_id = data.dataset_id ORDER BY t.trial_id DESC LIMIT 200) t
                WHERE t.scores IS NOT NULL GROUP BY t.architecture) c) END);
END
$$;
COMMENT ON FUNCTION easeml.known_times(easeml.datasets, text) IS 'Returns what is known of how long your trials take on a dataset, as a json object (internal: use easeml.plan).';

CREATE FUNCTION easeml.plan_goal(deadline interval, max_cost double precision, confidence double precision) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT extract(epoch FROM deadline) BETWEEN 0.001 AND 1e9 THEN
        PERFORM easeml.fail('ML001', format('deadline: expected an interval above 0 and below 30 years, got %s', deadline),
            hint => 'It counts from the start of the run: deadline => interval ''20 minutes''.');
    ELSIF NOT (max_cost > 0 AND max_cost < 'Infinity') THEN
        PERFORM easeml.fail('ML001', format('max_cost: expected a number above 0, got %s', max_cost));
    ELSIF confidence IS NOT NULL AND NOT (confidence >= 0.5 AND confidence < 1) THEN
        PERFORM easeml.fail('ML001', format('confidence: expected at least 0.5 and less than 1, got %s', confidence), hint => 'NULL: the limits hold in the mean.');
    END IF;
    RETURN jsonb_build_object('deadline_seconds', extract(epoch FROM deadline), 'max_cost', max_cost, 'confidence', confidence);
END
$$;
COMMENT ON FUNCTION easeml.plan_goal(interval, double precision, double precision) IS 'Checks the limits of a plan and returns them as a json object (internal: use easeml.plan).';

-- SECURITY DEFINER, because only easeml.make_plan plans, and it takes whatever it is given. It reads no row of a tenant: these come as values, and are checked first.
CREATE FUNCTION easeml.plan_search_on(data easeml.datasets, search jsonb, price_list text, goal jsonb, known jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs := jsonb_populate_record(NULL::easeml.runs, search);
    chosen text[];
    list easeml.price_lists;
    types jsonb;
    plan record;
BEGIN
    PERFORM easeml.check_search(run.max_epochs, run.n_configs, run.seed, run.search_space, run.procedure_options);
    PERFORM easeml.check_json('known times', known, 4000000, 8);
    PERFORM easeml.check_json('goal', goal, 1000, 2);
    run := jsonb_populate_record(run, easeml.complete_budget(run.procedure, run.n_configs, run.max_epochs, NULL));
    SELECT l.* INTO list FROM easeml.price_lists l WHERE l.price_list = plan_search_on.price_list;
    IF list.price_list IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no price list %s', quote_nullable(price_list)),
            hint => (SELECT 'There are: ' || string_agg(l.price_list, ', ' ORDER BY l.price_list) || '.' FROM easeml.price_lists l));
    END IF;
    SELECT jsonb_agg(to_jsonb(p) ORDER BY p.price_per_hour, p.instance_type) INTO types FROM easeml.prices p WHERE p.price_list = list.price_list AND coalesce(p.max_instances, 1) > 0;
    IF types IS NULL THEN
        PERFORM easeml.fail('ML010', format('no slot of this server is in service for price list %s', list.price_list), hint => 'Add some: SELECT easeml.add_slots(2).');
    END IF;
    chosen := easeml.choose_architectures(data, run.architectures);
    plan := easeml.make_plan(easeml.specifications(chosen), run.search_space, run.procedure, run.n_configs, run.max_epochs, run.seed, easeml.complete_options(run.procedure, run.procedure_options),
        jsonb_build_object('types', types, 'price_list', list.price_list, 'is_local', list.is_local, 'dataset', data.dataset_name, 'goal', goal,
            'knowledge', known || jsonb_build_object(
                'whole', (SELECT coalesce(jsonb_agg(a), '[]') FROM unnest(chosen) a WHERE easeml.does_whole_rounds(a)),
                'joint', (SELECT coalesce(jsonb_agg(a.architecture), '[]') FROM easeml.list_architectures() a WHERE a.trainer = 'torch'))));
    PERFORM easeml.raise_failure(plan.failure);
    RETURN plan.plans;
END
$$;
COMMENT ON FUNCTION easeml.plan_search_on(easeml.datasets, jsonb, text, jsonb, jsonb) IS 'Checks the arguments of a search, and returns its plan as json (internal: use easeml.plan).';

CREATE FUNCTION easeml.plan(
    dataset text, architectures text[] DEFAULT NULL, search_space jsonb DEFAULT NULL, procedure text DEFAULT NULL, n_configs integer DEFAULT NULL, max_epochs integer DEFAULT NULL,
    seed bigint DEFAULT 0, procedure_options jsonb DEFAULT NULL, deadline interval DEFAULT NULL, max_cost double precision DEFAULT NULL, price_list text DEFAULT 'local',
    confidence double precision DEFAULT 0.95,
    OUT plan text, OUT stage integer, OUT label text, OUT n_trials integer, OUT n_epochs double precision, OUT instance_type text, OUT n_slots integer, OUT n_instances integer,
    OUT start_seconds double precision, OUT seconds_mean double precision, OUT seconds_p50 double precision, OUT seconds_p95 double precision,
    OUT cost_mean double precision, OUT cost_p95 double precision, OUT note text
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    goal jsonb := easeml.plan_goal(deadline, max_cost, confidence);
    data easeml.datasets := easeml.find_dataset(dataset);
    search jsonb := jsonb_build_object('architectures', architectures, 'search_space', search_space, 'procedure', procedure, 'n_configs', n_configs, 'max_epochs', max_epochs, 'seed', seed,
        'procedure_options', procedure_options);
BEGIN
    RETURN QUERY SELECT p.* FROM jsonb_to_recordset(easeml.plan_search_on(data, search, price_list, goal, easeml.known_times(data, coalesce(procedure, 'race')))) p(
        plan text, stage integer, label text, n_trials integer, n_epochs double precision, instance_type text, n_slots integer, n_instances integer,
        start_seconds double precision, seconds_mean double precision, seconds_p50 double precision, seconds_p95 double precision,
        cost_mean double precision, cost_p95 double precision, note text);
END
$$;
COMMENT ON FUNCTION easeml.plan(text, text[], jsonb, text, integer, integer, bigint, jsonb, interval, double precision, text, double precision) IS
$$Says what a search would cost and when it would be done, with the arguments of easeml.select_models; nothing is started. A row is a stage of a plan: so many trials train so many epochs on so many slots.
The row without a stage is the whole plan, and notes what had to be assumed. plan: planned (the cheapest plan that keeps the deadline; with max_cost alone the fastest that costs no more),
static (the best cluster that stays the same), naive_elastic (the best number of slots for each trial). deadline: counts from the start. price_list: one of easeml.prices; local is this server's slots.
confidence: with which probability the limits are kept; NULL: in the mean. Times come from trials that were trained before. asha and race, which have no stages, are played on past learning curves.
A search over several architectures is planned one architecture after the other, Hyperband one bracket after the other.$$;

CREATE FUNCTION easeml.plan_frontier(
    dataset text, architectures text[] DEFAULT NULL, search_space jsonb DEFAULT NULL, procedure text DEFAULT NULL, n_configs integer DEFAULT NULL, max_epochs integer DEFAULT NULL,
    seed bigint DEFAULT 0, procedure_options jsonb DEFAULT NULL, price_list text DEFAULT 'local', n_points integer DEFAULT 20,
    OUT point integer, OUT seconds_mean double precision, OUT seconds_p50 double precision, OUT seconds_p95 double precision, OUT cost_mean double precision, OUT cost_p95 double precision,
    OUT n_slots integer[], OUT instance_types text[]
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := easeml.find_dataset(dataset);
    search jsonb := jsonb_build_object('architectures', architectures, 'search_space', search_space, 'procedure', procedure, 'n_configs', n_configs, 'max_epochs', max_epochs, 'seed', seed,
        'procedure_options', procedure_options);
BEGIN
    RETURN QUERY SELECT p.* FROM jsonb_to_recordset(easeml.plan_search_on(data, search, price_list, jsonb_build_object('n_points', coalesce(n_points, 0)),
            easeml.known_times(data, coalesce(procedure, 'race')))) p(
        point integer, seconds_mean double precision, seconds_p50 double precision, seconds_p95 double precision, cost_mean double precision, cost_p95 double precision,
        n_slots integer[], instance_types text[]);
END
$$;
COMMENT ON FUNCTION easeml.plan_frontier(text, text[], jsonb, text, integer, integer, bigint, jsonb, text, integer) IS
$$Returns plans from the fastest to the cheapest, with the arguments of easeml.plan: of no two is one both faster and cheaper. n_slots and instance_types: what each stage gets.$$;

-- functions/forecast.sql
-- When runs under way will be done, and what they will have cost. All is read with the rights of whoever asks.

CREATE FUNCTION easeml.make_forecast(state jsonb, OUT forecast jsonb, OUT failure jsonb) LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.planner.forecast_documents import make_forecast
from easeml_plpy.session import answered_by
return answered_by(plpy, make_forecast, state)
$$;
COMMENT ON FUNCTION easeml.make_forecast(jsonb) IS 'Returns when a run is done, a pure function of how it stands, or an error (internal: use easeml.forecast).';

CREATE FUNCTION easeml.run_standing(run easeml.runs) RETURNS jsonb LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    data easeml.datasets := (SELECT d FROM easeml.datasets d WHERE d.dataset_id = run.dataset_id);
    is_played boolean := run.procedure IN ('asha', 'race');
BEGIN
    RETURN (
        -- The slots that the run has, and those that nobody else has now.
        WITH slots AS (
            SELECT split_part(s.device, ':', 1) AS device_kind, count(*) AS n FROM easeml.slots s
            WHERE s.status = 'active' AND (s.trial_id IS NULL OR s.trial_id IN (SELECT t.trial_id FROM easeml.trials t WHERE t.run_id = run.run_id))
            GROUP BY 1 ORDER BY 2 DESC LIMIT 1
        )
        SELECT jsonb_build_object('dataset', data.dataset_name, 'seed', run.seed, 'device_kind', coalesce((SELECT device_kind FROM slots), 'cpu'),
            'n_slots', least(coalesce((SELECT n FROM slots), 1), (SELECT t.max_slots FROM easeml.tenants t WHERE t.tenant = run.tenant)),
            'price_per_hour', coalesce((SELECT p.price_per_hour / p.n_slots FROM easeml.prices p
                WHERE p.price_list = 'local' AND p.device_kind = coalesce((SELECT device_kind FROM slots), 'cpu')), 1),
            'seconds_to_limit', run.max_seconds - coalesce(extract(epoch FROM clock_timestamp() - run.started_at), 0),
            'search', CASE WHEN run.search IS NOT NULL AND NOT run.is_ending THEN jsonb_build_object('architectures_json', (run.search -> 'architectures')::text,
                'search_space_json', run.search_space::text, 'procedure', run.procedure, 'n_configs', run.search -> 'n_configs', 'max_epochs', run.max_epochs, 'seed', run.seed,
                'options_json', run.procedure_options::text, 'portfolio_json', (run.search -> 'portfolio')::text) END,
            'arms', (SELECT coalesce(jsonb_agg(jsonb_build_object('name', a.architecture, 'trials', (
                    SELECT coalesce(jsonb_agg(jsonb_build_object('architecture', t.architecture, 'trial_number', t.trial_number, 'bracket', t.bracket,
                        'n_epochs', least(t.n_steps_done / (2.0 * data.n_partitions), t.max_epochs), 'target_epochs', coalesce(t.target_epochs, t.max_epochs),
                        'is_open', t.status IN ('waiting', 'running', 'paused'), 'config', CASE WHEN is_played THEN t.config END,
                        'scores', CASE WHEN is_played THEN (SELECT jsonb_agg(CASE WHEN run.is_higher_better THEN 1 ELSE -1 END * coalesce(e.metric_value, 0) ORDER BY e.epoch)
                            FROM easeml.epoch_metrics e WHERE e.trial_id = t.trial_id AND e.split = 'validation') END) ORDER BY t.trial_number), '[]')
                    FROM easeml.trials t WHERE t.arm_id = a.arm_id AND t.architecture <> 'ensemble')) ORDER BY a.arm_id), '[]')
                FROM easeml.arms a WHERE a.run_id = run.run_id AND (a.closed_at IS NULL OR run.search IS NULL OR is_played)),
            'knowledge', easeml.known_times(data, run.procedure) || jsonb_build_object('joint', '[]'::jsonb,
                'whole', (SELECT coalesce(jsonb_agg(n), '[]') FROM unnest(run.architectures) n WHERE easeml.does_whole_rounds(n)))));
END
$$;
COMMENT ON FUNCTION easeml.run_standing(easeml.runs) IS 'Returns how a run stands, and what is known of how long its trials take, as a json object (internal: use easeml.forecast).';

CREATE FUNCTION easeml.forecast(run_id bigint DEFAULT NULL, OUT run bigint, OUT dataset_name text, OUT status text, OUT eta_at timestamptz, OUT eta_earliest_at timestamptz, OUT eta_p95_at timestamptz,
    OUT seconds_left double precision, OUT cost_so_far double precision, OUT cost_expected double precision, OUT cost_p95 double precision,
    OUT deadline timestamptz, OUT is_at_risk boolean, OUT note text
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found record;
    made record;
    standing jsonb;
    seconds jsonb;
BEGIN
    IF run_id IS NOT NULL THEN
        PERFORM easeml.find_run(run_id);
    END IF;
    FOR found IN
        SELECT r AS row, s.status, s.dataset_name, (SELECT count(*) FROM easeml.trials t WHERE t.run_id = r.run_id) AS n_trials,
            (SELECT t.deadline FROM easeml.tenants t WHERE t.tenant = r.tenant) AS deadline,
            coalesce((SELECT sum(extract(epoch FROM u.finished_at - u.started_at)) FROM easeml.training_units u WHERE u.run_id = r.run_id), 0)
                + coalesce((SELECT sum(extract(epoch FROM e.finished_at - e.started_at)) FROM easeml.trials t JOIN easeml.evaluations e USING (trial_id) WHERE t.run_id = r.run_id), 0) AS slot_seconds
        FROM easeml.runs r JOIN easeml.run_status s USING (run_id)
        WHERE r.status IN ('queued', 'running') AND (forecast.run_id IS NULL OR r.run_id = forecast.run_id) ORDER BY r.run_id LIMIT 100
    LOOP
        run := (found.row).run_id;
        dataset_name := found.dataset_name;
        status := found.status;
        deadline := found.deadline;
        eta_at := NULL; eta_earliest_at := NULL; eta_p95_at := NULL; seconds_left := NULL; cost_expected := NULL; cost_p95 := NULL; is_at_risk := NULL; note := NULL;
        IF found.n_trials > 20000 THEN
            note := 'too many trials to forecast';
            RETURN NEXT;
            CONTINUE;
        END IF;
        standing := easeml.run_standing(found.row);
        cost_so_far := found.slot_seconds / 3600 * (standing ->> 'price_per_hour')::double precision;
        made := easeml.make_forecast(standing);
        IF made.failure IS NOT NULL THEN
            note := made.failure ->> 'message';
        ELSE
            seconds := made.forecast;
            seconds_left := (seconds ->> 'seconds')::double precision;
            eta_at := clock_timestamp() + make_interval(secs => seconds_left);
            eta_earliest_at := clock_timestamp() + make_interval(secs => (seconds ->> 'seconds_least')::double precision);
            eta_p95_at := clock_timestamp() + make_interval(secs => (seconds ->> 'seconds_most')::double precision);
            cost_expected := cost_so_far + (seconds ->> 'cost')::double precision;
            cost_p95 := cost_so_far + (seconds ->> 'cost_most')::double precision;
            is_at_risk := eta_p95_at > deadline;
            note := seconds ->> 'note';
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION easeml.forecast(bigint) IS
$$Says when your runs under way will be done, and what they will have cost, from where they stand: all of them, or one. In 90 of 100 cases a run ends between eta_earliest_at and eta_p95_at.
Costs are slot time at the prices of price list local. is_at_risk: whether eta_p95_at is after the tenant's deadline. The slots are those that the run has now, and those that are idle.
Where nothing is known yet of how long its trials take, the times are null and note says so.$$;

-- views/traffic.sql
CREATE VIEW easeml.run_traffic WITH (security_invoker) AS
SELECT r.run_id, u.n_units + v.n_units AS n_units, u.n_hops + v.n_hops AS n_hops,
    least(u.bytes_hopped::numeric + v.bytes_hopped, 9223372036854775807)::bigint AS bytes_hopped, u.bytes_stored AS bytes_stored,
    u.n_live_states AS n_live_states, u.live_state_bytes AS live_state_bytes, u.largest_state_bytes AS largest_state_bytes, r.tenant::text AS tenant
FROM easeml.runs r
CROSS JOIN LATERAL (
    -- The trials' pointers say which states are kept, since readers of results may not read easeml.checkpoints.
    SELECT count(*) AS n_units, count(*) FILTER (WHERE t.read_bytes > 0) AS n_hops, least(coalesce(sum(t.read_bytes), 0), 9223372036854775807)::bigint AS bytes_hopped,
        least(coalesce(sum(t.state_bytes), 0), 9223372036854775807)::bigint AS bytes_stored, max(t.state_bytes) AS largest_state_bytes,
        count(DISTINCT t.checkpoint_id) FILTER (WHERE t.checkpoint_id IN (k.checkpoint_id, k.best_checkpoint_id)) AS n_live_states,
        least(coalesce(sum(t.state_bytes) FILTER (WHERE t.checkpoint_id IN (k.checkpoint_id, k.best_checkpoint_id)), 0), 9223372036854775807)::bigint AS live_state_bytes
    FROM easeml.training_units t JOIN easeml.trials k USING (trial_id) WHERE t.run_id = r.run_id) u
CROSS JOIN LATERAL (
    SELECT count(*) AS n_units, count(*) FILTER (WHERE e.read_bytes > 0) AS n_hops, least(coalesce(sum(e.read_bytes), 0), 9223372036854775807)::bigint AS bytes_hopped
    FROM easeml.evaluations e WHERE e.run_id = r.run_id) v;
COMMENT ON VIEW easeml.run_traffic IS 'How much state each run stored, how much of it moved to other sessions, and how much is kept.';

COMMENT ON COLUMN easeml.run_traffic.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.run_traffic.n_units IS 'Number of recorded units.';
COMMENT ON COLUMN easeml.run_traffic.n_hops IS 'Number of units that read their state from the tables because their session did not hold the trial.';
COMMENT ON COLUMN easeml.run_traffic.bytes_hopped IS 'Bytes of state that those units read.';
COMMENT ON COLUMN easeml.run_traffic.bytes_stored IS 'Bytes of state that training units wrote, pruned states included.';
COMMENT ON COLUMN easeml.run_traffic.n_live_states IS 'Number of states that are kept: of each trial the newest and that of its best epoch.';
COMMENT ON COLUMN easeml.run_traffic.live_state_bytes IS 'Bytes of the kept states.';
COMMENT ON COLUMN easeml.run_traffic.largest_state_bytes IS 'Size of the largest state that was written.';
COMMENT ON COLUMN easeml.run_traffic.tenant IS 'Tenant that owns the run.';

-- views/slots.sql
CREATE VIEW easeml.slot_status WITH (security_invoker) AS
SELECT s.slot_id, s.slot_name, g.segment_name, s.device, s.n_threads, s.memory_limit_bytes,
    CASE WHEN s.status = 'lost' THEN 'lost' WHEN s.status = 'draining' AND (s.unit_started_at IS NULL OR NOT easeml.has_live_coordinator()) THEN 'drained'
        WHEN NOT easeml.has_live_coordinator() THEN 'offline' WHEN s.status = 'draining' THEN 'draining' WHEN s.unit_started_at IS NULL THEN 'idle' ELSE 'busy' END AS status,
    t.run_id, t.trial_id, t.trial_number, t.architecture, CASE WHEN t.trial_id IS NOT NULL THEN s.kind END AS kind,
    CASE WHEN t.trial_id IS NOT NULL THEN s.epoch END AS epoch, CASE WHEN t.trial_id IS NOT NULL THEN s.partition_number END AS partition_number,
    CASE WHEN easeml.has_live_coordinator() THEN s.unit_started_at END AS unit_started_at,
    CASE WHEN easeml.has_live_coordinator() THEN extract(epoch FROM clock_timestamp() - s.unit_started_at)::double precision END AS unit_seconds, s.n_units_done, s.backend_pid,
    s.lost_reason, s.lost_at
FROM easeml.slots s
JOIN easeml.segments g USING (segment_id)
LEFT JOIN easeml.trials t ON t.trial_id = s.trial_id AND s.unit_started_at IS NOT NULL;
COMMENT ON VIEW easeml.slot_status IS 'What each slot is doing. It shows a run and a trial only to those who may see them.';

CREATE VIEW easeml.segment_status WITH (security_invoker) AS
SELECT g.segment_id, g.segment_name, s.n_slots, s.n_active_slots, h.n_partitions, h.n_bytes
FROM easeml.segments g
CROSS JOIN LATERAL (SELECT count(*) AS n_slots, count(*) FILTER (WHERE status = 'active') AS n_active_slots FROM easeml.slots WHERE segment_id = g.segment_id) s
CROSS JOIN LATERAL (SELECT count(*) AS n_partitions, least(coalesce(sum(p.n_bytes), 0), 9223372036854775807)::bigint AS n_bytes
    FROM easeml.replicas c JOIN easeml.partitions p USING (dataset_id, partition_number) WHERE c.segment_id = g.segment_id) h;
COMMENT ON VIEW easeml.segment_status IS 'Segments with their slots and the partitions that they hold.';

CREATE VIEW easeml.coordinator_status WITH (security_invoker) AS
SELECT c.lease_number, c.host, c.process_id, c.version, c.started_at, c.heartbeat_at, c.stopped_at,
    extract(epoch FROM clock_timestamp() - c.heartbeat_at)::double precision AS heartbeat_age_seconds,
    c.stopped_at IS NULL AND l.lease_number IS NOT NULL AND c.heartbeat_at > clock_timestamp() - interval '10 seconds' AS is_alive
FROM easeml.coordinators c LEFT JOIN easeml.coordinator_lease l USING (lease_number);
COMMENT ON VIEW easeml.coordinator_status IS 'Coordinators that have held the lease, and which one is alive.';

COMMENT ON COLUMN easeml.slot_status.slot_id IS 'Number of the slot, for easeml.drain_slot and easeml.remove_slot.';
COMMENT ON COLUMN easeml.slot_status.slot_name IS 'Name of the slot.';
COMMENT ON COLUMN easeml.slot_status.segment_name IS 'Segment that it belongs to.';
COMMENT ON COLUMN easeml.slot_status.device IS 'cpu, cpu:N (the N-th n_threads cores) or cuda:N; slots with the same cpu:N or cuda:N share it.';
COMMENT ON COLUMN easeml.slot_status.n_threads IS 'Number of CPU threads.';
COMMENT ON COLUMN easeml.slot_status.memory_limit_bytes IS 'Memory limit of its session.';
COMMENT ON COLUMN easeml.slot_status.status IS 'offline (no live coordinator), idle, busy, draining (finishes its unit), drained, or lost (given up with a stuck unit).';
COMMENT ON COLUMN easeml.slot_status.run_id IS 'Run of its unit.';
COMMENT ON COLUMN easeml.slot_status.trial_id IS 'Trial of its unit.';
COMMENT ON COLUMN easeml.slot_status.trial_number IS 'Number of the trial within its run.';
COMMENT ON COLUMN easeml.slot_status.architecture IS 'Architecture of the trial.';
COMMENT ON COLUMN easeml.slot_status.kind IS 'Kind of its unit: train, validate or test.';
COMMENT ON COLUMN easeml.slot_status.epoch IS 'Epoch of its unit.';
COMMENT ON COLUMN easeml.slot_status.partition_number IS 'Partition of its unit.';
COMMENT ON COLUMN easeml.slot_status.unit_started_at IS 'When its unit started.';
COMMENT ON COLUMN easeml.slot_status.unit_seconds IS 'Seconds since its unit started.';
COMMENT ON COLUMN easeml.slot_status.n_units_done IS 'Number of units that this slot has recorded.';
COMMENT ON COLUMN easeml.slot_status.backend_pid IS 'Server process of its session.';
COMMENT ON COLUMN easeml.slot_status.lost_reason IS 'Why it is lost, or why its session cannot be opened.';
COMMENT ON COLUMN easeml.slot_status.lost_at IS 'When it was given up.';

COMMENT ON COLUMN easeml.segment_status.segment_id IS 'Number of the segment.';
COMMENT ON COLUMN easeml.segment_status.segment_name IS 'Name of the segment.';
COMMENT ON COLUMN easeml.segment_status.n_slots IS 'Number of its slots.';
COMMENT ON COLUMN easeml.segment_status.n_active_slots IS 'Number of its slots that get units.';
COMMENT ON COLUMN easeml.segment_status.n_partitions IS 'Number of partitions that it holds, of bound datasets that you may see.';
COMMENT ON COLUMN easeml.segment_status.n_bytes IS 'Packed bytes of those partitions.';

COMMENT ON COLUMN easeml.coordinator_status.lease_number IS 'Number that it drew when it took over.';
COMMENT ON COLUMN easeml.coordinator_status.host IS 'Machine that it runs on.';
COMMENT ON COLUMN easeml.coordinator_status.process_id IS 'Process on that machine.';
COMMENT ON COLUMN easeml.coordinator_status.version IS 'Version of its package.';
COMMENT ON COLUMN easeml.coordinator_status.started_at IS 'When it took over.';
COMMENT ON COLUMN easeml.coordinator_status.heartbeat_at IS 'When it sent its last heartbeat.';
COMMENT ON COLUMN easeml.coordinator_status.stopped_at IS 'When it stopped in good order; null if it runs or was killed.';
COMMENT ON COLUMN easeml.coordinator_status.heartbeat_age_seconds IS 'Seconds since its last heartbeat.';
COMMENT ON COLUMN easeml.coordinator_status.is_alive IS 'Whether it holds the lease and sent a heartbeat within ten seconds.';

-- views/tenancy.sql
-- What a tenant reads about its runs: beliefs about arms, what each run may still gain, and why a run was chosen or waited.

CREATE VIEW easeml.policies WITH (security_invoker) AS
SELECT 'policy'::text AS kind, p.policy AS name, p.policy = t.policy AS is_in_use, p.is_default, p.summary FROM easeml.list_policies() p, easeml.current_tenancy() t
UNION ALL
SELECT 'prior', p.prior, p.prior = t.prior, p.is_default, p.summary FROM easeml.list_priors() p, easeml.current_tenancy() t;
COMMENT ON VIEW easeml.policies IS 'Policies (which run opens its next arm) and priors (what is believed of arms beforehand), and which are in use; easeml.set_policy chooses.';
COMMENT ON COLUMN easeml.policies.kind IS 'policy or prior.';
COMMENT ON COLUMN easeml.policies.name IS 'What easeml.set_policy takes.';
COMMENT ON COLUMN easeml.policies.is_in_use IS 'Whether the coordinator uses it now.';
COMMENT ON COLUMN easeml.policies.is_default IS 'Whether it is used until an administrator chooses another.';
COMMENT ON COLUMN easeml.policies.summary IS 'What it does, in a sentence.';

CREATE VIEW easeml.arm_beliefs WITH (security_invoker) AS
SELECT a.run_id, a.arm_id, d.dataset_name, a.architecture, a.augmentation,
    CASE WHEN a.opening IS NULL THEN CASE WHEN r.status IN ('queued', 'running') THEN 'waiting' ELSE 'never opened' END
        WHEN n.n_open = 0 AND a.closing IS NOT NULL THEN 'closed' WHEN r.status IN ('queued', 'running') THEN 'open' ELSE 'stopped' END AS status,
    n.n_trials, p.mean, p.deviation, p.bound, p.cost, p.expected_seconds,
    CASE WHEN n.n_open = 0 THEN a.quality END AS quality, CASE WHEN n.n_open = 0 THEN a.cost_seconds END AS cost_seconds,
    a.opened_at, a.closed_at, p.updated_at, a.tenant::text AS tenant
FROM easeml.arms a JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
LEFT JOIN easeml.posteriors p USING (arm_id)
CROSS JOIN LATERAL (SELECT count(*) AS n_trials, count(*) FILTER (WHERE t.status IN ('waiting', 'running', 'paused')) AS n_open FROM easeml.trials t WHERE t.arm_id = a.arm_id) n
WHERE a.architecture <> 'ensemble';
COMMENT ON VIEW easeml.arm_beliefs IS 'Every arm of every run: its expected quality and cost, and once it is closed, the observed ones.';
COMMENT ON COLUMN easeml.arm_beliefs.run_id IS 'The run that may open the arm.';
COMMENT ON COLUMN easeml.arm_beliefs.arm_id IS 'Number of the arm, unique on this server.';
COMMENT ON COLUMN easeml.arm_beliefs.dataset_name IS 'Dataset that the run searches on.';
COMMENT ON COLUMN easeml.arm_beliefs.architecture IS 'Architecture that all trials of the arm share.';
COMMENT ON COLUMN easeml.arm_beliefs.augmentation IS 'What the arm does to the inputs before training; none by default.';
COMMENT ON COLUMN easeml.arm_beliefs.status IS 'waiting, open (its trials may run), closed (its trials have ended), stopped (the run ended first), or never opened.';
COMMENT ON COLUMN easeml.arm_beliefs.n_trials IS 'Number of trials in the arm''s hyperparameter search so far.';
COMMENT ON COLUMN easeml.arm_beliefs.mean IS 'Expected quality, on the scale of the run''s prior.';
COMMENT ON COLUMN easeml.arm_beliefs.deviation IS 'Standard deviation of the expected quality.';
COMMENT ON COLUMN easeml.arm_beliefs.bound IS 'Upper confidence bound of its quality; null once the run has opened it.';
COMMENT ON COLUMN easeml.arm_beliefs.cost IS 'Expected cost, divided by the mean cost of all arms of all open runs.';
COMMENT ON COLUMN easeml.arm_beliefs.expected_seconds IS 'Seconds that it should take on one slot.';
COMMENT ON COLUMN easeml.arm_beliefs.quality IS 'Observed quality, from 0 to 1 (see easeml.quality); null until it is closed.';
COMMENT ON COLUMN easeml.arm_beliefs.cost_seconds IS 'Slot seconds that its units took; null until it is closed.';
COMMENT ON COLUMN easeml.arm_beliefs.opened_at IS 'When the coordinator opened it.';
COMMENT ON COLUMN easeml.arm_beliefs.closed_at IS 'When the coordinator found all its trials ended.';
COMMENT ON COLUMN easeml.arm_beliefs.updated_at IS 'When mean, deviation, bound and cost last changed.';
COMMENT ON COLUMN easeml.arm_beliefs.tenant IS 'Tenant that owns the run.';

CREATE VIEW easeml.run_regret WITH (security_invoker) AS
SELECT r.run_id, r.tenant::text AS tenant, d.dataset_name, r.status, a.best_quality, a.largest_bound,
    CASE WHEN r.status IN ('queued', 'running') THEN greatest(0, a.largest_bound - a.best_quality) END AS estimated_gap,
    a.n_arms, a.n_open, a.n_closed, a.n_waiting, a.spent_seconds, a.updated_at
FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
CROSS JOIN LATERAL (
    SELECT coalesce(max(b.quality), 0) AS best_quality, max(b.bound) AS largest_bound, count(*) AS n_arms, count(*) FILTER (WHERE b.status = 'open') AS n_open,
        count(*) FILTER (WHERE b.status = 'closed') AS n_closed, count(*) FILTER (WHERE b.status IN ('waiting', 'never opened')) AS n_waiting, coalesce(sum(b.cost_seconds), 0) AS spent_seconds, max(b.updated_at) AS updated_at
    FROM easeml.arm_beliefs b WHERE b.run_id = r.run_id) a;
COMMENT ON VIEW easeml.run_regret IS 'How much better each run may still get: the largest upper bound of its waiting arms minus its best quality so far.';
COMMENT ON COLUMN easeml.run_regret.run_id IS 'Number that easeml.select_models returned.';
COMMENT ON COLUMN easeml.run_regret.tenant IS 'Tenant that owns the run.';
COMMENT ON COLUMN easeml.run_regret.dataset_name IS 'Dataset that the run searches on.';
COMMENT ON COLUMN easeml.run_regret.status IS 'State of the run, as in easeml.run_status.';
COMMENT ON COLUMN easeml.run_regret.best_quality IS 'Best quality of its closed arms; 0 before the first.';
COMMENT ON COLUMN easeml.run_regret.largest_bound IS 'Largest upper bound of its waiting arms; null when none waits.';
COMMENT ON COLUMN easeml.run_regret.estimated_gap IS 'Estimated regret: largest_bound minus best_quality, at least 0; null once the run has ended.';
COMMENT ON COLUMN easeml.run_regret.n_arms IS 'Number of arms of the run.';
COMMENT ON COLUMN easeml.run_regret.n_open IS 'Arms whose trials may run.';
COMMENT ON COLUMN easeml.run_regret.n_closed IS 'Arms whose trials have all ended.';
COMMENT ON COLUMN easeml.run_regret.n_waiting IS 'Arms that the run has not opened.';
COMMENT ON COLUMN easeml.run_regret.spent_seconds IS 'Slot seconds that its closed arms took.';
COMMENT ON COLUMN easeml.run_regret.updated_at IS 'When the coordinator last changed what it believes of an arm of the run.';

CREATE VIEW easeml.policy_decisions WITH (security_invoker) AS
SELECT c.decision_id, c.decided_at, c.run_id, c.policy, c.phase, c.is_chosen, c.is_candidate, c.best_quality, c.sig, c.gap, c.score, c.chosen_gap, c.chosen_score,
    c.n_runs, a.architecture, x.opening_number, x.beta, x.mean, x.deviation, x.bound, x.cost, x.expected_seconds, cardinality(x.pending) AS n_pending,
    CASE WHEN c.is_chosen AND c.phase = 'first_service' THEN 'served: every run is served once first, in order of arrival'
        WHEN c.is_chosen AND c.phase = 'last_call' THEN 'served: the deadline is near'
        WHEN c.is_chosen AND c.phase = 'greedy' THEN format('served: its estimated gap weighs most, %s', round(c.gap::numeric, 4))
        WHEN c.is_chosen AND c.phase = 'ei_rate' THEN format('served: the largest expected improvement for its cost, %s', round(c.score::numeric, 6))
        WHEN c.is_chosen THEN format('served: by %s', c.phase)
        WHEN c.phase = 'first_service' THEN 'waited: a run that came earlier, or had nothing yet, was served first'
        WHEN c.phase = 'last_call' THEN 'waited: a run with a near deadline was served first'
        WHEN c.phase = 'greedy' AND c.sig IS NULL THEN 'waited: its first arm is not over yet'
        WHEN c.phase = 'greedy' AND NOT c.is_candidate THEN format('waited: what is left to gain (%s) is below the average', round(c.sig::numeric, 4))
        WHEN c.phase = 'greedy' THEN format('waited: a gap that weighs more was served, %s against %s', round(c.chosen_gap::numeric, 4), round(c.gap::numeric, 4))
        WHEN c.phase = 'ei_rate' THEN format('waited: a larger improvement for its cost was served, %s against %s', round(c.chosen_score::numeric, 6), round(c.score::numeric, 6))
        WHEN c.phase = 'round_robin' THEN 'waited: it was another run''s turn'
        ELSE format('waited: another run was served by %s', c.phase) END AS reason,
    c.tenant::text AS tenant
FROM easeml.arm_opening_candidates c
LEFT JOIN easeml.arm_openings x ON x.decision_id = c.decision_id AND c.is_chosen
LEFT JOIN easeml.arms a USING (arm_id);
COMMENT ON VIEW easeml.policy_decisions IS 'Which run opened its next arm, decision by decision: a row for each run of yours that took part, with the reason why it was served or waited.';
COMMENT ON COLUMN easeml.policy_decisions.decision_id IS 'Number of the decision; all runs that took part in it share it.';
COMMENT ON COLUMN easeml.policy_decisions.decided_at IS 'When the coordinator decided.';
COMMENT ON COLUMN easeml.policy_decisions.run_id IS 'Run that was served or waited.';
COMMENT ON COLUMN easeml.policy_decisions.policy IS 'Policy in use, one of easeml.policies.';
COMMENT ON COLUMN easeml.policy_decisions.phase IS 'The rule that chose: first_service, last_call, or a rule of the policy.';
COMMENT ON COLUMN easeml.policy_decisions.is_chosen IS 'Whether this run was served: it opened an arm.';
COMMENT ON COLUMN easeml.policy_decisions.is_candidate IS 'Whether the rule considered this run.';
COMMENT ON COLUMN easeml.policy_decisions.best_quality IS 'Best quality of the run so far.';
COMMENT ON COLUMN easeml.policy_decisions.sig IS 'Least upper bound among the arms that the run has opened, minus its last quality; null before its first quality.';
COMMENT ON COLUMN easeml.policy_decisions.gap IS 'Largest upper bound of the run''s waiting arms minus its best quality.';
COMMENT ON COLUMN easeml.policy_decisions.score IS 'Score of the arm that the run would open: an upper bound, or an expected improvement per unit of cost.';
COMMENT ON COLUMN easeml.policy_decisions.chosen_gap IS 'Gap of the run that was served.';
COMMENT ON COLUMN easeml.policy_decisions.chosen_score IS 'Score of the run that was served.';
COMMENT ON COLUMN easeml.policy_decisions.n_runs IS 'Number of runs with a waiting arm.';
COMMENT ON COLUMN easeml.policy_decisions.architecture IS 'Architecture of the arm that the run opened; it and the columns up to n_pending are null if the run waited.';
COMMENT ON COLUMN easeml.policy_decisions.opening_number IS 'Order in which the run opened this arm, from 1.';
COMMENT ON COLUMN easeml.policy_decisions.beta IS 'Weight of the variance in the upper bounds.';
COMMENT ON COLUMN easeml.policy_decisions.mean IS 'Expected quality of the arm, on the scale of the prior.';
COMMENT ON COLUMN easeml.policy_decisions.deviation IS 'Standard deviation of the expected quality.';
COMMENT ON COLUMN easeml.policy_decisions.bound IS 'Upper bound of the arm''s quality.';
COMMENT ON COLUMN easeml.policy_decisions.cost IS 'Expected cost of the arm, divided by the mean cost of all arms of open runs.';
COMMENT ON COLUMN easeml.policy_decisions.expected_seconds IS 'Seconds that the arm should take on one slot.';
COMMENT ON COLUMN easeml.policy_decisions.n_pending IS 'Other arms of the run that were open.';
COMMENT ON COLUMN easeml.policy_decisions.reason IS 'Why the run was served or waited, in words.';
COMMENT ON COLUMN easeml.policy_decisions.tenant IS 'Tenant that owns the run.';

-- views/tenants.sql
CREATE VIEW easeml.tenant_status WITH (security_invoker) AS
SELECT o.tenant::text AS tenant, coalesce(t.weight, 1) AS weight, t.deadline, extract(epoch FROM t.deadline - clock_timestamp())::double precision AS seconds_to_deadline,
    t.max_runs, t.max_slots, t.max_bytes, t.max_hours, r.n_open_runs, r.n_queued_runs, s.n_busy_slots,
    easeml.used_bytes(o.tenant) AS used_bytes, easeml.used_hours(o.tenant) AS used_hours, t.created_at,
    w.n_waiting_arms, w.n_open_arms, l.served_at AS last_served_at, l.reason AS last_decision
FROM (SELECT tenant FROM easeml.tenants UNION SELECT tenant FROM easeml.runs) o
LEFT JOIN easeml.tenants t USING (tenant)
CROSS JOIN LATERAL (
    SELECT count(*) AS n_open_runs, count(*) FILTER (WHERE q.status = 'queued') AS n_queued_runs
    FROM easeml.runs q WHERE q.tenant = o.tenant AND q.status IN ('queued', 'running')) r
CROSS JOIN LATERAL (
    SELECT count(*) AS n_busy_slots FROM easeml.slots b JOIN easeml.trials k USING (trial_id)
    WHERE k.tenant = o.tenant AND b.unit_started_at IS NOT NULL AND b.status <> 'lost' AND easeml.has_live_coordinator()) s
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE b.status = 'waiting') AS n_waiting_arms, count(*) FILTER (WHERE b.status = 'open') AS n_open_arms
    FROM easeml.arm_beliefs b JOIN easeml.runs q USING (run_id) WHERE q.tenant = o.tenant AND q.status IN ('queued', 'running')) w
CROSS JOIN LATERAL (
    SELECT max(c.decided_at) FILTER (WHERE c.is_chosen) AS served_at, (array_agg(c.reason ORDER BY c.decision_id DESC, c.is_chosen DESC))[1] AS reason
    FROM easeml.policy_decisions c JOIN easeml.runs q USING (run_id) WHERE q.tenant = o.tenant AND q.status IN ('queued', 'running')) l;
COMMENT ON VIEW easeml.tenant_status IS 'Tenants with their settings and what they use, including roles that have runs and no settings of their own.';

COMMENT ON COLUMN easeml.tenant_status.tenant IS 'Role.';
COMMENT ON COLUMN easeml.tenant_status.weight IS 'Share of the slots relative to other tenants.';
COMMENT ON COLUMN easeml.tenant_status.deadline IS 'When its runs should have ended.';
COMMENT ON COLUMN easeml.tenant_status.seconds_to_deadline IS 'Seconds until the deadline; negative once it has passed.';
COMMENT ON COLUMN easeml.tenant_status.max_runs IS 'Queued and running runs that it may have at a time; null: no limit.';
COMMENT ON COLUMN easeml.tenant_status.max_slots IS 'Slots that it may have at a time; null: no limit.';
COMMENT ON COLUMN easeml.tenant_status.max_bytes IS 'Bytes that it may keep; null: no limit.';
COMMENT ON COLUMN easeml.tenant_status.max_hours IS 'Slot hours that it may use; null: no limit.';
COMMENT ON COLUMN easeml.tenant_status.n_open_runs IS 'Number of its queued and running runs.';
COMMENT ON COLUMN easeml.tenant_status.n_queued_runs IS 'Number of its queued runs.';
COMMENT ON COLUMN easeml.tenant_status.n_busy_slots IS 'Number of slots that run its units now.';
COMMENT ON COLUMN easeml.tenant_status.used_bytes IS 'Bytes of its packed blocks, encoders, events and live checkpoints.';
COMMENT ON COLUMN easeml.tenant_status.used_hours IS 'Slot hours of all its recorded units, those of dropped runs included.';
COMMENT ON COLUMN easeml.tenant_status.created_at IS 'When it became a tenant; null without settings of its own.';
COMMENT ON COLUMN easeml.tenant_status.n_waiting_arms IS 'Number of arms of its open runs that wait to be opened.';
COMMENT ON COLUMN easeml.tenant_status.n_open_arms IS 'Number of arms of its open runs whose trials may run.';
COMMENT ON COLUMN easeml.tenant_status.last_served_at IS 'When one of its open runs last opened an arm.';
COMMENT ON COLUMN easeml.tenant_status.last_decision IS 'Why its run was served or waited at the last decision that one of its open runs took part in.';

-- security/privileges.sql
-- Who may do what. Tenants read their own rows and write no table: easeml.requests is their door, and easeml_owner acts behind it.
-- Readers read all results and no data; the coordinator trains for all; administrators may do all but what needs a superuser.

GRANT easeml_tenant, easeml_reader, easeml_coordinator TO easeml_admin;
-- Whoever was given use of a dataset predicts, tenant or not.
GRANT USAGE ON SCHEMA easeml TO PUBLIC;

DO $security$
DECLARE
    item record;
BEGIN
    FOR item IN
        SELECT c.oid::regclass AS relation, c.relname AS relation_name FROM pg_class c
        WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind = 'r'
    LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO easeml_owner, easeml_admin, easeml_coordinator', item.relation);
        IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = item.relation AND attname = 'tenant') THEN
            EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', item.relation);
            EXECUTE format('CREATE POLICY all_rows ON %s TO easeml_owner, easeml_admin, easeml_coordinator USING (true) WITH CHECK (true)', item.relation);
            IF item.relation_name <> 'tenant_roles' THEN
                EXECUTE format('CREATE POLICY own_rows ON %s FOR SELECT TO easeml_tenant USING (tenant = (SELECT easeml.current_tenant()))', item.relation);
            END IF;
            IF item.relation_name NOT IN ('blocks', 'checkpoints', 'checkpoint_chunks', 'prediction_audits', 'prediction_log') THEN
                -- Whoever is a tenant, too, may read all columns of the rows that a policy shows, so of these tables only its own are shown.
                EXECUTE format('CREATE POLICY read_rows ON %s FOR SELECT TO easeml_reader USING (%s)', item.relation,
                    CASE WHEN item.relation_name IN ('datasets', 'partitions', 'evaluations') THEN '(SELECT easeml.reads_for_all())' ELSE 'true' END);
                -- These tell values of rows: the encoder holds categories, labels and means; statistics of a few rows are their targets;
                -- a checksum of a few rows tells which of the possible targets is theirs.
                EXECUTE (SELECT format('GRANT SELECT (%s) ON %s TO easeml_reader', string_agg(quote_ident(attname), ', '), item.relation)
                    FROM pg_attribute WHERE attrelid = item.relation AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('encoder', 'statistics', 'checksum'));
            END IF;
        ELSE
            EXECUTE format('GRANT SELECT ON %s TO easeml_reader', item.relation);
        END IF;
        EXECUTE format('GRANT SELECT ON %s TO easeml_tenant', item.relation);
    END LOOP;
    FOR item IN SELECT c.oid::regclass AS relation FROM pg_class c WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind = 'v' LOOP
        EXECUTE format('GRANT SELECT ON %s TO easeml_admin, easeml_coordinator, easeml_tenant, easeml_reader', item.relation);
    END LOOP;
    FOR item IN SELECT p.oid::regprocedure AS routine, p.prosecdef, p.proname FROM pg_proc p WHERE p.pronamespace = 'easeml'::regnamespace LOOP
        EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', item.routine);
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO easeml_owner', item.routine);
        -- Granting and revoking easeml_tenant takes a superuser.
        IF item.prosecdef AND item.proname NOT IN ('create_tenant', 'drop_tenant') THEN
            EXECUTE format('ALTER ROUTINE %s OWNER TO easeml_owner', item.routine);
        END IF;
    END LOOP;
END
$security$;

-- easeml.current_tenant reads it, so its own policy cannot ask that.
CREATE POLICY own_rows ON easeml.tenant_roles FOR SELECT TO easeml_tenant USING (role = to_regrole(quote_ident(current_user)));

-- The door, and what tenants write themselves: packed rows, which only they can read from the source, for the one dataset that
-- their transaction is packing. Privileges on columns leave no way to lock a table.
GRANT INSERT (action, arguments) ON easeml.requests TO easeml_tenant;
GRANT INSERT (dataset_id, split, partition_number, block_number, n_rows, inputs, targets, row_keys, row_hashes) ON easeml.blocks TO easeml_tenant;
ALTER TABLE easeml.blocks ALTER tenant SET DEFAULT easeml.current_tenant();
CREATE POLICY packed_rows ON easeml.blocks FOR INSERT TO easeml_tenant WITH CHECK (tenant = (SELECT easeml.current_tenant())
    AND easeml.is_being_packed(dataset_id));

-- The rule of what answers, where predictions and requests are carried out.
GRANT SELECT ON easeml.answering TO easeml_owner;

-- Plans are made behind the door, too.
GRANT SELECT ON easeml.prices TO easeml_owner;

-- Sizes for those who may not read what has them.
ALTER VIEW easeml.kept_sizes OWNER TO easeml_owner;

-- Identity columns need no right on their sequence; these two are drawn from by name.
GRANT USAGE ON SEQUENCE easeml.slots_slot_id_seq TO easeml_admin;
GRANT USAGE ON SEQUENCE easeml.arm_openings_decision_id_seq TO easeml_coordinator;

-- Who may call what: a routine without a line is easeml_owner's alone. Trigger functions never get one: whoever may execute
-- one can attach it to a table of their own, with invented rows.
DO $routines$
DECLARE
    granted record;
    routine regprocedure;
BEGIN
    FOR granted IN
        SELECT s.role, unnest(s.names) AS name FROM (VALUES
            -- What the guide names, then what those functions call in the name of their caller: each one checks what it is given.
            ('PUBLIC', '{predict,predict_value,predict_row,predict_probabilities,predict_table}'::text[]),
            ('PUBLIC', '{class_probabilities,predict_json,predict_numbers,predict_bytes,predict_packed,open_serving,write_predictions,
                find_source,find_output,qualified_name,fail,hide_context,raise_failure,array_bytes,version}'),
            -- They read with the rights of their caller; examined_trial refuses in words whoever may not see the rows.
            ('PUBLIC', '{evaluate,confusion_matrix,roc_curve,calibration,class_metrics,residuals,held_out_answers,explain,explain_row,examined_trial,examine_trial,examination}'),
            ('easeml_tenant', '{answering_trial,fail_unanswered,hyperparameter_importance,hyperparameter_importances}'),
            ('easeml_reader', '{hyperparameter_importance,hyperparameter_importances}'),
            ('easeml_tenant', '{create_dataset,dataset_rows,refresh_dataset,drop_dataset,replicate_dataset,grant_use,revoke_use,set_prediction_audit,
                select_models,preview_procedure,plan,plan_frontier,run_summary,wait,cancel,resume,drop_run,replay,deploy,undeploy,export_trial,import_trial,rollback,set_serving_metric}'),
            ('easeml_tenant', '{request,pack_version,pack_begun_dataset,is_being_packed,check_dataset,is_bound_by_limits,find_dataset,dataset_of,find_run,fail_run,near_names,
                export_file,import_model,store_import,
                preview_search,plan_search_on,known_times,timed_trials,plan_goal,fitting_architectures,check_replay_options,check_replay,replay_units,commit_first,quality,tried_sentence,best_sentences,advice_sentence,metric_text,members_text}'),
            ('easeml_tenant', '{forecast,run_standing,make_forecast,does_whole_rounds}'),
            -- What the views call.
            ('easeml_tenant', '{has_live_coordinator,current_tenant,current_tenancy,list_architectures,list_metrics,list_schedulers,list_allocations,
                list_procedures,list_policies,list_priors,used_bytes,used_hours}'),
            ('easeml_reader', '{reads_for_all,has_live_coordinator,current_tenant,current_tenancy,list_architectures,list_metrics,list_schedulers,
                list_procedures,list_policies,list_priors,used_bytes,used_hours}'),
            ('easeml_coordinator', '{warm_up,train_unit,evaluate_unit,train_round,evaluate_round,train_batch,evaluate_batch,batch_key,train_gang,evaluate_gang,pilot_unit,does_whole_rounds,share_of_time,
                open_unit,fence,leave_slot,advance,store_chunked,store_chunk,record_training,record_evaluation,record_metrics,note_takeover,note_serving,record_pilot,
                begin_ending,add_ensemble,drop_vain_ensemble,open_arm,close_arm,keep_beliefs,apply_decisions,copy_state,keep_allocations,charge,
                has_live_coordinator,current_tenant,current_tenancy,list_architectures,list_metrics,list_schedulers,list_allocations,
                list_procedures,list_policies,list_priors,used_bytes,used_hours,quality,find_run,fail_run,wait,run_summary,tried_sentence,best_sentences,advice_sentence,metric_text,members_text,commit_first,python_facts}'),
            ('easeml_admin', '{create_tenant,alter_tenant,drop_tenant,adopt_tenant,set_policy,set_slots,add_slots,drain_slot,resume_slot,remove_slot,
                add_segment,drain_segment,resume_segment,remove_segment,create_price_list,drop_price_list}'),
            ('easeml_admin', '{check_slot_options,find_segment,find_slot,check_leaving,lock_topology,read_price_list,check_json,check_tenant,find_tenant,tenant_named}')
        ) s(role, names)
    LOOP
        FOR routine IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'easeml'::regnamespace AND p.proname = granted.name LOOP
            EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %s', routine, granted.role);
        END LOOP;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'privileges.sql: there is no routine %', granted.name;
        END IF;
    END LOOP;
END
$routines$;

-- Administrators say what tenants may have and who they are, not the service that trains.
REVOKE INSERT, UPDATE, DELETE ON easeml.tenants, easeml.tenant_usage, easeml.tenant_roles, easeml.tenancy FROM easeml_coordinator;

REVOKE INSERT, UPDATE, DELETE ON easeml.price_lists, easeml.instance_types FROM easeml_coordinator;

-- It holds numbers of all tenants.
REVOKE SELECT ON easeml.policy_memory FROM easeml_tenant, easeml_reader;

-- The coordinator vacuums pruned states, which only an owner may do.
ALTER TABLE easeml.checkpoints OWNER TO easeml_coordinator;
ALTER TABLE easeml.checkpoint_chunks OWNER TO easeml_coordinator;

-- security/dump.sql
-- Without this, a dump would contain the extension but none of its rows.
DO $dump$
DECLARE
    item record;
BEGIN
    FOR item IN
        SELECT c.oid::regclass AS relation, c.relname AS relation_name FROM pg_catalog.pg_class c
        WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind IN ('r', 'S')
    LOOP
        PERFORM pg_catalog.pg_extension_config_dump(item.relation, CASE item.relation_name
            WHEN 'segments' THEN 'WHERE segment_id <> 1'  -- made by CREATE EXTENSION itself
            WHEN 'price_lists' THEN 'WHERE NOT is_shipped'  -- CREATE EXTENSION makes the others
            WHEN 'instance_types' THEN 'WHERE price_list NOT IN (SELECT price_list FROM easeml.price_lists WHERE is_shipped)'
            WHEN 'coordinator_lease' THEN 'WHERE false'
            WHEN 'coordinators' THEN 'WHERE false'
            -- pg_dump puts this behind SELECT columns FROM table. A role goes into the dump as a name that nothing checks, since one row with
            -- a role that the other cluster lacks would fail the whole table; easeml.restore_role and easeml.restore_grantee look for it there.
            -- A role that is gone already has no name, and must not be whichever role has its number there.
            WHEN 'tenant_roles' THEN 'WHERE false UNION ALL SELECT t.tenant, NULL, t.since, a.rolname FROM easeml.tenant_roles t JOIN pg_catalog.pg_roles a ON a.oid = t.role'
            WHEN 'dataset_grants' THEN 'WHERE false UNION ALL SELECT g.tenant, g.dataset_name, NULL, g.granted_at, g.serving_only, a.rolname'
                || ' FROM easeml.dataset_grants g JOIN pg_catalog.pg_roles a ON a.oid = g.grantee'
            ELSE '' END);
    END LOOP;
END
$dump$;
