"""Rollback: the rows of a table at an earlier seq become its rows, in one commit.

It is `put_back` of all commits since: the rows that changed are written, and no others, so the
commit, and the changes that readers of the table see, are as large as what is undone. Nothing of
the past goes: what was there before can be read, and rolled back to.
"""

from __future__ import annotations

from dataclasses import dataclass

from siltstone.api.results import Receipt
from siltstone.errors import ConflictError, RequestError
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
        ConflictError: Another commit changed the same rows meanwhile; nothing was changed.
        OwnedError, InDoubtError: As for any commit.
    """
    if (seq is None) == (tag is None):
        raise RequestError("rollback_to takes a seq or a tag: where the table goes back to")
    with (
        kept(path) as reader,
        reader.snapshot() as now,
        reader.snapshot(seq=seq, tag=tag) as past,
    ):
        _require_same(past, now, table)
        done = _committed(uri, table, past.seq, now.seq)
        teller = of_process({APPLICATION: application})
        if teller is not None and done.rows:
            tell_own(teller, store_of(path, reader.store_id), done.seq)
        return RolledBack(past.seq, done.seq, done.rows)


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


def _committed(uri: str, table: str, to: int, until: int) -> Receipt:
    with stores.owner(uri) as db:
        try:
            done = db.put_back(table, to=to, until=until)
        except ConflictError as error:
            raise ConflictError(
                table,
                error.key,
                until,
                error.written_seq,
                explained=f"{table!r} was at seq {until} when its rollback began, and rows of it"
                f" have changed since: nothing was rolled back; call it again",
            ) from error
        automatic_merge.report(db, ())
    return done
