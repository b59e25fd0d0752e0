-- Who may do what. Tenants read and change only their own rows; readers read all results and no data; the coordinator
-- trains for all; administrators may do all but what needs a superuser. Functions are closed to PUBLIC and opened by name.

-- Any role may be granted the use of a dataset, so the schema is open, and of its functions those that predict.
GRANT USAGE ON SCHEMA easeml TO PUBLIC;
GRANT easeml_tenant, easeml_reader, easeml_coordinator TO easeml_admin;

DO $security$
DECLARE
    item record;
BEGIN
    FOR item IN
        SELECT c.oid::regclass AS relation, c.relname AS relation_name FROM pg_catalog.pg_class c
        WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind = 'r'
    LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO easeml_admin, easeml_coordinator', item.relation);
        IF EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = item.relation AND attname = 'tenant') THEN
            EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', item.relation);
            EXECUTE format('CREATE POLICY own_rows ON %s TO easeml_tenant USING (tenant = current_user) WITH CHECK (tenant = current_user)', item.relation);
            EXECUTE format('CREATE POLICY all_rows ON %s TO easeml_admin, easeml_coordinator USING (true) WITH CHECK (true)', item.relation);
            IF item.relation_name NOT IN ('blocks', 'checkpoints', 'checkpoint_chunks', 'prediction_audits', 'prediction_log') THEN
                EXECUTE format('CREATE POLICY read_rows ON %s FOR SELECT TO easeml_reader USING (true)', item.relation);
                -- These tell values of rows: the encoder holds categories, labels and means; statistics of a few rows are their targets;
                -- a checksum of a few rows tells which of the possible targets is theirs.
                EXECUTE (SELECT format('GRANT SELECT (%s) ON %s TO easeml_reader', string_agg(quote_ident(attname), ', '), item.relation)
                    FROM pg_catalog.pg_attribute WHERE attrelid = item.relation AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('encoder', 'statistics', 'checksum'));
            END IF;
        ELSE
            EXECUTE format('GRANT SELECT ON %s TO easeml_reader', item.relation);
        END IF;
        EXECUTE format('GRANT SELECT ON %s TO easeml_tenant', item.relation);
    END LOOP;
    FOR item IN SELECT c.oid::regclass AS relation FROM pg_catalog.pg_class c WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind = 'v' LOOP
        EXECUTE format('GRANT SELECT ON %s TO easeml_admin, easeml_coordinator, easeml_tenant, easeml_reader', item.relation);
    END LOOP;
    FOR item IN SELECT c.oid::regclass AS relation FROM pg_catalog.pg_class c WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind = 'S' LOOP
        EXECUTE format('GRANT USAGE ON SEQUENCE %s TO easeml_admin, easeml_coordinator, easeml_tenant', item.relation);
    END LOOP;
    FOR item IN SELECT p.oid::regprocedure AS routine FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'easeml'::regnamespace LOOP
        EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', item.routine);
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO easeml_admin, easeml_coordinator', item.routine);
    END LOOP;
    FOR item IN
        SELECT p.oid::regprocedure AS routine FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = 'easeml'::regnamespace
            AND p.proname NOT IN ('warm_up', 'train_unit', 'evaluate_unit', 'train_gang', 'evaluate_gang', 'pilot_unit', 'open_unit', 'fence', 'leave_slot', 'advance',
                'store_chunked', 'store_chunk', 'record_training', 'record_evaluation', 'record_metrics', 'record_pilot',
                'check_slot_options', 'find_segment', 'find_slot', 'check_leaving', 'set_slots', 'add_slots', 'drain_slot', 'resume_slot', 'remove_slot',
                'add_segment', 'drain_segment', 'resume_segment', 'remove_segment', 'python_facts',
                'set_policy', 'open_arm', 'close_arm', 'keep_beliefs', 'apply_decisions', 'copy_state', 'keep_allocations',
                'create_tenant', 'alter_tenant', 'drop_tenant', 'check_tenant', 'find_tenant', 'kept_bytes', 'is_bound_by_limits',
                -- A role that may execute a trigger function can attach it to its own table, with invented rows.
                'check_run_limits', 'check_byte_limit', 'keep_hours',
                -- They take the name of the asking role as an argument.
                'usable_dataset', 'answering_trial', 'serving_trial', 'log_prediction')
    LOOP
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO easeml_tenant', item.routine);
    END LOOP;
    FOR item IN
        SELECT p.oid::regprocedure AS routine FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = 'easeml'::regnamespace
            AND p.proname IN ('predict', 'predict_value', 'predict_row', 'predict_table',
                -- What these call with the caller's rights; open_serving and predict_packed refuse direct calls.
                'predict_json', 'predict_numbers', 'predict_bytes', 'predict_packed', 'write_predictions', 'open_serving',
                'find_source', 'find_output', 'array_bytes', 'version', 'fail', 'raise_failure')
    LOOP
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO PUBLIC', item.routine);
    END LOOP;
END
$security$;

-- What tenants write, through functions that run with their own rights.
GRANT INSERT ON easeml.datasets, easeml.partitions, easeml.replicas, easeml.blocks, easeml.runs,
    easeml.deployments, easeml.events TO easeml_tenant;
-- Only the coordinator writes progress and states: a trial that named another tenant's checkpoint would predict with it.
-- It alone writes the qualities of arms: other tenants' priors are fitted to them.
GRANT INSERT (run_id, tenant, architecture, augmentation, planned_epochs) ON easeml.arms TO easeml_tenant;
GRANT INSERT (run_id, arm_id, trial_number, architecture, config, max_epochs, target_epochs, bracket) ON easeml.trials TO easeml_tenant;
GRANT UPDATE (encoder, packing_seconds, input_shape, n_skipped_rows, placement) ON easeml.datasets TO easeml_tenant;
GRANT UPDATE (status, started_at, finished_at, failure_reason) ON easeml.runs, easeml.trials TO easeml_tenant;
-- The time of a grant is not the tenant's to choose: of several grants of one name the oldest answers.
GRANT INSERT (dataset_name, grantee, serving_only), UPDATE (serving_only) ON easeml.dataset_grants TO easeml_tenant;
GRANT INSERT (dataset_name) ON easeml.prediction_audits TO easeml_tenant;
GRANT UPDATE (trial_id, deployed_at) ON easeml.deployments TO easeml_tenant;
GRANT DELETE ON easeml.datasets, easeml.replicas, easeml.dataset_grants, easeml.prediction_audits, easeml.prediction_log, easeml.runs, easeml.deployments TO easeml_tenant;
GRANT EXECUTE ON FUNCTION easeml.version(), easeml.has_live_coordinator(), easeml.caller(), easeml.list_architectures(), easeml.list_metrics(), easeml.list_schedulers(), easeml.list_procedures(),
    easeml.list_policies(), easeml.list_priors(), easeml.current_tenancy(), easeml.used_bytes(name), easeml.used_hours(name) TO easeml_reader;

-- Administrators set limits, not the service that trains.
REVOKE INSERT, UPDATE, DELETE ON easeml.tenants, easeml.tenant_usage, easeml.tenancy FROM easeml_coordinator;
REVOKE EXECUTE ON FUNCTION easeml.create_tenant, easeml.alter_tenant, easeml.drop_tenant, easeml.set_policy, easeml.check_run_limits, easeml.check_byte_limit, easeml.keep_hours
    FROM easeml_coordinator;

-- It holds numbers of all tenants.
REVOKE SELECT ON easeml.policy_memory FROM easeml_tenant, easeml_reader;

-- The coordinator vacuums pruned states, which only an owner may do.
ALTER TABLE easeml.checkpoints OWNER TO easeml_coordinator;
ALTER TABLE easeml.checkpoint_chunks OWNER TO easeml_coordinator;
