"""Model hopper parallelism (Cerebro, VLDB 2020): trials hop between partitions, one unit at a time.

Pure decisions, values in and values out; what they hold to (section 3 of the paper): per epoch a trial
meets every partition exactly once, a trial is in at most one unit, a slot runs at most one unit, a started
unit is not pre-empted, and no slot idles while a trial could run on it. There is no barrier, not even
between epochs.

    longest_remaining.py   which idle trial runs next, and on which idle slot
    estimates.py           seconds a unit is expected to take, from those observed
    bounds.py              no schedule is shorter than this
    simulation.py          a scheduler on known unit times, without a machine
"""
