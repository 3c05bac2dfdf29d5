"""Connect: the way to a store: own it, join its owner, or work through a server.

connect ─▶ own ─▶ claim an epoch ─▶ replay the log ─▶ open           (`local`: the owner)
├▶ follow the chain and the log                              (`local`: read_only=True)
└▶ ask the owner, through its socket or a server             (`joined`)
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from siltstone.api.store import Store
from siltstone.arguments import flag_of
from siltstone.engine.commit.interrupts import DeferredSignals
from siltstone.errors import OwnedError, RequestError, UnavailableError
from siltstone.joined.targets import is_url
from siltstone.local.store import LocalStore
from siltstone.local.store import reopen as _reopen
from siltstone.open.shared import Opened, asked_at, caller, share
from siltstone.options import ConnectOptions, Options, resolve
from siltstone.paths import MEMORY, root_of

# Handles that 0.1 pickled name `_reopen` here.
__all__ = ["Store", "_reopen", "asked_at", "caller", "connect", "own_or_join"]


def connect(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    join: bool = False,
    **options: Unpack[ConnectOptions],
) -> Store:
    """Open the store at `path`, or create it; a context manager.

    If this process has the store open already, with equal options, the result is one more handle
    on it. The last handle that is closed, or dropped, closes the store.

    Args:
        path: A directory, or a `file://` URL; `http://host:port` of a server, with `token`;
            `:memory:`, a new store in a temporary directory that is deleted with the last handle;
            with `read_only` also the URL of a mirror: s3://bucket/prefix, gs:// or az://.
        read_only: Only read, next to an owner or alone, in any number of processes.
        join: If another process owns the store and serves it (`serve_local`; on another machine
            `serve`, with the token in $SILTSTONE_TOKEN), work through that owner; if no process
            owns it, own it and serve others, which takes the extra `server` (if a package is
            missing, or there is no place for a socket, a `RuntimeWarning` says so, once in a
            process); if this process has it open, return another handle.
        options: `memory_bytes_max` (memtables, indexes and caches), `memtable_bytes_max` (a
            checkpoint begins there), `sealed_generations_max`, `segment_bytes` (of the log),
            `sync_interval_ms` (async commits), `retention` ("7d"), `verify` ("first_use" |
            "scrub"), `background` (False: checkpoints run in the writer's thread, merges only
            when asked for), `force` (own a store on a network file system), `room_timeout_s`,
            `join_timeout_s`, `join_bytes_max` (of the log that a joined process reads itself; above
            it, it asks the owner), `close_upkeep_s` (how long `close` may merge, optimize and
            vacuum, if that is due), `mirror` (s3://bucket/prefix, gs:// or az://: the owner copies
            what it flushes there, in a thread; credentials come from the environment),
            `close_mirror_s` (how long `close` may copy the rest), `group_access` (a new store is
            open to the group of its directory, to read), `tune_malloc` (glibc's malloc of this
            process keeps less of what is freed), `cache_bytes_max` (disk space for copies of rows
            that do not fit into memory, of all stores of the user; by default a tenth of what is
            free, 0: none), `scratch` (the folder for them, by default ~/.cache/siltstone; it may be
            deleted at any time), `storage_options` (settings of a bucket's client, above those of
            the environment; never written, shown or pickled), `sql_memory_bytes_max`,
            `sql_temp_bytes_max` and `sql_threads_max` (of one SQL statement).

    Raises:
        OwnedError: Another process owns it (pid, host, and `cannot_serve`: why no process can join
            it), or this process has it open with other options (`differing`).
        BusyError: With `join`: its owner neither served nor ended within `join_timeout_s`.
        RequestError, UnavailableError: Not a store, not a directory, not writable; a bad option.
        UnsupportedFormatError: A siltstone of another format wrote it; not a byte was changed.
        CorruptionError: A file is damaged; the error names it.

    Examples:
        >>> with st.connect("library") as db:
        ...     books = db.create_table("books", {"isbn": str, "copies": int}, primary_key="isbn")
        ...     books.upsert({"isbn": "978-0", "copies": 3}).rows
        1
    """
    given: dict[str, object] = {**options}
    for name, flag in (("read_only", read_only), ("join", join)):
        flag_of(name, flag)
    if is_url(path):
        return _remote(str(path), given, read_only=read_only)
    if path == MEMORY:
        return _in_memory(given, read_only=read_only, join=join)
    root = root_of(path, only_reads=read_only and not join)
    found = resolve(root, given)
    if not join:
        return LocalStore.open(root, found, read_only=read_only)
    if read_only:
        raise RequestError("read_only and join exclude each other: a reader needs no owner")
    return _join(root, found, functools.partial(_serving, tell=_warn_alone))


def own_or_join(path: str | os.PathLike[str], **options: Unpack[ConnectOptions]) -> Store:
    """Return a handle as `connect(path, join=True)` does, for one commit.

    It serves others while it owns the store. That was not asked for, so it does not warn if it
    cannot.

    Raises:
        SiltstoneError: As `connect`.
    """
    root = root_of(path)
    return _join(root, resolve(root, {**options}), functools.partial(_serving, tell=lambda _: None))


def _remote(url: str, options: dict[str, object], *, read_only: bool) -> Store:
    """Work through the server at `url`; a `JoinedStore`, which has the same methods."""
    from siltstone.joined.store import JoinedStore  # noqa: PLC0415
    from siltstone.joined.targets import server_at  # noqa: PLC0415 - an owner needs none of it

    unknown = sorted(set(options) - {"token", "cafile"})
    if unknown or read_only:
        wrong = [*unknown, *(["read_only"] if read_only else [])]
        raise RequestError(f"{wrong} are options of a store's owner; a server takes token, cafile")
    return JoinedStore(None, server_at(url, **options))


def _in_memory(given: dict[str, object], *, read_only: bool, join: bool) -> Store:
    """Make a store in a temporary directory, which goes with it."""
    if read_only or join or given.get("mirror"):
        wrong = "read_only" if read_only else "join" if join else "mirror"
        raise RequestError(f"{MEMORY!r} is a new store of this handle alone: it takes no {wrong}")
    root: Path | None = None
    made: Store | None = None
    try:
        with DeferredSignals():
            root = _temporary_directory()
            # Nothing of it outlives it: no rows in files of the user.
            found = replace(resolve(root, {"cache_bytes_max": 0, **given}), mirror=None)
            return (made := share(root, found, _temporary))
    except BaseException:
        with DeferredSignals():
            if made is not None:
                made.close()
            elif root is not None:
                shutil.rmtree(root, ignore_errors=True)
        raise


def _temporary_directory() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="siltstone-memory-")).resolve()
    except OSError as error:
        raise UnavailableError(
            f"{MEMORY!r} needs a temporary directory, set TMPDIR to one: {error}"
        ) from error


def _temporary(opened: Opened, number: int) -> Store:
    opened.is_temporary = True
    return LocalStore(opened, number)


def _join(root: Path, options: Options, handle: Callable[[Opened, int], Store]) -> Store:
    """Own the store, or join its owner; one that is about to own or to serve it is waited for."""
    from siltstone.joined.joining import Joining  # noqa: PLC0415 - an owner needs none of it

    joining = Joining(root, options)
    while True:
        joined = joining.join_far()
        if joined is not None:
            return joined
        try:
            return share(root, options, handle, any_options=True, will_serve=True)
        except (OwnedError, UnavailableError) as refused:
            joined = joining.join(refused)
            if joined is not None:
                return joined


def _serving(opened: Opened, number: int, *, tell: Callable[[str], object]) -> Store:
    """Return a handle that lets others join; `tell` hears why they cannot, if they cannot."""
    db = LocalStore(opened, number)
    try:
        db.share_locally()
    except UnavailableError as error:
        tell(str(error))
    return db


@functools.cache
def _warn_alone(why: str) -> None:
    """Warn of each reason once in a process."""
    text = "no other process can join the stores that this one opens with join=True"
    warnings.warn_explicit(f"{text}: {why}", RuntimeWarning, *caller())
