-- How the service does, in one row that reads slots, open runs and the coordinator's row, and nothing that grows. What
-- begins while the statement is under way has an age of 0.

CREATE OR REPLACE VIEW easeml.health WITH (security_invoker) AS
SELECT easeml.has_live_coordinator() AS is_alive, extract(epoch FROM greatest(now(), statement_timestamp(),
        c.heartbeat_at) - c.heartbeat_at)::double precision AS heartbeat_age_seconds,
    c.version, c.started_at, c.lease_number, r.n_queued_runs, r.n_running_runs, r.oldest_queued_seconds,
    s.n_slots, s.n_busy_slots, s.n_lost_slots, s.n_unavailable_slots, s.longest_unit_seconds, s.n_units_done,
    (c.counters ->> 'units_recorded')::bigint AS units_recorded,
    (c.counters ->> 'unit_seconds')::double precision AS unit_seconds,
    (c.counters ->> 'units_failed')::bigint AS units_failed, (c.counters ->> 'units_lost')::bigint AS units_lost,
    (c.counters ->> 'pilots')::bigint AS pilots, (c.counters ->> 'slots_stuck')::bigint AS slots_stuck,
    (c.counters ->> 'runs_changed')::bigint AS runs_changed,
    (c.counters ->> 'instances_failed')::bigint AS instances_failed,
    (c.counters ->> 'longest_turn_seconds')::double precision AS longest_turn_seconds
FROM easeml.coordinator_lease l LEFT JOIN easeml.coordinators c USING (lease_number)
CROSS JOIN (SELECT count(*) FILTER (WHERE o.status = 'queued') AS n_queued_runs,
    count(*) FILTER (WHERE o.status = 'running') AS n_running_runs,
        extract(epoch FROM greatest(now(), statement_timestamp())
            - min(o.created_at) FILTER (WHERE o.status = 'queued'))::double precision AS oldest_queued_seconds
    FROM easeml.runs o WHERE o.is_open) r
CROSS JOIN (SELECT count(*) AS n_slots, count(*) FILTER (WHERE p.unit_started_at IS NOT NULL AND p.status <> 'lost'
        AND easeml.has_live_coordinator()) AS n_busy_slots,
        count(*) FILTER (WHERE p.status = 'lost') AS n_lost_slots,
        count(*) FILTER (WHERE p.status <> 'lost' AND p.lost_reason IS NOT NULL) AS n_unavailable_slots,
        extract(epoch FROM max(greatest(now(), statement_timestamp(), p.unit_started_at) - p.unit_started_at) FILTER
            (WHERE p.status <> 'lost' AND easeml.has_live_coordinator()))::double precision AS longest_unit_seconds,
        coalesce(sum(p.n_units_done), 0)::bigint AS n_units_done
    FROM easeml.slots p) s;
COMMENT ON VIEW easeml.health IS 'State of the service, in one row that is cheap to read: the coordinator, open runs '
    'that you may see, slots, and what the coordinator has counted since it took over.';
COMMENT ON COLUMN easeml.health.is_alive IS
    'Whether a coordinator holds the lease and sent a heartbeat within ten seconds.';
COMMENT ON COLUMN easeml.health.heartbeat_age_seconds IS
    'Seconds since its last heartbeat; one comes every two seconds.';
COMMENT ON COLUMN easeml.health.version IS 'Version of its package.';
COMMENT ON COLUMN easeml.health.started_at IS 'When it took over and began to count.';
COMMENT ON COLUMN easeml.health.lease_number IS 'Number of its lease.';
COMMENT ON COLUMN easeml.health.n_queued_runs IS 'Runs that wait for their first unit.';
COMMENT ON COLUMN easeml.health.n_running_runs IS 'Runs under way.';
COMMENT ON COLUMN easeml.health.oldest_queued_seconds IS
    'How long the oldest queued run has waited; null if none does.';
COMMENT ON COLUMN easeml.health.n_slots IS 'Number of slots.';
COMMENT ON COLUMN easeml.health.n_busy_slots IS 'Slots that run a unit.';
COMMENT ON COLUMN easeml.health.n_lost_slots IS 'Slots that were given up with a stuck unit.';
COMMENT ON COLUMN easeml.health.n_unavailable_slots IS 'Slots whose session cannot be opened.';
COMMENT ON COLUMN easeml.health.longest_unit_seconds IS
    'Seconds since the oldest of the units under way began; null if there is none.';
COMMENT ON COLUMN easeml.health.n_units_done IS 'Units that the present slots have recorded.';
COMMENT ON COLUMN easeml.health.units_recorded IS 'Units recorded since the coordinator took over.';
COMMENT ON COLUMN easeml.health.unit_seconds IS 'Slot seconds that they took.';
COMMENT ON COLUMN easeml.health.units_failed IS 'Units that failed by themselves.';
COMMENT ON COLUMN easeml.health.units_lost IS 'Units that were lost with their session and queued again.';
COMMENT ON COLUMN easeml.health.pilots IS 'Trials that were timed.';
COMMENT ON COLUMN easeml.health.slots_stuck IS 'Slots that were given up.';
COMMENT ON COLUMN easeml.health.runs_changed IS 'Changes of runs that it found.';
COMMENT ON COLUMN easeml.health.instances_failed IS 'Instances that did not come up, or died.';
COMMENT ON COLUMN easeml.health.longest_turn_seconds IS 'Longest processor time since it took over for which its loop '
    'looked at nothing that had arrived: other tenants waited as long.';
