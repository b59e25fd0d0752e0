-- What a tenant reads about its runs: beliefs about arms, what each run may still gain, and why a run was chosen or
-- waited.

CREATE OR REPLACE VIEW easeml.policies WITH (security_invoker) AS
SELECT 'policy'::text AS kind, p.policy AS name, p.policy = t.policy AS is_in_use, p.is_default, p.summary
FROM easeml.list_policies() p, easeml.current_tenancy() t
UNION ALL
SELECT 'prior', p.prior, p.prior = t.prior, p.is_default, p.summary
FROM easeml.list_priors() p, easeml.current_tenancy() t;
COMMENT ON VIEW easeml.policies IS 'Policies (which run opens its next arm) and priors (the beliefs about arms at the '
    'start), and which are in use; easeml.set_policy chooses.';
COMMENT ON COLUMN easeml.policies.kind IS 'policy or prior.';
COMMENT ON COLUMN easeml.policies.name IS 'Name that easeml.set_policy takes.';
COMMENT ON COLUMN easeml.policies.is_in_use IS 'Whether the coordinator uses it now.';
COMMENT ON COLUMN easeml.policies.is_default IS 'Whether it is used until an administrator chooses another.';
COMMENT ON COLUMN easeml.policies.summary IS 'What it does, in a sentence.';

CREATE OR REPLACE VIEW easeml.arm_beliefs WITH (security_invoker) AS
SELECT a.run_id, a.arm_id, d.dataset_name, a.architecture, a.augmentation,
    CASE WHEN a.opening IS NULL THEN CASE WHEN r.status IN ('queued', 'running') THEN 'waiting' ELSE 'never opened' END
        WHEN n.n_open = 0 AND a.closing IS NOT NULL THEN 'closed' WHEN r.status IN ('queued', 'running') THEN 'open'
            ELSE 'stopped' END AS status,
    n.n_trials, p.mean, p.deviation, p.bound, p.cost, p.expected_seconds,
    CASE WHEN n.n_open = 0 THEN a.quality END AS quality,
    CASE WHEN n.n_open = 0 THEN a.cost_seconds END AS cost_seconds,
    a.opened_at, a.closed_at, p.updated_at, a.tenant::text AS tenant
FROM easeml.arms a JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
LEFT JOIN easeml.posteriors p USING (arm_id)
CROSS JOIN LATERAL (SELECT count(*) AS n_trials, count(*) FILTER (WHERE t.status IN ('waiting', 'running',
            'paused')) AS n_open FROM easeml.trials t WHERE t.arm_id = a.arm_id) n
WHERE a.architecture <> 'ensemble';
COMMENT ON VIEW easeml.arm_beliefs IS
    'Every arm of every run: its expected quality and cost, and once it is closed, the observed ones.';
COMMENT ON COLUMN easeml.arm_beliefs.run_id IS 'The run that may open the arm.';
COMMENT ON COLUMN easeml.arm_beliefs.arm_id IS 'Number of the arm, unique on this server.';
COMMENT ON COLUMN easeml.arm_beliefs.dataset_name IS 'Dataset that the run searches on.';
COMMENT ON COLUMN easeml.arm_beliefs.architecture IS 'Architecture that all trials of the arm share.';
COMMENT ON COLUMN easeml.arm_beliefs.augmentation IS
    'What the arm does to the inputs before training; none by default.';
COMMENT ON COLUMN easeml.arm_beliefs.status IS 'waiting, open (its trials may run), closed (its trials have ended), '
    'stopped (the run ended first), or never opened.';
COMMENT ON COLUMN easeml.arm_beliefs.n_trials IS 'Number of trials in the arm''s hyperparameter search so far.';
COMMENT ON COLUMN easeml.arm_beliefs.mean IS 'Expected quality, on the scale of the run''s prior.';
COMMENT ON COLUMN easeml.arm_beliefs.deviation IS 'Standard deviation of the expected quality.';
COMMENT ON COLUMN easeml.arm_beliefs.bound IS 'Upper confidence bound of its quality; null once the run has opened it.';
COMMENT ON COLUMN easeml.arm_beliefs.cost IS 'Expected cost, divided by the mean cost of all arms of all open runs.';
COMMENT ON COLUMN easeml.arm_beliefs.expected_seconds IS 'Seconds that it should take on one slot.';
COMMENT ON COLUMN easeml.arm_beliefs.quality IS
    'Observed quality, from 0 to 1 (see easeml.quality); null until it is closed.';
COMMENT ON COLUMN easeml.arm_beliefs.cost_seconds IS 'Slot seconds that its units took; null until it is closed.';
COMMENT ON COLUMN easeml.arm_beliefs.opened_at IS 'When the coordinator opened it.';
COMMENT ON COLUMN easeml.arm_beliefs.closed_at IS 'When the coordinator found all its trials ended.';
COMMENT ON COLUMN easeml.arm_beliefs.updated_at IS 'When mean, deviation, bound and cost last changed.';
COMMENT ON COLUMN easeml.arm_beliefs.tenant IS 'Tenant that owns the run.';

CREATE OR REPLACE VIEW easeml.run_regret WITH (security_invoker) AS
SELECT r.run_id, r.tenant::text AS tenant, d.dataset_name, r.status, a.best_quality, a.largest_bound,
    CASE WHEN r.status IN ('queued', 'running') THEN greatest(0, a.largest_bound - a.best_quality) END AS estimated_gap,
    a.n_arms, a.n_open, a.n_closed, a.n_waiting, a.spent_seconds, a.updated_at
FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
CROSS JOIN LATERAL (
    SELECT coalesce(max(b.quality), 0) AS best_quality, max(b.bound) AS largest_bound, count(*) AS n_arms,
        count(*) FILTER (WHERE b.status = 'open') AS n_open,
        count(*) FILTER (WHERE b.status = 'closed') AS n_closed,
        count(*) FILTER (WHERE b.status IN ('waiting', 'never opened')) AS n_waiting,
        coalesce(sum(b.cost_seconds), 0) AS spent_seconds, max(b.updated_at) AS updated_at
    FROM easeml.arm_beliefs b WHERE b.run_id = r.run_id) a;
COMMENT ON VIEW easeml.run_regret IS 'How much better each run may still get: the largest upper bound of its waiting '
    'arms minus its best quality so far.';
COMMENT ON COLUMN easeml.run_regret.run_id IS 'Number that easeml.select_models returned.';
COMMENT ON COLUMN easeml.run_regret.tenant IS 'Tenant that owns the run.';
COMMENT ON COLUMN easeml.run_regret.dataset_name IS 'Dataset that the run searches on.';
COMMENT ON COLUMN easeml.run_regret.status IS 'Status of the run, as in easeml.run_status.';
COMMENT ON COLUMN easeml.run_regret.best_quality IS 'Best quality of its closed arms; 0 before the first.';
COMMENT ON COLUMN easeml.run_regret.largest_bound IS 'Largest upper bound of its waiting arms; null when none waits.';
COMMENT ON COLUMN easeml.run_regret.estimated_gap IS
    'Estimated regret: largest_bound minus best_quality, at least 0; null once the run has ended.';
COMMENT ON COLUMN easeml.run_regret.n_arms IS 'Number of arms of the run.';
COMMENT ON COLUMN easeml.run_regret.n_open IS 'Arms whose trials may run.';
COMMENT ON COLUMN easeml.run_regret.n_closed IS 'Arms whose trials have all ended.';
COMMENT ON COLUMN easeml.run_regret.n_waiting IS 'Arms that the run has not opened.';
COMMENT ON COLUMN easeml.run_regret.spent_seconds IS 'Slot seconds that its closed arms took.';
COMMENT ON COLUMN easeml.run_regret.updated_at IS
    'When the coordinator last changed what it believes of an arm of the run.';

CREATE OR REPLACE VIEW easeml.policy_decisions WITH (security_invoker) AS
SELECT c.decision_id, c.decided_at, c.run_id, c.policy, c.phase, c.is_chosen, c.is_candidate, c.best_quality, c.sig,
    c.gap, c.score, c.chosen_gap, c.chosen_score,
    c.n_runs, a.architecture, x.opening_number, x.beta, x.mean, x.deviation, x.bound, x.cost, x.expected_seconds,
    cardinality(x.pending) AS n_pending,
    CASE WHEN c.is_chosen
        AND c.phase = 'first_service' THEN 'served: every run is served once first, in order of arrival'
        WHEN c.is_chosen AND c.phase = 'last_call' THEN 'served: the deadline is near'
        WHEN c.is_chosen
            AND c.phase = 'greedy' THEN format('served: its estimated gap weighs most, %s', round(c.gap::numeric, 4))
        WHEN c.is_chosen AND c.phase = 'ei_rate'
            THEN format('served: the largest expected improvement for its cost, %s', round(c.score::numeric, 6))
        WHEN c.is_chosen AND c.phase = 'turn' THEN 'served: its turn, since no run has opened fewer arms for its weight'
        WHEN c.is_chosen THEN format('served: by %s', c.phase)
        WHEN c.phase = 'first_service' THEN 'waited: a run that came earlier, or had nothing yet, was served first'
        WHEN c.phase = 'last_call' THEN 'waited: a run with a near deadline was served first'
        WHEN c.phase = 'greedy' AND c.sig IS NULL THEN 'waited: its first arm is not over yet'
        WHEN c.phase = 'greedy' AND NOT c.is_candidate
            THEN format('waited: what is left to gain (%s) is below the average', round(c.sig::numeric, 4))
        WHEN c.phase = 'greedy' THEN format('waited: a gap that weighs more was served, %s against %s',
            round(c.chosen_gap::numeric, 4), round(c.gap::numeric, 4))
        WHEN c.phase = 'ei_rate' THEN format('waited: a larger improvement for its cost was served, %s against %s',
            round(c.chosen_score::numeric, 6), round(c.score::numeric, 6))
        WHEN c.phase IN ('round_robin', 'turn') THEN 'waited: it was another run''s turn'
        ELSE format('waited: another run was served by %s', c.phase) END AS reason,
    c.tenant::text AS tenant, x.history_weight
FROM easeml.arm_opening_candidates c
LEFT JOIN easeml.arm_openings x ON x.decision_id = c.decision_id AND c.is_chosen
LEFT JOIN easeml.arms a USING (arm_id);
COMMENT ON VIEW easeml.policy_decisions IS 'Which run opened its next arm, decision by decision: a row for each run of '
    'yours that took part, with the reason why it was served or waited.';
COMMENT ON COLUMN easeml.policy_decisions.decision_id IS
    'Number of the decision; all runs that took part in it share it.';
COMMENT ON COLUMN easeml.policy_decisions.decided_at IS 'When the coordinator decided.';
COMMENT ON COLUMN easeml.policy_decisions.run_id IS 'Run that was served or waited.';
COMMENT ON COLUMN easeml.policy_decisions.policy IS 'Policy in use, one of easeml.policies.';
COMMENT ON COLUMN easeml.policy_decisions.phase IS
    'The rule that chose: first_service, last_call, or a rule of the policy.';
COMMENT ON COLUMN easeml.policy_decisions.is_chosen IS 'Whether this run was served: it opened an arm.';
COMMENT ON COLUMN easeml.policy_decisions.is_candidate IS 'Whether the rule considered this run.';
COMMENT ON COLUMN easeml.policy_decisions.best_quality IS 'Best quality of the run so far.';
COMMENT ON COLUMN easeml.policy_decisions.sig IS
    'Least upper bound among the arms that the run has opened, minus its last quality; null before its first quality.';
COMMENT ON COLUMN easeml.policy_decisions.gap IS
    'Largest upper bound of the run''s waiting arms minus its best quality.';
COMMENT ON COLUMN easeml.policy_decisions.score IS
    'Score of the arm that the run would open: an upper bound, or an expected improvement per unit of cost.';
COMMENT ON COLUMN easeml.policy_decisions.chosen_gap IS 'Gap of the run that was served.';
COMMENT ON COLUMN easeml.policy_decisions.chosen_score IS 'Score of the run that was served.';
COMMENT ON COLUMN easeml.policy_decisions.n_runs IS 'Number of runs with a waiting arm.';
COMMENT ON COLUMN easeml.policy_decisions.architecture IS
    'Architecture of the arm that the run opened; it and the columns up to n_pending are null if the run waited.';
COMMENT ON COLUMN easeml.policy_decisions.opening_number IS 'Order in which the run opened this arm, from 1.';
COMMENT ON COLUMN easeml.policy_decisions.beta IS 'Weight of the variance in the upper bounds.';
COMMENT ON COLUMN easeml.policy_decisions.mean IS 'Expected quality of the arm, on the scale of the prior.';
COMMENT ON COLUMN easeml.policy_decisions.deviation IS 'Standard deviation of the expected quality.';
COMMENT ON COLUMN easeml.policy_decisions.bound IS 'Upper bound of the arm''s quality.';
COMMENT ON COLUMN easeml.policy_decisions.cost IS
    'Expected cost of the arm, divided by the mean cost of all arms of open runs.';
COMMENT ON COLUMN easeml.policy_decisions.expected_seconds IS 'Seconds that the arm should take on one slot.';
COMMENT ON COLUMN easeml.policy_decisions.n_pending IS 'Other arms of the run that were open.';
COMMENT ON COLUMN easeml.policy_decisions.reason IS 'Why the run was served or waited, in words.';
COMMENT ON COLUMN easeml.policy_decisions.tenant IS 'Tenant that owns the run.';
COMMENT ON COLUMN easeml.policy_decisions.history_weight IS 'How far the run trusts its history: weight from 0 to 1 of '
    'the belief that it is like past runs, against two that trust them less; null for a policy or run with one belief.';
