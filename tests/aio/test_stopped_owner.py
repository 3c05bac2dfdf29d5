"""An owner that is stopped holds up no loop: calls end by their bound, and the store closes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone import aio

_OWNER = """
import sys
import siltstone as st

with st.connect(sys.argv[1], background=False) as db:
    db.create_table("rows", {"id": "int64", "n": "int64"}, "id")
    db.serve_local()
    print(db.serve(port=0).url, flush=True)
    sys.stdin.read()
"""


class Owner:
    def __init__(self, child: subprocess.Popen[str], path: Path) -> None:
        assert child.stdout is not None
        self.child = child
        self.url, self.path = child.stdout.readline().strip(), path

    @contextmanager
    def stopped(self) -> Generator[None]:
        self.stop()
        try:
            yield
        finally:
            os.kill(self.child.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Stop all threads of it; the signal alone says so a moment before it is true."""
        os.kill(self.child.pid, signal.SIGSTOP)
        _, status = os.waitpid(self.child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)


@pytest.fixture
def owner(tmp_path: Path) -> Generator[Owner]:
    command = [sys.executable, "-c", _OWNER, str(tmp_path / "shop")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        try:
            yield Owner(child, tmp_path / "shop")
        finally:
            child.kill()


@asynccontextmanager
async def reached(
    owner: Owner, reach: str, answer_timeout_s: float | None
) -> AsyncGenerator[aio.Store]:
    place = owner.url if reach == "served" else owner.path
    async with aio.connect(
        place, join=reach == "joined", threads_max=2, answer_timeout_s=answer_timeout_s
    ) as db:
        await db["rows"].upsert({"id": 0, "n": 0})
        yield db


async def id_of_cancelled(task: asyncio.Future[Any]) -> str | None:
    """Return the id that the error of a cancelled task has; one from `gather` would be another."""
    try:
        await task
    except asyncio.CancelledError as error:
        return getattr(error, "transaction_id", None)
    pytest.fail("it ended, though its owner was stopped")


REACHES = pytest.mark.parametrize("reach", ["served", "joined"])


async def begun() -> None:
    """Let the loop hand on what was asked for: what it waits for does not come."""
    for _ in range(10):
        await asyncio.sleep(0)


@REACHES
def test_calls_end_by_the_bound_of_the_handle_and_work_again_later(
    owner: Owner, reach: str
) -> None:
    async def main() -> None:
        async with reached(owner, reach, 1.0) as db:
            with owner.stopped():
                writes = [db["rows"].upsert({"id": n, "n": n}) for n in range(1, 4)]
                ends = await asyncio.gather(*writes, return_exceptions=True)
            lost = [end for end in ends if isinstance(end, st.InDoubtError)]
            assert all(isinstance(e, st.UnavailableError | st.InDoubtError) for e in ends), ends
            assert all("\n" not in str(end) for end in ends)
            found = [await db.outcome(each.transaction_id) for each in lost]
            assert set(found) <= {"committed", "not committed"}
            assert await db["rows"].count() == 1 + found.count("committed")
            await db["rows"].upsert({"id": 9, "n": 9})

    asyncio.run(main())


@REACHES
def test_calls_that_are_cancelled_leave_at_once_and_outcome_knows_of_their_commits(
    owner: Owner, reach: str
) -> None:
    async def main() -> None:
        async with reached(owner, reach, None) as db:
            with owner.stopped():
                writes = [
                    asyncio.ensure_future(db["rows"].upsert({"id": n, "n": n})) for n in range(1, 9)
                ]
                await begun()
                for each in writes:
                    each.cancel()
                ids = [await id_of_cancelled(each) for each in writes]
            found = [await db.outcome(each) for each in ids if each is not None]
            assert set(found) <= {"committed", "not committed"}
            assert await db["rows"].count() == 1 + found.count("committed")

    asyncio.run(main())


@REACHES
def test_a_store_closes_beside_a_stopped_owner(owner: Owner, reach: str) -> None:
    async def main() -> None:
        async with reached(owner, reach, None) as db:
            owner.stop()
            feed = asyncio.ensure_future(anext(db.follow()))
            write = asyncio.ensure_future(db["rows"].upsert({"id": 1, "n": 1}))
            await begun()
        for each in await asyncio.gather(feed, write, return_exceptions=True):
            assert each is None or isinstance(
                each, st.ClosedError | st.InDoubtError | st.Change | StopAsyncIteration
            ), repr(each)

    asyncio.run(main())


def test_a_bound_that_is_no_time_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    for wrong in (0, -1, "soon", True, float("nan"), float("inf")):
        with pytest.raises(st.RequestError, match="answer_timeout_s"):
            aio.connect(tmp_path / "shop", answer_timeout_s=wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "shop").exists()
