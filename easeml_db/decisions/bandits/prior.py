"""What is believed of a tenant's arms before any of them is played."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from easeml_db.errors import InvalidArgument

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Ours: the middle of [0, 1], with two deviations to either end.
DEFAULT_MEAN, DEFAULT_DEVIATION, DEFAULT_NOISE_VARIANCE = 0.5, 0.25, 0.02**2
# 0 and 1 have no logit, and next to them a tiny difference of qualities would be a huge one of logits.
LOGIT_BOUNDS = (0.005, 0.995)
LINKS = ("identity", "logit")


@dataclass(frozen=True, eq=False)
class Prior:
    """Belief: `mean` (K,), `covariance` (K, K), variance of the noise of an observation; on the scale of `link`: the
    quality itself, or its logit (qualities clipped to [0.005, 0.995]).

    Finite `degrees_of_freedom` make it a Student t process instead of a normal one: the more the observations of a
    tenant surprise, the wider its whole posterior becomes. `name` says where it comes from, `fitted` with which
    hyperparameters.
    """

    mean: Vector
    covariance: Matrix
    noise_variance: float
    link: str = "identity"
    degrees_of_freedom: float = math.inf
    name: str = "given"
    fitted: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mean.ndim != 1 or self.covariance.shape != (len(self.mean), len(self.mean)):
            raise InvalidArgument(
                f"prior: expected a mean of shape (K,) and a covariance of shape (K, K), got {self.mean.shape} and "
                f"{self.covariance.shape}"
            )
        if not self.noise_variance > 0:
            raise InvalidArgument(f"prior: expected a noise variance > 0, got {self.noise_variance}")
        if not self.degrees_of_freedom > 0:
            raise InvalidArgument(f"prior: expected degrees of freedom > 0, got {self.degrees_of_freedom}")
        if self.link not in LINKS:
            raise InvalidArgument(f"prior: expected the link identity or logit, got {self.link!r}")

    @property
    def n_arms(self) -> int:
        """K."""
        return len(self.mean)

    @property
    def variances(self) -> Vector:
        """Variances of the arms, shape (K,)."""
        variances: Vector = np.ascontiguousarray(np.diagonal(self.covariance))
        return variances

    def covariances(self, arm: int) -> Vector:
        """Return the covariances of an arm with all arms, shape (K,)."""
        row: Vector = self.covariance[arm]
        return row

    def latent(self, quality: float) -> float:
        """Return a quality on the scale of the belief."""
        return float(to_latent(np.asarray(quality), self.link))


def to_latent(qualities: NDArray[np.float64], link: str) -> NDArray[np.float64]:
    """Return qualities on the scale of a link."""
    if link == "identity":
        return qualities
    clipped = np.clip(qualities, *LOGIT_BOUNDS)
    return np.log(clipped / (1.0 - clipped))


def to_quality(latent: NDArray[np.float64], link: str) -> NDArray[np.float64]:
    """Apply the inverse of `to_latent`, apart from the clipping."""
    if link == "identity":
        return latent
    from scipy.special import expit  # a third of what a command imports

    quality: NDArray[np.float64] = expit(latent)
    return quality


def independent_prior(n_arms: int) -> Prior:
    """Return the prior without any history: independent arms; mean 0.5, deviation 0.25, noise 0.02."""
    variances = np.full(n_arms, DEFAULT_DEVIATION**2)
    return Prior(np.full(n_arms, DEFAULT_MEAN), np.diag(variances), DEFAULT_NOISE_VARIANCE, name="independent")
