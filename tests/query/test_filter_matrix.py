"""A filter keeps the same rows in every level, for every type of column, through every door.

The answer is what Arrow keeps of the same rows in memory, whatever was merged, dropped, renamed,
added or indexed before.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.engine.predicate import Predicate
from tests.query import filter_tables
from tests.query.filter_cases import OTHERS, VALUES, Filter, expressions, texts

ROWS = {table: filter_tables.expected(table) for table in filter_tables.TABLES}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    with filter_tables.opened(tmp_path_factory.mktemp("matrix") / "db") as store:
        yield store


def kept(rows: pa.Table, wanted: Filter) -> list[int]:
    """Return the ids of the rows that Arrow keeps."""
    if isinstance(wanted, str):
        wanted = Predicate.parse(wanted, rows.schema).expression
    return sorted(rows.filter(wanted)["id"].to_pylist())


def columns(table: str) -> list[str]:
    return [name for name in VALUES if name in ROWS[table].column_names]


def wrong(db: st.Store, table: str, filters: list[Filter]) -> Iterator[str]:
    """Yield what a table answers otherwise than its rows in memory."""
    for wanted in filters:
        right = kept(ROWS[table], wanted)
        try:
            found = sorted(db[table].to_arrow(["id"], wanted)["id"].to_pylist())
        except Exception as error:  # noqa: BLE001 - all are listed
            yield f"{table}: {wanted}: {type(error).__name__}: {str(error)[:200]}"
            continue
        if found != right:
            yield f"{table}: {wanted}: {found[:12]}, not {right[:12]}"


@pytest.mark.parametrize("table", filter_tables.TABLES)
def test_a_sql_filter_keeps_the_same_rows_in_every_level(db: st.Store, table: str) -> None:
    assert list(wrong(db, table, [text for name in columns(table) for text in texts(name)])) == []


@pytest.mark.parametrize("table", filter_tables.TABLES)
def test_an_arrow_filter_keeps_the_same_rows_in_every_level(db: st.Store, table: str) -> None:
    assert (
        list(wrong(db, table, [each for name in columns(table) for each in expressions(name)]))
        == []
    )


@pytest.mark.parametrize("table", filter_tables.TABLES)
def test_a_filter_of_another_kind_keeps_the_same_rows_in_every_level(
    db: st.Store, table: str
) -> None:
    assert list(wrong(db, table, OTHERS if table in filter_tables.TIMED else OTHERS[:-2])) == []
