-- The lock table belongs to all sessions of the server. Where one takes half of it, it is ended.

-- It reads no relation, so that it needs no lock itself: what the views show comes from these two functions. SECURITY
-- DEFINER of a superuser, because only that may end sessions of others. It takes nothing from its caller, and ends no
-- superuser's session. (easeml_owner cannot be a member of pg_signal_backend: the former version refuses such an owner,
-- and a restore of its dump creates that.)
CREATE OR REPLACE FUNCTION easeml.end_lock_holders() RETURNS
    TABLE (role_id oid, database_id oid, n_sessions bigint, n_locks bigint, capacity bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- A session may always have so many: if none had more, the table could not be full.
    own_share bigint := current_setting('max_locks_per_transaction')::bigint;
    n_places bigint := own_share * (current_setting('max_connections')::bigint
        + current_setting('max_prepared_transactions')::bigint);
    n_free bigint;
    holder record;
    -- A setting, because it reads no relation. Whoever sets it for a session of its own ends nobody.
    reports_only boolean := current_setting('easeml.lock_holders', true) IS NOT DISTINCT FROM 'report';
BEGIN
    FOR holder IN
        WITH held AS MATERIALIZED (
            -- Weak locks of a session's first relations (fastpath) and predicate locks lie elsewhere.
            SELECT l.pid, count(*) AS n_locks FROM pg_lock_status() l
            WHERE NOT l.fastpath AND l.mode <> 'SIReadLock' GROUP BY l.pid
        ), sessions AS MATERIALIZED (
            SELECT a.pid, coalesce(a.leader_pid, a.pid) AS leader, a.usesysid, a.datid,
                -- Superusers, and the role of this very session. That of a process of the server is null.
                pg_has_role(a.usesysid, 10::oid, 'MEMBER') OR a.usesysid = (
                    SELECT o.usesysid FROM pg_stat_get_activity(pg_backend_pid()) o) AS is_exempt
            FROM pg_stat_get_activity(NULL) a
        ), sums AS (
            SELECT s.leader, min(s.usesysid) AS usesysid, min(s.datid) AS datid, sum(h.n_locks)::bigint AS n_locks,
                coalesce(bool_or(s.is_exempt), true) AS is_exempt, h.pid IS NULL AS is_prepared
            -- A session that is just ending has locks, and is listed no more.
            FROM held h LEFT JOIN sessions s USING (pid) GROUP BY s.leader, h.pid IS NULL
        )
        SELECT t.*, sum(t.n_locks) FILTER (WHERE NOT t.is_exempt) OVER ()
            - (n_places - coalesce(sum(t.n_locks) FILTER (WHERE t.is_exempt) OVER (), 0)) / 2 AS n_too_many
        FROM sums t ORDER BY t.is_exempt, t.n_locks DESC
    LOOP
        n_free := coalesce(n_free, holder.n_too_many);
        IF holder.is_prepared AND holder.n_locks > n_places / 2 THEN  -- nobody's session: it can only be reported
            RETURN QUERY SELECT NULL::oid, NULL::oid, 0::bigint, holder.n_locks, n_places;
        END IF;
        CONTINUE WHEN holder.is_exempt OR n_free <= 0 OR holder.n_locks <= own_share;
        IF NOT reports_only THEN
            PERFORM pg_terminate_backend(holder.leader);
        END IF;
        n_free := n_free - holder.n_locks;
        RETURN QUERY SELECT holder.usesysid, holder.datid, (NOT reports_only)::integer::bigint, holder.n_locks,
            n_places;
    END LOOP;
END
$$;
COMMENT ON FUNCTION easeml.end_lock_holders() IS 'Ends the sessions that hold the most of the server''s lock table '
    'while more than half of what superusers and the service leave of it is taken; returns them. A session that holds '
    'at most max_locks_per_transaction is never ended. Where easeml.lock_holders is ''report'', none is (internal).';
