"""How slots are shared out among the trials of a run: one file for each way, all behind one contract.

contract.py        what goes into an allocation and comes out: work, slots offered, starts, slots held back
registry.py        the allocations by name: the only place that knows them
hopping.py         every trial has one slot at a time and hops between partitions
data_parallel.py   one trial after another, each on all slots
auto.py            hopping, then gangs once few trials are left
water_filling.py   devices follow the work that each trial has left
"""
