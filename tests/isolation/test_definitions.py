"""Definitions against open writers: the additive ones widen them, all others refuse one side."""

from __future__ import annotations

import pytest

import siltstone as st
from tests.isolation.stores import with_two_rows


def plain(db: st.Store) -> st.Store:
    db.create_table("log", {"a": "int64", "b": "string"})
    return db


def test_a_new_column_widens_an_open_writer() -> None:
    db = with_two_rows()
    tx = db.transaction()
    tx["t"].upsert({"id": 1, "v": 11})
    db["t"].add_column("w", "string")
    tx.commit()
    assert db["t"].get(1) == {"id": 1, "v": 11, "w": None}


def test_a_new_column_widens_an_open_writer_of_a_batch() -> None:
    db = with_two_rows()
    tx = db.transaction()
    tx["t"].upsert([{"id": n, "v": n} for n in range(600)])
    tx["t"].delete(list(range(1000, 6000)))
    db["t"].add_column("w", "string")
    tx.commit()
    assert db["t"].count("w IS NULL") == 600


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.drop_column("v"),
        lambda t: t.rename_column("v", "w"),
        lambda t: t.truncate(),
    ],
    ids=["drop_column", "rename_column", "truncate"],
)
@pytest.mark.parametrize("rows", [1, 600])
def test_any_other_change_refuses_an_open_writer(change, rows: int) -> None:
    db = with_two_rows()
    tx = db.transaction()
    tx["t"].upsert([{"id": n, "v": n} for n in range(rows)])
    change(db["t"])
    before = db["t"].to_arrow()
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert db["t"].to_arrow().equals(before)


def test_a_writer_of_a_dropped_table_is_refused() -> None:
    db = with_two_rows()
    tx = db.transaction()
    tx["t"].upsert({"id": 1, "v": 11})
    db.drop_table("t")
    with pytest.raises(st.TableNotFoundError):
        tx.commit()


def test_a_writer_goes_on_through_a_rename() -> None:
    db = with_two_rows()
    tx = db.transaction()
    tx["t"].upsert({"id": 1, "v": 11})
    db.rename_table("t", "u")
    tx.commit()
    assert db["u"].get(1) == {"id": 1, "v": 11}


@pytest.mark.parametrize("verb", ["truncate", "drop"])
def test_a_truncate_or_drop_conflicts_with_rows_committed_since_it_began(verb: str) -> None:
    db = with_two_rows()
    tx = db.transaction()
    if verb == "drop":
        tx.drop_table("t")
    else:
        tx["t"].truncate()
    db["t"].upsert({"id": 3, "v": 30})
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert db["t"].count() == 3


def test_a_drop_conflicts_with_a_rename_since_it_began() -> None:
    """Its user meant the table of that name; who renamed it has told others the new one."""
    db = with_two_rows()
    tx = db.transaction()
    tx.drop_table("t")
    db.rename_table("t", "kept")
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert db["kept"].count() == 2


@pytest.mark.parametrize("table", ["t", "log"])
@pytest.mark.parametrize("verb", ["truncate", "drop"])
def test_a_truncate_or_drop_conflicts_with_a_truncate_since_it_began(verb: str, table: str) -> None:
    db = plain(with_two_rows())
    tx = db.transaction()
    if verb == "drop":
        tx.drop_table(table)
    else:
        tx[table].truncate()
    receipt = db[table].truncate()
    with pytest.raises(st.ConflictError) as caught:
        tx.commit()
    assert (caught.value.table, caught.value.written_seq) == (table, receipt.seq)
    assert db.seq == receipt.seq


def test_a_truncate_twice_in_one_transaction_conflicts_with_nobody() -> None:
    db = with_two_rows()
    with db.transaction() as tx:
        tx["t"].truncate()
        tx["t"].upsert({"id": 3, "v": 30})
        tx["t"].truncate()
    assert db["t"].count() == 0
    db["t"].truncate()
    with db.transaction() as tx:
        tx.create_table("made", {"id": "int64"}, "id")
        tx["made"].truncate()
        tx.drop_table("made")
    assert db.tables() == ["t"]


@pytest.mark.parametrize("rows", [1, 700])
@pytest.mark.parametrize(
    "change",
    [lambda t: t.drop_column("b"), lambda t: t.rename_column("b", "z")],
    ids=["drop_column", "rename_column"],
)
@pytest.mark.parametrize("key", ["a", ()])
def test_rows_behind_their_own_truncate_conflict_with_the_end_of_their_column(
    key, change, rows: int
) -> None:
    db = with_two_rows()
    table = db.create_table("log", {"a": "int64", "b": "string"}, key)
    db.sql("insert into log values (0, 'w')")
    tx = db.transaction()
    tx["log"].truncate()
    given = [{"a": number, "b": "x"} for number in range(rows)]
    tx["log"].upsert(given) if key else tx["log"].append(given)
    change(table)
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert table.count() == 1


def test_a_new_column_widens_rows_behind_their_own_truncate() -> None:
    db = with_two_rows()
    tx = db.transaction()
    tx["t"].truncate()
    tx["t"].upsert({"id": 1, "v": 11})
    db["t"].add_column("w", "string")
    tx.commit()
    assert db["t"].to_arrow().to_pylist() == [{"id": 1, "v": 11, "w": None}]


def test_of_two_changes_of_columns_the_second_is_refused() -> None:
    db = with_two_rows()
    txs = [db.transaction(), db.transaction()]
    txs[0]["t"].add_column("w", "string")
    txs[1]["t"].add_column("x", "int64")
    txs[0].commit()
    with pytest.raises(st.ConflictError):
        txs[1].commit()
    assert db["t"].schema.names == ["id", "v", "w"]


def test_an_append_goes_on_through_another_append() -> None:
    db = plain(with_two_rows())
    tx = db.transaction()
    tx["log"].append({"a": 1})
    db["log"].append({"a": 2})
    tx.commit()
    assert sorted(db["log"].to_arrow()["a"].to_pylist()) == [1, 2]


@pytest.mark.parametrize("rows", [0, 1])
def test_an_append_goes_on_through_a_new_column(rows: int) -> None:
    db = plain(with_two_rows())
    if rows:
        db["log"].append({"a": 0})
    tx = db.transaction()
    tx["log"].append({"a": 1, "b": "x"})
    db["log"].add_column("c", "int64")
    tx.commit()
    assert sorted(db["log"].to_arrow()["a"].to_pylist()) == [*([0] * rows), 1]
    assert db["log"].to_arrow()["c"].null_count == rows + 1


@pytest.mark.parametrize("rows", [0, 1])
def test_a_new_column_meets_rows_appended_since(rows: int) -> None:
    db = plain(with_two_rows())
    if rows:
        db["log"].append({"a": 0})
    tx = db.transaction()
    tx["log"].add_column("c", "int64")
    db["log"].append({"a": 1, "b": "x"})
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert db["log"].schema.names == ["a", "b"]
    assert db["log"].count() == rows + 1


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize(
    "change",
    [lambda t: t.drop_column("a"), lambda t: t.rename_column("a", "z")],
    ids=["drop_column", "rename_column"],
)
def test_an_append_is_refused_when_its_column_is_gone(change, rows: int) -> None:
    db = plain(with_two_rows())
    if rows:
        db["log"].append({"a": 0})
    tx = db.transaction()
    tx["log"].append({"a": 1, "b": "x"})
    change(db["log"])
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert db["log"].count() == rows


def test_of_two_overwrites_the_second_is_refused() -> None:
    db = plain(with_two_rows())
    txs = [db.transaction(), db.transaction()]
    for number, tx in enumerate(txs):
        tx["log"].overwrite({"a": number})
    txs[0].commit()
    with pytest.raises(st.ConflictError):
        txs[1].commit()
    assert db["log"].to_arrow()["a"].to_pylist() == [0]


def test_a_plain_table_renamed_in_the_transaction_that_made_it_takes_rows_later() -> None:
    db = with_two_rows()
    with db.transaction() as tx:
        tx.create_table("draft", {"a": "int64"}).append({"a": 1})
        tx.rename_table("draft", "final")
    db["final"].append({"a": 2})
    assert sorted(db["final"].to_arrow()["a"].to_pylist()) == [1, 2]


def test_a_column_that_one_transaction_adds_is_not_seen_by_another_that_adds_its_namesake() -> None:
    db = with_two_rows()
    first, second = db.transaction(), db.transaction()
    first["t"].add_column("w", "int64")
    assert first["t"].count("w > 1") == 0
    second["t"].add_column("w", "string")
    assert second["t"].count("w = ''") == 0
    assert [str(kind) for kind in second["t"].to_arrow().schema.types][-1] == "string"


@pytest.mark.parametrize("name", ["key", "self"])
def test_update_takes_a_column_of_any_name(name: str) -> None:
    db = with_two_rows()
    db["t"].rename_column("v", name)
    assert db["t"].update(1, **{name: 11}).rows == 1
    with db.transaction() as tx:
        assert tx["t"].update(2, **{name: 22}) == 1
    assert sorted(db["t"].to_arrow()[name].to_pylist()) == [11, 22]
