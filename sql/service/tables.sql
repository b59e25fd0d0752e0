-- The facts of a restored dump about itself, and the tables that wait to be checked.

CREATE TABLE IF NOT EXISTS easeml.dumps (
    version text NOT NULL,
    n_rows jsonb NOT NULL,
    roles jsonb NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE easeml.dumps IS
    'The dump that this database was restored from: a row that pg_dump writes into each dump, see security/dump.sql.';
COMMENT ON COLUMN easeml.dumps.version IS 'Version of the extension that the dump was made with.';
COMMENT ON COLUMN easeml.dumps.n_rows IS 'How many rows the dump holds, by table.';
COMMENT ON COLUMN easeml.dumps.roles IS 'The roles that own or may use something of the database, or are members of '
    'easeml''s groups: whether they can log in, and their groups.';

CREATE TABLE IF NOT EXISTS easeml.restored_tables (
    table_name name NOT NULL,
    backend_pid integer NOT NULL,
    backend_started timestamptz NOT NULL,
    n_rows bigint DEFAULT 0,
    PRIMARY KEY (table_name, backend_pid, backend_started)
);
COMMENT ON TABLE easeml.restored_tables IS
    'Tables that a restore has filled without checking foreign keys, until easeml.finish_restore has checked them.';
COMMENT ON COLUMN easeml.restored_tables.backend_pid IS
    'The session that fills the table; any other session finds rows there and is refused.';
COMMENT ON COLUMN easeml.restored_tables.n_rows IS
    'How many rows it has brought; null if the server counts none (track_counts).';

-- How long old rows are kept, where administrators chose; service/retention.sql has the defaults.

CREATE TABLE IF NOT EXISTS easeml.retention_settings (
    what text PRIMARY KEY,
    keep interval CHECK (keep > '0' AND keep <= '1000 years'),
    set_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE easeml.retention_settings IS
    'How long old rows are kept, for what easeml.set_retention has changed; easeml.retention shows all.';
COMMENT ON COLUMN easeml.retention_settings.keep IS 'For how long; null: forever.';

-- Sessions that held the lock table, summed up: a role that does it again and again adds no row.

CREATE TABLE IF NOT EXISTS easeml.lock_holders (
    role_name name NOT NULL,
    database_name name NOT NULL,
    n_ended bigint NOT NULL,
    most_locks bigint NOT NULL,
    capacity bigint NOT NULL,
    first_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (role_name, database_name)
);
COMMENT ON TABLE easeml.lock_holders IS 'Roles that filled the server''s lock table, and whose sessions the service '
    'ended for that. For administrators; delete rows that you have seen to.';
COMMENT ON COLUMN easeml.lock_holders.role_name IS
    'The role; empty for transactions that are prepared, which somebody must roll back.';
COMMENT ON COLUMN easeml.lock_holders.n_ended IS 'How many of its sessions were ended.';
COMMENT ON COLUMN easeml.lock_holders.most_locks IS 'The most locks that one of them held.';
COMMENT ON COLUMN easeml.lock_holders.capacity IS
    'How many locks the table is made for: max_locks_per_transaction for each possible session.';
