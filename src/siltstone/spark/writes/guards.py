"""Guards: conditions on a table at the commit, so that a frame replaces no unseen change.

    overwrite    no other changed the table since this application read it, or since `expectSeq`
    any          the table of the name is the one that the statement was planned for
    upsert       the frame has every column of the table; or `missing` is "keep" or "null"

Each is checked in the transaction that commits, before rows are attached. Commits of others after
the snapshot of that transaction conflicts with an overwrite in admission. A column that is added
then has no values yet that an upsert could remove, except in rows whose update conflicts with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from siltstone.api.results import UNKNOWN
from siltstone.api.tasks import StageTask
from siltstone.api.transaction import Transaction
from siltstone.errors import ConflictError, RequestError, SchemaMismatchError, UnavailableError
from siltstone.spark.context.application import FORGOTTEN, Application, store_of


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Allows an overwrite only if its table did not change since it was read; pickles.

    `since` is the oldest seq of a read when the overwrite was planned: by then Spark has planned
    the reads of the overwrite, and another thread may overwrite the table before it commits.
    """

    store: str
    table: int
    name: str
    application: Application | None
    expect_seq: int | None
    since: int | None = None
    is_near: bool = True

    @classmethod
    def plan(
        cls, stage: StageTask, table: int, application: Application | None, expect_seq: int | None
    ) -> Self:
        """Return the guard of an overwrite whose reads are planned.

        Raises:
            UnavailableError: Spark does not tell the application of this process, and there is no
                `expectSeq`.
        """
        store, name = store_of(stage.root, stage.store_id), stage.table
        if expect_seq is not None:
            return cls(store, table, name, None, expect_seq)
        if application is None:
            raise UnavailableError(
                f"this Spark does not tell its processes their application, so the reads of"
                f' {name!r} are not known; overwrite with .option("expectSeq", seq)'
            )
        since = application.seen(store, table, name).since
        return cls(store, table, name, application, None, since)

    def far(self) -> Self:
        """Return the guard for tasks on other machines: they cannot report old plans."""
        return replace(self, is_near=False)

    def check(self, tx: Transaction) -> None:
        """Check that the table did not change since it was read.

        Raises:
            ConflictError: The table changed since.
            RequestError: The seq is in the future, or the table is gone.
        """
        since, own = self.expect_seq, ()
        if since is not None and since > tx.read_seq:
            raise RequestError(
                f"expectSeq {since} is in the future: the store is at seq {tx.read_seq}"
            )
        if self.application is not None:
            seen = self.application.seen(self.store, self.table, self.name, ever=not self.is_near)
            own = seen.own
            since = min((s for s in (self.since, seen.since) if s is not None), default=None)
        if since is None:
            return
        name, changed = tx.changed_since(self.table, since, own)
        if changed:
            raise _outdated(name, since, changed, tx.read_seq)


def _outdated(name: str, since: int, changed: int, now: int) -> ConflictError:
    # Before the first commit there is no table: reads were forgotten.
    read = f"was read at seq {since}" if since else f"may have been read, {FORGOTTEN},"
    if changed == UNKNOWN:
        what = f"the store no longer knows whether it changed afterwards (it is at seq {now})"
    else:
        what = f"has changed at seq {changed}"
    return ConflictError(
        name,
        "*",
        since,
        now if changed == UNKNOWN else changed,
        explained=f"{name!r} {read} and {what}: an overwrite would lose that"
        f' change. Read it again with .option("seq", {now}), and overwrite with'
        f' .option("expectSeq", {now})',
    )


_WHY = "an upsert replaces whole rows"
_WHY_OUTSIDE = (
    "they replace rows with their keys whole, also those that replaceWhere does not match"
)


@dataclass(frozen=True, slots=True)
class WholeRows:
    """Allows an upsert only if its rows have every column of the table; pickles.

    `is_range`: an overwrite replaces the rows that a filter matches; the others keep their values.
    """

    table: int
    columns: tuple[str, ...]
    is_range: bool = False

    def check(self, tx: Transaction) -> None:
        """Check that the upsert loses no values.

        Raises:
            SchemaMismatchError: The table got a column after the plan.
        """
        found = tx.table(self.table)
        require_whole(found.schema.names, found.name, self.columns, is_range=self.is_range)


def require_whole(
    wanted: Sequence[str], name: str, columns: Sequence[str], *, is_range: bool
) -> None:
    """Check that the rows of an upsert have every column of a table, whether it has rows or not.

    Raises:
        SchemaMismatchError: They lack a column.
    """
    lacking = [column for column in wanted if column not in columns]
    if not lacking:
        return
    named = ", ".join(map(repr, lacking))
    one = f"column {named}" if len(lacking) == 1 else f"columns {named}"
    said = ' .option("missing", "null") to make them null'
    if not is_range:
        said = (
            f' .option("missing", "keep") to keep the values of rows that exist, or{said}; op'
            ' "insert" writes new rows without'
        )
    raise SchemaMismatchError(
        f"the rows for {name!r} have no {one}: {_WHY_OUTSIDE if is_range else _WHY}, so that values"
        f" of {'it' if len(lacking) == 1 else 'them'} would be lost. Select all columns, or"
        f" say{said}"
    )


def require_same(
    name: str,
    planned: int | None,
    found: int,
    since: str = "the statement was planned: run it again",
) -> None:
    """Check that a statement, or a query, meets the table that it was planned for.

    Raises:
        RequestError: It is another one of that name.
    """
    if planned != found:
        raise RequestError(f"{name!r} was dropped and made again since {since}")
