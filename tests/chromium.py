"""Headless Chromium over its debugging pipe: pages as a user's browser shows them."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")


class Browser:
    """One page of a browser. Messages are JSON that ends with a zero byte; events come in between answers."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._rest, self._number = b"", 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol; return its result. Raises RuntimeError."""
        self._number += 1
        session = {} if self._session is None else {"sessionId": self._session}
        message = {"id": self._number, "method": method, "params": parameters, **session}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._message()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                return found["result"]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._from, 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self._rest += part
        first, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message

    def open(self, address: str) -> None:
        """Go to an address, and wait until the page is there."""
        self.call("Page.navigate", url=address)
        self._loaded()

    def submit(self, form: str) -> None:
        """Send a form as a click on its button does, and wait for the page that follows."""
        self.value(f"document.querySelector({json.dumps(form)}).requestSubmit()")
        self._loaded()

    def _loaded(self) -> None:
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def value(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["text"])
        return found["result"].get("value")

    def look(self, *, width: int, scheme: str) -> None:
        """Show pages so many pixels wide, light or dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path) -> None:
        """Write the whole page as a PNG, once its pictures are there: a browser leaves those below for later."""
        waiting = "Promise.all([...document.images].map(each => { each.loading = 'eager'; return each.decode() }))"
        self.call("Runtime.evaluate", expression=waiting, awaitPromise=True)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start a browser with an empty profile, and end it."""
    (browser_in, to_browser), (from_browser, browser_out) = os.pipe(), os.pipe()
    options = " ".join((*OPTIONS, "--remote-debugging-pipe", f"--user-data-dir='{profile}'"))
    # The browser reads its commands from descriptor 3, and answers on 4.
    command = f"exec {CHROMIUM} {options} 3<&{browser_in} 4>&{browser_out}"
    process = subprocess.Popen(
        ["bash", "-c", command],
        pass_fds=(browser_in, browser_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(browser_in)
    os.close(browser_out)
    try:
        yield Browser(to_browser, from_browser)
    finally:
        os.close(to_browser)
        process.terminate()
        process.wait()
        os.close(from_browser)
