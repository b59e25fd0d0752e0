"""Units of work on a slot: training, evaluation, whole rounds, batches, gangs, pilots, ensembles, replay."""
