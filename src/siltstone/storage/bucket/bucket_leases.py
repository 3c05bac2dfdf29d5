"""Bucket leases: which records of a bucket this process reads, told to the bucket's vacuum.

    lease     put leases/<token> ─▶ read FLOOR ─▶ is the record kept?    vacuum: FLOOR, then leases
    renew     put it again, each third of its time; it counts until a minute after that
    end       deleted at the next renewal, or when the store is closed: tasks follow each other

So either the vacuum sees the lease, or the reader sees FLOOR. Who sleeps longer than a lease lasts
may lose its files: no name is ever used twice, so it finds nothing, and no other rows. One that is
absent is lost if FLOOR keeps every record that is read here; else its seq expired.

Who may not put, or gets no answer, reads without a lease: the retention of the mirror keeps records
longer than reads take. Lock: `_lock` guards the numbers; it is never held over a request. A
finalizer may end a lease: it only puts a number into a queue.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

from siltstone.errors import SiltstoneError, UnavailableError
from siltstone.formats import bucket as formats
from siltstone.formats.bucket import BucketLease
from siltstone.storage.bucket.bucket import Bucket

TTL_S = 600.0
_ANSWER_S = 2.0
"""So long a lease is tried: it is of use to others, and its reader waits."""
_log = logging.getLogger(__name__)


class BucketLeases:
    """See the module. `reader` names the reader, for messages; `new_token` names its leases."""

    def __init__(self, bucket: Bucket, reader: str, new_token: Callable[[], str]) -> None:
        self._bucket, self._reader, self._new_token = bucket, reader, new_token
        self._objects = replace(bucket.objects.of("lease"), give_up_s=_ANSWER_S)
        self._lock = threading.Lock()
        self._held: Counter[int] = Counter()
        self._keys: dict[int, str] = {}
        self._gone: SimpleQueue[int] = SimpleQueue()
        self._over: threading.Event | None = None

    def hold(self, number: int, *, below_floor: bool = False) -> BucketLock | None:
        """Lease a record of the chain until the lock is released; None: it was given up.

        `below_floor`: it may be given up, if it is still there: another process leases it.

        Raises:
            UnavailableError, CorruptionError: FLOOR cannot be read.
        """
        key = self._begin(number)
        lock = BucketLock(self._gone, number)
        if key is None:
            return lock
        with contextlib.suppress(UnavailableError):
            self._put(number, key)
        is_kept = self._bucket.floor().keeps(number)
        if not is_kept and not (below_floor and self._bucket.find(number) is not None):
            lock.release()
            return None
        return lock

    def renew(self) -> None:
        """Put all leases that are held again, and delete those that ended."""
        self._count_ended()
        with self._lock:
            ended = [number for number in self._keys if not self._held[number]]
            over = [self._keys.pop(number) for number in ended]
            held = [*self._keys.items()]
        self._delete(over)
        for number, key in held:
            try:
                self._put(number, key)
            except SiltstoneError as error:
                _log.warning("the lease of record %d is not renewed: %s", number, error)

    def end(self) -> None:
        """Read none any more; the leases are deleted, if the server answers."""
        with self._lock:
            keys, over = [*self._keys.values()], self._over
            self._keys, self._held, self._over = {}, Counter(), None
        if over is not None:
            over.set()
        self._delete(keys)

    def refuse_if_expired(self) -> None:
        """Look whether a record that is read here was given up.

        Raises:
            SnapshotExpiredError: One was.
            UnavailableError, CorruptionError: FLOOR cannot be read.
        """
        self._count_ended()
        with self._lock:
            held = sorted(number for number, count in self._held.items() if count)
        for number in held:
            self._bucket.require_kept(number, f"record {number} of the mirror")

    def _begin(self, number: int) -> str | None:
        """Count a lease; return the key of its object if it is to be put."""
        with self._lock:
            self._held[number] += 1
            if number in self._keys:
                return None
            key = self._keys[number] = f"{formats.LEASES}{self._new_token()}"
            if self._over is None:
                over = self._over = threading.Event()
                name = "siltstone-leases"
                threading.Thread(target=self._run, args=(over,), name=name, daemon=True).start()
            return key

    def _run(self, over: threading.Event) -> None:
        while not over.wait(TTL_S / 3):
            self.renew()

    def _count_ended(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                number = self._gone.get_nowait()
                with self._lock:
                    self._held[number] = max(0, self._held[number] - 1)

    def _put(self, number: int, key: str) -> None:
        lease = BucketLease(number, TTL_S, self._reader)
        self._objects.put(key, formats.encode_lease(lease))

    def _delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with contextlib.suppress(SiltstoneError):  # it is over by itself
                self._objects.delete([key])


class BucketLock:
    """What a `Lease` holds of a record of a bucket; its end is put into a queue."""

    def __init__(self, gone: SimpleQueue[int], number: int) -> None:
        self._gone, self._number, self._is_held = gone, number, True

    @property
    def fd(self) -> int:
        return 0 if self._is_held else -1

    def names(self, path: Path) -> bool:
        del path  # no record is ever replaced
        return self._is_held

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._gone.put(self._number)
