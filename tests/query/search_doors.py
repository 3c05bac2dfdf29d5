"""A store with rows in all levels, searches of it, and every door by which they are asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

import siltstone as st
from siltstone.cli import main
from siltstone.namespace import SiltstoneNamespace
from tests.query.nearest_rows import nearest
from tests.server.rest import Rest

SIZE = 8
COLUMNS = {
    "id": "int64",
    "v": f"vector(float32, {SIZE})",
    "kind": "string",
    "title": "string",
    "note": "string",
}
WORDS_USED = ("river", "silt", "stone", "delta", "clay", "bank")
Found = list[tuple[int, float]]


def vector_of(n: int, life: int = 0) -> list[float]:
    """Return a vector that float32 holds, the same in all processes."""
    return [((n * 37 + life * 101 + at * at * 13) % 257 - 128) / 32 for at in range(SIZE)]


def texts_of(n: int, life: int = 0) -> tuple[str, str]:
    """Return the title and the note of a row."""
    first, second = WORDS_USED[(n + life) % 6], WORDS_USED[(n // 6 + 2 * life + 1) % 6]
    return f"The {first} of {second} {n % 10}", f"a {second} by the {first}, or a {second}"


def row_of(n: int, life: int) -> tuple[list[float], str, str, str]:
    """Return vector, kind, title and note of a row."""
    return vector_of(n, life), "ab"[n % 2], *texts_of(n, life)


def _lives() -> dict[int, tuple[list[float], str, str, str]]:
    """Return the rows that live in the end."""
    rows = {n: row_of(n, 0) for n in range(400)}
    rows |= {n: row_of(n, 1) for n in range(0, 400, 7)}
    rows |= {n: row_of(n, 2) for n in range(390, 450)}
    for n in range(0, 400, 11):
        del rows[n]
    return rows


LIVES = _lives()


def fill(db: st.Store) -> None:
    """Make the table: rows in base under an index, in history, and in the memtable."""
    docs = db.create_table("docs", COLUMNS, primary_key="id")
    _upsert(docs, range(400), 0)
    db.checkpoint()
    db.merge()
    docs.create_index("v", kind="vector", encoding="flat")
    docs.create_index("title", kind="fts", with_position=True)
    docs.create_index("note", kind="fts")
    _upsert(docs, range(0, 400, 7), 1)
    db.checkpoint()
    _upsert(docs, range(390, 450), 2)
    docs.delete([*range(0, 400, 11)])


def _upsert(docs: Any, keys: range, life: int) -> None:
    docs.upsert([dict(zip(COLUMNS, (n, *row_of(n, life)), strict=True)) for n in keys])


class Search(Protocol):
    """What is searched for, and the arguments beside it."""

    @property
    def sought(self) -> object: ...

    @property
    def options(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Asked:
    """A search that every door takes."""

    vector: list[float]
    k: int
    metric: Any = "l2"
    filter: str | None = None
    within: tuple[float | None, float | None] = (None, None)
    exact: bool = False

    @property
    def sought(self) -> object:
        return self.vector

    @property
    def options(self) -> dict[str, Any]:
        return {
            "k": self.k,
            "column": "v",
            "metric": self.metric,
            "filter": self.filter,
            "columns": ["id"],
            "distance_range": self.within,
            "exact": self.exact,
        }

    @property
    def query(self) -> dict[str, Any]:
        """The same as the namespace has it."""
        return {
            "vector": self.vector,
            "k": self.k,
            "vector_column": "v",
            "distance_type": self.metric,
            "filter": self.filter,
            "columns": ["id"],
            "lower_bound": self.within[0],
            "upper_bound": self.within[1],
            "bypass_vector_index": self.exact,
        }


ASKED = [
    Asked(vector_of(3), 1),
    Asked(vector_of(7, 1), 10),  # updated: a new vector in history
    Asked(vector_of(7), 10),  # its old one
    Asked(vector_of(395, 2), 10),  # in the memtable
    Asked(vector_of(11), 10),  # deleted
    Asked([0.3] * SIZE, 25, exact=True),
    Asked([0.3] * SIZE, 500),
    Asked(vector_of(5), 10, "cosine"),
    Asked(vector_of(5), 10, "dot"),
    Asked(vector_of(5), 12, filter="kind = 'a' AND id > 100"),
    Asked([0.1] * SIZE, 30, within=(30.0, 45.0)),
]


def wanted(asked: Asked) -> Found:
    """Return key and distance of the nearest rows, by brute force."""
    rows = {n: row[0] for n, row in LIVES.items()}
    if asked.filter is not None:
        rows = {n: v for n, v in rows.items() if LIVES[n][1] == "a" and n > 100}
    vector = pa.array(asked.vector, pa.float32()).to_pylist()
    found = nearest(rows, vector, asked.k, asked.metric, asked.within)
    return [(n, far) for far, n in found]


@dataclass
class Doors:
    """The open doors of one store."""

    db: Any
    joined: Any
    reader: Any
    rest: Rest
    url: str
    lancedb: Any
    seq: int

    @classmethod
    @contextmanager
    def of(cls, db: Any) -> Generator[Doors]:
        import lancedb

        with ExitStack() as held:
            db.serve_local()
            service = db.serve(port=0)
            rest = Rest(service)
            held.callback(rest.close)
            joined = held.enter_context(st.connect(db.path, join=True))
            reader = held.enter_context(st.connect(db.path, read_only=True))
            remote = lancedb.connect("db://dev", api_key="none", host_override=service.url)
            seq = db.seq
            db["docs"].upsert({"id": 1_000, "v": [0.25] * SIZE, "kind": "a"}, "null")  # only `past`
            db["docs"].delete(1_000)  # does not see that it came and went
            yield cls(db, joined, reader, rest, service.url, remote, seq)


def pairs(rows: Any) -> Found:
    """Return key and distance of rows of any door."""
    listed = rows if isinstance(rows, list) else pa.table(rows).to_pylist()
    return [(row["id"], row["_distance"]) for row in listed]


def found_by(doors: Doors, door: str, asked: Asked, capsys: Any) -> Found:
    """Return what one door answers."""
    return pairs(_ANSWERS[door](doors, asked, capsys))


def _table(doors: Doors, asked: Search, _: Any) -> Any:
    return doors.db["docs"].search(asked.sought, **asked.options)


def _snapshot(doors: Doors, asked: Search, _: Any) -> Any:
    with doors.db.snapshot() as now:
        return now["docs"].search(asked.sought, **asked.options)


def _past(doors: Doors, asked: Search, _: Any) -> Any:
    with doors.joined.snapshot(seq=doors.seq) as past:
        return past["docs"].search(asked.sought, **asked.options)


def _transaction(doors: Doors, asked: Search, _: Any) -> Any:
    with doors.db.transaction() as tx:
        return tx["docs"].search(asked.sought, **asked.options)


def _joined(doors: Doors, asked: Search, _: Any) -> Any:
    return doors.joined["docs"].search(asked.sought, **asked.options)


def _read_only(doors: Doors, asked: Search, _: Any) -> Any:
    return doors.reader["docs"].search(asked.sought, **asked.options)


IN_PYTHON = {
    "table": _table,
    "snapshot": _snapshot,
    "past": _past,
    "transaction": _transaction,
    "joined": _joined,
    "read_only": _read_only,
}
"""The doors that take any kind of search alike."""


def _rest(doors: Doors, asked: Asked, _: Any) -> Any:
    return doors.rest.post("/v1/table/docs/query", asked.query).rows


def _namespace(doors: Doors, asked: Asked, _: Any) -> Any:
    answer: Any = SiltstoneNamespace(doors.db).query_table({"id": ["docs"], **asked.query})
    return pa.ipc.open_file(answer.data).read_all()


def _lancedb_query(query: Any, asked: Asked) -> Any:
    query = query.distance_type(asked.metric).select(["id"]).limit(asked.k)
    if asked.filter is not None:
        query = query.where(asked.filter)
    if asked.within != (None, None):
        query = query.distance_range(*asked.within)
    return query.bypass_vector_index() if asked.exact else query


def _lancedb(doors: Doors, asked: Asked, _: Any) -> Any:
    table = doors.lancedb.open_table("docs")
    query = table.search(asked.vector, vector_column_name="v")
    return _lancedb_query(query, asked).to_arrow()


def _lancedb_async(doors: Doors, asked: Asked, _: Any) -> Any:
    import lancedb

    async def answer() -> Any:
        db = await lancedb.connect_async("db://dev", api_key="none", host_override=doors.url)
        table = await db.open_table("docs")
        query = table.query().nearest_to(asked.vector).column("v")
        return await _lancedb_query(query, asked).to_arrow()

    return asyncio.run(answer())


def _command_line(doors: Doors, asked: Asked, capsys: Any) -> Any:
    return _printed(str(doors.db.path), asked, capsys)


def _server(doors: Doors, asked: Asked, capsys: Any) -> Any:
    return _printed(doors.url, asked, capsys)


def _printed(db: str, asked: Asked, capsys: Any) -> Any:
    options = ["--k", asked.k, "--column", "v", "--metric", asked.metric, "--columns", "id"]
    for name, value in (
        ("--filter", asked.filter),
        ("--lower-bound", asked.within[0]),
        ("--upper-bound", asked.within[1]),
    ):
        options += [] if value is None else [name, value]
    options += ["--exact"] if asked.exact else []
    words = ["search", "docs", json.dumps(asked.vector), *map(str, options), "--json", "--db", db]
    capsys.readouterr()
    assert main(words) == 0
    return json.loads(capsys.readouterr().out)


def _sql(doors: Doors, asked: Asked, _: Any) -> Any:
    lower, upper = asked.within
    return doors.db.sql(
        "select * from search('docs', $v, k => $k, column => 'v', metric => $metric,"
        " filter => $filter, columns => ['id'], distance_range => [$lower, $upper],"
        " exact => $exact) order by _distance, id",
        {
            "v": asked.vector,
            "k": asked.k,
            "metric": asked.metric,
            "filter": asked.filter,
            "lower": lower,
            "upper": upper,
            "exact": asked.exact,
        },
    )


_ANSWERS = {
    **IN_PYTHON,
    "rest": _rest,
    "namespace": _namespace,
    "lancedb": _lancedb,
    "lancedb_async": _lancedb_async,
    "command_line": _command_line,
    "server": _server,
    "sql": _sql,
}
