CREATE OR REPLACE VIEW easeml.run_traffic WITH (security_invoker) AS
SELECT r.run_id, u.n_units + v.n_units AS n_units, u.n_hops + v.n_hops AS n_hops,
    least(u.bytes_hopped::numeric + v.bytes_hopped, 9223372036854775807)::bigint AS bytes_hopped,
    u.bytes_stored AS bytes_stored,
    u.n_live_states AS n_live_states, u.live_state_bytes AS live_state_bytes,
    u.largest_state_bytes AS largest_state_bytes, r.tenant::text AS tenant,
    h.n_node_hops, h.n_node_hops_ahead, h.node_bytes, h.node_seconds, w.row_bytes, w.row_seconds
FROM easeml.runs r
CROSS JOIN LATERAL (
    -- The trials' pointers say which states are kept, since readers of results may not read easeml.checkpoints.
    SELECT count(*) AS n_units, count(*) FILTER (WHERE t.read_bytes > 0) AS n_hops,
        least(coalesce(sum(t.read_bytes), 0), 9223372036854775807)::bigint AS bytes_hopped,
        least(coalesce(sum(t.state_bytes), 0), 9223372036854775807)::bigint AS bytes_stored,
        max(t.state_bytes) AS largest_state_bytes,
        count(DISTINCT t.checkpoint_id) FILTER (WHERE t.checkpoint_id IN (k.checkpoint_id,
                k.best_checkpoint_id)) AS n_live_states,
        least(coalesce(sum(t.state_bytes) FILTER (WHERE t.checkpoint_id IN (k.checkpoint_id, k.best_checkpoint_id)), 0),
            9223372036854775807)::bigint AS live_state_bytes
    FROM easeml.training_units t JOIN easeml.trials k USING (trial_id) WHERE t.run_id = r.run_id) u
CROSS JOIN LATERAL (
    SELECT count(*) AS n_units, count(*) FILTER (WHERE e.read_bytes > 0) AS n_hops,
        least(coalesce(sum(e.read_bytes), 0), 9223372036854775807)::bigint AS bytes_hopped
    FROM easeml.evaluations e WHERE e.run_id = r.run_id) v
CROSS JOIN LATERAL (
    SELECT count(*) AS n_node_hops, count(*) FILTER (WHERE n.is_ahead) AS n_node_hops_ahead,
        least(coalesce(sum(n.n_bytes), 0), 9223372036854775807)::bigint AS node_bytes,
        coalesce(sum(n.seconds), 0) AS node_seconds
    FROM easeml.node_hops n WHERE n.run_id = r.run_id) h
CROSS JOIN LATERAL (
    SELECT least(coalesce(sum(c.n_bytes), 0), 9223372036854775807)::bigint AS row_bytes,
        coalesce(sum(c.seconds), 0) AS row_seconds
    FROM easeml.row_copies c WHERE c.run_id = r.run_id) w;
COMMENT ON VIEW easeml.run_traffic IS 'How much state each run stored, how much of it moved to other sessions, how '
    'much is kept, and which rows were copied to nodes for the run.';

COMMENT ON COLUMN easeml.run_traffic.run_id IS 'The run, see easeml.run_status.';
COMMENT ON COLUMN easeml.run_traffic.n_units IS 'Number of recorded units.';
COMMENT ON COLUMN easeml.run_traffic.n_hops IS 'Number of units that read their state from the tables because their '
    'session did not hold the trial: it came from another slot, or its session had dropped it.';
COMMENT ON COLUMN easeml.run_traffic.bytes_hopped IS 'Bytes of state that those units read.';
COMMENT ON COLUMN easeml.run_traffic.bytes_stored IS
    'Bytes of state that training units wrote, pruned states included.';
COMMENT ON COLUMN easeml.run_traffic.n_live_states IS
    'Number of states that are kept: of each trial the newest and that of its best epoch.';
COMMENT ON COLUMN easeml.run_traffic.live_state_bytes IS 'Bytes of the kept states.';
COMMENT ON COLUMN easeml.run_traffic.largest_state_bytes IS 'Size of the largest state that was written.';
COMMENT ON COLUMN easeml.run_traffic.tenant IS 'Tenant that owns the run.';
COMMENT ON COLUMN easeml.run_traffic.n_node_hops IS
    'Number of units that started from a state that had come from another server.';
COMMENT ON COLUMN easeml.run_traffic.n_node_hops_ahead IS
    'Number of these states that had arrived before the unit asked for them.';
COMMENT ON COLUMN easeml.run_traffic.node_bytes IS 'Bytes of these states on the wire.';
COMMENT ON COLUMN easeml.run_traffic.node_seconds IS 'Seconds that they took to travel.';
COMMENT ON COLUMN easeml.run_traffic.row_bytes IS
    'Bytes of packed rows that were copied to nodes because units of the run were the first there to need them.';
COMMENT ON COLUMN easeml.run_traffic.row_seconds IS 'Seconds that they took to travel.';
