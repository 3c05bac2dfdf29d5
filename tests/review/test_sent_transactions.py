"""What a joined process sends of a transaction is checked whole, and refused if it is not fit."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.engine.catalog import catalog as catalogs
from siltstone.formats.log import group
from siltstone.joined.store import JoinedStore
from siltstone.local import sent_commits
from tests.server.stores import joined_to, opened

Both = tuple[st.Store, JoinedStore]
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64(), False)])


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Both]:
    with opened(tmp_path / "shop") as owner:
        owner.create_table("t", SCHEMA, primary_key="id")
        owner.create_table("other", SCHEMA, primary_key="id")
        owner["t"].upsert([{"id": 1, "v": 10}, {"id": 2, "v": 20}])
        with joined_to(owner) as joined:
            assert joined._near is not None
            joined._near.nearby.newest()
            yield owner, joined


@pytest.mark.parametrize("window_bytes", [0, 8 << 20])
@pytest.mark.parametrize("is_made_anew", [False, True])
@pytest.mark.parametrize("how", ["get", "scan"])
def test_a_serializable_commit_is_refused_if_a_table_that_it_read_was_dropped(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    window_bytes: int,
    is_made_anew: bool,
    how: str,
) -> None:
    monkeypatch.setattr(sent_commits, "WINDOW_BYTES", window_bytes)
    with opened(tmp_path / "shop") as owner:
        for name in ("t", "other"):
            owner.create_table(name, SCHEMA, primary_key="id")
            owner[name].upsert([{"id": 1, "v": 10}, {"id": 2, "v": 20}])
        with joined_to(owner) as joined:
            joined._near.nearby.newest()  # type: ignore[union-attr]
            tx = joined.transaction(isolation="serializable")
            found = tx["t"].count() if how == "scan" else tx["t"].get(1)
            tx["other"].upsert({"id": 3, "v": 2 if found else 0})
            owner.drop_table("t")
            if is_made_anew:
                owner.create_table("t", SCHEMA, primary_key="id")
            for i in range(200):  # below the window, if it is small
                owner["other"].upsert({"id": 100 + i, "v": i})
            with pytest.raises((st.ConflictError, st.TableNotFoundError)):
                tx.commit()


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("how", ["count", "to_arrow", "sql"])
def test_a_serializable_commit_is_refused_if_a_plain_table_that_it_read_changed(
    pair: Both, how: str, moves: bool
) -> None:
    """What was read of tables without a key is not sent."""
    owner, joined = pair
    owner.create_table("p", {"a": "int64"})
    owner["p"].append([{"a": 1}])
    joined._near.nearby.newest()  # type: ignore[union-attr]
    tx = joined.transaction(isolation="serializable")
    assert tx.near is not None  # type: ignore[attr-defined]
    found = tx.sql("select * from p") if how == "sql" else getattr(tx["p"], how)()
    tx["t"].upsert({"id": 1, "v": 2 if found is not None else 0})
    owner["p"].append([{"a": 2}])
    with pytest.raises(st.ConflictError):  # noqa: PT012 - either says it
        if moves:
            tx.create_table("more", SCHEMA, primary_key="id")
        tx.commit()


def incarnation(owner: st.Store) -> int:
    catalog = owner._core.state().view.catalog  # type: ignore[attr-defined]
    found = catalogs.find(catalog, "t")
    assert found is not None
    return catalogs.incarnation_of(found).id


def send(both: Both, entries: list[group.Entry], blobs: list[pa.Buffer], reads: object) -> object:
    owner, joined = both
    head = msgspec.msgpack.encode([owner.seq, True, reads])
    member = group.Member(0, 0, None, entries)
    pieces = (bytes(each) for each in group.encode(0, 0, [member], blobs))
    body = b"".join((struct.pack("<I", len(head)), head, *pieces))
    pool = joined.pool
    return pool.commit(pool.take(), pool.message("commit_writes", (body,), {}))


def test_a_batch_with_a_null_where_none_may_be_is_refused(pair: Both) -> None:
    """It is accepted, and no merge of the table succeeds ever after."""
    owner, _ = pair
    batch = pa.record_batch({"id": [4, 5], "v": pa.array([None, 1], pa.int64())})
    entry = group.Batch(incarnation(owner), 1, group.UPSERT, 0)
    with pytest.raises(st.RequestError):
        send(pair, [entry], [batch.serialize()], None)
    owner.checkpoint()
    owner.merge("t")


def test_a_batch_of_an_unknown_kind_is_refused(pair: Both) -> None:
    """It deletes the rows."""
    owner, _ = pair
    batch = pa.record_batch({"id": [1, 2], "v": [1, 2]})
    with pytest.raises(st.RequestError):
        send(pair, [group.Batch(incarnation(owner), 1, 77, 0)], [batch.serialize()], None)
    assert owner["t"].count() == 2


@pytest.mark.parametrize("op", [group.UPSERT, group.DELETE])
def test_a_batch_with_a_key_twice_is_refused(pair: Both, op: int) -> None:
    owner, _ = pair
    columns = {"id": [1, 1], "v": [1, 2]} if op == group.UPSERT else {"id": [1, 1]}
    batch = pa.record_batch(columns)
    with pytest.raises(st.RequestError):
        send(pair, [group.Batch(incarnation(owner), 1, op, 0)], [batch.serialize()], None)
    assert owner["t"].count() == 2


def test_reads_that_are_no_keys_are_one_clear_refusal(pair: Both) -> None:
    owner, _ = pair
    number = incarnation(owner)
    entry = group.RowsEntry(number, 1, [(1, 2)], [])
    with pytest.raises(st.RequestError):  # "the owner failed: TypeError", and a traceback logged
        send(pair, [entry], [], [{number: [[1, 2]]}, [], 0, {}])


@pytest.mark.parametrize("how", ["upsert", "upsert_many", "transaction", "read"])
def test_an_owner_that_is_closing_is_gone_and_its_clients_are_not_closed(
    pair: Both, how: str
) -> None:
    owner, joined = pair
    tx = joined.transaction()
    tx["t"].upsert({"id": 3, "v": 1})
    calls = {
        "upsert": lambda: joined["t"].upsert({"id": 4, "v": 1}),
        "upsert_many": lambda: joined["t"].upsert([{"id": i, "v": 1} for i in range(3000)]),
        "transaction": tx.commit,
        "read": joined.status,
    }
    core = owner._parts.core  # type: ignore[attr-defined]
    core.refusal = "the store is closed"  # as `close` does first
    try:
        with pytest.raises(st.SiltstoneError) as raised:
            calls[how]()
    finally:
        core.refusal = None
    assert raised.type is st.UnavailableError
    assert joined["t"].count() == 2


def test_serve_local_says_when_an_idle_transaction_ends(tmp_path: Path) -> None:
    """`docs/join.md`: after 60 seconds without a call (`serve_local(idle_s=...)`)."""
    with opened(tmp_path / "shop") as owner:
        owner.create_table("t", SCHEMA, primary_key="id")
        owner.serve_local(idle_s=20)
        with joined_to(owner) as joined:
            joined._near.nearby.newest()  # type: ignore[union-attr]
            tx = joined.transaction()
            tx["t"].upsert({"id": 1, "v": 1})
            tx._used_s -= 30  # type: ignore[attr-defined] - it was not called for so long
            with pytest.raises(st.ClosedError):
                tx.commit()
