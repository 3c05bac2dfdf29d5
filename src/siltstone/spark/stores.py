"""Stores: how the processes of Spark reach a store, by its path or by the URL of its server.

Rows never go through a server: executors read and write the files, under a path that all see. A URL
says which path that is, and who commits; only the driver's machine asks it.
"""

from __future__ import annotations

import os

from siltstone.api.store import Store
from siltstone.errors import RequestError
from siltstone.joined.store import JoinedStore
from siltstone.joined.targets import is_url
from siltstone.local.store import LocalStore
from siltstone.open.paths import root_of
from siltstone.store import connect

Uri = str | os.PathLike[str]


def path_of(place: Uri | Store) -> str:
    """Return the path of a store, of this machine, as it is open here, or as its server says.

    Raises:
        RequestError: The store's directory is not on this machine, under its own name; no path.
        UnavailableError: No server answers at the URL.
    """
    if isinstance(place, JoinedStore) and not place.pool.is_near(place.path):
        raise RequestError(
            f"the store of {place.pool.root} is at {place.path}, which this machine does not"
            " see; Spark reads and writes its files"
        )
    if not isinstance(place, str | os.PathLike):
        return str(place.path)
    if not is_url(place):
        return str(root_of(place))
    with owner(place) as db:
        return path_of(db)


def reader(uri: Uri | Store) -> LocalStore:
    """Return the store read-only, beside any owner.

    Raises:
        RequestError, UnavailableError: As `path_of`; or no store is there.
    """
    found = connect(path_of(uri), read_only=True)
    assert isinstance(found, LocalStore)
    return found


def owner(uri: Uri) -> Store:
    """Return who commits: the server at a URL; of a path its owner, or this process if it has none.

    Raises:
        OwnedError: The owner does not serve others: `serve_local()` there lets them in.
    """
    return connect(uri) if is_url(uri) else connect(uri, join=True)
