"""A real browser for tests of pages: Chromium without a window, its logs, and axe-core.

Each test asks for the fixture `browser` (`conftest.py`), one for the session. It skips where none is installed.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import importlib.util
import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fakes import port_keeper

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_AXE = Path(__file__).parent / "vendor" / "axe.min.js"
_ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"),
    *("--force-color-profile=srgb", "--force-prefers-reduced-motion"),
)


def missing() -> str | None:
    """Say what a browser test lacks here, or None."""
    if importlib.util.find_spec("selenium") is None:
        return "selenium is not installed; run `make test`, or install environment/locks/dev.txt"
    if _program() is None or shutil.which("chromedriver") is None:
        return "no Chromium with its driver is installed; on Debian: apt-get install chromium chromium-driver"
    return None


class Browser:
    """A headless Chromium, and what it says of the page that it is at."""

    def __init__(self, driver: Any) -> None:
        """Take a selenium driver whose logs are on."""
        self.driver = driver

    def open(self, url: str, *, width: int = 1400, height: int = 900) -> None:
        """Open a page in a window of this size, with nothing in the logs but what comes of it."""
        self.resize(width, height)
        self.driver.get("about:blank")
        self.forget()
        self.driver.get(url)

    def resize(self, width: int, height: int = 900) -> None:
        """Give the page so many CSS pixels: a headless window cannot be made as narrow as a phone."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def forget(self) -> None:
        """Empty both logs."""
        for log in ("browser", "performance"):
            self.driver.get_log(log)

    def run(self, script: str, *arguments: object) -> Any:
        """Run a script in the page and return what it returns."""
        return self.driver.execute_script(script, *arguments)

    def press(self, key: str) -> None:
        """Press a key, one of selenium's `Keys`, where the focus is."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(key).perform()

    def complaints(self) -> list[str]:
        """Return the errors and warnings of the page's console since it was asked last."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Return the addresses that were asked for since this was asked last; data within the page is none."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if urlsplit(url).scheme not in ("data", "about", "blob")]

    def faults(self) -> list[str]:
        """Return what axe-core calls serious or critical, a sentence each with the elements."""
        if not self.run("return typeof axe === 'object'"):
            # By the debugger, since a page's policy may let no other script in.
            self.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": _AXE.read_text(encoding="utf-8")})
        found = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run({resultTypes: ['violations']}).then(found => done(found.violations))"
        )
        return [
            f"{fault['id']}: {fault['help']}: {'; '.join(node['html'][:120] for node in fault['nodes'][:5])}"
            for fault in found
            if fault["impact"] in ("serious", "critical")
        ]

    def picture(self, path: Path) -> None:
        """Write the whole page, below the window's edge too, as a PNG."""
        size = "return [document.documentElement.clientWidth, document.documentElement.scrollHeight]"
        width, height = self.run(size)
        self.resize(width, min(height, 8000))
        self.driver.save_screenshot(str(path))


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    """Start a browser with a fresh profile, and end it with the block."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        options = ChromeOptions()
        options.binary_location = _program() or ""
        for argument in (*_ARGUMENTS, f"--user-data-dir={profile}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "WARNING", "performance": "ALL"})
        with port_keeper() as held:
            service = ChromeService(executable_path=shutil.which("chromedriver"), port=held.getsockname()[1])
            driver = Chrome(options=options, service=service)
            try:
                driver.set_script_timeout(60)
                yield Browser(driver)
            finally:
                driver.quit()


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine alone; the value is its address, without a slash at the end."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that says nothing."""

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


def _program() -> str | None:
    return next((found for name in _NAMES if (found := shutil.which(name))), None)
