"""Many tenants, one pool: whom to serve next, and with which arm. Pure, on numpy; every policy has a file.

    player.py       one tenant's standing: posterior, costs, plays under way, bounds, best so far
    arm_rules.py    which arm a tenant plays: GP-UCB, EI, EI per cost, PI, or a fixed order
    standings.py    what policies see of all tenants, as columns
    contract.py     Policy and its choice
    fcfs.py random.py round_robin.py greedy.py hybrid.py ei_rate.py
    policies.py     policies by name
    selector.py     the decision: a tenant, then its arm; and what it saw

Rules that hold for every policy: each tenant is served once before any is served twice, in order of arrival; a tenant
whose arms are exhausted leaves every set and mean; ties go to the lowest tenant, then the lowest arm.
"""
