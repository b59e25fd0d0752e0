-- BI tools read views: flat, typed, and under the row-level security of the reader.

CREATE OR REPLACE VIEW easeml.dataset_info WITH (security_invoker) AS
SELECT d.dataset_id, d.tenant::text AS tenant, d.dataset_name, d.version, d.source, d.input_columns, d.target_column,
    d.task, d.input_shape, d.n_outputs,
    d.n_partitions, p.n_train_rows, p.n_validation_rows, p.n_test_rows, d.n_skipped_rows, p.n_bytes, d.seed,
    d.created_at, d.packing_seconds,
    d.version = max(d.version) OVER (PARTITION BY d.tenant, d.dataset_name) AS is_newest,
    (SELECT count(*) FROM easeml.runs r WHERE r.dataset_id = d.dataset_id) AS n_runs,
    d.placement, (SELECT min(c.n) FROM (SELECT count(*) AS n FROM easeml.replicas r
            WHERE r.dataset_id = d.dataset_id GROUP BY r.partition_number) c) AS replication_factor,
    d.explanations, d.options - '{task,input_shape,block_rows,is_small}'::text[] AS split_options,
    d.row_key, d.shuffle, d.n_moved_bytes,
    (SELECT least(coalesce(sum(c.n_bytes), 0), 9223372036854775807)::bigint FROM easeml.row_copies c
        WHERE c.dataset_id = d.dataset_id) AS n_copied_bytes
FROM easeml.datasets d
LEFT JOIN (SELECT dataset_id, sum(n_train_rows)::bigint AS n_train_rows,
    sum(n_validation_rows)::bigint AS n_validation_rows,
               sum(n_test_rows)::bigint AS n_test_rows, sum(n_bytes)::bigint AS n_bytes
           FROM easeml.partitions GROUP BY dataset_id) p USING (dataset_id);
COMMENT ON VIEW easeml.dataset_info IS 'Your datasets with their sizes, one row for each version.';

CREATE OR REPLACE VIEW easeml.version_blocks WITH (security_invoker) AS
SELECT b.dataset_id, b.tenant, b.split, b.partition_number, b.block_number, b.n_rows, b.inputs, b.targets, b.row_keys,
    b.row_hashes, b.dataset_id AS holder_id
FROM easeml.blocks b
UNION ALL
SELECT k.dataset_id, k.tenant, k.split, k.partition_number, k.block_number, b.n_rows, b.inputs, b.targets,
    b.row_keys, b.row_hashes, k.holder_id
FROM easeml.kept_blocks k JOIN easeml.blocks b ON b.dataset_id = k.holder_id AND b.split = k.split
    AND b.partition_number = k.partition_number AND b.block_number = k.block_number;
COMMENT ON VIEW easeml.version_blocks IS
    'The blocks of each version of a dataset: its own, and those that it shares with an earlier version (internal).';
COMMENT ON COLUMN easeml.version_blocks.dataset_id IS 'Version of the dataset.';
COMMENT ON COLUMN easeml.version_blocks.tenant IS 'Tenant that owns it.';
COMMENT ON COLUMN easeml.version_blocks.split IS 'train, validation or test.';
COMMENT ON COLUMN easeml.version_blocks.partition_number IS 'Number of the partition, from 0.';
COMMENT ON COLUMN easeml.version_blocks.block_number IS 'Place of the block in the partition.';
COMMENT ON COLUMN easeml.version_blocks.n_rows IS 'Rows in the block.';
COMMENT ON COLUMN easeml.version_blocks.inputs IS 'As in easeml.blocks.';
COMMENT ON COLUMN easeml.version_blocks.targets IS 'As in easeml.blocks.';
COMMENT ON COLUMN easeml.version_blocks.row_keys IS 'As in easeml.blocks.';
COMMENT ON COLUMN easeml.version_blocks.row_hashes IS 'As in easeml.blocks.';
COMMENT ON COLUMN easeml.version_blocks.holder_id IS 'The version that holds the block.';

CREATE OR REPLACE VIEW easeml.partition_status WITH (security_invoker) AS
SELECT p.dataset_id, d.tenant::text AS tenant, d.dataset_name, d.version, p.partition_number, p.n_train_rows,
    p.n_validation_rows, p.n_test_rows, p.n_bytes,
    CASE d.placement WHEN 'bound' THEN ARRAY(SELECT g.segment_name FROM easeml.replicas c
            JOIN easeml.segments g USING (segment_id)
        WHERE c.dataset_id = p.dataset_id AND c.partition_number = p.partition_number
            ORDER BY g.segment_id) END AS holders
FROM easeml.partitions p JOIN easeml.datasets d USING (dataset_id);
COMMENT ON VIEW easeml.partition_status IS 'Partitions of datasets, with their sizes and the segments that hold them.';

CREATE OR REPLACE VIEW easeml.architectures WITH (security_invoker) AS
SELECT a.architecture, a.trainer, a.tasks, a.input_ranks, a.summary, a.hyperparameters, a.made_for
FROM easeml.list_architectures() a;
COMMENT ON VIEW easeml.architectures IS
    'Architectures that easeml.select_models can train, with their hyperparameters.';

CREATE OR REPLACE VIEW easeml.metrics WITH (security_invoker) AS
SELECT m.metric, m.task, m.is_higher_better, m.is_default, m.summary FROM easeml.list_metrics() m;
COMMENT ON VIEW easeml.metrics IS 'Metrics by which a run can rank its trials.';

CREATE OR REPLACE VIEW easeml.templates WITH (security_invoker) AS
SELECT t.place, t.template, t.workload, t.input, t.output, t.candidates,
    easeml.template_architectures(t.template) AS architectures FROM easeml.list_templates() t;
COMMENT ON VIEW easeml.templates IS 'Kinds of tasks, by the shapes of their inputs and outputs: the first template '
    'that matches a program decides which architectures may learn it.';
COMMENT ON COLUMN easeml.templates.place IS 'Order in which the templates are tried.';
COMMENT ON COLUMN easeml.templates.template IS 'Name of the template.';
COMMENT ON COLUMN easeml.templates.workload IS 'What tasks of this kind are called.';
COMMENT ON COLUMN easeml.templates.input IS 'Inputs: capitals are sizes, lower-case letters are names of fields that '
    'link to another object, and * stands for any further ones.';
COMMENT ON COLUMN easeml.templates.output IS 'Outputs, written in the same way.';
COMMENT ON COLUMN easeml.templates.candidates IS 'Candidates that the ease.ml paper lists for it.';
COMMENT ON COLUMN easeml.templates.architectures IS
    'Architectures that may learn it, as far as they fit the sizes: easeml''s own first, then registered ones.';

CREATE OR REPLACE VIEW easeml.task_status WITH (security_invoker) AS
SELECT t.task_id, t.tenant::text AS tenant, t.task_name, t.program, t.template, t.place, t.examples,
    d.version AS newest_version, v.n_examples, v.n_off,
    v.n_packed_bytes, v.n_kept_bytes, t.n_pending, t.pending_since, t.wanted_at, t.problem, t.run_after_examples,
    t.run_after_minutes, t.run_options, t.created_at
FROM easeml.tasks t
LEFT JOIN LATERAL (SELECT d.dataset_id, d.version FROM easeml.datasets d WHERE d.tenant = t.tenant
    AND d.dataset_name = t.task_name ORDER BY d.version DESC LIMIT 1) d ON true
LEFT JOIN easeml.task_versions v USING (dataset_id);
COMMENT ON VIEW easeml.task_status IS 'Your tasks, with their newest version and the examples that are not in it yet.';
COMMENT ON COLUMN easeml.task_status.task_id IS 'Number of the task.';
COMMENT ON COLUMN easeml.task_status.tenant IS 'Tenant that owns it.';
COMMENT ON COLUMN easeml.task_status.task_name IS 'Name, unique for its tenant; also that of its dataset.';
COMMENT ON COLUMN easeml.task_status.program IS 'Shapes of inputs and outputs.';
COMMENT ON COLUMN easeml.task_status.template IS 'The template that it matches, see easeml.templates.';
COMMENT ON COLUMN easeml.task_status.place IS
    'The view to feed examples into; the view with _refine behind its name shows every example that was ever fed.';
COMMENT ON COLUMN easeml.task_status.examples IS 'The table behind the views: COPY into it is faster.';
COMMENT ON COLUMN easeml.task_status.newest_version IS 'The newest version that was packed.';
COMMENT ON COLUMN easeml.task_status.n_examples IS 'Examples in it.';
COMMENT ON COLUMN easeml.task_status.n_off IS 'Examples that were switched off when it was packed.';
COMMENT ON COLUMN easeml.task_status.n_packed_bytes IS 'Bytes that were packed for it.';
COMMENT ON COLUMN easeml.task_status.n_kept_bytes IS 'Bytes that it shares with versions before.';
COMMENT ON COLUMN easeml.task_status.n_pending IS
    'Examples that were fed or switched since, as last counted by the service.';
COMMENT ON COLUMN easeml.task_status.pending_since IS 'When the service first saw one of them.';
COMMENT ON COLUMN easeml.task_status.wanted_at IS 'When easeml.run_task asked for a run that has not begun yet.';
COMMENT ON COLUMN easeml.task_status.problem IS 'Why no run begins, such as too few examples.';
COMMENT ON COLUMN easeml.task_status.run_after_examples IS 'Number of pending examples after which a run starts.';
COMMENT ON COLUMN easeml.task_status.run_after_minutes IS
    'Minutes after the first pending example after which a run starts.';
COMMENT ON COLUMN easeml.task_status.run_options IS 'Arguments of easeml.select_models for its runs.';
COMMENT ON COLUMN easeml.task_status.created_at IS 'When it was made.';

COMMENT ON COLUMN easeml.dataset_info.placement IS
    'shared (every slot may run every partition) or bound (only slots of its segments run a partition).';
COMMENT ON COLUMN easeml.dataset_info.replication_factor IS
    'Least number of segments that hold a partition; null if the dataset is shared.';

COMMENT ON COLUMN easeml.partition_status.dataset_id IS 'Version of the dataset, see easeml.dataset_info.';
COMMENT ON COLUMN easeml.partition_status.tenant IS 'Tenant that owns the dataset.';
COMMENT ON COLUMN easeml.partition_status.dataset_name IS 'Name of the dataset.';
COMMENT ON COLUMN easeml.partition_status.version IS 'Version of the dataset.';
COMMENT ON COLUMN easeml.partition_status.partition_number IS 'Number of the partition, from 0.';
COMMENT ON COLUMN easeml.partition_status.n_train_rows IS 'Rows to train on.';
COMMENT ON COLUMN easeml.partition_status.n_validation_rows IS 'Rows that rank trials.';
COMMENT ON COLUMN easeml.partition_status.n_test_rows IS 'Rows that no choice sees.';
COMMENT ON COLUMN easeml.partition_status.n_bytes IS 'Packed size in bytes.';
COMMENT ON COLUMN easeml.partition_status.holders IS 'Segments that hold it; null if every slot may run it.';

COMMENT ON COLUMN easeml.dataset_info.explanations IS 'By input column, what it became (number, time, categories, '
    'words, pieces of characters, array, or left out) and why.';
COMMENT ON COLUMN easeml.dataset_info.split_options IS
    'The arguments of easeml.create_dataset that say how rows are split and named; empty: at random.';
COMMENT ON COLUMN easeml.dataset_info.row_key IS
    'SQL expression that identifies a row of the source: JOIN easeml.dataset_rows(dataset) r ON r.row_key = this.';
COMMENT ON COLUMN easeml.dataset_info.shuffle IS 'For rows on nodes: across (dealt over all nodes) or within (they '
    'stayed where they were); null: they were packed here.';
COMMENT ON COLUMN easeml.dataset_info.n_moved_bytes IS 'Bytes that went from node to node when it was packed.';
COMMENT ON COLUMN easeml.dataset_info.n_copied_bytes IS
    'Bytes of packed rows that were copied to nodes since, because units there needed them.';
COMMENT ON COLUMN easeml.dataset_info.dataset_id IS 'Number of this version.';
COMMENT ON COLUMN easeml.dataset_info.tenant IS 'Tenant that owns the dataset.';
COMMENT ON COLUMN easeml.dataset_info.dataset_name IS 'Name, unique for its tenant.';
COMMENT ON COLUMN easeml.dataset_info.version IS '1, and one more for each easeml.refresh_dataset.';
COMMENT ON COLUMN easeml.dataset_info.source IS 'Table or view that was packed.';
COMMENT ON COLUMN easeml.dataset_info.input_columns IS 'Columns that models see.';
COMMENT ON COLUMN easeml.dataset_info.target_column IS 'Column to predict.';
COMMENT ON COLUMN easeml.dataset_info.task IS 'classification or regression.';
COMMENT ON COLUMN easeml.dataset_info.input_shape IS 'Shape of one encoded example.';
COMMENT ON COLUMN easeml.dataset_info.n_outputs IS 'Number of classes; 1 for regression.';
COMMENT ON COLUMN easeml.dataset_info.n_partitions IS 'Number of parts that train side by side.';
COMMENT ON COLUMN easeml.dataset_info.n_train_rows IS 'Rows to train on.';
COMMENT ON COLUMN easeml.dataset_info.n_validation_rows IS 'Rows that rank trials.';
COMMENT ON COLUMN easeml.dataset_info.n_test_rows IS 'Rows that no choice sees.';
COMMENT ON COLUMN easeml.dataset_info.n_skipped_rows IS 'Rows left out for a NULL target.';
COMMENT ON COLUMN easeml.dataset_info.n_bytes IS 'Packed size in bytes.';
COMMENT ON COLUMN easeml.dataset_info.seed IS 'Seed of shuffle and split.';
COMMENT ON COLUMN easeml.dataset_info.created_at IS 'When it was packed.';
COMMENT ON COLUMN easeml.dataset_info.packing_seconds IS 'Seconds that packing took.';
COMMENT ON COLUMN easeml.dataset_info.is_newest IS 'Whether new runs use this version.';
COMMENT ON COLUMN easeml.dataset_info.n_runs IS 'Number of runs on this version.';

COMMENT ON COLUMN easeml.architectures.architecture IS 'Name that easeml.select_models takes.';
COMMENT ON COLUMN easeml.architectures.trainer IS 'What trains it: torch (gradient descent, also on several slots at '
    'once), adversarial (two networks against each other), partial_fit (scikit-learn, batch by batch), boosting '
    '(LightGBM, all rows at once), forest (scikit-learn, all rows at once), or that of a further library.';
COMMENT ON COLUMN easeml.architectures.tasks IS 'Tasks that it can learn.';
COMMENT ON COLUMN easeml.architectures.input_ranks IS 'Ranks of the input shapes that it accepts; empty: any.';
COMMENT ON COLUMN easeml.architectures.summary IS 'What it is, in a sentence.';
COMMENT ON COLUMN easeml.architectures.hyperparameters IS
    'Hyperparameters with legal values, defaults and default search ranges.';
COMMENT ON COLUMN easeml.architectures.made_for IS
    'Kinds of input that it is made for: table, image, series, tree. It takes other inputs of a legal rank as if they '
    'were of these kinds. Series of unequal length and trees need an architecture that is made for them.';

COMMENT ON COLUMN easeml.metrics.metric IS 'Name that easeml.select_models takes.';
COMMENT ON COLUMN easeml.metrics.task IS 'Task that it measures.';
COMMENT ON COLUMN easeml.metrics.is_higher_better IS 'Whether a higher value is better.';
COMMENT ON COLUMN easeml.metrics.is_default IS 'Whether a run of that task uses it by default.';
COMMENT ON COLUMN easeml.metrics.summary IS 'What it measures.';

CREATE OR REPLACE VIEW easeml.packing_status WITH (security_invoker) AS
SELECT k.dataset_id, k.tenant::text AS tenant, k.dataset_name, k.version, k.shuffle, k.places, k.asked_at, k.started_at,
    CASE WHEN k.failed_at IS NOT NULL THEN 'failed' WHEN k.problem IS NOT NULL THEN 'waiting'
        WHEN k.started_at IS NOT NULL THEN 'packing' ELSE 'queued' END AS status,
    k.problem ->> 'message' AS problem, k.problem ->> 'hint' AS hint
FROM easeml.packings k;
COMMENT ON VIEW easeml.packing_status IS 'Datasets of rows on nodes that are not packed yet, or could not be packed.';
COMMENT ON COLUMN easeml.packing_status.dataset_id IS 'The number that the dataset will have.';
COMMENT ON COLUMN easeml.packing_status.tenant IS 'Tenant that asked.';
COMMENT ON COLUMN easeml.packing_status.dataset_name IS 'The name that it will have.';
COMMENT ON COLUMN easeml.packing_status.version IS 'The version that it will be.';
COMMENT ON COLUMN easeml.packing_status.shuffle IS 'across or within, see easeml.create_dataset.';
COMMENT ON COLUMN easeml.packing_status.places IS 'The tables, by segment.';
COMMENT ON COLUMN easeml.packing_status.asked_at IS 'When it was asked for.';
COMMENT ON COLUMN easeml.packing_status.started_at IS 'When the service last began to pack it.';
COMMENT ON COLUMN easeml.packing_status.status IS 'queued, packing, waiting (the service tries again) or failed.';
COMMENT ON COLUMN easeml.packing_status.problem IS 'What it waits for, or why it failed.';
COMMENT ON COLUMN easeml.packing_status.hint IS 'What to do about it.';

CREATE OR REPLACE VIEW easeml.node_job_status WITH (security_invoker) AS
SELECT j.job_id, j.tenant::text AS tenant, j.kind, j.dataset_id, j.trial_id, j.places,
    j.asked_at, j.started_at, j.ended_at,
    CASE WHEN j.ended_at IS NOT NULL THEN CASE WHEN j.problem IS NULL THEN 'done'
            WHEN j.problem ->> 'sqlstate' = '57014' THEN 'cancelled' ELSE 'failed' END WHEN j.problem IS NOT NULL
        THEN 'waiting' WHEN j.started_at IS NOT NULL THEN 'running' ELSE 'queued' END AS status,
    j.problem ->> 'message' AS problem, j.problem ->> 'hint' AS hint, j.result
FROM easeml.node_jobs j;
COMMENT ON VIEW easeml.node_job_status IS 'Jobs of nodes besides packing: answers for held-out rows, predictions of '
    'tables, replays, explanations, drift. The last 20 of each tenant that have ended are kept.';
COMMENT ON COLUMN easeml.node_job_status.job_id IS 'Number of the job.';
COMMENT ON COLUMN easeml.node_job_status.tenant IS 'Tenant that asked.';
COMMENT ON COLUMN easeml.node_job_status.kind IS
    'answers (easeml.evaluate_on_nodes), predictions (easeml.predict_on_nodes), replay, explanation '
    '(easeml.explain_on_nodes, easeml.explain_row_on_nodes) or drift (easeml.drift_on_nodes).';
COMMENT ON COLUMN easeml.node_job_status.dataset_id IS 'The dataset of the trial.';
COMMENT ON COLUMN easeml.node_job_status.trial_id IS 'The trial; null for drift, which concerns none.';
COMMENT ON COLUMN easeml.node_job_status.places IS 'The tables that are predicted or compared, by segment.';
COMMENT ON COLUMN easeml.node_job_status.asked_at IS 'When it was asked for.';
COMMENT ON COLUMN easeml.node_job_status.started_at IS 'When the service last began it.';
COMMENT ON COLUMN easeml.node_job_status.ended_at IS 'When it was done, or failed.';
COMMENT ON COLUMN easeml.node_job_status.status IS 'queued, running, waiting (the service tries again), done, failed, '
    'or cancelled: the session that asked for it no longer waits.';
COMMENT ON COLUMN easeml.node_job_status.problem IS 'What it waits for, or why it failed.';
COMMENT ON COLUMN easeml.node_job_status.hint IS 'What to do about it.';
COMMENT ON COLUMN easeml.node_job_status.result IS 'Result of the job: n_rows, what easeml.replay returns, or the rows '
    'of easeml.explain, easeml.explain_row or easeml.drift.';
