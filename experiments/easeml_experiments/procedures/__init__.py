"""AutoML procedures on model hopping and on task parallelism, with the same trials and the same trainer.

A procedure decides alike on both sides, since it is the same pure function of the history. Where trials train differs:
model hopping moves a trial between slots that share one copy of the rows; a task-parallel worker holds all rows, and
trains a trial from one rung to the next as one task.

comparison_setup.py  what is searched, how, and how often
search_job.py        a search as files that every process reads
search_history.py    the trials of a search so far, and the tasks that follow from them (pure)
task_training.py     training of a task, in the process that holds the rows
task_driver.py       the driver: it gives tasks to free workers until nothing follows
process_workers.py   workers that are plain processes        ray_workers.py   workers that are Ray's actors
hopping.py           the product: a run with a procedure inside PostgreSQL
slot_time.py         seconds of slots by activity (pure)
comparison.py        measures and tables (pure)    plots.py   charts    experiment.py   all of it, by turns
"""
