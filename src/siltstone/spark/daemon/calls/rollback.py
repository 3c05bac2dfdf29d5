"""Rollback: the rows of a table at an earlier seq become its rows, in one commit.

It is `put_back` of all commits since: the rows that changed are written, and no others, so the
commit, and the changes that readers of the table see, are as large as what is undone. Nothing of
the past goes: what was there before can be read, and rolled back to.
"""

from __future__ import annotations

from dataclasses import dataclass

from siltstone.api.results import Receipt
from siltstone.api.transaction import Transaction
from siltstone.errors import ConflictError, LimitError, RequestError
from siltstone.local.snapshot import LocalSnapshot
from siltstone.spark.context import stores
from siltstone.spark.context.application import APPLICATION, of_process, store_of, tell_own
from siltstone.spark.context.kept_stores import kept
from siltstone.spark.writes import automatic_merge


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A table has the rows of `seq` since the commit `commit_seq`, which wrote so many `rows`."""

    seq: int
    commit_seq: int
    rows: int


def roll_back(
    uri: str, path: str, table: str, seq: int | None, tag: str | None, application: str
) -> RolledBack:
    """Give a table the rows that it had at a seq, or at a tag.

    Args:
        uri: The store to commit through, as `stores.owner` takes it.
        path: The path of its files.
        table: The name of the table, then and now.
        seq: A seq that the store keeps.
        tag: Or a tag.
        application: The folder of the driver.

    Raises:
        RequestError: Neither or both are given, or no such tag; the table was made, or its columns
            changed, since then.
        SnapshotExpiredError, TableNotFoundError: The store does not keep the seq; no such table.
        ConflictError: Another commit changed the table meanwhile; nothing was changed.
        OwnedError, InDoubtError: As for any commit.
    """
    if (seq is None) == (tag is None):
        raise RequestError("rollback_to takes a seq or a tag: where the table goes back to")
    with kept(path) as reader, reader.snapshot() as now, reader.snapshot(seq=seq, tag=tag) as past:
        _require_same(past, now, table)
        done = _committed(uri, table, now[table].id, past.seq, now.seq)
        teller = of_process({APPLICATION: application})
        if teller is not None and done.rows:
            tell_own(teller, store_of(path, reader.store_id), done.seq)
        return RolledBack(past.seq, done.seq, done.rows or 0)


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


def _committed(uri: str, table: str, table_id: int, to: int, read_seq: int) -> Receipt:
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
