-- The lease: whoever holds it is the coordinator, and whoever held it before writes no more. Statements of a
-- coordinator ask here whether it still does.

CREATE OR REPLACE FUNCTION easeml.fence(unit jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    holder bigint;
BEGIN
    -- The lock delays a takeover until this transaction has ended.
    SELECT l.lease_number INTO holder FROM easeml.coordinator_lease l FOR SHARE;
    IF holder IS DISTINCT FROM (unit ->> 'lease_number')::bigint THEN
        PERFORM easeml.fail('ML006',
            format('lease %s is over, %s holds: the unit is not recorded', unit ->> 'lease_number', holder));
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.fence(jsonb) IS
    'Refuses to record a unit whose coordinator no longer holds the lease (internal).';

-- PL/pgSQL because it keeps its plan: planning takes longer than the query.
CREATE OR REPLACE FUNCTION easeml.holds_lease(lease_number bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (SELECT FROM easeml.coordinator_lease l WHERE l.lease_number = holds_lease.lease_number);
END
$$;
COMMENT ON FUNCTION easeml.holds_lease(bigint) IS
    'Returns whether a coordinator still holds the lease: where it does not, its statements do nothing (internal).';
