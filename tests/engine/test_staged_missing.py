"""Rows that are staged for an upsert say what becomes of the columns that they do not name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st

COLUMNS = {"id": "int64", "n": "int64", "s": "string"}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as made:
        made.create_table("t", COLUMNS, primary_key="id")
        yield made


def rows(first: int, last: int, **values: Any) -> pa.Table:
    count = last - first
    return pa.table({"id": range(first, last), **{n: [v] * count for n, v in values.items()}})


def attached(db: st.Store, *pieces: pa.Table, inline: int = 0, **options: Any) -> int:
    stage = db.stage("t", **options)
    staged = [stage.run(piece, inline_bytes_max=inline) for piece in pieces]
    with db.transaction() as tx:
        return tx.attach(stage, staged)


def found(db: st.Store) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in db["t"].to_arrow().to_pylist())


@pytest.mark.parametrize("has_rows", [True, False])
def test_staged_rows_that_lack_a_column_are_refused(db: st.Store, has_rows: bool) -> None:
    if has_rows:
        db["t"].insert({"id": 1, "n": 1, "s": "a"})
    with pytest.raises(st.SchemaMismatchError, match=r"'s'.*\"keep\".*\"null\".*insert"):
        db.stage("t").run(rows(1, 3, n=2))
    with pytest.raises(st.RequestError, match="refuse, keep, null"):
        db.stage("t", missing="leave")  # type: ignore[arg-type]
    assert attached(db, rows(5, 7, n=2), op="insert") == 2


@pytest.mark.parametrize("inline", [0, 1 << 20])
def test_staged_rows_keep_what_they_do_not_name(db: st.Store, inline: int) -> None:
    db["t"].insert(rows(0, 3, n=1, s="a"))
    db.merge()
    db["t"].insert(rows(3, 5, n=1, s="b"))
    given = [rows(1, 4, n=2), rows(4, 6, n=3)]
    assert attached(db, *given, inline=inline, missing="keep") == 5
    expected = [(0, 1, "a"), (1, 2, "a"), (2, 2, "a"), (3, 2, "b"), (4, 3, "b"), (5, 3, None)]
    for step in (lambda: None, db.checkpoint, db.merge, lambda: db.vacuum(dry_run=False)):
        step()
        assert found(db) == expected
    assert db.verify(deep=True).is_sound


def test_into_an_empty_table_they_are_new_rows(db: st.Store) -> None:
    assert attached(db, rows(0, 2, s="a"), rows(2, 2, s="a"), missing="keep") == 2
    assert found(db) == [(0, None, "a"), (1, None, "a")]


def test_staged_rows_are_null_where_that_is_said(db: st.Store) -> None:
    db["t"].insert(rows(0, 2, n=1, s="a"))
    assert attached(db, rows(1, 3, n=2), missing="null") == 2
    assert found(db) == [(0, 1, "a"), (1, 2, None), (2, 2, None)]


def test_pieces_that_keep_name_the_same_columns(db: st.Store) -> None:
    with pytest.raises(st.SchemaMismatchError, match=r"name the columns .*keep"):
        attached(db, rows(0, 2, n=1), rows(0, 2, s="a"), missing="keep")
    batches = [*rows(0, 1, n=1).to_batches(), *rows(1, 2, s="a").to_batches()]
    with pytest.raises(st.SchemaMismatchError, match=r"name the columns .*keep"):
        db.stage("t", missing="keep").run(batches)
    assert found(db) == []


def test_a_column_that_comes_later_is_refused_kept_or_null(db: st.Store) -> None:
    db["t"].insert(rows(0, 3, n=1, s="a"))
    jobs = {word: db.stage("t", missing=word) for word in ("refuse", "keep", "null")}
    staged = {word: job.run(rows(0, 1, n=2, s="b")) for word, job in jobs.items()}
    db["t"].add_column("more", "int64")
    db["t"].update(0, more=7)
    with pytest.raises(st.SchemaMismatchError, match="'more'"), db.transaction() as tx:
        tx.attach(jobs["refuse"], [staged["refuse"]])
    for word, more in (("keep", 7), ("null", None)):
        with db.transaction() as tx:
            tx.attach(jobs[word], [staged[word]])
        assert db["t"].get(0) == {"id": 0, "n": 2, "s": "b", "more": more}


def test_kept_rows_conflict_with_a_change_of_the_same_row(db: st.Store) -> None:
    db["t"].insert(rows(0, 3, n=1, s="a"))
    for inline in (0, 1 << 20):
        stage = db.stage("t", missing="keep")
        staged = [stage.run(rows(1, 2, n=2), inline_bytes_max=inline)]
        lost, won = db.transaction(), db.transaction()
        lost.attach(stage, staged)
        db["t"].update(1, s="theirs")
        with pytest.raises(st.ConflictError):
            lost.commit()
        won.rollback()
        with db.transaction() as tx:
            tx.attach(stage, staged)
        assert db["t"].get(1) == {"id": 1, "n": 2, "s": "theirs"}


def test_rows_that_keep_come_before_other_jobs_of_their_table(db: st.Store) -> None:
    one, two = db.stage("t"), db.stage("t", missing="keep")
    first, second = one.run(rows(0, 2, n=1, s="a")), two.run(rows(0, 2, n=2))
    tx = db.transaction()
    tx.attach(one, [first])
    with pytest.raises(st.RequestError, match="before other jobs"):
        tx.attach(two, [second])
    tx.rollback()
    assert found(db) == []


@pytest.mark.parametrize("how", ["overwrite", "new column"])
def test_a_job_that_is_refused_leaves_nothing_in_the_transaction(db: st.Store, how: str) -> None:
    db["t"].insert({"id": 1, "n": 1, "s": "a"})
    schema = COLUMNS | {"z": "int64"} if how == "new column" else None
    stage = db.stage("t", missing="keep", schema=schema)
    pieces = [stage.run(rows(1, 2, n=2)), stage.run(rows(2, 3, s="b"))]
    with db.transaction() as tx:
        with pytest.raises(st.SchemaMismatchError):
            tx.attach(stage, pieces, overwrite=how == "overwrite")
        assert tx["t"].count() == 1
    assert db["t"].get(1) == {"id": 1, "n": 1, "s": "a"}
