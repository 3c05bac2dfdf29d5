"""A bulk commit creates its table, or adds columns, together with its rows: all or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st

SCHEMA = {"id": "int64", "v": "string"}
WIDE = pa.schema([("w", pa.float64()), ("more", pa.list_(pa.int32()))])
KEYS = pytest.mark.parametrize("key", ["id", ()], ids=["keyed", "plain"])


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "s"
    with opened(tmp_path / "s") as db:
        assert db.verify(deep=True).is_sound


def opened(path: Path) -> st.Store:
    return st.connect(path, background=False, segment_bytes=65_536, retention="0s")


def rows(first: int, last: int, **more: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"id": n, "v": str(n), **more} for n in range(first, last)],
        schema=pa.schema([("id", pa.int64()), ("v", pa.string()), *(f for f in WIDE if more)]),
    )


def shown(db: st.Store, table: str = "t") -> list[dict[str, object]]:
    return db[table].to_arrow().sort_by("id").to_pylist()


def settle(db: st.Store) -> None:
    db.checkpoint()
    db.merge()
    db.vacuum(dry_run=False, grace_s=0)


@KEYS
@pytest.mark.parametrize("count", [0, 5, 70_000])
def test_a_table_is_created_with_its_rows_in_one_commit(path: Path, key: str, count: int) -> None:
    with opened(path) as db:
        with st.connect(path, read_only=True) as reader:
            task = reader.stage("t", schema=SCHEMA, primary_key=key)
        half = count // 2
        pieces = [task.run(iter([rows(0, half)])), task.run(iter([rows(half, count)]))]
        before = db.seq
        with db.transaction() as tx:
            assert tx.attach(task, pieces) == count
            assert db.tables() == []
        assert db.seq == before + 1
        assert db["t"].primary_key == ((key,) if key else ())
        assert db["t"].count() == count
        schema = db["t"].schema
    wanted = pa.table(rows(0, count)).cast(schema)
    with opened(path) as db:  # from the log
        assert db["t"].to_arrow().sort_by("id").equals(wanted)
        settle(db)
        assert db["t"].count() == count
        (db["t"].upsert if key else db["t"].append)({"id": count, "v": "later"})
        settle(db)
        assert shown(db)[count:] == [{"id": count, "v": "later"}]


@KEYS
def test_a_job_that_is_not_committed_leaves_no_table_and_no_file(path: Path, key: str) -> None:
    with opened(path) as db:
        for _ in range(2):
            task = db.stage("t", schema=SCHEMA, primary_key=key)
            piece = task.run(iter([rows(0, 9)]))
            with db.transaction() as tx:
                tx.attach(task, [piece])
                tx.rollback()
        assert task.discard([piece]) is False  # a transaction has tried
        assert db.tables() == []
        db.create_table("other", SCHEMA)
        settle(db)
        assert [each.name for each in (path / "tables").glob("t-*")] == []


@KEYS
def test_a_table_that_came_meanwhile_is_not_replaced(path: Path, key: str) -> None:
    with opened(path) as db:
        task = db.stage("t", schema=SCHEMA, primary_key=key)
        piece = task.run(iter([rows(0, 9)]))
        db.create_table("t", SCHEMA, "id")
        with pytest.raises(st.TableExistsError), db.transaction() as tx:
            tx.attach(task, [piece])
        assert db["t"].count() == 0


def test_equal_keys_of_a_new_table_are_refused_or_ordered(path: Path) -> None:
    with opened(path) as db:
        task = db.stage("t", schema=SCHEMA, primary_key="id")
        pieces = [task.run(iter([rows(0, 3)])), task.run(iter([rows(2, 4)]))]
        with pytest.raises(st.DuplicateKeyError), db.transaction() as tx:
            tx.attach(task, pieces)
        assert db.tables() == []
        task = db.stage("t", order_by="v", schema=SCHEMA, primary_key="id")
        pieces = [task.run(iter([rows(0, 3)])), task.run(iter([rows(2, 4)]))]
        with db.transaction() as tx:
            tx.attach(task, pieces)
        assert db["t"].count() == 4


@KEYS
@pytest.mark.parametrize("filled", [False, True], ids=["empty", "filled"])
@pytest.mark.parametrize("overwrite", [False, True], ids=["append", "overwrite"])
def test_columns_are_added_with_the_rows_that_have_them(
    path: Path, key: str, filled: bool, overwrite: bool
) -> None:
    old = [{"id": n, "v": "old", "w": None, "more": None} for n in range(3)]
    new = rows(3, 6, w=0.5, more=[1, None])
    with opened(path) as db:
        table = db.create_table("t", SCHEMA, key)
        if filled:
            (table.upsert if key else table.append)([{"id": n, "v": "old"} for n in range(3)])
        past = db.seq
        with st.connect(path, read_only=True) as reader:
            task = reader.stage("t", schema=WIDE)
        piece = task.run(iter([new]))
        with db.transaction() as tx:
            tx.attach(task, [piece], overwrite)
        assert db.seq == past + 1
        wanted = ([] if overwrite or not filled else old) + new.to_pylist()
        assert shown(db) == wanted
        with db.snapshot(seq=past) as then:
            assert then["t"].schema.names == ["id", "v"]
    with opened(path) as db:
        assert shown(db) == wanted
        settle(db)
        assert shown(db) == wanted
        (db["t"].insert if key else db["t"].append)({"id": 9, "w": 9.0})
        settle(db)
        assert shown(db)[-1] == {"id": 9, "v": None, "w": 9.0, "more": None}


@KEYS
def test_other_columns_that_came_meanwhile_are_not_mistaken_for_those_of_the_job(
    path: Path, key: str
) -> None:
    with opened(path) as db:
        for name, other in (("a", "float64"), ("b", "string")):
            table = db.create_table(name, SCHEMA, key)
            task = db.stage(name, schema=pa.schema([("w", pa.float64())]))
            piece = task.run(iter([rows(0, 2, w=0.5, more=None).drop_columns(["more"])]))
            table.add_column("x" if name == "a" else "w", other)
            with pytest.raises(st.SchemaMismatchError), db.transaction() as tx:
                tx.attach(task, [piece])
            assert table.count() == 0


@KEYS
def test_the_same_column_that_came_meanwhile_takes_the_rows(path: Path, key: str) -> None:
    with opened(path) as db:
        db.create_table("t", SCHEMA, key)
        tasks = [db.stage("t", schema=WIDE) for _ in range(2)]
        for n, task in enumerate(tasks):
            piece = task.run(iter([rows(n, n + 1, w=float(n), more=[n])]))
            with db.transaction() as tx:
                tx.attach(task, [piece])
        assert [row["w"] for row in shown(db)] == [0.0, 1.0]


def test_what_a_table_cannot_have_is_refused_before_anything_is_staged(path: Path) -> None:
    with opened(path) as db:
        db.create_table("t", SCHEMA, "id")
        with pytest.raises(st.SchemaMismatchError, match="with the key"):
            db.stage("t", schema=WIDE, primary_key="v")
        with pytest.raises(st.SchemaMismatchError, match="its 'v' is string, not int64"):
            db.stage("t", schema={"v": "int64"})
        with pytest.raises(st.SchemaMismatchError, match="no column 'x'"):
            db.stage("new", schema=SCHEMA, primary_key="x")
        with pytest.raises(st.RequestError, match="name"):
            db.stage("../new", schema=SCHEMA)
        with pytest.raises(st.TableNotFoundError):
            db.stage("new")


def test_a_joined_process_stages_and_commits_a_new_table(path: Path) -> None:
    with opened(path) as db:
        db.serve_local()
        with st.connect(path, join=True) as joined:
            task = joined.stage("t", schema=SCHEMA, primary_key="id")
            piece = task.run(iter([rows(0, 9)]))
            with joined.transaction(token=("load", 1)) as tx:
                tx.attach(task, [piece])
            with joined.transaction(token=("load", 1)) as tx:
                tx.attach(task, [piece])  # once
        assert db["t"].count() == 9
