-- Who may do what. Tenants read their own rows and write no table: they insert into easeml.requests, and easeml_owner
-- carries the requests out. Readers read all results and no data; the coordinator trains for all; administrators may do
-- all but what needs a superuser.

GRANT easeml_tenant, easeml_reader, easeml_coordinator TO easeml_admin;
-- Any role that was granted use of a dataset may predict, tenant or not.
GRANT USAGE ON SCHEMA easeml TO PUBLIC;

DO $security$
DECLARE
    item record;
BEGIN
    FOR item IN
        SELECT c.oid::regclass AS relation, c.relname AS relation_name FROM pg_class c
        WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind = 'r'
    LOOP
        -- An update grants again what this version grants, and nothing of what a former one did.
        EXECUTE format('REVOKE ALL ON %s FROM easeml_admin, easeml_coordinator, easeml_tenant, easeml_reader',
            item.relation);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO easeml_owner, easeml_admin, easeml_coordinator',
            item.relation);
        IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = item.relation AND attname = 'tenant') THEN
            EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', item.relation);
            EXECUTE format('DROP POLICY IF EXISTS all_rows ON %s', item.relation);
            EXECUTE format('CREATE POLICY all_rows ON %s TO easeml_owner, easeml_admin, easeml_coordinator USING '
                '(true) WITH CHECK (true)', item.relation);
            IF item.relation_name <> 'tenant_roles' THEN
                EXECUTE format('DROP POLICY IF EXISTS own_rows ON %s', item.relation);
                EXECUTE format('CREATE POLICY own_rows ON %s FOR SELECT TO easeml_tenant USING (tenant '
                    '= (SELECT easeml.current_tenant()))', item.relation);
            END IF;
            IF item.relation_name NOT IN ('blocks', 'node_answers', 'node_jobs', 'checkpoints', 'checkpoint_chunks',
                'prediction_audits', 'prediction_log') THEN
                -- A reader that is also a tenant may read all columns of the rows that a policy shows, so it sees only
                -- its own rows of these tables.
                EXECUTE format('DROP POLICY IF EXISTS read_rows ON %s', item.relation);
                EXECUTE format('CREATE POLICY read_rows ON %s FOR SELECT TO easeml_reader USING (%s)', item.relation,
                    CASE WHEN item.relation_name IN ('datasets', 'partitions', 'evaluations', 'tasks')
                        THEN '(SELECT easeml.reads_for_all())' ELSE 'true' END);
                -- These reveal values of rows: the encoder holds categories, labels and means; statistics of a few rows
                -- are their targets; a checksum of a few rows reveals which of the possible targets is theirs.
                EXECUTE (SELECT format('GRANT SELECT (%s) ON %s TO easeml_reader',
                        string_agg(quote_ident(attname), ', '), item.relation)
                    FROM pg_attribute WHERE attrelid = item.relation AND attnum > 0 AND NOT attisdropped
                        AND attname NOT IN ('encoder', 'statistics', 'checksum', 'classes'));
            END IF;
        ELSE
            EXECUTE format('GRANT SELECT ON %s TO easeml_reader', item.relation);
        END IF;
        EXECUTE format('GRANT SELECT ON %s TO easeml_tenant', item.relation);
    END LOOP;
    FOR item IN SELECT c.oid::regclass AS relation FROM pg_class c
        WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind = 'v' LOOP
        EXECUTE format('GRANT SELECT ON %s TO easeml_admin, easeml_coordinator, easeml_tenant, easeml_reader',
            item.relation);
    END LOOP;
    -- What nodes were asked about, and what they answered, are rows and values of rows.
    REVOKE SELECT ON easeml.node_job_status FROM easeml_reader;
    FOR item IN SELECT p.oid::regprocedure AS routine, p.prosecdef, p.proname FROM pg_proc p
        WHERE p.pronamespace = 'easeml'::regnamespace LOOP
        EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC, easeml_admin, '
            'easeml_coordinator, easeml_tenant, easeml_reader', item.routine);
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO easeml_owner', item.routine);
        -- Granting and revoking easeml_tenant takes a superuser, ending sessions of others does, and ANALYZE takes the
        -- owner of the tables.
        IF item.prosecdef AND item.proname NOT IN ('create_tenant', 'drop_tenant', 'analyse_grown',
            'end_lock_holders') THEN
            EXECUTE format('ALTER ROUTINE %s OWNER TO easeml_owner', item.routine);
        END IF;
    END LOOP;
    -- A column or an argument of such a type, in anybody's schema, would be in the way of an update.
    FOR item IN SELECT t.oid::regtype AS type FROM pg_type t
        WHERE t.typnamespace = 'easeml'::regnamespace AND t.typelem = 0 LOOP
        EXECUTE format('REVOKE USAGE ON TYPE %s FROM PUBLIC', item.type);
    END LOOP;
END
$security$;

-- easeml.current_tenant reads it, so its own policy cannot ask that.
DROP POLICY IF EXISTS own_rows ON easeml.tenant_roles;
CREATE POLICY own_rows ON easeml.tenant_roles FOR SELECT TO easeml_tenant
    USING (role = to_regrole(quote_ident(current_user)));

-- The door, and what tenants write themselves: packed rows, which only they can read from the source, for the one
-- dataset that their transaction is packing. Privileges on columns leave no way to lock a table.
GRANT INSERT (action, arguments) ON easeml.requests TO easeml_tenant;
GRANT INSERT (dataset_id, split, partition_number, block_number, n_rows, inputs, targets, row_keys,
    row_hashes) ON easeml.blocks TO easeml_tenant;
ALTER TABLE easeml.blocks ALTER tenant SET DEFAULT easeml.current_tenant();
DROP POLICY IF EXISTS packed_rows ON easeml.blocks;
CREATE POLICY packed_rows ON easeml.blocks FOR INSERT TO easeml_tenant WITH
    CHECK (tenant = (SELECT easeml.current_tenant())
    AND easeml.is_being_packed(dataset_id));

-- The rule of what answers, where predictions and requests are carried out.
GRANT SELECT ON easeml.answering TO easeml_owner;

-- Packing reads the blocks of the version before; the owner of a task sees its examples.
GRANT SELECT ON easeml.version_blocks TO easeml_owner;
REVOKE SELECT ON easeml.version_blocks FROM easeml_reader;
GRANT USAGE ON SCHEMA easeml_tasks TO easeml_tenant, easeml_admin;

-- Plans are made behind the door, and bytes are counted there, too.
GRANT SELECT ON easeml.prices, easeml.kept_sizes TO easeml_owner;

-- Identity columns need no right on their sequence; these are drawn from by name.
GRANT USAGE ON SEQUENCE easeml.slots_slot_id_seq TO easeml_admin, easeml_coordinator;
GRANT USAGE ON SEQUENCE easeml.tasks_task_id_seq, easeml.datasets_dataset_id_seq TO easeml_owner;
GRANT USAGE ON SEQUENCE easeml.arm_openings_decision_id_seq TO easeml_coordinator;
-- To set them forward after a restore; and states get their numbers from the service where nodes write them.
GRANT USAGE, UPDATE ON SEQUENCE easeml.datasets_dataset_id_seq,
    easeml.checkpoints_checkpoint_id_seq TO easeml_coordinator;

-- Who may call what: a routine without a line is easeml_owner's alone. Trigger functions never get one: whoever may
-- execute one can attach it to a table of their own, with invented rows.
DO $routines$
DECLARE
    granted record;
    routine regprocedure;
BEGIN
    FOR granted IN
        SELECT s.role, unnest(s.names) AS name FROM (VALUES
            -- What the guide names, then what those functions call in the name of their caller: each one checks what it
            -- is given.
            ('PUBLIC',
                '{infer,infer_output,predict,predict_value,predict_row,predict_probabilities,predict_table}'::text[]),
            ('PUBLIC', '{
                class_probabilities,predict_json,predict_numbers,predict_bytes,predict_packed,numbers_of,
                open_serving,write_predictions,find_source,find_output,qualified_name,fail,
                raise_failure,array_bytes,version}'),
            -- They read with the rights of their caller; examined_trial refuses, with an explanation, every role that
            -- may not see the rows.
            ('PUBLIC', '{
                evaluate,confusion_matrix,roc_curve,calibration,class_metrics,residuals,held_out_answers,explain,
                explain_row,examined_trial,examine_trial,examination}'),
            ('easeml_tenant', '{
                answering_trial,fail_unanswered,fail_untrained_task,hyperparameter_importance,
                hyperparameter_importances}'),
            ('easeml_reader', '{hyperparameter_importance,hyperparameter_importances}'),
            ('easeml_tenant', '{
                create_dataset,dataset_rows,drift,measure_drift,find_version,set_refresh,run_refresh,
                advance_refresh,look_for_refresh,compare_trials,refresh_dataset,drop_dataset,replicate_dataset,
                grant_use,revoke_use,set_prediction_audit,select_models,preview_procedure,plan,plan_frontier,
                profile_dataset,run_summary,wait,cancel,resume,drop_run,replay,deploy,undeploy,export_trial,
                import_trial,rollback,set_serving_metric}'),
            ('easeml_tenant', '{
                create_task,alter_task,run_task,drop_task,feed,add_labelling_function,remove_labelling_function,
                label_examples,label_from,task_report}'),
            ('easeml_tenant', '{
                find_task,task_of,output_type,check_place,make_task_views,make_objects_view,is_tree,read_examples,
                labelling_function,function_names}'),
            ('easeml_tenant', '{
                evaluate_on_nodes,predict_on_nodes,explain_on_nodes,explain_row_on_nodes,drift_on_nodes,
                drift_of_nodes,drift_options,ask_nodes,wait_dataset,places_of,foreign_places,cluster_places,
                listed_places,ask_for_packing,refuse_unpacked_dataset,refuse_rows_elsewhere}'),
            ('easeml_tenant', '{
                request,pack_version,check_source,refuse_foreign_code,pack_begun_dataset,is_being_packed,
                check_dataset,base_type,default_inputs,row_numbers,is_small_table,is_bound_by_limits,
                find_dataset,dataset_of,find_run,fail_run,near_names,export_file,import_model,store_import,
                composition,preview_search,choose_architectures,gathering_segments,apart_reason,apart_hint,
                plan_search_on,known_times,timed_trials,plan_goal,fitting_architectures,check_replay_options,
                check_replay,replay_units,commit_first,rest,quality,held_architectures,tried_sentence,
                best_sentences,advice_sentence,metric_text,members_text}'),
            ('easeml_tenant', '{forecast,forecasts_with,run_standing,make_forecast,architecture_facts}'),
            -- What the views call.
            ('easeml_tenant', '{
                rank_key,rank_value,instance_cost,planned_cost,has_live_coordinator,current_tenant,current_tenancy,
                list_architectures,list_templates,template_architectures,list_metrics,list_schedulers,list_allocations,
                list_procedures,list_policies,list_priors,used_bytes,examples_bytes,copied_bytes,used_hours,
                record_bytes}'),
            ('easeml_reader', '{
                rank_key,rank_value,instance_cost,planned_cost,reads_for_all,has_live_coordinator,current_tenant,
                current_tenancy,list_architectures,list_templates,template_architectures,list_metrics,list_schedulers,
                list_procedures,list_policies,list_priors,used_bytes,examples_bytes,copied_bytes,used_hours,
                record_bytes}'),
            ('easeml_coordinator', '{analyse_grown,end_lock_holders,due_tasks,advance_task}'),
            ('easeml_coordinator', '{
                finish_restore,leave_numbers_behind,missing_rows,broken_references,warm_up,train_unit,
                evaluate_unit,train_round,evaluate_round,train_batch,evaluate_batch,train_gang,
                evaluate_gang,pilot_unit,architecture_facts,share_of_time,trial_place,slot_place,open_unit,fence,
                holds_lease,leave_slot,advance,store_chunked,store_chunk,record_training,record_evaluation,
                rank_key,rank_value,record_metrics,note_takeover,note_serving,record_pilot,begin_ending,add_ensemble,
                drop_vain_ensemble,lock_trials,open_arm,close_arm,keep_beliefs,apply_decisions,crash_of,copy_state,
                keep_allocations,charge,has_live_coordinator,current_tenant,current_tenancy,list_architectures,
                list_templates,template_architectures,list_metrics,list_schedulers,list_allocations,
                list_procedures,list_policies,list_priors,used_bytes,examples_bytes,copied_bytes,used_hours,
                record_bytes,quality,find_run,fail_run,wait,run_summary,tried_sentence,best_sentences,advice_sentence,
                metric_text,members_text,commit_first,rest,python_facts}'),
            ('easeml_coordinator', '{
                open_node_unit,store_node_state,record_node_training,record_node_evaluation,next_segments,note_hop,
                note_row_copy,gathering_segments,apart_reason,registered_for,composition,rewind_trial,note_segment,
                check_json}'),
            ('easeml_coordinator', '{
                next_packing,wanted_packings,open_packing,is_unfit,nodes_of,peers_of,note_packing,
                settle_packing,finish_packing}'),
            ('easeml_coordinator', '{
                next_node_job,wanted_node_jobs,open_node_job,settle_drift,keep_node_answers,note_node_job,
                finish_node_job,is_bound_by_limits,check_kept_bytes,kept_bytes}'),
            ('easeml_coordinator', '{
                slot_seconds,planned_cost,instance_cost,record_forecast,forecasts_with,run_standing,
                make_forecast_apart,make_forecast,forecast,known_times,timed_trials}'),
            ('easeml_coordinator', '{
                local_slots,request_instances,attach_slots,release_instance,end_instance,keep_revision,keep_plan,
                keep_stage,keep_call,lock_topology}'),
            ('easeml_admin', '{
                create_tenant,alter_tenant,drop_tenant,adopt_tenant,set_policy,set_slots,add_slots,drain_slot,
                resume_slot,remove_slot,set_retention,prune_batch,add_segment,install_greenplum_views,
                remove_greenplum_views,set_state_copies,set_node_job_limit,segment_facts,drain_segment,
                resume_segment,remove_segment,create_price_list,drop_price_list,create_provisioner,
                limit_provisioner,drop_provisioner}'),
            ('easeml_admin', '{
                retention_rules,kept_trials,prune_rows,prune_of_runs,prune_runs,prune_unlocked,prune_states,
                unused_versions,drop_versions,prune_versions,gone_tenants,prune_tenants,prune_once}'),
            ('easeml_tenant', '{retention_rules}'),
            ('easeml_reader', '{retention_rules}'),
            ('easeml_coordinator', '{retention_rules}'),
            ('easeml_admin', '{register_architecture,withdraw_architecture,check_architecture,describe_program}'),
            ('easeml_admin', '{
                check_slot_options,check_segment,check_engine,greenplum_script,connection_word,offered_views,
                offered_calls,find_segment,find_slot,check_leaving,lock_topology,read_price_list,check_program,
                check_json,check_tenant,find_tenant,tenant_named}')
        ) s(role, names)
    LOOP
        FOR routine IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'easeml'::regnamespace
            AND p.proname = granted.name LOOP
            EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %s', routine, granted.role);
        END LOOP;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'privileges.sql: there is no routine %', granted.name;
        END IF;
    END LOOP;
END
$routines$;

-- Administrators say what tenants may have and who they are, not the service that trains.
REVOKE INSERT, UPDATE, DELETE ON easeml.retention_settings FROM easeml_coordinator;
REVOKE INSERT, UPDATE, DELETE ON easeml.tenants, easeml.tenant_usage, easeml.tenant_roles,
    easeml.tenancy FROM easeml_coordinator;

REVOKE INSERT, UPDATE, DELETE ON easeml.price_lists, easeml.instance_types FROM easeml_coordinator;

-- Which code the server may import is said by administrators alone, and for good.
REVOKE INSERT, UPDATE, DELETE ON easeml.registered_architectures FROM easeml_coordinator, easeml_owner;
REVOKE DELETE ON easeml.registered_architectures FROM easeml_admin;

-- A registered program runs as the coordinator's user, which is more than an administrator may do: PostgreSQL has a
-- role for that.
REVOKE INSERT, UPDATE, DELETE ON easeml.provisioners FROM easeml_admin, easeml_coordinator, easeml_owner;
REVOKE SELECT ON easeml.provisioners FROM easeml_tenant, easeml_reader;
GRANT SELECT (provisioner, price_list, max_slots) ON easeml.provisioners TO easeml_tenant, easeml_reader;
GRANT INSERT (provisioner, max_slots), UPDATE (max_slots) ON easeml.provisioners TO easeml_admin;
GRANT INSERT, DELETE ON easeml.provisioners TO pg_execute_server_program;

-- The facts of a server are for its administrators.
REVOKE SELECT ON easeml.segments FROM easeml_tenant, easeml_reader;
GRANT SELECT (segment_id, segment_name, engine, service, checked_at, refusal,
    content) ON easeml.segments TO easeml_tenant, easeml_reader;

-- What programs print may hold secrets.
REVOKE SELECT ON easeml.provisioner_calls FROM easeml_tenant, easeml_reader;

-- It names roles of all databases.
REVOKE SELECT ON easeml.lock_holders FROM easeml_tenant, easeml_reader;

-- It holds numbers of all tenants.
REVOKE SELECT ON easeml.policy_memory, easeml.dumps, easeml.restored_tables FROM easeml_tenant, easeml_reader;

-- What becomes SQL, or names code, is written behind the door alone, which has checked it: easeml_owner executes it.
REVOKE INSERT, UPDATE ON easeml.tasks, easeml.labelling_functions, easeml.datasets, easeml.packings,
    easeml.refresh_rules FROM easeml_admin, easeml_coordinator;
GRANT UPDATE (n_seen_changes) ON easeml.tasks TO easeml_admin;
GRANT UPDATE (created_at) ON easeml.datasets TO easeml_admin, easeml_coordinator;  -- to lock rows
GRANT UPDATE (started_at, failed_at, not_before, problem) ON easeml.packings TO easeml_coordinator;
GRANT UPDATE (next_at, not_before, problem) ON easeml.refresh_rules TO easeml_coordinator;

-- The installer owns all tables. An owner may attach functions to a table, as statistics, indexes, triggers and rules
-- do, and whoever reads the table runs them. So the coordinator, which vacuums the states, gets the right to no more;
-- before PostgreSQL 17 there is none, and autovacuum does it.
DO $maintain$
BEGIN
    IF current_setting('server_version_num')::integer >= 170000 THEN
        EXECUTE 'GRANT MAINTAIN ON easeml.checkpoints, easeml.checkpoint_chunks TO easeml_coordinator';
    END IF;
END
$maintain$;
