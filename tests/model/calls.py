"""Calls: what can be asked of one table, drawn, each with what the reference makes of it."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from hypothesis import strategies as some

from siltstone.api.store import Store
from siltstone.errors import DuplicateKeyError, SchemaMismatchError, SiltstoneError
from tests.model.reference import APPENDS, EVERY, Column, Effect, Key, Relation, Row, World

ARROW_ROWS = 520  # more than travel as tuples
TYPES: dict[str, pa.DataType] = {
    "int8": pa.int8(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "string": pa.string(),
    "uuid": pa.uuid(),
    "binary": pa.binary(3),
    "list": pa.large_list(pa.int32()),
    "map": pa.map_(pa.string(), pa.int32()),
    "span": pa.duration("us"),
    "day": pa.date64(),
    "sum": pa.decimal256(50, 1),
    "inside": pa.struct([("span", pa.duration("ms")), ("days", pa.large_list(pa.date64()))]),
}
VALUES: dict[str, Any] = {
    "int8": some.none() | some.integers(-3, 3),
    "int32": some.none() | some.sampled_from([-3, 0, 3, 70_000]),
    "int64": some.none() | some.integers(-3, 3),
    "string": some.none() | some.sampled_from(["", "x", "ä", "xy"]),
    "uuid": some.none() | some.integers(0, 3).map(lambda n: UUID(int=n << 90)),
    "binary": some.none() | some.sampled_from([b"abc", b"\0\0\0", b"xyz"]),
    "list": some.none() | some.lists(some.none() | some.integers(-3, 3), max_size=2),
    "map": some.none() | some.sampled_from([[], [("a", 1)], [("a", None), ("b", 2)]]),
    "span": some.none() | some.integers(-3, 3).map(lambda n: dt.timedelta(microseconds=n)),
    "day": some.none() | some.integers(0, 2).map(lambda n: dt.date(1969, 12, 29 + n)),
    "sum": some.none() | some.sampled_from([Decimal("-0.5"), Decimal("1" * 40 + ".5")]),
    "inside": some.sampled_from(
        [
            None,
            {"span": None, "days": None},
            {"span": dt.timedelta(milliseconds=5), "days": [dt.date(2026, 1, 2), None]},
        ]
    ),
}
"""By the kind of a column, as the model calls it."""
WIDER = {"int8": ("int32", "int64"), "int32": ("int64",)}
NESTED = {"list", "map", "inside"}
"""These have no defaults."""
KEYS = {
    "int": some.integers(0, 3),
    "text": some.sampled_from(["", "a", "ä"]),
    "pair": some.tuples(some.sampled_from(["eu", "us"]), some.integers(0, 1)),
}
_numbers = itertools.count(1)

Draw = Callable[[Any], Any]


@dataclass
class Call:
    """One call of a table's method, its effect, and the error that it must raise, if any."""

    run: Callable[[Any], Any]
    effect: Effect
    error: type[SiltstoneError] | None = None
    sql: tuple[str, list[object]] | None = None
    """A statement that does the same, and its parameters."""

    def run_by(self, door: Any, name: str, *, in_sql: bool) -> Any:
        """Run it in a store or a transaction, of the table called `name`."""
        if self.sql is None or not in_sql:
            return self.run(door[name])
        done = door.sql(*self.sql)
        return done if isinstance(door, Store) else done.rows


def kind_of(table: Relation) -> str:
    if len(table.key) == 2:
        return "pair"
    return "int" if table.columns[table.key[0]].kind == "int64" else "text"


def key_in(draw: Draw, table: Relation) -> Key:
    return draw(KEYS[kind_of(table)])


def _row(draw: Draw, table: Relation, key: Key) -> Row:
    parts = key if len(table.key) > 1 else (key,)
    row = dict(zip(table.key, parts, strict=True))  # type: ignore[arg-type]
    return row | _values(draw, table)


def _values(draw: Draw, table: Relation) -> dict[str, object]:
    names = [name for name in table.columns if name not in table.key]
    given = [name for name in names if draw(some.integers(0, 4))]  # some columns are not given
    return {name: draw(VALUES[table.columns[name].kind]) for name in given}


def _many_keys(table: Relation) -> list[Key]:
    kind, numbers = kind_of(table), range(ARROW_ROWS)
    if kind == "int":
        return list(numbers)
    return [f"k{n}" for n in numbers] if kind == "text" else [("eu", n) for n in numbers]


def _rows(draw: Draw, table: Relation, size_max: int = 4) -> list[Row]:
    """Return rows for a call: a few with drawn values, or many like the drawn one."""
    if draw(some.integers(0, 7)) == 0:
        like = _values(draw, table)
        keys = _many_keys(table) if table.key else range(ARROW_ROWS)
        return [_keyed(table, key) | like for key in keys]
    count = draw(some.integers(0, size_max))
    if not table.key:
        return [_values(draw, table) for _ in range(count)]
    return [_row(draw, table, key_in(draw, table)) for _ in range(count)]


def _keyed(table: Relation, key: Key) -> dict[str, object]:
    if not table.key:
        return {}
    parts = key if len(table.key) > 1 else (key,)
    return dict(zip(table.key, parts, strict=True))  # type: ignore[arg-type]


def _given(draw: Draw, table: Relation, rows: list[Row]) -> object:
    """Return the rows as users give them: one dict, dicts, or Arrow in an order of its own."""
    form = draw(some.sampled_from(["dicts", "arrow", "batches"]))
    if form == "dicts":
        return rows[0] if len(rows) == 1 else rows
    names = list(table.columns)
    used = {name for row in rows for name in row} | set(table.key)
    names = [n for n in draw(some.permutations(names)) if n in used] or names[:1]
    schema = pa.schema([(name, TYPES[table.columns[name].kind]) for name in names])
    arrow = pa.Table.from_pylist([{n: r.get(n) for n in names} for r in rows], schema)
    return arrow if form == "arrow" else arrow.to_reader(max_chunksize=300)


def _named(given: object, row: Row) -> Row:
    """Return what a row names in a form: of Arrow each names all columns that are there."""
    if isinstance(given, pa.Table | pa.RecordBatchReader):
        return {name: row.get(name) for name in given.schema.names}
    return row


def first_rows(table: Relation) -> Call:
    """Return the call that gives a new table two rows."""
    if not table.key:
        rows = {next(_numbers): {"v": value} for value in (1, 2)}
        given = list(rows.values())
        whole = {number: table.whole(row) for number, row in rows.items()}
        return Call(lambda t: t.append(given), _put(table, whole, len(rows)))
    keys: dict[str, list[Key]] = {"int": [0, 1], "text": ["", "a"], "pair": [("eu", 0), ("us", 0)]}
    made = {key: _keyed(table, key) for key in keys[kind_of(table)]}
    return Call(
        lambda t: t.upsert(list(made.values()), missing="null"), _put(table, dict(made), len(made))
    )


# keyed tables


def upsert(draw: Draw, table: Relation, _world: World) -> Call:
    rows = _rows(draw, table)
    given = _given(draw, table, rows)
    newest = {table.key_of(row): table.whole(_named(given, row)) for row in rows}
    return Call(lambda t: t.upsert(given, missing="null"), _put(table, newest, len(newest)))


def keep(draw: Draw, table: Relation, _world: World) -> Call:
    """An upsert whose rows keep the values that they do not name."""
    rows = _rows(draw, table)
    given = _given(draw, table, rows)
    laid: dict[Key, Row] = {}
    for row in rows:
        key = table.key_of(row)
        exists = laid.get(key) or table.rows.get(key) or table.whole({})
        laid[key] = {**exists, **_named(given, row)}
    return Call(lambda t: t.upsert(given, missing="keep"), _put(table, laid, len(laid)))


def insert(draw: Draw, table: Relation, world: World) -> Call:
    rows = _rows(draw, table)
    given = _given(draw, table, rows)
    newest = {table.key_of(row): table.whole(_named(given, row)) for row in rows}
    is_living = any(key in table.rows for key in newest) and not world.is_retried
    if is_living or len(newest) < len(rows):
        refused = Effect(table.id, None)
        return Call(lambda t: t.insert(given), refused, DuplicateKeyError, _inserted(table, rows))
    effect = _put(table, newest, len(newest))
    return Call(lambda t: t.insert(given), effect, sql=_inserted(table, rows))


def _inserted(table: Relation, rows: list[Row]) -> tuple[str, list[object]] | None:
    """Return the INSERT of a few rows of simple values."""
    names = sorted({name for row in rows for name in row})
    if not rows or len(rows) > 4 or not _are_simple(table, names):
        return None
    has_defaults = any(column.default is not None for column in table.columns.values())
    if has_defaults and any(set(row) != set(names) for row in rows):
        return None
    marks = ", ".join(f"({', '.join('?' for _ in names)})" for _ in rows)
    columns = ", ".join(f'"{name}"' for name in names)
    values = [row.get(name) for row in rows for name in names]
    return f"INSERT INTO {table.name} ({columns}) VALUES {marks}", values


def update(draw: Draw, table: Relation, _world: World) -> Call:
    key, values = key_in(draw, table), _values(draw, table)
    old = table.rows.get(key)
    if old is None:
        effect = Effect(table.id, None, result=0)
    else:
        effect = _put(table, {key: {**old, **values}}, 1)
    sql = None
    if values and _are_simple(table, values):
        sets = ", ".join(f'"{name}" = ?' for name in values)
        text = f"UPDATE {table.name} SET {sets} WHERE {_is_key(table)}"
        sql = text, [*values.values(), *_parts(table, key)]
    return Call(lambda t: t.update(key, **values), effect, sql=sql)


def _are_simple(table: Relation, names: Iterable[str]) -> bool:
    return all(table.columns[name].kind in {"int64", "string"} for name in names)


def _is_key(table: Relation) -> str:
    return " AND ".join(f'"{name}" = ?' for name in table.key)


def _parts(table: Relation, key: Key) -> list[object]:
    return list(key) if len(table.key) > 1 else [key]  # type: ignore[arg-type]


def _put(table: Relation, rows: dict[Key, Row], result: int) -> Effect:
    def apply(world: World) -> None:
        for key, row in rows.items():
            world.tables[table.id].put(key, row)

    return Effect(table.id, apply if rows else None, set(rows), result)


def delete(draw: Draw, table: Relation, _world: World) -> Call:
    if draw(some.integers(0, 9)) == 0:
        keys = _many_keys(table)
    else:
        keys = draw(some.lists(KEYS[kind_of(table)], max_size=3, unique=True))
    given = keys[0] if len(keys) == 1 else keys
    lived = sum(key in table.rows for key in keys)
    return Call(lambda t: t.delete(given), _drop(table, set(keys), lived))


def delete_where(draw: Draw, table: Relation, _world: World) -> Call:
    text, keep = condition(draw, table)
    keys = {key for key, row in table.rows.items() if keep(row)}
    effect = _drop(table, keys, len(keys))
    if not table.key:
        effect.writes = {EVERY}
    sql = f"DELETE FROM {table.name} WHERE {text}", list[object]()
    return Call(lambda t: t.delete_where(text), effect, sql=sql)


def _drop(table: Relation, keys: set[Key], result: int) -> Effect:
    def apply(world: World) -> None:
        for key in keys:
            world.tables[table.id].rows.pop(key, None)

    return Effect(table.id, apply if keys else None, keys, result)


def condition(draw: Draw, table: Relation) -> tuple[str, Callable[[Row], bool]]:
    """Return a filter and what it means."""
    name = draw(some.sampled_from(sorted(table.columns)))
    null = f"{name} IS NULL", lambda row: row[name] is None
    kind = table.columns[name].kind
    if kind not in {"string", "int64"}:
        inverse = f"{name} IS NOT NULL", lambda row: row[name] is not None
        return draw(some.sampled_from([null, inverse]))
    if kind == "string":
        text = draw(some.sampled_from(["", "x", "k7"]))
        simple = f"{name} <= '{text}'", lambda row: row[name] is not None and row[name] <= text
    else:
        number = draw(some.integers(-2, 4))
        simple = f"{name} > {number}", lambda row: row[name] is not None and row[name] > number
    inverse = f"NOT ({simple[0]})", lambda row: row[name] is not None and not simple[1](row)
    return draw(some.sampled_from([simple, null, inverse]))


# plain tables


def append(draw: Draw, table: Relation, _world: World) -> Call:
    drawn_rows = _rows(draw, table)
    given = _given(draw, table, drawn_rows)
    rows = {next(_numbers): table.whole(_named(given, row)) for row in drawn_rows}
    effect = _put(table, rows, len(rows))
    effect.writes, effect.is_loose = {APPENDS}, True
    return Call(lambda t: t.append(given), effect)


def overwrite(draw: Draw, table: Relation, _world: World) -> Call:
    drawn_rows = _rows(draw, table)
    given = _given(draw, table, drawn_rows)
    rows = {next(_numbers): table.whole(_named(given, row)) for row in drawn_rows}
    put = _put(table, rows, len(rows))

    def apply(world: World) -> None:
        world.tables[table.id].rows.clear()
        if put.apply is not None:
            put.apply(world)

    return Call(lambda t: t.overwrite(given), Effect(table.id, apply, {EVERY}, len(rows)))


# definitions of one table


def truncate(_draw: Draw, table: Relation, _world: World) -> Call:
    def apply(world: World) -> None:
        world.tables[table.id].rows.clear()
        world.tables[table.id].incarnation += 1

    effect = Effect(table.id, apply, {EVERY}, is_loose=True, forgets=True)
    return Call(lambda t: t.truncate(), effect)


def add_column(draw: Draw, table: Relation, _world: World) -> Call:
    name = draw(some.sampled_from(["n", "s", "v", "w"]))
    kind = draw(some.sampled_from(sorted(TYPES)))
    default = None if kind in NESTED else draw(VALUES[kind])

    def add(t: Any) -> Any:
        return t.add_column(name, TYPES[kind], default)

    if name in table.columns:
        return Call(add, Effect(table.id, None), SchemaMismatchError)

    def apply(world: World) -> None:
        changed = world.tables[table.id]
        changed.columns[name] = Column(changed.next_column, kind, default, default)
        changed.next_column += 1
        changed.rows = {key: {**row, name: default} for key, row in changed.rows.items()}

    return Call(add, Effect(table.id, apply, is_loose=True))


def set_default(draw: Draw, table: Relation, _world: World) -> Call | None:
    scalars = {n for n, column in table.columns.items() if column.kind not in NESTED}
    names = sorted(scalars - set(table.key))
    if not names:
        return None
    name = draw(some.sampled_from(names))
    default = draw(VALUES[table.columns[name].kind])

    def apply(world: World) -> None:
        changed = world.tables[table.id]
        changed.columns[name] = replace(changed.columns[name], default=default)

    changes = default != table.columns[name].default
    effect = Effect(table.id, apply if changes else None, is_loose=True)
    return Call(lambda t: t.alter_column(name, default=default), effect)


def set_type(draw: Draw, table: Relation, _world: World) -> Call | None:
    """A wider type, for which no row is read; or text, for which all rows are written."""
    names = sorted(n for n, c in table.columns.items() if c.kind in WIDER and n not in table.key)
    if not names:
        return None
    name = draw(some.sampled_from(names))
    old = table.columns[name]
    kind = draw(some.sampled_from([*WIDER[old.kind], "string"]))

    def set_it(t: Any) -> Any:
        return t.alter_column(name, type=TYPES[kind])

    def widen(world: World) -> None:
        changed = world.tables[table.id]
        changed.columns[name] = replace(changed.columns[name], kind=kind)

    if kind != "string":
        return Call(set_it, Effect(table.id, widen, is_loose=True))

    def text(value: object) -> str | None:
        return None if value is None else str(value)

    def write(world: World) -> None:
        changed = world.tables[table.id]
        default = text(changed.columns[name].default)
        changed.columns[name] = Column(changed.next_column, kind, default)
        changed.next_column += 1
        changed.rows = {k: {**row, name: text(row[name])} for k, row in changed.rows.items()}

    keys = set(table.rows) if table.key else set[Key]()
    return Call(set_it, Effect(table.id, write, keys, is_loose=True))


def drop_column(draw: Draw, table: Relation, _world: World) -> Call | None:
    names = sorted(set(table.columns) - set(table.key))
    if not names or len(table.columns) == 1:
        return None
    name = draw(some.sampled_from(names))

    def apply(world: World) -> None:
        changed = world.tables[table.id]
        del changed.columns[name]
        changed.rows = {
            key: {n: v for n, v in row.items() if n != name} for key, row in changed.rows.items()
        }

    return Call(lambda t: t.drop_column(name), Effect(table.id, apply, is_loose=True))


def rename_column(draw: Draw, table: Relation, _world: World) -> Call | None:
    old = draw(some.sampled_from(sorted(table.columns)))
    new = draw(some.sampled_from(sorted({"n", "s", "v", "w", "key"} - set(table.columns)) or [""]))
    if not new:
        return None

    def apply(world: World) -> None:
        changed = world.tables[table.id]
        renamed = lambda n: new if n == old else n  # noqa: E731 - used four times below
        changed.columns = {renamed(n): column for n, column in changed.columns.items()}
        changed.key = tuple(map(renamed, changed.key))
        changed.rows = {
            key: {renamed(n): v for n, v in row.items()} for key, row in changed.rows.items()
        }

    return Call(lambda t: t.rename_column(old, new), Effect(table.id, apply, is_loose=True))


KEYED = (upsert, upsert, keep, insert, insert, update, update, delete, delete, delete_where)
PLAIN = (append, append, append, overwrite, delete_where)
DEFINITIONS = (
    truncate, add_column, add_column, set_default, set_type, set_type, drop_column, rename_column,
)  # fmt: skip


def drawn(draw: Draw, table: Relation, world: World, *, definition: bool) -> Call | None:
    """Return a call of the table."""
    calls = DEFINITIONS if definition else KEYED if table.key else PLAIN
    return draw(some.sampled_from(calls))(draw, table, world)
