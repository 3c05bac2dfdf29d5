"""SQLite parts: tables of a SQLite file, in the types that their columns declare.

    INTEGER, INT, BIGINT ..   int64            DATE                  date32
    REAL, DOUBLE, FLOAT ..    float64          DATETIME, TIMESTAMP   timestamp[us]
    TEXT, VARCHAR ..          string           BOOLEAN               bool
    BLOB                      binary           DECIMAL(p, s)         decimal128(p, s)
    NUMERIC                   float64          none                  refused: --column says one

SQLite keeps any value in any column: one that is not of the type is refused with its row. Whole
numbers are floats where those are wanted, 0 and 1 are truths, texts are dates and decimals.
"""

from __future__ import annotations

import datetime as dt
import re
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from siltstone.cli.exits import NotFoundError, named
from siltstone.cli.imports.parts import Pieces, Source, SourcePart, fingerprint_of
from siltstone.errors import SchemaMismatchError
from siltstone.text.spelled import is_binary

_MAGIC = b"SQLite format 3\0"
_BATCH_ROWS = 10_000
_DECIMAL = re.compile(r"(?:decimal|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)
_DECLARED = {
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us"),
    "boolean": pa.bool_(),
    "bool": pa.bool_(),
}
_AFFINITIES = (  # in the order of https://sqlite.org/datatype3.html#determination_of_column_affinity
    (("int",), pa.int64()),
    (("char", "clob", "text"), pa.string()),
    (("blob",), pa.binary()),
    (("real", "floa", "doub"), pa.float64()),
)
_EXACT = 1 << 53
"""Whole numbers up to it are floating-point numbers, too."""
_MISFITS = (pa.ArrowException, InvalidOperation, OverflowError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class _SqliteColumn:
    name: str
    declared: str
    takes_null: bool
    place_in_key: int


def is_sqlite(path: Path) -> bool:
    """Say whether a file is one of SQLite, by its first bytes."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def sqlite_sources(path: Path, only: str | None) -> list[Source]:
    """Return the tables of a SQLite file, or the one of that name.

    Raises:
        NotFoundError: It has no table, or none of that name.
        SchemaMismatchError: It is damaged.
    """
    with _reading(path) as connection:
        rows = connection.execute(
            "select name, sql from sqlite_schema where type = 'table'"
            " and name not like 'sqlite\\_%' escape '\\' order by name"
        ).fetchall()
        names = [name for name, sql in rows if not sql.lower().startswith("create virtual")]
        if only is not None:
            names = [named("table", only, {name: name for name in names}, f"{path} has")]
        if not names:
            raise NotFoundError(f"{path} has no tables")
        return [_source(path, name, _columns_of(connection, name)) for name in names]


@contextmanager
def _reading(path: Path) -> Generator[sqlite3.Connection]:
    fingerprint_of(path)
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        yield connection
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise SchemaMismatchError(f"{path} cannot be read: {error}") from error
    finally:
        connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _columns_of(connection: sqlite3.Connection, table: str) -> list[_SqliteColumn]:
    rows = connection.execute(f"pragma table_info({_quoted(table)})").fetchall()
    return [_SqliteColumn(name, kind, not notnull, key) for _, name, kind, notnull, _, key in rows]


def _source(path: Path, table: str, columns: list[_SqliteColumn]) -> Source:
    fingerprint, size = fingerprint_of(path)
    part = SourcePart(
        f"{path}#{table}",
        f"{fingerprint}#{table}",
        size,
        partial(_rows, path, table, columns),
        names=tuple(each.name for each in columns),
    )
    return Source(table, (part,), _key_of(columns), is_named=True)


def _key_of(columns: Sequence[_SqliteColumn]) -> tuple[str, ...]:
    key = sorted((each for each in columns if each.place_in_key), key=lambda e: e.place_in_key)
    return tuple(each.name for each in key)


def _field(where: str, column: _SqliteColumn, known: pa.Schema | None) -> pa.Field:
    """Return the column of the table that takes the values of one of SQLite.

    Raises:
        SchemaMismatchError: It declares no type, and no table says one.
    """
    if known is not None and column.name in known.names:
        return known.field(column.name)
    kind = _type_of(column.declared)
    if kind is None:
        raise SchemaMismatchError(
            f"{where}: column {column.name!r} declares no type; give the columns by --column or"
            " --schema"
        )
    return pa.field(column.name, kind, nullable=column.takes_null and not column.place_in_key)


def _type_of(declared: str) -> pa.DataType | None:
    low = declared.strip().lower()
    if not low:
        return None
    if low in _DECLARED:
        return _DECLARED[low]
    sized = _DECIMAL.fullmatch(low)
    if sized is not None and 0 < int(sized[1]) <= 38 and int(sized[2] or 0) <= int(sized[1]):
        return pa.decimal128(int(sized[1]), int(sized[2] or 0))
    for parts, kind in _AFFINITIES:
        if any(part in low for part in parts):
            return kind
    return pa.float64()


def _rows(path: Path, table: str, columns: list[_SqliteColumn], known: pa.Schema | None) -> Pieces:
    """Yield the rows in the order of the rowid, or of the key if there is none."""
    where = f"{path}#{table}"
    fields = [_field(where, each, known) for each in columns]
    schema = pa.schema(fields)
    names = ", ".join(_quoted(each.name) for each in columns)
    with _reading(path) as connection:
        connection.execute("begin")  # one snapshot of SQLite's own for all of it
        order = _order_of(connection, table, columns)
        cursor = connection.execute(f"select {names} from {_quoted(table)} order by {order}")
        before = 0
        yield schema.empty_table()
        while rows := cursor.fetchmany(_BATCH_ROWS):
            arrays = [
                _array(where, before, values, field)
                for values, field in zip(zip(*rows, strict=True), fields, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            before += len(rows)


def _order_of(connection: sqlite3.Connection, table: str, columns: Sequence[_SqliteColumn]) -> str:
    names = {each.name.lower() for each in columns}
    for rowid in ("rowid", "_rowid_", "oid"):
        if rowid in names:
            continue
        try:
            connection.execute(f"select {rowid} from {_quoted(table)} limit 0")
        except sqlite3.OperationalError:
            break  # WITHOUT ROWID
        return rowid
    return ", ".join(map(_quoted, _key_of(columns))) or "1"


def _array(where: str, before: int, values: Sequence[Any], field: pa.Field) -> pa.Array:
    """Return values of a column; the first of them is in the row behind so many.

    Raises:
        SchemaMismatchError: One has another type; it is named.
    """
    try:
        return _taken(values, field.type)
    except _MISFITS:
        for row, value in enumerate(values, before + 1):
            try:
                _taken([value], field.type)
            except _MISFITS as error:
                raise SchemaMismatchError(
                    f"{where} row {row}: column {field.name!r} is {field.type}, not"
                    f" {type(value).__name__} {value!r:.60}"
                ) from error
        raise


def _taken(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    take = next((take for is_of, take in _TAKERS if is_of(kind)), _of(str))
    return pa.array([None if value is None else take(value) for value in values], kind)


def _of(*kinds: type) -> Callable[[Any], Any]:
    def taken(value: Any) -> Any:
        if type(value) not in kinds:
            raise ValueError(value)
        return value

    return taken


def _float(value: Any) -> float:
    if type(value) is int and abs(value) <= _EXACT:
        return float(value)
    return _of(float)(value)


def _truth(value: Any) -> bool:
    if type(value) is not int or value not in {0, 1}:
        raise ValueError(value)
    return bool(value)


def _decimal(value: Any) -> Decimal:
    if type(value) is float:
        return Decimal(repr(value))
    return Decimal(_of(int, str)(value))


def _written(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: read(_of(str)(value))


_TAKERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_integer, _of(int)),
    (pa.types.is_floating, _float),
    (pa.types.is_boolean, _truth),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_timestamp, _written(dt.datetime.fromisoformat)),
    (pa.types.is_date, _written(dt.date.fromisoformat)),
    (pa.types.is_time, _written(dt.time.fromisoformat)),
    (is_binary, _of(bytes)),
)
