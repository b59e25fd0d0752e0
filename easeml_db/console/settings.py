"""The options of `easeml console`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from secrets import token_urlsafe


@dataclass(frozen=True)
class Settings:
    """Where the console listens, and which server it shows; `key` is known only to users who saw its address printed.

    Without the key any user of the machine could try roles of a server that trusts local connections.
    """

    dsn: str
    host: str = "127.0.0.1"
    port: int = 8642
    key: str = field(default_factory=lambda: token_urlsafe(24))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return self.host == "localhost" or (self._ip is not None and self._ip.is_loopback)

    @property
    def is_any_address(self) -> bool:
        """Whether the host stands for all addresses of the machine, and so for none that a browser can ask."""
        return self.host in ("", "*", "0") or (self._ip is not None and self._ip.is_unspecified)

    @property
    def hosts(self) -> frozenset[str]:
        """Names under which a browser may ask: under another, some other site's page would be asking."""
        names = {self._shown, "localhost", "127.0.0.1"} if self.is_loopback else {self._shown}
        with_port = frozenset(f"{name}:{self.port}" for name in names)
        return with_port | names if self.port == 80 else with_port  # browsers leave that port out

    @property
    def address(self) -> str:
        """The address of the login page, with the key."""
        return f"http://{self._shown}:{self.port}/login?key={self.key}"

    @property
    def _shown(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def _ip(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None
