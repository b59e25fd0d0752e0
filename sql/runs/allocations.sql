-- Records what a coordinator decides about trial groups.

CREATE OR REPLACE FUNCTION easeml.keep_allocations(journal jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run easeml.runs;
BEGIN
    PERFORM easeml.fence(journal);
    -- The coordinator waits for no tenant that locks the run: the decision holds anyway, and this only records it.
    SELECT r.* INTO run FROM easeml.runs r WHERE r.run_id = (journal ->> 'run_id')::bigint
    FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO easeml.trial_groups (run_id, tenant, lease_number, group_number, label, n_trials)
    SELECT run.run_id, run.tenant, (journal ->> 'lease_number')::bigint, g.group_number, g.label, g.n_trials
    FROM jsonb_to_recordset(journal -> 'groups') g(group_number integer, label text, n_trials integer)
    ON CONFLICT DO NOTHING;
    INSERT INTO easeml.allocations (group_id, trial_id, run_id, tenant, width, devices, slot_ids, reason)
    SELECT g.group_id, t.trial_id, run.run_id, run.tenant, a.width, a.devices, a.slot_ids, a.reason
    FROM jsonb_to_recordset(journal -> 'decisions') a(group_number integer, trial_id bigint, width float8,
        devices text[], slot_ids integer[], reason text)
    JOIN easeml.trial_groups g ON g.run_id = run.run_id AND g.lease_number = (journal ->> 'lease_number')::bigint
        AND g.group_number = a.group_number
    JOIN easeml.trials t ON t.trial_id = a.trial_id AND t.run_id = run.run_id;
    UPDATE easeml.trial_groups g SET ended_at = clock_timestamp()
    WHERE g.run_id = run.run_id AND g.lease_number = (journal ->> 'lease_number')::bigint
        AND g.group_number IN (SELECT e.value::integer FROM jsonb_array_elements_text(journal -> 'ended') e);
END
$$;
COMMENT ON FUNCTION easeml.keep_allocations(jsonb) IS
    'Records new trial groups, allocations, and groups that have ended; refuses if the lease is stale (internal).';
