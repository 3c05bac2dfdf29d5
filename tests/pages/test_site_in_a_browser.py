"""The site, in a browser: it shuts nobody out, fits its window, and asks no other host."""

from __future__ import annotations

import functools
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from pages.built import SITE
from pages.tree import ROOT
from tests.support.browser import Browser, chromium

PAGES = ("", "tour/", "reference/transactions/", "guarantees/", "benchmarks/", "life/")
LOOKS = {
    f"{width}, {scheme}": (width, 900, scheme)
    for width in (1280, 390)
    for scheme in ("light", "dark")
}
_FIRST_VISIT = "localStorage.clear()"
"""Else the colors of the first page are those of all: the theme keeps what it chose."""
_GROUND = "return getComputedStyle(document.body).backgroundColor"
_GROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 23, 28)"}
_ASKED = "return performance.getEntriesByType('resource').map(each => new URL(each.name).host)"
AXE_S = 240
"""The longest that it may look at a page, on a machine as busy as may be."""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called
        """Say nothing."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Build the site as `make docs` does, and yield a browser beside it."""
    pytest.importorskip("mkdocs", reason="the group docs is not installed")
    with chromium("about:blank") as found:
        build = [sys.executable, "-m", "pages"]
        done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        handler = functools.partial(_Quiet, directory=SITE)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            source = {"source": _FIRST_VISIT}
            found.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
            found.driver.set_script_timeout(AXE_S)
            try:
                yield Browser(found.driver, f"http://127.0.0.1:{server.server_port}")
                found.driver.get("about:blank")
            finally:
                server.shutdown()
                thread.join()


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_shuts_nobody_out_has_no_error_and_asks_this_host_alone(
    browser: Browser, page: str, look: str
) -> None:
    browser.driver.get("about:blank")  # or the page before hears of the new colors, and keeps them
    browser.errors()
    browser.look(*LOOKS[look])
    browser.driver.get(f"{browser.base}/{page}")
    browser.until(lambda: browser.js("return document.readyState === 'complete'"))
    browser.until(lambda: browser.js(_GROUND) == _GROUNDS[LOOKS[look][2]])
    assert browser.js("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.violations() == []
    assert {*browser.js(_ASKED)} <= {browser.base.removeprefix("http://")}
    assert browser.errors() == []


@pytest.mark.parametrize("page", ["benchmarks/", "life/", "tour/"])
def test_each_picture_of_a_page_is_there_and_has_words(browser: Browser, page: str) -> None:
    browser.driver.get(f"{browser.base}/{page}")
    browser.until(lambda: browser.js("return document.readyState === 'complete'"))
    found = browser.js(
        "return [...document.querySelectorAll('article img')].map(e => [e.naturalWidth, e.alt])"
    )
    assert found
    assert all(width > 0 and words for width, words in found), found
