"""Priors by name, from the qualities of past tenants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from easeml_db.decisions.bandits.empirical_bayes import MIN_TENANTS, empirical_prior
from easeml_db.decisions.bandits.history import is_known
from easeml_db.decisions.bandits.prior import Matrix, Prior, independent_prior
from easeml_db.decisions.bandits.rbf import rbf_prior
from easeml_db.errors import InvalidArgument

DEFAULT = "auto"


@dataclass(frozen=True)
class Description:
    """A prior in words, and how it is made from qualities (n, K) of at least `min_tenants` past tenants."""

    summary: str
    make: Callable[[Matrix], Prior]
    min_tenants: int = 0


PRIORS: Mapping[str, Description] = MappingProxyType(
    {
        "empirical_logit": Description(
            "mean and covariance of past tenants on the logit scale, calibrated on each of them in turn",
            lambda qualities: empirical_prior(qualities, link="logit"),
            MIN_TENANTS,
        ),
        "empirical": Description("the same on the scale of the qualities", empirical_prior, MIN_TENANTS),
        "rbf": Description("arms as points among past tenants, a Gaussian kernel (ease.ml)", rbf_prior, 1),
        "independent": Description(
            "no history: mean 0.5, deviation 0.25", lambda qualities: independent_prior(qualities.shape[1])
        ),
    }
)
PREFERRED = "empirical_logit"


def make_prior(name: str, qualities: Matrix) -> Prior:
    """Make the prior of a name from past qualities (n, K), nan where an arm was not offered; n may be 0.

    auto is empirical_logit; if the history is too short for the requested prior, the independent one is used. A past
    tenant without any quality, or with failed runs only, does not count. Raises InvalidArgument.
    """
    prior_name = PREFERRED if name == DEFAULT else name
    if prior_name not in PRIORS:
        raise InvalidArgument(
            f"prior: there is no prior {name!r}", hint=f"Choose one of: {', '.join([DEFAULT, *PRIORS])}."
        )
    telling = qualities[is_known(qualities).any(axis=1)]
    if len(telling) < PRIORS[prior_name].min_tenants:
        return independent_prior(qualities.shape[1])
    return PRIORS[prior_name].make(telling)


def list_priors() -> list[dict[str, Any]]:
    """Return every prior as a row, for SQL."""
    default = {"prior": DEFAULT, "is_default": True, "summary": f"{PREFERRED} from {MIN_TENANTS} past tenants on"}
    return [default] + [{"prior": name, "is_default": False, "summary": kind.summary} for name, kind in PRIORS.items()]
