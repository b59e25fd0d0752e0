-- Views are what BI tools read: flat, typed, and under the row-level security of whoever asks.

CREATE VIEW easeml.dataset_info WITH (security_invoker) AS
SELECT d.dataset_id, d.owner::text AS owner, d.dataset_name, d.version, d.source, d.input_columns, d.target_column, d.task, d.input_shape, d.n_outputs,
    d.n_partitions, p.n_train_rows, p.n_validation_rows, p.n_test_rows, d.n_skipped_rows, p.n_bytes, d.seed, d.created_at, d.packing_seconds,
    d.version = max(d.version) OVER (PARTITION BY d.owner, d.dataset_name) AS is_newest,
    (SELECT count(*) FROM easeml.runs r WHERE r.dataset_id = d.dataset_id) AS n_runs,
    d.placement, (SELECT min(c.n) FROM (SELECT count(*) AS n FROM easeml.replicas r WHERE r.dataset_id = d.dataset_id GROUP BY r.partition_number) c) AS replication_factor
FROM easeml.datasets d
LEFT JOIN (SELECT dataset_id, sum(n_train_rows)::bigint AS n_train_rows, sum(n_validation_rows)::bigint AS n_validation_rows,
               sum(n_test_rows)::bigint AS n_test_rows, sum(n_bytes)::bigint AS n_bytes
           FROM easeml.partitions GROUP BY dataset_id) p USING (dataset_id);
COMMENT ON VIEW easeml.dataset_info IS 'Data sets with their sizes, one row for each version.';

CREATE VIEW easeml.partition_status WITH (security_invoker) AS
SELECT p.dataset_id, d.owner::text AS owner, d.dataset_name, d.version, p.partition_number, p.n_train_rows, p.n_validation_rows, p.n_test_rows, p.n_bytes,
    CASE d.placement WHEN 'bound' THEN ARRAY(SELECT g.segment_name FROM easeml.replicas c JOIN easeml.segments g USING (segment_id)
        WHERE c.dataset_id = p.dataset_id AND c.partition_number = p.partition_number ORDER BY g.segment_id) END AS holders
FROM easeml.partitions p JOIN easeml.datasets d USING (dataset_id);
COMMENT ON VIEW easeml.partition_status IS 'Partitions with their sizes and the segments that hold them.';

CREATE VIEW easeml.architectures WITH (security_invoker) AS
SELECT a.architecture, a.trainer, a.tasks, a.input_ranks, a.summary, a.hyperparameters FROM easeml.list_architectures() a;
COMMENT ON VIEW easeml.architectures IS 'Architectures that easeml.select_models can train, with their hyperparameters (legal values, defaults, default search).';

CREATE VIEW easeml.metrics WITH (security_invoker) AS
SELECT m.metric, m.task, m.is_higher_better, m.is_default, m.summary FROM easeml.list_metrics() m;
COMMENT ON VIEW easeml.metrics IS 'Metrics by which a run can rank its trials.';

COMMENT ON COLUMN easeml.dataset_info.placement IS 'shared (every slot may run every partition) or bound (its segments slots only).';
COMMENT ON COLUMN easeml.dataset_info.replication_factor IS 'How many segments hold each partition, at least; NULL where it is shared.';

COMMENT ON COLUMN easeml.partition_status.dataset_id IS 'Version of the data set.';
COMMENT ON COLUMN easeml.partition_status.owner IS 'Role that owns it.';
COMMENT ON COLUMN easeml.partition_status.dataset_name IS 'Data set.';
COMMENT ON COLUMN easeml.partition_status.version IS 'Its version.';
COMMENT ON COLUMN easeml.partition_status.partition_number IS 'Partition, from 0.';
COMMENT ON COLUMN easeml.partition_status.n_train_rows IS 'Training rows.';
COMMENT ON COLUMN easeml.partition_status.n_validation_rows IS 'Validation rows.';
COMMENT ON COLUMN easeml.partition_status.n_test_rows IS 'Test rows.';
COMMENT ON COLUMN easeml.partition_status.n_bytes IS 'Packed bytes.';
COMMENT ON COLUMN easeml.partition_status.holders IS 'Segments that hold it; NULL where every slot may run it.';

COMMENT ON COLUMN easeml.dataset_info.dataset_id IS 'The versions number.';
COMMENT ON COLUMN easeml.dataset_info.owner IS 'Role that owns it.';
COMMENT ON COLUMN easeml.dataset_info.dataset_name IS 'Name, unique for its owner.';
COMMENT ON COLUMN easeml.dataset_info.version IS '1, 2, ... by easeml.refresh_dataset.';
COMMENT ON COLUMN easeml.dataset_info.source IS 'Table or view that was packed.';
COMMENT ON COLUMN easeml.dataset_info.input_columns IS 'Columns that are the inputs.';
COMMENT ON COLUMN easeml.dataset_info.target_column IS 'Column to predict.';
COMMENT ON COLUMN easeml.dataset_info.task IS 'classification or regression.';
COMMENT ON COLUMN easeml.dataset_info.input_shape IS 'Shape of one encoded example.';
COMMENT ON COLUMN easeml.dataset_info.n_outputs IS 'Number of classes, or 1.';
COMMENT ON COLUMN easeml.dataset_info.n_partitions IS 'Parts that train side by side.';
COMMENT ON COLUMN easeml.dataset_info.n_train_rows IS 'Rows to train on.';
COMMENT ON COLUMN easeml.dataset_info.n_validation_rows IS 'Rows that rank trials.';
COMMENT ON COLUMN easeml.dataset_info.n_test_rows IS 'Rows that no choice sees.';
COMMENT ON COLUMN easeml.dataset_info.n_skipped_rows IS 'Rows left out for a NULL target.';
COMMENT ON COLUMN easeml.dataset_info.n_bytes IS 'Packed size in bytes.';
COMMENT ON COLUMN easeml.dataset_info.seed IS 'Seed of shuffle and split.';
COMMENT ON COLUMN easeml.dataset_info.created_at IS 'When it was packed.';
COMMENT ON COLUMN easeml.dataset_info.packing_seconds IS 'How long packing took.';
COMMENT ON COLUMN easeml.dataset_info.is_newest IS 'Whether new runs use this version.';
COMMENT ON COLUMN easeml.dataset_info.n_runs IS 'Runs on this version.';

COMMENT ON COLUMN easeml.architectures.architecture IS 'Name.';
COMMENT ON COLUMN easeml.architectures.trainer IS 'torch or partial_fit.';
COMMENT ON COLUMN easeml.architectures.tasks IS 'Tasks it can learn.';
COMMENT ON COLUMN easeml.architectures.input_ranks IS 'Ranks of input shapes it accepts (empty: any).';
COMMENT ON COLUMN easeml.architectures.summary IS 'What it is.';
COMMENT ON COLUMN easeml.architectures.hyperparameters IS 'Legal values, defaults and default search ranges.';

COMMENT ON COLUMN easeml.metrics.metric IS 'Name.';
COMMENT ON COLUMN easeml.metrics.task IS 'Task it measures.';
COMMENT ON COLUMN easeml.metrics.is_higher_better IS 'Direction.';
COMMENT ON COLUMN easeml.metrics.is_default IS 'Whether runs use it when none is named.';
COMMENT ON COLUMN easeml.metrics.summary IS 'What it is.';
