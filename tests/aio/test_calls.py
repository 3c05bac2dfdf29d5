"""An event loop does with a store what a thread does, wherever the store's owner is."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from siltstone import aio
from tests.aio.reaches import REACHES, SCHEMA, reached

pytestmark = pytest.mark.parametrize("reach", REACHES)


def rows(count: int) -> list[dict[str, int]]:
    return [{"id": n, "n": 10 * n} for n in range(count)]


def test_what_is_written_is_read(reach: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with reached(reach, tmp_path) as db:
            table = db["rows"]
            receipt = await table.upsert({"id": 1, "n": 10})
            assert await db.outcome(receipt.transaction_id) == "committed"
            assert (await table.insert([{"id": 2, "n": 20}, {"id": 3, "n": 30}])).rows == 2
            assert (await table.update(2, n=21)).rows == 1
            assert (await table.delete(3)).rows == 1
            assert await table.get(2) == {"id": 2, "n": 21}
            assert await table.get(3) is None
            assert (await table.get_many([1, 2])).num_rows == 2
            assert await table.count("n > 10") == 1
            assert [name async for name in _names(db)] == ["rows"]
            assert (await table.schema).names == ["id", "n"]
            assert await table.primary_key == ("id",)
            assert await db.seq == await db.durable_seq
            found = await db.sql("select sum(n) from rows where id > ?", [0])
            assert found.fetchall() == [(31,)]

    asyncio.run(main())


async def _names(db: aio.Store):
    for name in await db.tables():
        yield name


def test_rows_come_batch_by_batch(reach: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with reached(reach, tmp_path) as db:
            await db["rows"].upsert(pa.Table.from_pylist(rows(100)))
            found = [row async for batch in db["rows"].scan(["id"]) for row in batch.to_pylist()]
            assert sorted(row["id"] for row in found) == list(range(100))
            part = await db["rows"].range(10, 20).read_all()
            assert part.column("id").to_pylist() == list(range(10, 20))
            stream = db.sql_reader("select id from rows where id < 3")
            assert (await stream.schema).names == ["id"]
            assert (await stream.read_all()).num_rows == 3
            await stream.aclose()
            feeds = await db.changes()
            assert (await feeds["rows"].read_all()).num_rows == 100

    asyncio.run(main())


async def failing(db: aio.Store) -> None:
    async with db.transaction() as tx:
        await tx["rows"].delete(1)
        raise ZeroDivisionError


def test_a_block_commits_all_or_nothing(reach: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with reached(reach, tmp_path) as db:
            async with db.transaction() as tx:
                await tx["rows"].insert({"id": 1, "n": 1})
                assert await tx["rows"].get(1) == {"id": 1, "n": 1}
                assert await db["rows"].get(1) is None
                await tx.create_table("other", SCHEMA, "id")
                await tx["other"].upsert(rows(5))
                assert await tx.tables() == ["other", "rows"]
            assert tx.receipt is not None
            assert tx.seq == await db.seq
            assert await db["other"].count() == 5
            with pytest.raises(ZeroDivisionError):
                await failing(db)
            assert await db["rows"].get(1) == {"id": 1, "n": 1}
            tx = await db.transaction()
            await tx["rows"].update(1, n=7)
            await tx.rollback()
            assert await db["rows"].get(1) == {"id": 1, "n": 1}

    asyncio.run(main())


def test_each_run_of_many_at_once_counts(reach: str, tmp_path: Path) -> None:
    async def add(tx: aio.Transaction) -> None:
        row = await tx["rows"].get(1)
        assert row is not None
        await tx["rows"].update(1, n=row["n"] + 1)

    async def main() -> None:
        async with reached(reach, tmp_path) as db:
            await db["rows"].upsert({"id": 1, "n": 0})
            await asyncio.gather(*(db.run(add, attempts=1_000) for _ in range(24)))
            assert await db["rows"].get(1) == {"id": 1, "n": 24}

    asyncio.run(main())


def test_tasks_may_share_a_transaction(reach: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with reached(reach, tmp_path) as db:
            async with db.transaction() as tx:
                table = tx["rows"]
                writes = [table.upsert({"id": n, "n": n}) for n in range(20)]
                more = [table.upsert(rows(3)), table.count(), table.get_many([1])]
                await asyncio.gather(*writes, *more)
            assert await db["rows"].count() == 20

    asyncio.run(main())


def test_what_is_refused_changes_nothing(reach: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with reached(reach, tmp_path) as db:
            table = db["rows"]
            await table.upsert({"id": 1, "n": 1})
            seq = await db.seq
            with pytest.raises(st.SchemaMismatchError):
                await table.upsert({"id": 1, "n": "text"})
            with pytest.raises(st.SchemaMismatchError):
                await table.upsert({"id": 1})
            with pytest.raises(st.DuplicateKeyError):
                await table.insert({"id": 1, "n": 2})
            with pytest.raises(st.RequestError):
                await table.append({"id": 1, "n": 2})
            with pytest.raises(st.TableNotFoundError):
                await db["none"].count()
            with pytest.raises(TypeError):
                _ = "rows" in db  # type: ignore[operator]
            with pytest.raises(st.RequestError):
                await db.run(None)  # type: ignore[arg-type]
            first, second = await db.transaction(), await db.transaction()
            await first["rows"].update(1, n=2)
            await second["rows"].update(1, n=3)
            assert (await first.commit()).rows == 1
            with pytest.raises(st.ConflictError):
                await second.commit()
            assert await db.seq == seq + 1

    asyncio.run(main())


def test_the_past_is_read_as_it_was(reach: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with reached(reach, tmp_path) as db:
            await db["rows"].upsert(rows(2))
            seq = await db.seq
            await db.tag("opened")
            async with db.snapshot() as past:
                await db["rows"].truncate()
                assert await past["rows"].count() == 2
                assert past.seq >= seq
                assert (await past.sql("from rows")).fetchall() == [(0, 0), (1, 10)]
            async with db.snapshot(tag="opened") as past:
                assert await past["rows"].get(1) == {"id": 1, "n": 10}
                assert await past.tables() == ["rows"]
            found = await db.diff("opened")
            assert found["rows"].removed == 2
            assert (await db.put_back("rows", to="opened", force=True)).rows == 2
            assert await db.tags() == {"opened": seq}

    asyncio.run(main())


def test_a_commit_is_followed_as_soon_as_it_is_durable(reach: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with reached(reach, tmp_path) as db:
            await db["rows"].upsert({"id": 1, "n": 1})
            seen: list[tuple[int, list[Any]]] = []
            first = asyncio.Event()

            async def watch() -> None:
                async for change in db.follow():
                    seen.append((change.seq, change["rows"].column("id").to_pylist()))
                    first.set()
                    if len(seen) == 3:
                        return

            watching = asyncio.create_task(watch())
            await first.wait()
            await db["rows"].upsert(rows(2))
            await db["rows"].delete(0)
            await watching
            seqs = [seq for seq, _ in seen]
            assert [ids for _, ids in seen] == [[1], [0, 1], [0]]
            assert seqs == sorted(set(seqs))

    asyncio.run(main())


def test_a_feed_ends_with_its_store(reach: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with reached(reach, tmp_path) as db:
            await db["rows"].upsert({"id": 1, "n": 1})
            first = asyncio.Event()

            async def watch() -> int:
                seen = 0
                async for _ in db.follow():
                    seen += 1
                    first.set()
                return seen

            watching = asyncio.create_task(watch())
            await first.wait()
        assert await watching == 1

    asyncio.run(main())


def test_a_closed_store_says_so(reach: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with reached(reach, tmp_path) as db:
            tx = await db.transaction()
            await tx["rows"].upsert({"id": 1, "n": 1})
        await db.close()
        for call in (db.tables, tx.commit, lambda: db["rows"].get(1), lambda: anext(db.follow())):
            with pytest.raises(st.ClosedError):
                await call()  # type: ignore[misc]
        with pytest.raises(st.ClosedError):
            await db.transaction()

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_the_child_of_a_fork_is_refused_and_the_parent_goes_on(reach: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with reached(reach, tmp_path) as db:
            await db["rows"].upsert({"id": 1, "n": 1})
            child = os.fork()
            if not child:
                try:
                    db["rows"].get(1).send(None)
                except st.ClosedError:
                    os._exit(7)
                finally:
                    os._exit(1)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 7
            assert (await db["rows"].upsert({"id": 2, "n": 2})).rows == 1

    asyncio.run(main())
