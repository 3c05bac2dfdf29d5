"""What the socket of an owner is sent in frames is answered, each alone, in turn, and bounded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.joined.frames import frame
from siltstone.joined.store import JoinedStore
from siltstone.joined.values import decode, encode
from tests.server.doors import Door, FrameWire, Told, Wire, door_of
from tests.server.stores import eventually
from tests.server.wire import wire_to


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with door_of("socket", tmp_path / "shop") as found:
        found.db["t"].upsert({"id": 0, "v": "first"})  # from now on there is room
        yield found


@contextmanager
def held(db: st.Store) -> Iterator[None]:
    """Hold up all commits of a store."""
    until, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        until.set()
        assert goes_on.wait(60)

    holder = threading.Thread(target=db._core.committer.run, args=(hold,))
    holder.start()
    assert until.wait(60)
    try:
        yield
    finally:
        goes_on.set()
        holder.join(60)


def frames_of(db: st.Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of how many commits each frame of the log has, from now on."""
    log: Any = db._core.committer._log
    append, sizes = log.append, list[int]()

    def counted(**given: Any) -> None:
        sizes.append(given["last_seq"] - given["first_seq"] + 1)
        append(**given)

    monkeypatch.setattr(log, "append", counted)
    return sizes


def upsert(door: Door, wire: Wire, row: dict[str, Any]) -> None:
    body = encode([[row], {}])
    wire.send("POST", f"/v1/table/{door.db['t'].id}/upsert", len(body), body)


def accepted(door: Door, count: int) -> list[Wire]:
    """Return connections that the server listens to, as each has had an answer."""
    wires = [door.wire() for _ in range(count)]
    for wire in wires:
        upsert(door, wire, {"id": 0, "v": "first"})
        seq_of(wire.told())
    return wires


def seq_of(told: Told) -> int:
    assert told.status == 200, told
    return decode(told.body).seq


# groups


def test_rows_that_came_at_once_are_one_frame_of_the_log(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    wires, sizes = accepted(door, 9), frames_of(door.db, monkeypatch)
    with held(door.db):
        upsert(door, wires[0], {"id": 1, "v": "a"})
        eventually(lambda: len(door.db._core.committer._queue) == 1)
        for place, wire in enumerate(wires[1:]):
            upsert(door, wire, {"id": 2 + place, "v": "b"})
    assert len({seq_of(wire.told()) for wire in wires}) == 9
    assert sizes == [1, 8]
    assert door.db["t"].count() == 10


def test_a_row_that_is_refused_does_not_disturb_its_group(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    wires, sizes = accepted(door, 4), frames_of(door.db, monkeypatch)
    with held(door.db):
        upsert(door, wires[0], {"id": 1, "v": "a"})
        eventually(lambda: len(door.db._core.committer._queue) == 1)
        upsert(door, wires[1], {"id": 2, "v": 5})
        upsert(door, wires[2], {"id": 3, "v": "c"})
        upsert(door, wires[3], {"id": 4, "x": "c"})
    told = [wire.told() for wire in wires]
    assert [each.status for each in told] == [200, 400, 200, 400]
    assert sizes == [1, 1]
    assert sorted(door.db["t"].to_arrow()["id"].to_pylist()) == [0, 1, 3]


def test_connections_have_their_turns_one_after_the_other(door: Door) -> None:
    """However much one of them sends ahead: none waits for what came behind its own request."""
    many, wires = 12, [door.wire() for _ in range(4)]
    for wire in wires:  # a connection has turns from when it was accepted
        upsert(door, wire, {"id": 1, "v": "a"})
        seq_of(wire.told())
    with held(door.db):
        for place, wire in enumerate(wires):
            for number in range(many):
                upsert(door, wire, {"id": 1_000 * place + number, "v": "a"})
    seqs = [[seq_of(wire.told()) for _ in range(many)] for wire in wires]
    for of_one in seqs:
        assert of_one == sorted(of_one)
    firsts = [of_one[many // 2] for of_one in seqs]
    assert max(firsts) - min(firsts) <= many


def test_a_hundred_processes_at_once_are_all_answered(door: Door) -> None:
    wires = [door.wire() for _ in range(100)]
    for turn in range(3):
        for place, wire in enumerate(wires):
            upsert(door, wire, {"id": 1_000 * turn + place, "v": "a"})
        assert len({seq_of(wire.told()) for wire in wires}) == 100
    assert door.db["t"].count() == 300


def test_a_row_commits_under_the_id_that_was_given_out_before(door: Door) -> None:
    """Also the first one after an open, for which the group has no room: it goes alone."""
    with JoinedStore(door.db.path, str(door.address)) as joined:
        for number in range(3):
            (connection,) = joined.pool._idle
            reserved = connection.reserved
            assert joined["t"].upsert({"id": number, "v": "a"}).transaction_id == reserved
            assert joined.outcome(reserved) == "committed"


def test_the_first_row_after_an_open_goes_alone_under_its_id(tmp_path: Path) -> None:
    with (
        door_of("socket", tmp_path / "shop") as door,
        JoinedStore(door.db.path, str(door.address)) as joined,
    ):
        table = joined["t"]
        (connection,) = joined.pool._idle
        reserved = connection.reserved
        assert table.upsert({"id": 1, "v": "a"}).transaction_id == reserved


def test_a_row_whose_id_was_spent_on_its_way_is_refused(door: Door, tmp_path: Path) -> None:
    with (
        wire_to(Path(str(door.address)), tmp_path) as wire,
        JoinedStore(door.db.path, str(wire.address)) as joined,
    ):
        table = joined["t"]
        (connection,) = joined.pool._idle
        slow, outcomes = connection.reserved, list[str]()
        wire.mark, wire.pause = b"/upsert", lambda: outcomes.append(door.db.outcome(slow))
        with pytest.raises(st.ClosedError, match="nothing was changed"):
            table.upsert({"id": 7, "v": "a"})
        assert outcomes == ["not committed"]
        assert table.get(7) is None


def test_a_row_that_is_being_committed_is_in_doubt(door: Door) -> None:
    with JoinedStore(door.db.path, str(door.address)) as joined, ThreadPoolExecutor(1) as beside:
        table = joined["t"]
        (connection,) = joined.pool._idle
        reserved = connection.reserved
        with held(door.db):
            receipt = beside.submit(table.upsert, {"id": 7, "v": "a"})
            eventually(lambda: len(door.db._core.committer._queue) == 1)
            assert door.db.outcome(reserved) == "in doubt"
        assert receipt.result(60).transaction_id == reserved
        assert door.db.outcome(reserved) == "committed"


def test_a_row_of_a_table_that_changed_goes_by_its_new_columns(door: Door) -> None:
    with JoinedStore(door.db.path, str(door.address)) as joined:
        table = joined["t"]
        table.upsert({"id": 1, "v": "a"})
        door.db["t"].add_column("w", "int64")
        table.upsert({"id": 2, "v": "a", "w": 3})
        door.db["t"].truncate()
        table.upsert({"id": 3, "v": "a", "w": 4})
        assert table.to_arrow().to_pylist() == [{"id": 3, "v": "a", "w": 4}]
        door.db.drop_table("t")
        with pytest.raises(st.TableNotFoundError):
            table.upsert({"id": 4, "v": "a", "w": 4})


def test_a_server_that_closes_takes_no_more_rows(door: Door) -> None:
    wire = door.wire()
    door.pipeline.is_closing = True
    upsert(door, wire, {"id": 1, "v": "a"})
    assert wire.told().status == 503
    door.pipeline.is_closing = False


# connections


def test_requests_that_were_sent_ahead_are_answered_one_after_the_other(door: Door) -> None:
    wire, many = door.wire(), 300
    path, body = door.reading
    sending = threading.Thread(
        target=lambda: [wire.send("POST", path, len(body), body) for _ in range(many)]
    )
    sending.start()
    for _ in range(many):
        assert decode(wire.told().body) == 0
    sending.join(60)


def test_a_request_that_comes_byte_by_byte_is_answered(door: Door) -> None:
    wire = door.wire()
    assert isinstance(wire, FrameWire)
    path, body = door.reading
    head = (path.removeprefix("/v1/"), "application/vnd.msgpack", "", "", "")
    for byte in frame.OPENING + b"".join(frame.request_parts(head, body)):
        wire.sock.sendall(bytes([byte]))
    assert decode(wire.told().body) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        b"\xff\xff\xff\xff\xff\xff",
        frame.REQUEST.pack(9_000, 8_000) + b"x" * 8_998,
        frame.REQUEST.pack(1, 0),
        frame.REQUEST.pack(4, 2) + b"\xc1\xc1",
        frame.REQUEST.pack(4, 2) + encode([1])[:2],
    ],
    ids=["a huge one", "a long head", "a short one", "no msgpack", "another head"],
)
def test_what_is_no_request_is_refused_and_the_connection_ends(door: Door, wrong: bytes) -> None:
    wire = door.wire()
    wire.sock.sendall(frame.OPENING + wrong)
    told = wire.told()
    assert told.status == 400
    assert "this is no request" in told.error or "at most" in told.error
    assert wire.is_ended
    assert door.asked().status == 200


def test_what_has_no_route_is_refused_and_the_connection_goes_on(door: Door) -> None:
    wire = door.wire()
    for path in ("nothing/at/all/here", "", "table", "table/1/none"):
        wire.send("POST", path, 0)
        told = wire.told()
        assert 400 <= told.status < 500, path
    assert door.asked(wire).status == 200


def test_a_client_that_goes_away_while_it_is_answered_leaves_nothing_behind(door: Door) -> None:
    path, body = door.reading
    wires = [door.wire() for _ in range(20)]
    with held(door.db):
        for place, wire in enumerate(wires):
            upsert(door, wire, {"id": place, "v": "a"})
            wire.send("POST", path, len(body), body)
            wire.sock.close()
    eventually(door.is_idle)
    eventually(lambda: not door.http.thread.server_state.connections)
    assert door.asked().status == 200
