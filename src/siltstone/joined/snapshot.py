"""Snapshot: all tables of a joined store at one seq, held open by the owner for this process.

Each method asks the owner for the same one; what is made of rows is made here.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siltstone.api.snapshot import Snapshot
from siltstone.api.tables import SnapshotTable
from siltstone.engine.read.moment import as_utc
from siltstone.errors import ClosedError, ReadOnlyError, RequestError
from siltstone.joined import protocol
from siltstone.joined.connection_pool import ConnectionPool
from siltstone.joined.remote import ask, asked_sql, is_write, remote
from siltstone.local.snapshot import snapshot_at, table_at
from siltstone.operations import Face, Operation, operation

if TYPE_CHECKING:
    from siltstone.query.sql import sql as queries


@remote(Face.SNAPSHOT)
class JoinedSnapshot(Snapshot):
    """All tables at one seq, for as long as it is held: a context manager, or until `close`."""

    near = None

    def __init__(self, pool: ConnectionPool, named: dict[str, object]) -> None:
        self._pool = pool
        named = {**named, "at": as_utc(named.get("at"))}
        home, found = pool.open(protocol.ADDRESSES["snapshot"], named)
        self._id: str = found["id"]
        self.seq: int = found["seq"]
        self._is_open = True
        # The end of its connection ends the snapshot at the owner, also if it is never closed.
        self._end = weakref.finalize(self, home.close)

    def __repr__(self) -> str:
        if not self._is_open:
            return f"<Snapshot at seq {self.seq}, closed>"
        return f"<Snapshot at seq {self.seq}: {', '.join(self.tables()) or 'no tables'}>"

    def __reduce__(self) -> tuple[Callable[..., Snapshot], tuple[object, ...]]:
        """Pickle as path and seq: another process reads the files, at the same seq."""
        return snapshot_at, (str(self.root), "", "first_use", self.seq)

    def close(self) -> None:
        self._is_open = False
        self._end()

    def _require_open(self) -> None:
        if not self._is_open:
            raise ClosedError(f"the snapshot at seq {self.seq} is closed")

    @property
    def root(self) -> Path:
        """The store's directory, for what is done with its files.

        Raises:
            RequestError: It is not on this machine, under its own name.
        """
        self._require_open()
        root = Path(self._pool.hello["path"])
        if not self._pool.is_near(root):
            raise RequestError(
                f"to be pickled the store's files must be on this machine, at {root}; this store is"
                f" open through {self._pool.root}"
            )
        return root

    def _ask(self, operation: Operation, arguments: list[object], named: dict[str, object]) -> Any:
        self._require_open()
        return self._pool.call(operation, f"snapshot/{self._id}", arguments, named)

    def ask_table(
        self, operation: Operation, path: str, arguments: list[object], named: dict[str, object]
    ) -> Any:
        """Ask for something of one table."""
        self._require_open()
        return self._pool.call(operation, path, arguments, named, snapshot=self._id)

    def sql(self, statement: str, parameters: queries.Parameters = None) -> queries.Result:
        caller = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
        if is_write(statement):
            raise ReadOnlyError("a snapshot is read, not written: sql() of the store writes")
        return asked_sql(self, Face.SNAPSHOT, "sql", caller, statement, parameters)

    def __getitem__(self, name: str) -> JoinedSnapshotTable:
        return JoinedSnapshotTable(self, ask(self, operation(Face.SNAPSHOT, "id_of"), name))

    def lance_catalog(
        self,
        operation_name: str,
        request: Mapping[str, object],
        data: bytes | None = None,
        *,
        keyed: str,
    ) -> dict[str, Any]:
        """Have the owner answer a request of the Lance Namespace spec at this seq."""
        row = operation(Face.SNAPSHOT, "lance_catalog")
        given = () if data is None else (data,)
        return ask(self, row, operation_name, dict(request), keyed, *given)


@remote(Face.SNAPSHOT_TABLE)
class JoinedSnapshotTable(SnapshotTable):
    """One table at the seq of its snapshot."""

    near = None
    __slots__ = ("_name", "_snapshot")

    def __init__(self, snapshot: JoinedSnapshot, name: str) -> None:
        self._snapshot, self._name = snapshot, name

    def __repr__(self) -> str:
        return f"<table {self._name!r} at seq {self._snapshot.seq}>"

    def __reduce__(self) -> tuple[Callable[..., SnapshotTable], tuple[object, ...]]:
        """Pickle as path, name and seq: another process reads the files, at the same seq."""
        seen = self._snapshot
        return table_at, (str(seen.root), "", "first_use", self._name, seen.seq)

    def _ask(self, operation: Operation, arguments: list[object], named: dict[str, object]) -> Any:
        return self._snapshot.ask_table(operation, f"table/{self._name}", arguments, named)

    @property
    def name(self) -> str:
        return self._name
