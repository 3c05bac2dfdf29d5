"""The console beside a stopped owner, with large cells, long timelines and names full of markup."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

import siltstone as st
from tests.server.rest import rest_to
from tests.server.stores import opened
from tests.support.browser import Browser, chromium

VIEWS = ("overview", "tables", "timeline", "search", "jobs", "connect", "table/t", "diff/1/2")
BLANK = "about:blank"
_OWNER = """
import sys
import siltstone as st

with st.connect(sys.argv[1], background=False) as db:
    db.create_table("t", {"id": "int64", "title": "string"}, "id").upsert({"id": 1, "title": "a"})
    db.checkpoint()
    db["t"].create_index("title", "fts")
    print(db.serve(port=0).url, flush=True)
    sys.stdin.read()
"""
_HASTE = """
const wait = window.setTimeout;
window.haste = 0;
window.setTimeout = (call, ms, ...more) =>
  wait(call, ms >= 5000 && window.haste-- > 0 ? 1 : ms, ...more);
"""
"""So many of the next bounds of a page are over at once."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(BLANK) as found:
        found.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _HASTE})
        yield found


@contextmanager
def shown(browser: Browser, db: st.Store) -> Generator[Browser]:
    with rest_to(db) as (service, _):
        browser.errors()
        try:
            yield Browser(browser.driver, service.url)
        finally:
            browser.driver.get(BLANK)


@contextmanager
def owner(path: Path) -> Generator[tuple[subprocess.Popen[str], str]]:
    """Yield a process that serves a store, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()  # also one that is stopped


def test_a_stopped_owner_is_said_on_every_page_which_goes_on_when_it_is_asked_again(
    browser: Browser, tmp_path: Path
) -> None:
    browser.look(390, 844, "dark")
    with owner(tmp_path / "shop") as (process, url):
        mine = Browser(browser.driver, url)
        mine.open("sql")
        for view in VIEWS:
            mine.js("location.hash = '#/sql'")
            mine.settled()
            os.kill(process.pid, signal.SIGSTOP)
            mine.js("window.haste = 1e9; location.hash = arguments[0]", f"#/{view}")
            mine.says("The server does not answer")
            assert "It may have stopped" in mine.settled(), view
            assert mine.violations() == [], view
            assert mine.js("return document.documentElement.scrollWidth <= innerWidth"), view
            mine.js("window.haste = 0")
            os.kill(process.pid, signal.SIGCONT)
            if view != "overview":  # which asks by itself
                mine.press("Try again")
            mine.until(lambda: not mine.js("return document.querySelectorAll('.bad').length"))
            assert "does not answer" not in mine.settled(), view
        browser.driver.get(BLANK)


def test_a_statement_that_a_stopped_owner_got_may_have_been_done(
    browser: Browser, tmp_path: Path
) -> None:
    with owner(tmp_path / "shop") as (process, url):
        mine = Browser(browser.driver, url)
        mine.open("sql")
        mine.typed("#statement", "INSERT INTO t VALUES (2, 'b')")
        os.kill(process.pid, signal.SIGSTOP)
        mine.js("window.haste = 1e9")
        mine.press("Run")
        mine.says("look whether it did before you run it again")
        mine.js("window.haste = 0")
        os.kill(process.pid, signal.SIGCONT)
        mine.typed("#statement", "SELECT count(*) FROM t")
        mine.press("Run")
        mine.says("1 rows, seq")
        browser.driver.get(BLANK)


def test_a_statement_that_takes_long_is_waited_for(browser: Browser, tmp_path: Path) -> None:
    """The bound is on a server that does not answer, not on what it works at."""
    with opened(tmp_path / "shop") as db, shown(browser, db) as mine:
        mine.open("sql")
        mine.js(_COUNTS)
        mine.typed("#statement", "SELECT sum(i * j) FROM range(5000) a(i), range(5000) b(j)")
        mine.press("Run")
        mine.says("1 rows")
        assert mine.js("return window.looks") <= 1


_COUNTS = """
const real = window.fetch;
window.looks = 0;
window.haste = 1;
window.fetch = (url, ...more) => {
  window.looks += String(url).endsWith('healthz');
  return real(url, ...more);
};
"""
"""The server is asked once whether it lives, as soon as a request is on its way."""
LARGE = 10_000_000
BEGINNING = "lamp " + "x" * 200


def test_cells_of_ten_megabytes_are_a_beginning_and_a_size_wherever_they_are(
    browser: Browser, tmp_path: Path
) -> None:
    browser.look(1280, 900, "light")
    with opened(tmp_path / "shop") as db, shown(browser, db) as mine:
        columns = {"id": "int64", "title": "string", "blob": "binary"}
        table = db.create_table("big", columns, "id")
        text = BEGINNING + "x" * (LARGE - len(BEGINNING))
        table.upsert({"id": 1, "title": text, "blob": b"y" * LARGE})
        table.upsert({"id": 1, "title": text.replace("x", "z"), "blob": b"y" * LARGE})
        mine.open("sql")
        mine.typed("#statement", "SELECT * FROM big")
        mine.press("Run")
        mine.says("1 rows, seq")
        assert_cut(mine, f"({LARGE:,} characters)", "(9.5 MiB)")
        mine.open("diff/2/3")
        assert_cut(mine, f"({LARGE:,} characters)", "→ lamp zzz")
        mine.open("table/big")
        assert_cut(mine, f"({LARGE} characters)")
        assert mine.errors() == []


def test_a_search_shows_of_large_cells_the_beginning_and_the_size(
    browser: Browser, tmp_path: Path
) -> None:
    with opened(tmp_path / "shop") as db, shown(browser, db) as mine:
        table = db.create_table("t", {"id": "int64", "title": "string", "body": "string"}, "id")
        table.upsert({"id": 1, "title": "lamp", "body": BEGINNING.ljust(LARGE, "x")})
        db.checkpoint()
        db.merge()
        table.create_index("title", "fts")
        mine.open("search")
        mine.typed("main form input", "lamp")
        mine.press("Search")
        mine.says("characters)")
        assert_cut(mine, f"({LARGE:,} characters)")


def assert_cut(browser: Browser, *sizes: str) -> None:
    """Look that the page says how large its cells are, and has little of them."""
    text = browser.settled()
    assert "lamp " in text
    for size in sizes:
        assert size in text
    assert browser.js("return document.documentElement.innerHTML.length") < 100_000
    assert browser.js("return document.documentElement.scrollWidth <= innerWidth")


_LABELS = """
return [...document.querySelectorAll('.timeline a')].map(each => each.getAttribute('aria-label'))
"""


@pytest.mark.parametrize("width", [1280, 390])
def test_names_of_tables_stay_in_sight_however_long_the_timeline_is(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    browser.look(width, 844, "light")
    with opened(tmp_path / "shop") as db, shown(browser, db) as mine:
        table = db.create_table("n" * 128, {"id": "int64"}, "id")
        for at in range(200):
            with db.transaction(durability="async") as tx:
                tx[table.name].upsert({"id": at})
        mine.open("timeline")
        region = "const region = document.querySelector('[aria-label=Timeline]');"
        mine.until(lambda: mine.js(f"{region} return region.scrollLeft > 0"))
        name = "document.querySelector('.names div').getBoundingClientRect()"
        begin, end, from_, to = mine.js(
            f"{region} const box = region.getBoundingClientRect(), name = {name};"
            "return [name.left, name.right, box.left, box.right]"
        )
        assert from_ <= begin < end <= from_ + (to - from_) / 2
        assert mine.js("return document.documentElement.scrollWidth <= innerWidth")
        assert mine.violations() == []


def test_publishes_stand_between_the_commits_and_say_what_made_them(
    browser: Browser, tmp_path: Path
) -> None:
    browser.look(1280, 900, "light")
    with opened(tmp_path / "shop") as db, shown(browser, db) as mine:
        goods = db.create_table("goods", {"id": "int64"}, "id")
        goods.upsert({"id": 1})
        db.checkpoint()
        db.merge()
        goods.upsert({"id": 2})
        mine.open("timeline")
        found = [re.sub(r", 20[^ ]+Z", "", each) for each in mine.js(_LABELS)]
        assert found == [
            "seq 1: create goods",
            "seq 2: 1 row in goods",
            "record 3: checkpoint of goods",
            "record 4: merge of goods",
            "seq 3: 1 row in goods",
        ]
        assert mine.element("ul[aria-label=Publishes]").text.split() == ["checkpoint", "merge"]
        mine.js("document.querySelectorAll('.timeline .publish')[0].focus()")
        mine.driver.switch_to.active_element.send_keys("\n")
        mine.says("Record 3")
        assert "Commits up to seq 2 are in files" in mine.settled()
        assert mine.violations() == []
        mine.press("Open as of seq 2")
        mine.says("as of seq 2")
        assert mine.errors() == []


MARKUP = "<img src=x onerror=\"document['title']='taken'\">&amp;'"
_PRESSES = """
for (const each of document.querySelectorAll('.timeline a')) each.dispatchEvent(new Event('click'));
"""


def test_names_and_values_full_of_markup_are_text_on_every_page(
    browser: Browser, tmp_path: Path
) -> None:
    with opened(tmp_path / "shop") as db, shown(browser, db) as mine:
        table = db.create_table("t", {"id": "int64", MARKUP: "string"}, "id")
        table.upsert({"id": 1, MARKUP: MARKUP * 20})
        table.upsert({"id": 1, MARKUP: MARKUP})
        db.checkpoint()
        db.merge()
        table.create_index(MARKUP, "fts", name="words")
        with db.transaction(token=(MARKUP, 1)) as tx:
            tx["t"].upsert({"id": 2, MARKUP: MARKUP})
        db.tag(MARKUP)
        for view in ("table/t", "timeline", "search", "diff/2/3", f"diff/{quote(MARKUP)}/3"):
            assert "onerror" in mine.open(view), view
            mine.js(_PRESSES)
            assert mine.js("return document.querySelectorAll('main img').length") == 0, view
            assert mine.js("return document.title") != "taken"
        assert mine.errors() == []
