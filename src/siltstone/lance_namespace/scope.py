"""Scope: where the operations of the Lance catalog go, as the catalog sees it.

`store_scopes` has those of a store in this process: its newest seq, a transaction, a snapshot. A
server has one of its own, which goes where the headers of a request say.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.commit.core import Core
from siltstone.engine.commit.write_set import Receipt
from siltstone.engine.read.reader import Reader
from siltstone.engine.write.definition_statements import DefiningTransaction
from siltstone.errors import RequestError, TableNotFoundError
from siltstone.lance_namespace.errors import Refused
from siltstone.lance_namespace.limits import RowLimits
from siltstone.lance_namespace.requests import Answer
from siltstone.lance_namespace.table_versions import TableVersions
from siltstone.lance_namespace.turns import Turns
from siltstone.lance_namespace.version_statements import VersionStatements
from siltstone.maintenance.index.index_plan import IndexStatus
from siltstone.process import deadline
from siltstone.process.retry import Retry

ATTEMPTS = 100
Found = TypeVar("Found")
Tx = TypeVar("Tx", bound=DefiningTransaction)


class LanceReads(Protocol):
    """What answers about tables: a snapshot, or a transaction with its own statements."""

    def tables(self) -> list[str]: ...

    def namespaces(self) -> Mapping[str, Mapping[str, str]]: ...

    def versions(self, name: str, /) -> TableVersions: ...


class SearchedTable(Protocol):
    """A table whose rows are read, and searched; see `engine.read.readable`."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def primary_key(self) -> tuple[str, ...]: ...

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | pc.Expression | None = None,  # noqa: A002 - the contract's name
        limit: int | None = None,
    ) -> pa.RecordBatchReader: ...

    def count(self, filter: str | pc.Expression | None = None) -> int: ...  # noqa: A002

    def search_in_parts(
        self,
        query: object,
        k: int,
        rows_max: int,
        *,
        filter: str | pc.Expression | None = None,  # noqa: A002
        columns: object = None,
        numbered: bool = False,
        **options: Any,
    ) -> pa.RecordBatchReader:
        """Return the rows of a search, with `_distance` or `_score`; read `rows_max` at once."""
        ...

    def scan_with_ids(
        self,
        columns: Sequence[str],
        filter: str | None,  # noqa: A002
        limit: int | None,
    ) -> pa.RecordBatchReader: ...

    def rows_with_ids(self, ids: Sequence[int], columns: Sequence[str]) -> pa.Table: ...


class RowReads(Protocol):
    """What rows are read of: a snapshot, or a transaction with its own statements."""

    def tables(self) -> list[str]: ...

    def __getitem__(self, name: str, /) -> SearchedTable: ...

    @property
    def lance(self) -> LanceReads: ...


class LanceSnapshot(LanceReads, Protocol):
    """A snapshot: all tables at one seq."""

    seq: int

    def __getitem__(self, name: str, /) -> SearchedTable: ...

    @property
    def lance(self) -> Self: ...

    def reader_of(self, table: str, /) -> Reader: ...


class IndexedTable(Protocol):
    """A table as it is now, with its indexes."""

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def primary_key(self) -> Sequence[str]: ...

    def count(self) -> int: ...

    def indexes(self) -> list[IndexStatus]: ...

    def create_index(self, column: str, kind: Any, *, name: str | None, **options: Any) -> Any: ...

    def drop_index(self, name: str, /) -> None: ...


class RowStore(Protocol):
    """An open store of this process, for operations on rows."""

    @property
    def path(self) -> Path: ...

    @property
    def core(self) -> Core: ...

    @property
    def tag_turns(self) -> Turns:
        """Statements about the tags of one table follow each other, over all clients."""
        ...

    def __getitem__(self, name: str, /) -> IndexedTable: ...

    def snapshot(
        self, *arguments: Any, **options: Any
    ) -> AbstractContextManager[LanceSnapshot]: ...

    def transaction(
        self, *arguments: Any, **options: Any
    ) -> AbstractContextManager[DefiningTransaction]: ...


class Scope(Protocol):
    """Where operations go; `root` is the store's directory."""

    @property
    def root(self) -> Path: ...

    @property
    def is_writable(self) -> bool: ...

    @property
    def is_newest(self) -> bool:
        """Whether it is neither a transaction nor a snapshot."""
        ...

    @property
    def db(self) -> RowStore: ...

    @property
    def limits(self) -> RowLimits: ...

    def reading(self) -> AbstractContextManager[LanceReads]: ...

    def writing(self) -> AbstractContextManager[VersionStatements]:
        """Give a transaction whose changes are committed at the end, or later by its owner."""
        ...

    def opened(self, held: ExitStack, /) -> RowReads:
        """Return what rows are read of; it is released when `held` closes."""
        ...

    def settle(self) -> None:
        """Make durable what was read, if it leaves the process."""
        ...

    def write(
        self, work: Callable[[DefiningTransaction], Found], unknown: Found, /
    ) -> tuple[Found, int | None]:
        """Run a statement on rows; return what it found, and the seq of its commit, if it was one.

        Args:
            work: The statement.
            unknown: What it found if its token was applied before: see `done`.

        Raises:
            ConflictError: It lost `ATTEMPTS` races.
        """
        ...

    @property
    def turns(self) -> Turns:
        """Requests that commit to one table follow each other: a loser finds out at once."""
        ...


def location_of(scope: Scope, folder: str) -> str:
    """Return where a table lies, as every operation says it: an absolute path."""
    return str(scope.root / folder)


def known(scope: Scope, name: str) -> TableVersions:
    """Return a table as the scope shows it.

    Raises:
        TableNotFoundError: There is none of that name.
    """
    try:
        with scope.reading() as db:
            return db.versions(name)
    except TableNotFoundError as error:
        refusal = scope.turns.refusal_of(name)
        if refusal is None:
            raise
        why = f"the last commit to it was refused: {refusal}"
        raise TableNotFoundError(name, why=why) from error


def committed_by(statements: VersionStatements) -> Answer:
    """Return what an answer says of the commit that its operation was, if it was one."""
    receipt = statements.tx.receipt
    found = "" if receipt is None else receipt.transaction_id
    return {"transaction_id": found} if found else {}


# rows


@contextmanager
def shown(scope: Scope) -> Generator[RowReads]:
    """Give what rows are read of; what was read is durable when the block ends."""
    with ExitStack() as held:
        yield scope.opened(held)
        scope.settle()


def seq_shown(found: RowReads) -> int:
    """Return the seq that is read at."""
    if isinstance(found, DefiningTransaction):
        return found.read_seq
    return cast("LanceSnapshot", found).seq


def done(tx: Tx, work: Callable[[Tx], Found], unknown: Found) -> Found:
    """Run a statement, whole or not at all; under a token that was applied it fails at nothing.

    What it does is forgotten, and what it was about may be gone by now: a client that lost the
    answer hears the same again, also if other clients changed the tables since.
    """
    try:
        with tx.whole():
            return work(tx)
    except (RequestError, Refused):
        if not tx.is_applied:
            raise
        return unknown


def committed(
    begin: Callable[[], AbstractContextManager[Tx]],
    work: Callable[[Tx], Found],
    unknown: Found,
    on_loss: Callable[[Exception], object] = lambda _: None,
) -> tuple[Found, Receipt]:
    """Run a statement in a transaction of its own and commit it; again after a conflict.

    The deadline of the thread ends before the commit: from there on it is not given up. `on_loss`
    hears of each conflict before the next try.

    Raises:
        ConflictError: It lost `ATTEMPTS` races.
    """

    def once() -> tuple[Found, Receipt]:
        with begin() as tx:
            found = done(tx, work, unknown)
            deadline.check()
            with deadline.within(None):
                return found, tx.commit()

    return Retry(ATTEMPTS).run(once, on_loss=on_loss)
