"""What DuckDB gives back as another value is written as it was, or refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from tests.server.stores import opened

YEARS_300_US = 300 * 365 * 86_400 * 1_000_000
"""Nanoseconds of it do not fit into 64 bits."""
NANOSECONDS = 1_577_836_800_000_000_123


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with opened(tmp_path / "shop") as found:
        yield found


@pytest.fixture(params=["us", "ms", "s"])
def long(request: pytest.FixtureRequest, db: st.Store) -> pa.Table:
    """Return rows with long durations, which the tables a and b have, too."""
    micros = pa.array([YEARS_300_US, -YEARS_300_US - 1_000_000, None, 5_000_000], pa.int64())
    unit = micros.cast(pa.duration("us")).cast(pa.duration(request.param))
    rows = pa.table({"id": pa.array(range(4), pa.int64()), "w": unit, "n": pa.nulls(4, pa.int64())})
    for name in ("a", "b"):
        db.create_table(name, rows.schema, "id").insert(rows)
    return rows


@pytest.mark.parametrize(
    "text",
    [
        "update b set w = a.w from a where a.id = b.id",
        "update b set w = w, n = 1",
        "update b set w = -w",
        "update b set w = q.x from (select id, w as x from a) q where q.id = b.id",
        "insert or replace into b (id, w) select id, w from a",
        "insert into b from a on conflict do update set w = excluded.w + interval 0 day",
        "insert or replace into b (id, w) values (0, (select w from a where id = 0))",
    ],
)
def test_a_duration_of_any_length_is_written_as_it_is(
    db: st.Store, long: pa.Table, text: str
) -> None:
    db.sql(text)
    sign = -1 if "-w" in text else 1
    found = db["b"].to_arrow().sort_by("id").column("w").cast(pa.int64()).to_pylist()
    wanted = long.column("w").cast(pa.int64()).to_pylist()
    assert found == [None if each is None else sign * each for each in wanted]


def test_a_source_of_merge_with_longer_durations_than_it_can_carry_is_refused(
    db: st.Store, long: pa.Table
) -> None:
    head = "merge into b using"
    for source in ("a", "(select id, w as other from a)"):
        with pytest.raises(
            st.RequestError, match=r"column '(w|other)' has a duration of more than"
        ):
            db.sql(f"{head} {source} s using (id) when matched then update set n = 1")
    text = f"{head} (from a where id > 1) s using (id) when matched then update set w = s.w, n = 1"
    assert db.sql(text).rows == 2
    assert db["b"].to_arrow().sort_by("id").column("w").equals(long.column("w"))


@pytest.mark.parametrize("kind", ["bit", "timetz", "bit[]", "struct(a timetz)"])
def test_a_type_that_arrow_has_not_is_refused(db: st.Store, kind: str) -> None:
    db.sql("create table t (id bigint primary key, s varchar)")
    db.sql("insert into t values (1, 'a')")
    for text in (
        f"create table x (id int, v {kind})",
        f"create table x as select null::{kind} as v",
        f"alter table t add column v {kind}",
        (
            f"merge into t using (select 1 as id, null::{kind} as v) s using (id)"
            " when matched then update set s = s.v"
        ),
    ):
        with pytest.raises(st.RequestError, match=r"of DuckDB's type .*(BIT|TIME WITH TIME ZONE)"):
            db.sql(text)
    assert db.tables() == ["t"]
    assert db["t"].schema.names == ["id", "s"]
    assert db.sql("insert into t select 2, '101'::bit returning s").fetchall() == [("101",)]


def test_create_table_as_does_not_cut_nanoseconds(db: st.Store) -> None:
    kind = pa.timestamp("ns", "UTC")
    frame = pa.table({"id": [1], "at_": pa.array([NANOSECONDS], kind)})
    db.create_table("k", frame.schema).append(frame)
    for source in ("k", "frame", "(select id, at_ as other from k) q", "k join frame using (id)"):
        with pytest.raises(st.RequestError, match="CREATE TABLE would lose nanoseconds of column"):
            db.sql(f"create table x as select * from {source}")
    assert db.tables() == ["k"]
    db.sql("create table x as select id from k")
    db.sql("create table y (id bigint, at_ timestamptz)")
    db.sql("insert into y from k")
    assert db["y"].to_arrow().column("at_").cast(pa.int64()).to_pylist() == [NANOSECONDS // 1000]
