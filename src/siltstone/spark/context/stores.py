"""Stores: a store for the processes of Spark, by its path, its URL in a bucket, or its server.

Rows never go through a server: executors read and write the files, under a path that all see. The
server at a URL tells the path, and commits; only the driver's machine calls it. A store in a bucket
is read there by each process, with the credentials of its environment, and never written (ADR 126).
"""

from __future__ import annotations

import os

from siltstone.api.store import Store
from siltstone.errors import RequestError
from siltstone.joined.store import JoinedStore
from siltstone.joined.targets import is_url
from siltstone.local.store import LocalStore, require_store
from siltstone.paths import root_of
from siltstone.store import connect, own_or_join

Uri = str | os.PathLike[str]


def path_of(place: Uri | Store) -> str:
    """Return the path of a store, given by path, as an open store, or by the URL of its server.

    Of a store in a bucket it is the URL.

    Raises:
        RequestError: The path is invalid, or this machine does not see the server's directory.
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
        return str(root_of(place, only_reads=True))
    with owner(place) as db:
        return path_of(db)


def reader(uri: Uri | Store) -> LocalStore:
    """Return the store read-only, with or without an owner.

    Raises:
        RequestError, UnavailableError: As `path_of`, or there is no store.
    """
    found = connect(path_of(uri), read_only=True)
    assert isinstance(found, LocalStore)
    return found


def planner(uri: Uri | Store) -> LocalStore:
    """Return the store read-only, to plan a write.

    Raises:
        RequestError, UnavailableError: As `reader`, or it is in a bucket, which is only read.
    """
    path = path_of(uri)
    root_of(path)
    return reader(path)


def owner(uri: Uri, *, force: bool = False) -> Store:
    """Return the store to commit through: the server at a URL, the owner, or this process as owner.

    A commit ends without an upkeep: it reports what is due (`automatic_merge.report`).

    Args:
        uri: The path, or the URL of the server.
        force: Own it also on a network file system, if no owner answers.

    Raises:
        RequestError: There is no store, also if it was taken away since the rows were staged: a
            commit makes none. Or it is in a bucket, which is only read.
        OwnedError: The owner does not serve: call `serve_local()` there, or see what it lacks.
    """
    if is_url(uri):
        return connect(uri)
    require_store(root_of(uri))
    if force:
        return own_or_join(uri, force=True, close_upkeep_s=0)
    return own_or_join(uri, close_upkeep_s=0)
