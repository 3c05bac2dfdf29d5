"""Scope: where the operations of the Lance catalog go, as the catalog sees it.

`store_scopes` has those of a store in this process: its newest seq, a transaction, a snapshot. A
server has one of its own, which goes where the headers of a request say.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from siltstone.engine.read.reader import Reader
from siltstone.errors import TableNotFoundError
from siltstone.lance_namespace.requests import Answer
from siltstone.lance_namespace.table_versions import TableVersions
from siltstone.lance_namespace.turns import Turns
from siltstone.lance_namespace.version_statements import VersionStatements


class LanceReads(Protocol):
    """What answers about tables: a snapshot, or a transaction with its own statements."""

    def tables(self) -> list[str]: ...

    def namespaces(self) -> Mapping[str, Mapping[str, str]]: ...

    def versions(self, name: str, /) -> TableVersions: ...


class LanceSnapshot(LanceReads, Protocol):
    """A snapshot: all tables at one seq."""

    seq: int

    def reader_of(self, table: str, /) -> Reader: ...


class Scope(Protocol):
    """Where operations go; `root` is the store's directory."""

    @property
    def root(self) -> Path: ...

    @property
    def is_writable(self) -> bool: ...

    def reading(self) -> AbstractContextManager[LanceReads]: ...

    def writing(self) -> AbstractContextManager[VersionStatements]:
        """Give a transaction whose changes are committed at the end, or later by its owner."""
        ...

    @property
    def turns(self) -> Turns:
        """Requests that commit to one table follow each other: a loser finds out at once."""
        ...


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
