"""The reference: what a store holds, as dicts. Slow, obvious, and kept whole for every seq.

A `World` is all tables at one seq; an operation is a function that changes a world, so the same one
is applied to a transaction's own view when it is made and to the newest world when it commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

Key = object
Row = Mapping[str, object]
EVERY = "every row"
APPENDS = "appends"


@dataclass(frozen=True)
class Column:
    """A column; `initial` is what rows have that were made before it was added."""

    id: int
    kind: str
    default: object = None
    initial: object = None


@dataclass
class Relation:
    """One table: `rows` by key; those of a plain table by a number of their own."""

    id: int
    name: str
    key: tuple[str, ...]
    columns: dict[str, Column]
    rows: dict[Key, Row] = field(default_factory=dict)
    incarnation: int = 0
    next_column: int = 0

    def key_of(self, row: Row) -> Key:
        values = tuple(row[name] for name in self.key)
        return values[0] if len(values) == 1 else values

    def key_types(self) -> dict[str, str]:
        return {name: self.columns[name].kind for name in self.key}

    def put(self, key: Key, row: Row) -> None:
        """Set one row; columns it lacks were added since, columns it has must be there."""
        assert row.keys() <= self.columns.keys(), f"{row} was admitted into {self.columns}"
        self.rows[key] = {n: row.get(n, column.initial) for n, column in self.columns.items()}

    def whole(self, named: Row) -> Row:
        """Return a new row that names some columns: the others have their defaults."""
        return {n: named.get(n, column.default) for n, column in self.columns.items()}

    def shown(self, columns: Iterable[str] | None = None, keep: Callable = bool) -> list[tuple]:
        names = list(self.columns if columns is None else columns)
        return in_order(tuple(row[n] for n in names) for row in self.rows.values() if keep(row))

    def copy(self) -> Relation:
        return replace(self, columns=dict(self.columns), rows=dict(self.rows))


def in_order(rows: Iterable[tuple]) -> list[tuple]:
    return sorted(rows, key=repr)


def above(name: str) -> list[str]:
    """Return the namespaces that a table or a namespace is in."""
    parts = name.split(".")
    return [".".join(parts[:depth]) for depth in range(1, len(parts))]


@dataclass
class World:
    """All tables by id, the tags, and of each app its applied batches with seq and rows.

    `spaces` are the namespaces that were created, each with a number of its own.
    """

    tables: dict[int, Relation] = field(default_factory=dict)
    spaces: dict[str, int] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    is_retried: bool = False  # of a transaction: its token was applied, so its rows may live

    def copy(self) -> World:
        tables = {number: table.copy() for number, table in self.tables.items()}
        tokens = {app: dict(batches) for app, batches in self.tokens.items()}
        return World(tables, dict(self.spaces), dict(self.tags), tokens)

    def named(self, name: str) -> Relation | None:
        return next((table for table in self.tables.values() if table.name == name), None)

    def names(self) -> list[str]:
        return sorted(table.name for table in self.tables.values())

    def members(self) -> set[str]:
        """Return the names of all that may be in a namespace."""
        return {*self.names(), *self.spaces}

    def inside(self, space: str) -> list[str]:
        """Return what is in a namespace, at any depth."""
        return sorted(name for name in self.members() if space in above(name))

    def namespaces(self) -> dict[str, dict[str, str]]:
        """Return the properties of all namespaces: of those that were created, their numbers."""
        implied = {space for name in self.members() for space in above(name)}
        own = {space: {"number": str(number)} for space, number in self.spaces.items()}
        return {space: {} for space in implied} | own


Operation = Callable[[World], None]


@dataclass
class Effect:
    """What a call does: `apply` to a world, and which keys of which table it `writes`.

    `result` is what the call returns (None: not compared). `is_loose` marks what may be refused at
    commit for reasons the model does not foresee; without `apply` nothing happens. `entered` is the
    name that a table takes, `space` the namespace that is created or dropped.
    """

    table: int
    apply: Operation | None
    writes: set[Key] = field(default_factory=set)
    result: int | None = None
    is_loose: bool = False
    forgets: bool = False
    entered: str = ""
    space: str = ""

    def collides(self, then: World, now: World) -> bool:
        """Say whether others have changed its namespaces since `then` so that it must not come."""

        def is_other(space: str) -> bool:
            return then.spaces.get(space) != now.spaces.get(space)

        if self.entered:
            return any(space in then.spaces and is_other(space) for space in above(self.entered))
        came = {space for name in now.members() - then.members() for space in above(name)}
        gone = then.namespaces().keys() - now.namespaces().keys()
        is_there = bool(self.space) and (is_other(self.space) or self.space in came)
        return is_there or not gone.isdisjoint(above(self.space))


@dataclass(frozen=True)
class Written:
    """One row version as the change feed tells it: values by column id; None is a delete."""

    seq: int
    table: int
    key: Key
    values: Mapping[int, object] | None


@dataclass
class Commit:
    """What one seq changed: keys by table (`EVERY`: all), and whether definitions changed."""

    writes: dict[int, set[Key]] = field(default_factory=dict)
    is_definition: bool = False
    versions: list[Written] = field(default_factory=list)
    time_us: int = 0


@dataclass
class History:
    """Every world that was committed, by seq; worlds and commits are never changed afterwards."""

    worlds: list[World] = field(default_factory=lambda: [World()])
    commits: list[Commit] = field(default_factory=lambda: [Commit()])

    @property
    def seq(self) -> int:
        return len(self.worlds) - 1

    @property
    def now(self) -> World:
        return self.worlds[-1]

    def add(self, world: World, commit: Commit) -> None:
        for number, keys in commit.writes.items():
            table = world.tables.get(number)
            if table is None or not table.key:
                continue
            old = self.now.tables.get(number)
            if old is not None and old.incarnation != table.incarnation:  # truncated
                commit.versions += [Written(self.seq + 1, number, key, None) for key in old.rows]
            for key in keys - {EVERY}:
                commit.versions.append(_version(table, key, self.seq + 1))
        self.worlds.append(world)
        self.commits.append(commit)

    def cut(self, seq: int) -> None:
        """Forget what is above `seq`: a power cut took it."""
        del self.worlds[seq + 1 :], self.commits[seq + 1 :]

    def seq_at(self, time_us: int) -> int:
        return max(s for s, commit in enumerate(self.commits) if commit.time_us <= time_us)

    def written_since(self, seq: int) -> dict[int, set[Key]]:
        found: dict[int, set[Key]] = {}
        for commit in self.commits[seq + 1 :]:
            for table, keys in commit.writes.items():
                found.setdefault(table, set()).update(keys)
        return found

    def changes(self, table: Relation, since: int, until: int) -> list[tuple]:
        """Return (seq, op, values in column order) of a table as it is defined at `until`."""
        return in_order(
            (version.seq, *_told(table, version))
            for commit in self.commits[since + 1 : until + 1]
            for version in commit.versions
            if version.table == table.id
        )

    def feed(self, name: str, since: int, until: int) -> list[tuple] | None:
        """Return what `changes` tells of a name; None: its new table has another key."""
        table = self.worlds[until].named(name)
        assert table is not None
        taken = self._first(until, lambda world: _is_called(world, table.id, name))
        if since == 0 or taken <= since or _is_called(self.worlds[since], table.id, name):
            return self.changes(table, since, until)
        former = self.worlds[since].named(name)
        gone: list[tuple] = []
        if former is not None and former.key:
            if former.key_types() != table.key_types():
                return None
            lost = next(
                seq
                for seq in range(since + 1, until + 1)
                if not _is_called(self.worlds[seq], former.id, name)
            )
            gone = [(lost, *_told(table, _gone(former, row, lost))) for row in former.rows.values()]
        if table.id not in self.worlds[taken - 1].tables:
            return in_order([*gone, *self.changes(table, since, until)])
        then = self.worlds[taken].tables[table.id]
        whole = [(taken, *_told(table, _version(then, key, taken))) for key in then.rows]
        return in_order([*gone, *whole, *self.changes(table, taken, until)])

    def _first(self, seq: int, claim: Callable[[World], bool]) -> int:
        """Return the first seq from which on `claim` holds up to `seq`."""
        while seq and claim(self.worlds[seq - 1]):
            seq -= 1
        return seq


def _is_called(world: World, table: int, name: str) -> bool:
    found = world.tables.get(table)
    return found is not None and found.name == name


def _gone(former: Relation, row: Row, seq: int) -> Written:
    return Written(seq, former.id, {name: row[name] for name in former.key}, None)


def _version(table: Relation, key: Key, seq: int) -> Written:
    row = table.rows.get(key)
    values = None if row is None else {table.columns[n].id: v for n, v in row.items()}
    return Written(seq, table.id, key, values)


def _told(table: Relation, version: Written) -> tuple:
    if version.values is not None:
        values = tuple(version.values.get(column.id) for column in table.columns.values())
        return ("upsert", *values)
    parts = version.key if len(table.key) > 1 else (version.key,)
    is_named = isinstance(version.key, Mapping)  # of another table, its key in another order
    key = version.key if is_named else dict(zip(table.key, parts, strict=True))
    return ("delete", *(key.get(name) for name in table.columns))
