"""Rows stream batch by batch, end in words when something breaks, and are durable when seen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.joined.store import JoinedStore
from siltstone.server.http.pipeline import Pipeline
from siltstone.server.http.policy import RequestPolicy
from siltstone.server.http.replies import Pieces
from siltstone.server.rest.access import Gate
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.server import rest_policy
from siltstone.server.rest.wire import RestWire
from siltstone.server.rpc.server import rpc_policy
from tests.server.owners import owner_of
from tests.server.stores import asking, joined_to

Both = tuple[st.Store, JoinedStore]

MANY = pa.table({"id": pa.array(range(400_000)), "v": pa.array(range(400_000))})


@pytest.mark.parametrize("policy", [rpc_policy(), rest_policy(Limits())], ids=["rpc", "rest"])
def test_a_piece_is_read_when_the_one_before_it_was_sent_or_is_just_sent(
    policy: RequestPolicy,
) -> None:
    read: list[int] = []

    def chunks() -> Iterator[bytes]:
        for number in range(5):
            read.append(number)
            yield b"rows"

    sent: list[int] = []

    async def send(message: dict) -> None:
        if message["type"] == "http.response.body":
            sent.append(len(read))

    async def receive() -> dict:
        return await asyncio.get_running_loop().create_future()  # the client stays

    with ThreadPoolExecutor(2) as executor:
        pipeline = Pipeline(RestWire(Gate(())), policy, executor)
        asyncio.run(pipeline.streamed(Pieces("", chunks()), {})({}, receive, send))
    if policy.reads_ahead:
        assert all(count <= number + 2 for number, count in enumerate(sent))
    else:
        assert sent == [1, 2, 3, 4, 5, 5]
    assert len(sent) == 6


def test_many_rows_go_and_come_back(both: Both) -> None:
    owner, joined = both
    receipt = joined["t"].upsert(MANY)
    assert receipt.rows == owner["t"].count() == MANY.num_rows
    assert joined["t"].to_arrow().sort_by("id").cast(MANY.schema) == MANY
    assert sum(batch.num_rows for batch in joined["t"].scan(["v"], "id < 100000")) == 100_000


def test_a_scan_that_is_left_before_its_end_disturbs_nobody(both: Both) -> None:
    _, joined = both
    joined["t"].upsert(MANY)
    for _ in range(12):
        reader = joined["t"].scan()
        reader.read_next_batch()
        reader.close()
        del reader
    assert joined["t"].count() == MANY.num_rows


def test_several_scans_are_read_at_once_with_writes_between(both: Both) -> None:
    _, joined = both
    joined["t"].upsert(MANY)
    with joined.transaction() as tx:
        readers = [tx["t"].scan(), joined["t"].scan()]
        first = [reader.read_next_batch().num_rows for reader in readers]
        tx["t"].upsert({"id": -1, "v": -1})
        joined["t"].get(1)
        rest = [sum(batch.num_rows for batch in reader) for reader in readers]
    assert [a + b for a, b in zip(first, rest, strict=True)] == [MANY.num_rows] * 2
    assert joined["t"].count() == MANY.num_rows + 1


def test_an_error_in_the_middle_of_a_scan_is_raised_as_what_it_is(both: Both) -> None:
    owner, joined = both
    joined.create_table("d", {"id": "int64", "x": "decimal(12,2)"}, "id")
    joined["d"].insert({"id": 1, "x": None})
    import pyarrow.compute as pc

    wrong = pc.field("x") > 0  # Arrow finds out when it reads: the sum of digits is too large
    with pytest.raises(st.SiltstoneError) as own:
        owner["d"].to_arrow(filter=wrong)
    with pytest.raises(st.SiltstoneError) as found:
        joined["d"].to_arrow(filter=wrong)
    assert type(found.value) is type(own.value)
    assert str(found.value) == str(own.value)
    assert joined["d"].count() == 1


@asking
def test_a_scan_whose_owner_dies_is_never_taken_for_whole(tmp_path: Path) -> None:
    with owner_of(tmp_path / "shop") as owner:
        joined = st.connect(tmp_path / "shop", join=True)
        for first in range(0, 1_600_000, 400_000):  # far more than sockets hold
            numbers = pa.array(range(first, first + 400_000))
            joined["t"].upsert(pa.table({"id": numbers, "v": numbers}))
        reader = joined["t"].scan()
        reader.read_next_batch()
        owner.kill()
        with pytest.raises(st.UnavailableError, match="middle of a scan"):
            reader.read_all()
        joined.close()


@asking
def test_a_reader_that_stalls_does_not_keep_the_owner_from_closing(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    with st.connect(path, background=False) as owner:
        owner.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        for first in range(0, 1_600_000, 400_000):
            numbers = pa.array(range(first, first + 400_000))
            owner["t"].upsert(pa.table({"id": numbers, "v": numbers}))
        joined = joined_to(owner)
        reader = joined["t"].scan()
        reader.read_next_batch()
        owner.close()
        with pytest.raises(st.UnavailableError):
            reader.read_all()
        joined.close()
    with st.connect(path, background=False) as again:
        assert again["t"].count() == 1_600_000


def test_what_a_joined_process_sees_is_durable(tmp_path: Path, way: str) -> None:
    """Where it asks, the owner syncs first; what it reads itself it does not see before."""
    path = tmp_path / "shop"
    with st.connect(path, background=False, sync_interval_ms=10**7) as owner:
        owner.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        with joined_to(owner) as joined:
            table = joined["t"]
            sights = [
                lambda: table.get(1),
                table.count,
                lambda: joined.transaction().rollback(),
                lambda: joined.snapshot().close(),
                lambda: joined.sql("select * from t"),
                joined.log,
                lambda: joined.seq,
            ]
            for number, look in enumerate(sights):
                with owner.transaction(durability="async") as tx:
                    tx["t"].upsert({"id": 1, "v": number})
                assert owner.durable_seq < owner.seq
                seen = look()
                if way == "near":
                    assert owner.durable_seq < tx.seq
                    assert seen != tx.seq
                    assert table.get(1) in ({"id": 1, "v": number - 1}, None)
                    joined.status()  # which syncs
                assert owner.durable_seq == owner.seq == tx.seq
                assert table.get(1) == {"id": 1, "v": number}


def test_a_feed_ends_at_what_is_durable(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    with st.connect(path, background=False, sync_interval_ms=10**7) as owner:
        owner.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        owner["t"].upsert({"id": 1, "v": 1})
        with joined_to(owner) as joined:
            with owner.transaction(durability="async") as tx:
                tx["t"].upsert({"id": 2, "v": 2})
            assert joined.changes()["t"].read_all().num_rows == 1


def test_threads_share_a_joined_store(both: Both) -> None:
    owner, joined = both
    table = joined["t"]

    def work(number: int) -> None:
        for step in range(10):
            table.upsert({"id": 1000 * number + step, "v": step})
            assert table.get(1000 * number + step) is not None

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(1, 7)))
    assert owner["t"].count() == 62


def test_rows_of_any_shape_are_taken(both: Both) -> None:
    import pandas as pd

    owner, joined = both
    table = joined["t"]
    table.upsert(pd.DataFrame({"id": [10], "v": [1]}))
    table.upsert({"id": row, "v": 1} for row in (11, 12))
    table.upsert(pa.table({"id": [13], "v": [1]}).to_reader())
    table.upsert(pa.record_batch({"id": [14], "v": [1]}))
    table.delete(pa.table({"id": [14]}))
    table.delete({10})
    assert sorted(owner["t"].to_arrow()["id"].to_pylist()) == [1, 2, 11, 12, 13]


def test_rows_that_break_while_they_are_read_write_nothing(both: Both) -> None:
    owner, joined = both

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [10], "v": [1]})
        raise pa.ArrowInvalid("torn")

    schema = pa.schema({"id": pa.int64(), "v": pa.int64()})
    with pytest.raises(st.RequestError, match="torn"):
        joined["t"].upsert(pa.RecordBatchReader.from_batches(schema, batches()))
    assert owner["t"].count() == 2
