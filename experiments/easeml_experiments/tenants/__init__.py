"""Multi-tenant selection replayed on matrices of qualities and costs: ease.ml's figures 9 to 15, and any matrix.

matrices.py    quality and cost of every (user, model), read from CSV files and checked
synthetic.py   SYN(sM, alpha) of ease.ml, section 5.1
strategies.py  a tenancy policy, an arm rule and a prior under one name
replay.py      one repeat: who is served with what, and what is lost meanwhile; regret of the theorems
oracle.py      what a clairvoyant reaches: the hull oracle, and a strict bound
protocol.py    repeats: which users are tested, which train the prior; workers.py runs them side by side
curves.py      losses over cost, mean and worst over repeats, cost to a loss, bootstrap
replay_cache.py         datasets by name, and what was replayed on them; cells.py names what presets replay
presets.py     the figures: their lines and measures
judging.py     measures from curves; baselines.py (figure 9), findings.py (10 to 15) and targets.py use them
regrets.py     regret on SYN; decision.py what a decision costs
plots.py       curves as rows and charts
experiment.py  runs presets; free_use.py strategies on matrices of one's own
"""
