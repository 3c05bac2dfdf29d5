"""A plain table that an optimize moves has the same rows: no transaction loses to it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.engine.catalog import catalog as catalogs
from siltstone.local.merge_insert import Merge, MergeInserted, merge
from siltstone.local.store import LocalStore
from siltstone.storage.tables.values import InputsMovedError
from tests.engine.seams import fake_env, open_store

SCHEMA = {"id": "int64", "v": "int64"}


@pytest.fixture
def made(tmp_path: Path):
    with open_store(tmp_path / "db", fake_env()) as db:
        table = db.create_table("log", SCHEMA)
        for turn in range(4):
            table.append([{"id": n, "v": turn} for n in range(3)])
        yield db, table


def compacted(db: st.Store, first: int = 0, end: int = 12):
    """Return the incarnation, and its rows in [first, end) in one file."""
    found = catalogs.find(db._core.state().view.catalog, "log")
    incarnation = catalogs.incarnation_of(found)
    pin = catalogs.version_of(incarnation).pin
    return incarnation.id, db._parts.site.tables.compactor.compact(pin, (first, end))


def commit(db: st.Store, incarnation: int, *results) -> None:
    with db.transaction() as tx:
        tx.compact(incarnation, results, tx.core.begun().first_us)


def parts(db: st.Store) -> int:
    incarnation = catalogs.incarnation_of(catalogs.find(db._core.state().view.catalog, "log"))
    pin = catalogs.version_of(incarnation).pin
    return len(db._parts.site.tables.reader.open(pin).spans)


def rows(table) -> list[tuple[int, int]]:
    return sorted((row["id"], row["v"]) for row in table.to_arrow().to_pylist())


def numbers(db: st.Store) -> list[int]:
    with db.transaction() as tx:
        found = [version.pin.version for version in tx.lance.versions("log").versions]
        tx.rollback()
    return found


def test_it_is_a_version_with_the_same_rows_and_the_next_number(made) -> None:
    db, table = made
    before, numbered, seq = rows(table), numbers(db), db.seq
    commit(db, *compacted(db))
    assert parts(db) == 1
    assert rows(table) == before
    assert rows(db.snapshot(seq=seq)["log"]) == before
    assert numbers(db) == [*numbered, numbered[-1] + 1]


def test_it_survives_a_crash_from_the_log_and_from_a_record(made) -> None:
    db, table = made
    expected = rows(table)
    commit(db, *compacted(db))
    for checkpoints in range(2):
        with LocalStore.open(db.path, db.options, read_only=True, env=fake_env()) as other:
            assert rows(other["log"]) == expected, checkpoints
            assert parts(other) == 1
        db.checkpoint()
    db.close()
    with open_store(db.path, fake_env()) as db:
        assert rows(db["log"]) == expected
        assert parts(db) == 1


def test_files_that_were_added_meanwhile_stay(made) -> None:
    db, table = made
    found = compacted(db)
    table.append({"id": 9, "v": 9})
    expected = rows(table)
    commit(db, *found)
    assert rows(table) == expected
    assert parts(db) == 2


def test_an_append_that_wins_is_built_upon(made) -> None:
    db, table = made
    tx = db.transaction()
    incarnation, result = compacted(db)
    tx.compact(incarnation, [result], tx.core.begun().first_us)
    table.append({"id": 9, "v": 9})
    expected = rows(table)
    tx.commit()
    assert rows(table) == expected
    assert parts(db) == 2


def test_a_delete_that_wins_is_no_loss(made) -> None:
    db, table = made
    tx = db.transaction()
    incarnation, result = compacted(db)
    tx.compact(incarnation, [result], tx.core.begun().first_us)
    table.delete_where("v = 2")
    expected = rows(table)
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert rows(table) == expected


def everything(table) -> None:
    table.append({"id": 20, "v": 20})
    table.delete_where("id = 1")
    table.append({"id": 21, "v": 21})


def replaced(table) -> None:
    table.append({"id": 20, "v": 20})
    table.overwrite([{"id": 30, "v": 30}])
    table.append({"id": 31, "v": 31})
    table.delete_where("id = 20")


def altered(table) -> None:
    table.add_column("w", "int64")
    table.append({"id": 20, "v": 20, "w": 1})
    table.delete_where("w = 2")


@pytest.mark.parametrize("work", [everything, replaced, altered])
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_a_transaction_that_began_before_it_does_all_again_on_top(made, work, isolation) -> None:
    db, table = made
    tx = db.transaction(isolation=isolation)
    assert tx["log"].to_arrow().num_rows == 12
    work(tx["log"])
    expected = rows(tx["log"])
    commit(db, *compacted(db))
    with LocalStore.open(db.path, db.options, read_only=True, env=fake_env()) as other:
        assert other["log"].to_arrow().num_rows == 12
    tx.commit()
    assert rows(table) == expected
    assert numbers(db) == list(range(numbers(db)[0], numbers(db)[-1] + 1))


def test_a_merge_that_began_before_it_is_done_again_on_top(made) -> None:
    db, table = made
    tx = db.transaction()
    source = pa.table({"id": [1, 7], "v": [100, 700]})
    how = Merge(("id",), True, True, False, None, 100)
    assert merge(tx, "log", source, how) == MergeInserted(4, 1, 0)
    commit(db, *compacted(db))
    tx.commit()
    kept = [(n, turn) for n in (0, 2) for turn in range(4)]
    assert rows(table) == sorted([*kept, *[(1, 100)] * 4, (7, 700)])


def test_a_serializable_reader_still_loses_to_rows_that_came_with_it(made) -> None:
    db, table = made
    other = db.create_table("other", SCHEMA)
    tx = db.transaction(isolation="serializable")
    seen = tx["log"].to_arrow().num_rows
    tx["other"].append({"id": 1, "v": seen})
    commit(db, *compacted(db))
    table.append({"id": 9, "v": 9})
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert rows(other) == []


def test_a_delete_still_loses_to_rows_that_came_with_it(made) -> None:
    db, table = made
    tx = db.transaction()
    tx["log"].delete_where("v = 0")
    commit(db, *compacted(db))
    table.append({"id": 9, "v": 9})
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert len(rows(table)) == 13


def test_files_of_a_table_that_was_truncated_are_refused(made) -> None:
    db, table = made
    found = compacted(db)
    table.truncate()
    with pytest.raises(InputsMovedError):
        commit(db, *found)
    assert rows(table) == []
