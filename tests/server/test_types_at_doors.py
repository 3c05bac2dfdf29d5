"""A value of any type is the same through every door: extreme, empty and null ones too.

One store has a table of each type, written by one door and read by all others.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pandas as pd
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.cli import main
from tests.server.house import House
from tests.server.stores import opened

INT32 = -(1 << 31), (1 << 31) - 1
WIDE = Decimal((0, (9,) * 76, 0))
DAY = dt.timedelta(days=1)
TYPES: dict[str, tuple[pa.DataType, list[object]]] = {
    "uid": (pa.uuid(), [UUID(int=0), UUID(int=(1 << 128) - 1), None]),
    "code": (pa.binary(3), [b"\0\0\0", b"\xff\xff\xff", None]),
    "many": (pa.large_list(pa.int32()), [[], [None], [*INT32], None]),
    "texts": (pa.large_list(pa.large_string()), [[], ["", None, "é,\"'\n"], None]),
    "pairs": (
        pa.map_(pa.string(), pa.int32()),
        [[], [("", None)], [("b", INT32[0]), ("a", INT32[1])], None],
    ),
    "days": (
        pa.map_(pa.int32(), pa.date64()), [[], [(1, None), (INT32[0], dt.date(1, 1, 1))], None],
    ),
    "seconds": (pa.duration("s"), [dt.timedelta(0), -DAY * 100_000, DAY * 100_000, None]),
    "millis": (pa.duration("ms"), [dt.timedelta(milliseconds=-1), DAY * 100_000, None]),
    "micros": (pa.duration("us"), [dt.timedelta(microseconds=-1), DAY * 100_000, None]),
    "nanos": (pa.duration("ns"), [dt.timedelta(0), pd.Timedelta(-1, "ns"), DAY * 100_000, None]),
    "day": (pa.date64(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31), None]),
    "wide": (pa.decimal256(76, 0), [WIDE, WIDE.copy_negate(), Decimal(0), None]),
    "small": (pa.decimal256(9, 2), [Decimal("9999999.99"), Decimal("-0.01"), None]),
    "square": (
        pa.fixed_shape_tensor(pa.float32(), [2, 2]),
        [[0.0, -0.5, 3.0, 2.0**100], [1.5] * 4, None],
    ),
    "inside": (
        pa.struct(
            [("span", pa.duration("ms")), ("code", pa.binary(2)), ("wide", pa.decimal256(40, 1))]
        ),
        [
            {"span": None, "code": None, "wide": None},
            {"span": -DAY, "code": b"\0\xff", "wide": Decimal("-0.1")},
            None,
        ],
    ),
    "doc": (pa.json_(), ['{"a":1}', "[]", '""', "1.5", None]),
}  # fmt: skip
PLAIN = {"doc"}
BEYOND_DUCKDB = {"wide", "small", "inside"}
Rows = list[dict[str, object]]


def schema_of(name: str) -> pa.Schema:
    return pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", TYPES[name][0])])


def rows_of(name: str) -> Rows:
    return [{"id": place, "v": value} for place, value in enumerate(TYPES[name][1])]


def arrow_of(name: str) -> pa.Table:
    kind, values = TYPES[name]
    lies_in: Any = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    column: Any = pa.array([_stored(value) for value in values], lies_in)
    if lies_in is not kind:
        column = pa.ExtensionArray.from_storage(kind, column)
    return pa.Table.from_arrays(
        [pa.array(range(len(values)), pa.int64()), column], schema=schema_of(name)
    )


def _stored(value: object) -> object:
    return value.bytes if isinstance(value, UUID) else value


def same(found: Any, name: str) -> None:
    """Hold rows against what was written, by type and value."""
    table = pa.table(found).sort_by("id").combine_chunks()
    assert table.schema.field("v").type == TYPES[name][0]
    assert table.to_pylist() == rows_of(name)


class TypedHouse(House):
    """A house, and tables with a column of one of the types."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._made = 0

    def new(self, name: str) -> str:
        self._made += 1
        table = f"{name}{self._made}"
        self.owner.create_table(table, schema_of(name), () if name in PLAIN else "id")
        return table


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypedHouse]:
    made = TypedHouse(tmp_path_factory.mktemp("types") / "shop")
    fill(made.owner)
    yield made
    made.close()


def fill(store: st.Store) -> None:
    """Make a table of each type."""
    for name in TYPES:
        store.create_table(name, schema_of(name), () if name in PLAIN else "id")
        verb_of(store[name])(rows_of(name))


def verb_of(table: Any) -> Callable[[object], object]:
    return table.upsert if table.primary_key else table.append


def by_rest(house: TypedHouse, table: str, rows: pa.Table) -> None:
    answer = house.rest.post(f"/v1/table/{table}/insert", rows)
    assert answer.status == 200, answer.body


def _span(span: dt.timedelta) -> str:
    if isinstance(span, pd.Timedelta):
        return "-PT0.000000001S"
    return f"{'-' if span < dt.timedelta(0) else ''}PT{abs(span).total_seconds():.6f}S"


def _spelled(value: object) -> object:
    """Return a value as JSON has it: docs/types.md."""
    for kinds, spell in _SPELLINGS:
        if isinstance(value, kinds):
            return spell(value)
    return value


_SPELLINGS: tuple[tuple[Any, Callable[[Any], object]], ...] = (
    (bytes, lambda value: base64.b64encode(value).decode()),
    (dt.timedelta, _span),
    (dt.date, lambda value: value.isoformat()),
    ((UUID, Decimal), str),
    ((list, tuple), lambda value: [_spelled(part) for part in value]),
    (dict, lambda value: {name: _spelled(part) for name, part in value.items()}),
)


def by_rest_json(house: TypedHouse, table: str, name: str) -> None:
    rows = [{key: _spelled(value) for key, value in row.items()} for row in rows_of(name)]
    op = "append" if name in PLAIN else "upsert"
    body = {"ops": [{"op": op, "table": table, "rows": rows}]}
    text = json.dumps(body).replace("Infinity", "1e999")
    answer = house.rest.post("/v1/transaction/apply", text)
    assert answer.status == 200, answer.body


WRITERS: dict[str, Callable[[TypedHouse, str, str], object]] = {
    "rows in process": lambda h, table, name: verb_of(h.owner[table])(rows_of(name)),
    "Arrow in process": lambda h, table, name: verb_of(h.owner[table])(arrow_of(name)),
    "rows by socket": lambda h, table, name: verb_of(h.socket[table])(rows_of(name)),
    "Arrow by socket": lambda h, table, name: verb_of(h.socket[table])(arrow_of(name)),
    "rows over HTTP": lambda h, table, name: verb_of(h.http[table])(rows_of(name)),
    "Arrow over REST": lambda h, table, name: by_rest(h, table, arrow_of(name)),
    "JSON over REST": by_rest_json,
}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_value_written_by_any_door_is_kept(house: TypedHouse, writer: str, name: str) -> None:
    table = house.new(name)
    WRITERS[writer](house, table, name)
    same(house.owner[table].to_arrow(), name)


BAD: dict[str, tuple[object, pa.Array[Any] | None, object]] = {
    "uid": (b"short", pa.array([b"short"], pa.binary()), "no uuid"),
    "code": (b"ab", pa.array([b"abcd"], pa.binary(4)), "YWI="),
    "many": (["a"], pa.array([["a"]], pa.list_(pa.string())), ["a"]),
    "pairs": (
        [("a", 1), ("a", 2)],
        pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32())),
        [["a", 1], ["a", 2]],
    ),
    "days": ({None: dt.date(1, 1, 1)}, None, {"x": "2026-01-01"}),
    "seconds": (dt.timedelta(milliseconds=1), pa.array([1], pa.duration("ms")), "PT0.5S"),
    "day": (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), pa.array(["2026-01-01"]), "2026-13-01"),
    "small": (Decimal("0.001"), pa.array([Decimal(10) ** 9], pa.decimal256(20, 2)), "12345678.001"),
    "square": ([1.0], pa.array([[1.0]], pa.list_(pa.float32(), 1)), [1.0]),
    "inside": ({"code": b"abc"}, pa.array([{"code": b"abc"}]), {"code": "YWJj"}),
    "doc": ("{", pa.array(["{"]), "{"),
}
"""A value of Python, a column of Arrow and a value of JSON that each of the columns refuses."""


@pytest.mark.parametrize("name", BAD)
def test_a_value_that_does_not_fit_is_one_error_at_any_door(house: TypedHouse, name: str) -> None:
    value, column, spelled = BAD[name]
    table = house.new(name)
    given: list[object] = [{"id": 1, "v": value}]
    if column is not None:
        given.append(pa.table({"id": [1], "v": column}))
        answer = house.rest.post(f"/v1/table/{table}/insert", given[-1])
        assert answer.status == 400, answer.body
        assert "'v'" in answer.json["error"]
    for door in (house.owner, house.socket, house.http):
        for rows in given:
            with pytest.raises(st.SchemaMismatchError, match="'v'"):
                verb_of(door[table])(rows)
    op = "append" if name in PLAIN else "upsert"
    ops = [{"op": op, "table": table, "rows": [{"id": 1, "v": spelled}]}]
    answer = house.rest.post("/v1/transaction/apply", {"ops": ops})
    assert answer.status == 400, answer.body
    assert "'v'" in answer.json["error"]
    assert house.owner[table].count() == 0


def in_the_past(house: TypedHouse, name: str) -> pa.Table:
    seq = house.owner.seq
    table = house.owner[name]
    verb_of(table)({"id": 99, "v": None})
    try:
        with house.owner.snapshot(seq=seq) as past:
            return past[name].to_arrow()
    finally:
        table.delete_where("id = 99")


def by_changes(house: TypedHouse, name: str) -> pa.Table:
    table = house.new(name)
    seq = house.owner.seq
    verb_of(house.owner[table])(rows_of(name))
    return house.owner.changes(seq)[table].read_all().select(["id", "v"])


def by_lines(house: TypedHouse, name: str) -> pa.Table:
    """Read the changes as JSON, and write them through JSON into another table."""
    table, copy, seq = house.new(name), house.new(name), house.owner.seq
    verb_of(house.owner[table])(rows_of(name))
    answer = house.rest.get(f"/v1/changes?since={seq}&tables={table}")
    assert answer.status == 200, answer.body
    lines = [json.loads(line) for line in answer.body.splitlines()][:-1]
    rows = [{"id": line["row"]["id"], "v": line["row"]["v"]} for line in lines]
    ops = [{"op": "upsert", "table": copy, "rows": rows}]
    answer = house.rest.post("/v1/transaction/apply", {"ops": ops})
    assert answer.status == 200, answer.body
    return house.owner[copy].to_arrow()


def read_only(house: TypedHouse, name: str) -> pa.Table:
    with st.connect(house.path, read_only=True) as store:
        return store[name].to_arrow()


def by_query(house: TypedHouse, name: str) -> pa.Table:
    answer = house.rest.post(f"/v1/table/{name}/query", {"k": 100, "vector": {"single_vector": []}})
    assert answer.status == 200, answer.body
    return pa.ipc.open_file(answer.body).read_all().select(["id", "v"])


def by_stream(house: TypedHouse, name: str) -> pa.Table:
    answer = house.rest.post(f"/v1/table/{name}/scan", {})
    assert answer.status == 200, answer.body
    return pa.ipc.open_stream(answer.body).read_all()


def by_tasks(house: TypedHouse, name: str) -> pa.Table:
    with house.owner.snapshot() as snapshot:
        tasks = snapshot.scan_tasks(name)
        return pa.Table.from_batches([b for task in tasks for b in task.read()], schema_of(name))


READERS: dict[str, Callable[[TypedHouse, str], Any]] = {
    "the socket": lambda h, name: h.socket[name].to_arrow(),
    "HTTP": lambda h, name: h.http[name].to_arrow(),
    "a snapshot by socket": lambda h, name: h.socket[name].scan(["id", "v"]).read_all(),
    "the past": in_the_past,
    "changes": by_changes,
    "changes as JSON": by_lines,
    "another process": read_only,
    "a query of REST": by_query,
    "a stream of REST": by_stream,
    "scan tasks": by_tasks,
}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("reader", READERS)
def test_a_value_is_read_the_same_by_any_door(house: TypedHouse, reader: str, name: str) -> None:
    if reader.startswith("changes") and name in PLAIN:
        return
    same(READERS[reader](house, name), name)


@pytest.mark.parametrize("name", [name for name in TYPES if name not in PLAIN])
def test_a_row_is_the_same_by_its_key_at_any_door(house: TypedHouse, name: str) -> None:
    for row in rows_of(name):
        for door in (house.owner, house.socket, house.http):
            assert door[name].get(row["id"]) == row


@pytest.mark.parametrize("name", [name for name in TYPES if name not in BEYOND_DUCKDB])
def test_sql_returns_what_its_types_can_hold(house: TypedHouse, name: str) -> None:
    for door in (house.owner, house.socket, house.http):
        found = pa.table(door.sql(f"SELECT id, v FROM {name} ORDER BY id"))
        assert [plainly(v) for v in found["v"].to_pylist()] == [
            plainly(row["v"]) for row in rows_of(name)
        ]


def plainly(value: object) -> object:
    """Return a value as DuckDB has it: a UUID is a text, a duration an interval of microseconds."""
    if isinstance(value, pd.Timedelta):
        return dt.timedelta(0)
    if isinstance(value, pa.MonthDayNano):
        assert value.months == 0
        return dt.timedelta(days=value.days, microseconds=value.nanoseconds // 1000)
    return str(value) if isinstance(value, UUID) else value


@pytest.mark.parametrize("name", sorted(BEYOND_DUCKDB))
def test_sql_refuses_by_name_what_it_cannot_hold(house: TypedHouse, name: str) -> None:
    for door in (house.owner, house.socket, house.http):
        with pytest.raises(st.RequestError, match=r"column 'v' has type .*decimal256.* DuckDB"):
            door.sql(f"SELECT id FROM {name}")


FILES = ("ndjson", "parquet", "arrow", "csv", "tsv.gz")
NOT_OF_CSV = {"many", "texts", "pairs", "days", "square", "inside"}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("ending", FILES)
def test_an_exported_file_is_read_back_the_same(
    house: TypedHouse, tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str, name: str
) -> None:
    file, table = tmp_path / f"rows.{ending}", house.new(name)
    address = f"{house.service.url}"
    assert main(["export", name, str(file), "--db", address]) == 0, capsys.readouterr().err
    verb = "append" if name in PLAIN else "upsert"
    code = main([verb, table, str(file), "--db", address])
    if name in NOT_OF_CSV and ending in {"csv", "tsv.gz"}:
        assert code == 1
        assert "CSV conversion to" in capsys.readouterr().err
        assert house.owner[table].count() == 0
        return
    assert code == 0, capsys.readouterr().err
    same(house.owner[table].to_arrow(), name)


@pytest.mark.parametrize("name", TYPES)
def test_the_command_line_shows_every_value(
    house: TypedHouse, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for form in ("--json", "--ndjson", None):
        given = ["scan", name, "--db", house.service.url, *([form] if form else [])]
        assert main(given) == 0, capsys.readouterr().err
        assert capsys.readouterr().out


def test_every_type_survives_flush_merge_backup_and_restore(tmp_path: Path) -> None:
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    with opened(tmp_path / "shop") as store:
        fill(store)
        store.checkpoint()
        store.merge()
        store.optimize()
        assert store.verify(deep=True).is_sound
        for name in TYPES:
            same(store[name].to_arrow(), name)
        store.backup(backup)
    st.restore(backup, restored)
    with opened(restored) as store:
        for name in TYPES:
            same(store[name].to_arrow(), name)
