"""Rollback: the rows of a table at an earlier seq become its rows, in one commit.

    read at the seq ─▶ stage, as any bulk commit ─▶ one commit: truncate and attach

Nothing of the past goes: what was there before the rollback can be read, and rolled back to. The
rows stream, so a table may have any size; all of it is written once more. Readers of its changes
see it truncated and filled, as after INSERT OVERWRITE.
"""

from __future__ import annotations

from dataclasses import dataclass

from siltstone.api.tasks import Staged, StageTask
from siltstone.errors import ConflictError, RequestError
from siltstone.local.snapshot import LocalSnapshot
from siltstone.spark.context import stores
from siltstone.spark.context.application import APPLICATION, of_process, store_of, tell_own
from siltstone.spark.context.kept_stores import kept
from siltstone.spark.writes import automatic_merge


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A table has the rows of `seq`, so many, since the commit `commit_seq`."""

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
        stage = reader.stage(table)
        staged: list[Staged] = []
        try:
            staged.append(stage.run(past[table].scan()))
            commit_seq, rows = _committed(uri, stage, staged, now.seq)
        finally:
            stage.discard(staged)  # of what is committed only what nobody reads any more
        teller = of_process({APPLICATION: application})
        if teller is not None:
            tell_own(teller, store_of(path, reader.store_id), commit_seq)
        return RolledBack(past.seq, commit_seq, rows)


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


def _committed(uri: str, stage: StageTask, staged: list[Staged], read_seq: int) -> tuple[int, int]:
    with stores.owner(uri) as db:
        with db.transaction() as tx:
            name, changed = tx.changed_since(stage.table_id, read_seq)
            if changed:
                raise ConflictError(
                    name,
                    "*",
                    read_seq,
                    changed,
                    explained=f"{name!r} was at seq {read_seq} when its rollback began, and has"
                    f" changed at seq {changed}: nothing was rolled back; call it again",
                )
            rows = tx.attach(stage, staged, overwrite=True)
        assert tx.receipt is not None
    automatic_merge.report(db, ())
    return tx.receipt.seq, rows
