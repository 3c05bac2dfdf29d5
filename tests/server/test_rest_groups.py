"""Upserts that reach the server at once are one group, and each is answered as if it came alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from siltstone.joined.protocol import SEQ_HEADER
from tests.server.doors import Door, Told, door_of

APPLY = "/v1/transaction/apply"


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with door_of("rest", tmp_path / "shop") as found:
        yield found


def upsert(key: object, v: object = "x", table: str = "t", **more: Any) -> dict[str, Any]:
    return {"ops": [{"op": "upsert", "table": table, "rows": [{"id": key, "v": v}]}], **more}


def asked_at_once(door: Door, *bodies: object, head: str = "") -> list[Told]:
    """Send each on a connection of its own before any answer is read."""
    wires = [door.wire() for _ in bodies]
    for wire, body in zip(wires, bodies, strict=True):
        text = json.dumps(body).encode()
        wire.send("POST", APPLY, len(text), text, head)
    return [wire.told() for wire in wires]


def test_each_has_its_own_seq_and_transaction(door: Door) -> None:
    told = asked_at_once(door, *map(upsert, range(20)))
    assert [each.status for each in told] == [200] * 20
    answers = [json.loads(each.body) for each in told]
    assert len({each["seq"] for each in answers}) == 20
    assert len({each["transaction_id"] for each in answers}) == 20
    assert all(each["results"] == [{"rows": 1}] for each in answers)
    assert [int(each.headers[SEQ_HEADER.lower()]) for each in told] == [
        each["seq"] for each in answers
    ]
    assert door.db["t"].count() == 20


def test_one_that_is_refused_leaves_the_others_alone(door: Door) -> None:
    bad = [
        upsert("no number"),
        upsert(2, table="absent"),
        upsert(3, unknown=1),
        {"ops": []},
        "no object",
    ]
    told = asked_at_once(door, upsert(1), *bad, upsert(4))
    assert [each.status for each in told] == [200, 400, 404, 400, 400, 400, 200]
    assert all("error" in json.loads(each.body) for each in told[1:-1])
    assert sorted(row["id"] for row in door.db["t"].scan().read_all().to_pylist()) == [1, 4]


def test_what_no_group_takes_is_answered_beside_it(door: Door) -> None:
    door.db["t"].upsert({"id": 9, "v": "old"})
    others = [
        {"ops": [{"op": "update", "table": "t", "key": 9, "set": {"v": "new"}}]},
        {"ops": [{"op": "upsert", "table": "t", "rows": [{"id": n, "v": "y"} for n in (2, 3)]}]},
        upsert(5, "z" * 20_000),
        upsert(6, isolation="serializable"),
    ]
    told = asked_at_once(door, upsert(1), *others)
    assert [each.status for each in told] == [200] * 5
    assert door.db["t"].get(9) == {"id": 9, "v": "new"}
    assert door.db["t"].count() == 6


def test_a_token_is_applied_once_however_many_come_at_once(door: Door) -> None:
    told = asked_at_once(door, *[upsert(1)] * 6, head="x-siltstone-token: app/1\r\n")
    assert {each.status for each in told} == {200}
    assert len({json.loads(each.body)["seq"] for each in told}) == 1


def test_a_statement_without_time_left_writes_nothing(door: Door) -> None:
    door.bound(statement_timeout_s=0.0)
    told = asked_at_once(door, upsert(1), upsert(2))
    assert [each.status for each in told] == [400, 400]
    assert door.db["t"].count() == 0


def test_a_client_that_goes_away_leaves_the_others_their_answers(door: Door) -> None:
    gone, wire = door.wire(), door.wire()
    text = json.dumps(upsert(1)).encode()
    gone.send("POST", APPLY, len(text), text)
    gone.sock.close()
    text = json.dumps(upsert(2)).encode()
    wire.send("POST", APPLY, len(text), text)
    assert wire.told().status == 200


def test_answers_on_one_connection_come_in_the_order_of_its_requests(door: Door) -> None:
    wire = door.wire()
    for key in range(10):
        text = json.dumps(upsert(key if key % 3 else "bad")).encode()
        wire.send("POST", APPLY, len(text), text, f"x-request-id: r{key}\r\n")
    ids, statuses = [], []
    received = b""
    while received.count(b"x-request-id: ") < 10:
        received += wire.sock.recv(1 << 16)
    for line in received.split(b"\r\n"):
        if b"x-request-id: " in line:
            ids.append(line.partition(b"x-request-id: ")[2].decode())
        if b"HTTP/1.1 " in line:
            statuses.append(int(line.partition(b"HTTP/1.1 ")[2][:3]))
    assert ids == [f"r{key}" for key in range(10)]
    assert statuses == [200 if key % 3 else 400 for key in range(10)]
