CREATE VIEW easeml.tenant_status WITH (security_invoker) AS
SELECT o.owner::text AS tenant, coalesce(t.weight, 1) AS weight, t.deadline, extract(epoch FROM t.deadline - clock_timestamp())::double precision AS seconds_to_deadline,
    t.max_runs, t.max_slots, t.max_bytes, t.max_hours, r.n_open_runs, r.n_queued_runs, s.n_busy_slots,
    easeml.used_bytes(o.owner) AS used_bytes, easeml.used_hours(o.owner) AS used_hours, t.created_at
FROM (SELECT owner FROM easeml.tenants UNION SELECT owner FROM easeml.runs) o
LEFT JOIN easeml.tenants t USING (owner)
CROSS JOIN LATERAL (
    SELECT count(*) AS n_open_runs, count(*) FILTER (WHERE q.state = 'queued') AS n_queued_runs
    FROM easeml.runs q WHERE q.owner = o.owner AND q.state IN ('queued', 'running')) r
CROSS JOIN LATERAL (
    SELECT count(*) AS n_busy_slots FROM easeml.slots b JOIN easeml.trials k USING (trial_id)
    WHERE k.owner = o.owner AND b.unit_started_at IS NOT NULL AND b.state <> 'lost' AND easeml.has_live_coordinator()) s;
COMMENT ON VIEW easeml.tenant_status IS 'Tenants with what they may have and what they use; roles that have runs and no settings of their own are included.';

COMMENT ON COLUMN easeml.tenant_status.tenant IS 'Role.';
COMMENT ON COLUMN easeml.tenant_status.weight IS 'Share of the slots relative to other tenants.';
COMMENT ON COLUMN easeml.tenant_status.deadline IS 'When its runs should have ended.';
COMMENT ON COLUMN easeml.tenant_status.seconds_to_deadline IS 'From now until then; negative once it has passed.';
COMMENT ON COLUMN easeml.tenant_status.max_runs IS 'Queued and running runs that it may have at a time; null: no limit.';
COMMENT ON COLUMN easeml.tenant_status.max_slots IS 'Slots that it may have at a time; null: no limit.';
COMMENT ON COLUMN easeml.tenant_status.max_bytes IS 'Bytes that it may keep; null: no limit.';
COMMENT ON COLUMN easeml.tenant_status.max_hours IS 'Slot hours that it may use; null: no limit.';
COMMENT ON COLUMN easeml.tenant_status.n_open_runs IS 'Queued and running runs.';
COMMENT ON COLUMN easeml.tenant_status.n_queued_runs IS 'Those that are queued.';
COMMENT ON COLUMN easeml.tenant_status.n_busy_slots IS 'Slots that run its units now.';
COMMENT ON COLUMN easeml.tenant_status.used_bytes IS 'Bytes of its packed blocks and live checkpoints.';
COMMENT ON COLUMN easeml.tenant_status.used_hours IS 'Slot hours of all its recorded units, those of dropped runs included.';
COMMENT ON COLUMN easeml.tenant_status.created_at IS 'When it was made a tenant; null without settings of its own.';
