"""Snapshot: all tables at one sequence number, as a frozen view and the leases that keep it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Self, TypeAlias

import pyarrow as pa

from siltstone.api.readable import Columns, Condition
from siltstone.api.snapshot import Snapshot
from siltstone.api.tables import SnapshotTable
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import namespaces as spaces
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.interrupts import DeferredSignals
from siltstone.engine.read.kept import readable
from siltstone.engine.read.past import LogEntry, commits_of, log_entry
from siltstone.engine.read.read_arguments import keyed
from siltstone.engine.read.read_union import Row
from siltstone.engine.read.reader import Reader
from siltstone.engine.read.view import State
from siltstone.errors import ClosedError, RequestError, TableNotFoundError
from siltstone.formats.manifest import TableDefinition
from siltstone.lance_versions.table_versions import TableVersions, of_keyed, of_plain
from siltstone.local.past.moments import seq_at
from siltstone.local.readable import LocalReadable
from siltstone.options import resolve
from siltstone.paths import root_of
from siltstone.query.scan.scan_plan import ROWS_MAX, files_of, plan
from siltstone.query.scan.scan_task import ScanTask
from siltstone.query.scan.stored_files import StoredFile, stored_files
from siltstone.storage.manifest.manifest_store import Lease

if TYPE_CHECKING:
    from siltstone.open.shared import Opened
    from siltstone.query.sql import sql as queries
    from siltstone.query.sql.frames import Variables
    from siltstone.query.sql.taken.moments import PastName


class LocalSnapshotTable(LocalReadable, SnapshotTable):
    """One table at the seq of its snapshot."""

    __slots__ = ("_definition", "_snapshot")

    def __init__(self, snapshot: LocalSnapshot, definition: TableDefinition) -> None:
        self._snapshot, self._definition = snapshot, definition

    def __repr__(self) -> str:
        return f"<table {self.name!r} at seq {self._snapshot.seq}>"

    def __reduce__(self) -> tuple[Callable[..., SnapshotTable], tuple[object, ...]]:
        """Pickle as path, store, name and seq: another process reads the files, at the same seq."""
        return table_at, (*self._snapshot.place(), self.name, self._snapshot.seq)

    @property
    def id(self) -> int:
        return self._definition.id

    @property
    def name(self) -> str:
        return catalogs.name_of(self._definition, self._snapshot.seq)

    @property
    def definition(self) -> TableDefinition:
        """The table with its past."""
        return self._definition

    def get(self, key: object) -> Row | None:
        reader = keyed(self._reader())
        return reader.get(reader.table_schema.codec.from_user(key))

    def files_of(self, tasks: Iterable[ScanTask]) -> int:
        """Return how many files the scan tasks of the table at this seq read."""
        return files_of(self._reader(), tasks)

    def _reader(self) -> Reader:
        return self._snapshot.reader(self._definition)


class _StatementTable(LocalSnapshotTable):
    """A table of one SQL statement: without ORDER BY its rows have no order."""

    __slots__ = ()
    _in_any_order = True
    _is_of_statement = True


class LocalSnapshot(Snapshot):
    """See the module."""

    _also_public = frozenset({"versions", "log", "tags"})

    def __init__(self, core: Core, state: State, seq: int) -> None:
        self._core = core
        self._state: State | None = state
        self._leases = core.readers.hold(state.view, seq) if seq < state.visible else {}
        self.seq = seq

    def __repr__(self) -> str:
        if self._state is None:
            return f"<Snapshot at seq {self.seq}, closed>"
        return f"<Snapshot at seq {self.seq}: {', '.join(self.tables()) or 'no tables'}>"

    def close(self) -> None:
        self._state, self._leases = None, {}

    def _require_open(self) -> None:
        self._open()

    def _open(self) -> State:
        self._core.check()
        if self._state is None:
            raise ClosedError(f"the snapshot at seq {self.seq} is closed")
        return self._state

    @property
    def lance(self) -> Self:
        """The snapshot as other Lance clients see it, through the namespace: see `versions`."""
        return self

    def reader(self, definition: TableDefinition) -> Reader:
        """Return the reader of a table at this seq."""
        committer = self._core.committer
        if committer is not None and committer.is_led:
            self._core.give_way()
        return self._core.readers.open(self._open().view, definition, self.seq)

    def reader_of(self, table: str) -> Reader:
        """Return the reader of the table that was called so at this seq."""
        return self.reader(catalogs.find(self._open().view.catalog, table, self.seq))

    def __reduce__(self) -> tuple[Callable[..., Snapshot], tuple[object, ...]]:
        """Pickle as path, store and seq: another process reads the files, at the same seq."""
        return snapshot_at, (*self.place(), self.seq)

    def place(self) -> Place:
        """Return where another process finds the rows; see `place_of`."""
        self._open()
        return place_of(self._core)

    def tables(self) -> list[str]:
        return catalogs.names(self._open().view.catalog, self.seq)

    def __getitem__(self, name: str) -> LocalSnapshotTable:
        found = catalogs.find(self._open().view.catalog, name, self.seq)
        spans = self._core.works.spans
        kind = LocalSnapshotTable if spans is None else spans.kind(LocalSnapshotTable)
        return kind(self, found)

    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """Return the properties of all namespaces at this seq, by name."""
        return spaces.properties_of(self._open().view.catalog, self.seq)

    def tags(self) -> dict[str, int]:
        """Return the tags that the store had when the snapshot was taken, and their seqs."""
        return catalogs.store_tags(self._open().view.catalog)

    def log(self, limit: int, table: str | None = None) -> list[LogEntry]:
        """Return the commits up to this seq, newest first, at most `limit`.

        Args:
            limit: How many commits of the store are looked at.
            table: Only those that wrote or changed the table of this name, whatever it was called
                then.

        Raises:
            TableNotFoundError: No table had it.
        """
        state = self._open()
        newest = self._core.commits.newest(state, limit + state.visible - self.seq)
        found = [commit for commit in newest if commit.seq <= self.seq]
        if table is not None:
            definition = catalogs.find(state.view.catalog, table, self.seq)
            found = commits_of(definition, found)
        return [log_entry(state, commit) for commit in found]

    def stored_files(self, definition: TableDefinition) -> list[StoredFile]:
        """Return the data files that a read of a table at this seq reads."""
        return stored_files(self.reader(definition), self._core.tables.reader)

    def versions(self, table: str) -> TableVersions:
        """Return a table as other Lance clients see it at this seq: a keyed one as last merged.

        Raises:
            TableNotFoundError, SnapshotExpiredError: There was none; its base is not kept any more.
        """
        state = self._open()
        definition = catalogs.find(state.view.catalog, table, self.seq)
        if not catalogs.schema_of(definition, self.seq).key:
            plain = of_plain(definition, self.seq)
            self._core.unite(plain.folder)
            return plain
        found, lease = of_keyed(definition, self.seq, state.view, self._core.readers)
        self._core.unite(found.folder)
        if isinstance(lease, Lease):
            self._leases.setdefault(lease.number, lease)  # each is an open file: one for a record
        return found

    def scan_tasks(
        self,
        table: str,
        columns: Columns = None,
        filter: Condition = None,  # noqa: A002 - the contract's name
        *,
        rows_max: int = ROWS_MAX,
    ) -> list[ScanTask]:
        view = self._open().view
        definition = catalogs.find(view.catalog, table, self.seq)
        return plan(
            self._core,
            self.reader(definition),
            view.record,
            table=table,
            seq=self.seq,
            columns=columns,
            filter=filter,
            rows_max=rows_max,
        )

    def sql(self, statement: str, parameters: queries.Parameters = None) -> queries.Result:
        from siltstone.query.sql import sql as queries  # noqa: PLC0415 - brings pandas

        caller = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
        return queries.collected(self.read_sql(statement, parameters, variables=seen_by(caller)))

    def sql_reader(
        self, statement: str, parameters: queries.Parameters = None
    ) -> pa.RecordBatchReader:
        caller = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
        return self.read_sql(statement, parameters, variables=seen_by(caller))

    def read_sql(
        self,
        statement: str,
        parameters: queries.Parameters,
        at_end: Callable[[], object] = lambda: None,
        *,
        variables: Variables,
    ) -> pa.RecordBatchReader:
        """Do as `sql_reader`, with the data frames that `variables` returns.

        `at_end` is called when the rows were read, or dropped.
        """
        from siltstone.query.sql import sql as queries  # noqa: PLC0415 - as in `dataset`

        def table(name: str) -> LocalSnapshotTable | None:
            try:
                definition = catalogs.find(self._open().view.catalog, name, self.seq)
                return _StatementTable(self, definition)
            except TableNotFoundError:
                return None

        with self._core.works.sql.timed():
            return queries.read(
                statement,
                table,
                self.tables(),
                parameters,
                check=self._open,
                bounds=self._core.sql,
                spares=self._core.spares,
                at_end=at_end,
                variables=variables,
                past=lambda named: table_of_then(
                    self._core, State(self._open().view, self.seq), named
                ),
            )


def table_of_then(core: Core, state: State, named: PastName) -> SnapshotTable:
    """Return the table that a statement names at a moment, up to what `state` has.

    Raises:
        TableNotFoundError: No table had the name then.
        SnapshotExpiredError: The moment is not kept, or in the future of `state`.
        RequestError: It is no seq, or no time with a zone.
    """
    moment = named.moment
    seq = moment.value if moment.is_version else seq_at(core, state, moment.value)
    then = LocalSnapshot(core, state, readable(state, seq, core.readers))
    return _StatementTable(then, then[named.among(then.tables())].definition)


def seen_by(caller: FrameType) -> Variables:
    """Return the data frames that a frame sees."""
    from siltstone.query.sql.frames import variables_of  # noqa: PLC0415 - brings pandas

    return variables_of(caller)


def sql_with(
    snapshot: Snapshot, statement: str, variables: Variables, rows_max: int | None = None
) -> queries.Result:
    """Run a query that reads what `variables` returns for a name that no table has.

    For a program that decides itself what a statement may read, like the command line, whose user
    names files. Where another process runs the query, it sees none of them. Errors are those of
    `Snapshot.sql`, and what `variables` raises.

    Args:
        rows_max: The first rows are enough, at most so many.
    """
    from siltstone.query.sql.sql import collected  # noqa: PLC0415 - brings pandas

    if isinstance(snapshot, LocalSnapshot):
        found = snapshot.read_sql(statement, None, variables=variables)
    else:
        found = snapshot.sql_reader(statement)
    return collected(found, rows_max)


Place: TypeAlias = tuple[str, str, str]
"""Where another process finds what was pickled: the path of the store, which it sees under the same
name; the store that was there, empty if that is not known; `verify`, as for `connect`. All other
options are those of the other process."""


def place_of(core: Core) -> Place:
    """Return where another process finds what is here now.

    What is not yet durable is made so: only such rows leave the process.

    Raises:
        ClosedError: The store is closed.
        PoisonedError: An earlier commit is in doubt, so they cannot be made durable.
    """
    core.check()
    if core.committer is not None:
        core.committer.sync()
    return str(core.root), core.state().view.record.store_id, core.verify


def table_at(root: str, store_id: str, verify: str, table: str, seq: int) -> SnapshotTable:
    """Return a table of a snapshot as another process pickled it: at exactly that seq.

    Raises:
        SnapshotExpiredError: The store does not keep that seq any more.
        RequestError: There is another store now, or none.
    """
    with reopened((root, store_id, verify)) as store:
        return _at(store, seq)[table]


def snapshot_at(root: str, store_id: str, verify: str, seq: int) -> Snapshot:
    """Return a snapshot as another process pickled it; errors as of `table_at`."""
    with reopened((root, store_id, verify)) as store:
        return _at(store, seq)


def _at(store: Opened, seq: int) -> LocalSnapshot:
    core = store.parts.core
    state = core.state()
    return LocalSnapshot(core, state, readable(state, seq, core.readers))


@contextmanager
def reopened(place: Place) -> Generator[Opened]:
    """Yield a store that only reads; its core, which the block takes, keeps it open."""
    from siltstone.open.shared import read  # noqa: PLC0415 - it brings an owner's parts

    path, store_id, verify = place
    root = root_of(path, only_reads=True)
    store = read(root, resolve(root, {"verify": verify}), lambda opened, _: opened)
    try:
        found = store.parts.core.state().view.record.store_id
        if store_id not in {"", found}:
            raise RequestError(
                f"{path} has store {found}; what comes back was pickled of {store_id}"
            )
        yield store
    except BaseException:
        with DeferredSignals():
            store.leave(0)
        raise
