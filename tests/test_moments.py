"""A moment says its zone in every door, in every zone of the machine, and lies not in the future.

`datetime.now()` is local time to whoever wrote it and was UTC to the store: west of Greenwich it
read a store from hours before.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import siltstone as st
from siltstone import namespace
from siltstone.cli.exits import Exit
from siltstone.errors import RequestError, SnapshotExpiredError
from tests.cli.shell import Shell
from tests.maintenance.stores import Clock, open_store
from tests.server.rest import Rest, rest_of
from tests.server.stores import served

SCHEMA = {"id": "int64", "v": "int64"}
# POSIX rules, not names: a machine may lack the files of zones.
ZONES = {
    "New York": "EST5EDT,M3.2.0,M11.1.0",
    "London": "GMT0BST,M3.5.0/1,M10.5.0",
    "Tokyo": "JST-9",
}
HINTS = ("datetime.now().astimezone()", " Z ")


def local_now() -> dt.datetime:
    return dt.datetime.now()  # noqa: DTZ005 - what users write


@pytest.fixture(params=sorted(ZONES))
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", ZONES[request.param])
        time.tzset()
        yield request.param
    time.tzset()


class Frozen(Clock):
    """A clock that stands still."""

    def __init__(self) -> None:
        super().__init__()
        self._now_us = super().__call__()

    def __call__(self) -> int:
        return self._now_us


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with open_store(tmp_path / "shop") as store:
        store.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
        yield store


def naive() -> list[object]:
    now = local_now()
    return [
        now,
        now.isoformat(),
        now.isoformat(sep=" "),
        "2026-11-20",
        dt.datetime.now(dt.UTC).replace(tzinfo=None),
        pd.Timestamp.now(),
        np.datetime64("now"),
        np.datetime64("2026-11-20T10:00"),
    ]


def aware() -> list[object]:
    now = dt.datetime.now(dt.UTC)
    return [
        now,
        now.isoformat(),
        now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        local_now().astimezone(),
        local_now().astimezone().isoformat(),
        dt.datetime.now(dt.timezone(dt.timedelta(hours=-9, minutes=-30))),
        pd.Timestamp.now("UTC"),
        pd.Timestamp.now(dt.timezone(dt.timedelta(hours=5, minutes=45))),
    ]


def refused(read: Callable[[], object]) -> str:
    with pytest.raises(RequestError) as found:
        read()
    assert "\n" not in str(found.value)
    return str(found.value)


def test_a_moment_without_a_zone_is_refused_with_both_ways_to_write_it(
    db: st.Store, zone: str
) -> None:
    for at in naive():
        message = refused(lambda at=at: db.snapshot(at=at))
        assert all(hint in message for hint in HINTS), message


def test_a_moment_with_a_zone_is_the_same_in_every_zone_of_the_machine(
    db: st.Store, zone: str
) -> None:
    seq = db.seq
    found = [db.snapshot(at=at).seq for at in aware()]
    before = next(e for e in db.log() if e.seq == seq).time - dt.timedelta(microseconds=1)
    assert db.snapshot(at=before).seq == seq - 1
    assert db.snapshot(at=before.astimezone()).seq == seq - 1
    assert found == [seq] * len(found)


def test_what_is_no_moment_is_refused(db: st.Store) -> None:
    moments = [
        dt.date(2026, 11, 20), dt.time(10), 7, 1.5, True, b"2026-11-20T10:00Z", "", "Z", "now",
        "10:00Z", pd.NaT, np.datetime64("NaT"), np.int64(7), [], "2026-11-20T25:00Z",
    ]  # fmt: skip
    for at in moments:
        refused(lambda at=at: db.snapshot(at=at))


@pytest.mark.parametrize(
    "at",
    [
        dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=14))),
        dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-14))),
        pd.Timestamp(np.datetime64(1 << 40, "s")).tz_localize("UTC"),
    ],
)
def test_a_moment_at_the_ends_of_the_calendar_is_before_or_after_all(
    db: st.Store, at: dt.datetime
) -> None:
    if at.year == 1:
        assert db.snapshot(at=at).seq == 0
    else:
        with pytest.raises(SnapshotExpiredError):
            db.snapshot(at=at)


def test_a_moment_in_the_future_is_refused_like_a_seq_of_the_future(tmp_path: Path) -> None:
    clock = Frozen()
    with open_store(tmp_path / "shop", clock) as db:
        db.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
        last = next(iter(db.log())).time
        for seconds in (0, 1, 5):
            assert db.snapshot(at=last + dt.timedelta(seconds=seconds)).seq == db.seq
        late = last + dt.timedelta(seconds=5, microseconds=1)
        with pytest.raises(SnapshotExpiredError, match="future") as found:
            db.snapshot(at=late)
        assert found.value.newest_seq == db.seq
        assert late.isoformat() in str(found.value)


def test_after_a_clock_was_set_back_the_last_commit_is_no_future(tmp_path: Path) -> None:
    clock = Clock()
    with open_store(tmp_path / "shop", clock) as db:
        db.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
        clock.move(days=-1)
        last = next(iter(db.log())).time
        assert db.snapshot(at=last).seq == db.seq
        db.checkpoint()
        assert db.snapshot(at=last).seq == db.seq
        with pytest.raises(SnapshotExpiredError, match="future"):
            db.snapshot(at=last + dt.timedelta(seconds=6))


def test_a_store_that_reads_only_knows_the_future_too(db: st.Store, tmp_path: Path) -> None:
    with open_store(tmp_path / "shop", read_only=True) as reader:
        assert reader.snapshot(at=dt.datetime.now(dt.UTC)).seq == db.seq
        with pytest.raises(SnapshotExpiredError, match="future"):
            reader.snapshot(at="2999-01-01T00:00Z")


def test_a_joined_store_refuses_what_its_owner_refuses(tmp_path: Path, zone: str) -> None:
    with served(tmp_path / "shop") as (owner, joined):
        owner.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
        for at in naive():
            message = refused(lambda at=at: joined.snapshot(at=at))
            assert all(hint in message for hint in HINTS), message
        assert [joined.snapshot(at=at).seq for at in aware()] == [owner.seq] * len(aware())
        with pytest.raises(SnapshotExpiredError, match="future"):
            joined.snapshot(at="2999-01-01T00:00Z")


def test_a_header_of_a_rest_client_says_its_zone(tmp_path: Path, zone: str) -> None:
    with rest_of(tmp_path / "shop") as (db, service, client):
        db.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
        local = local_now()

        def counted(at: str, client: Rest = client) -> tuple[int, str]:
            answer = client.post("/v1/table/t/count_rows", {}, x_siltstone_snapshot=f"at:{at}")
            return answer.status, answer.body.decode()

        status, text = counted(local.isoformat())
        assert status == 400
        assert all(hint in text for hint in HINTS), text
        assert counted(local.astimezone().isoformat()) == (200, "1")
        status, text = counted("2999-01-01T00:00Z")
        assert status in (400, 404)
        assert "future" in text
        with st.connect(service.url) as remote:
            assert remote.snapshot(at=local.astimezone()).seq == db.seq
            refused(lambda: remote.snapshot(at=local))


def test_a_namespace_of_the_past_says_its_zone(tmp_path: Path, zone: str) -> None:
    with st.connect(tmp_path / "shop", background=False, segment_bytes=65_536) as db:
        db.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
        lance = namespace.SiltstoneNamespace(db)
        refused(lambda: lance.at(at=local_now()))
        with lance.at(at=local_now().astimezone()) as past:
            assert past is not None


def test_a_restore_says_its_zone(tmp_path: Path, zone: str) -> None:
    with open_store(tmp_path / "shop", real_lance=True) as db:
        db.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
        db.backup(tmp_path / "b")
    message = refused(lambda: st.restore(tmp_path / "b", tmp_path / "r", at=local_now()))
    assert all(hint in message for hint in HINTS), message
    assert not (tmp_path / "r").exists()
    st.restore(tmp_path / "b", tmp_path / "r", at=local_now().astimezone())


def test_the_command_line_wants_a_zone_and_prints_one(
    tmp_path: Path,
    zone: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_store(tmp_path / "shop", real_lance=True) as db:
        db.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
        db.backup(tmp_path / "b")
    monkeypatch.setenv("SILTSTONE_URI", str(tmp_path / "shop"))
    shell = Shell(tmp_path / "shop", capsys)
    local = local_now()
    for command in (["scan", "t"], ["get", "t", "1"], ["tables"], ["info"], ["schema", "t"],
                    ["query", "select 1"], ["changes"]):  # fmt: skip
        assert shell(*command, "--at", local.isoformat()) == 2, command
        assert all(hint in shell.err for hint in HINTS), shell.err
        assert shell(*command, "--at", local.astimezone().isoformat()) == 0, command
        assert shell(*command, "--at", "2999-01-01T00:00Z") == Exit.NOT_FOUND
        assert "future" in shell.err
    assert shell("restore", tmp_path / "b", tmp_path / "r", "--at", local.isoformat()) == 2
    printed = shell.lines("log")[1][1]
    assert dt.datetime.fromisoformat(printed).tzinfo is not None
    assert shell("scan", "t", "--at", printed) == 0
