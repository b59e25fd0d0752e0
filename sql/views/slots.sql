CREATE VIEW easeml.slot_status WITH (security_invoker) AS
SELECT s.slot_id, s.slot_name, g.segment_name, s.device, s.n_threads, s.memory_limit_bytes,
    CASE WHEN s.state = 'lost' THEN 'lost' WHEN s.state = 'draining' AND (s.unit_started_at IS NULL OR NOT easeml.has_live_coordinator()) THEN 'drained'
        WHEN NOT easeml.has_live_coordinator() THEN 'offline' WHEN s.state = 'draining' THEN 'draining' WHEN s.unit_started_at IS NULL THEN 'idle' ELSE 'busy' END AS state,
    t.run_id, t.trial_id, t.trial_number, t.architecture, CASE WHEN t.trial_id IS NOT NULL THEN s.kind END AS kind,
    CASE WHEN t.trial_id IS NOT NULL THEN s.epoch END AS epoch, CASE WHEN t.trial_id IS NOT NULL THEN s.partition_number END AS partition_number,
    CASE WHEN easeml.has_live_coordinator() THEN s.unit_started_at END AS unit_started_at,
    CASE WHEN easeml.has_live_coordinator() THEN extract(epoch FROM clock_timestamp() - s.unit_started_at)::double precision END AS unit_seconds, s.n_units_done, s.backend_pid,
    s.lost_reason, s.lost_at
FROM easeml.slots s
JOIN easeml.segments g USING (segment_id)
LEFT JOIN easeml.trials t ON t.trial_id = s.trial_id AND s.unit_started_at IS NOT NULL;
COMMENT ON VIEW easeml.slot_status IS 'What each slot is doing; whose trial it is shows only to those who may see that trial.';

CREATE VIEW easeml.segment_status WITH (security_invoker) AS
SELECT g.segment_id, g.segment_name, s.n_slots, s.n_active_slots, h.n_partitions, h.n_bytes
FROM easeml.segments g
CROSS JOIN LATERAL (SELECT count(*) AS n_slots, count(*) FILTER (WHERE state = 'active') AS n_active_slots FROM easeml.slots WHERE segment_id = g.segment_id) s
CROSS JOIN LATERAL (SELECT count(*) AS n_partitions, coalesce(sum(p.n_bytes), 0)::bigint AS n_bytes
    FROM easeml.replicas c JOIN easeml.partitions p USING (dataset_id, partition_number) WHERE c.segment_id = g.segment_id) h;
COMMENT ON VIEW easeml.segment_status IS 'Segments with their slots and what they hold.';

CREATE VIEW easeml.coordinator_status WITH (security_invoker) AS
SELECT c.lease_number, c.host, c.process_id, c.version, c.started_at, c.heartbeat_at, c.stopped_at,
    extract(epoch FROM clock_timestamp() - c.heartbeat_at)::double precision AS heartbeat_age_seconds,
    c.stopped_at IS NULL AND l.lease_number IS NOT NULL AND c.heartbeat_at > clock_timestamp() - interval '10 seconds' AS is_alive
FROM easeml.coordinators c LEFT JOIN easeml.coordinator_lease l USING (lease_number);
COMMENT ON VIEW easeml.coordinator_status IS 'Coordinators that have held the lease, and whether one is alive.';

COMMENT ON COLUMN easeml.slot_status.slot_id IS 'Number.';
COMMENT ON COLUMN easeml.slot_status.slot_name IS 'Name.';
COMMENT ON COLUMN easeml.slot_status.segment_name IS 'Where it is.';
COMMENT ON COLUMN easeml.slot_status.device IS 'cpu, cpu:N (the N-th n_threads cores) or cuda:N; slots with the same cpu:N or cuda:N share it.';
COMMENT ON COLUMN easeml.slot_status.n_threads IS 'CPU threads.';
COMMENT ON COLUMN easeml.slot_status.memory_limit_bytes IS 'Memory limit of its session.';
COMMENT ON COLUMN easeml.slot_status.state IS 'offline (no live coordinator), idle, busy, draining (ends its unit), drained, or lost (given up with a stuck unit).';
COMMENT ON COLUMN easeml.slot_status.run_id IS 'Run of its unit.';
COMMENT ON COLUMN easeml.slot_status.trial_id IS 'Trial of its unit.';
COMMENT ON COLUMN easeml.slot_status.trial_number IS 'Its number within the run.';
COMMENT ON COLUMN easeml.slot_status.architecture IS 'Its architecture.';
COMMENT ON COLUMN easeml.slot_status.kind IS 'train, validate or test.';
COMMENT ON COLUMN easeml.slot_status.epoch IS 'Epoch.';
COMMENT ON COLUMN easeml.slot_status.partition_number IS 'Partition.';
COMMENT ON COLUMN easeml.slot_status.unit_started_at IS 'Start of its unit.';
COMMENT ON COLUMN easeml.slot_status.unit_seconds IS 'Since then.';
COMMENT ON COLUMN easeml.slot_status.n_units_done IS 'Units recorded by this slot.';
COMMENT ON COLUMN easeml.slot_status.backend_pid IS 'Server process.';
COMMENT ON COLUMN easeml.slot_status.lost_reason IS 'Why it is lost, or why its session cannot be opened.';
COMMENT ON COLUMN easeml.slot_status.lost_at IS 'When it was given up.';

COMMENT ON COLUMN easeml.segment_status.segment_id IS 'Number.';
COMMENT ON COLUMN easeml.segment_status.segment_name IS 'Name.';
COMMENT ON COLUMN easeml.segment_status.n_slots IS 'Its slots.';
COMMENT ON COLUMN easeml.segment_status.n_active_slots IS 'Those that get units.';
COMMENT ON COLUMN easeml.segment_status.n_partitions IS 'Partitions of bound data sets that it holds, of those that the reader may see.';
COMMENT ON COLUMN easeml.segment_status.n_bytes IS 'Their packed bytes.';

COMMENT ON COLUMN easeml.coordinator_status.lease_number IS 'The lease it drew.';
COMMENT ON COLUMN easeml.coordinator_status.host IS 'Machine.';
COMMENT ON COLUMN easeml.coordinator_status.process_id IS 'Process.';
COMMENT ON COLUMN easeml.coordinator_status.version IS 'Version of the package.';
COMMENT ON COLUMN easeml.coordinator_status.started_at IS 'Start.';
COMMENT ON COLUMN easeml.coordinator_status.heartbeat_at IS 'Last sign of life.';
COMMENT ON COLUMN easeml.coordinator_status.stopped_at IS 'Orderly end.';
COMMENT ON COLUMN easeml.coordinator_status.heartbeat_age_seconds IS 'Since the last sign of life.';
COMMENT ON COLUMN easeml.coordinator_status.is_alive IS 'Whether it holds the lease and beat within ten seconds.';
