"""Browser: Debian's Chromium without a window, driven by selenium; it is used where it is there."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WAIT_S = 25
_AXE = "axe-core@4"


class Browser:
    """One window; `base` is the address of the console that it shows."""

    def __init__(self, driver: Any, base: str) -> None:
        self.driver, self.base = driver, base

    def look(self, width: int, height: int, scheme: str) -> None:
        """Show pages in this size and scheme of colors from now on."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def open(self, view: str = "overview", *, path: str = "/console") -> str:
        """Load the page anew, wait until nothing is on its way, and return its text."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.base}{path}#/{view}")
        return self.settled()

    def settled(self) -> str:
        """Return the text of the page once all of it came."""
        self.until(lambda: self.js(_IS_SETTLED))
        return str(self.js("return document.body.innerText"))

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, WAIT_S).until(lambda _: holds())

    def says(self, text: str) -> None:
        """Wait until the page shows a text."""
        self.until(lambda: text in self.js("return document.body.innerText"))

    def js(self, script: str, *given: object) -> Any:
        return self.driver.execute_script(script, *given)

    def element(self, css: str) -> Any:
        return self.driver.find_element("css selector", css)

    def press(self, name: str) -> None:
        """Press the button of this name."""
        self.driver.find_element("xpath", f"//button[normalize-space()='{name}']").click()

    def typed(self, css: str, text: str) -> None:
        """Replace what stands in a field."""
        field = self.element(css)
        field.clear()
        field.send_keys(text)

    def errors(self) -> list[str]:
        """Return what the browser's console says that went wrong, since the last time."""
        return [each["message"] for each in self.driver.get_log("browser")]

    def violations(self) -> list[object]:
        """Return what axe-core finds that shuts people out of the page."""
        self.js(axe())
        run = "axe.run().then(r => arguments[0](r.violations.map(v => [v.id, v.nodes[0].html])))"
        return list(self.driver.execute_async_script(run))


_IS_SETTLED = (
    "return document.querySelectorAll('#views a').length > 0"
    " && !document.querySelector('[aria-busy=true]')"
)


@contextmanager
def chromium(base: str) -> Generator[Browser]:
    """Yield a browser; skip the test where there is none."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    place, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if place is None or driver is None:
        pytest.skip("Debian's packages chromium and chromium-driver are not installed")
    options = selenium.ChromeOptions()
    options.binary_location = place
    alone = "host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"  # another host is an error
    for each in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", alone):
        options.add_argument(f"--{each}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = selenium.ChromeService(driver)
    found = selenium.Chrome(options=options, service=service)
    found.set_script_timeout(WAIT_S)
    try:
        yield Browser(found, base)
    finally:
        found.quit()


@functools.cache
def axe() -> str:
    """Return axe-core, which npm fetches; skip the test where it cannot."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed: no axe-core, so no page is looked at for its access")
    pack = [npm, "exec", "--yes", f"--package={_AXE}", "--", "node", "-p"]
    tell = [*pack, "require.resolve('axe-core/axe.min.js', {paths: process.env.PATH.split(':')})"]
    done = subprocess.run(tell, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"npm has no {_AXE}, and cannot fetch it")
    return Path(done.stdout.strip()).read_text()
