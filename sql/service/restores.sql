-- Restoring a dump. CREATE EXTENSION makes the foreign keys, so they are there before the rows, and a parallel
-- pg_restore loads the tables of an extension in any order. So the triggers of security/dump.sql switch foreign keys
-- off while a table is loaded, and easeml.finish_restore, which a coordinator calls before it takes over, checks them
-- all.

CREATE OR REPLACE FUNCTION easeml.begin_restoring() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pid integer := pg_backend_pid();
    started timestamptz := (SELECT a.backend_start FROM pg_stat_get_activity(pid) a);
    has_rows boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM easeml.restored_tables r WHERE r.table_name = TG_TABLE_NAME AND r.backend_pid = pid
        AND r.backend_started = started) THEN
        -- Of three tables CREATE EXTENSION has made rows; the dump has none of these.
        EXECUTE format('SELECT EXISTS (SELECT FROM easeml.%I)', TG_TABLE_NAME) INTO has_rows;
        IF has_rows AND TG_TABLE_NAME NOT IN ('segments', 'price_lists', 'instance_types') THEN
            PERFORM easeml.fail('ML004',
                format('easeml.%s has rows already: a dump is restored into a database without any', TG_TABLE_NAME),
                hint => 'Restore into a new database. After an interrupted restore: drop that database and create it '
                    'again, or add --clean --if-exists to pg_restore.');
        END IF;
        INSERT INTO easeml.restored_tables (table_name, backend_pid, backend_started)
        VALUES (TG_TABLE_NAME, pid, started);
    END IF;
    PERFORM set_config('session_replication_role', 'replica', true),
        set_config('easeml.rows_before', pg_stat_get_xact_tuples_inserted(TG_RELID)::text, true);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.begin_restoring() IS
    'Switches foreign keys off while a dump loads its rows, and records the table for easeml.finish_restore (trigger).';

CREATE OR REPLACE FUNCTION easeml.end_restoring() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Counted here and not later, because slots may be removed and runs dropped before the check.
    UPDATE easeml.restored_tables r SET n_rows = CASE WHEN current_setting('track_counts')::boolean
        THEN r.n_rows + pg_stat_get_xact_tuples_inserted(TG_RELID) - current_setting('easeml.rows_before')::bigint END
    FROM pg_stat_get_activity(pg_backend_pid()) a WHERE r.table_name = TG_TABLE_NAME AND r.backend_pid = a.pid
        AND r.backend_started = a.backend_start;
    PERFORM set_config('session_replication_role', 'origin', true);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.end_restoring() IS
    'Counts the rows that a dump loaded, and switches foreign keys on again (trigger).';

CREATE OR REPLACE FUNCTION easeml.check_dump() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF string_to_array(NEW.version, '.')::integer[] > string_to_array(easeml.version(), '.')::integer[] THEN
        PERFORM easeml.fail('ML008', format('the dump was made with easeml %s, and this server has %s, which is older',
                NEW.version, easeml.version()),
            hint => format('Install easeml-db %s or newer here (easeml install --files-only), and restore into '
                'a new database.', NEW.version));
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION easeml.check_dump() IS 'Refuses the dump of a newer version (trigger).';
CREATE OR REPLACE TRIGGER dump_version BEFORE INSERT ON easeml.dumps FOR EACH ROW EXECUTE FUNCTION easeml.check_dump();

CREATE OR REPLACE FUNCTION easeml.missing_rows() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN NOT EXISTS (SELECT FROM easeml.dumps) THEN 'nothing says how many rows it had' ELSE (
        SELECT string_agg(format('easeml.%s got %s of %s row(s)', k.key, coalesce(r.n_rows, 0), k.value),
            ', ' ORDER BY k.key)
        FROM easeml.dumps d CROSS JOIN LATERAL jsonb_each_text(d.n_rows) k
        LEFT JOIN (SELECT t.table_name::text AS table_name, sum(t.n_rows) AS n_rows,
            bool_and(t.n_rows IS NOT NULL) AS is_counted FROM easeml.restored_tables t GROUP BY 1) r
            ON r.table_name = k.key
        WHERE coalesce(r.n_rows, 0) < k.value::bigint AND coalesce(r.is_counted, true)) END
$$;
COMMENT ON FUNCTION easeml.missing_rows() IS
    'Says which tables got fewer rows than the dump has; NULL if none did (internal).';

CREATE OR REPLACE FUNCTION easeml.broken_references() RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reference record;
    n bigint;
    broken text[] := '{}';
BEGIN
    FOR reference IN
        SELECT c.conrelid::regclass AS child, c.confrelid::regclass AS parent,
            string_agg(format('p.%I = c.%I', b.attname, a.attname), ' AND ') AS matches,
            string_agg(format('c.%I IS NOT NULL', a.attname), ' AND ') AS is_given
        FROM pg_constraint c CROSS JOIN LATERAL unnest(c.conkey, c.confkey) k(child, parent)
        JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.child
        JOIN pg_attribute b ON b.attrelid = c.confrelid AND b.attnum = k.parent
        WHERE c.contype = 'f' AND c.connamespace = 'easeml'::regnamespace GROUP BY c.oid, c.conname
        -- What units record names its trial without a foreign key (units/tables.sql).
        UNION ALL SELECT format('easeml.%I', k.child)::regclass, 'easeml.trials'::regclass,
            'p.trial_id = c.trial_id AND p.tenant = c.tenant', 'true'
        FROM unnest('{checkpoints,training_units,evaluations,epoch_metrics}'::text[]) k(child)
        UNION ALL SELECT 'easeml.metric_values'::regclass, 'easeml.epoch_metrics'::regclass,
            'p.trial_id = c.trial_id AND p.epoch = c.epoch AND p.split = c.split', 'true' ORDER BY 1, 3
    LOOP
        EXECUTE format('SELECT count(*) FROM %s c WHERE %s AND NOT EXISTS (SELECT FROM %s p WHERE %s)', reference.child,
            reference.is_given, reference.parent, reference.matches) INTO n;
        IF n > 0 THEN
            broken := broken || format('%s row(s) of %s name rows of %s that are not there', n,
                reference.child, reference.parent);
        END IF;
    END LOOP;
    RETURN nullif(array_to_string(broken, ', '), '');
END
$$;
COMMENT ON FUNCTION easeml.broken_references() IS 'Names the rows that refer to missing ones, by all foreign keys and '
    'by what units record; NULL if there are none (internal).';

CREATE OR REPLACE FUNCTION easeml.leave_numbers_behind() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- A dump has no lease. What was written under one of the lost numbers must not be taken for what is written under
    -- the next.
    UPDATE easeml.coordinator_lease l
    SET lease_number = greatest(l.lease_number, extract(epoch FROM clock_timestamp())::bigint);
    IF EXISTS (SELECT FROM easeml.segments g WHERE g.service IS NOT NULL) THEN
        -- Nodes were not restored: they may have rows and states of datasets and checkpoints that came after the dump.
        PERFORM setval('easeml.datasets_dataset_id_seq', nextval('easeml.datasets_dataset_id_seq') + 1000000),
            setval('easeml.checkpoints_checkpoint_id_seq',
            nextval('easeml.checkpoints_checkpoint_id_seq') + 1000000000);
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.leave_numbers_behind() IS 'Has leases, and on a server with nodes datasets and states, go '
    'on with numbers that none had after the dump (internal).';

CREATE OR REPLACE FUNCTION easeml.finish_restore(allow_missing boolean DEFAULT false) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    broken text;
    missing text;
    n_rows bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM easeml.restored_tables) THEN
        RETURN 'nothing was restored since the last check';
    END IF;
    broken := easeml.broken_references();
    missing := CASE WHEN broken IS NULL AND allow_missing IS NOT TRUE THEN easeml.missing_rows() END;
    IF broken IS NOT NULL OR missing IS NOT NULL THEN
        PERFORM easeml.fail('ML004', 'this database was restored in part only: ' || coalesce(broken, missing),
            hint => CASE WHEN broken IS NULL
                THEN 'Restore again into a new database, and look at what pg_restore says. If rows were dropped or '
                'left out on purpose: SELECT easeml.finish_restore(allow_missing => true).'
                ELSE 'Restore again into a new database, and look at what pg_restore says.' END);
    END IF;
    DELETE FROM easeml.restored_tables;
    PERFORM easeml.leave_numbers_behind();
    SELECT sum(k.value::bigint) INTO n_rows FROM easeml.dumps d, jsonb_each_text(d.n_rows) k;
    RETURN CASE WHEN missing IS NULL AND n_rows IS NOT NULL
        AND allow_missing IS NOT TRUE THEN format('all %s row(s) of the dump are there, and all foreign keys hold',
            n_rows) ELSE 'all foreign keys hold' END;
END
$$;
COMMENT ON FUNCTION easeml.finish_restore(boolean) IS
'Checks a database that was restored from a dump: that all foreign keys hold, and that each table has as
many rows as the dump had. A coordinator calls it before it takes over, and does not start while it fails.
allow_missing: accept tables with fewer rows, for example because some were left out of the dump.';
