-- What a node holds. It has the columns that units read in schema easeml, under the same names: one code reads both.
-- Nothing here is of PostgreSQL 13 or newer.

CREATE TABLE easeml_segment.node (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    identity text NOT NULL,
    holder text
);
COMMENT ON TABLE easeml_segment.node IS 'Which node this is, and the one segment of a control server that it serves.';
COMMENT ON COLUMN easeml_segment.node.identity IS
    'Drawn at random when the extension is created; it reveals two names of one node.';
INSERT INTO easeml_segment.node (identity) SELECT md5(concat(random(), random(), clock_timestamp(), pg_backend_pid()));

CREATE TABLE easeml_segment.datasets (
    dataset_id bigint PRIMARY KEY,
    encoder jsonb NOT NULL
);
COMMENT ON TABLE easeml_segment.datasets IS 'The encoders of datasets, as the control server numbers them.';

CREATE TABLE easeml_segment.partitions (
    dataset_id bigint NOT NULL REFERENCES easeml_segment.datasets ON DELETE CASCADE,
    split text NOT NULL,
    partition_number integer NOT NULL,
    PRIMARY KEY (dataset_id, split, partition_number)
);
COMMENT ON TABLE easeml_segment.partitions IS 'The parts of datasets whose blocks are all here.';

CREATE TABLE easeml_segment.version_blocks (
    dataset_id bigint NOT NULL REFERENCES easeml_segment.datasets ON DELETE CASCADE,
    split text NOT NULL,
    partition_number integer NOT NULL,
    block_number integer NOT NULL,
    n_rows integer NOT NULL,
    inputs bytea NOT NULL,
    targets bytea NOT NULL,
    PRIMARY KEY (dataset_id, split, partition_number, block_number)
);
ALTER TABLE easeml_segment.version_blocks ALTER inputs SET STORAGE EXTERNAL, ALTER targets SET STORAGE EXTERNAL;
COMMENT ON TABLE easeml_segment.version_blocks IS 'Packed examples.';

CREATE TABLE easeml_segment.registered_architectures (
    architecture text PRIMARY KEY,
    entry_point text NOT NULL,
    hyperparameters jsonb NOT NULL,
    summary text NOT NULL,
    tasks text[] NOT NULL,
    input_ranks integer[] NOT NULL,
    made_for text[] NOT NULL
);
COMMENT ON TABLE easeml_segment.registered_architectures IS
    'Architectures of installed packages that trials here have needed, as they were registered on the control server.';

CREATE TABLE easeml_segment.checkpoints (
    checkpoint_id bigint PRIMARY KEY,
    trial_id bigint NOT NULL,
    lease_number bigint NOT NULL,
    n_bytes bigint NOT NULL,
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    state bytea,
    stored_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE easeml_segment.checkpoints IS
    'States, never overwritten. Those that the control server does not point to are garbage.';
COMMENT ON COLUMN easeml_segment.checkpoints.lease_number IS
    'The coordinator that had it written; an earlier coordinator does not treat it as garbage.';
COMMENT ON COLUMN easeml_segment.checkpoints.state IS 'Always null: the bytes are in easeml_segment.checkpoint_chunks.';

CREATE TABLE easeml_segment.checkpoint_chunks (
    checkpoint_id bigint NOT NULL REFERENCES easeml_segment.checkpoints ON DELETE CASCADE,
    chunk_number integer NOT NULL CHECK (chunk_number >= 0),
    bytes bytea NOT NULL,
    PRIMARY KEY (checkpoint_id, chunk_number)
);
ALTER TABLE easeml_segment.checkpoint_chunks ALTER bytes SET STORAGE EXTERNAL;
ALTER TABLE easeml_segment.checkpoint_chunks SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2,
    autovacuum_vacuum_cost_delay = 0, toast.autovacuum_vacuum_scale_factor = 0.1,
    toast.autovacuum_vacuum_threshold = 1000, toast.autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE easeml_segment.checkpoint_chunks IS 'States in chunks of 1 MB.';
