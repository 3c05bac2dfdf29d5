"""Store scopes: operations go to the newest seq of a store, to a transaction, or to a snapshot.

Lock: one for each transaction, over a statement.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from siltstone.engine.write.definition_statements import DefiningTransaction
from siltstone.errors import ReadOnlyError
from siltstone.lance_namespace.limits import RowLimits
from siltstone.lance_namespace.scope import (
    LanceReads,
    LanceSnapshot,
    RowReads,
    RowStore,
    committed,
    done,
)
from siltstone.lance_versions.fresh import FreshVersions
from siltstone.lance_versions.table_versions import TableVersions
from siltstone.lance_versions.turns import Turns
from siltstone.lance_versions.version_statements import VersionStatements

Found = TypeVar("Found")


@runtime_checkable
class LanceStore(RowStore, Protocol):
    """An open store of this process."""

    @property
    def is_read_only(self) -> bool: ...

    def fresh_versions(self) -> FreshVersions: ...


@dataclass(frozen=True, slots=True)
class ShownTables:
    """Tables as other clients see them: keyed ones at their last merge, or fresh.

    A keyed table that was never merged has an empty version, so that it can be opened; with a
    read-only store it has none, because that writes nothing unasked. `clears`: clients may write,
    so versions of plain tables that were written by path are set aside.
    """

    _reads: LanceReads
    _fresh: FreshVersions | None
    _of: Callable[[str], TableVersions] | None = None
    clears: bool = False

    def tables(self) -> list[str]:
        return self._reads.tables()

    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        return self._reads.namespaces()

    def versions(self, name: str, /) -> TableVersions:
        seen = self._reads.versions(name)
        if self._fresh is None:
            return seen
        if not seen.is_keyed:
            if self.clears:
                self._fresh.clear_way(seen)
            return seen
        return self._fresh.merged(seen) if self._of is None else self._of(name)


class LiveScope:
    """Each request sees the newest seq, and each change is a commit of its own. Any thread.

    Changes are those of `commits`, the same store under another number, if it is given.
    """

    def __init__(
        self,
        db: LanceStore,
        turns: Turns,
        *,
        is_fresh: bool = False,
        commits: LanceStore | None = None,
    ) -> None:
        self._db, self.turns, self._is_fresh = db, turns, is_fresh
        self._commits = commits or db
        self.db, self.limits = db, RowLimits()
        self.root, self.is_writable, self.is_newest = db.path, not db.is_read_only, True

    @contextmanager
    def reading(self) -> Generator[LanceReads]:
        with self._db.snapshot() as snapshot:
            if self._db.is_read_only and not self._is_fresh:
                yield snapshot
                return
            fresh = self._db.fresh_versions()
            of = partial(fresh.live, snapshot) if self._is_fresh else None
            yield ShownTables(snapshot, fresh, of, clears=self.is_writable)

    @contextmanager
    def writing(self) -> Generator[VersionStatements]:
        with self._commits.transaction() as tx:
            yield VersionStatements(tx)

    def opened(self, held: ExitStack) -> RowReads:
        return held.enter_context(self._db.snapshot())

    def settle(self) -> None:
        """Do nothing: what is read here is read in this process, or by who settles for all."""

    def write(
        self, work: Callable[[DefiningTransaction], Found], unknown: Found
    ) -> tuple[Found, int | None]:
        found, receipt = committed(self._commits.transaction, work, unknown)
        return found, receipt.seq


class TransactionScope:
    """All requests are statements of one transaction; its owner commits. One lock: it."""

    def __init__(self, db: LanceStore, tx: DefiningTransaction) -> None:
        self.root, self._tx, self._fresh = db.path, VersionStatements(tx), db.fresh_versions()
        self._lock, self.turns = threading.RLock(), Turns()
        self.db, self.limits = db, RowLimits()
        self.is_writable, self.is_newest = True, False

    @contextmanager
    def reading(self) -> Generator[LanceReads]:
        with self._lock:
            yield ShownTables(self._tx, self._fresh, clears=True)

    @contextmanager
    def writing(self) -> Generator[VersionStatements]:
        with self._lock:
            yield self._tx

    def opened(self, held: ExitStack) -> RowReads:
        held.enter_context(self._lock)
        self._tx.tx.require_open()
        return cast("Any", self._tx.tx)

    def settle(self) -> None:
        """Do nothing, as in `LiveScope`."""

    def write(
        self, work: Callable[[DefiningTransaction], Found], unknown: Found
    ) -> tuple[Found, int | None]:
        with self._lock:
            return done(self._tx.tx, work, unknown), None


class SnapshotScope:
    """All requests read one snapshot; none changes anything."""

    def __init__(self, db: LanceStore, snapshot: LanceSnapshot, *, is_fresh: bool = False) -> None:
        fresh = None if db.is_read_only and not is_fresh else db.fresh_versions()
        self.root, self._snapshot, self._fresh = db.path, snapshot, fresh
        self._of = partial(fresh.exact, snapshot) if is_fresh and fresh is not None else None
        self.db, self.limits = db, RowLimits()
        self.turns, self.is_writable, self.is_newest = Turns(), False, False

    @contextmanager
    def reading(self) -> Generator[LanceReads]:
        yield ShownTables(self._snapshot, self._fresh, self._of)

    @contextmanager
    def writing(self) -> Generator[VersionStatements]:
        raise self._refusal
        yield  # what makes it a generator

    def opened(self, held: ExitStack) -> RowReads:  # noqa: ARG002 - it is its caller's
        return self._snapshot

    def settle(self) -> None:
        """Do nothing, as in `LiveScope`."""

    def write(
        self,
        work: Callable[[DefiningTransaction], Found],  # noqa: ARG002 - as of every scope
        unknown: Found,  # noqa: ARG002
    ) -> tuple[Found, int | None]:
        raise self._refusal

    @property
    def _refusal(self) -> ReadOnlyError:
        return ReadOnlyError(f"the snapshot at seq {self._snapshot.seq} is read, not written")
