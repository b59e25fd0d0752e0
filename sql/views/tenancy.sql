-- What a tenant can read: what is believed of the arms, what is lost so far, who was served and why.

CREATE VIEW easeml.policies WITH (security_invoker) AS
SELECT 'policy'::text AS kind, p.policy AS name, p.policy = t.policy AS is_in_use, p.is_default, p.summary FROM easeml.list_policies() p, easeml.current_tenancy() t
UNION ALL
SELECT 'prior', p.prior, p.prior = t.prior, p.is_default, p.summary FROM easeml.list_priors() p, easeml.current_tenancy() t;
COMMENT ON VIEW easeml.policies IS 'Tenancy policies (who is served next) and priors (what is believed of arms beforehand), and which are in use; easeml.set_policy changes them.';
COMMENT ON COLUMN easeml.policies.kind IS 'policy or prior.';
COMMENT ON COLUMN easeml.policies.name IS 'Name.';
COMMENT ON COLUMN easeml.policies.is_in_use IS 'Whether it is in use.';
COMMENT ON COLUMN easeml.policies.is_default IS 'Whether it is the default.';
COMMENT ON COLUMN easeml.policies.summary IS 'What it is.';

CREATE VIEW easeml.arm_beliefs WITH (security_invoker) AS
SELECT a.run_id, a.arm_id, d.dataset_name, a.architecture, a.augmentation,
    CASE WHEN a.opening IS NULL THEN CASE WHEN r.state IN ('queued', 'running') THEN 'waiting' ELSE 'never opened' END
        WHEN n.n_open = 0 AND a.closing IS NOT NULL THEN 'closed' WHEN r.state IN ('queued', 'running') THEN 'open' ELSE 'stopped' END AS state,
    n.n_trials, p.mean, p.deviation, p.bound, p.cost, p.expected_seconds,
    CASE WHEN n.n_open = 0 THEN a.quality END AS quality, CASE WHEN n.n_open = 0 THEN a.cost_seconds END AS cost_seconds,
    a.opened_at, a.closed_at, p.updated_at, a.owner::text AS owner
FROM easeml.arms a JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
LEFT JOIN easeml.posteriors p USING (arm_id)
CROSS JOIN LATERAL (SELECT count(*) AS n_trials, count(*) FILTER (WHERE t.state IN ('waiting', 'running', 'paused')) AS n_open FROM easeml.trials t WHERE t.arm_id = a.arm_id) n;
COMMENT ON VIEW easeml.arm_beliefs IS 'Every arm of every run: what is believed of it, and what it came to.';
COMMENT ON COLUMN easeml.arm_beliefs.run_id IS 'Run.';
COMMENT ON COLUMN easeml.arm_beliefs.arm_id IS 'Arm.';
COMMENT ON COLUMN easeml.arm_beliefs.dataset_name IS 'Data set.';
COMMENT ON COLUMN easeml.arm_beliefs.architecture IS 'Architecture.';
COMMENT ON COLUMN easeml.arm_beliefs.augmentation IS 'What is done to the inputs.';
COMMENT ON COLUMN easeml.arm_beliefs.state IS 'waiting, open (its trials may run), closed, stopped (the run ended before it was over), or never opened.';
COMMENT ON COLUMN easeml.arm_beliefs.n_trials IS 'Trials of its hyperparameter search.';
COMMENT ON COLUMN easeml.arm_beliefs.mean IS 'Expected quality, on the scale of the runs prior.';
COMMENT ON COLUMN easeml.arm_beliefs.deviation IS 'Standard deviation of that belief.';
COMMENT ON COLUMN easeml.arm_beliefs.bound IS 'Upper bound of its quality; null once it was opened.';
COMMENT ON COLUMN easeml.arm_beliefs.cost IS 'In units of the mean cost of all arms of all open runs.';
COMMENT ON COLUMN easeml.arm_beliefs.expected_seconds IS 'Seconds that it takes on one slot.';
COMMENT ON COLUMN easeml.arm_beliefs.quality IS 'What it came to, from 0 to 1.';
COMMENT ON COLUMN easeml.arm_beliefs.cost_seconds IS 'Slot seconds that it took.';
COMMENT ON COLUMN easeml.arm_beliefs.opened_at IS 'When it was opened.';
COMMENT ON COLUMN easeml.arm_beliefs.closed_at IS 'When its last trial was over.';
COMMENT ON COLUMN easeml.arm_beliefs.updated_at IS 'When the belief was last renewed.';
COMMENT ON COLUMN easeml.arm_beliefs.owner IS 'Role that owns it.';

CREATE VIEW easeml.tenant_regret WITH (security_invoker) AS
SELECT r.run_id, r.owner::text AS tenant, d.dataset_name, r.state, a.best_quality, a.largest_bound,
    CASE WHEN r.state IN ('queued', 'running') THEN greatest(0, a.largest_bound - a.best_quality) END AS estimated_gap,
    a.n_arms, a.n_open, a.n_closed, a.n_waiting, a.spent_seconds, a.updated_at
FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
CROSS JOIN LATERAL (
    SELECT coalesce(max(b.quality), 0) AS best_quality, max(b.bound) AS largest_bound, count(*) AS n_arms, count(*) FILTER (WHERE b.state = 'open') AS n_open,
        count(*) FILTER (WHERE b.state = 'closed') AS n_closed, count(*) FILTER (WHERE b.state IN ('waiting', 'never opened')) AS n_waiting, coalesce(sum(b.cost_seconds), 0) AS spent_seconds, max(b.updated_at) AS updated_at
    FROM easeml.arm_beliefs b WHERE b.run_id = r.run_id) a;
COMMENT ON VIEW easeml.tenant_regret IS 'How much better each run may still get: the largest bound of the arms that are left, minus the best quality so far.';
COMMENT ON COLUMN easeml.tenant_regret.run_id IS 'Run.';
COMMENT ON COLUMN easeml.tenant_regret.tenant IS 'Role that owns it.';
COMMENT ON COLUMN easeml.tenant_regret.dataset_name IS 'Data set.';
COMMENT ON COLUMN easeml.tenant_regret.state IS 'State of the run.';
COMMENT ON COLUMN easeml.tenant_regret.best_quality IS 'Best quality of its closed arms, 0 before the first.';
COMMENT ON COLUMN easeml.tenant_regret.largest_bound IS 'Largest upper bound of the arms that wait; null when none is left.';
COMMENT ON COLUMN easeml.tenant_regret.estimated_gap IS 'Their difference, not below 0: the estimated regret.';
COMMENT ON COLUMN easeml.tenant_regret.n_arms IS 'Arms.';
COMMENT ON COLUMN easeml.tenant_regret.n_open IS 'Arms whose trials run.';
COMMENT ON COLUMN easeml.tenant_regret.n_closed IS 'Arms that are over.';
COMMENT ON COLUMN easeml.tenant_regret.n_waiting IS 'Arms that were not opened, or not yet.';
COMMENT ON COLUMN easeml.tenant_regret.spent_seconds IS 'Slot seconds of its closed arms.';
COMMENT ON COLUMN easeml.tenant_regret.updated_at IS 'When a belief was last renewed.';

CREATE VIEW easeml.scheduler_decisions WITH (security_invoker) AS
SELECT c.decision_id, c.decided_at, c.run_id, c.policy, c.phase, c.is_chosen, c.is_candidate, c.best_quality, c.sig, c.gap, c.score, c.chosen_gap, c.chosen_score,
    c.n_tenants, a.architecture, x.play, x.beta, x.mean, x.deviation, x.bound, x.cost, x.expected_seconds, cardinality(x.pending) AS n_pending,
    CASE WHEN c.is_chosen AND c.phase = 'first_service' THEN 'served: every run is served once first, in order of arrival'
        WHEN c.is_chosen AND c.phase = 'last_call' THEN 'served: the deadline is near'
        WHEN c.is_chosen AND c.phase = 'greedy' THEN format('served: its estimated gap weighs most, %s', round(c.gap::numeric, 4))
        WHEN c.is_chosen AND c.phase = 'ei_rate' THEN format('served: the largest expected improvement for its cost, %s', round(c.score::numeric, 6))
        WHEN c.is_chosen THEN format('served: by %s', c.phase)
        WHEN c.phase = 'first_service' THEN 'waited: a run that came earlier, or had nothing yet, was served first'
        WHEN c.phase = 'last_call' THEN 'waited: a run with a near deadline was served first'
        WHEN c.phase = 'greedy' AND c.sig IS NULL THEN 'waited: its first arm is not over yet'
        WHEN c.phase = 'greedy' AND NOT c.is_candidate THEN format('waited: what is left to gain (%s) is below the average', round(c.sig::numeric, 4))
        WHEN c.phase = 'greedy' THEN format('waited: a gap that weighs more was served, %s against %s', round(c.chosen_gap::numeric, 4), round(c.gap::numeric, 4))
        WHEN c.phase = 'ei_rate' THEN format('waited: a larger improvement for its cost was served, %s against %s', round(c.chosen_score::numeric, 6), round(c.score::numeric, 6))
        WHEN c.phase = 'round_robin' THEN 'waited: it was another run''s turn'
        ELSE format('waited: another run was served by %s', c.phase) END AS reason,
    c.owner::text AS owner
FROM easeml.decision_candidates c
LEFT JOIN easeml.decisions x ON x.decision_id = c.decision_id AND c.is_chosen
LEFT JOIN easeml.arms a USING (arm_id);
COMMENT ON VIEW easeml.scheduler_decisions IS 'Every decision in which a run of one''s own took part: whether it was served, and why or why not.';
COMMENT ON COLUMN easeml.scheduler_decisions.decision_id IS 'Decision.';
COMMENT ON COLUMN easeml.scheduler_decisions.decided_at IS 'When.';
COMMENT ON COLUMN easeml.scheduler_decisions.run_id IS 'Run.';
COMMENT ON COLUMN easeml.scheduler_decisions.policy IS 'Tenancy policy.';
COMMENT ON COLUMN easeml.scheduler_decisions.phase IS 'The rule that chose.';
COMMENT ON COLUMN easeml.scheduler_decisions.is_chosen IS 'Whether this run was served.';
COMMENT ON COLUMN easeml.scheduler_decisions.is_candidate IS 'Whether the rule considered it.';
COMMENT ON COLUMN easeml.scheduler_decisions.best_quality IS 'Its best quality so far.';
COMMENT ON COLUMN easeml.scheduler_decisions.sig IS 'Least bound of the arms it played minus its last quality; null before its first quality.';
COMMENT ON COLUMN easeml.scheduler_decisions.gap IS 'Largest bound of its arms left minus its best quality.';
COMMENT ON COLUMN easeml.scheduler_decisions.score IS 'Score of the arm that it would play: a bound, or an expected improvement per unit of cost.';
COMMENT ON COLUMN easeml.scheduler_decisions.chosen_gap IS 'Gap of the run that was served.';
COMMENT ON COLUMN easeml.scheduler_decisions.chosen_score IS 'Score of the run that was served.';
COMMENT ON COLUMN easeml.scheduler_decisions.n_tenants IS 'Runs with arms left.';
COMMENT ON COLUMN easeml.scheduler_decisions.architecture IS 'The arm opened, if this run was served; so are all columns up to n_pending.';
COMMENT ON COLUMN easeml.scheduler_decisions.play IS 'The how many-th arm of the run.';
COMMENT ON COLUMN easeml.scheduler_decisions.beta IS 'Weight of the variance in the bounds.';
COMMENT ON COLUMN easeml.scheduler_decisions.mean IS 'Expected quality of the arm, on the scale of the prior.';
COMMENT ON COLUMN easeml.scheduler_decisions.deviation IS 'Standard deviation of that belief.';
COMMENT ON COLUMN easeml.scheduler_decisions.bound IS 'Its upper bound.';
COMMENT ON COLUMN easeml.scheduler_decisions.cost IS 'Its cost, in units of the mean cost of all arms.';
COMMENT ON COLUMN easeml.scheduler_decisions.expected_seconds IS 'Seconds that it was expected to take on one slot.';
COMMENT ON COLUMN easeml.scheduler_decisions.n_pending IS 'Other arms of the run that were under way.';
COMMENT ON COLUMN easeml.scheduler_decisions.reason IS 'In words.';
COMMENT ON COLUMN easeml.scheduler_decisions.owner IS 'Role that owns the run.';
