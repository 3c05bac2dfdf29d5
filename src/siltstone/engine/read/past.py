"""Past: finds the record that serves an old seq, the last commit before a time, and changes since.

A reader takes the lease before it uses the record; a record that vacuum deleted does not count.
"""

from __future__ import annotations

import datetime as dt
import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.commit_log import Commit, CommitLog, transaction_id
from siltstone.engine.catalog.definition_changes import changes_at
from siltstone.engine.read.moment import EPOCH, MICROSECOND
from siltstone.engine.read.past_record import PastRecord, PastTable
from siltstone.engine.read.view import State, View
from siltstone.formats.log.group import Token
from siltstone.formats.manifest import KeyedStorage, Record, TableDefinition
from siltstone.storage.manifest.manifest_store import ATTEMPTS_MAX, Lease, ManifestStore
from siltstone.storage.tables.tables import TableReader

_LIKE_NUMBERS = 1024

Touched = Iterable[tuple[int, tuple[int, ...]]]
Spans = Sequence[tuple[int, int]]

UNKNOWN = -1


class PastRecords:
    """Finds records of the past; any thread. Records are immutable and cached after reading.

    A lease is an open file: all readers of a record share one, which ends with the last reader.
    """

    def __init__(self, manifests: ManifestStore) -> None:
        self._manifests = manifests
        self._read = lru_cache(maxsize=256)(lambda number: PastRecord.of(manifests.read(number)))
        self._leases: weakref.WeakValueDictionary[int, Lease] = weakref.WeakValueDictionary()

    def serving(self, table: PastTable, seq: int) -> tuple[KeyedStorage, Lease] | None:
        """Return the table as of the best record that serves `seq`, and a lease on the record."""
        numbers = self._manifests.numbers(below_floor=True)
        for number, storage in table.serving(numbers, self._standing, seq):
            lease = self._leased(number)
            if lease is not None:
                return storage, lease
        return None

    def begin(self, tables: Iterable[PastTable]) -> int:
        """Return the lowest seq from which on all of some tables are served.

        0: the chain is the store's own, which has what the newest record says that it keeps.
        """
        if not self._manifests.is_copy:
            return 0
        begins = [(table, table.merged_seq) for table in tables]
        for number in reversed(self._manifests.numbers(below_floor=True)):
            past = self._standing(number)
            if past is not None:
                begins = [(table, table.begin(past, begin)) for table, begin in begins]
        return max((begin for table, begin in begins if begin > table.incarnation.seq), default=0)

    def upto(self, seq: int) -> Lease | None:
        """Return a lease on the newest record that is not above `seq`; None: vacuum took all such.

        While it is held, vacuum keeps all from `seq` on: the past that a newer record has of `seq`
        may be trimmed from the records after it.
        """
        numbers = self._manifests.numbers()
        upto = numbers[: bisect_right(numbers, seq, key=self._flushed)]
        old = (number for number in reversed(upto) if self._flushed(number) <= seq)  # as above
        # Below FLOOR no lease begins: vacuum may have looked already.
        leases = (self._leased(number, below_floor=False) for number in old)
        return next((lease for lease in leases if lease is not None), None)

    def _flushed(self, number: int) -> int:
        past = self._standing(number)
        return 0 if past is None else past.record.flushed_seq  # vacuumed meanwhile: it was old

    def _standing(self, number: int) -> PastRecord | None:
        """Return a record; None: vacuum took it meanwhile."""
        try:
            return self._read(number)
        except FileNotFoundError:
            return None

    def _leased(self, number: int, *, below_floor: bool = True) -> Lease | None:
        """Return the lease that others have on a record, or a new one; None: vacuum took it."""
        lease = self._leases.get(number)
        if lease is None or not lease.is_held:
            lease = self._manifests.lease(number, below_floor=below_floor)
            if lease is not None:
                self._leases[number] = lease
        return lease

    def missing(self) -> Path | None:
        """Return the first record that FLOOR keeps and that is missing; None if none is."""
        for _ in range(ATTEMPTS_MAX):
            floor, numbers = self._manifests.kept(), self._manifests.numbers()
            if floor == self._manifests.kept():  # else a vacuum took some between the two
                standing = set(numbers)
                due = floor.due(max(numbers, default=0))
                lost = next((number for number in due if number not in standing), None)
                return None if lost is None else self._manifests.path(lost)
        return None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One commit for users; `tables` by their names at that time, `token` is (app, batch).

    `changes` says what it did to definitions: "create orders", "add column orders.note", and which
    tags it set: "tag v1 at seq 7"; not those that were moved or removed since. Below the oldest
    kept seq, a table has its oldest kept name, and changes may be missing; a table of which nothing
    is kept has a number, as "#7".
    """

    seq: int
    time: dt.datetime
    transaction: str
    tables: tuple[str, ...]
    rows: int
    token: tuple[str, int] | None
    changes: tuple[str, ...] = ()


def log_entry(state: State, commit: Commit) -> LogEntry:
    """Return a commit with the names of its tables at that time."""
    names = sorted({_name_at(state, incarnation, commit.seq) for incarnation in commit.tables})
    token = None if commit.token is None else (commit.token.app, commit.token.batch)
    time = EPOCH + commit.time_us * MICROSECOND
    changes = changes_at(state.view.catalog, commit.seq, commit.time_us)
    return LogEntry(commit.seq, time, commit.transaction, tuple(names), commit.rows, token, changes)


def _name_at(state: State, incarnation: int, seq: int) -> str:
    table = catalogs.owner_if_known(state.view.catalog, incarnation)
    return f"#{incarnation}" if table is None else catalogs.name_of(table, seq)


def _logs(view: View) -> Sequence[CommitLog]:
    """Return the logs of the unflushed commits, newest first."""
    return (view.log, *(generation.log for generation in reversed(view.sealed)))


class CommitHistory:
    """The past commits: unflushed ones in memory, the others in `commits`."""

    def __init__(self, tables: TableReader) -> None:
        self._tables = tables

    def seq_at(self, state: State, time_us: int) -> int:
        """Return the seq of the last commit with a time <= `time_us`; 0 if all are later."""
        for log in _logs(state.view):
            found = log.seq_at(time_us)
            if found is not None:
                return min(found, state.visible)
        return self._flushed_seq_at(state.view.record, time_us)

    def last_time_us(self, state: State) -> int:
        """Return the time of the newest commit; commits have strictly increasing times."""
        for log in _logs(state.view):
            if log.count:
                return log.commit(log.count - 1).time_us
        return state.view.record.last_time_us

    def _flushed_seq_at(self, record: Record, time_us: int) -> int:
        if record.commits is None or time_us >= record.last_time_us:
            return record.flushed_seq
        limit = pa.scalar(time_us, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        newest = 0
        for batch in self._scan(record, ["seq", "time"], pc.field("time") <= limit):
            kept = batch.filter(pc.less_equal(batch.column("time"), limit))
            if kept.num_rows:
                newest = max(newest, pc.max(kept.column("seq")).as_py())
        return newest

    def find(self, state: State, epoch: int, number: int) -> int | None:
        """Return the seq of a transaction, None if it is not committed."""
        for log in _logs(state.view):
            found = log.find(epoch, number)
            if found is not None:
                return found if found <= state.visible else None
        wanted = transaction_id(epoch, number)
        flushed = self._flushed(state.view.record, pc.field("transaction") == wanted)
        return next((commit.seq for commit in flushed if commit.transaction == wanted), None)

    def is_forgotten(self, state: State, epoch: int, number: int) -> bool:
        """Return whether a transaction that `find` does not know may be older than the kept past.

        Transactions get their numbers when they begin, so transactions that committed together have
        similar numbers: the highest of the first kept commits is above all that are not kept.
        """
        record = state.view.record
        if record.commits is None or not record.oldest_seq:
            return False
        limit = record.oldest_seq + _LIKE_NUMBERS
        oldest = [c for c in self._flushed(record, pc.field("seq") < limit) if c.seq < limit]
        if any(commit.seq == 1 for commit in oldest):
            return False
        names = [commit.transaction.partition("-") for commit in oldest]
        first = min((int(name[0]) for name in names), default=record.epoch)
        numbers = [int(name[2]) for name in names if int(name[0]) == first]
        return (epoch, number) < (first, max(numbers, default=0))

    def find_token(self, state: State, token: Token) -> Commit | None:
        """Return the commit with `token`, None if no such commit of the app is known."""
        since = catalogs.app_of(state.view.catalog, token.app).since
        for log in _logs(state.view):
            found = log.token(token, since)
            if found is not None and found.seq <= state.visible:
                return found
        wanted = (pc.field("app") == token.app) & (pc.field("batch") == token.batch)
        flushed = self._flushed(state.view.record, wanted)
        own = (commit for commit in flushed if commit.token == token and commit.seq > since)
        return next(own, None)

    def newest(self, state: State, limit: int) -> list[Commit]:
        """Return the last commits, newest first, at most `limit`."""
        found: list[Commit] = []
        for log in _logs(state.view):
            for index in range(log.count - 1, -1, -1):
                if len(found) >= limit:
                    return found
                if log.first + index <= state.visible:
                    found.append(log.commit(index))
        record = state.view.record
        low = max(0, record.flushed_seq - (limit - len(found)))
        older = [c for c in self._flushed(record, pc.field("seq") > low) if c.seq > low]
        return found + sorted(older, key=lambda c: -c.seq)

    def touched(self, state: State, since: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the seq and the incarnations of each kept commit in (since, state.visible].

        Commits that vacuum has deleted are missing: a caller that needs all must count them.
        """
        for batch in self._scan(state.view.record, ["seq", "tables"], pc.field("seq") > since):
            for row in batch.to_pylist():
                if since < row["seq"] <= state.visible:
                    yield row["seq"], tuple(row["tables"])
        for log in reversed(_logs(state.view)):
            for index in range(max(0, since + 1 - log.first), log.count):
                if log.first + index > state.visible:
                    break
                yield log.first + index, log.commit(index).tables

    def _scan(
        self, record: Record, columns: Sequence[str], wanted: pc.Expression
    ) -> list[pa.RecordBatch]:
        if record.commits is None:
            return []
        opened = self._tables.open(record.commits)
        return list(opened.scan(list(columns), prefilter=wanted))

    def _flushed(self, record: Record, wanted: pc.Expression) -> list[Commit]:
        columns = ["seq", "time", "transaction", "app", "batch", "tables", "rows"]
        found = []
        for batch in self._scan(record, columns, wanted):
            times: list[int] = batch.column("time").view(pa.int64()).to_numpy().tolist()
            for row, time_us in zip(batch.to_pylist(), times, strict=True):
                token = None if row["app"] is None else Token(row["app"], row["batch"])
                tables = tuple(row["tables"])
                found.append(
                    Commit(row["seq"], time_us, row["transaction"], token, tables, row["rows"])
                )
        return found


def changed_since(
    state: State, table: TableDefinition, since: int, own: Spans, touched: Touched
) -> int:
    """Return the first seq in (since, state.visible] at which the table changed; 0: none.

    Commits that wrote to it count (but no optimize of a plain one), and changes of its definition:
    names, columns, each truncate and overwrite. A transaction checks changes up to its own
    snapshot; admission those between the snapshot and the commit.

    Args:
        state: The end of the range.
        table: The definition of the table there.
        since: A seq, not above `state.visible`.
        own: First and last seqs of commits that do not count.
        touched: The known commits after `since`, with the incarnations that they wrote to.

    Returns:
        `UNKNOWN` if vacuum has deleted some of the commits and the others do not decide.
    """
    incarnations = {step.id for step in table.incarnations}
    moved = set(catalogs.same_rows_seqs(table))
    found = set(_redefined(table))
    known = 0
    for seq, written in touched:
        known += 1
        if seq not in moved and not incarnations.isdisjoint(written):
            found.add(seq)
    foreign = [seq for seq in found if since < seq <= state.visible and not _within(seq, own)]
    if foreign:
        return min(foreign)
    return 0 if known == state.visible - since else UNKNOWN


def writes_since(
    state: State, table: TableDefinition, since: int, touched: Touched
) -> list[int] | None:
    """Return the seqs in (since, state.visible] that wrote, truncated or dropped a table.

    What only moved its rows does not count. `touched`: as for `changed_since`.

    Returns:
        None if vacuum has deleted some of the commits.
    """
    incarnations, moved = {step.id for step in table.incarnations}, catalogs.same_rows_seqs(table)
    steps = [table.created, *(step.seq for step in table.incarnations), table.dropped or 0]
    found, known = {seq for seq in steps if since < seq <= state.visible}, 0
    for seq, written in touched:
        known += 1
        if not incarnations.isdisjoint(written):
            found.add(seq)
    found.difference_update(moved)
    return sorted(found) if known == state.visible - since else None


def commits_of(table: TableDefinition, commits: Iterable[Commit]) -> list[Commit]:
    """Return those commits that wrote to a table, or changed its definition."""
    incarnations = {step.id for step in table.incarnations}
    redefined = set(_redefined(table))
    return [c for c in commits if c.seq in redefined or not incarnations.isdisjoint(c.tables)]


def _redefined(table: TableDefinition) -> Iterator[int]:
    yield table.created
    for steps in (table.names, table.schemas, table.incarnations):
        yield from (step.seq for step in steps)


def _within(seq: int, spans: Spans) -> bool:
    return any(first <= seq <= last for first, last in spans)
