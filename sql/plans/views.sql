CREATE OR REPLACE VIEW easeml.prices WITH (security_invoker) AS
SELECT l.price_list, t.instance_type, t.device_kind, t.n_slots, t.price_per_hour, t.billed_by, t.billed_per,
    t.minimum_seconds, t.price_per_gb,
    t.queue_seconds, t.queue_sd_seconds, t.start_seconds, t.start_sd_seconds,
    CASE WHEN l.is_local
        THEN (SELECT CASE WHEN count(*) FILTER (WHERE split_part(s.device, ':', 1) = t.device_kind) = 0 THEN 0
            -- Slots that planned runs may add are of the kind that they need.
            ELSE count(*) FILTER (WHERE split_part(s.device, ':', 1) = t.device_kind) + greatest((SELECT p.max_slots
                    FROM easeml.provisioners p WHERE p.provisioner = 'local') - count(*), 0) END::integer
            FROM easeml.slots s WHERE s.status = 'active' AND NOT s.is_added) / t.n_slots
        ELSE t.max_instances END AS max_instances,
    t.speed, l.caveat, l.is_local, l.is_shipped
FROM easeml.price_lists l JOIN easeml.instance_types t USING (price_list);
COMMENT ON VIEW easeml.prices IS
    'Price lists: what slots cost, how they are billed and how long they take to start. easeml.plan uses them.';

COMMENT ON COLUMN easeml.prices.price_list IS 'Name of the list.';
COMMENT ON COLUMN easeml.prices.instance_type IS 'Name of the instance type within its list.';
COMMENT ON COLUMN easeml.prices.device_kind IS 'cpu or cuda.';
COMMENT ON COLUMN easeml.prices.n_slots IS 'Number of slots of an instance.';
COMMENT ON COLUMN easeml.prices.price_per_hour IS 'Price of an instance with all its slots.';
COMMENT ON COLUMN easeml.prices.billed_by IS 'second, or minute: each started minute is billed.';
COMMENT ON COLUMN easeml.prices.billed_per IS
    'instance: from when the provider has it ready until its release; function: only slots on which something trains.';
COMMENT ON COLUMN easeml.prices.minimum_seconds IS 'Seconds billed at least, for each instance.';
COMMENT ON COLUMN easeml.prices.price_per_gb IS 'Price of a GB of the data that each instance brings in once.';
COMMENT ON COLUMN easeml.prices.queue_seconds IS 'Mean wait in the provider''s queue, which is not billed.';
COMMENT ON COLUMN easeml.prices.queue_sd_seconds IS 'Standard deviation of that wait.';
COMMENT ON COLUMN easeml.prices.start_seconds IS 'Mean time until an instance can train, which is billed.';
COMMENT ON COLUMN easeml.prices.start_sd_seconds IS 'Standard deviation of that time.';
COMMENT ON COLUMN easeml.prices.max_instances IS 'Largest number of instances; null: no limit. For this server''s '
    'slots: those in service, and those that planned runs may add.';
COMMENT ON COLUMN easeml.prices.speed IS
    'Speed of one of its slots, relative to the measured slots of its kind of device.';
COMMENT ON COLUMN easeml.prices.caveat IS 'What to know before trusting the figures.';
COMMENT ON COLUMN easeml.prices.is_local IS 'Whether its slots are those of this server.';
COMMENT ON COLUMN easeml.prices.is_shipped IS 'Whether it came with easeml.';

CREATE OR REPLACE VIEW easeml.plan_revisions WITH (security_invoker) AS
SELECT p.run_id, p.revision, p.made_at, p.reason, p.is_within_limits, r.deadline,
    r.max_cost, r.price_list, p.cost_before,
    p.made_at + make_interval(secs => p.seconds_mean) AS end_expected_at,
    p.made_at + make_interval(secs => p.seconds_p95) AS end_p95_at,
    p.cost_before + p.cost_mean AS cost_expected, p.cost_before + p.cost_p95 AS cost_p95,
    ARRAY(SELECT s.n_slots FROM easeml.planned_stages s WHERE s.run_id = p.run_id
        AND s.revision = p.revision ORDER BY s.stage) AS n_slots, p.note, p.tenant::text AS tenant
FROM easeml.plans p JOIN easeml.runs r USING (run_id);
COMMENT ON VIEW easeml.plan_revisions IS
    'Every plan of a run: the first one, and each later plan for the rest, with its reason.';

COMMENT ON COLUMN easeml.plan_revisions.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.plan_revisions.revision IS '1: the plan with which the run began.';
COMMENT ON COLUMN easeml.plan_revisions.made_at IS 'When it was planned.';
COMMENT ON COLUMN easeml.plan_revisions.reason IS 'Why it was planned: start, or what had changed.';
COMMENT ON COLUMN easeml.plan_revisions.is_within_limits IS
    'Whether the plan is predicted to keep deadline and max_cost in 95 of 100 cases.';
COMMENT ON COLUMN easeml.plan_revisions.deadline IS 'When the run should have ended.';
COMMENT ON COLUMN easeml.plan_revisions.max_cost IS 'What it may cost.';
COMMENT ON COLUMN easeml.plan_revisions.price_list IS 'What its slots cost, see easeml.prices.';
COMMENT ON COLUMN easeml.plan_revisions.cost_before IS 'What the run had cost by then.';
COMMENT ON COLUMN easeml.plan_revisions.end_expected_at IS 'When it was expected to end.';
COMMENT ON COLUMN easeml.plan_revisions.end_p95_at IS 'In 95 of 100 cases it ends before.';
COMMENT ON COLUMN easeml.plan_revisions.cost_expected IS 'What it was expected to cost in all.';
COMMENT ON COLUMN easeml.plan_revisions.cost_p95 IS 'In 95 of 100 cases it costs less.';
COMMENT ON COLUMN easeml.plan_revisions.n_slots IS 'Slots of each stage that was still left.';
COMMENT ON COLUMN easeml.plan_revisions.note IS 'What had to be assumed.';
COMMENT ON COLUMN easeml.plan_revisions.tenant IS 'Tenant that owns the run.';

CREATE OR REPLACE VIEW easeml.instance_status WITH (security_invoker) AS
SELECT i.run_id, i.instance_id, i.provisioner, i.instance_type, i.n_slots, i.status, i.requested_at,
    i.billed_from, i.ready_at, i.ended_at,
    coalesce(i.cost, easeml.instance_cost(i)) AS cost, i.failure_reason, ARRAY(SELECT s.slot_id FROM easeml.slots s
        WHERE s.instance_id = i.instance_id ORDER BY s.slot_id) AS slot_ids, i.tenant::text AS tenant
FROM easeml.instances i;
COMMENT ON VIEW easeml.instance_status IS 'Instances that planned runs have or had, with their cost so far.';

CREATE OR REPLACE VIEW easeml.plan_accuracy WITH (security_invoker) AS
SELECT e.run_id, e.place AS stage, e.label, e.revision, p.seconds_mean AS seconds_planned,
    p.seconds_p95 AS seconds_p95_planned,
    extract(epoch FROM coalesce(e.ended_at, clock_timestamp()) - e.began_at)::double precision AS seconds,
    p.cost_mean AS cost_planned, p.cost_p95 AS cost_p95_planned, e.cost,
    p.n_slots AS n_slots_planned,
    CASE WHEN e.ended_at IS NULL THEN greatest(e.n_slots, (SELECT sum(i.n_slots) FROM easeml.instances i
                WHERE i.run_id = e.run_id AND i.status = 'ready'))::integer ELSE e.n_slots END AS n_slots,
    p.n_trials AS n_trials_planned,
    CASE WHEN e.ended_at IS NULL THEN 'under way' WHEN p.run_id IS NULL THEN 'it was not planned'
        ELSE coalesce(nullif(concat_ws('; ',
        CASE WHEN e.n_slots <> p.n_slots THEN format('%s slots instead of %s', e.n_slots, p.n_slots) END,
        CASE WHEN e.n_failures > 0 THEN format('%s instance%s failed', e.n_failures,
                CASE WHEN e.n_failures > 1 THEN 's' END) END,
        CASE WHEN n.n > 0 THEN format('planned again %s on the way',
                CASE n.n WHEN 1 THEN 'once' ELSE n.n || ' times' END) END,
        CASE WHEN e.n_beside > 0 THEN format('trials of other arms trained beside it, %s at once', e.n_beside) END,
        CASE WHEN extract(epoch FROM e.ended_at - e.began_at) > p.seconds_p95
            THEN CASE WHEN e.n_beside = 0 THEN 'trials took longer than in 95 of 100 cases' END
            WHEN extract(epoch FROM e.ended_at - e.began_at) < 0.8 * p.seconds_mean
                THEN 'trials took less than was known of them' END), ''), 'as planned') END AS reason,
    e.began_at, e.ended_at, e.tenant::text AS tenant
FROM easeml.executed_stages e
LEFT JOIN easeml.planned_stages p ON p.run_id = e.run_id AND p.revision = e.revision
    AND (p.arm, p.bracket, p.target_epochs) = (e.arm, e.bracket, e.target_epochs)
LEFT JOIN LATERAL (SELECT count(*) AS n FROM easeml.plans q WHERE q.run_id = e.run_id AND q.revision > e.revision
    AND q.made_at < coalesce(e.ended_at, clock_timestamp()) - interval '1 millisecond'
    AND q.made_at > e.began_at) n ON true
UNION ALL
SELECT p.run_id, NULL, p.label, p.revision, p.seconds_mean, p.seconds_p95, NULL, p.cost_mean, p.cost_p95,
    NULL, p.n_slots, NULL, p.n_trials,
    CASE WHEN EXISTS (SELECT FROM easeml.trials t JOIN easeml.arms a USING (arm_id) WHERE t.run_id = p.run_id
            AND p.arm IN ('', a.architecture || CASE a.augmentation WHEN 'none' THEN '' ELSE '+' || a.augmentation END)
        AND t.bracket = p.bracket AND coalesce(t.target_epochs, t.max_epochs) >= p.target_epochs)
            THEN 'its trials trained beside those of other stages' ELSE 'it was not reached' END,
    NULL, NULL, p.tenant::text
FROM easeml.planned_stages p JOIN easeml.runs r USING (run_id)
WHERE p.revision = 1 AND r.status NOT IN ('queued', 'running')
    AND NOT EXISTS (SELECT FROM easeml.executed_stages e WHERE e.run_id = p.run_id
        AND (e.arm, e.bracket, e.target_epochs) = (p.arm, p.bracket, p.target_epochs));
COMMENT ON VIEW easeml.plan_accuracy IS
    'What was planned for each stage of a run when it began, what happened, and why the two differ.';

COMMENT ON COLUMN easeml.instance_status.run_id IS 'The run that it is for.';
COMMENT ON COLUMN easeml.instance_status.instance_id IS 'Number of the instance.';
COMMENT ON COLUMN easeml.instance_status.provisioner IS 'What starts and stops it; local: slots of this server.';
COMMENT ON COLUMN easeml.instance_status.instance_type IS 'Instance type of the run''s price list.';
COMMENT ON COLUMN easeml.instance_status.n_slots IS 'Number of its slots.';
COMMENT ON COLUMN easeml.instance_status.status IS
    'requested, ready, releasing (its last units end, then it is stopped), released or failed.';
COMMENT ON COLUMN easeml.instance_status.requested_at IS 'When it was asked for.';
COMMENT ON COLUMN easeml.instance_status.billed_from IS 'When its billing began.';
COMMENT ON COLUMN easeml.instance_status.ready_at IS 'When it could train.';
COMMENT ON COLUMN easeml.instance_status.ended_at IS 'When it was gone.';
COMMENT ON COLUMN easeml.instance_status.cost IS
    'What it cost; for one that is still there, what it would cost if it ended now.';
COMMENT ON COLUMN easeml.instance_status.failure_reason IS 'Why it failed.';
COMMENT ON COLUMN easeml.instance_status.slot_ids IS 'Its slots.';
COMMENT ON COLUMN easeml.instance_status.tenant IS 'Tenant that owns the run.';

COMMENT ON COLUMN easeml.plan_accuracy.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.plan_accuracy.stage IS 'Place of the stage among those that the run has been through, from 1. '
    'Null if its trials trained beside those of others, or if it was not reached.';
COMMENT ON COLUMN easeml.plan_accuracy.label IS 'What trained.';
COMMENT ON COLUMN easeml.plan_accuracy.revision IS 'The plan in force when it began, see easeml.plan_revisions.';
COMMENT ON COLUMN easeml.plan_accuracy.seconds_planned IS 'Seconds that were expected.';
COMMENT ON COLUMN easeml.plan_accuracy.seconds_p95_planned IS
    'Seconds that it was expected to stay below in 95 of 100 cases.';
COMMENT ON COLUMN easeml.plan_accuracy.seconds IS 'Seconds that it took, or takes so far.';
COMMENT ON COLUMN easeml.plan_accuracy.cost_planned IS 'Cost that was expected.';
COMMENT ON COLUMN easeml.plan_accuracy.cost_p95_planned IS
    'Cost that it was expected to stay below in 95 of 100 cases.';
COMMENT ON COLUMN easeml.plan_accuracy.cost IS 'What the run cost while it lasted; null while it lasts.';
COMMENT ON COLUMN easeml.plan_accuracy.n_slots_planned IS 'Slots that were planned.';
COMMENT ON COLUMN easeml.plan_accuracy.n_slots IS
    'Largest number of slots that it had at once; for one under way, those that it has now.';
COMMENT ON COLUMN easeml.plan_accuracy.n_trials_planned IS 'Trials that were planned.';
COMMENT ON COLUMN easeml.plan_accuracy.reason IS 'Why plan and execution differ, or: as planned.';
COMMENT ON COLUMN easeml.plan_accuracy.began_at IS
    'When it began; the first stage begins when its slots are asked for.';
COMMENT ON COLUMN easeml.plan_accuracy.ended_at IS 'When it ended.';
COMMENT ON COLUMN easeml.plan_accuracy.tenant IS 'Tenant that owns the run.';
