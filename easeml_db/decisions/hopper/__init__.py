"""Model hopper parallelism (Cerebro, VLDB 2020): trials hop between partitions, one unit at a time.

Pure decisions, values in and values out. Their invariants (section 3 of the paper): in each epoch a trial meets every
partition exactly once, a trial is in at most one unit, a slot carries out at most one order (a unit, a batch or a whole
round), and a started unit is not pre-empted. There is no barrier, not even between epochs.

    dispatcher.py           what runs next, of all runs on all slots; it names the parts that it is made of
    open_run.py             one run: its work (run_work.py), its arms (open_arms.py) and its allocation
    allocation/             how slots are shared out among the trials of a run, a file for each way
    contract.py             what every scheduler is asked: placement, candidates, assignments, workloads
    schedulers.py           the schedulers by name, and the choice among them (planning.py: for a run)
    longest_remaining.py    most work left first            random.py          any unit that can run
    rotation.py             round in a circle               slot_orders.py     following a plan made beforehand
    vector_rearrangement.py open shop, Fiala                milp.py            open shop, exact
    open_shop.py            schedules of one epoch          idle_trials.py     idle trials as arrays
    ranked_trials.py        idle trials in order            partition_loads.py work by partition
    pilots.py               which trials are timed first    attempts.py        units that failed
    estimates.py            seconds a unit is expected to take, from pilots and from those observed
    gangs.py                trials on several slots at once
    gang_places.py          on which instances of a planned run (instance_places.py: RubberBand's algorithm 3)
    device_sharing.py       devices of trials under water-filling; profiling.py, device_profiler.py measure them
    bounds.py               no schedule is shorter than this
    makespan_simulation.py  a scheduler on known unit times, without a machine
"""
