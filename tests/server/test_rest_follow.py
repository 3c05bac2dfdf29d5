"""A client follows commits as server-sent events, and goes on where its connection ended."""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import siltstone as st
from siltstone.server.rest.native.follow import FOLLOWERS_MAX, ROWS_MAX
from siltstone.server.rest.server import RestServer
from tests.server.rest import rest_of


class Events:
    """An event source: what `EventSource` of a browser makes of the stream."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.response = response
        self.last_id = ""

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        kind, data = "message", ""
        while line := self.response.readline().decode().rstrip("\n") or not self._is_over():
            if line is True:
                if data:
                    yield kind, json.loads(data)
                kind, data = "message", ""
                continue
            name, _, value = line.partition(": ")
            if name == "id":
                self.last_id = value
            elif name == "event":
                kind = value
            elif name == "data":
                data += value

    def _is_over(self) -> bool:
        return self.response.isclosed()

    def changes(self, count: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for kind, data in self:
            assert kind == "change", data
            found.append(data)
            if len(found) == count:
                break
        return found


@contextmanager
def following(service: RestServer, query: str = "", **headers: str) -> Generator[Events]:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET", f"/v1/follow{query}", headers=sent)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    assert response.headers["content-type"].startswith("text/event-stream")
    try:
        yield Events(response)
    finally:
        response.close()
        connection.close()


def filled(db: st.Store) -> None:
    db.create_table("a", {"id": "int64"}, "id")
    db.create_table("b", {"id": "int64"}, "id")
    db["a"].upsert({"id": 1})


def test_commits_come_whole_and_in_order_as_they_are_made(tmp_path: Path) -> None:
    with rest_of(tmp_path / "s") as (db, service, _):
        filled(db)
        with following(service) as events:
            (first,) = events.changes(1)
            assert first["changes"] == [{"op": "upsert", "table": "a", "row": {"id": 1}}]
            assert first["is_whole"]
            with db.transaction() as tx:
                tx["a"].upsert({"id": 2})
                tx["b"].upsert({"id": 2})
            db["a"].delete(1)
            both, gone = events.changes(2)
            assert {each["table"] for each in both["changes"]} == {"a", "b"}
            assert both["seq"] == tx.seq
            assert gone["changes"] == [{"op": "delete", "table": "a", "row": {"id": 1}}]
            assert events.last_id == str(db.seq)


def test_a_client_that_comes_again_misses_nothing_and_gets_nothing_twice(tmp_path: Path) -> None:
    with rest_of(tmp_path / "s") as (db, service, _):
        filled(db)
        with following(service) as events:
            events.changes(1)
            last = events.last_id
        for key in range(10, 20):
            db["a"].upsert({"id": key})
        db.checkpoint()
        with following(service, "?since=0", last_event_id=last) as events:
            found = events.changes(10)
        ids = [change["row"]["id"] for each in found for change in each["changes"]]
        assert ids == list(range(10, 20))


def test_a_large_commit_comes_in_parts_and_only_the_last_has_an_id(tmp_path: Path) -> None:
    with rest_of(tmp_path / "s") as (db, service, _):
        filled(db)
        since = db.seq
        db["b"].upsert([{"id": key} for key in range(2 * ROWS_MAX + 1)])
        with following(service, f"?since={since}&tables=b") as events:
            parts = events.changes(2)
            assert [each["is_whole"] for each in parts] == [False, False]
            assert events.last_id == ""
            (last,) = events.changes(1)
            assert last["is_whole"]
            assert events.last_id == str(db.seq)
        rows = [change["row"]["id"] for each in (*parts, last) for change in each["changes"]]
        assert sorted(rows) == list(range(2 * ROWS_MAX + 1))


def test_the_id_goes_on_where_commits_have_no_rows_of_the_tables(tmp_path: Path) -> None:
    with rest_of(tmp_path / "s") as (db, service, _):
        filled(db)
        with following(service, "?tables=b") as events:
            assert events.response.readline() == b"retry: 1000\n"
            assert events.response.readline() == b"\n"
            assert events.response.readline() == f"id: {db.seq}\n".encode()


def test_seqs_alone_come_at_once_and_with_each_commit(tmp_path: Path) -> None:
    with rest_of(tmp_path / "s") as (db, service, rest):
        filled(db)
        with following(service, "?seqs=true") as events:
            told = iter(events)
            assert next(told) == ("seq", {"seq": db.seq})
            db["b"].upsert({"id": 1})
            assert next(told) == ("seq", {"seq": db.seq})
            assert events.last_id == str(db.seq)
        with following(service, f"?seqs=true&since={db.seq}") as events:
            told = iter(events)
            db["b"].upsert({"id": 2})
            assert next(told) == ("seq", {"seq": db.seq})
        assert rest.get("/v1/follow?seqs=true&tables=a").code == (400, 13)
        assert rest.get("/v1/follow?seqs=perhaps").code == (400, 13)


def test_a_feed_ends_with_its_server(tmp_path: Path) -> None:
    with rest_of(tmp_path / "s") as (db, service, _):
        filled(db)
        with following(service) as events:
            events.changes(1)
            service.close()
            assert list(events) == []


def test_what_is_wrong_is_said_before_the_first_event(tmp_path: Path) -> None:
    with rest_of(tmp_path / "s") as (db, _, rest):
        filled(db)
        assert rest.get("/v1/follow?since=x").code == (400, 13)
        assert rest.get("/v1/follow?since=99").code == (404, 11)
        assert rest.get("/v1/follow?tables=none").code == (404, 4)
        assert rest.get("/v1/follow", last_event_id="1.5").code == (400, 13)


def test_followers_leave_the_threads_alone_and_are_bounded(tmp_path: Path) -> None:
    with rest_of(tmp_path / "s") as (db, service, rest):
        filled(db)
        held = [following(service) for _ in range(FOLLOWERS_MAX)]
        feeds = [each.__enter__() for each in held]
        assert rest.get("/v1/status").status == 200
        assert rest.get("/v1/follow").status in {429, 503}
        for feed in feeds:
            feed.changes(1)
        db["a"].upsert({"id": 7})
        for feed in feeds:
            assert feed.changes(1)[0]["changes"][0]["row"] == {"id": 7}
        for each in held:
            each.__exit__(None, None, None)
