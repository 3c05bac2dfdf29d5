"""A cancelled commit is there or not, and `outcome` knows, wherever the cancellation hit it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

import siltstone as st
from siltstone import aio
from siltstone.aio.commits import GroupCommits
from siltstone.aio.threads import Threads
from siltstone.api.results import Receipt
from siltstone.local.group_upserts import WriteSet
from tests.aio.reaches import REACHES, reached
from tests.nightly import by_day

STEPS = by_day(12, 60)
"""So many steps of the loop a task may take, one more each time, before it is cancelled."""
Work = Callable[[aio.Store, int], Awaitable[object]]


async def upsert(db: aio.Store, key: int) -> None:
    await db["rows"].upsert({"id": key, "n": 1})


async def insert_many(db: aio.Store, key: int) -> None:
    await db["rows"].insert([{"id": key, "n": 1}])


async def transact(db: aio.Store, key: int) -> None:
    async with db.transaction() as tx:
        assert await tx["rows"].get(key) is None
        await tx["rows"].upsert({"id": key, "n": 1})


async def define(db: aio.Store, key: int) -> None:
    async with db.transaction() as tx:
        await tx.create_table(f"t{key}", {"id": "int64"}, "id")
        await tx["rows"].upsert({"id": key, "n": 1})


async def run(db: aio.Store, key: int) -> None:
    await db.run(lambda tx: tx["rows"].insert({"id": key, "n": 1}))


@pytest.mark.parametrize("reach", REACHES)
@pytest.mark.parametrize("work", [upsert, insert_many, transact, define, run])
def test_outcome_knows_what_became_of_a_cancelled_commit(
    reach: str, work: Work, tmp_path: Path
) -> None:
    async def main() -> None:
        async with reached(reach, tmp_path) as db:
            for steps in range(STEPS):
                await cancelled_after(db, work, steps)
            await work(db, STEPS)  # nothing that was left behind holds it up
            assert await db["rows"].get(STEPS) is not None

    asyncio.run(main())


async def cancelled_after(db: aio.Store, work: Work, steps: int) -> None:
    task = asyncio.ensure_future(work(db, steps))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError as error:
        transaction_id = getattr(error, "transaction_id", None)
        if transaction_id is None:
            assert await db["rows"].get(steps) is None
            return
        outcome = await db.outcome(transaction_id)
        assert outcome in {"committed", "not committed"}
        is_there = await db["rows"].get(steps) is not None
        assert is_there == (outcome == "committed")
    else:
        assert await db["rows"].get(steps) is not None


class Gate:
    """A store whose groups are through when the test says so."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
        self.groups: list[list[int]] = []
        self.refused: set[int] = set()
        """The numbers of what a group cannot commit."""

    def id_of(self, number: int) -> str:
        return f"1-{number}"

    def commit(self, made: Sequence[WriteSet]) -> list[Receipt | BaseException | None]:
        self.begun.release()
        assert self.may_end.acquire(timeout=60)
        self.groups.append([each.number for each in made])
        return [
            None if n in self.refused else Receipt(n, 1, self.id_of(n))
            for n in (each.number for each in made)
        ]


def write(number: int) -> WriteSet:
    return WriteSet(number, None, ())  # type: ignore[arg-type]


def test_a_commit_that_waits_is_withdrawn_and_one_that_was_taken_is_not() -> None:
    async def main() -> None:
        gate, threads, ended = Gate(), Threads(1), dict[int, Receipt | None]()
        groups = GroupCommits(threads, gate, 60.0)  # type: ignore[arg-type]

        def commit(number: int) -> asyncio.Task[Receipt]:
            return asyncio.ensure_future(
                groups.commit(write(number), refused, lambda r: ended.update({number: r}))
            )

        taken = commit(1)
        await asyncio.to_thread(gate.begun.acquire)
        waiting, kept = commit(2), commit(3)
        await asyncio.sleep(0)
        for task in (taken, waiting):
            task.cancel()
        with pytest.raises(asyncio.CancelledError) as of_waiting:
            await waiting
        assert not hasattr(of_waiting.value, "transaction_id")
        assert ended == {2: None}
        with pytest.raises(asyncio.CancelledError) as of_taken:
            await taken
        assert of_taken.value.transaction_id == "1-1"  # type: ignore[attr-defined]
        knows = asyncio.ensure_future(threads.under_way.until_over("1-1"))
        await asyncio.sleep(0)
        assert not knows.done()
        gate.may_end.release(2)
        await knows
        assert (await kept).seq == 3
        assert ended[1] is not None
        assert gate.groups == [[1], [3]]
        assert not threads.under_way.ids
        await threads.close(lambda: None)

    asyncio.run(main())


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_what_a_group_cannot_commit_goes_alone_unless_it_was_cancelled(is_cancelled: bool) -> None:
    async def main() -> None:
        gate, threads, ended = Gate(), Threads(1), list[Receipt | None]()
        gate.refused = {1}
        groups = GroupCommits(threads, gate, 60.0)  # type: ignore[arg-type]
        made: list[Receipt] = []

        def alone() -> Receipt:
            made.append(Receipt(7, 1, "1-1"))
            return made[0]

        task = asyncio.ensure_future(groups.commit(write(1), alone, ended.append))
        await asyncio.to_thread(gate.begun.acquire)
        if is_cancelled:
            task.cancel()
        gate.may_end.release()
        if is_cancelled:
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await task
            assert cancelled.value.transaction_id == "1-1"  # type: ignore[attr-defined]
            await threads.under_way.until_over("1-1")
        else:
            assert await task == made[0]
        assert ended == ([None] if is_cancelled else made)
        assert not threads.under_way.ids
        await threads.close(lambda: None)

    asyncio.run(main())


def refused() -> Receipt:
    raise AssertionError


def test_a_call_that_waits_for_a_thread_never_begins_once_it_is_cancelled() -> None:
    async def main() -> None:
        threads, gate, made = Threads(1), threading.Event(), list[int]()
        running = asyncio.ensure_future(threads.run(gate.wait))
        waiting = asyncio.ensure_future(threads.run(lambda: made.append(1)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.set()
        assert await running
        assert await threads.run(lambda: made) == []
        await threads.close(lambda: None)

    asyncio.run(main())


def test_no_commit_of_a_call_begins_once_its_task_was_cancelled(tmp_path: Path) -> None:
    async def main() -> None:
        async with reached("owned", tmp_path) as db:
            inside, may_go_on = threading.Event(), threading.Event()

            def rows() -> list[dict[str, int]]:
                inside.set()
                assert may_go_on.wait(60)
                return [{"id": 1, "n": 1}]

            class Late:
                def __iter__(self):
                    return iter(rows())

            task = asyncio.ensure_future(db["rows"].upsert(Late()))
            await asyncio.to_thread(inside.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await task
            may_go_on.set()
            assert not hasattr(cancelled.value, "transaction_id")
        with st.connect(tmp_path / "shop") as db:
            assert db["rows"].count() == 0

    asyncio.run(main())


def test_a_timeout_leaves_the_id_at_the_transaction(tmp_path: Path) -> None:
    async def main() -> None:
        async with reached("owned", tmp_path) as db:
            async with db.transaction() as tx:
                await tx["rows"].upsert({"id": 1, "n": 1})
            assert tx.transaction_id is not None
            assert await db.outcome(tx.transaction_id) == "committed"
            async with db.transaction() as tx:
                await tx.create_table("other", {"id": "int64"}, "id")
            assert tx.transaction_id is not None
            assert await db.outcome(tx.transaction_id) == "committed"

    asyncio.run(main())


def test_a_block_that_is_cancelled_in_a_call_is_rolled_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with reached("owned", tmp_path) as db:
            inside, may_go_on = threading.Event(), threading.Event()

            class Late:
                def __iter__(self):
                    inside.set()
                    assert may_go_on.wait(60)
                    return iter([{"id": 1, "n": 1}])

            held: list[aio.Transaction] = []

            async def block() -> None:
                async with db.transaction() as tx:
                    held.append(tx)
                    await tx["rows"].upsert(Late())

            task = asyncio.ensure_future(block())
            await asyncio.to_thread(inside.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            may_go_on.set()
            await held[0].rollback()  # behind the call that still ran
            assert not held[0].is_open
            assert await db["rows"].count() == 0

    asyncio.run(main())
