"""A nested value is the same through every door, in every form that a caller may give it.

One generator makes columns of nested types, with dictionaries and views at any depth, and the same
values in the types of a table. What was given is written by a door, and held against them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import siltstone as st
from siltstone.cli import main
from siltstone.local.merge_insert import Merge
from tests.server.house import House, house_at
from tests.support.nested_types import Nested

SEEDS, COLUMNS, ROWS = range(4), 6, 9
types = pa.types


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house_at(tmp_path_factory.mktemp("nested") / "shop") as made:
        yield made


@pytest.fixture
def name(house: House) -> Iterator[str]:
    yield "t"
    for table in house.owner.tables():
        house.owner.drop_table(table)


@dataclasses.dataclass
class Given:
    """Rows in the form of a caller, and as a table has them."""

    rows: Callable[[], Any]
    arrow: pa.Table
    plain: pa.Table


def same(house: House, plain: pa.Table, name: str = "t", *, of_polars: bool = False) -> None:
    """Hold a table against the values and types that it was given.

    Polars has one type for what is large or not, and exports which of both it likes.
    """
    found, large = house.owner[name].to_arrow().sort_by("id"), "large_" if of_polars else "\0"
    kinds = [
        [str(kind).replace(large, "") for kind in each.schema.types] for each in (found, plain)
    ]
    assert kinds[0] == kinds[1]
    for column in plain.column_names:
        assert repr(found[column].to_pylist()) == repr(plain[column].to_pylist()), column


# forms


def _of_arrow(give: Callable[[pa.Table], Any]) -> Callable[[int], Given]:
    def made(seed: int) -> Given:
        plain, given = Nested(seed).tables(COLUMNS, ROWS)
        return Given(lambda: give(given), given, plain)

    return made


def _of_dicts(seed: int) -> Given:
    plain, given = Nested(seed).tables(COLUMNS, ROWS)
    return Given(plain.to_pylist, given, plain)


def _of_polars(seed: int) -> Given:
    """Return a frame of Polars, in the types that it has: with categoricals and enums inside."""
    plain, _ = Nested(seed, _is_beyond_polars, is_disguised=False).tables(COLUMNS, ROWS)
    frame: Any = pl.from_arrow(plain.take([*range(ROWS)]))  # of slices it reads masks wrongly
    kinds = {column: _with_categories(kind) for column, kind in frame.schema.items()}
    frame = frame.with_columns([pl.col(column).cast(kind) for column, kind in kinds.items()])
    return Given(lambda: frame, frame.to_arrow(), plain)


def _with_categories(kind: Any) -> Any:
    if kind == pl.String:
        return pl.Categorical
    if isinstance(kind, pl.List):
        return pl.List(_with_categories(kind.inner))
    if isinstance(kind, pl.Struct):
        return pl.Struct({field.name: _with_categories(field.dtype) for field in kind.fields})
    return kind


def _is_beyond_polars(kind: Any) -> bool:
    """Say whether Polars has not the type, or another one in its place."""
    is_other = (
        types.is_map, types.is_fixed_size_binary, types.is_decimal, types.is_date64,
        types.is_time32, types.is_large_string, types.is_large_binary, types.is_list,
    )  # fmt: skip
    if any(is_of(kind) for is_of in is_other):
        return True
    is_rounded = types.is_timestamp(kind) or types.is_duration(kind)
    return kind == pa.time64("us") or (is_rounded and kind.unit == "s")


FORMS: dict[str, Callable[[int], Given]] = {
    "a table": _of_arrow(lambda given: given),
    "a batch": _of_arrow(lambda given: given.combine_chunks().to_batches()[0]),
    "a reader": _of_arrow(lambda given: given.to_reader(max_chunksize=2)),
    "pandas": _of_arrow(lambda given: given.to_pandas(types_mapper=pd.ArrowDtype)),
    "dicts": _of_dicts,
    "Polars": _of_polars,
}

# doors


def _keyed(house: House, rows: Given) -> Any:
    return house.owner.create_table("t", rows.plain.schema, primary_key="id")


def _plain(house: House, rows: Given) -> Any:
    return house.owner.create_table("t", rows.plain.schema)


def _created(door: str, key: str | tuple[()]) -> Callable[[House, Given], None]:
    def write(house: House, rows: Given) -> None:
        given = rows.rows()
        schema = rows.plain.schema if isinstance(given, list) else None
        getattr(house, door).create_table("t", schema, data=given, primary_key=key)

    return write


def _written(door: str, verb: str) -> Callable[[House, Given], None]:
    def write(house: House, rows: Given) -> None:
        make = _plain if verb in {"append", "overwrite"} else _keyed
        name = make(house, rows).name
        getattr(getattr(house, door)[name], verb)(rows.rows())

    return write


def _updated(house: House, rows: Given) -> None:
    table = _keyed(house, rows)
    table.insert([{"id": n} for n in range(ROWS)])
    for row in rows.plain.to_pylist():
        table.update(row.pop("id"), **row)


def _in_a_transaction(house: House, rows: Given) -> None:
    _keyed(house, rows)
    with house.socket.transaction() as tx:
        tx["t"].insert(rows.rows())
        found = tx["t"].to_arrow().sort_by("id")
        assert repr(found.to_pylist()) == repr(rows.plain.to_pylist())


def _staged(door: str, key: str | tuple[()]) -> Callable[[House, Given], None]:
    def write(house: House, rows: Given) -> None:
        store = getattr(house, door)
        task = store.stage("t", schema=rows.plain.schema, primary_key=key)
        with store.transaction() as tx:
            tx.attach(task, [task.run(rows.arrow)])

    return write


def _merged(house: House, rows: Given) -> None:
    _keyed(house, rows).insert([{"id": 0}])
    how = Merge(("id",), updates=True, inserts=True, deletes=False, delete_filter=None, rows_max=99)
    with house.owner.transaction() as tx:
        tx.merge_insert("t", rows.arrow, how)


def _by_rest(route: str, key: str = "") -> Callable[[House, Given], None]:
    def write(house: House, rows: Given) -> None:
        if not route.startswith("create"):
            house.owner.create_table("t", rows.plain.schema, primary_key=key or ())
        answer = house.rest.post(f"/v1/table/t/{route}", rows.arrow)
        assert answer.status == 200, answer.body

    return write


MERGED = "merge_insert?on=id&when_matched_update_all=true&when_not_matched_insert_all=true"
DOORS: dict[str, Callable[[House, Given], None]] = {
    **{f"create by {door}": _created(door, "id") for door in House.DOORS},
    "create a plain table": _created("owner", ()),
    **{
        f"{verb} by {door}": _written(door, verb)
        for door in House.DOORS
        for verb in ("upsert", "insert", "append", "overwrite")
    },
    "update": _updated,
    "in a transaction": _in_a_transaction,
    "staged with a key": _staged("owner", "id"),
    "staged without a key": _staged("owner", ()),
    "staged by socket": _staged("socket", "id"),
    "merge_insert": _merged,
    "create over REST": _by_rest("create"),
    "create with a key over REST": _by_rest("create?primary_key=id"),
    "insert over REST": _by_rest("insert"),
    "insert with a key over REST": _by_rest("insert", "id"),
    "merge_insert over REST": _by_rest(MERGED, "id"),
}
OF_ONE_FORM = ("staged", "merge_insert", "REST", "update", "overwrite by http", "insert by http")
"""Doors that take Arrow's tables, or the same code as another one."""
CELLS = [
    (door, form)
    for door, form in itertools.product(DOORS, FORMS)
    if form in {"a table", "Polars"} or not any(word in door for word in OF_ONE_FORM)
]


@pytest.mark.parametrize(("door", "form"), CELLS)
def test_a_nested_value_given_at_any_door_is_kept(
    house: House, name: str, door: str, form: str
) -> None:
    for seed in SEEDS if door.endswith("owner") else SEEDS[:1]:
        rows = FORMS[form](seed)
        DOORS[door](house, rows)
        same(house, rows.plain, of_polars=form == "Polars")
        house.owner.drop_table(name)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_nested_value_is_kept_in_base_and_in_a_restored_backup(tmp_path: Path, seed: int) -> None:
    plain, given = Nested(seed).tables(COLUMNS, ROWS)
    with house_at(tmp_path / "shop") as house:
        house.owner.create_table("t", data=given, primary_key="id")
        house.owner.create_table("p", data=given)
        house.owner.checkpoint()
        house.owner.merge()
        house.owner.optimize()
        same(house, plain)
        same(house, plain, "p")
        assert house.owner.verify(deep=True).is_sound
        house.owner.backup(tmp_path / "backup")
    st.restore(tmp_path / "backup", tmp_path / "restored")
    with house_at(tmp_path / "restored") as house:
        same(house, plain)
        same(house, plain, "p")


def _is_beyond_parquet(kind: Any) -> bool:
    """Say whether Parquet keeps another type: see Arrow's own table of its types."""
    is_seconds = types.is_timestamp(kind) and kind.unit == "s"
    return types.is_date64(kind) or kind == pa.time32("s") or is_seconds


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ending", ["arrow", "parquet", "ndjson", "jsonl"])
def test_a_nested_value_in_a_file_is_kept(
    house: House, name: str, tmp_path: Path, capsys, ending: str, seed: int
) -> None:
    refuses = _is_beyond_parquet if ending == "parquet" else lambda _: False
    plain, given = Nested(seed, refuses, is_disguised=ending == "arrow").tables(COLUMNS, ROWS)
    file, where = tmp_path / f"rows.{ending}", ["--db", house.service.url]
    table = house.owner.create_table(name, plain.schema, primary_key="id")
    if ending == "arrow":
        with pa.ipc.new_file(file, given.combine_chunks().schema) as sink:
            sink.write_table(given.combine_chunks())
    elif ending == "parquet":
        pq.write_table(given, file)
    else:
        house.owner.create_table("from", plain.schema, primary_key="id").upsert(plain)
        assert main(["export", "from", str(file), *where]) == 0, capsys.readouterr().err
    assert main(["upsert", table.name, str(file), *where]) == 0, capsys.readouterr().err
    same(house, plain)


@pytest.mark.parametrize("seed", SEEDS)
def test_sql_reads_nested_values_of_tables_and_of_frames(
    house: House, name: str, seed: int
) -> None:
    plain, frame = Nested(seed, types.is_decimal256).tables(COLUMNS, ROWS)
    house.owner.create_table(name, data=frame, primary_key="id")
    columns = [c for c in plain.column_names if _is_exact_in_duckdb(plain.schema.field(c).type)]
    listed = ", ".join(columns)
    for source in ("t", "frame"):
        found = house.owner.sql(f"SELECT {listed} FROM {source} ORDER BY id").arrow()
        assert repr(found.to_pylist()) == repr(plain.select(columns).to_pylist())


def _is_exact_in_duckdb(kind: Any) -> bool:
    """Say whether the values of a type come back as the same values of Python."""
    if types.is_nested(kind):
        return all(_is_exact_in_duckdb(kind.field(n).type) for n in range(kind.num_fields))
    is_other = (types.is_duration, types.is_timestamp, types.is_date64, types.is_time)
    return not any(is_of(kind) for is_of in is_other)
