"""What is asked of an awaited store again, after it was cancelled, refused or closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.aio import commits, streams
from tests.aio.reaches import reached


def test_a_stream_that_failed_does_not_go_on_behind_what_it_did_not_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = streams.commits_of
    fails = [True]

    def commits_of(readers: Any) -> Iterator[Any]:
        for change in real(readers):
            yield change
            if fails:
                fails.clear()
                raise st.UnavailableError("gone")

    monkeypatch.setattr(streams, "commits_of", commits_of)

    async def main() -> None:
        async with reached("owned", tmp_path) as db:
            table = db["rows"]
            seqs = [(await table.upsert({"id": n, "n": n})).seq for n in range(3)]
            stream = db.follow(seqs[0] - 1)
            with pytest.raises(st.UnavailableError):
                await anext(stream)
            last = (await table.upsert({"id": 4, "n": 4})).seq
            seen = list[int]()
            try:
                while not seen or seen[-1] != last:
                    seen.append((await anext(stream)).seq)
            except (st.UnavailableError, StopAsyncIteration):
                pass
            assert seen == [*seqs, last][: len(seen)]

    asyncio.run(main())


def test_a_commit_that_was_cancelled_before_it_began_can_be_asked_for_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with reached("owned", tmp_path, threads_max=1) as db:
            tx = await db.transaction(token=("app", 1))
            await tx["rows"].upsert({"id": 1, "n": 1})
            held, let_go = threading.Event(), threading.Event()
            threads = db._threads  # pyright: ignore[reportPrivateUsage]
            busy = asyncio.ensure_future(threads.run(lambda: (held.set(), let_go.wait())))
            await asyncio.to_thread(held.wait)
            task = asyncio.ensure_future(tx.commit())
            await asyncio.sleep(0)
            assert threads._waiting == 2  # pyright: ignore[reportPrivateUsage]
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert tx.transaction_id is None
            let_go.set()
            await busy
            assert tx.is_open
            receipt = await tx.commit()
            assert await db.outcome(tx.transaction_id or "") == "committed"
            assert receipt.seq == await db.seq

    asyncio.run(main())


def test_a_commit_that_waits_for_room_while_the_store_closes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with reached("owned", tmp_path) as db:
            monkeypatch.setattr(commits, "WAITING_MAX", 0)
            table = db["rows"]
            task = asyncio.ensure_future(table.upsert({"id": 1, "n": 1}))
            groups = db._store.groups  # pyright: ignore[reportPrivateUsage]
            assert groups is not None
            await asyncio.sleep(0)
            assert groups._rooms  # pyright: ignore[reportPrivateUsage]
            closing = asyncio.ensure_future(db.close())
            await asyncio.sleep(0)
            groups._rooms.popleft().set_result(None)  # pyright: ignore[reportPrivateUsage]
            with pytest.raises(st.ClosedError):
                await task
            await closing

    asyncio.run(main())
