"""Multi-tenant selection replayed on matrices of qualities and costs: ease.ml's figures 9 to 15, and any matrix.

matrices.py    quality and cost of every (user, model), read from CSV files and checked
synthetic.py   SYN(sM, alpha) of ease.ml, section 5.1
strategies.py  a tenancy policy, an arm rule and a prior under one name
replay.py      one repeat: who is served with what, and what is lost meanwhile
oracle.py      what a clairvoyant reaches: the hull oracle, and a strict bound
curves.py      losses over cost, mean and worst over repeats, cost to a loss, bootstrap
protocol.py    repeats: which users are tested, which train the prior
presets.py     the figures; findings.py their measures; plots.py
"""
