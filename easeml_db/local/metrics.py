"""Numbers for Prometheus: one page of text over HTTP, for this machine alone.

prometheus_client writes the page. Its server starts a thread for every connection and bounds neither their number nor
their time, so the page is served here, in the loop of the coordinator.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from easeml_db.coordinator.counters import Counters
from easeml_db.errors import EasemlError, InvalidArgument, NotAllowed
from easeml_db.postgres.stores.store_session import StoreSession

HOST = "127.0.0.1"
REQUEST_SECONDS, MAX_LINE = 5.0, 8192
MAX_AT_ONCE = 16  # connections: any user of the machine may open some, and the coordinator needs files for its slots
FRESH_SECONDS = 1.0  # however often the page is requested, the tables are read at most once a second
TEXT = "text/plain; version=0.0.4; charset=utf-8"
UNWANTED = {"version", "started_at", "lease_number"}


class Metrics:
    """Answers GET /metrics with easeml.health and the coordinator's own counters."""

    def __init__(self, dsn: str, counters: Counters) -> None:
        self._dsn, self._counters = dsn, counters
        self._page, self._made = "", -FRESH_SECONDS
        self._making = asyncio.Lock()
        self._n_open = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, then close; close at once where too many wait already."""
        self._n_open += 1
        try:
            if self._n_open <= MAX_AT_ONCE:
                await self._answer_one(reader, writer)
        finally:
            self._n_open -= 1
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            request = await asyncio.wait_for(reader.readline(), REQUEST_SECONDS)
            status, text = await self._answer_to(request.decode("latin-1").split())
            head = f"HTTP/1.0 {status}\r\nContent-Type: {TEXT}\r\nContent-Length: {len(text.encode())}\r\n\r\n"
            writer.write((head + text).encode())
            await asyncio.wait_for(writer.drain(), REQUEST_SECONDS)

    async def _answer_to(self, words: list[str]) -> tuple[str, str]:
        if words[:1] != ["GET"] or len(words) != 3:
            return "405 Method Not Allowed", "GET /metrics\n"
        return ("200 OK", await self.page()) if words[1] == "/metrics" else ("404 Not Found", "GET /metrics\n")

    async def page(self) -> str:
        """Return the page, made no longer than a second ago."""
        async with self._making:
            if time.monotonic() >= self._made + FRESH_SECONDS:
                self._page = generate_latest(Numbers(self._counters.values(), await self._health())).decode()
                self._made = time.monotonic()
        return self._page

    async def _health(self) -> Mapping[str, Any]:
        """Return the row of easeml.health. Without a server there is none, but the counters are still served."""
        session = StoreSession(self._dsn, "easeml coordinator (metrics)", statement_timeout="5s")
        try:
            await session.open()
        except EasemlError:
            return {}
        try:
            return await session.row("health")
        except EasemlError:
            return {}
        finally:
            await session.close()


@dataclass(frozen=True)
class Numbers(Collector):
    """Counters of the process, and the numbers in a row of easeml.health as gauges; no row while there is no server."""

    counters: Mapping[str, float]
    health: Mapping[str, Any]

    def collect(self) -> Iterator[Metric]:
        """Yield them for Prometheus."""
        for name, value in self.counters.items():
            family = GaugeMetricFamily if name.startswith("longest") else CounterMetricFamily
            yield family(f"easeml_{name}", f"{name} since this coordinator started", value)
        yield GaugeMetricFamily("easeml_database_up", "whether easeml.health can be read", bool(self.health))
        for name, value in self.health.items():
            if isinstance(value, bool | int | float) and name not in UNWANTED and name not in self.counters:
                yield GaugeMetricFamily(f"easeml_{name}", f"column {name} of easeml.health", value)


@asynccontextmanager
async def metrics_on(port: int | None, dsn: str, counters: Counters) -> AsyncIterator[None]:
    """Serve the page at a port of this machine for as long as the block lasts; without a port, nothing."""
    if port is None:
        yield
        return
    try:
        server = await asyncio.start_server(Metrics(dsn, counters).answer, HOST, port, limit=MAX_LINE)
    except OSError as error:
        raise _refusal(port, error) from error
    async with server:
        yield


def _refusal(port: int, error: OSError) -> EasemlError:
    if error.errno == errno.EADDRINUSE:
        return InvalidArgument(
            f"--metrics-port: port {port} of {HOST} is in use", hint="Choose another, or end what listens there."
        )
    return NotAllowed(f"--metrics-port: port {port} of {HOST} cannot be opened: {error.strerror}")
