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
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_any_address(self) -> bool:
        """Whether the host stands for all addresses of the machine, and so for none that a browser can ask."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return self.host in ("", "*", "0")

    @property
    def hosts(self) -> frozenset[str]:
        """Names under which a browser may ask: under another, some other site's page would be asking."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        names = {shown, "localhost", "127.0.0.1"} if self.is_loopback else {shown}
        with_port = frozenset(f"{name}:{self.port}" for name in names)
        return with_port | names if self.port == 80 else with_port  # browsers leave that port out

    @property
    def address(self) -> str:
        """The address of the login page, with the key."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self.port}/login?key={self.key}"
