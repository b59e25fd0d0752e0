"""Jobs and price lists that the tests of the planner share."""

from __future__ import annotations

from easeml_db.decisions.planner.job import Job, Latency, TrialProfile, halving_job
from easeml_db.decisions.planner.prices import InstanceType, PriceList
from easeml_db.decisions.planner.simulation import Allocation, Plan, Simulator

HOUR = 3600.0


def plan(*sizes: int, type_number: int = 0) -> Plan:
    return tuple(Allocation(type_number, n_slots) for n_slots in sizes)


def prices(n_slots: int = 1, price_per_hour: float = HOUR, **options: object) -> PriceList:
    """A price list of one type, by default a slot at 1 a second."""
    instance = InstanceType("one", "cuda", n_slots, price_per_hour, **options)  # type: ignore[arg-type]
    return PriceList("test", (instance,))


def one_trial(epochs: float = 7, seconds: float = 3.0) -> Job:
    return halving_job((1,), (epochs,), TrialProfile({1: seconds}), "cuda")


def simulator(job: Job, price_list: PriceList | None = None, n_samples: int = 5) -> Simulator:
    return Simulator(job, price_list or prices(), n_samples=n_samples)


# Table 2 of RubberBand, as the numbers of its own rows imply (easeml_db.decisions.planner.shipped_prices says more).
RESNET101 = TrialProfile({1: 85.0, 2: 85 / 1.97, 4: 85 / 3.70, 8: 85 / 5})


def table_2(*, is_hopping: bool = False) -> Simulator:
    job = halving_job((32, 10, 3, 1), (1, 3, 9, 37), RESNET101, "cuda", is_hopping=is_hopping)
    return Simulator(job, prices(4, 12.24, minimum_seconds=60.0, initialisation=Latency(15.0)))
