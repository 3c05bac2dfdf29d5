"""A commit over REST that is to be shipped is answered with 200 when the bucket has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from siltstone.local.store import LocalStore
from tests.maintenance.mirrors import at, content, restored, taken_from, with_mirror
from tests.server.rest import Rest, rest_of, rest_to
from tests.support.simulated_objects import Fault, SimBucket, SimServer

Served = tuple[LocalStore, SimServer, Rest]
ROWS = {"op": "upsert", "table": "t", "rows": [{"id": 1}]}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    server = at(SimBucket())
    with with_mirror(tmp_path / "s", server) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        db.wait_shipped()
        with rest_to(db) as (_, client):
            yield db, server, client


def in_the_bucket(server: SimServer, target: Path) -> tuple[int, object]:
    """Return seq and rows of what a lost machine leaves."""
    objects = SimBucket(dict(server.bucket.objects))
    restored(at(objects), target)
    return taken_from(target)


def test_a_commit_is_in_the_bucket_when_it_is_answered(served: Served, tmp_path: Path) -> None:
    db, server, client = served
    told = client.post("/v1/transaction/apply", {"ops": [ROWS], "durability": "shipped"})
    assert told.status == 200, told.body
    assert in_the_bucket(server, tmp_path / "r") == (told.json["seq"], content(db))
    begun = client.post("/v1/transaction/begin", {"durability": "shipped"}).json["id"]
    client.post("/v1/table/t/delete", {"predicate": "id = 1"}, x_siltstone_txn=begun)
    told = client.post(f"/v1/transaction/{begun}/commit")
    assert told.status == 200, told.body
    assert in_the_bucket(server, tmp_path / "r") == (told.json["seq"], {"t": []})


def test_a_commit_that_is_not_there_in_time_is_told_with_its_receipt_and_waited_on(
    served: Served,
) -> None:
    db, server, client = served
    db.core.shipped_wait_s = 0.0
    server.always = Fault.NOT_DONE
    token = {"x_siltstone_token": "a/1"}
    told = client.post("/v1/transaction/apply", {"ops": [ROWS], "durability": "shipped"}, **token)
    assert told.status == 504
    assert told.json["detail"] == f"NotShippedError: transaction {_last(db)}, seq {db.seq}"
    again = client.post("/v1/transaction/apply", {"ops": [ROWS], "durability": "shipped"}, **token)
    assert (again.status, again.json["detail"]) == (504, f"NotShippedError: seq {db.seq}")
    begun = client.post("/v1/transaction/begin", {"durability": "shipped"}).json["id"]
    client.post("/v1/table/t/delete", {"predicate": "id = 1"}, x_siltstone_txn=begun)
    for _ in range(2):
        told = client.post(f"/v1/transaction/{begun}/commit")
        assert told.status == 504
        assert told.json["detail"] == f"NotShippedError: transaction {_last(db)}, seq {db.seq}"
    described = client.post(f"/v1/transaction/{begun}/describe").json
    assert described["status"] == "Succeeded"
    seq = db.seq
    server.always, db.core.shipped_wait_s = None, 60.0
    told = client.post(f"/v1/transaction/{begun}/commit")
    assert (told.status, told.json["seq"]) == (200, seq) == (200, db.seq)
    assert db.status().unshipped == 0


def _last(db: LocalStore) -> str:
    return db.log(1)[0].transaction


def test_without_a_mirror_it_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    with rest_of(tmp_path / "s") as (db, _, client):
        seq = db.seq
        for path, body in (
            ("/v1/transaction/begin", {"durability": "shipped"}),
            ("/v1/transaction/apply", {"ops": [ROWS], "durability": "shipped"}),
        ):
            told = client.post(path, body)
            assert told.status == 400
            assert "open the store with mirror=" in told.json["error"]
        assert db.seq == seq
        told = client.post("/v1/transaction/apply", {"ops": [ROWS], "durability": "async"})
        assert told.status == 400
