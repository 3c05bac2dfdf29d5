"""A filter keeps the same rows in every level, for every type of column, through every door.

The answer is what Arrow keeps of the same rows in memory, whatever was merged, dropped, renamed,
added or indexed before.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import siltstone as st
from siltstone.engine.filter.filters import filter_of, parse
from tests.query import filter_tables
from tests.query.filter_cases import OTHERS, VALUES, Filter, expressions, scalars, texts

_SAME = filter_tables.expected()
_OTHER = ("indexed", *filter_tables.TIMED)
ROWS = {t: filter_tables.expected(t) if t in _OTHER else _SAME for t in filter_tables.TABLES}
_KEPT: dict[tuple[int, str], list[int]] = {}


def kept(rows: pa.Table, wanted: Filter) -> list[int]:
    """Return the ids of the rows that Arrow keeps; those of `ROWS` are found out once."""
    at = (id(rows), f"{type(wanted)} {wanted}")
    if at in _KEPT:
        return _KEPT[at]
    by_arrow = parse(wanted, rows.schema).expression if isinstance(wanted, str) else wanted
    found = sorted(rows.filter(by_arrow)["id"].to_pylist())
    if any(rows is each for each in ROWS.values()):
        _KEPT[at] = found
    return found


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


def test_what_the_matrix_proves_is_what_lance_is_asked() -> None:
    """A column of any flat type but floats; Arrow and Lance differ on NaN and -0.0."""
    schema = ROWS["timed"].schema
    asked = {
        name
        for name in VALUES
        for wanted in (f"{name} = {VALUES[name][2][0]}", pc.field(name) == scalars(name)[1])
        if (found := filter_of(wanted, schema)) and found.prefilter({name: "c_7"})
    }
    assert asked == {name for name in VALUES if not name.startswith("f")}
