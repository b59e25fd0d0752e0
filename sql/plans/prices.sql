-- Price lists: administrators write them.

CREATE OR REPLACE FUNCTION easeml.read_price_list(price_list text, types jsonb, OUT completed jsonb, OUT failure jsonb)
LANGUAGE plpython3u IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
from easeml_db.decisions.planner.documents import read_price_list
from easeml_plpy.server.entry_points import answered_by
return answered_by(plpy, read_price_list, price_list, types)
$$;
COMMENT ON FUNCTION easeml.read_price_list(text, jsonb) IS
    'Returns the instance types of a price list as a json array, with defaults filled in, or an error (internal).';

CREATE OR REPLACE FUNCTION easeml.create_price_list(
    price_list text,
    types jsonb,
    caveat text DEFAULT NULL,
    is_local boolean DEFAULT false
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    read record;
BEGIN
    PERFORM easeml.check_json('types', types, 100000, 4);
    IF length(caveat) > 2000 THEN
        PERFORM easeml.fail('ML001', format('caveat: expected at most 2000 characters, got %s', length(caveat)));
    END IF;
    read := easeml.read_price_list(coalesce(price_list, ''), types);
    PERFORM easeml.raise_failure(read.failure);
    INSERT INTO easeml.price_lists (price_list, caveat, is_local)
    VALUES (price_list, caveat, coalesce(is_local, false)) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        PERFORM easeml.fail('ML001', format('there is a price list %s already', quote_literal(price_list)),
            hint => 'Drop it first with easeml.drop_price_list, or choose another name.');
    END IF;
    INSERT INTO easeml.instance_types SELECT (jsonb_populate_record(NULL::easeml.instance_types,
            jsonb_build_object('price_list', create_price_list.price_list) || t.value)).*
    FROM jsonb_array_elements(read.completed) t;
END
$$;
COMMENT ON FUNCTION easeml.create_price_list(text, jsonb, text, boolean) IS
$$Makes a price list for easeml.plan. types: a json array of instance types, {"instance_type": "g5", "device_kind":
"cuda", "n_slots": 4, "price_per_hour": 5.67}. Further keys, with their defaults:
billed_by ("second"; "minute": each started minute), billed_per ("instance"; "function": only slots on which something
trains), minimum_seconds (0), price_per_gb (0) of data brought in, queue_seconds and queue_sd_seconds (0), start_seconds
and start_sd_seconds (0), max_instances (null: no limit), speed (1: a slot is as fast as those measured).
is_local: its slots are those of this server, and no more than it has.$$;

CREATE OR REPLACE FUNCTION easeml.drop_price_list(price_list text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    found easeml.price_lists;
    users text;
BEGIN
    -- A transaction that starts a run with it holds the row: it is waited for, and then its run is found.
    SELECT l.* INTO found FROM easeml.price_lists l WHERE l.price_list = drop_price_list.price_list FOR UPDATE;
    IF found.price_list IS NULL THEN
        PERFORM easeml.fail('ML003', format('there is no price list %s', quote_nullable(price_list)),
            hint => 'SELECT * FROM easeml.prices lists them.');
    ELSIF found.is_shipped THEN
        PERFORM easeml.fail('ML004', format('price list %s comes with easeml and stays', price_list),
            hint => 'Make one of your own with easeml.create_price_list, and name it where you plan.');
    END IF;
    SELECT string_agg(r.run_id::text, ', ' ORDER BY r.run_id) INTO users FROM easeml.runs r
    WHERE r.price_list = found.price_list AND r.status IN ('queued', 'running');
    IF users IS NOT NULL THEN
        PERFORM easeml.fail('ML004', format('price list %s is in use by run(s) %s', price_list, users),
            hint => 'Wait for them, or cancel them: SELECT easeml.cancel(run_id).');
    END IF;
    DELETE FROM easeml.price_lists l WHERE l.price_list = found.price_list;
EXCEPTION WHEN lock_not_available THEN
    PERFORM easeml.fail('ML016', format('price list %s is used by a transaction that is still open', price_list),
        hint => 'Try again, or end that session: pg_stat_activity shows it, pg_terminate_backend(pid) ends it.');
END
$$;
COMMENT ON FUNCTION easeml.drop_price_list(text) IS
    'Drops a price list. Refuses for one that comes with easeml, and while a run is planned with it.';
