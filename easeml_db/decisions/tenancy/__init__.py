"""Many runs, one pool: which run is served next, and with which arm. Pure, on numpy; every policy has a file.

The papers serve tenants. Here a tenant may have several runs, each run is one bandit, and runs of a tenant share its
weight.

    run_bandit.py   one run's bandit: posterior, costs, arms under way, bounds, best so far
    arm_rules.py    which arm of a run is opened: GP-UCB, EI, EI per cost, PI, or a fixed order
    trust.py        how far each run's beliefs are trusted, also by what other open runs have shown
    arm_scores.py   scores of all runs' arms, of one belief or several
    standings.py    what policies see of all runs, as columns
    contract.py     Policy and its choice
    round_robin.py greedy.py hybrid.py ei_rate.py robust.py
    policies.py     policies by name
    selector.py     the decision: a run, then its arm; and what it saw
    turns.py        which tenant is served first while one waits for slots

Rules that hold for every policy: each run is served once before any is served twice, in order of arrival; a run
whose arms are exhausted leaves every set and mean; ties go to the earliest run, then the lowest arm.
"""
