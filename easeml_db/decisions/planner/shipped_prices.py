"""Price lists that come with easeml: this server's slots, and the paper's instances."""

from __future__ import annotations

from easeml_db.decisions.planner.job import Latency
from easeml_db.decisions.planner.prices import InstanceType, PriceList

AWS_P3_CAVEAT = (
    "RubberBand's figures of 2021: about 3 an hour for p3.2xlarge and 24 for p3.16xlarge in its text, 12.24 for"
    " p3.8xlarge as its table 2 implies; section 6.2 says 7.50 for p3.16xlarge. 15 s to start, of a warm pool."
    " Look up today's prices."
)


def aws_p3() -> PriceList:
    """Return the paper's instances: V100 GPUs, billed by the second for at least a minute, ready after 15 s."""
    sizes = (("p3.2xlarge", 1, 3.06), ("p3.8xlarge", 4, 12.24), ("p3.16xlarge", 8, 24.48))
    return PriceList("aws-p3", tuple(_v100s(*size) for size in sizes), AWS_P3_CAVEAT)


def _v100s(name: str, n_slots: int, price_per_hour: float) -> InstanceType:
    return InstanceType(name, "cuda", n_slots, price_per_hour, minimum_seconds=60.0, initialisation=Latency(15.0))
