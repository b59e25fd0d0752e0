"""Model hopper parallelism (Cerebro, VLDB 2020): trials hop between partitions, one unit at a time.

Pure decisions, values in and values out; what they hold to (section 3 of the paper): per epoch a trial
meets every partition exactly once, a trial is in at most one unit, a slot runs at most one unit, a started
unit is not pre-empted. There is no barrier, not even between epochs.

    contract.py               what every scheduler is asked: placement, candidates, assignments, workloads
    schedulers.py             the schedulers by name, and the choice among them
    longest_remaining.py      most work left first            random.py   any unit that can run
    rotation.py               round in a circle               plan.py     following a plan made beforehand
    vector_rearrangement.py   open shop, Fiala                milp.py     open shop, exact
    open_shop.py              schedules of one epoch          idle_trials.py   idle trials as arrays
    estimates.py              seconds a unit is expected to take, from pilots and from those observed
    bounds.py                 no schedule is shorter than this
    simulation.py             a scheduler on known unit times, without a machine
    open_run.py dispatch.py   the live state: one run; all runs and slots
"""
