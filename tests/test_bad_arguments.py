"""A value that decides what is destroyed is what it says, and a wrong one is told in a sentence."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import lance
import pandas as pd
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.admin import vacuum_store
from siltstone.arguments import is_text, seconds_from
from tests.server.stores import opened
from tests.unchanged import connect, refused

HALF = "half of \ud800"
HUGE = 1 << 70


@pytest.fixture
def store(tmp_path: Path) -> Iterator[st.Store]:
    with connect(tmp_path / "shop") as store:
        table = store.create_table("people", {"id": "int64", "name": "string"}, "id")
        table.upsert({"id": 1, "name": "Ada"})
        store.create_table("events", {"what": "string"}).append({"what": "open"})
        yield store


def _files(path: Path) -> set[Path]:
    return {each for each in path.rglob("*") if each.is_file()}


@pytest.mark.parametrize("dry_run", [None, 0, 1, "", "no", [], HUGE], ids=repr)
def test_nothing_is_destroyed_by_what_is_only_like_false(store: st.Store, dry_run: Any) -> None:
    path = Path(store.path)
    store.checkpoint()
    store["people"].upsert({"id": 1, "name": "Bob"})
    store.checkpoint()
    store.merge()
    before = _files(path)
    calls: list[Callable[[], object]] = [
        lambda: store.vacuum(dry_run, grace_s=0),
        lambda: store.repair(dry_run),
        lambda: store.import_external("events", dry_run),
        lambda: vacuum_store(store.path, dry_run=dry_run, grace_s=0),
        lambda: st.repair(store.path, dry_run=dry_run),
    ]
    for call in calls:
        with refused(store, match="dry_run must be True or False"):
            call()
    assert _files(path) == before


def test_over_http_and_in_a_joined_process_too(tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as db:
        db.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
        db.create_table("p", {"id": "int64"}).append({"id": 1})
        db.checkpoint()
        service = db.serve(port=0)
        with st.connect(service.url) as remote:
            before = _files(tmp_path)
            for call in (
                lambda: remote.vacuum(cast("Any", None), grace_s=0),
                lambda: remote.repair(cast("Any", None)),
                lambda: remote.import_external("p", cast("Any", None)),
            ):
                with pytest.raises(st.RequestError, match="dry_run must be True or False"):
                    call()
            assert before <= _files(tmp_path)
            with pytest.raises(st.RequestError, match="a seq must be an integer"):
                remote.changes(cast("Any", None))
            with pytest.raises(st.RequestError, match="tables must be a list of names"):
                remote.changes(0, tables=cast("Any", 5))


def test_rows_of_others_are_imported_once_it_is_said(store: st.Store) -> None:
    path = next(Path(store.path).glob("tables/events-*"))
    lance.write_dataset(pa.table({"what": ["more"]}), path, mode="append")
    with pytest.raises(st.RequestError, match="dry_run"):
        store.import_external("events", cast("Any", None))
    assert store["events"].count() == 1
    assert store.import_external("events", False).rows == 1
    assert store["events"].count() == 2


@pytest.mark.parametrize("port", [99_999, 65_536, -1, "x", None, True, 80.0], ids=repr)
def test_a_server_listens_on_the_port_that_it_was_given_or_not_at_all(
    store: st.Store, port: Any
) -> None:
    with refused(store, match="port must be an integer"):
        store.serve(port=port)


def test_a_port_that_is_taken_is_not_the_callers_mistake(store: st.Store) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(st.UnavailableError, match="cannot listen"),
    ):
        store.serve(port=taken.getsockname()[1])


@pytest.mark.parametrize("idle_s", ["x", -1, None, True, float("nan")], ids=repr)
def test_a_wrong_time_is_refused_whether_the_store_is_served_or_not(
    store: st.Store, idle_s: Any
) -> None:
    for _ in range(2):
        with refused(store, match="idle_s must be a number of seconds from 0"):
            store.serve_local(idle_s=idle_s)
        store.serve_local()
    assert seconds_from("idle_s", float("inf")) == float("inf")


def test_a_wrong_argument_is_told_in_a_sentence_of_ours(store: st.Store) -> None:
    people: Any = store["people"]
    anything = cast("Any", store)
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: anything.changes(None), "a seq must be an integer; got None"),
        (lambda: anything.changes(0, tables=5), "tables must be a list of names; got 5"),
        (lambda: anything.run(None), "run\\(\\) calls a function"),
        *(
            (lambda n=n: anything.run(len, attempts=n), "attempts must be an integer from 1; got")
            for n in (None, "3", 1.5, True)
        ),
        (lambda: anything.run(len, attempts=-1), "attempts must be an integer from 1; got -1"),
        (lambda: anything.merge(attempts="3"), "attempts must be an integer from 1; got '3'"),
        (lambda: anything.import_external(["people"]), "a table name must be a string"),
        (lambda: anything.import_external([]), "a table name must be a string"),
        (lambda: anything[None], "there is no table None: a table name must be a string"),
        (lambda: store.tag(HALF), "a tag must be a string"),
        (lambda: store.claim(HALF), "an app must be a string"),
        (lambda: store.claim("a", holder=HALF), "a holder must be a string"),
        (lambda: store.transaction(token=(HALF, 1)), "an app must be a string"),
        (lambda: people.count(f"name = '{HALF}'"), "a filter has half of a surrogate pair"),
        (lambda: people.delete_where(f"name = '{HALF}'"), "half of a surrogate pair"),
        (lambda: store.sql(f"select '{HALF}'"), "a statement has half of a surrogate pair"),
        (lambda: store.sql_reader(f"select '{HALF}'"), "half of a surrogate pair"),
    ]
    for call, said in calls:
        with refused(store, match=said):
            call()


def test_a_log_of_any_length_is_all_of_it(store: st.Store) -> None:
    store.checkpoint()
    assert store.log(HUGE) == store.log(100)


def test_a_number_with_a_fraction_is_no_count_of_bytes(tmp_path: Path) -> None:
    with pytest.raises(st.RequestError, match=r"memory_bytes_max must be .*; got 1\.5"):
        st.connect(tmp_path / "new", memory_bytes_max=cast("Any", 1.5))
    with st.connect(tmp_path / "whole", memory_bytes_max=cast("Any", float(256 << 20))) as db:
        assert db.tables() == []


def test_a_file_is_called_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(st.RequestError, match="file is not a store: it is a file"):
        st.connect(tmp_path / "file", read_only=True)
    with pytest.raises(st.RequestError, match="none is not a store: there is no such directory"):
        st.connect(tmp_path / "none", read_only=True)


def test_a_pair_of_surrogates_is_no_half() -> None:
    assert [is_text(text) for text in ("", "é", "😀", HALF, b"x", None)] == [
        *(True, True, True),
        *(False, False, False),
    ]


SECRET = "hunter2"
FRAME = pd.DataFrame({"id": [1], "name": [SECRET]})
OF_FRAMES: dict[str, Callable[[st.Store, Any], object]] = {
    "values": lambda db, frame: db["people"].update_where("true", frame),
    "a value": lambda db, frame: db["people"].update_where("true", {"name": frame}),
    "expressions": lambda db, frame: db["people"].update_where("true", sql=frame),
    "an expression": lambda db, frame: db["people"].update_where("true", sql={"name": frame}),
    "work": lambda db, frame: db.run(frame),
    "turns": lambda db, frame: db.transaction(turns=frame),
    "a turn": lambda db, frame: db.transaction(turns=[frame]),
    "missing": lambda db, frame: db["people"].upsert({"id": 1, "name": "x"}, frame),
    "missing in a transaction": lambda db, frame: db.run(
        lambda tx: tx["people"].upsert({"id": 1, "name": "x"}, frame)
    ),
    "a column": lambda db, frame: db.create_table("t", {"v": "int64"}, data={"v": frame["name"]}),
}


@pytest.mark.parametrize("call", OF_FRAMES.values(), ids=OF_FRAMES)
def test_a_frame_in_a_wrong_place_is_named_by_its_type_alone(
    store: st.Store, call: Callable[[st.Store, Any], object]
) -> None:
    with pytest.raises(st.SiltstoneError) as caught:
        call(store, FRAME)
    assert SECRET not in str(caught.value)
    assert store["people"].get(1) == {"id": 1, "name": "Ada"}
