"""Numbers, times and configs as text for people."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any

BYTE_UNITS = ("bytes", "kB", "MB", "GB", "TB")
DAY_SECONDS = 86400
UNKNOWN = "\N{EN DASH}"


def duration_text(seconds: float | None) -> str:
    """Write a duration as 0.35 s, 7.2 s, 42 s, 3 min 4 s, 2 h 10 min, 3 d 4 h."""
    if seconds is None:
        return UNKNOWN
    if 0 < seconds < 0.0005:
        return "< 1 ms"
    if seconds < 59.5:
        return f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.1f} s" if seconds >= 0.995 else f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < DAY_SECONDS:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // DAY_SECONDS} d {whole % DAY_SECONDS // 3600} h"


def bytes_text(n_bytes: int | None) -> str:
    """Write a size as 512 bytes, 1.2 GB: decimal units, two or three digits."""
    if n_bytes is None:
        return UNKNOWN
    size, unit = float(n_bytes), 0
    while size >= 999.5 and unit < len(BYTE_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.1f} {BYTE_UNITS[unit]}" if unit and size < 9.95 else f"{size:.0f} {BYTE_UNITS[unit]}"


def number_text(value: float | None) -> str:
    """Return a count with commas, any other number with four digits."""
    if value is None:
        return UNKNOWN
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}"


def count_text(n: int, thing: str) -> str:
    """Write a count as 1 trial, 8 trials, 20,000 units."""
    return f"{n:,} {thing}" if n == 1 else f"{n:,} {thing}s"


def percent_text(share: float | None) -> str:
    """Return a share between 0 and 1 as a percentage."""
    return UNKNOWN if share is None else f"{100 * share:.0f} %"


def metric_text(value: float | None) -> str:
    """Return a metric with as many digits in every row; nothing while it is not measured."""
    return "" if value is None else f"{value:.4f}" if abs(value) < 1000 else f"{value:,.1f}"


def cost_text(cost: float | None) -> str:
    """Return a cost with two decimals, a small one with two digits."""
    if cost is None:
        return UNKNOWN
    return f"{cost:,.2f}" if cost >= 0.1 or not cost else f"{cost:.2g}"


def billing_text(price_list: str | None) -> str:
    """Return a sentence on the parts of a run's cost."""
    if price_list is None:
        return "slot time at the prices of this server"
    return f"what its instances are billed by price list {price_list}"


def time_text(instant: datetime.datetime | None) -> str:
    """Return an instant with its time zone, in that of this machine."""
    return UNKNOWN if instant is None else instant.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def value_text(value: Any) -> str:
    """Return the value of a hyperparameter."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return "[" + ", ".join(map(value_text, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {value_text(item)}" for name, item in value.items()) + "}"
    return str(value)


Settings = dict[str, str]


def split_configs(configs: Sequence[Mapping[str, Any]]) -> tuple[list[Settings], Settings]:
    """Return each config's own values, and the values shared by all configs that have them, if several do."""
    texts = [{name: value_text(value) for name, value in config.items()} for config in configs]
    seen: dict[str, list[str]] = {}
    for text in texts:
        for name, value in text.items():
            seen.setdefault(name, []).append(value)
    shared = {name: values[0] for name, values in seen.items() if len(values) > 1 and len(set(values)) == 1}
    return [{name: value for name, value in text.items() if name not in shared} for text in texts], shared


def failed(trial: Mapping[str, Any]) -> bool:
    """Return whether a trial failed. A trial stopped at the end of its run also has a reason, but did not fail."""
    return bool(trial["failure_reason"]) and trial["status"] != "stopped"


FILTERS: dict[str, Callable[..., Any]] = {
    "billing": billing_text,
    "bytes": bytes_text,
    "cost": cost_text,
    "counted": count_text,
    "duration": duration_text,
    "metric": metric_text,
    "moment": time_text,
    "number": number_text,
    "percent": percent_text,
    "split_configs": split_configs,
}
"""Names of these functions in templates."""
