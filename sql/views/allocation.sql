CREATE VIEW easeml.trial_group_status WITH (security_invoker) AS
SELECT g.run_id, g.group_id, g.label, g.n_trials, a.n_allocations, a.n_resizes, g.created_at, g.ended_at,
    extract(epoch FROM g.ended_at - g.created_at)::double precision AS makespan_seconds, g.owner::text AS owner
FROM easeml.trial_groups g
CROSS JOIN LATERAL (SELECT count(*) AS n_allocations, count(*) FILTER (WHERE reason = 'dynamic') AS n_resizes FROM easeml.allocations WHERE group_id = g.group_id) a;
COMMENT ON VIEW easeml.trial_group_status IS 'Trial groups of runs with water-filling, and how long each took.';

CREATE VIEW easeml.trial_allocations WITH (security_invoker) AS
SELECT a.run_id, a.group_id, a.trial_id, t.trial_number, t.architecture, a.width, cardinality(a.devices) AS n_devices, a.devices, a.slot_ids, a.reason, a.decided_at,
    coalesce(lead(a.decided_at) OVER (PARTITION BY a.trial_id ORDER BY a.allocation_id), t.finished_at, g.ended_at) AS until,
    extract(epoch FROM a.decided_at - r.started_at)::double precision AS elapsed_seconds, a.owner::text AS owner
FROM easeml.allocations a JOIN easeml.trials t USING (trial_id) JOIN easeml.trial_groups g USING (group_id) JOIN easeml.runs r ON r.run_id = a.run_id;
COMMENT ON VIEW easeml.trial_allocations IS 'Which devices each trial had, and from when to when: widths over time.';

COMMENT ON COLUMN easeml.trial_group_status.run_id IS 'Run.';
COMMENT ON COLUMN easeml.trial_group_status.group_id IS 'Number.';
COMMENT ON COLUMN easeml.trial_group_status.label IS 'What its trials have in common.';
COMMENT ON COLUMN easeml.trial_group_status.n_trials IS 'Trials.';
COMMENT ON COLUMN easeml.trial_group_status.n_allocations IS 'Decisions about them.';
COMMENT ON COLUMN easeml.trial_group_status.n_resizes IS 'Of these, trials that already had devices and got others.';
COMMENT ON COLUMN easeml.trial_group_status.created_at IS 'When its trials became runnable.';
COMMENT ON COLUMN easeml.trial_group_status.ended_at IS 'When the last had reached the end, or was stopped; null before, or where another coordinator took over.';
COMMENT ON COLUMN easeml.trial_group_status.makespan_seconds IS 'Between the two.';
COMMENT ON COLUMN easeml.trial_group_status.owner IS 'Role that owns the run.';

COMMENT ON COLUMN easeml.trial_allocations.run_id IS 'Run.';
COMMENT ON COLUMN easeml.trial_allocations.group_id IS 'Trial group.';
COMMENT ON COLUMN easeml.trial_allocations.trial_id IS 'Trial.';
COMMENT ON COLUMN easeml.trial_allocations.trial_number IS 'Its number within the run.';
COMMENT ON COLUMN easeml.trial_allocations.architecture IS 'Architecture.';
COMMENT ON COLUMN easeml.trial_allocations.width IS 'Devices of its own; below 1, the share of one that it may have to share.';
COMMENT ON COLUMN easeml.trial_allocations.n_devices IS 'Devices.';
COMMENT ON COLUMN easeml.trial_allocations.devices IS 'Which: segment/device.';
COMMENT ON COLUMN easeml.trial_allocations.slot_ids IS 'Their slots: a unit runs on one of each device.';
COMMENT ON COLUMN easeml.trial_allocations.reason IS 'static: it came, or lost its devices; dynamic: it was resized.';
COMMENT ON COLUMN easeml.trial_allocations.decided_at IS 'Counts from its next unit on.';
COMMENT ON COLUMN easeml.trial_allocations.until IS 'The next decision about it, or its end.';
COMMENT ON COLUMN easeml.trial_allocations.elapsed_seconds IS 'Between the start of the run and the decision.';
COMMENT ON COLUMN easeml.trial_allocations.owner IS 'Role that owns the run.';
