"""Trial groups (Fluid, MLSys 2021): how many devices, or which share of one, each trial gets. Pure, stdlib only.

    contract.py        budgets, groups, placements, trials that run, resizes: the values that go in and out
    profile.py         runtime of a trial by its width; what packing and scaling cost
    limits.py          how many trials a device holds and how many devices a trial uses, from measurements
    widths.py          the water-filling formula
    static_fluid.py    placement of arriving trials on idle devices
    dynamic_fluid.py   resizing of running trials, when some left or devices came
    shared_capacity.py the capacity that is left for resizes
    allocation.py      both for a run that really trains, as trials, slots and devices come and go
    measuring.py       which short measurements to make, and the profile that they give
    device_occupancy.py  devices and what runs on them, as time passes
    fluid_simulation.py      a job of groups on devices, with and without water-filling
    optimum.py         the shortest schedule of a few trials, by trying all

Symbols, here and in all modules: trial i; n devices; width w, in devices: 1/m is a device shared by m trials, whole
numbers are devices of its own; h_w seconds that a trial still takes at width w, h_1 on one device of its own; c at
most so many trials on a device; d at most so many devices for a trial; alpha and beta, overheads of packing and
scaling (`profile`); eps seconds that a resize costs.
"""
