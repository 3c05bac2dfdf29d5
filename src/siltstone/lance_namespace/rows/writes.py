"""Writes: the operations that write rows of one table: insert, merge, update, delete, restore."""

from __future__ import annotations

from siltstone.engine.write.transaction import EngineTransaction
from siltstone.lance_namespace.rows import statements
from siltstone.lance_namespace.rows.arrow_input import arrow_rows
from siltstone.lance_namespace.rows.version_numbers import past_of, version_now
from siltstone.lance_namespace.scope import Scope
from siltstone.lance_namespace.specification import bodies, ids
from siltstone.lance_versions.errors import invalid
from siltstone.local.merge_insert import Merge, MergeInserted, merge

Written = tuple[bodies.VersionAnswer, int | None]


def insert_into_table(
    scope: Scope, asked: bodies.InsertRequest, rows: bytes
) -> tuple[bodies.InsertAnswer, int | None]:
    """Add the rows of an Arrow stream."""
    name = ids.table_of(asked)
    given = arrow_rows(rows, scope.limits)
    mode = (asked.mode or "append").lower()
    if mode not in {"append", "overwrite"}:
        raise invalid(f"mode is append or overwrite, not {mode[:80]!r}")

    def work(tx: EngineTransaction) -> None:
        statements.insert(tx, name, given, overwrites=mode == "overwrite")

    _, commit = scope.write(work, None)
    version = version_now(scope.db.core, name, commit.seq)
    return bodies.InsertAnswer(version, given.num_rows), commit.seq


def merge_insert_into_table(
    scope: Scope, asked: bodies.MergeInsertRequest, rows: bytes
) -> tuple[bodies.MergeInsertAnswer, int | None]:
    """Merge the rows of an Arrow stream: by the primary key, or by columns of a plain table."""
    name = ids.table_of(asked)
    how = Merge(
        tuple(asked.on),
        bool(asked.when_matched_update_all),
        bool(asked.when_not_matched_insert_all),
        bool(asked.when_not_matched_by_source_delete),
        asked.when_not_matched_by_source_delete_filt or None,
        scope.limits.collected_rows_max,
    )
    given = arrow_rows(rows, scope.limits)

    def work(tx: EngineTransaction) -> MergeInserted:
        for column in how.on:
            statements.require_column(tx, name, column)
        return merge(tx, name, given, how)

    done, commit = scope.write(work, MergeInserted(0, 0, 0))
    counts = done.updated, done.inserted, done.deleted
    version = version_now(scope.db.core, name, commit.seq)
    return bodies.MergeInsertAnswer(version, *counts), commit.seq


def update_table(
    scope: Scope, asked: bodies.UpdateRequest
) -> tuple[bodies.UpdateAnswer, int | None]:
    """Set columns to SQL expressions in the rows that match."""
    name = ids.table_of(asked)
    predicate = asked.predicate or asked.only_if or None
    if asked.only_if and asked.only_if != predicate:
        raise invalid("predicate and only_if are names of one filter: give one of them")
    if len({column for column, _ in asked.updates}) != len(asked.updates):
        raise invalid("a column is set twice")

    def work(tx: EngineTransaction) -> int:
        return statements.assign(tx, name, asked.updates, predicate, scope.limits)

    count, commit = scope.write(work, 0)
    return bodies.UpdateAnswer(version_now(scope.db.core, name, commit.seq), count), commit.seq


def delete_from_table(
    scope: Scope, asked: bodies.DeleteRequest
) -> tuple[bodies.DeleteAnswer, int | None]:
    """Delete the rows that match."""
    name = ids.table_of(asked)

    def work(tx: EngineTransaction) -> int:
        return statements.table_in(tx, name).delete_where(asked.predicate)

    count, commit = scope.write(work, 0)
    return bodies.DeleteAnswer(version_now(scope.db.core, name, commit.seq), count), commit.seq


def restore_table(scope: Scope, asked: bodies.RestoreRequest) -> Written:
    """Write the rows of an older version anew, as the newest one."""
    name = ids.table_of(asked)

    def work(tx: EngineTransaction) -> None:
        past = past_of(scope.db.core, name, asked.version)
        with scope.db.snapshot(seq=past.seq) as snapshot:
            statements.restore(tx, name, snapshot[past.name], scope.limits)

    _, commit = scope.write(work, None)
    return bodies.VersionAnswer(version_now(scope.db.core, name, commit.seq)), commit.seq
