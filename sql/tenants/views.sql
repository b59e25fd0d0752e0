CREATE OR REPLACE VIEW easeml.tenant_status WITH (security_invoker) AS
SELECT o.tenant::text AS tenant, coalesce(t.weight, 1) AS weight, t.deadline,
    extract(epoch FROM t.deadline - greatest(now(), statement_timestamp()))::double precision AS seconds_to_deadline,
    t.max_runs, t.max_slots, t.max_bytes, t.max_hours, r.n_open_runs, r.n_queued_runs, s.n_busy_slots,
    easeml.used_bytes(o.tenant) AS used_bytes, easeml.used_hours(o.tenant) AS used_hours, t.created_at,
    w.n_waiting_arms, w.n_open_arms, l.served_at AS last_served_at, m.reason AS last_decision,
    (SELECT coalesce(sum(coalesce(q.record_bytes, easeml.record_bytes(q.run_id))), 0)::bigint FROM easeml.runs q
        WHERE q.tenant = o.tenant) AS record_bytes
FROM (SELECT tenant FROM easeml.tenants UNION SELECT tenant FROM easeml.runs) o
LEFT JOIN easeml.tenants t USING (tenant)
CROSS JOIN LATERAL (
    SELECT count(*) AS n_open_runs, count(*) FILTER (WHERE q.status = 'queued') AS n_queued_runs
    FROM easeml.runs q WHERE q.tenant = o.tenant AND q.is_open) r
CROSS JOIN LATERAL (
    SELECT count(*) AS n_busy_slots FROM easeml.slots b JOIN easeml.trials k USING (trial_id)
    WHERE k.tenant = o.tenant AND b.unit_started_at IS NOT NULL AND b.status <> 'lost'
        AND easeml.has_live_coordinator()) s
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE b.status = 'waiting') AS n_waiting_arms,
        count(*) FILTER (WHERE b.status = 'open') AS n_open_arms
    FROM easeml.arm_beliefs b JOIN easeml.runs q USING (run_id) WHERE q.tenant = o.tenant AND q.is_open) w
CROSS JOIN LATERAL (
    SELECT max(x.decided_at) AS served_at FROM easeml.arm_openings x JOIN easeml.runs q USING (run_id)
    WHERE q.tenant = o.tenant AND q.is_open) l
LEFT JOIN LATERAL (
    -- Of each open run only the newest decision is looked up.
    SELECT c.reason FROM easeml.runs q CROSS JOIN LATERAL (
        SELECT k.decision_id, k.is_chosen, k.reason FROM easeml.policy_decisions k
        WHERE k.run_id = q.run_id ORDER BY k.decision_id DESC LIMIT 1) c
    WHERE q.tenant = o.tenant AND q.is_open ORDER BY c.decision_id DESC, c.is_chosen DESC LIMIT 1) m ON true;
COMMENT ON VIEW easeml.tenant_status IS
    'Tenants with their settings and what they use, including roles that have runs and no settings of their own.';

COMMENT ON COLUMN easeml.tenant_status.tenant IS 'Role.';
COMMENT ON COLUMN easeml.tenant_status.weight IS 'Share of the slots relative to other tenants.';
COMMENT ON COLUMN easeml.tenant_status.deadline IS 'When its runs should have ended.';
COMMENT ON COLUMN easeml.tenant_status.seconds_to_deadline IS
    'Seconds until the deadline; negative once it has passed.';
COMMENT ON COLUMN easeml.tenant_status.max_runs IS
    'Queued and running runs that it may have at a time; null: no limit.';
COMMENT ON COLUMN easeml.tenant_status.max_slots IS 'Slots that it may have at a time; null: no limit.';
COMMENT ON COLUMN easeml.tenant_status.max_bytes IS 'Bytes that it may keep; null: no limit.';
COMMENT ON COLUMN easeml.tenant_status.max_hours IS 'Slot hours that it may use; null: no limit.';
COMMENT ON COLUMN easeml.tenant_status.n_open_runs IS 'Number of its queued and running runs.';
COMMENT ON COLUMN easeml.tenant_status.n_queued_runs IS 'Number of its queued runs.';
COMMENT ON COLUMN easeml.tenant_status.n_busy_slots IS 'Number of slots that run its units now.';
COMMENT ON COLUMN easeml.tenant_status.used_bytes IS 'Bytes of its packed rows (copies on nodes included), kept '
    'states, examples of tasks, encoders, events, refreshes, answers of nodes and records of runs.';
COMMENT ON COLUMN easeml.tenant_status.used_hours IS
    'Slot hours of all its recorded units, those of dropped runs included.';
COMMENT ON COLUMN easeml.tenant_status.created_at IS 'When it became a tenant; null without settings of its own.';
COMMENT ON COLUMN easeml.tenant_status.n_waiting_arms IS 'Number of arms of its open runs that wait to be opened.';
COMMENT ON COLUMN easeml.tenant_status.n_open_arms IS 'Number of arms of its open runs whose trials may run.';
COMMENT ON COLUMN easeml.tenant_status.last_served_at IS 'When one of its open runs last opened an arm.';
COMMENT ON COLUMN easeml.tenant_status.last_decision IS
    'Why its run was served or waited at the last decision that one of its open runs took part in.';
COMMENT ON COLUMN easeml.tenant_status.record_bytes IS
    'The part of used_bytes that its runs, arms, trials and measurements take, estimated; dropping runs frees it.';
