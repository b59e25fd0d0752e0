"""Plans that meet a deadline at least cost (RubberBand, EuroSys 2021), and forecasts from the same simulator.

    job.py           stages of trials, seconds of an epoch by width: what is to be trained
    prices.py        instance types, what they cost, how long they take to start
    declared.py      the stages of a procedure that declares them
    envelope.py      one stage for any other procedure, by playing it on past learning curves
    draws.py         random numbers that all candidates share
    stage_times.py   how long a stage takes on so many slots
    simulation.py    time and cost of a plan, by Monte Carlo
    steps.py         which numbers of slots are worth trying
    baselines.py     static and naive elastic plans
    greedy.py        algorithm 2 of the paper
    trade_offs.py    all worthwhile plans between the fastest and the cheapest
    planning.py      the plan for a goal, the frontier
    knowledge.py     profiles from what was measured
    documents.py     JSON in, JSON out: what SQL calls
    remaining.py     the stages that a run under way has left
    forecast.py      when it will be done, and what it will have cost

Words: a stage is a set of trials that train at once up to a barrier; its allocation is a number of slots of one
instance type. Trials share them: with at least as many slots as trials each has floor(slots / trials), its width; with
fewer, trials hop from slot to slot and keep all of them at work. The paper gives each trial a fixed slot instead.
"""
