"""Whatever becomes of a loop, nothing acknowledged is lost, and nothing hangs."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from pathlib import Path

import pytest

import siltstone as st
from siltstone import aio
from siltstone.aio.commits import WAITING_MAX, GroupCommits
from siltstone.aio.threads import Threads
from siltstone.joined.store import JoinedStore
from siltstone.options import Options
from tests.aio.reaches import REACHES, SCHEMA, reached
from tests.aio.test_cancelled import Gate, refused, write
from tests.support.handles import dropped

try:
    from uvloop import new_event_loop as new_uvloop  # a package of the group dev
except ImportError:
    new_uvloop = asyncio.new_event_loop

LOOPS = (asyncio.new_event_loop, new_uvloop)
Loops = Callable[[], asyncio.AbstractEventLoop]


def rows_of(path: Path) -> set[object]:
    with st.connect(path, background=False) as db:
        return set(db["rows"].to_arrow().column("id").to_pylist())


@pytest.mark.parametrize("loops", LOOPS)
def test_what_a_loop_acknowledged_is_there_after_it(loops: Loops, tmp_path: Path) -> None:
    async def main() -> None:
        async with reached("owned", tmp_path) as db:
            await asyncio.gather(*(db["rows"].upsert({"id": n, "n": n}) for n in range(500)))
            async with db.transaction() as tx:
                await tx["rows"].upsert({"id": 500, "n": 0})

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(main())
    assert rows_of(tmp_path / "shop") == set(range(501))


@pytest.mark.parametrize("loops", LOOPS)
def test_a_loop_that_ends_with_open_transactions_leaves_nothing_of_them(
    loops: Loops, tmp_path: Path
) -> None:
    acknowledged: list[int] = []
    path = tmp_path / "shop"

    async def write(db: aio.Store, key: int, enough: asyncio.Event) -> None:
        while True:
            await db["rows"].upsert({"id": key, "n": key})
            acknowledged.append(key)
            key += 8
            if len(acknowledged) == 40:
                enough.set()

    async def main() -> None:
        db = await aio.connect(path, background=False)
        await db.create_table("rows", SCHEMA, "id")
        tx = await db.transaction()
        await tx["rows"].upsert({"id": -1, "n": 0})
        await (await db.transaction())["rows"].count()
        enough = asyncio.Event()
        for key in range(8):
            asyncio.ensure_future(write(db, key, enough))  # noqa: RUF006 - they are left behind
        await enough.wait()

    with dropped(path), asyncio.Runner(loop_factory=loops) as runner:
        runner.run(main())
        gc.collect()  # the handle was never closed
    found = rows_of(path)
    assert set(acknowledged) <= found
    assert -1 not in found


async def all_of(works: Iterable[Coroutine[None, None, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in works:
            group.create_task(each)


def test_of_a_cancelled_group_each_commit_is_whole(tmp_path: Path) -> None:
    async def main() -> list[int]:
        acknowledged: list[int] = []

        async def pair(db: aio.Store, key: int) -> None:
            async with db.transaction() as tx:
                await tx["rows"].upsert({"id": key, "n": 0})
                await tx["rows"].upsert({"id": -key, "n": 0})
            acknowledged.append(key)
            if key == 50:
                raise ZeroDivisionError

        async with reached("owned", tmp_path) as db:
            with pytest.raises(ExceptionGroup):
                await all_of(pair(db, key) for key in range(1, 100))
        return acknowledged

    acknowledged = asyncio.run(main())
    found = rows_of(tmp_path / "shop")
    assert set(acknowledged) <= found
    assert {-key for key in found if isinstance(key, int)} == found


@pytest.mark.parametrize("reach", ["joined", "served"])
def test_a_loop_that_ends_leaves_nothing_open_at_the_owner(reach: str, tmp_path: Path) -> None:
    async def main(place: str) -> list[int]:
        db = aio.Store(await asyncio.to_thread(opened_at, place), Threads(4))
        tx = await db.transaction()
        await tx["rows"].upsert({"id": -1, "n": 0})
        writes = [asyncio.ensure_future(db["rows"].upsert({"id": n, "n": n})) for n in range(20)]
        await asyncio.wait(writes, return_when=asyncio.FIRST_COMPLETED)
        return [n for n, each in enumerate(writes) if each.done()]  # the others are left behind

    def opened_at(place: str) -> st.Store:
        if reach == "joined":
            return JoinedStore(tmp_path / "shop", place, Options())
        return st.connect(place)

    with st.connect(tmp_path / "shop", background=False) as owner:
        owner.create_table("rows", SCHEMA, "id")
        place = str(owner.serve_local()) if reach == "joined" else owner.serve(port=0).url
        acknowledged = asyncio.run(main(place))
        gc.collect()
        owner["rows"].upsert({"id": 100, "n": 0})
    found = rows_of(tmp_path / "shop")
    assert {*acknowledged, 100} <= found
    assert -1 not in found


@pytest.mark.parametrize("reach", REACHES)
def test_one_thread_is_enough_for_all(reach: str, tmp_path: Path) -> None:
    async def work(tx: aio.Transaction) -> None:
        await tx["rows"].update_where("id = 0", sql={"n": "n + 1"})  # needs a thread each time
        await tx["rows"].count()

    async def main() -> None:
        async with reached(reach, tmp_path, threads_max=1) as db:
            await db["rows"].upsert({"id": 0, "n": 0})
            feed = asyncio.ensure_future(anext(db.follow(await db.seq)))
            runs = [db.run(work, attempts=1_000) for _ in range(8)]
            reads = [db.sql("select count(*) from rows") for _ in range(8)]
            writes = [db["rows"].insert([{"id": n, "n": n}]) for n in range(1, 9)]
            await asyncio.gather(*runs, *reads, *writes)
            assert await db["rows"].get(0) == {"id": 0, "n": 8}
            await feed

    asyncio.run(main())


def test_a_store_belongs_to_the_loop_that_connected_it(tmp_path: Path) -> None:
    held: list[aio.Store] = []

    async def connect() -> None:
        held.append(await aio.connect(tmp_path / "shop", background=False))
        await held[0].create_table("rows", SCHEMA, "id")

    async def use() -> None:
        db = held[0]
        for call in (db.tables, lambda: db["rows"].get(1), db.close, lambda: upsert(db)):
            with pytest.raises(st.RequestError, match="another event loop"):
                await call()

    async def upsert(db: aio.Store) -> None:
        await db["rows"].upsert({"id": 1, "n": 1})

    asyncio.run(connect())
    asyncio.run(use())
    with dropped(tmp_path / "shop"):
        held.clear()
        gc.collect()
    assert rows_of(tmp_path / "shop") == set()


def test_commits_above_the_bound_wait_for_room_and_then_are_refused() -> None:
    async def main() -> None:
        gate, threads = Gate(), Threads(1)
        groups = GroupCommits(threads, gate, 0.01)  # type: ignore[arg-type]
        first = asyncio.ensure_future(groups.commit(write(0), refused))
        await asyncio.to_thread(gate.begun.acquire)
        waiting = [
            asyncio.ensure_future(groups.commit(write(n), refused))
            for n in range(1, WAITING_MAX + 1)
        ]
        await asyncio.sleep(0)
        with pytest.raises(st.BusyError, match="waited"):
            await groups.commit(write(-1), refused)
        gate.may_end.release(WAITING_MAX)
        assert len(await asyncio.gather(first, *waiting)) == WAITING_MAX + 1
        await threads.close(lambda: None)

    asyncio.run(main())


def test_a_thread_that_asks_is_not_promised_that_a_commit_under_way_never_comes(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        with st.connect(tmp_path / "shop", background=False) as sync:
            async with aio.connect(tmp_path / "shop", background=False) as db:
                await db.create_table("rows", SCHEMA, "id")
                stopped, may_go_on = threading.Event(), threading.Event()

                def stop() -> None:
                    stopped.set()
                    assert may_go_on.wait(60)

                leader = asyncio.ensure_future(
                    asyncio.to_thread(sync.core.writer().run, stop)  # type: ignore[attr-defined]
                )
                await asyncio.to_thread(stopped.wait)  # now no group is written
                tx = await db.transaction()
                await tx["rows"].upsert({"id": 1, "n": 1})
                commit = asyncio.ensure_future(tx.commit())
                await asyncio.sleep(0)  # the task runs up to its group
                assert tx.transaction_id is not None
                assert sync.outcome(tx.transaction_id) == "in doubt"
                commit.cancel()
                asked = asyncio.ensure_future(db.outcome(tx.transaction_id))
                may_go_on.set()
                await leader
                found = await asked
                assert found == ("committed" if sync["rows"].get(1) else "not committed")

    asyncio.run(main())


def test_a_joined_loop_hears_that_its_owner_is_gone(tmp_path: Path) -> None:
    async def main() -> None:
        owner = st.connect(tmp_path / "shop", background=False)
        owner.create_table("rows", SCHEMA, "id")
        near = JoinedStore(tmp_path / "shop", str(owner.serve_local()), Options())
        async with aio.Store(near, Threads(2)) as db:
            await db["rows"].upsert({"id": 1, "n": 1})
            await asyncio.to_thread(owner.close)
            with pytest.raises(st.UnavailableError):
                await db["rows"].upsert({"id": 2, "n": 2})
        assert rows_of(tmp_path / "shop") == {1}

    asyncio.run(main())


def test_a_bad_bound_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    async def main() -> None:
        for wrong in (0, -1, "two", True):
            with pytest.raises(st.RequestError, match="threads_max"):
                await aio.connect(tmp_path / "shop", threads_max=wrong)  # type: ignore[arg-type]

    asyncio.run(main())
    assert not (tmp_path / "shop").exists()


def test_a_feed_ends_with_its_store_though_its_server_ends_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it asked for as both closed is refused by the server."""
    asks, closes = threading.Event(), threading.Event()

    def late(*_: object) -> object:
        asks.set()
        assert closes.wait(30)
        raise st.UnavailableError("the server closes")

    async def rest(feed: AsyncIterator[object]) -> int:
        return len([each async for each in feed])

    async def main() -> int:
        async with reached("served", tmp_path) as db:
            await db["rows"].upsert({"id": 1, "n": 1})
            feed = db.follow()
            await anext(feed)
            close = JoinedStore.close
            monkeypatch.setattr(JoinedStore, "changes", late)
            monkeypatch.setattr(
                JoinedStore, "close", lambda *a, **k: [closes.set(), close(*a, **k)]
            )
            await db["rows"].upsert({"id": 2, "n": 2})
            ending = asyncio.create_task(rest(feed))
            await asyncio.to_thread(asks.wait, 30)
        return await ending

    assert asyncio.run(main()) == 0
