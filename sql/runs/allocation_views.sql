CREATE OR REPLACE VIEW easeml.trial_group_status WITH (security_invoker) AS
SELECT g.run_id, g.group_id, g.label, g.n_trials, a.n_allocations, a.n_resizes, g.created_at, g.ended_at,
    extract(epoch FROM g.ended_at - g.created_at)::double precision AS makespan_seconds, g.tenant::text AS tenant
FROM easeml.trial_groups g
CROSS JOIN LATERAL (SELECT count(*) AS n_allocations, count(*) FILTER (WHERE reason = 'dynamic') AS n_resizes
    FROM easeml.allocations WHERE group_id = g.group_id) a;
COMMENT ON VIEW easeml.trial_group_status IS 'Trial groups of runs with water-filling, and how long each took.';

CREATE OR REPLACE VIEW easeml.trial_allocations WITH (security_invoker) AS
SELECT a.run_id, a.group_id, a.trial_id, t.trial_number, t.architecture, a.width, cardinality(a.devices) AS n_devices,
    a.devices, a.slot_ids, a.reason, a.decided_at,
    coalesce(lead(a.decided_at) OVER (PARTITION BY a.run_id, a.trial_id ORDER BY a.allocation_id),
        t.finished_at, g.ended_at) AS until,
    -- The coordinator's clock says when it decided, the server's when the run began.
    greatest(extract(epoch FROM a.decided_at - r.started_at)::double precision, 0) AS elapsed_seconds,
        a.tenant::text AS tenant
FROM easeml.allocations a JOIN easeml.trials t USING (trial_id) JOIN easeml.trial_groups g USING (group_id)
JOIN easeml.runs r ON r.run_id = a.run_id;
COMMENT ON VIEW easeml.trial_allocations IS 'Which devices each trial had, and when.';

COMMENT ON COLUMN easeml.trial_group_status.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.trial_group_status.group_id IS 'Number of the group, as in easeml.trial_allocations.';
COMMENT ON COLUMN easeml.trial_group_status.label IS
    'What its trials share: architectures, and the epoch up to which they train.';
COMMENT ON COLUMN easeml.trial_group_status.n_trials IS 'Number of its trials.';
COMMENT ON COLUMN easeml.trial_group_status.n_allocations IS 'Number of decisions about its trials.';
COMMENT ON COLUMN easeml.trial_group_status.n_resizes IS
    'Number of decisions that gave a trial other devices than it had.';
COMMENT ON COLUMN easeml.trial_group_status.created_at IS 'When its trials became runnable.';
COMMENT ON COLUMN easeml.trial_group_status.ended_at IS
    'When its last trial ended or was stopped; null before that, or if another coordinator took over.';
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
COMMENT ON COLUMN easeml.trial_allocations.reason IS
    'static: the trial was new or had lost its devices; dynamic: the coordinator resized it.';
COMMENT ON COLUMN easeml.trial_allocations.decided_at IS
    'When the coordinator decided; it counts from the trial''s next unit on.';
COMMENT ON COLUMN easeml.trial_allocations.until IS 'Time of the next decision about the trial, or its end.';
COMMENT ON COLUMN easeml.trial_allocations.elapsed_seconds IS 'Seconds from the start of the run to the decision.';
COMMENT ON COLUMN easeml.trial_allocations.tenant IS 'Tenant that owns the run.';
