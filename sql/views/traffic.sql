CREATE VIEW easeml.run_traffic WITH (security_invoker) AS
SELECT r.run_id, u.n_units + v.n_units AS n_units, u.n_hops + v.n_hops AS n_hops,
    u.bytes_hopped + v.bytes_hopped AS bytes_hopped, u.bytes_stored AS bytes_stored,
    u.n_live_states AS n_live_states, u.live_state_bytes AS live_state_bytes, u.largest_state_bytes AS largest_state_bytes, r.owner::text AS owner
FROM easeml.runs r
CROSS JOIN LATERAL (
    -- Which states are kept is read from the trials' pointers: readers of results may not look at states.
    SELECT count(*) AS n_units, count(*) FILTER (WHERE t.read_bytes > 0) AS n_hops, coalesce(sum(t.read_bytes), 0)::bigint AS bytes_hopped,
        coalesce(sum(t.state_bytes), 0)::bigint AS bytes_stored, max(t.state_bytes) AS largest_state_bytes,
        count(DISTINCT t.checkpoint_id) FILTER (WHERE t.checkpoint_id IN (k.checkpoint_id, k.best_checkpoint_id)) AS n_live_states,
        coalesce(sum(t.state_bytes) FILTER (WHERE t.checkpoint_id IN (k.checkpoint_id, k.best_checkpoint_id)), 0)::bigint AS live_state_bytes
    FROM easeml.training_units t JOIN easeml.trials k USING (trial_id) WHERE t.run_id = r.run_id) u
CROSS JOIN LATERAL (
    SELECT count(*) AS n_units, count(*) FILTER (WHERE e.read_bytes > 0) AS n_hops, coalesce(sum(e.read_bytes), 0)::bigint AS bytes_hopped
    FROM easeml.evaluations e WHERE e.run_id = r.run_id) v;
COMMENT ON VIEW easeml.run_traffic IS 'How much state each run wrote, how much of it hopped to another session, and how much is kept.';

COMMENT ON COLUMN easeml.run_traffic.run_id IS 'Run.';
COMMENT ON COLUMN easeml.run_traffic.n_units IS 'Recorded units.';
COMMENT ON COLUMN easeml.run_traffic.n_hops IS 'Those that read their state from the tables, since their session did not have the trial.';
COMMENT ON COLUMN easeml.run_traffic.bytes_hopped IS 'Bytes of state that they read.';
COMMENT ON COLUMN easeml.run_traffic.bytes_stored IS 'Bytes of state that training units wrote, pruned ones included.';
COMMENT ON COLUMN easeml.run_traffic.n_live_states IS 'States that are kept: of each trial the newest and that of its best epoch.';
COMMENT ON COLUMN easeml.run_traffic.live_state_bytes IS 'Their bytes.';
COMMENT ON COLUMN easeml.run_traffic.largest_state_bytes IS 'The largest state that was written.';
COMMENT ON COLUMN easeml.run_traffic.owner IS 'Role that owns it.';
