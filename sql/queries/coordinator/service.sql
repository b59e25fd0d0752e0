-- The lease, signs of life, slots.

-- name: read_holder
-- The lease, and whether it is held: by a session that still exists and gave a sign of life within 30 seconds. The
-- start distinguishes a session from a later one of the same number.
SELECT l.lease_number, c.stopped_at IS NULL AND c.heartbeat_at > clock_timestamp() - interval '30 seconds'
    AND EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = l.holder_pid
        AND coalesce(a.backend_start = l.holder_started, true)) AS is_held
FROM easeml.coordinator_lease l LEFT JOIN easeml.coordinators c USING (lease_number)

-- name: finish_restore
-- Raises an error where a dump was restored in part only.
SELECT easeml.finish_restore()

-- name: draw_lease
-- Draws the next lease number for this session, unless another was faster, and puts the coordinator on record; a unit
-- being recorded holds the row until it has committed.
WITH drawn AS (
    UPDATE easeml.coordinator_lease l SET lease_number = l.lease_number + 1, acquired_at = clock_timestamp(),
        holder_pid = pg_backend_pid(),
        holder_started = (SELECT a.backend_start FROM pg_stat_activity a WHERE a.pid = pg_backend_pid())
    WHERE l.lease_number = %(seen)s RETURNING l.lease_number
)
INSERT INTO easeml.coordinators (lease_number, host, process_id, version)
SELECT d.lease_number, %(host)s, %(process_id)s, %(version)s FROM drawn d RETURNING lease_number

-- name: clear_slots
-- Takes off what units of an earlier coordinator left on display.
UPDATE easeml.slots SET unit_started_at = NULL, backend_pid = NULL
WHERE slot_id IN (SELECT s.slot_id FROM easeml.slots s WHERE (s.unit_started_at IS NOT NULL
        OR s.backend_pid IS NOT NULL) AND s.status <> 'lost' FOR NO KEY UPDATE SKIP LOCKED)

-- name: read_lease
-- The lease that holds now.
SELECT lease_number FROM easeml.coordinator_lease

-- name: heartbeat
-- A sign of life, and what was counted so far.
UPDATE easeml.coordinators SET heartbeat_at = clock_timestamp(), counters = %(counters)s::jsonb
WHERE lease_number = %(lease_number)s

-- name: sign_off
-- An orderly end.
UPDATE easeml.coordinators SET stopped_at = clock_timestamp() WHERE lease_number = %(lease_number)s

-- name: look
-- What others may change, as values to compare: open runs, oldest first, slots, and how tenants are served.
SELECT o.*, (SELECT hashtextextended(coalesce(string_agg(ROW (s.slot_id, s.slot_name, s.segment_id, s.device,
                    s.n_threads, s.memory_limit_bytes, s.status, s.instance_id)::text, ',' ORDER BY s.slot_id), ''), 0)
    FROM easeml.slots s)
        # (SELECT hashtextextended(coalesce(max(v.max_slots), 0)::text, 0) FROM easeml.provisioners v
            WHERE v.provisioner = 'local') AS slots,
    (SELECT hashtextextended(coalesce(string_agg(t::text, ',' ORDER BY t.tenant), ''), 0) FROM easeml.tenants t)
        # (SELECT hashtextextended(coalesce(max(y::text), ''), 0) FROM easeml.tenancy y) AS terms
FROM (SELECT array_agg(r.run_id ORDER BY r.run_id) AS run_ids, array_agg(r.tenant::text ORDER BY r.run_id) AS tenants,
        array_agg(r.n_resumes ORDER BY r.run_id) AS resumes,
        array_agg(CASE WHEN d.placement = 'bound' THEN (SELECT hashtextextended(string_agg(ROW (h.partition_number,
                                h.segment_id)::text, ',' ORDER BY h.partition_number, h.segment_id), 0)
            FROM easeml.replicas h WHERE h.dataset_id = r.dataset_id) END ORDER BY r.run_id) AS holders
    FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id) WHERE r.is_open) o

-- name: slots
-- The slots to run units on.
SELECT s.slot_id, s.slot_name, s.segment_id, s.device, s.n_threads, s.memory_limit_bytes, s.status,
    i.run_id, i.instance_id, g.service
FROM easeml.slots s JOIN easeml.segments g USING (segment_id)
LEFT JOIN easeml.instances i USING (instance_id) ORDER BY s.slot_id

-- name: lose_slot
-- A unit is stuck: whatever its process still does, it does not record.
UPDATE easeml.slots SET status = 'lost', lost_reason = %(reason)s, lost_at = clock_timestamp(), unit_started_at = NULL
WHERE slot_id = %(slot_id)s
    AND easeml.holds_lease(%(lease_number)s)

-- name: explain_slot
-- Why a slot that should work does not (NULL: it does).
UPDATE easeml.slots SET lost_reason = %(reason)s WHERE slot_id = %(slot_id)s AND status <> 'lost'
    AND lost_reason IS DISTINCT FROM %(reason)s

-- name: recover_slots
-- Lost slots whose stuck process is gone work again; those that an open transaction has locked, later.
UPDATE easeml.slots s SET status = 'active', lost_reason = NULL, lost_at = NULL, backend_pid = NULL
WHERE s.slot_id IN (SELECT o.slot_id FROM easeml.slots o
    WHERE o.status = 'lost' AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = o.backend_pid)
    FOR NO KEY UPDATE SKIP LOCKED) RETURNING s.slot_id

-- name: live_bytes
-- Bytes of the states that are kept.
SELECT least(coalesce(sum(n_bytes), 0), 9223372036854775807)::bigint AS n_bytes FROM easeml.checkpoints

-- name: analyse_grown
-- Sessions plan anew where tables have grown.
SELECT easeml.analyse_grown() AS n_analysed

-- name: lock_holders
-- Ends who fills the lock table.
SELECT * FROM easeml.end_lock_holders()

-- name: begin_reserve
-- Begins the transaction that keeps some places of the lock table.
BEGIN

-- name: reserve_locks
-- Takes these places: on catalogs of the whole cluster, whose locks are all in the table. Nobody locks them harder.
LOCK TABLE pg_catalog.pg_database, pg_catalog.pg_auth_members, pg_catalog.pg_tablespace, pg_catalog.pg_shdepend,
    pg_catalog.pg_shdescription, pg_catalog.pg_db_role_setting, pg_catalog.pg_shseclabel IN ACCESS SHARE MODE

-- name: release_locks
-- Gives them back.
ROLLBACK

-- name: note_lock_holder
-- Who was ended, for administrators.
INSERT INTO easeml.lock_holders AS h (role_name, database_name, n_ended, most_locks, capacity)
SELECT coalesce(r.rolname, ''), coalesce(d.datname, ''), %(n_sessions)s, %(n_locks)s, %(capacity)s
FROM (VALUES (1)) one LEFT JOIN pg_roles r ON r.oid = %(role_id)s LEFT JOIN pg_database d ON d.oid = %(database_id)s
ON CONFLICT (role_name, database_name) DO UPDATE SET n_ended = h.n_ended + excluded.n_ended,
    most_locks = greatest(h.most_locks, excluded.most_locks), capacity = excluded.capacity, last_at = excluded.last_at

-- name: health
-- How the service does.
SELECT * FROM easeml.health
