"""A `replaceWhere` loses no value of a row outside of its range; no JVM runs here."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import siltstone as st
from siltstone.spark.context.application import APPLICATION
from siltstone.spark.sessions.source import SiltstoneSource

ROWS = [
    {"id": 1, "day": 1, "total": 10, "note": 100},
    {"id": 2, "day": 2, "total": 20, "note": 200},
    {"id": 3, "day": 2, "total": 30, "note": 300},
]


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[st.Store]:
    monkeypatch.setenv(APPLICATION, str(tmp_path / "blockmgr-of-it"))
    (tmp_path / "blockmgr-of-it").mkdir()
    with st.connect(tmp_path / "s", background=False) as found:
        found.create_table("t", dict.fromkeys(ROWS[0], "int64"), primary_key="id").insert(ROWS)
        found.create_table("p", dict.fromkeys(ROWS[0], "int64")).append(ROWS)
        found.serve_local()
        yield found


def planned(db: st.Store, names: Sequence[str], table: str = "t", **options: str) -> Any:
    schema = StructType([StructField(name, LongType()) for name in names])
    given = {"uri": str(db.path), "table": table, "replacewhere": "day = 2", **options}
    return pickle.loads(pickle.dumps(SiltstoneSource(given).writer(schema, True)))


def saved(writer: Any, rows: list[dict[str, int]]) -> None:
    schema = pa.schema([(name, pa.int64()) for name in rows[0]])
    writer.commit([writer.write(iter(pa.Table.from_pylist(rows, schema).to_batches()))])


def found(db: st.Store, table: str = "t") -> list[dict[str, object]]:
    return db[table].to_arrow().sort_by("id").to_pylist()


TAKEN = [{"id": 1, "day": 2, "total": 11}, {"id": 4, "day": 2, "total": 40}]
WHY = r"for 't' have no column 'note': .*also those that replaceWhere does not match.*missing"


def test_a_row_outside_of_the_range_keeps_the_values_that_the_frame_lacks(db: st.Store) -> None:
    with pytest.raises(st.SchemaMismatchError, match=WHY):
        planned(db, list(TAKEN[0]))
    with pytest.raises(st.RequestError, match=r"replaceWhere deletes rows.*nothing to keep.*null"):
        planned(db, list(TAKEN[0]), missing="keep")
    assert found(db) == ROWS
    db["t"].delete([1])
    with pytest.raises(st.SchemaMismatchError, match=WHY):  # whether a row is outside or not
        planned(db, list(TAKEN[0]))


def test_with_missing_null_it_is_replaced_by_what_the_frame_has(db: st.Store) -> None:
    saved(planned(db, list(TAKEN[0]), missing="null"), TAKEN)
    assert found(db) == [{**row, "note": None} for row in TAKEN]


def test_a_whole_row_takes_the_key_of_one_outside_of_the_range(db: st.Store) -> None:
    whole = [{**TAKEN[0], "note": 9}]
    saved(planned(db, list(whole[0])), whole)
    assert found(db) == whole


def test_a_column_that_comes_after_the_plan_is_lost_by_no_row(db: st.Store) -> None:
    whole = [{**TAKEN[0], "note": 9}]
    writer = planned(db, list(whole[0]))
    db["t"].add_column("late", "int64")
    db["t"].update(1, late=5)
    with pytest.raises(st.SchemaMismatchError, match="'late'"):
        saved(writer, whole)
    assert [row["id"] for row in found(db)] == [1, 2, 3]


def test_a_range_of_a_plain_table_takes_rows_that_lack_columns(db: st.Store) -> None:
    saved(planned(db, list(TAKEN[0]), "p"), TAKEN)
    rows = [ROWS[0], *({**row, "note": None} for row in TAKEN)]
    assert sorted(map(repr, found(db, "p"))) == sorted(map(repr, rows))


def test_with_merged_columns_a_row_outside_of_the_range_keeps_its_values(db: st.Store) -> None:
    rows = [{**row, "more": 7} for row in TAKEN]
    with pytest.raises(st.SchemaMismatchError, match=WHY):
        planned(db, list(rows[0]), mergeschema="true")
    whole = [{**row, "note": 1} for row in rows]
    saved(planned(db, list(whole[0]), mergeschema="true"), whole)
    assert [dict(sorted(row.items())) for row in found(db)] == [
        dict(sorted(row.items())) for row in whole
    ]
