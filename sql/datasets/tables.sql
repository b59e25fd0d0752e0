-- Datasets: a registered source, shuffled once, split, and packed into blocks over partitions.

CREATE TABLE IF NOT EXISTS easeml.datasets (
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
ALTER TABLE easeml.datasets
    ADD COLUMN IF NOT EXISTS shuffle text CHECK (shuffle IN ('across', 'within')),
    ADD COLUMN IF NOT EXISTS n_moved_bytes bigint CHECK (n_moved_bytes >= 0);
COMMENT ON TABLE easeml.datasets IS 'Registered datasets, one row for each version.';
COMMENT ON COLUMN easeml.datasets.encoder IS
    'How columns become numbers, with statistics of the training rows; prediction applies the same encoding.';
COMMENT ON COLUMN easeml.datasets.explanations IS 'By input column, what it became and why.';
COMMENT ON COLUMN easeml.datasets.packing_xid IS
    'The transaction that is packing it: its tenant may add blocks in that transaction only. Null once it is packed.';
COMMENT ON COLUMN easeml.datasets.shuffle IS
    'For rows on nodes: dealt across all of them, or within each. Null: the rows are here.';
COMMENT ON COLUMN easeml.datasets.n_moved_bytes IS 'Bytes that went from node to node when it was packed.';
COMMENT ON COLUMN easeml.datasets.row_key IS
    'SQL expression that identifies a row of the source in easeml.dataset_rows.';
COMMENT ON COLUMN easeml.datasets.options IS
    'Further arguments of create_dataset, kept so that refresh_dataset can repeat them.';

CREATE TABLE IF NOT EXISTS easeml.partitions (
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
ALTER TABLE easeml.partitions
    ADD COLUMN IF NOT EXISTS n_kept_bytes bigint NOT NULL DEFAULT 0 CHECK (n_kept_bytes >= 0),
    ADD COLUMN IF NOT EXISTS home_segment_id integer REFERENCES easeml.segments;
COMMENT ON TABLE easeml.partitions IS 'The partitions of each dataset; a training unit reads one of them.';
COMMENT ON COLUMN easeml.partitions.n_kept_bytes IS 'The part of n_bytes that is in blocks of an earlier version.';
CREATE INDEX IF NOT EXISTS partitions_home_segment ON easeml.partitions (home_segment_id);
COMMENT ON COLUMN easeml.partitions.home_segment_id IS
    'The segment whose server got its blocks when it was packed; null: they are in easeml.blocks.';
COMMENT ON COLUMN easeml.partitions.checksum IS
    'CRC-32 over inputs and targets of its training blocks, block after block; easeml.replay refuses other rows.';

CREATE TABLE IF NOT EXISTS easeml.replicas (
    dataset_id bigint NOT NULL,
    tenant name NOT NULL,
    partition_number integer NOT NULL,
    segment_id integer NOT NULL REFERENCES easeml.segments,
    PRIMARY KEY (dataset_id, partition_number, segment_id),
    FOREIGN KEY (dataset_id, partition_number) REFERENCES easeml.partitions (dataset_id,
        partition_number) ON DELETE CASCADE,
    FOREIGN KEY (dataset_id, tenant) REFERENCES easeml.datasets (dataset_id, tenant) ON DELETE CASCADE
);
COMMENT ON TABLE easeml.replicas IS 'Which segments hold which partition of the datasets with bound placement.';
CREATE INDEX IF NOT EXISTS replicas_segment ON easeml.replicas (segment_id);

CREATE TABLE IF NOT EXISTS easeml.row_copies (
    copy_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dataset_id bigint NOT NULL,
    tenant name NOT NULL,
    run_id bigint,  -- no foreign keys here: copies outlive runs, and what is known of them segments
    split text NOT NULL CHECK (split IN ('train', 'validation', 'test')),
    partition_number integer NOT NULL,
    from_segment_id integer NOT NULL,
    to_segment_id integer NOT NULL,
    n_bytes bigint NOT NULL CHECK (n_bytes >= 0),
    seconds double precision NOT NULL CHECK (seconds >= 0 AND seconds < 1e9),
    FOREIGN KEY (dataset_id, tenant) REFERENCES easeml.datasets (dataset_id, tenant) ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS row_copies_dataset ON easeml.row_copies (dataset_id, tenant);
CREATE INDEX IF NOT EXISTS row_copies_run ON easeml.row_copies (run_id);
COMMENT ON TABLE easeml.row_copies IS
    'Packed rows that were copied to a node when its first unit needed them; they stay as long as the dataset.';
COMMENT ON COLUMN easeml.row_copies.run_id IS 'The run whose unit needed them.';
COMMENT ON COLUMN easeml.row_copies.n_bytes IS 'Bytes on the wire.';

CREATE TABLE IF NOT EXISTS easeml.packings (
    dataset_id bigint PRIMARY KEY,
    tenant name NOT NULL,
    dataset_name text NOT NULL,
    version integer NOT NULL,
    caller name NOT NULL,
    shuffle text NOT NULL CHECK (shuffle IN ('across', 'within')),
    arguments jsonb NOT NULL,
    places jsonb NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    not_before timestamptz,
    failed_at timestamptz,
    problem jsonb,
    UNIQUE (tenant, dataset_name)
);
COMMENT ON TABLE easeml.packings IS 'Datasets of rows on nodes that the service is still to pack, or could not pack.';
COMMENT ON COLUMN easeml.packings.dataset_id IS 'The number that the dataset will have.';
COMMENT ON COLUMN easeml.packings.caller IS 'The role that asked: a role of that name reads the tables on the nodes.';
COMMENT ON COLUMN easeml.packings.places IS 'The tables, by segment.';
COMMENT ON COLUMN easeml.packings.not_before IS 'When the service tries again, after a node did not answer.';
COMMENT ON COLUMN easeml.packings.problem IS 'What it waits for, or why it failed: the parts of an error.';

CREATE TABLE IF NOT EXISTS easeml.blocks (
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
COMMENT ON TABLE easeml.blocks IS
    'Packed examples: a row holds some thousand of them as contiguous little-endian arrays.';
COMMENT ON COLUMN easeml.blocks.inputs IS
    'The input columns one after another, each as an array of n_rows entries of the type that the encoder names.';
COMMENT ON COLUMN easeml.blocks.targets IS 'Labels as int32 codes, or numbers as float64.';
COMMENT ON COLUMN easeml.blocks.row_keys IS
    'The key of each row in the source, for easeml.dataset_rows; nothing else reads it.';
COMMENT ON COLUMN easeml.blocks.row_hashes IS
    'The hash of each row of a source without a key, for easeml.dataset_rows.';

CREATE TABLE IF NOT EXISTS easeml.kept_blocks (
    dataset_id bigint NOT NULL,
    tenant name NOT NULL,
    split text NOT NULL,
    partition_number integer NOT NULL,
    block_number integer NOT NULL,
    holder_id bigint NOT NULL,
    PRIMARY KEY (dataset_id, split, partition_number, block_number),
    FOREIGN KEY (dataset_id, tenant) REFERENCES easeml.datasets (dataset_id, tenant) ON DELETE CASCADE,
    FOREIGN KEY (holder_id, split, partition_number, block_number) REFERENCES easeml.blocks (dataset_id, split,
        partition_number, block_number)
);
CREATE INDEX IF NOT EXISTS kept_blocks_holder ON easeml.kept_blocks (holder_id, split, partition_number, block_number);
COMMENT ON TABLE easeml.kept_blocks IS
    'Blocks that a version of a task shares with an earlier one, under the same split, partition and number.';
COMMENT ON COLUMN easeml.kept_blocks.holder_id IS 'The version that has the block in easeml.blocks.';

CREATE TABLE IF NOT EXISTS easeml.dataset_grants (
    tenant name NOT NULL,
    dataset_name text NOT NULL,
    grantee regrole NOT NULL,
    granted_at timestamptz,
    serving_only boolean NOT NULL DEFAULT false,
    grantee_name name,
    PRIMARY KEY (tenant, dataset_name, grantee)
);
CREATE INDEX IF NOT EXISTS dataset_grants_grantee ON easeml.dataset_grants (grantee, dataset_name);
COMMENT ON TABLE easeml.dataset_grants IS 'Roles that may predict with the trials of a dataset (easeml.grant_use).';
COMMENT ON COLUMN easeml.dataset_grants.granted_at IS 'Of several grants of one name the oldest answers. Null: an open '
    'transaction granted that name to the role, too, so this one answers as tenant.dataset only.';
COMMENT ON COLUMN easeml.dataset_grants.grantee_name IS 'Name of the role in a dump; null in the table.';
COMMENT ON COLUMN easeml.dataset_grants.serving_only IS
    'Whether the role may ask only the trial that answers by default.';

CREATE TABLE IF NOT EXISTS easeml.prediction_audits (
    tenant name NOT NULL,
    dataset_name text NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, dataset_name)
);
COMMENT ON TABLE easeml.prediction_audits IS
    'Datasets whose tenant wants to know who predicts with them (easeml.set_prediction_audit).';

CREATE TABLE IF NOT EXISTS easeml.prediction_log (
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
COMMENT ON TABLE easeml.prediction_log IS 'Who predicted, for datasets under easeml.set_prediction_audit: a row for '
    'each day, role and trial, kept for 90 days.';
COMMENT ON COLUMN easeml.prediction_log.day IS 'The day in UTC.';
COMMENT ON COLUMN easeml.prediction_log.asker IS 'The role that predicted.';
COMMENT ON COLUMN easeml.prediction_log.n_statements IS 'Statements that predicted and committed. Read-only '
    'transactions do not count, nor does a statement while another session of the role holds the row.';
