"""A statement that writes takes the rows, columns and tables that its text names, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.local.statements import inserts
from tests.server.stores import opened


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with opened(tmp_path / "shop") as found:
        found.sql("create table t (id bigint primary key, v bigint, s varchar)")
        found.sql("insert into t values (1, 10, 'a'), (2, 20, 'b'), (3, null, null)")
        found.sql("create table p (id bigint, v bigint)")
        yield found


def rows(db: st.Store, text: str = "from t order by id") -> list[Any]:
    return db.sql(text).fetchall()


def stream(kind: pa.DataType) -> pa.RecordBatchReader:
    """Return rows that can be read once."""
    ids = pa.array([7, 8], kind)
    batch = pa.RecordBatch.from_arrays([ids, ids], names=["id", "v"])
    return pa.RecordBatchReader.from_batches(batch.schema, [batch])


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
@pytest.mark.parametrize(
    "text",
    [
        "insert into t (id, v) select * from given",
        "insert or replace into t (id, v) from given",
        "insert into t by name select * from given",
        "insert into p from given",
        "insert into t (id, v) from given on conflict do nothing",
        (
            "merge into t using given using (id) when not matched and exists (from given) then"
            " insert (id, v) values (given.id, given.v)"
        ),
    ],
)
def test_a_frame_that_can_be_read_once_gives_all_of_its_rows(
    db: st.Store, text: str, kind: pa.DataType
) -> None:
    given = stream(kind)
    assert given.schema.names == ["id", "v"]
    assert db.sql(text).rows == 2
    table = "p" if "into p" in text else "t"
    assert rows(db, f"select id, v from {table} where id > 3 order by id") == [(7, 7), (8, 8)]


def test_such_a_frame_gives_its_rows_again_after_a_conflict(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, write, runs = stream(pa.int32()), getattr(inserts, "_write"), list[int]()  # noqa: B009
    assert given.schema.names == ["id", "v"]

    def raced(*arguments: Any) -> int:
        runs.append(1)
        if len(runs) == 1:
            db["t"].upsert([{"id": 8, "v": 0, "s": "raced"}])
        return write(*arguments)

    monkeypatch.setattr(inserts, "_write", raced)
    assert db.sql("insert or replace into t (id, v) select * from given").rows == 2
    assert len(runs) == 2
    assert rows(db, "from t where id > 3 order by id") == [(7, 7, None), (8, 8, "raced")]


ALIKE = pa.schema([("a", pa.int64()), ("A", pa.int64()), ("v", pa.int64())])


@pytest.mark.parametrize("key", [["a", "A"], ["v"]])
@pytest.mark.parametrize(
    "text",
    [
        'update x set v = 9 where a = 1 and "A" = 2',
        'update x set "A" = 9 where v = 1',
        'delete from x where "A" = 1',
        'delete from x where a = 2 and "A" = 1',
        'insert into x (a, "A", v) values (5, 6, 7)',
        'insert or replace into x (a, "A", v) values (1, 2, 1)',
        "merge into x using x as y on x.v = y.v when matched then delete",
    ],
)
def test_columns_that_duckdb_does_not_tell_apart_are_not_guessed(
    db: st.Store, text: str, key: list[str]
) -> None:
    given = [{"a": 1, "A": 2, "v": 1}, {"a": 2, "A": 1, "v": 2}, {"a": 1, "A": 1, "v": 3}]
    db.create_table("x", ALIKE, key).insert(given)
    with pytest.raises(st.RequestError, match="does not tell the columns"):
        db.sql(text)
    assert sorted(db["x"].to_arrow().to_pylist(), key=lambda row: row["v"]) == given


@pytest.mark.parametrize("head", ["memory.", "main.", "memory.main.", ""])
def test_a_table_is_named_with_its_namespace_and_the_catalog_of_duckdb(
    db: st.Store, head: str
) -> None:
    db.sql("create table sales.t (id bigint primary key)")
    db.sql("insert into sales.t values (1), (2)")
    if "main." not in head:  # it is a namespace itself
        assert db.sql(f"delete from {head}sales.t where id = 1").rows == 1
        assert rows(db, "from sales.t") == [(2,)]
    assert len(rows(db)) == 3
    db.sql(f"create table {head}made (id bigint primary key)")
    assert "made" in db
    assert db.sql(f"delete from {head}t where id = 1").rows == 1
    assert len(rows(db)) == 2
    db.sql(f"drop table {head}made")
    assert "made" not in db


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ('excluded."v + 1"', 77),
        ("excluded.v + 1", 11),
        ('"excluded" . V', 10),
        ("excluded.s", 5),
        ("excluded.v /* + 1 */", 10),
        ("excluded.missing", None),
    ],
)
def test_excluded_is_the_column_of_the_new_row_that_is_named(
    db: st.Store, value: str, found: int | None
) -> None:
    db.sql(
        'create table x (id bigint primary key, v bigint, "v + 1" bigint, s varchar, missing int)'
    )
    text = (
        "insert into x (id, v, \"v + 1\", s) values (1, 10, 77, '5') on conflict do update set v ="
    )
    db.sql(f"{text} 0")
    db.sql(f"{text} {value}")
    assert rows(db, "select v from x") == [(found,)]


@pytest.mark.parametrize(
    "text",
    [
        "update t set v = unnest([1, 2])",
        "update t set v = columns('v|id')",
        "insert into t (id) values (1) on conflict do update set v = columns('v|id')",
        "merge into t using p on p.id = t.id when matched then update set v = columns('v')",
        "delete from t where unnest([true, false])",
    ],
)
def test_what_is_not_one_value_of_a_row_is_refused(db: st.Store, text: str) -> None:
    db.sql("insert into p values (1, 5)")
    before = rows(db)
    with pytest.raises(st.RequestError):
        db.sql(text)
    assert rows(db) == before


@pytest.mark.parametrize("is_alone", [True, False])
def test_rows_are_found_by_keys_that_are_uuids(db: st.Store, *, is_alone: bool) -> None:
    db.sql("create table x (k uuid, n int, v bigint, primary key (k, n))")
    db.sql("create table y (k uuid primary key, v bigint)")
    db.sql("create table u (k uuid)")
    for name, more in (("x", ", 1"), ("y", "")):
        db.sql(f"insert into {name} select uuid(){more}, range from range(4)")
        for text in (
            f"update {name} set v = v + 1",
            f"update {name} set k = s.k, v = s.v from {name} as s where s.k = {name}.k returning *",
            f"insert or replace into {name} from {name}",
            f"insert into {name} from {name} on conflict do update set v = {name}.v + excluded.v",
            f"merge into {name} using (from {name}) s using (k) when matched then update",
            f"delete from {name} using range(2) as r returning *",
            f"insert into {name} select uuid(){more}, range from range(4)",
            f"merge into {name} using u on false when not matched by source then delete",
        ):
            with db.transaction() as tx:
                assert (db if is_alone else tx).sql(text).rows == 4
            assert len(rows(db, f"from {name}")) == (0 if "delete" in text else 4)
        assert db.sql(f"insert into {name} select uuid(){more}, 1 on conflict do nothing").rows == 1
        assert db.sql(f"insert into {name} from {name} on conflict do nothing").rows == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("update t set s = $€$ where id = 1 $€$ where id = 2", " where id = 1 "),
        ("update t set s = $x·1$ ' where id = 1 $x·1$ where id = 2", " ' where id = 1 "),
    ],
)
def test_a_text_in_dollars_ends_where_duckdb_ends_it(db: st.Store, text: str, found: str) -> None:
    with duckdb.connect() as peer:
        peer.execute("create table t as select 1 as id, 'a' as s union all select 2, 'b'")
        peer.execute(text)
        assert peer.execute("select s from t order by id").fetchall() == [("a",), (found,)]
    assert db.sql(text).rows == 1
    assert rows(db, "select s from t where id < 3 order by id") == [("a",), (found,)]


def test_a_table_is_inserted_by_its_name_alone(db: st.Store) -> None:
    db.sql("insert into p values (1, 2)")
    for text in ("insert into p table p", "insert into p (table p)"):
        db.sql(text)
    assert rows(db, "from p") == [(1, 2)] * 4


@pytest.mark.parametrize(
    "value", ["0.12345678901234567", "123456789012345678901234567890.5", "0.3000000000000000444"]
)
def test_a_decimal_is_the_float_that_duckdb_makes_of_it(db: st.Store, value: str) -> None:
    db.sql("create table x (id bigint primary key, f double)")
    db.sql(f"insert into x values (1, {value}), (2, {value} + 0)")
    db.sql("insert into x values (3, ?)", [Decimal(value)])
    db.sql(f"update x set f = {value} where id = 2")
    assert len(set(rows(db, "select f from x"))) == 1
    with duckdb.connect() as peer:
        assert peer.execute(f"select {value}::double").fetchone() == rows(db, "select f from x")[0]


@pytest.mark.parametrize(
    "text", ["update t set v = $2 where id = ?", "delete from t where id = $3 or v = ?"]
)
def test_a_placeholder_behind_numbers_is_the_next_one(db: st.Store, text: str) -> None:
    with duckdb.connect() as peer:
        peer.execute("create table t as select 1 as id, 1 as v")
        with pytest.raises(duckdb.InvalidInputException, match=r"not provided|excess"):
            peer.execute(text, [1, 2])
    with pytest.raises(st.RequestError, match=r"has the parameters \$[23], \$[34]"):
        db.sql(text, [1, 2])
    assert len(rows(db)) == 3


@pytest.mark.parametrize("way", ["or ignore", "or replace"])
def test_a_key_that_is_null_is_refused_by_name(db: st.Store, way: str) -> None:
    for text in (
        f"insert {way} into t (id, v) values (?, 1)",
        f"insert {way} into t (id) select ?",
    ):
        for tail in ("", " returning id"):
            with pytest.raises(st.SchemaMismatchError, match="column 'id'"):
                db.sql(text + tail, [None])
    assert len(rows(db)) == 3


@pytest.mark.parametrize("name", ["siltstone rows", "SILTSTONE existing rows", "siltstone actions"])
@pytest.mark.parametrize(
    "text",
    [
        "insert into t (id, v) values (1, 5) on conflict do update set v = excluded.v + t.v",
        "insert into t (id, v) values (7, 5) returning v + 0",
        "merge into t using p using (id) when matched then delete returning merge_action",
    ],
)
def test_no_query_stands_for_the_rows_of_a_statement(db: st.Store, name: str, text: str) -> None:
    before = rows(db)
    with pytest.raises(st.RequestError, match="WITH names a query"):
        db.sql(f'with "{name}" as (select 1 as id, 99 as v) {text}')
    assert rows(db) == before
