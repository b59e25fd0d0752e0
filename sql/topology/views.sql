CREATE OR REPLACE VIEW easeml.slot_status WITH (security_invoker) AS
SELECT s.slot_id, s.slot_name, g.segment_name, s.device, s.n_threads, s.memory_limit_bytes,
    CASE WHEN s.status = 'lost' THEN 'lost' WHEN s.status = 'draining'
        AND (s.unit_started_at IS NULL OR NOT easeml.has_live_coordinator()) THEN 'drained'
        WHEN NOT easeml.has_live_coordinator() THEN 'offline' WHEN s.status = 'draining' THEN 'draining'
            WHEN s.unit_started_at IS NOT NULL THEN 'busy'
        WHEN s.lost_reason IS NOT NULL THEN 'waiting' ELSE 'idle' END AS status,
    t.run_id, t.trial_id, t.trial_number, t.architecture, CASE WHEN t.trial_id IS NOT NULL THEN s.kind END AS kind,
    CASE WHEN t.trial_id IS NOT NULL THEN s.epoch END AS epoch,
    CASE WHEN t.trial_id IS NOT NULL THEN s.partition_number END AS partition_number,
    CASE WHEN easeml.has_live_coordinator() THEN s.unit_started_at END AS unit_started_at,
    CASE WHEN easeml.has_live_coordinator() THEN extract(epoch FROM greatest(now(),
                statement_timestamp(), s.unit_started_at) - s.unit_started_at)::double precision END AS unit_seconds,
    s.n_units_done, s.backend_pid,
    s.lost_reason, s.lost_at
FROM easeml.slots s
JOIN easeml.segments g USING (segment_id)
LEFT JOIN easeml.trials t ON t.trial_id = s.trial_id AND s.unit_started_at IS NOT NULL;
COMMENT ON VIEW easeml.slot_status IS
    'What each slot is doing. It shows a run and a trial only to those who may see them.';

CREATE OR REPLACE VIEW easeml.segment_status WITH (security_invoker) AS
SELECT g.segment_id, g.segment_name, s.n_slots, s.n_active_slots, h.n_partitions, h.n_bytes, g.engine, g.service,
    g.checked_at, g.refusal, g.content
FROM easeml.segments g
CROSS JOIN LATERAL (SELECT count(*) AS n_slots, count(*) FILTER (WHERE status = 'active') AS n_active_slots
    FROM easeml.slots WHERE segment_id = g.segment_id) s
CROSS JOIN LATERAL (SELECT count(*) AS n_partitions,
    least(coalesce(sum(p.n_bytes), 0), 9223372036854775807)::bigint AS n_bytes
    FROM easeml.replicas c JOIN easeml.partitions p USING (dataset_id, partition_number)
    WHERE c.segment_id = g.segment_id) h;
COMMENT ON VIEW easeml.segment_status IS 'Segments with their slots and the partitions that they hold.';

CREATE OR REPLACE VIEW easeml.coordinator_status WITH (security_invoker) AS
SELECT c.lease_number, c.host, c.process_id, c.version, c.started_at, c.heartbeat_at, c.stopped_at,
    extract(epoch FROM clock_timestamp() - c.heartbeat_at)::double precision AS heartbeat_age_seconds,
    c.stopped_at IS NULL AND l.lease_number IS NOT NULL
        AND c.heartbeat_at > clock_timestamp() - interval '10 seconds' AS is_alive
FROM easeml.coordinators c LEFT JOIN easeml.coordinator_lease l USING (lease_number);
COMMENT ON VIEW easeml.coordinator_status IS 'Coordinators that have held the lease, and which one is alive.';

COMMENT ON COLUMN easeml.slot_status.slot_id IS 'Number of the slot, for easeml.drain_slot and easeml.remove_slot.';
COMMENT ON COLUMN easeml.slot_status.slot_name IS 'Name of the slot.';
COMMENT ON COLUMN easeml.slot_status.segment_name IS 'Segment that it belongs to.';
COMMENT ON COLUMN easeml.slot_status.device IS
    'cpu, cpu:N (the N-th n_threads cores) or cuda:N; slots with the same cpu:N or cuda:N share it.';
COMMENT ON COLUMN easeml.slot_status.n_threads IS 'Number of CPU threads.';
COMMENT ON COLUMN easeml.slot_status.memory_limit_bytes IS 'Memory limit of its session.';
COMMENT ON COLUMN easeml.slot_status.status IS 'offline (no live coordinator), idle, busy, waiting (its session cannot '
    'be opened), draining (finishes its unit), drained, or lost (given up with a stuck unit).';
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
COMMENT ON COLUMN easeml.slot_status.lost_reason IS 'Why it is lost, or why it waits.';
COMMENT ON COLUMN easeml.slot_status.lost_at IS 'When it was given up.';

COMMENT ON COLUMN easeml.segment_status.segment_id IS 'Number of the segment.';
COMMENT ON COLUMN easeml.segment_status.segment_name IS 'Name of the segment.';
COMMENT ON COLUMN easeml.segment_status.n_slots IS 'Number of its slots.';
COMMENT ON COLUMN easeml.segment_status.n_active_slots IS 'Number of its slots that get units.';
COMMENT ON COLUMN easeml.segment_status.n_partitions IS
    'Number of partitions that it holds, of bound datasets that you may see.';
COMMENT ON COLUMN easeml.segment_status.n_bytes IS 'Packed bytes of those partitions.';
COMMENT ON COLUMN easeml.segment_status.engine IS 'What kind of server it is: postgres, citus (a worker of a Citus '
    'cluster), or greenplum (a segment of a Greenplum cluster).';
COMMENT ON COLUMN easeml.segment_status.service IS 'Name of its server in pg_service.conf; null: this server.';
COMMENT ON COLUMN easeml.segment_status.checked_at IS 'When its server was last checked.';
COMMENT ON COLUMN easeml.segment_status.refusal IS 'Why no units run there; null: no reason is known.';
COMMENT ON COLUMN easeml.segment_status.content IS 'Which member of a cluster it is, if the service names the '
    'cluster''s coordinator: a segment of Greenplum, or the group of a worker of Citus; null: the server itself.';

COMMENT ON COLUMN easeml.coordinator_status.lease_number IS 'Number that it drew when it took over.';
COMMENT ON COLUMN easeml.coordinator_status.host IS 'Machine that it runs on.';
COMMENT ON COLUMN easeml.coordinator_status.process_id IS 'Process on that machine.';
COMMENT ON COLUMN easeml.coordinator_status.version IS 'Version of its package.';
COMMENT ON COLUMN easeml.coordinator_status.started_at IS 'When it took over.';
COMMENT ON COLUMN easeml.coordinator_status.heartbeat_at IS 'When it sent its last heartbeat.';
COMMENT ON COLUMN easeml.coordinator_status.stopped_at IS
    'When it shut down in good order; null if it runs or was killed.';
COMMENT ON COLUMN easeml.coordinator_status.heartbeat_age_seconds IS 'Seconds since its last heartbeat.';
COMMENT ON COLUMN easeml.coordinator_status.is_alive IS
    'Whether it holds the lease and sent a heartbeat within ten seconds.';
