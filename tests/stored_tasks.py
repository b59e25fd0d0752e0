"""Rows of a task, and of work on nodes, for every tenant with a dataset: tests of who sees and writes them need
no examples."""

TASKS = """
INSERT INTO easeml.tasks (tenant, task_name, program, template, examples, place, specification)
SELECT DISTINCT tenant, 'a task', '', '', '', '', '{}'::jsonb FROM easeml.datasets;
INSERT INTO easeml.task_versions (dataset_id, tenant, task_id, n_examples, n_off, n_changed, n_packed_bytes,
    n_kept_bytes)
SELECT d.dataset_id, tenant, t.task_id, 1, 0, 1, 1, 0 FROM easeml.datasets d JOIN easeml.tasks t USING (tenant);
INSERT INTO easeml.task_runs (run_id, tenant, task_id, reason)
SELECT r.run_id, tenant, t.task_id, 'by hand' FROM easeml.runs r JOIN easeml.tasks t USING (tenant);
INSERT INTO easeml.labelling_functions (task_id, tenant, function) SELECT task_id, tenant, 'f.f' FROM easeml.tasks;
INSERT INTO easeml.packings (dataset_id, tenant, dataset_name, version, caller, shuffle, arguments, places)
SELECT -min(dataset_id), tenant, 'elsewhere', 1, tenant, 'across', '{}', '{}' FROM easeml.datasets GROUP BY tenant;
INSERT INTO easeml.node_jobs (tenant, caller, kind, dataset_id, trial_id, arguments, ended_at)
SELECT t.tenant, t.tenant, 'answers', r.dataset_id, t.trial_id, '{}', now()
FROM easeml.trials t JOIN easeml.runs r USING (run_id);
INSERT INTO easeml.node_answers (trial_id, tenant, checkpoint_id, split, partition_number, block_number, n_rows,
    outputs, targets)
SELECT trial_id, tenant, 0, 'test', 0, 0, 1, '', '' FROM easeml.trials;
INSERT INTO easeml.node_hops (run_id, tenant, trial_id, from_segment_id, to_segment_id, n_bytes, seconds, is_ahead)
SELECT run_id, tenant, trial_id, 1, 1, 1, 0, true FROM easeml.trials;
INSERT INTO easeml.row_copies (dataset_id, tenant, split, partition_number, from_segment_id, to_segment_id, n_bytes,
    seconds)
SELECT dataset_id, tenant, 'train', 0, 1, 1, 0, 0 FROM easeml.datasets;
INSERT INTO easeml.kept_blocks (dataset_id, tenant, split, partition_number, block_number, holder_id)
SELECT dataset_id, tenant, split, partition_number, block_number, dataset_id FROM easeml.blocks;
"""
