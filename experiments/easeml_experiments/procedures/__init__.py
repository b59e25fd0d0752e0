"""AutoML procedures on model hopping and on task parallelism, with the same trials and the same trainer.

A procedure decides alike on both sides, since it is the same pure function of the history. Where trials train differs:
model hopping moves a trial between slots that share one copy of the rows; a task-parallel worker holds all rows, and
trains a trial from one rung to the next as one task.

settings.py          what is searched, how, and how often
searching.py         a search as files that every process reads
book.py              what a task-parallel driver knows: the history, and the tasks that follow from it (pure)
tasks.py             a task, in the process that holds the rows
driving.py           the driver: tasks for free workers, until nothing follows
process_workers.py   workers that are plain processes        ray_workers.py   workers that are Ray's actors
hopping.py           the product: a run with a procedure inside PostgreSQL
spending.py          what slots spent their time on (pure)
comparison.py        measures and tables (pure)    plots.py   charts    experiment.py   all of it, by turns
"""
