"""The console, in a browser: every page with data, empty, without a right, and by the keyboard."""

from __future__ import annotations

import datetime as dt
import http.client
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.maintenance.schedule.mirror_status import MirrorStatus
from siltstone.maintenance.schedule.status import JobStatus
from siltstone.server.rest.tokens import new_token, tokens_of
from tests.server.rest import rest_to
from tests.server.stores import opened
from tests.support.browser import Browser, chromium

VIEWS = ("overview", "tables", "timeline", "sql", "search", "jobs", "connect")
LOOKS = {"wide, light": (1280, 900, "light"), "narrow, dark": (390, 844, "dark")}
SECRETS = {role: new_token() for role in ("read", "admin")}
TOKENS = tokens_of(";".join(f"{role} {role} {text}" for role, text in SECRETS.items()), "test")
LONG = "n" * 128


def fill(db: st.Store) -> int:
    """Make two tables with a past, an index of each kind, and a tag; return the newest seq."""
    start = dt.datetime(2026, 11, 29, 8, tzinfo=dt.UTC)
    orders = db.create_table("orders", {"id": "int64", "city": "string", "at": "timestamp"}, "id")
    vector = pa.list_(pa.float32(), 2)
    fields = [pa.field("id", pa.int64(), False), ("title", pa.string()), ("vector", vector)]
    goods = db.create_table("goods", pa.schema(fields), "id")
    titles = ["silver lamp", "oak table", "silver chair"]
    goods.upsert(
        [{"id": at, "title": title, "vector": [at, 1.0]} for at, title in enumerate(titles)]
    )
    for each in range(30):
        orders.upsert({"id": each % 10, "city": f"city {each}", "at": start.replace(tzinfo=None)})
    db.checkpoint()
    db.merge()
    goods.create_index("title", "fts")
    goods.create_index("vector", "vector")
    db.tag("noon", seq=12)
    return orders.upsert({"id": 3, "city": "Oslo", "at": None}).seq


LAST_SEQ = 35


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Yield a browser beside a store that needs no token."""
    with opened(tmp_path_factory.mktemp("console") / "shop") as db:
        assert fill(db) == LAST_SEQ
        with rest_to(db) as (service, _), chromium(service.url) as browser:
            yield browser


@contextmanager
def shown(browser: Browser, db: st.Store, **options: object) -> Iterator[Browser]:
    """Show the console of another store in the same browser."""
    with rest_to(db, **options) as (service, _):
        browser.errors()
        try:
            yield Browser(browser.driver, service.url)
        finally:
            service.close()


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("view", [*VIEWS, "table/orders", f"diff/20/{LAST_SEQ}"])
def test_a_page_has_no_error_fits_its_window_and_shuts_nobody_out(
    page: Browser, view: str, look: str
) -> None:
    page.look(*LOOKS[look])
    text = page.open(view)
    assert page.js("return document.querySelectorAll('.bad').length") == 0, text
    assert page.js("return document.documentElement.scrollWidth <= innerWidth")
    assert page.errors() == []
    assert page.violations() == []


@pytest.mark.parametrize(
    ("view", "says"),
    [
        ("overview", "Sequence number"),
        ("tables", "no tables yet"),
        ("timeline", "Nothing was committed yet"),
        ("search", "No table has an index"),
        ("jobs", "None yet"),
        ("connect", "curl"),
    ],
)
def test_an_empty_store_says_what_would_be_here(
    page: Browser, tmp_path: Path, view: str, says: str
) -> None:
    with opened(tmp_path / "empty") as db, shown(page, db) as empty:
        assert says in empty.open(view)
        assert empty.errors() == []


def test_a_statement_runs_now_and_as_of_a_tag_and_shows_its_plan(page: Browser) -> None:
    page.look(*LOOKS["wide, light"])
    page.open("sql")
    page.typed("#statement", "SELECT city FROM orders WHERE id = 3")
    page.press("Run")
    page.says("Oslo")
    moment = "const moment = document.querySelector('#moment'); moment.value = 'tag:noon';"
    page.until(lambda: page.js(f"{moment} return moment.value"))  # tags come a moment later
    page.press("Run")
    page.says("seq 12")
    assert "Oslo" not in page.settled()
    page.press("Plan")
    page.says("ARROW_SCAN")
    page.typed("#statement", "SELECT nonsense FROM orders")
    page.press("Run")
    page.says("nonsense")
    assert page.js("return document.querySelectorAll('.bad').length") == 1


def test_a_statement_that_writes_says_what_it_wrote(page: Browser, tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as db, shown(page, db) as mine:
        db.create_table("t", {"id": "int64"}, "id")
        mine.open("sql")
        mine.typed("#statement", "INSERT INTO t VALUES (1), (2)")
        mine.press("Run")
        mine.says("2 rows written")
        assert db["t"].count() == 2


def test_all_rows_of_a_statement_are_saved_as_a_file(page: Browser, tmp_path: Path) -> None:
    page.look(*LOOKS["wide, light"])
    saved = {"behavior": "allow", "downloadPath": str(tmp_path), "eventsEnabled": True}
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", saved)
    page.open("sql")
    page.typed("#statement", "SELECT i FROM range(3000) AS t(i)")
    page.press("Run")
    page.says("the first 1,000 rows")
    page.press("CSV")
    page.until((tmp_path / "rows.csv").exists)
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 3001


def test_a_commit_of_the_timeline_opens_the_store_as_of_then_and_what_differs(
    page: Browser,
) -> None:
    page.look(*LOOKS["wide, light"])
    page.open("timeline")
    page.js("document.querySelectorAll('.timeline .commit')[3].focus()")
    page.driver.switch_to.active_element.send_keys("\n")
    page.says("Open as of here")
    page.press("Open as of here")
    page.says("as of seq")
    page.driver.get(f"{page.base}/console#/tables")
    page.settled()
    page.until(
        lambda: page.js("return document.querySelector('[data-table=orders]').innerText !== '…'")
    )
    assert page.js("return document.querySelector('[data-table=orders]').innerText") != "10"
    page.press("Back to now")
    page.settled()
    page.until(
        lambda: page.js("return document.querySelector('[data-table=orders]').innerText === '10'")
    )
    assert "Oslo" in page.open(f"diff/{LAST_SEQ - 1}/{LAST_SEQ}")


def test_a_row_shows_its_history(page: Browser) -> None:
    page.look(*LOOKS["wide, light"])
    page.open("table/orders")
    page.typed("input[name=id]", "3")
    page.press("Show")
    page.says("city 13")
    text = page.settled()
    assert text.index("Oslo") < text.index("city 23") < text.index("city 13")


def test_tables_show_their_bytes_and_jobs_what_was_done(page: Browser) -> None:
    page.look(*LOOKS["wide, light"])
    assert "KiB" in page.open("tables")
    assert "of base and" in page.open("table/orders")
    page.open("jobs")
    done = "[...document.querySelectorAll('[aria-label=Done] tbody tr')].map(r => r.innerText)"
    runs = {line.split()[0]: line.split()[1] for line in page.js(f"return {done}")}
    assert runs.keys() == {"checkpoint", "merge", "optimize", "vacuum", "backup"}
    assert int(runs["checkpoint"]) >= 1
    assert runs["backup"] == "0"


RARE = {
    "mirrors": [MirrorStatus("s3://copies/shop", 4, 30, 1 << 20, behind=5, age_s=12.0)],
    "unshipped": 3,
    "shipping": "the bucket does not answer",
    "jobs": [JobStatus("j1", "running", "merge", ("orders",), 7, "host", 1, None, 2)],
}
DEFERRED = {"outcome": "Deferred", "reason": "others won", "attempts": 8}


LOST = "another process changed the base of 'orders' meanwhile"
MERGED = {"outcome": "Merged", "seq": 9, "tables": ["orders"], "rows": 4, "replans": [LOST, LOST]}


def test_a_mirror_that_is_behind_and_jobs_that_lost_say_so(page: Browser) -> None:
    page.look(*LOOKS["narrow, dark"])
    page.errors()
    answers = {"/v1/status": RARE, "/v1/jobs": {"jobs": [job(MERGED), job(DEFERRED)]}}
    changed = page.driver.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument",
        {"source": f"const changed = {msgspec.json.encode(answers).decode()};{_CHANGES}"},
    )
    try:
        text = page.open("overview")
        for words in ("5 behind", "s3://copies/shop", "12.0 s old", "the bucket does not answer"):
            assert words in text
        text = page.open("jobs")
        assert "deferred after 8 plans: others won" in text
        assert f"rows 4; planned again 2 times: {LOST}" in text
        assert "7 on host" in text
        assert page.js("return document.documentElement.scrollWidth <= innerWidth")
        assert page.errors() == []
    finally:
        page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", changed)


def job(result: object) -> dict[str, object]:
    return {"id": "j0", "kind": "merge", "status": "succeeded", "result": result, "error": None}


_CHANGES = """
const asked = window.fetch;
window.fetch = async (url, ...more) => {
  const answer = await asked(url, ...more);
  const found = changed[new URL(url).pathname];
  return found ? Response.json({...await answer.json(), ...found}) : answer;
};
"""
"""What a store without a bucket, and without other processes, never answers."""


def test_a_search_finds_words_and_the_neighbours_of_a_row(page: Browser) -> None:
    page.look(*LOOKS["wide, light"])
    page.open("search")
    page.typed("main form input", "silver")
    page.press("Search")
    page.says("silver chair")
    assert "oak table" not in page.settled()
    page.js(
        "const chosen = document.querySelector('main form select');"
        "chosen.value = '1'; chosen.dispatchEvent(new Event('change'))"
    )
    page.typed("main form input", "1")
    page.press("Search")
    page.says("oak table")


def test_a_wrong_token_is_refused_and_a_right_one_is_kept_until_it_is_given_back(
    page: Browser, tmp_path: Path
) -> None:
    with opened(tmp_path / "shop") as db, shown(page, db, tokens=TOKENS) as locked:
        locked.driver.get(f"{locked.base}/console")
        locked.says("asks for a token")
        locked.typed("#token", new_token())
        locked.press("Sign in")
        locked.says("not known to this server")
        locked.typed("#token", SECRETS["read"])
        locked.press("Sign in")
        locked.says("Sequence number")
        locked.driver.refresh()
        locked.says("Sequence number")
        assert SECRETS["read"] not in locked.js("return location.href + document.body.innerHTML")
        locked.press("Sign out")
        locked.says("asks for a token")
        assert locked.js("return sessionStorage.length") <= 1


def test_a_token_that_may_only_read_is_told_so_where_it_may_not(
    page: Browser, tmp_path: Path
) -> None:
    with opened(tmp_path / "shop") as db, shown(page, db, tokens=TOKENS) as locked:
        db.create_table("t", {"id": "int64"}, "id")
        locked.driver.get(f"{locked.base}/console")
        locked.says("asks for a token")
        locked.typed("#token", SECRETS["read"])
        locked.press("Sign in")
        locked.says("Sequence number")
        locked.driver.get(f"{locked.base}/console#/jobs")
        locked.settled()
        locked.press("Checkpoint")
        locked.says("Your token may not do this")
        locked.driver.get(f"{locked.base}/console#/sql")
        locked.typed("#statement", "INSERT INTO t VALUES (1)")
        locked.press("Run")
        locked.says("Your token may not do this")
        assert db["t"].count() == 0


def entered(browser: Browser, role: str) -> None:
    """Sign in with the token of a role."""
    browser.driver.get("about:blank")
    browser.driver.get(f"{browser.base}/console")
    browser.says("asks for a token")
    browser.typed("#token", SECRETS[role])
    browser.press("Sign in")
    browser.says("Sequence number")
    browser.errors()  # the first look had no token


def test_every_page_is_there_for_a_token_that_reads_and_asks_one_that_is_none(
    page: Browser, tmp_path: Path
) -> None:
    page.look(*LOOKS["wide, light"])
    with opened(tmp_path / "shop") as db, shown(page, db, tokens=TOKENS) as locked:
        db.create_table("t", {"id": "int64"}, "id").upsert({"id": 1})
        entered(locked, "read")
        for view in (*VIEWS, "table/t", "diff/1/2"):
            text = locked.open(view)
            assert locked.js("return document.querySelectorAll('.bad, .warn').length") == 0, text
        assert locked.errors() == []
        for view in ("tables", "table/t", "timeline", "jobs", "connect", "search", "diff/1/2"):
            locked.js("sessionStorage.setItem('siltstone.token', arguments[0])", new_token())
            locked.driver.get("about:blank")
            locked.driver.get(f"{locked.base}/console#/{view}")
            locked.says("asks for a token")
            assert locked.js("return document.querySelectorAll('#views a').length") == 0
        locked.errors()


def snippets(browser: Browser) -> dict[str, str]:
    """Return the programs of the page of connections, by their names."""
    browser.open("connect")
    found = "[...document.querySelectorAll('pre')].map(e => [e.dataset.snippet, e.textContent])"
    return dict(browser.js(f"return {found}"))


def ran(name: str, text: str) -> str:
    """Run a program as it stands, with a token in its variable; return what it prints."""
    if name == "curl" and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = ["sh", "-c", text] if name == "curl" else [sys.executable, "-c", text]
    variables = {**os.environ, "SILTSTONE_TOKEN": SECRETS["admin"]}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    assert done.returncode == 0, (text, done.stdout, done.stderr)
    return done.stdout


PROGRAMS = {"Python": "[(1, 'Oslo')]", "curl": '{"row":{"id":1,"city":"Oslo"}}', "DuckDB": "[(1,)]"}
OTHERS = {"Spark": "Oslo", "LanceDB, and other clients of the Lance Namespace": "orders-2026"}


@pytest.mark.parametrize("names", [PROGRAMS, OTHERS], ids=["quick", "others"])
def test_what_the_page_says_of_a_program_runs_as_it_stands(
    page: Browser, tmp_path: Path, names: dict[str, str]
) -> None:
    with opened(tmp_path / "shop") as db, shown(page, db, tokens=TOKENS) as locked:
        table = db.create_table("orders-2026", {"id": "int64", "city": "string"}, "id")
        table.upsert({"id": 1, "city": "Oslo"})
        entered(locked, "admin")
        said = snippets(locked)
        assert said.keys() == {*PROGRAMS, *OTHERS}
        for name, words in names.items():
            assert words in ran(name, said[name])
        assert SECRETS["admin"] not in "".join(said.values())


def test_the_programs_for_an_open_and_empty_store_run_too(page: Browser, tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as db, shown(page, db) as mine:
        said = snippets(mine)
        assert "42" in ran("Python", said["Python"])
        assert "TOKEN" not in "".join(said.values())


def test_the_keyboard_alone_reaches_each_view_and_runs_a_statement(page: Browser) -> None:
    keys: Any = pytest.importorskip("selenium.webdriver.common.keys").Keys
    page.look(*LOOKS["wide, light"])
    page.open()
    names = list[str]()
    for _ in range(2 + len(VIEWS)):
        page.driver.switch_to.active_element.send_keys(keys.TAB)
        names.append(page.driver.switch_to.active_element.text)
        outline = "return getComputedStyle(document.activeElement).outlineStyle"
        assert page.js(outline) != "none", names
    views = ["Overview", "Tables", "Timeline", "SQL", "Search", "Jobs", "Connect"]
    assert names == ["Skip to the content", "Siltstone", *views]
    page.js("document.querySelector('#views a[data-view=sql]').focus()")
    page.driver.switch_to.active_element.send_keys(keys.ENTER)
    page.until(lambda: page.js("return document.querySelector('#statement') !== null"))
    page.typed("#statement", "SELECT 6 * 7 AS found")
    page.element("#statement").send_keys(keys.CONTROL, keys.ENTER)
    page.says("42")


def test_a_stopped_owner_is_said_and_the_page_goes_on_with_the_next(
    page: Browser, tmp_path: Path
) -> None:
    with opened(tmp_path / "shop") as db, shown(page, db) as first:
        first.open()
    first.says("The server does not answer")
    port = int(first.base.rpartition(":")[2])
    with opened(tmp_path / "shop") as db, rest_to(db, port=port):
        first.says("Sequence number")
        first.driver.get("about:blank")
        first.errors()


def test_wide_tables_long_names_and_large_cells_stay_within_the_page(
    page: Browser, tmp_path: Path
) -> None:
    page.look(*LOOKS["narrow, dark"])
    with opened(tmp_path / "shop") as db, shown(page, db) as mine:
        columns = {"id": "int64", **{f"c{at}": "int64" for at in range(1000)}}
        db.create_table("broad", columns, "id").upsert({"id": 1}, missing="null")
        db.create_table(LONG, {"id": "int64", "text": "string"}, "id").upsert(
            {"id": 1, "text": "x" * 10_000_000}
        )
        for view in ("tables", "table/broad", f"table/{LONG}"):
            text = mine.open(view)
            assert mine.js("return document.documentElement.scrollWidth <= innerWidth"), view
            assert mine.js("return document.querySelectorAll('.bad').length") == 0, text
            assert len(text) < 100_000
        mine.open("table/broad")
        mine.press("Columns after")
        mine.says("columns 41 to 80 of 1,001")
        mine.open("sql")
        for statement in ("SELECT * FROM broad", f"SELECT * FROM {LONG}"):
            mine.typed("#statement", statement)
            mine.press("Run")
            mine.says("1 rows, seq")
            assert mine.js("return document.documentElement.scrollWidth <= innerWidth"), statement
            assert len(mine.settled()) < 100_000
        assert mine.errors() == []


class _Proxy(http.server.BaseHTTPRequestHandler):
    """Hands on what is asked below /lake, without that."""

    port = 0

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._pass()

    def do_POST(self) -> None:
        self._pass()

    def _pass(self) -> None:
        assert self.path.startswith("/lake"), self.path
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        kept = {name: value for name, value in self.headers.items() if name.lower() in _PASSED}
        behind = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        behind.request(self.command, self.path.removeprefix("/lake") or "/", body or None, kept)
        answer = behind.getresponse()
        text = answer.read()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in {"connection", "transfer-encoding", "content-length"}:
                self.send_header(name, value)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        behind.close()


_PASSED = {"content-type", "authorization", "x-siltstone-snapshot"}


@pytest.mark.parametrize("path", ["/", "/console", "/console/"])
def test_a_proxy_may_put_the_server_below_any_path(page: Browser, path: str) -> None:
    port = int(page.base.rpartition(":")[2])
    handler = type("Proxy", (_Proxy,), {"port": port})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            page.errors()
            behind = Browser(page.driver, f"http://127.0.0.1:{proxy.server_port}/lake")
            assert "orders" in behind.open("tables", path=path)
            assert behind.errors() == []
            assert f":{proxy.server_port}/lake/v1/sql" in behind.open("connect", path=path)
            behind.driver.get("about:blank")
        finally:
            proxy.shutdown()
            thread.join()
