"""Stores: a store for the processes of Spark, by its path or by the URL of its server.

Rows never go through a server: executors read and write the files, under a path that all see. The
server at a URL tells the path, and commits; only the driver's machine calls it.
"""

from __future__ import annotations

import os

from siltstone.engine.write.transaction import Transaction
from siltstone.engine.write.transaction_table import TransactionTable
from siltstone.errors import RequestError
from siltstone.handles import Table
from siltstone.joined.places import is_url
from siltstone.joined.store import JoinedStore
from siltstone.joined.tables import JoinedTransactionTable
from siltstone.joined.transaction import JoinedTransaction
from siltstone.paths import root_of
from siltstone.store import Store, connect

AnyStore = Store | JoinedStore
AnyTransaction = Transaction | JoinedTransaction
AnyTable = Table | TransactionTable | JoinedTransactionTable
Uri = str | os.PathLike[str]


def path_of(place: Uri | AnyStore) -> str:
    """Return the path of a store, given by path, as an open store, or by the URL of its server.

    Raises:
        RequestError: The path is invalid, or this machine does not see the server's directory.
        UnavailableError: No server answers at the URL.
    """
    if isinstance(place, Store):
        return str(place.path)
    if isinstance(place, JoinedStore):
        if not place.link.is_near(place.path):
            raise RequestError(
                f"the store of {place.link.root} is at {place.path}, which this machine does not"
                " see; Spark reads and writes its files"
            )
        return str(place.path)
    if not is_url(place):
        return str(root_of(place))
    with owner(place) as db:
        return path_of(db)


def reader(uri: Uri | AnyStore) -> Store:
    """Return the store read-only, with or without an owner.

    Raises:
        RequestError, UnavailableError: As `path_of`, or there is no store.
    """
    return connect(path_of(uri), read_only=True)


def owner(uri: Uri) -> AnyStore:
    """Return the store to commit through: the server at a URL, the owner, or this process as owner.

    Raises:
        OwnedError: The owner does not serve: call `serve_local()` there.
    """
    return connect(uri) if is_url(uri) else connect(uri, join=True)


def table_in(tx: AnyTransaction, table_id: int) -> TransactionTable | JoinedTransactionTable:
    """Return a table of a transaction, under its current name."""
    if isinstance(tx, Transaction):
        return TransactionTable(tx, table_id)
    return JoinedTransactionTable(tx, table_id)
