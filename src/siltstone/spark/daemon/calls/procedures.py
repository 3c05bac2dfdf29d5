"""Procedures: what `CALL shop.system.<name>(..)` does, with its parameters and its result.

The catalog in Spark knows none of them: names, parameters and results are data of this module.

A call works as a statement does: through the store's owner, or as its owner (`stores.owner`), in
this process. `siltstone.spark.merge` and `optimize` spread their work over executors instead; that
takes a session of PySpark, which the JVM that makes a call may not have. Call those for tables that
are too large for one process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from siltstone.api.results import Deferred, Receipt
from siltstone.api.store import Store
from siltstone.api.transaction import Transaction
from siltstone.errors import ConflictError, LimitError, RequestError, no_such
from siltstone.local.snapshot import LocalSnapshot
from siltstone.spark.context import stores
from siltstone.spark.context.application import APPLICATION, of_process, store_of, tell_own
from siltstone.spark.context.kept_stores import kept
from siltstone.spark.daemon import tables
from siltstone.spark.writes import automatic_merge

NAMESPACE = "system"
NULL = "NULL"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: its type and its default in Spark's SQL; without a default it must be given."""

    name: str
    type: str
    about: str
    default: str | None = None

    def __str__(self) -> str:
        default = "" if self.default is None else f" DEFAULT {self.default}"
        return f"  {self.name} {self.type}{default}: {self.about}"


@dataclass(frozen=True, slots=True)
class Called:
    """A call: the store, as the catalog names it and by its path, and all arguments by name.

    `application` is the folder of the driver.
    """

    uri: str
    path: str
    application: str
    arguments: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @contextmanager
    def committing(self) -> Generator[Store]:
        """Return the store to commit through; say afterwards what is due."""
        with stores.owner(self.uri) as db:
            yield db
        automatic_merge.report(db, ())


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure; `doubt` is what to look for if this process ends before it answers.

    Without it a call may be made again: maintenance does what is left, and a search changes
    nothing.
    """

    about: str
    parameters: tuple[Parameter, ...]
    run: Callable[[Called], pa.Table]
    doubt: str | None = None


_TEXTS = pa.list_(pa.field("element", pa.string(), nullable=False))
_MERGED = pa.schema(
    {"seq": pa.int64(), "tables": _TEXTS, "rows": pa.int64(), "deferred": pa.string()}
)
_OPTIMIZED = pa.schema(
    {
        "tables": _TEXTS,
        "files_before": pa.int64(),
        "files_after": pa.int64(),
        "rows": pa.int64(),
        "segments": pa.int64(),
        "indexed_rows": pa.int64(),
        "deferred": pa.string(),
    }
)
_CHECKPOINTED = pa.schema({"record": pa.int64(), "seq": pa.int64()})
_VACUUMED = pa.schema(
    {
        "dry_run": pa.bool_(),
        "files": pa.int64(),
        "bytes": pa.int64(),
        "oldest_seq": pa.int64(),
        "spared": _TEXTS,
    }
)
_TAGGED = pa.schema({"tag": pa.string(), "seq": pa.int64(), "commit_seq": pa.int64()})
_ROLLED_BACK = pa.schema(
    {"table": pa.string(), "seq": pa.int64(), "commit_seq": pa.int64(), "rows": pa.int64()}
)


def _one(schema: pa.Schema, **values: object) -> pa.Table:
    return pa.Table.from_pylist([values], schema)


def _result(done: Any, schema: pa.Schema) -> pa.Table:
    """Return the row of a maintenance that was done, or put off."""
    if isinstance(done, Deferred):
        return _one(schema, tables=[], deferred=done.reason)
    return _one(schema, **asdict(done))


def _merge(called: Called) -> pa.Table:
    with stores.owner(called.uri) as db:
        return _result(db.merge(called["table"]), _MERGED)


def _optimize(called: Called) -> pa.Table:
    with stores.owner(called.uri) as db:
        done = db.optimize(called["table"], target_rows=called["target_rows"])
    return _result(done, _OPTIMIZED)


def _checkpoint(called: Called) -> pa.Table:
    with stores.owner(called.uri) as db:
        done = db.checkpoint()
    return _one(_CHECKPOINTED, record=done.number, seq=done.flushed_seq)


def _vacuum(called: Called) -> pa.Table:
    with stores.owner(called.uri) as db:
        done = db.vacuum(called["dry_run"])
    return _one(
        _VACUUMED,
        dry_run=done.is_dry_run,
        files=len(done.files),
        bytes=done.nbytes,
        oldest_seq=done.oldest_seq,
        spared=done.spared,
    )


def _tag(called: Called) -> pa.Table:
    name, seq = called["name"], called["seq"]
    with called.committing() as db:
        tagged = db.durable_seq if seq is None else seq
        receipt = db.tag(name, tagged, lasts=called["lasts"])
    return _one(_TAGGED, tag=name, seq=tagged, commit_seq=receipt.seq)


def _drop_tag(called: Called) -> pa.Table:
    name = called["name"]
    with called.committing() as db:
        known = db.tags()
        if name not in known:
            raise RequestError(f"there is {no_such('tag', name, sorted(known))}")
        receipt = db.untag(name)
    return _one(_TAGGED, tag=name, seq=known[name], commit_seq=receipt.seq)


def _rollback_to(called: Called) -> pa.Table:
    """Give a table the rows that it had at a seq, or at a tag, in one commit.

    It is `put_back` of all commits since: the rows that changed are written, and no others, so the
    commit, and the changes that readers of the table see, are as large as what is undone. Nothing
    of the past goes: what was there before can be read, and rolled back to.

    Raises:
        RequestError: Neither or both are given, or no such tag; the table was made, or its columns
            changed, since then.
        SnapshotExpiredError, TableNotFoundError: The store does not keep the seq; no such table.
        ConflictError: Another commit changed the table meanwhile; nothing was changed.
        OwnedError, InDoubtError: As for any commit.
    """
    table, seq, tag = called["table"], called["seq"], called["tag"]
    if (seq is None) == (tag is None):
        raise RequestError("rollback_to takes a seq or a tag: where the table goes back to")
    with (
        kept(called.path) as reader,
        reader.snapshot() as now,
        reader.snapshot(seq=seq, tag=tag) as past,
    ):
        _require_same(past, now, table)
        done = _put_back(called.uri, table, now[table].id, past.seq, now.seq)
        teller = of_process({APPLICATION: called.application})
        if teller is not None and done.rows:
            tell_own(teller, store_of(called.path, reader.store_id), done.seq)
        rows = done.rows or 0
        return _one(_ROLLED_BACK, table=table, seq=past.seq, commit_seq=done.seq, rows=rows)


def _require_same(past: LocalSnapshot, now: LocalSnapshot, name: str) -> None:
    """Check that a table is the same at two seqs, but for its rows.

    Raises:
        RequestError: It is another one, or has other columns.
    """
    new = now[name]
    if name not in past.tables() or past[name].id != new.id:
        raise RequestError(f"there was no such table {name!r} at seq {past.seq}: it was made later")
    if past[name].schema != new.schema:
        raise RequestError(
            f"the columns of {name!r} have changed since seq {past.seq}: choose what becomes of"
            " them, by INSERT OVERWRITE from VERSION AS OF that seq"
        )


def _put_back(uri: str, table: str, table_id: int, to: int, read_seq: int) -> Receipt:
    """Put the rows back, unless the table has changed since `read_seq`."""
    with stores.owner(uri) as db:
        try:
            with db.transaction(isolation="serializable") as tx:
                _refuse_changed(tx, table_id, read_seq)
                tx.put_back(table, to=to, force=True)
            done = tx.receipt
        except LimitError:  # a commit of its own stages them
            done = db.put_back(table, to=to, until=read_seq)
        assert done is not None
        automatic_merge.report(db, ())
    return done


def _refuse_changed(tx: Transaction, table_id: int, read_seq: int) -> None:
    name, changed = tx.changed_since(table_id, read_seq)
    if changed:
        raise ConflictError(
            name,
            "*",
            read_seq,
            changed,
            explained=f"{name!r} was at seq {read_seq} when its rollback began, and has changed at"
            f" seq {changed}: nothing was rolled back; call it again",
        )


def _search(called: Called) -> pa.Table:
    given = {n: v for n, v in called.arguments.items() if n not in {"table", "query", "k"}}
    query = called["query"]
    if query is None:  # of vectors alone, the vector is the query
        query = given.pop("vector")
    if query is None:
        raise RequestError("search takes a query, of words, or a vector")
    with kept(called.path) as store, store.snapshot() as snapshot:
        found = snapshot[called["table"]].search(query, called["k"], **given)
        tables.told(snapshot, called["table"], called.application).tell()
        return found.to_arrow()


_TABLE = Parameter("table", "STRING", "the name of a table")
_TABLES = Parameter("table", "STRING", "the name of a table; NULL: all", NULL)
_SEARCHED = (
    _TABLE,
    Parameter("query", "STRING", "words", NULL),
    Parameter("k", "INT", "how many rows", "10"),
    Parameter("vector", "ARRAY<DOUBLE>", "a vector, with words or without", NULL),
    Parameter("column", "STRING", "the column to search", NULL),
    Parameter("filter", "STRING", "SQL of the store: which rows may be found", NULL),
    Parameter("columns", "ARRAY<STRING>", "the columns to return", NULL),
    Parameter("exact", "BOOLEAN", "ask no index", "false"),
    Parameter("operator", "STRING", "of words: 'or' or 'and'", NULL),
    Parameter("phrase", "BOOLEAN", "of words: they follow each other", "false"),
    Parameter("fuzzy", "INT", "of words: found with so many letters changed", NULL),
    Parameter("metric", "STRING", "of vectors: 'l2', 'cosine', 'dot' or 'hamming'", NULL),
    Parameter("nprobes", "INT", "of vectors: partitions of an index to look into", NULL),
    Parameter("refine", "INT", "of vectors: measure so many times k rows", NULL),
    Parameter("vector_column", "STRING", "of both: the column of vectors", NULL),
    Parameter("fusion", "STRING", "of both: 'rrf'", NULL),
)
PROCEDURES: Mapping[str, Procedure] = {
    "checkpoint": Procedure("Flush all commits so far into Lance.", (), _checkpoint),
    "merge": Procedure("Fold flushed rows into the bases of the tables.", (_TABLES,), _merge),
    "optimize": Procedure(
        "Rewrite small files as large ones.",
        (_TABLES, Parameter("target_rows", "BIGINT", "rows in a file", "1048576")),
        _optimize,
    ),
    "vacuum": Procedure(
        "Delete the files that nothing needs any more; by default only tell how many.",
        (Parameter("dry_run", "BOOLEAN", "false: delete them", "true"),),
        _vacuum,
    ),
    "tag": Procedure(
        "Tag the newest seq, or an older one; a tag keeps its past from vacuum.",
        (
            Parameter("name", "STRING", "the tag; one of that name moves"),
            Parameter("seq", "BIGINT", "the seq; NULL: the newest", NULL),
            Parameter("lasts", "STRING", "a duration, as '30d'; NULL: for ever", NULL),
        ),
        _tag,
        doubt="the tag is in system.tags",
    ),
    "drop_tag": Procedure(
        "Remove a tag; vacuum may then delete the past that only this tag kept.",
        (Parameter("name", "STRING", "the tag"),),
        _drop_tag,
        doubt="the tag is gone from system.tags",
    ),
    "rollback_to": Procedure(
        "Give a table the rows that it had at a seq or a tag, in a new commit.",
        (
            _TABLE,
            Parameter("seq", "BIGINT", "the seq", NULL),
            Parameter("tag", "STRING", "or the tag", NULL),
        ),
        _rollback_to,
        doubt="the newest commit of the table's history is the rollback",
    ),
    "search": Procedure(
        "Return the rows with the nearest vectors, or with words, the best first.",
        _SEARCHED,
        _search,
    ),
}


def names_in(namespace: list[str]) -> list[str]:
    """Return the names of the procedures to list for a namespace: of the catalog's root, all."""
    return sorted(PROCEDURES) if namespace in ([], [NAMESPACE]) else []


def describe(name: str) -> dict[str, object]:
    """Return what Spark has to know of `system.<name>`, in any case of letters.

    Raises:
        RequestError: There is no such procedure.
    """
    space, _, last = name.lower().rpartition(".")
    if space != NAMESPACE or last not in PROCEDURES:
        known = [f"{NAMESPACE}.{each}" for each in sorted(PROCEDURES)]
        raise RequestError(f"there is {no_such('procedure', name, known)}")
    found = PROCEDURES[last]
    return {
        "name": last,
        "about": "\n".join([found.about, *map(str, found.parameters)]),
        "parameters": [asdict(each) for each in found.parameters],
        "doubt": found.doubt,
    }


def call(name: str, called: Called) -> pa.Table:
    """Run a procedure, and return its result.

    Raises:
        RequestError: There is no such procedure, or an argument must not be null.
        SiltstoneError: As the procedure.
    """
    found = PROCEDURES.get(name)
    if found is None:
        raise RequestError(f"there is {no_such('procedure', name, sorted(PROCEDURES))}")
    for each in found.parameters:
        if each.default != NULL and called.arguments.get(each.name) is None:
            raise RequestError(f"{each.name} of {name} must not be NULL: {each.about}")
    return found.run(called)
