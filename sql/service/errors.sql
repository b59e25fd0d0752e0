-- Errors carry an SQLSTATE of class ML, so that callers can tell them apart, and a hint that says what to do.
-- PL/Python functions that users reach return such an error in a column `failure`, and their callers raise it with
-- easeml.raise_failure. Raised in Python, it would show "plpy.Error:" before its message and a traceback below it;
-- catching it in PL/pgSQL would open a subtransaction at every call, for predictions at every row. Errors of the server
-- within those functions (a right that is missing) go the same way (docs/design/errors.md).

CREATE OR REPLACE FUNCTION easeml.fail(
    sqlstate_code text,
    message text,
    detail text DEFAULT NULL,
    hint text DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- PL/Python puts the name of the exception's class before the message.
    message := regexp_replace(message, '^((plpy\.(SPI)?Error|spiexceptions\.\w+): )+', '');
    detail := nullif(detail, '');
    hint := nullif(hint, '');
    IF detail IS NULL AND hint IS NULL THEN
        RAISE EXCEPTION USING errcode = sqlstate_code, message = message;
    ELSIF detail IS NULL THEN
        RAISE EXCEPTION USING errcode = sqlstate_code, message = message, hint = hint;
    ELSIF hint IS NULL THEN
        RAISE EXCEPTION USING errcode = sqlstate_code, message = message, detail = detail;
    ELSE
        RAISE EXCEPTION USING errcode = sqlstate_code, message = message, detail = detail, hint = hint;
    END IF;
END
$$;
COMMENT ON FUNCTION easeml.fail(text, text, text, text) IS 'Raises an error of class ML (internal).';

CREATE OR REPLACE FUNCTION easeml.raise_failure(failure jsonb) RETURNS void
LANGUAGE plpgsql STRICT SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM easeml.fail(failure ->> 'sqlstate', failure ->> 'message', failure ->> 'detail', failure ->> 'hint');
END
$$;
COMMENT ON FUNCTION easeml.raise_failure(jsonb) IS
    'Raises the error that a PL/Python function returned; does nothing if it is NULL (internal).';

CREATE OR REPLACE FUNCTION easeml.check_run_transition() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.status <> OLD.status AND (OLD.status, NEW.status) NOT IN (
        ('queued', 'running'), ('queued', 'cancelled'), ('queued', 'failed'),
        ('running', 'finished'), ('running', 'cancelled'), ('running', 'failed'),
        ('failed', 'queued'), ('cancelled', 'queued')
    ) THEN
        PERFORM easeml.fail('ML004', format('run %s cannot go from %s to %s', OLD.run_id, OLD.status, NEW.status));
    END IF;
    -- Its trials are over and it is never resumed, so its tenant's usage need not be summed over them again.
    NEW.slot_seconds := CASE WHEN NEW.status = 'finished' THEN (SELECT sum(t.slot_seconds) FROM easeml.trials t
            WHERE t.run_id = NEW.run_id) END;
    NEW.record_bytes := CASE WHEN NEW.finished_at IS NOT NULL THEN easeml.record_bytes(NEW.run_id) END;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION easeml.check_run_transition() IS
    'Refuses an illegal change of a run''s status, and records what a run that ends has used (trigger).';
CREATE OR REPLACE TRIGGER run_transition BEFORE UPDATE OF status ON easeml.runs
    FOR EACH ROW EXECUTE FUNCTION easeml.check_run_transition();

CREATE OR REPLACE FUNCTION easeml.check_trial_transition() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.status <> OLD.status AND (OLD.status, NEW.status) NOT IN (
        ('waiting', 'running'), ('waiting', 'cancelled'), ('waiting', 'failed'), ('waiting', 'stopped'),
        ('running', 'finished'), ('running', 'failed'), ('running', 'cancelled'),
        ('running', 'stopped'), ('running', 'paused'),
        ('paused', 'waiting'), ('paused', 'cancelled'), ('paused', 'stopped'), ('stopped', 'waiting'),
        ('cancelled', 'waiting'), ('cancelled', 'paused'), ('failed', 'waiting'), ('failed', 'paused')
    ) THEN
        PERFORM easeml.fail('ML004', format('trial %s cannot go from %s to %s', OLD.trial_id, OLD.status, NEW.status));
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION easeml.check_trial_transition() IS 'Refuses an illegal change of a trial''s status (trigger).';
-- AFTER: a trigger that comes before an update has each row of its table locked first, whichever column is written, and
-- that is a record in the log.
CREATE OR REPLACE TRIGGER trial_transition AFTER UPDATE OF status ON easeml.trials
    FOR EACH ROW EXECUTE FUNCTION easeml.check_trial_transition();

CREATE OR REPLACE FUNCTION easeml.refuse_values() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ruled text := (SELECT string_agg(format('%s = %s', a.attname,
                coalesce(left(to_jsonb(NEW) ->> a.attname, 64), 'null')), ', ' ORDER BY a.attnum)
        FROM pg_trigger t JOIN pg_attribute a ON a.attrelid = t.tgrelid AND a.attnum = ANY (t.tgattr)
        WHERE t.tgrelid = TG_RELID AND t.tgname = TG_NAME);
BEGIN
    RAISE EXCEPTION USING errcode = 'check_violation', schema = TG_TABLE_SCHEMA,
        table = TG_TABLE_NAME, constraint = TG_NAME,
        message = format('new row of easeml.%s breaks a rule of the trigger %s: %s', TG_TABLE_NAME, TG_NAME, ruled);
END
$$;
COMMENT ON FUNCTION easeml.refuse_values() IS
    'Refuses a row with a value that its table does not allow, and says which values the rules are about (trigger).';
-- In place of CHECKs, which PostgreSQL parses at every UPDATE of any column: a unit writes none of these columns,
-- unless its trial starts, pauses or ends.
CREATE OR REPLACE TRIGGER trial_values AFTER INSERT OR UPDATE OF trial_number, max_epochs, target_epochs, bracket,
    inherited_epochs, status, started_at, finished_at ON easeml.trials
    FOR EACH ROW WHEN (NOT (NEW.trial_number >= 1 AND NEW.max_epochs BETWEEN 1 AND 1000000
            AND NEW.target_epochs BETWEEN 1 AND NEW.max_epochs
        AND NEW.bracket >= 0 AND NEW.inherited_epochs BETWEEN 0 AND NEW.max_epochs AND isfinite(NEW.started_at)
            AND isfinite(NEW.finished_at)
        AND NEW.status IN ('waiting', 'running', 'paused', 'finished', 'failed', 'cancelled', 'stopped')))
    EXECUTE FUNCTION easeml.refuse_values();
CREATE OR REPLACE TRIGGER slot_values AFTER INSERT OR UPDATE OF device, n_threads, memory_limit_bytes, status
    ON easeml.slots
    FOR EACH ROW WHEN (NOT (NEW.device ~ '^(cpu(:[0-9]+)?|cuda:[0-9]+)$' AND NEW.n_threads BETWEEN 1 AND 1024
            AND NEW.memory_limit_bytes >= 268435456
        AND NEW.status IN ('active', 'draining', 'lost')))
    EXECUTE FUNCTION easeml.refuse_values();
