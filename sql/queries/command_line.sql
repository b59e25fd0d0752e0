-- name: datasets
-- Datasets, the newest version of each.
SELECT dataset_id, dataset_name, version, task, source, input_columns, target_column,
    input_shape, n_outputs, n_partitions,
    n_train_rows, n_validation_rows, n_test_rows, n_bytes, n_runs, created_at, tenant
FROM easeml.dataset_info WHERE is_newest ORDER BY dataset_name, tenant

-- name: dataset
-- One dataset.
SELECT * FROM easeml.dataset_info WHERE dataset_id = %(dataset_id)s

-- name: partitions
-- Where the partitions of the caller's dataset are, in its newest version.
SELECT p.* FROM easeml.partition_status p JOIN easeml.dataset_info d USING (dataset_id)
WHERE d.dataset_name = %(dataset)s AND d.tenant = easeml.current_tenant() AND d.is_newest ORDER BY p.partition_number

-- name: architectures
-- Architectures that administrators registered.
SELECT architecture, entry_point, templates, summary, registered_by, registered_at, withdrawn_at
FROM easeml.registered_architectures
ORDER BY architecture

-- name: serving
-- What answers for each dataset.
SELECT * FROM easeml.serving ORDER BY dataset_name, tenant

-- name: slots
-- Slots, and the unit that each runs.
SELECT * FROM easeml.slot_status ORDER BY slot_id

-- name: node
-- The segment of that name, to be checked; only administrators may.
SELECT g.segment_id, g.segment_name, g.service, g.token, g.engine, g.content FROM easeml.segments g
WHERE g.segment_id = easeml.find_segment(%(segment)s)

-- name: segments
-- Segments with their slots and partitions.
SELECT * FROM easeml.segment_status ORDER BY segment_id

-- name: readers
-- The roles through which nodes read the rows of datasets (as easeml_segment.reader_of names them there).
SELECT DISTINCT g.segment_name, a.rolname AS role,
    'easeml_reads_' || CASE WHEN octet_length(a.rolname) <= 50 THEN a.rolname::text ELSE md5(a.rolname) END AS reader
FROM easeml.datasets d
JOIN easeml.partitions p USING (dataset_id)
JOIN easeml.segments g ON g.segment_id = p.home_segment_id AND g.service IS NOT NULL
JOIN easeml.tenant_roles r ON r.tenant = d.tenant
JOIN pg_roles a ON a.oid = r.role
WHERE CASE WHEN d.source LIKE '{%%' THEN d.source::jsonb ? g.segment_name ELSE d.shuffle IS NOT NULL END
ORDER BY 1, 3

-- name: tenants
-- Tenants with their settings and what they use.
SELECT * FROM easeml.tenant_status ORDER BY tenant

-- name: health
-- How the service does.
SELECT * FROM easeml.health

-- name: retention
-- How long old rows are kept; an interval as text.
SELECT what, keep::text AS keep, is_default, summary FROM easeml.retention

-- name: prune_batch
-- Removes or counts old rows of the next runs.
SELECT n_rows, last FROM easeml.prune_batch(%(what)s, %(after)s, %(is_dry)s)

-- name: policies
-- The policies and priors to choose from.
SELECT kind, name, is_in_use, is_default, summary FROM easeml.policies

-- name: decisions
-- The last decisions in which a run, or any run, was served or waited, oldest first.
SELECT * FROM (
    SELECT * FROM easeml.policy_decisions WHERE %(run_id)s::bigint IS NULL OR run_id = %(run_id)s
    ORDER BY decision_id DESC, run_id DESC LIMIT %(limit)s) d ORDER BY decision_id, run_id

-- name: arm_beliefs
-- Arms of a run, with the scale of its prior.
SELECT b.*, p.prior, p.link FROM easeml.arm_beliefs b LEFT JOIN easeml.priors p USING (run_id)
WHERE b.run_id = %(run_id)s ORDER BY b.arm_id

-- name: run_regret
-- How much better the open runs, or all runs, may still get.
SELECT * FROM easeml.run_regret WHERE %(is_all)s OR status IN ('queued', 'running') ORDER BY run_id

-- name: run_board
-- Runs with their tenants' weights and deadlines, and the last decision about each.
SELECT g.*, t.weight, t.seconds_to_deadline, r.failure_reason, c.reason, easeml.has_live_coordinator() AS is_alive
FROM easeml.run_regret g
JOIN easeml.run_status r USING (run_id)
JOIN easeml.tenant_status t ON t.tenant = g.tenant
LEFT JOIN LATERAL (
    SELECT d.reason FROM easeml.policy_decisions d
    WHERE d.run_id = g.run_id ORDER BY d.decision_id DESC LIMIT 1) c ON true
WHERE g.run_id = ANY(%(run_ids)s) ORDER BY g.run_id

-- name: demo_roles
-- Roles of these names, their comments, and their open runs.
SELECT a.rolname AS role, pg_catalog.shobj_description(a.oid, 'pg_authid') AS comment,
    EXISTS (SELECT FROM easeml.tenants t WHERE t.tenant = a.rolname) AS is_tenant,
    ARRAY(SELECT r.run_id FROM easeml.runs r WHERE r.tenant = a.rolname
        AND r.status IN ('queued', 'running') ORDER BY r.run_id) AS open_runs
FROM pg_catalog.pg_roles a WHERE a.rolname = ANY(%(roles)s)

-- name: procedures
-- Procedures that a run can use.
SELECT procedure, is_one_shot, options, summary FROM easeml.procedures

-- name: trial_groups
-- Trial groups of a run.
SELECT * FROM easeml.trial_group_status WHERE run_id = %(run_id)s ORDER BY group_id

-- name: allocations
-- Devices of the trials of a run, in the order of the decisions.
SELECT * FROM easeml.trial_allocations WHERE run_id = %(run_id)s ORDER BY decided_at, trial_number

-- name: device_profiles
-- Measurements of devices.
SELECT d.dataset_name, p.* FROM easeml.device_profiles p
JOIN easeml.datasets d USING (dataset_id) ORDER BY d.dataset_name, p.architecture, p.device_kind

-- name: prices
-- Instance types of all price lists, or of one.
SELECT * FROM easeml.prices WHERE price_list = coalesce(%(price_list)s, price_list) ORDER BY price_list,
    price_per_hour, instance_type

-- name: schedulers
-- Schedulers that a run can use, the default first.
SELECT scheduler, is_default, needs_free_order, needs_single_holders, summary
FROM easeml.schedulers ORDER BY is_default DESC, scheduler

-- name: runs
-- Runs, newest first.
SELECT * FROM easeml.run_status ORDER BY run_id DESC LIMIT %(limit)s

-- name: run
-- A run, with the number of units left, the seconds left as forecast, and those of its limit.
SELECT s.*, l.n_units_left, extract(epoch FROM s.eta_at - clock_timestamp())::double precision AS eta_seconds,
    extract(epoch FROM s.eta_p95_at - clock_timestamp())::double precision AS eta_p95_seconds,
    r.max_seconds - CASE WHEN s.started_at IS NULL THEN 0 ELSE s.elapsed_seconds END AS seconds_to_limit
FROM easeml.run_status s
JOIN easeml.runs r USING (run_id)
JOIN easeml.datasets d USING (dataset_id)
LEFT JOIN LATERAL (
    SELECT CASE WHEN r.search IS NOT NULL THEN greatest(s.n_units - s.n_units_done, 0)
        ELSE least(coalesce(sum((2 * t.max_epochs + 1) * d.n_partitions::bigint - t.n_steps_done), 0),
            9223372036854775807)::bigint END AS n_units_left
    FROM easeml.trials t WHERE t.run_id = r.run_id AND t.status IN ('waiting', 'running', 'paused')) l ON true
WHERE s.run_id = %(run_id)s

-- name: newest_run
-- The run that a command means when it names none.
SELECT (SELECT run_id FROM easeml.run_status ORDER BY run_id DESC LIMIT 1) AS run_id

-- name: leaderboard
-- Trials of a run, best first.
SELECT * FROM easeml.leaderboard WHERE run_id = %(run_id)s ORDER BY rank, trial_number

-- name: summary
-- The summary of a run, one sentence per row.
SELECT s AS sentence FROM easeml.run_summary(%(run_id)s) s

-- name: events
-- The last events of a run, oldest first.
SELECT * FROM (
    SELECT event_id, happened_at, trial_id, kind, message FROM easeml.run_events
    WHERE run_id = %(run_id)s ORDER BY event_id DESC LIMIT %(limit)s) e ORDER BY event_id

-- name: coordinator
-- The coordinator that took over last.
SELECT lease_number, host, process_id, version, started_at, heartbeat_age_seconds, stopped_at, is_alive
FROM easeml.coordinator_status ORDER BY lease_number DESC LIMIT 1

-- name: server
-- What the doctor asks of the server; config_file is null for those who may not read settings.
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::integer / 10000 AS major,
    current_database() AS database, current_setting('max_locks_per_transaction')::integer AS max_locks,
    (SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'easeml') AS installed_version,
    (SELECT default_version FROM pg_catalog.pg_available_extensions WHERE name = 'easeml') AS available_version,
    EXISTS (SELECT FROM pg_catalog.pg_available_extensions WHERE name = 'plpython3u') AS has_plpython3u,
    (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'config_file') AS config_file,
    CASE WHEN current_setting('autovacuum')::boolean THEN (SELECT setting::integer FROM pg_catalog.pg_settings
        WHERE name = 'autovacuum_naptime') END AS autovacuum_seconds

-- name: lock_holders
-- Whose sessions filled the lock table, and how many were ended for that, the last first.
SELECT role_name::text AS role_name, database_name::text AS database_name, n_ended, most_locks, capacity, last_at
FROM easeml.lock_holders ORDER BY last_at DESC

-- name: python_facts
-- What the server's Python can import.
SELECT easeml.python_facts() AS facts

-- name: tasks
-- Tasks, with what is not packed yet.
SELECT * FROM easeml.task_status ORDER BY task_name

-- name: task
-- A task of the caller's, as it is stored.
SELECT t.* FROM easeml.tasks t WHERE t.task_name = %(task)s AND t.tenant = easeml.current_tenant()

-- name: refreshes
-- Datasets that are trained again on new rows; an interval as text.
SELECT tenant, dataset_name, every::text AS every, when_drift, next_at, last_outcome,
    last_reason, last_looked_at, problem
FROM easeml.refresh_status ORDER BY tenant, dataset_name
