"""Commands for data: loading, datasets, refreshes, tasks."""
