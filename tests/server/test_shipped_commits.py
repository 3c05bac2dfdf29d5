"""A commit over REST that is to be shipped is answered with 200 when the bucket has it.

Joined clients wait for it as many as may, too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.engine.commit.core import Ships
from siltstone.errors import BusyError
from siltstone.lance_versions.errors import Code
from siltstone.local.store import LocalStore
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.server import RestServer
from siltstone.server.shipped_waits import SHIPPED_WAITS_MAX
from tests.maintenance.mirrors import at, content, restored, taken_from, with_mirror
from tests.server.rest import Rest, rest_of, rest_to
from tests.server.stores import joined_to
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


# how many may wait


@dataclass
class SlowShipper:
    """Ships when it may; who waits is counted."""

    real: Ships
    may_go: threading.Event = field(default_factory=threading.Event)
    waiting: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait(self, seq: int, timeout_s: float) -> str | None:
        with self.changed:
            self.waiting += 1
            self.changed.notify_all()
        assert self.may_go.wait(60)
        return self.real.wait(seq, timeout_s)

    def is_waited_for(self, count: int) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.waiting == count, 60)

    @property
    def shipped_seq(self) -> int:
        return self.real.shipped_seq

    @property
    def failure(self) -> str | None:
        return self.real.failure

    @property
    def is_begun(self) -> bool:
        return self.real.is_begun


@dataclass
class Crowd:
    """Clients of a server with three threads, of which two may wait for the bucket."""

    db: LocalStore
    service: RestServer
    slow: SlowShipper
    pool: ThreadPoolExecutor

    def post(self, path: str, body: object = None, **headers: str) -> Any:
        client = Rest(self.service)
        try:
            return client.post(path, body, **headers)
        finally:
            client.close()

    def apply(self, key: int, durability: str = "shipped") -> Any:
        rows = {**ROWS, "rows": [{"id": key}]}
        return self.post("/v1/transaction/apply", {"ops": [rows], "durability": durability})

    def begun(self, key: int) -> str:
        begun = self.post("/v1/transaction/begin", {"durability": "shipped"}).json["id"]
        rows = {"predicate": f"id = {key}"}
        assert self.post("/v1/table/t/delete", rows, x_siltstone_txn=begun).status == 200
        return begun

    def commit(self, begun: str) -> Any:
        return self.post(f"/v1/transaction/{begun}/commit")

    def roll_back(self, begun: str) -> Any:
        return self.post(f"/v1/transaction/{begun}/rollback")

    def require_goes_on(self) -> None:
        """Other requests are answered, with what is durable here."""
        assert self.apply(99, "sync").status == 200
        seq = self.db.seq
        assert self.post("/v1/table/t/count_rows").status == 200
        told = self.apply(100)
        assert (told.status, told.code) == (429, (429, int(Code.THROTTLING)))
        assert told.headers["retry-after"]
        assert "2 requests wait for the bucket" in told.json["error"]
        assert self.db.seq == seq

    def submit(self, work: Any, *given: Any) -> Future[Any]:
        return self.pool.submit(work, *given)


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    limits = replace(Limits(), threads=3, shipped_waits_max=2)
    with with_mirror(tmp_path / "s", at(SimBucket())) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        db.wait_shipped()
        with ThreadPoolExecutor(4) as pool, rest_to(db, limits=limits) as (service, _):
            slow = SlowShipper(db.core.ships())
            db.core.shipper = slow
            try:
                yield Crowd(db, service, slow, pool)
            finally:
                slow.may_go.set()


def test_while_as_many_as_may_wait_for_a_bucket_other_requests_go_on(crowd: Crowd) -> None:
    begun = crowd.begun(1)
    waiting = [crowd.submit(crowd.apply, key) for key in (1, 2)]
    assert crowd.slow.is_waited_for(2)
    crowd.require_goes_on()
    assert crowd.commit(begun).status == 429  # nothing was begun
    assert crowd.post(f"/v1/transaction/{begun}/describe").json["status"] == "Running"
    assert crowd.post(f"/v1/transaction/{crowd.begun(2)}/rollback").status == 200
    crowd.slow.may_go.set()
    assert [each.result(60).status for each in waiting] == [200, 200]
    assert crowd.apply(3).status == 200
    assert crowd.db.status().unshipped == 0


def test_who_asks_again_for_a_commit_that_waits_is_one_that_waits(crowd: Crowd) -> None:
    begun = crowd.begun(1)
    first = crowd.submit(crowd.commit, begun)
    assert crowd.slow.is_waited_for(1)
    others = [crowd.submit(crowd.commit, begun) for _ in range(3)]
    refused = [each.result().status for each in islice(as_completed(others, timeout=60), 2)]
    assert refused == [429, 429]
    assert crowd.apply(99, "sync").status == 200
    crowd.slow.may_go.set()
    told = [each.result(60) for each in (first, *others)]
    assert sorted(each.status for each in told) == [200, 200, 429, 429]
    assert {each.json["seq"] for each in told if each.status == 200} == {crowd.db.seq - 1}


def test_a_commit_that_was_not_there_in_time_is_waited_on_by_as_many_as_may(crowd: Crowd) -> None:
    begun = crowd.begun(1)
    crowd.db.core.shipper = _Never()
    assert crowd.commit(begun).status == 504
    crowd.db.core.shipper = crowd.slow
    first = crowd.submit(crowd.apply, 7)
    assert crowd.slow.is_waited_for(1)
    again = crowd.submit(crowd.commit, begun)
    assert crowd.slow.is_waited_for(2)
    crowd.require_goes_on()
    crowd.slow.may_go.set()
    assert (first.result(60).status, again.result(60).status) == (200, 200)


def test_who_rolls_a_commit_back_that_waits_is_one_that_waits(crowd: Crowd) -> None:
    """Its client gave the answer up: such requests must not take the threads of the others."""
    begun = crowd.begun(1)
    first = crowd.submit(crowd.commit, begun)
    assert crowd.slow.is_waited_for(1)
    others = [crowd.submit(crowd.roll_back, begun) for _ in range(3)]
    refused = [each.result() for each in islice(as_completed(others, timeout=20), 2)]
    assert [each.status for each in refused] == [429, 429]
    assert crowd.apply(99, "sync").status == 200
    assert crowd.post(f"/v1/transaction/{crowd.begun(2)}/rollback").status == 200
    crowd.slow.may_go.set()
    assert first.result(60).status == 200
    assert sorted(each.result(60).status for each in others) == [400, 429, 429]


def test_who_asks_for_a_commit_while_a_statement_of_it_runs_is_one_that_waits(crowd: Crowd) -> None:
    """Else those that wait for the statement wait on for the commit, beyond the bound."""
    begun, scope = crowd.begun(1), crowd.service._scope
    (held,) = scope.sessions._held.values()
    with held.lock:
        asked = [crowd.submit(crowd.commit, begun) for _ in range(3)]
        refused = next(as_completed(asked, timeout=20)).result()
        assert (refused.status, refused.code) == (429, (429, int(Code.THROTTLING)))
        assert crowd.apply(99, "sync").status == 200
    crowd.slow.may_go.set()
    assert sorted(each.result(60).status for each in asked) == [200, 200, 429]


class _Never:
    """A bucket that never answers."""

    shipped_seq, failure, is_begun = 0, None, True

    def wait(self, seq: int, timeout_s: float) -> str | None:
        del seq, timeout_s
        return "the bucket does not answer"


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


@dataclass
class JoinedCrowd:
    """Threads of a process that joined: by the socket, or a URL, where they share a server with
    clients of REST. So many of their requests may wait for the bucket."""

    db: LocalStore
    joined: st.Store
    slow: SlowShipper
    pool: ThreadPoolExecutor
    most: int

    def commit(self, key: int) -> None:
        with self.joined.transaction(durability="shipped") as tx:
            tx["t"].upsert({"id": key})


@pytest.fixture(params=["socket", "http"])
def joined_crowd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JoinedCrowd]:
    limits = replace(Limits(), threads=3, shipped_waits_max=2)
    with with_mirror(tmp_path / "s", at(SimBucket())) as db, ExitStack() as held:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        db.wait_shipped()
        if request.param == "http":
            service, _ = held.enter_context(rest_to(db, limits=limits))
            joined, most = st.connect(service.url), limits.shipped_waits_max
        else:
            joined, most = joined_to(db), SHIPPED_WAITS_MAX
        held.enter_context(joined)
        pool = held.enter_context(ThreadPoolExecutor(most))
        slow = SlowShipper(db.core.ships())
        held.callback(slow.may_go.set)
        db.core.shipper = slow
        yield JoinedCrowd(db, joined, slow, pool, most)


def test_joined_clients_that_wait_for_a_bucket_leave_threads_to_others(
    joined_crowd: JoinedCrowd,
) -> None:
    crowd, wait = joined_crowd, joined_crowd.joined.wait_shipped
    waiting: list[Future[Any]] = [
        crowd.pool.submit(crowd.commit, key) for key in range(crowd.most - 1)
    ]
    assert crowd.slow.is_waited_for(crowd.most - 1)
    waiting.append(crowd.pool.submit(wait))
    assert crowd.slow.is_waited_for(crowd.most)
    seq = crowd.db.seq
    for ask in (partial(crowd.commit, 1000), wait):
        with pytest.raises(BusyError, match=f"{crowd.most} requests wait for the bucket"):
            ask()
    assert crowd.db.seq == seq
    with crowd.joined.transaction() as tx:
        tx["t"].upsert({"id": 1001})
    assert crowd.joined.checkpoint().flushed_seq == crowd.db.seq == seq + 1
    crowd.slow.may_go.set()
    for each in waiting:
        each.result(60)
    crowd.commit(1000)
    assert crowd.db.status().unshipped == 0


def test_who_began_a_joined_commit_that_is_refused_rolls_it_back(joined_crowd: JoinedCrowd) -> None:
    crowd = joined_crowd
    tx = crowd.joined.transaction(durability="shipped")
    tx["t"].upsert({"id": 1000})
    waiting = [crowd.pool.submit(crowd.commit, key) for key in range(crowd.most)]
    assert crowd.slow.is_waited_for(crowd.most)
    with pytest.raises(BusyError):
        tx.commit()
    assert crowd.db["t"].get(1000) is None
    other = crowd.joined.transaction(durability="shipped")  # none is asked for at the bucket
    other["t"].upsert({"id": 1001})
    other.rollback()
    crowd.slow.may_go.set()
    for each in waiting:
        each.result(60)
    assert crowd.db["t"].count() == crowd.most
