"""Trial groups in simulation: figures 7, 11, 12 and 13 of Fluid, and StaticFluid against the shortest schedules.

workload.py     tuning jobs as groups: rungs of the procedures
comparison.py   a job without and with water-filling, over seeds; the overheads assumed
figures.py      the figures: rows, and measures from them
bound.py        StaticFluid on random small cases against the optimum
real.py         hopping and water-filling on this machine
plots.py        charts
experiment.py   runs it all
"""
