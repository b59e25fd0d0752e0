"""One tenant's bandit: beliefs about its arms, and which arm to play next. Pure, on numpy.

    prior.py            what is believed before anything is played, and the prior without any history
    rbf.py              ease.ml's prior: arms are points, described by their qualities on past tenants
    empirical_bayes.py  mean and covariance of past tenants, calibrated by leave-one-tenant-out likelihood
    priors.py           priors by name; how gaps of a history are filled
    posterior.py        the exact posterior after any number of plays, updated in place
    acquisition.py      scores of arms: GP-UCB (cost-aware or not), expected improvement, probability of improvement
    costs.py            costs of arms: estimated from history and pilots, then observed; normalised

Symbols, here and in `tenancy`: K arms; mean m (K,), covariance S (K, K), noise variance s2; quality y in [0, 1];
cost c > 0, in units of the mean cost; t counts a tenant's plays from 1; beta the weight of the standard deviation.
"""
