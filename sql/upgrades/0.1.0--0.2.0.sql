-- From 0.1.0 to 0.2.0: what runs once, because a source cannot say it. Constraints of existing tables change, what has
-- other columns or arguments now is dropped, and rows get values. Each statement may find its work done. At the line
-- (tables) the sources of tables run, which add new tables and columns.

-- A coordinator of the former version loses its lease, and ends: its units can no longer be recorded. The row is the
-- first to be locked, since whoever records a unit holds it, too.
UPDATE easeml.coordinator_lease SET lease_number = lease_number + 1, holder_pid = NULL, holder_started = NULL;

-- Members of easeml_coordinator owned these tables. What they may have attached to them would run with the rights of
-- whoever reads the tables, and first of all of this script's.
DO $owners$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        WITH owned(relation) AS (VALUES ('easeml.checkpoints'::regclass), ('easeml.checkpoint_chunks'))
        SELECT format('DROP STATISTICS %I.%I', n.nspname, x.stxname) FROM owned o
        JOIN pg_statistic_ext x ON x.stxrelid = o.relation JOIN pg_namespace n ON n.oid = x.stxnamespace
        UNION ALL SELECT format('DROP RULE %I ON %s', r.rulename, o.relation) FROM owned o
        JOIN pg_rewrite r ON r.ev_class = o.relation
        UNION ALL SELECT format('DROP TRIGGER %I ON %s', t.tgname, o.relation) FROM owned o
        JOIN pg_trigger t ON t.tgrelid = o.relation JOIN pg_proc p ON p.oid = t.tgfoid
        WHERE NOT t.tgisinternal AND p.pronamespace <> 'easeml'::regnamespace
        UNION ALL SELECT format('DROP POLICY %I ON %s', p.polname, o.relation) FROM owned o
        JOIN pg_policy p ON p.polrelid = o.relation
    LOOP
        EXECUTE statement;
    END LOOP;
    ALTER TABLE easeml.checkpoints OWNER TO CURRENT_USER;
    ALTER TABLE easeml.checkpoint_chunks OWNER TO CURRENT_USER;
    ALTER VIEW easeml.kept_sizes OWNER TO CURRENT_USER;
END
$owners$;

ALTER TABLE easeml.segments DROP CONSTRAINT segments_engine_check,
    ADD CONSTRAINT segments_engine_check CHECK (engine ~ '^[a-z][a-z0-9_]{0,62}$');
ALTER TABLE easeml.servings DROP CONSTRAINT servings_reason_check,
    ADD CONSTRAINT servings_reason_check
        CHECK (reason IN ('better', 'deployed', 'undeployed', 'rolled back', 'dropped', 'metric', 'refreshed'));
-- The triggers trial_values and slot_values look at trial_number, max_epochs, target_epochs, bracket, inherited_epochs,
-- status, started_at, finished_at, device, n_threads and memory_limit_bytes instead, where they are written. Only units
-- write kind.
ALTER TABLE easeml.trials DROP CONSTRAINT IF EXISTS trials_trial_number_check,
    DROP CONSTRAINT IF EXISTS trials_max_epochs_check, DROP CONSTRAINT IF EXISTS trials_check,
    DROP CONSTRAINT IF EXISTS trials_bracket_check, DROP CONSTRAINT IF EXISTS trials_check1,
    DROP CONSTRAINT IF EXISTS trials_status_check,
    DROP CONSTRAINT IF EXISTS trials_started_at_check, DROP CONSTRAINT IF EXISTS trials_finished_at_check;
ALTER TABLE easeml.slots DROP CONSTRAINT IF EXISTS slots_device_check, DROP CONSTRAINT IF EXISTS slots_n_threads_check,
    DROP CONSTRAINT IF EXISTS slots_memory_limit_bytes_check,
    DROP CONSTRAINT IF EXISTS slots_status_check, DROP CONSTRAINT IF EXISTS slots_kind_check;
ALTER TABLE easeml.checkpoints DROP CONSTRAINT IF EXISTS checkpoints_trial_id_tenant_fkey;
ALTER TABLE easeml.training_units DROP CONSTRAINT IF EXISTS training_units_trial_id_tenant_fkey;
-- Nobody read the number of a unit. Its sequence leaves the extension before it is gone, and with that the list of what
-- dumps have of the extension.
DO $sequence$
BEGIN
    IF to_regclass('easeml.training_units_unit_id_seq') IS NOT NULL THEN
        ALTER EXTENSION easeml DROP SEQUENCE easeml.training_units_unit_id_seq;
    END IF;
END
$sequence$;
ALTER TABLE easeml.training_units DROP COLUMN IF EXISTS unit_id,
    DROP CONSTRAINT IF EXISTS training_units_trial_id_epoch_partition_number_key,
    DROP CONSTRAINT IF EXISTS training_units_pkey, ADD PRIMARY KEY (trial_id, epoch, partition_number);
ALTER TABLE easeml.evaluations DROP CONSTRAINT IF EXISTS evaluations_trial_id_tenant_fkey;
ALTER TABLE easeml.epoch_metrics DROP CONSTRAINT IF EXISTS epoch_metrics_trial_id_tenant_fkey;

-- They are made again with other columns.
DROP INDEX IF EXISTS easeml.runs_open, easeml.runs_tenant, easeml.trials_tenant, easeml.arm_opening_candidates_run,
    easeml.training_units_tenant, easeml.evaluations_tenant;

-- They return further columns, or have further arguments now.
DROP VIEW IF EXISTS easeml.architectures;
DROP FUNCTION IF EXISTS easeml.list_architectures(), easeml.fitting_architectures(text, integer[], integer, boolean),
    easeml.predict_packed(text, bigint, integer, bytea, text), easeml.specifications(text[]),
    easeml.predict_table(text, text, text, bigint, text, text[]),
    easeml.write_predictions(text, oid, text, bigint, text, text[]);
DROP FUNCTION IF EXISTS easeml.plan(text, text[], jsonb, text, integer, integer, bigint, jsonb, interval,
    double precision, text, double precision);
DROP FUNCTION IF EXISTS easeml.create_dataset(text, text, text[], text, integer,
    double precision, double precision, bigint, text, integer[], integer, text, text, text, text, text[], integer),
    easeml.begin_version(name, integer, jsonb);
DROP FUNCTION IF EXISTS easeml.check_run_limits(name, name), easeml.advance(jsonb),
    easeml.apply_decisions(bigint, jsonb, bigint);
DROP FUNCTION IF EXISTS easeml.begin_search(jsonb, jsonb, text, integer, integer, bigint, jsonb, jsonb),
    easeml.check_memory(jsonb, bigint[], jsonb);
DROP FUNCTION IF EXISTS easeml.predict_json(text, text, bigint), easeml.predict_numbers(text, bytea, bigint),
    easeml.predict_bytes(text, bytea, bigint),
    easeml.predict_row(text, anyarray, bigint), easeml.predict_row(text, jsonb, bigint),
    easeml.predict_row(text, text, bigint), easeml.predict_row(text, bytea, bigint);
DROP FUNCTION IF EXISTS easeml.hide_context();
DROP FUNCTION IF EXISTS easeml.add_segment(text), easeml.remove_segment(text), easeml.examined_trial(text, bigint),
    easeml.does_whole_rounds(text), easeml.batch_key(text, jsonb);
DROP FUNCTION IF EXISTS easeml.select_models(text, text[], jsonb, text, integer, integer, text, double precision,
    bigint, text, text, jsonb, text);

-- (tables)

-- Metrics were columns, and are rows. Views that show these columns show nulls until they are made again below: what
-- users have built on them stays.
DO $metrics$
DECLARE
    item record;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = 'easeml.epoch_metrics'::regclass
        AND a.attname = 'accuracy' AND NOT a.attisdropped) THEN
        RETURN;
    END IF;
    INSERT INTO easeml.metric_values (trial_id, epoch, tenant, split, metric, value)
    SELECT e.trial_id, e.epoch, e.tenant, e.split, v.metric, v.value FROM easeml.epoch_metrics e
    CROSS JOIN LATERAL (VALUES
        ('accuracy', e.accuracy), ('balanced_accuracy', e.balanced_accuracy), ('macro_f1', e.macro_f1),
        ('log_loss', e.log_loss), ('rmse', e.rmse), ('mae', e.mae), ('r2', e.r2)) v(metric, value)
    WHERE v.value IS NOT NULL;
    FOR item IN
        SELECT c.oid::regclass AS name, string_agg(format('NULL::%s%s AS %I', format_type(a.atttypid, a.atttypmod),
            ' COLLATE ' || nullif(a.attcollation, 0)::regcollation, a.attname), ', ' ORDER BY a.attnum) AS columns
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
        WHERE c.oid IN ('easeml.learning_curves'::regclass, 'easeml.trial_metrics'::regclass) GROUP BY c.oid
    LOOP
        EXECUTE format('CREATE OR REPLACE VIEW %s WITH (security_invoker) AS SELECT %s', item.name, item.columns);
    END LOOP;
    ALTER TABLE easeml.epoch_metrics DROP COLUMN accuracy, DROP COLUMN balanced_accuracy, DROP COLUMN macro_f1,
        DROP COLUMN log_loss, DROP COLUMN rmse, DROP COLUMN mae, DROP COLUMN r2;
END
$metrics$;

UPDATE easeml.trials t SET slot_seconds = w.seconds FROM (
    SELECT k.trial_id, extract(epoch FROM sum(k.finished_at - k.started_at)) AS seconds FROM (
        SELECT u.trial_id, u.started_at, u.finished_at FROM easeml.training_units u
        UNION ALL SELECT e.trial_id, e.started_at, e.finished_at FROM easeml.evaluations e) k GROUP BY k.trial_id) w
WHERE w.trial_id = t.trial_id AND t.slot_seconds = 0;
UPDATE easeml.trials t SET training_seconds = w.seconds FROM (
    SELECT u.trial_id, sum(u.training_seconds) AS seconds FROM easeml.training_units u GROUP BY u.trial_id) w
WHERE w.trial_id = t.trial_id AND t.training_seconds IS NULL;
UPDATE easeml.epoch_metrics m SET training_loss = w.loss, training_seconds = w.seconds FROM (
    SELECT u.trial_id, u.epoch, sum(u.loss * u.n_rows) / nullif(sum(u.n_rows), 0) AS loss,
        sum(u.training_seconds) AS seconds FROM easeml.training_units u GROUP BY u.trial_id, u.epoch) w
WHERE w.trial_id = m.trial_id AND w.epoch = m.epoch AND m.split = 'validation' AND m.training_seconds IS NULL;
UPDATE easeml.runs r SET slot_seconds = (SELECT sum(t.slot_seconds) FROM easeml.trials t WHERE t.run_id = r.run_id)
WHERE r.status = 'finished' AND r.slot_seconds IS NULL;
-- As easeml.record_bytes computes it, which comes later: else each start of a tenant with a limit sums over all runs.
UPDATE easeml.runs r SET record_bytes = 1500 + coalesce(pg_column_size(r.search), 0)
    + coalesce(pg_column_size(r.search_space), 0)
    + (SELECT coalesce(sum(CASE WHEN a.opening IS NULL THEN 400 ELSE 2000 END), 0) FROM easeml.arms a
        WHERE a.run_id = r.run_id)
    + (SELECT coalesce(sum(600 + pg_column_size(t.config) + 500 * t.n_steps_done::bigint
                + 700 * t.n_steps_done::bigint / d.n_partitions), 0) FROM easeml.trials t WHERE t.run_id = r.run_id)
FROM easeml.datasets d WHERE d.dataset_id = r.dataset_id AND r.finished_at IS NOT NULL AND r.record_bytes IS NULL;

-- Choosing at random, and first come, first served, are left to the experiments.
UPDATE easeml.tenancy SET policy = 'round_robin' WHERE policy IN ('random', 'fcfs');
-- A row was written by easeml.set_policy alone, so its policy was chosen and stays. No row means the default.
ALTER TABLE easeml.tenancy ALTER COLUMN policy SET DEFAULT 'robust';
