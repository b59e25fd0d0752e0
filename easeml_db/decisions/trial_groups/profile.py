"""Runtime by width (Fluid, section 4.2.2).

h_w = h_1 alpha^(1/w - 1)        w = 1/m: m trials share a device, and slow each other down
h_w = (h_1 / w) beta^(w - 1)     w whole, 1 to d: a trial spread over w devices

alpha  packing overhead, without unit, in [1, c/(c-1)): every further trial up to c lets a device do more
beta   scaling overhead, without unit, in [1, 1 + 1/d): every further device up to d makes a trial shorter
c, d   most trials on a device, most devices for a trial: whole numbers, at least 1
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from easeml_db.errors import InvalidArgument


@dataclass(frozen=True)
class Profile:
    """What packing and scaling cost, the same for all trials of a job. Raises InvalidArgument."""

    alpha: float = 1.0
    beta: float = 1.0
    c: int = 1
    d: int = 1

    def __post_init__(self) -> None:
        for name, limit in (("c", self.c), ("d", self.d)):
            if limit != int(limit) or limit < 1:
                raise InvalidArgument(f"{name}: expected a whole number of at least 1, got {limit}")
        _check_within("alpha", self.alpha, self.c / (self.c - 1) if self.c > 1 else inf, "c/(c-1)")
        _check_within("beta", self.beta, 1 + 1 / self.d, "1 + 1/d")

    @property
    def least_width(self) -> float:
        """1/c."""
        return 1 / self.c

    def slowdown(self, n_packed: int) -> float:
        """Return how much longer each of m trials on one device takes: alpha^(m-1)."""
        return float(self.alpha ** (n_packed - 1))

    def seconds(self, h_1: float, width: float) -> float:
        """Return h_w in seconds. Raises InvalidArgument for widths below 1/c, above d, or above 1 and not whole."""
        if width < self.least_width - 1e-12 or width > self.d or (width > 1 and width != int(width)):
            raise InvalidArgument(f"width: expected 1/{self.c} to 1, or a whole number up to {self.d}, got {width:g}")
        if width < 1:
            return float(h_1 * self.alpha ** (1 / width - 1))
        return float(h_1 / width * self.beta ** (width - 1))

    @property
    def throughput(self) -> float:
        """h_1 seconds that a device does in a second when it is packed to the limit: c / alpha^(c-1), at least 1."""
        return self.c / self.slowdown(self.c)


def _check_within(name: str, value: float, bound: float, bound_name: str) -> None:
    if not 1 <= value < bound:
        raise InvalidArgument(
            f"{name}: expected at least 1 and less than {bound_name} = {bound:g}, got {value:g}",
            hint="With more overhead the limit is too high: lower c or d.",
        )
