-- Where units run, and which coordinator may record them.

CREATE TABLE IF NOT EXISTS easeml.segments (
    segment_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    segment_name text NOT NULL UNIQUE,
    engine text NOT NULL DEFAULT 'postgres' CHECK (engine ~ '^[a-z][a-z0-9_]{0,62}$')
);
ALTER TABLE easeml.segments
    ADD COLUMN IF NOT EXISTS service text CHECK (service ~ '^[A-Za-z0-9_.-]{1,63}$'),
    ADD COLUMN IF NOT EXISTS token text,
    ADD COLUMN IF NOT EXISTS identity text UNIQUE,
    ADD COLUMN IF NOT EXISTS facts jsonb,
    ADD COLUMN IF NOT EXISTS checked_at timestamptz,
    ADD COLUMN IF NOT EXISTS refusal text,
    ADD COLUMN IF NOT EXISTS content integer CHECK (content >= 0);
CREATE UNIQUE INDEX IF NOT EXISTS segments_place ON easeml.segments (service, coalesce(content, -1));
COMMENT ON TABLE easeml.segments IS 'Places that hold partitions and run units; this server is the first.';
COMMENT ON COLUMN easeml.segments.service IS 'Name of its server in pg_service.conf; null: this server. Host, user and '
    'password are in the files of those who connect.';
COMMENT ON COLUMN easeml.segments.content IS 'Which member of a cluster it is, if the service names the cluster''s '
    'coordinator: the content of a segment of Greenplum, or the group of a worker of Citus; null: the server itself.';
COMMENT ON COLUMN easeml.segments.token IS 'Token by which its server knows that it serves this segment and no other.';
COMMENT ON COLUMN easeml.segments.identity IS
    'Identity that its server reports: two segments are never the same server.';
COMMENT ON COLUMN easeml.segments.facts IS 'What its server last reported about itself.';
COMMENT ON COLUMN easeml.segments.refusal IS 'Why no units run there; null: they do.';
INSERT INTO easeml.segments (segment_id, segment_name) OVERRIDING SYSTEM VALUE VALUES (1, 'local')
ON CONFLICT DO NOTHING;
SELECT setval('easeml.segments_segment_id_seq', last_value) FROM easeml.segments_segment_id_seq;

-- Its rules are those of the trigger slot_values; runs/tables.sql says why.
CREATE TABLE IF NOT EXISTS easeml.slots (
    slot_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot_name text NOT NULL UNIQUE,
    segment_id integer NOT NULL DEFAULT 1 REFERENCES easeml.segments,
    device text NOT NULL DEFAULT 'cpu',
    n_threads integer NOT NULL DEFAULT 1,
    memory_limit_bytes bigint,
    status text NOT NULL DEFAULT 'active',
    lost_reason text,
    lost_at timestamptz,
    backend_pid integer,
    trial_id bigint,
    kind text,
    epoch integer,
    partition_number integer,
    unit_started_at timestamptz,
    n_units_done bigint NOT NULL DEFAULT 0
);
ALTER TABLE easeml.slots
    ADD COLUMN IF NOT EXISTS instance_id bigint,  -- no foreign key: instances outlive runs, and slots outlive instances
    ADD COLUMN IF NOT EXISTS is_added boolean NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS start_seconds jsonb NOT NULL DEFAULT '{}';
CREATE INDEX IF NOT EXISTS slots_segment ON easeml.slots (segment_id);
CREATE INDEX IF NOT EXISTS slots_instance ON easeml.slots (instance_id) WHERE instance_id IS NOT NULL;
-- Small tables whose rows change every second: dead rows go before there are pages of them.
ALTER TABLE easeml.slots SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE easeml.slots IS 'Sessions that carry out one order at a time (a unit, a batch or a whole round), each '
    'bound to one device; easeml.set_slots and the units themselves write them.';
COMMENT ON COLUMN easeml.slots.device IS 'cuda:N: a GPU; cpu: n_threads threads on any core; cpu:N: the N-th n_threads '
    'cores. Slots of a segment with the same cuda:N or cpu:N share it.';
COMMENT ON COLUMN easeml.slots.instance_id IS
    'The instance that it belongs to, or was taken for; it is reserved for that instance''s run.';
COMMENT ON COLUMN easeml.slots.is_added IS 'Whether it was added for its instance, and is removed with it.';
COMMENT ON COLUMN easeml.slots.start_seconds IS 'session: seconds that it took to open its session. Name of a trainer: '
    'seconds that the first unit of such a trial took to import what it needs, which are not in the time of any unit.';
COMMENT ON COLUMN easeml.slots.memory_limit_bytes IS 'RLIMIT_DATA of the session: a unit beyond it fails with out of '
    'memory and does not take the server down. NULL: its share of the machine''s memory; on a GPU no limit.';

CREATE TABLE IF NOT EXISTS easeml.coordinator_lease (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    lease_number bigint NOT NULL DEFAULT 0,
    acquired_at timestamptz,
    holder_pid integer,
    holder_started timestamptz
);
COMMENT ON TABLE easeml.coordinator_lease IS 'The number that a coordinator draws when it takes over. Units that an '
    'earlier coordinator started can no longer be recorded.';
COMMENT ON COLUMN easeml.coordinator_lease.holder_pid IS 'The session that holds it; once that is gone, or its last '
    'heartbeat older than 30 seconds, another coordinator takes over.';
COMMENT ON COLUMN easeml.coordinator_lease.holder_started IS 'When that session started.';
INSERT INTO easeml.coordinator_lease DEFAULT VALUES ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS easeml.coordinators (
    lease_number bigint PRIMARY KEY,
    host text NOT NULL,
    process_id integer NOT NULL,
    version text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now(),
    stopped_at timestamptz
);
ALTER TABLE easeml.coordinators ADD COLUMN IF NOT EXISTS counters jsonb NOT NULL DEFAULT '{}';
ALTER TABLE easeml.coordinators
    SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE easeml.coordinators IS 'Coordinators that have held the lease, with their last heartbeat.';
COMMENT ON COLUMN easeml.coordinators.counters IS 'What it has counted since it took over, as of its last heartbeat.';
