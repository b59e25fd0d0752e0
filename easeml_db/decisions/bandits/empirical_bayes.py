"""Empirical Bayes: the mean and covariance of past tenants' qualities, calibrated so that new tenants fit them.

The sample covariance C of n past tenants is overconfident about a further one. So the belief is a Student t process
with nu degrees of freedom and the covariance

    s C + d D,   D the variances of the arms, each blended with their mean

where s, d and nu maximise the leave-one-tenant-out likelihood: each past tenant under the mean and covariance of all
others (D stays that of all). Leaving out tenant u is a rank-one change of C, so one decomposition gives every term
exactly:

    m_u = m - z_u / (n - 1)            z_u = y_u - m
    C_u = (n - 1) / (n - 2) C - n / (n - 1) / (n - 2) z_u z_u'    (C with n - 1 in the denominator)
"""

from __future__ import annotations

import math

import numpy as np

from easeml_db.decisions.bandits.history import filled
from easeml_db.decisions.bandits.prior import Matrix, Prior, Vector, to_latent
from easeml_db.errors import InvalidArgument

MIN_TENANTS = 4
NOISE_FRACTION = 1e-3  # of the mean variance: qualities are nearly deterministic, the diagonal does the rest
_STARTS = ((0.0, -2.0, 1.0), (-1.0, -1.0, 2.0), (1.0, -4.0, 1.0))  # logarithms of s, d and nu
_BOUNDS = ((-6.0, 4.0), (-9.0, 3.0), (0.0, 5.0))


def empirical_prior(qualities: Matrix, *, link: str = "identity", is_calibrated: bool = True) -> Prior:
    """Make the prior from past qualities (n, K), n >= 4, nan where an arm was not offered. Raises InvalidArgument."""
    history = to_latent(filled(qualities), link)
    n = len(history)
    if n < MIN_TENANTS:
        raise InvalidArgument(f"history: expected at least {MIN_TENANTS} past tenants, got {n}")
    mean = history.mean(axis=0)
    residuals = history - mean
    covariance = residuals.T @ residuals / (n - 1)
    variances = np.diagonal(covariance)
    # Few tenants say little of a single arm's variance: half of it comes from the mean over arms. The floor keeps D
    # invertible where past tenants do not differ at all.
    diagonal = 0.5 * variances + 0.5 * max(float(variances.mean()), 1e-6)
    # Without calibration: C as it is, and a tenth of D beside it, because C has a rank of n - 1 at most.
    scale, share, freedom = _calibrated(residuals, diagonal) if is_calibrated else (1.0, 0.1, math.inf)
    noise = NOISE_FRACTION * float(diagonal.mean())
    fitted = {"scale": scale, "diagonal": share, "degrees_of_freedom": freedom, "n_tenants": n}
    name = "empirical" if link == "identity" else "empirical_logit"
    return Prior(mean, scale * covariance + np.diag(share * diagonal), noise, link, freedom, name, fitted)


def _calibrated(residuals: Matrix, diagonal: Vector) -> tuple[float, float, float]:
    """Return the likeliest scale of the covariance and of the diagonal, and the likeliest degrees of freedom."""
    from scipy.optimize import minimize  # it takes long to import

    left_out = LeaveOneOut(residuals / np.sqrt(diagonal))

    def loss(logs: np.ndarray) -> float:
        return -left_out.log_likelihood(*np.exp(logs))

    # Nelder-Mead finds a local optimum: the best of several starts counts. Logarithms keep s, d and nu positive.
    fits = [minimize(loss, start, method="Nelder-Mead", bounds=_BOUNDS) for start in _STARTS]
    scale, share, freedom = np.exp(min(fits, key=lambda fit: float(fit.fun)).x)
    return float(scale), float(share), float(freedom)


class LeaveOneOut:
    """The leave-one-tenant-out likelihood from residuals (n, K) in units of the square roots of D, in which D is the
    identity."""

    def __init__(self, whitened: Matrix) -> None:
        self._n, self._k = whitened.shape
        _, singular, vectors = np.linalg.svd(whitened, full_matrices=False)
        self._eigenvalues = singular**2 / (self._n - 1)
        self._along = (whitened @ vectors.T) ** 2  # (n, r); what lies outside of the r directions is zero

    def log_likelihood(self, scale: float, share: float, freedom: float) -> float:
        """Sum over the tenants of log t(z_u; m_u, s C_u + d I) with nu degrees of freedom."""
        from scipy.special import gammaln  # a third of what a command imports

        n, k = self._n, self._k
        # A = s (n - 1) / (n - 2) C + d I and a = s n / ((n - 1) (n - 2)) make s C_u + d I = A - a z_u z_u'.
        # `spread` holds A's eigenvalues along the data; in the other k - r directions A is d. q = z_u' A^-1 z_u.
        spread = scale * (n - 1) / (n - 2) * self._eigenvalues + share
        q = (self._along / spread).sum(axis=1)
        rest = np.maximum(1.0 - scale * n / ((n - 1) * (n - 2)) * q, 1e-12)  # positive but for rounding
        # Determinant lemma: det(A - a z z') = det A (1 - a q). Sherman-Morrison: z' (A - a z z')^-1 z = q / (1 - a q).
        # The residual is y_u - m_u = n / (n - 1) z_u.
        log_determinant = np.log(spread).sum() + (k - len(spread)) * math.log(share) + np.log(rest)
        distance = (n / (n - 1)) ** 2 * q / rest
        constant = gammaln((freedom + k) / 2) - gammaln(freedom / 2) - k / 2 * math.log(freedom * math.pi)
        terms = constant - 0.5 * log_determinant - 0.5 * (freedom + k) * np.log1p(distance / freedom)
        return float(terms.sum())
