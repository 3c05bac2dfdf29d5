"""Pins: the snapshots that the JVM holds, each under the token by which the JVM names it.

    taken ──the JVM reaches nothing of it any more──▶ released
      │
      └── taken again by another process, which the JVM started after this one died

A pin leases the files of its seq, so that no vacuum deletes what a frame will read. One that can
not be taken again is kept as the error that says why.

Lock: one, for the table of pins; none is opened or closed while it is held.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from siltstone.errors import RequestError, SiltstoneError, SnapshotExpiredError, UnavailableError
from siltstone.local.snapshot import LocalSnapshot
from siltstone.local.store import LocalStore
from siltstone.spark.context.kept_stores import kept
from siltstone.spark.daemon.messages import TakePin
from siltstone.spark.daemon.roots import Roots

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class HeldStore:
    """A store at one seq, with what keeps both open; pins of one seq share it.

    `newest`: the newest seq of the store when it was pinned.
    """

    store: str
    newest: int
    snapshot: LocalSnapshot
    stack: ExitStack


class Pins:
    """See the module."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._lock = threading.Lock()
        self._held: dict[str, HeldStore | SiltstoneError] = {}

    def take(self, wanted: TakePin) -> HeldStore:
        """Pin a store, and return it.

        Raises:
            RequestError: There is no store, no such tag, or another store; or the roots exclude it.
            SnapshotExpiredError: The store does not keep the seq, or does not have it yet.
            UnavailableError: No server answers at a URL.
        """
        try:
            found = self._opened(wanted)
        except SiltstoneError as error:
            if wanted.seq is not None:  # of a process before this one: who uses it hears of it
                self._replace(wanted.token, error)
            raise
        self._replace(wanted.token, found)
        return found

    def of(self, token: str) -> LocalSnapshot:
        """Return the snapshot of a pin, as `held` does."""
        return self.held(token).snapshot

    def held(self, token: str) -> HeldStore:
        """Return what a pin holds.

        Raises:
            SiltstoneError: What was wrong when the pin was to be taken again.
            UnavailableError: This process never heard of it.
        """
        with self._lock:
            found = self._held.get(token)
        if found is None:
            raise UnavailableError("this process holds no such pin: run the statement again")
        if isinstance(found, SiltstoneError):
            raise found
        return found

    def release(self, tokens: Sequence[str]) -> None:
        """Give pins up; unknown ones are passed over."""
        for token in tokens:
            self._replace(token, None)

    def _replace(self, token: str, new: HeldStore | SiltstoneError | None) -> None:
        with self._lock:
            old = self._held.pop(token, None)
            if new is not None:
                self._held[token] = new
            is_used = any(each is old for each in self._held.values())
        if isinstance(old, HeldStore) and not is_used:
            old.stack.close()

    def _opened(self, wanted: TakePin) -> HeldStore:
        with ExitStack() as stack:
            store = stack.enter_context(kept(self._roots.path_of(wanted.uri)))
            if wanted.store not in {None, store.store_id}:
                raise RequestError(
                    f"{wanted.uri} has store {store.store_id} now; the statement was made for"
                    f" store {wanted.store}: run it again"
                )
            try:
                taken = stack.enter_context(_taken(store, wanted))
            except SnapshotExpiredError:
                shared = self._shared(wanted, store.store_id)
                if shared is None:
                    raise
                return shared
            return HeldStore(store.store_id, store.seq, taken, stack.pop_all())

    def _shared(self, wanted: TakePin, store_id: str) -> HeldStore | None:
        """Return what another pin of the seq holds, which the store may keep for that alone."""
        place = store_id, _seq_of(wanted)
        with self._lock:
            for held in self._held.values():
                if isinstance(held, HeldStore) and (held.store, held.snapshot.seq) == place:
                    self._held[wanted.token] = held
                    return held
        return None


def _taken(store: LocalStore, wanted: TakePin) -> LocalSnapshot:
    """Return the snapshot that is meant."""
    if wanted.time_us is not None:
        return store.snapshot(at=_EPOCH + dt.timedelta(microseconds=wanted.time_us))
    seq = _seq_of(wanted)
    return store.snapshot(seq=seq, tag=wanted.version if seq is None else None)


def _seq_of(wanted: TakePin) -> int | None:
    """Return the seq that is asked for; None: the newest, or that of a tag or a time."""
    version = wanted.version
    if version is not None and version.isascii() and version.isdigit():
        return int(version)
    return wanted.seq
