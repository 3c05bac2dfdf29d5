"""A joined store answers like the store: the same methods, answers and errors."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import siltstone as st
from siltstone.joined.store import JoinedStore
from tests.server.owners import owner_of
from tests.server.stores import opened, served

Both = tuple[st.Store, JoinedStore]

ROWS = pa.table(
    {
        "id": pa.array([2**62 + 1, 5], pa.int64()),
        "when": pa.array([1, 2], pa.timestamp("ns", "UTC")),
        "day": pa.array([dt.date(2026, 1, 1), None]),
        "price": pa.array([Decimal("1.50"), Decimal("-2.25")], pa.decimal128(12, 2)),
        "blob": pa.array([b"\0\xff", None], pa.binary()),
        "tags": pa.array([["a", None], []], pa.list_(pa.string())),
        "is_new": pa.array([True, None]),
        "small": pa.array([1.5, float("inf")], pa.float32()),
        "unsigned": pa.array([2**64 - 1, 0], pa.uint64()),
    }
)


def reads(table: object) -> list[object]:
    return [
        table.schema,
        table.primary_key,
        table.name,
        table.get(5),
        table.get(2**62 + 1),
        table.get(6),
        table.get_many([5, 7, 2**62 + 1]),
        table.get_many(pa.table({"id": [5]})),
        table.to_arrow().sort_by("id"),
        table.to_arrow(["price", "id"], "id = 5"),
        table.to_arrow(filter=pc.field("id") > 5),
        table.to_pandas(["id"]).to_dict(),
        table.count(),
        table.count("is_new is null"),
        table.scan(columns=[]).read_all().num_rows,
        table.scan(limit=1).read_all().num_rows,
        table.dataset().to_table(filter=pc.field("id") == 5),
    ]


@pytest.mark.parametrize("is_flushed", [False, True])
def test_every_read_answers_the_same(tmp_path: Path, *, is_flushed: bool) -> None:
    with served(tmp_path / "shop") as (owner, joined):
        joined.create_table("t", ROWS.schema, "id")
        joined["t"].insert(ROWS)
        if is_flushed:
            joined.checkpoint()
            joined.merge()
        assert reads(joined["t"]) == reads(owner["t"])
        with owner.snapshot() as past, joined.snapshot() as joined_past:
            assert joined_past.seq == past.seq
            assert reads(joined_past["t"]) == reads(past["t"])
            assert joined_past.tables() == past.tables()
        with joined.transaction() as tx, owner.transaction() as own:
            assert reads_of_transaction(tx["t"]) == reads_of_transaction(own["t"])
        assert joined.sql("select sum(price) from t").fetchall() == (
            owner.sql("select sum(price) from t").fetchall()
        )
        assert joined.log() == owner.log()
        cache = {"cache": None}  # its bound follows the free space, which others take meanwhile
        assert joined.status().to_dict() | cache == owner.status().to_dict() | cache
        assert joined.verify() == owner.verify()
        assert joined.vacuum(grace_s=0.0) == owner.vacuum(grace_s=0.0)


def reads_of_transaction(table: object) -> list[object]:
    return [table.get(5), table.count(), table.to_arrow().sort_by("id"), table.schema, table.name]


def test_maintenance_answers_with_the_same_values(both: Both) -> None:
    owner, joined = both
    record = joined.checkpoint()
    assert record == owner.checkpoint()
    merged = joined.merge("t")
    assert isinstance(merged, st.Merged)
    assert merged.tables == ("t",)
    assert joined.durable_seq == owner.durable_seq == joined.seq == owner.seq


def test_changes_answer_the_same(both: Both) -> None:
    owner, joined = both
    joined["t"].delete([1])
    joined["t"].upsert({"id": 5, "v": None})
    own = {name: rows.read_all() for name, rows in owner.changes().items()}
    found = {name: rows.read_all() for name, rows in joined.changes().items()}
    assert found == own
    assert joined.changes(tables=["t"], since=owner.seq)["t"].read_all().num_rows == 0
    with pytest.raises(st.SnapshotExpiredError):
        joined.changes(until=owner.seq + 1)


def test_the_past_is_read_at_a_seq_a_moment_and_a_tag(both: Both) -> None:
    owner, joined = both
    seq = owner.seq
    joined.tag("audit")
    assert joined.tags() == owner.tags() == {"audit": seq}
    joined["t"].truncate()
    assert joined.snapshot(seq=seq)["t"].count() == 2
    assert joined.snapshot(tag="audit")["t"].count() == 2
    now = dt.datetime.now(dt.UTC)
    assert joined.snapshot(at=now)["t"].count() == 0
    joined.untag("audit")
    assert joined.tags() == {}


def test_handles_stay_when_their_table_is_renamed(both: Both) -> None:
    _, joined = both
    table = joined["t"]
    joined.rename_table("t", "u")
    table.upsert({"id": 7, "v": 7})
    assert table.name == "u"
    assert joined["u"].get(7) == {"id": 7, "v": 7}
    joined.drop_table("u")
    with pytest.raises(st.TableNotFoundError):
        table.count()


def test_plain_tables_are_written(both: Both) -> None:
    owner, joined = both
    events = joined.create_table("events", {"at": "timestamp", "what": "string"})
    events.append([{"at": dt.datetime(2026, 1, 1), "what": "a"}])  # noqa: DTZ001
    events.append(pa.table({"what": ["b", "c"]}))
    assert events.count() == 3
    events.delete_where("what = 'b'")
    assert sorted(owner["events"].to_arrow()["what"].to_pylist()) == ["a", "c"]
    events.overwrite([{"what": "z"}])
    assert events.count() == 1
    assert owner["events"].to_arrow()["what"].to_pylist() == ["z"]


def test_columns_are_added_renamed_and_dropped(both: Both) -> None:
    owner, joined = both
    joined["t"].add_column("note", "string")
    joined["t"].update(1, note="x")
    joined["t"].rename_column("note", "memo")
    assert owner["t"].get(1) == {"id": 1, "v": 10, "memo": "x"}
    joined["t"].drop_column("memo")
    assert joined["t"].schema.names == ["id", "v"]
    joined["t"].add_column("price", pa.decimal128(10, 2))
    assert joined["t"].schema.field("price").type == pa.decimal128(10, 2)


def test_composite_keys_of_all_kinds_are_found(both: Both) -> None:
    _, joined = both
    schema = {"a": "bool", "b": "date", "c": "binary", "d": "decimal(10,2)", "v": "int64"}
    table = joined.create_table("k", schema, ["a", "b", "c", "d"])
    key = (True, dt.date(2026, 1, 1), b"\0", Decimal("1.50"))
    table.insert(dict(zip(["a", "b", "c", "d", "v"], [*key, 1], strict=True)))
    assert table.get(key)["v"] == 1
    assert table.get(dict(zip(["a", "b", "c", "d"], key, strict=True)))["v"] == 1
    table.update(key, v=2)
    with pytest.raises(st.DuplicateKeyError) as caught:
        table.insert(dict(zip(["a", "b", "c", "d", "v"], [*key, 1], strict=True)))
    assert caught.value.key == key
    table.delete([key])
    assert table.get(key) is None


def claimed_at(db: object, claim: int) -> None:
    assert isinstance(db, st.Store)
    with db.transaction(token=("app", 1), claim=claim) as tx:
        tx["t"].upsert({"id": 3, "v": 3})


BAD: list[tuple[str, Callable[[object], object]]] = [
    ("unknown table", lambda db: db["nope"]),
    ("a name that is none", lambda db: db.create_table("_x", {"id": "int64"}, "id")),
    ("a table that exists", lambda db: db.create_table("t", {"id": "int64"}, "id")),
    ("a schema that is none", lambda db: db.create_table("x", 5, "id")),
    ("a column that is none", lambda db: db["t"].upsert({"id": 1, "w": 1})),
    ("a value of another type", lambda db: db["t"].upsert([{"id": 1, "v": "x"}])),
    ("rows that are none", lambda db: db["t"].upsert(5)),
    (
        "an Arrow column of another type",
        lambda db: db["t"].upsert(pa.table({"id": ["x"], "v": [1]})),
    ),
    ("a row that lacks a column", lambda db: db["t"].upsert({"id": 1})),
    ("Arrow rows that lack a column", lambda db: db["t"].upsert(pa.table({"id": [1]}))),
    ("a word for missing columns that is none", lambda db: db["t"].upsert({"id": 1}, "drop")),
    ("an update of rows without a key", lambda db: db["t"].update_many([{"v": 1}])),
    ("an update that sets nothing", lambda db: db["t"].update_where("true")),
    ("a living key", lambda db: db["t"].insert({"id": 1, "v": 1})),
    ("a key of another type", lambda db: db["t"].get("x")),
    ("a filter that does not parse", lambda db: db["t"].count("v ><")),
    ("an unknown column", lambda db: db["t"].to_arrow(["w"])),
    ("a limit below zero", lambda db: db["t"].scan(limit=-1)),
    ("append to a keyed table", lambda db: db["t"].append({"id": 1})),
    ("a column that exists", lambda db: db["t"].add_column("v", "int64")),
    ("a future seq", lambda db: db.snapshot(seq=10**6)),
    ("a tag that is none", lambda db: db.snapshot(tag="nope")),
    ("two pasts", lambda db: db.snapshot(seq=1, tag="x")),
    ("an isolation that is none", lambda db: db.transaction(isolation="maybe")),
    ("a token that is none", lambda db: db.transaction(token=("app",))),
    ("a claim above all", lambda db: claimed_at(db, 1 << 70)),
    ("SQL that writes what does not fit", lambda db: db.sql("update t set id = id + 1")),
    ("SQL that writes, in a reader", lambda db: db.sql_reader("delete from t")),
    ("SQL with a typing error", lambda db: db.sql("selec 1")),
    ("SQL over a table that is none", lambda db: db.sql("select * from nope")),
    ("changes of a future", lambda db: db.changes(since=10**6)),
    ("a transaction that is none", lambda db: db.outcome("x")),
    ("a merge of no table", lambda db: db.merge("nope")),
    ("attempts below one", lambda db: db.run(lambda tx: None, attempts=0)),
    ("an app that is none", lambda db: db.claim("")),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad[0])
def test_a_wrong_call_raises_the_same_error_and_changes_nothing(
    both: Both, bad: tuple[str, Callable[[object], object]]
) -> None:
    owner, joined = both
    seq = owner.seq
    with pytest.raises(st.SiltstoneError) as own:
        bad[1](owner)
    with pytest.raises(st.SiltstoneError) as found:
        bad[1](joined)
    assert type(found.value) is type(own.value)
    assert str(found.value) == str(own.value)
    assert vars(found.value) == vars(own.value)
    assert owner.seq == seq


def test_a_closed_store_refuses_and_a_second_close_does_nothing(both: Both) -> None:
    _, joined = both
    table, tx, past = joined["t"], joined.transaction(), joined.snapshot()
    joined.close()
    joined.close()
    for call in (joined.tables, table.count, past.tables, tx.commit, joined.transaction):
        with pytest.raises(st.ClosedError):
            call()
    assert "closed" in repr(joined)


def test_what_is_shown_says_what_a_person_wants_to_know(both: Both) -> None:
    _, joined = both
    assert "owned by process" in repr(joined)
    assert repr(joined["t"]) == "<table 't', key id: ['id', 'v']>"
    with joined.snapshot() as past:
        assert repr(past) == f"<Snapshot at seq {past.seq}: t>"
        assert repr(past["t"]) == f"<table 't' at seq {past.seq}>"
    assert repr(past) == f"<Snapshot at seq {past.seq}, closed>"
    with joined.transaction() as tx:
        assert repr(tx).startswith("<Transaction ")
        assert "open" in repr(tx["t"])


def test_plain_connect_on_a_served_store_says_how_to_join(tmp_path: Path) -> None:
    with owner_of(tmp_path / "shop") as owner:
        with pytest.raises(st.OwnedError, match="join=True") as caught:
            opened(tmp_path / "shop")
        assert caught.value.endpoint == str(owner.address)


def test_an_index_is_built_by_the_owner(tmp_path: Path) -> None:
    with served(tmp_path / "shop") as (own, joined):
        own.create_table("t", {"id": "int64", "v": "int64"}, "id")
        joined["t"].upsert([{"id": n, "v": n % 5} for n in range(50)])
        joined.checkpoint()
        joined.merge()
        made = joined["t"].create_index("v", "bitmap", name="mine")
        assert (made.kind, made.lagging_rows) == ("bitmap", 0)
        assert joined["t"].indexes() == own["t"].indexes() == [made]
        assert joined.status().tables[0].indexes == (made,)
        with pytest.raises(st.RequestError, match="has an index 'mine'"):
            joined["t"].create_index("v", "bitmap", name="mine")
        joined["t"].drop_index("mine")
        assert joined["t"].indexes() == []
