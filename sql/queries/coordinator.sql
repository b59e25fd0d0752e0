-- name: draw_lease
-- Draws the next lease number; a unit being recorded holds the row until it has committed.
UPDATE easeml.coordinator_lease SET lease_number = lease_number + 1, acquired_at = clock_timestamp() RETURNING lease_number

-- name: register
-- Puts the coordinator on record.
INSERT INTO easeml.coordinators (lease_number, host, process_id, version) VALUES (%(lease_number)s, %(host)s, %(process_id)s, %(version)s)

-- name: clear_slots
-- Takes off what units of an earlier coordinator left on display.
UPDATE easeml.slots SET unit_started_at = NULL, backend_pid = NULL WHERE unit_started_at IS NOT NULL OR backend_pid IS NOT NULL

-- name: read_lease
-- The lease that holds now.
SELECT lease_number FROM easeml.coordinator_lease

-- name: heartbeat
-- A sign of life.
UPDATE easeml.coordinators SET heartbeat_at = clock_timestamp() WHERE lease_number = %(lease_number)s

-- name: sign_off
-- An orderly end.
UPDATE easeml.coordinators SET stopped_at = clock_timestamp() WHERE lease_number = %(lease_number)s

-- name: slots
-- The slots to run units on.
SELECT slot_id, slot_name, segment_id, device, n_threads, memory_limit_bytes FROM easeml.slots ORDER BY slot_id

-- name: open_runs
-- Runs that are asked for and not over, oldest first.
SELECT run_id FROM easeml.runs WHERE state IN ('queued', 'running') ORDER BY run_id

-- name: read_run
-- An open run.
SELECT r.run_id, r.seed, r.state, r.max_seconds, extract(epoch FROM r.started_at)::double precision AS started_seconds, d.n_partitions
FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) WHERE r.run_id = %(run_id)s AND r.state IN ('queued', 'running')

-- name: read_trials
-- The trials of a run with their progress.
SELECT trial_id, trial_number, architecture, max_epochs, n_steps_done, state FROM easeml.trials WHERE run_id = %(run_id)s ORDER BY trial_number

-- name: start_run
-- The first unit of a run is about to be given out.
UPDATE easeml.runs SET state = 'running', started_at = coalesce(started_at, clock_timestamp()) WHERE run_id = %(run_id)s AND state = 'queued'
    AND %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease)

-- name: fail_trial
-- A trial failed for a reason of its own, or too often for reasons of others.
WITH failed AS (
    UPDATE easeml.trials SET state = 'failed', failure_reason = %(reason)s, finished_at = clock_timestamp()
    WHERE trial_id = %(trial_id)s AND state IN ('waiting', 'running')
        AND %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease)
    RETURNING owner, run_id, trial_id
)
INSERT INTO easeml.events (owner, run_id, trial_id, kind, message)
SELECT owner, run_id, trial_id, 'failed', format('trial %%s failed: %%s', trial_id, %(reason)s) FROM failed

-- name: stop_trials
-- What is left of a run that ends.
UPDATE easeml.trials SET state = 'stopped', finished_at = clock_timestamp() WHERE run_id = %(run_id)s AND state IN ('waiting', 'running')
    AND %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease)

-- name: finish_run
-- The end of a run: failed when no trial came to anything because all failed.
UPDATE easeml.runs r SET finished_at = clock_timestamp(),
    state = CASE WHEN f.n_failed = f.n THEN 'failed' ELSE 'finished' END,
    failure_reason = CASE WHEN f.n_failed = f.n THEN format('all %%s trials failed; the first: %%s', f.n, f.first_reason) END
FROM (SELECT count(*) AS n, count(*) FILTER (WHERE state = 'failed') AS n_failed, (array_agg(failure_reason ORDER BY trial_number))[1] AS first_reason
      FROM easeml.trials WHERE run_id = %(run_id)s) f
WHERE r.run_id = %(run_id)s AND r.state = 'running' AND %(lease_number)s = (SELECT lease_number FROM easeml.coordinator_lease)

-- name: note
-- An event in the history of a run.
INSERT INTO easeml.events (owner, run_id, trial_id, kind, message)
SELECT owner, run_id, %(trial_id)s, %(kind)s, %(message)s FROM easeml.runs WHERE run_id = %(run_id)s

-- name: live_bytes
-- Bytes of the states that are kept.
SELECT coalesce(sum(n_bytes), 0)::bigint AS n_bytes FROM easeml.checkpoints
