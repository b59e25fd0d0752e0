"""Model hopper parallelism (Cerebro, VLDB 2020): trials hop between partitions, one unit at a time.

Pure decisions, values in and values out. Their invariants (section 3 of the paper): in each epoch a trial meets every
partition exactly once, a trial is in at most one unit, a slot carries out at most one order (a unit, a batch or a whole
round), and a started unit is not pre-empted. There is no barrier, not even between epochs.

    schedulers/   which idle trial a slot gets next, by estimates of unit times; their bounds and a simulation
    work/         one run's trials, gangs, batches and pilots; attempts that failed; devices and instances for them
    allocation/   how slots are shared out among the trials of a run, a file for each way
    dispatch/     what runs next, of all runs on all slots (dispatcher.py)

What follows when a unit fails is decided in `decisions/retry.py`.
"""
