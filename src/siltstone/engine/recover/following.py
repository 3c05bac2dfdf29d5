"""Following: the state of a store that this process does not own; makes no write call.

    refresh ──▶ poll the log as far as it is durable, apply the new frames
            ──▶ a newer record? lease it, and adopt it as an owner does (`cutting`)
    first, or what the record has flushed was not read ──▶ rebuild: newest record (leased) and log
    this process becomes the owner ──▶ hand over what was read, and begin again at the next look

Each refresh looks whether the directory, and the record that was read before, are still there, and
ends with ReplacedError if another store, or an older copy, is in their place.

A follower sees only durable commits, and all that were acknowledged; see `storage.wal.follower`. It
copies rows of the log into its own memtables; the lease on the record keeps its Lance files. Lock:
one, held during a refresh. Its thread may come again meanwhile, in a signal's handler or a
finalizer: one that closes makes the refresh leave no state behind, one that reads does so aside.
"""

from __future__ import annotations

import threading
from _thread import get_ident
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias, TypeVar

import msgspec

from siltstone.engine.levels.base import Base
from siltstone.engine.read.reader import Readers
from siltstone.engine.read.view import Generation, State, View
from siltstone.engine.recover.cutting import cut
from siltstone.engine.recover.replay import Replayer, view_of
from siltstone.errors import BusyError, CorruptionError, ReplacedError
from siltstone.formats.log.frame import Logged, Mark
from siltstone.formats.manifest import Record
from siltstone.storage.files.files import Files, refusals
from siltstone.storage.files.place import named, require_in_place
from siltstone.storage.manifest.manifest_store import Lease, ManifestStore
from siltstone.storage.wal.chain import Confirmed
from siltstone.storage.wal.follower import (
    LogFollower,
    LogTooLong,
    SegmentRecycled,
    WalFollower,
)
from siltstone.units import SegmentNumber

T = TypeVar("T")
ATTEMPTS_MAX = 64
Bases: TypeAlias = Mapping[str, Base]
Adopt: TypeAlias = Callable[[View, Record, object, Sequence[Generation], Bases], View]
"""Returns a view over a newer record, with the rows of these generations as the record has them.

It gets the bases that `Prepare` made of the record; what is not among them it makes itself."""
Prepare: TypeAlias = Callable[[View, Record], Bases]


class Followed(msgspec.Struct, frozen=True, eq=False):
    """What a follower has read: all commits up to `last_seq`, which end at `place` in the log.

    `nbytes`: of the log above the view's record.
    """

    view: View
    last_seq: int
    last_time_us: int
    nbytes: int
    place: Confirmed


class Follower:
    """See the module."""

    def __init__(
        self,
        files: Files,
        root: Path,
        manifests: ManifestStore,
        readers: Readers,
        adopt: Adopt | None = None,
        prepare: Prepare | None = None,
        *,
        trusts_mark: bool = False,
        bytes_max: int | None = None,
        log: Callable[[Record], LogFollower] | None = None,
    ) -> None:
        """Begin to follow at the first look.

        `adopt`: how a newer record becomes the view; None: it is read anew, with the log.
        `prepare`: makes of a newer record what takes long, for `prepare`.
        `trusts_mark`, `bytes_max`: see `WalFollower`; above `bytes_max` bytes of the log the
        follower holds nothing, and raises LogTooLong.
        `log`: begins to read, above a record, a log that is elsewhere; None: it is in `wal/`.
        """
        self._files, self._root = files, root
        self._manifests, self._readers, self._adopt = manifests, readers, adopt
        self._make_ready = prepare
        self._ready: tuple[int, Bases] = 0, MappingProxyType({})
        self._trusts_mark, self._bytes_max = trusts_mark, bytes_max
        self._log = log
        self._lock = threading.RLock()
        self._ends = self._looks_in = 0
        self._state: State | None = None
        self._replayer: Replayer | None = None
        self._wal: LogFollower | None = None
        self._lease: Lease | None = None
        self._known: Record | None = None
        self._seen = 0

    def state(self) -> State:
        """Return the newest durable state.

        Raises:
            CorruptionError: The log or a record is damaged.
            BusyError: The owner recycled the log faster than this process could read it.
            UnavailableError: The file system refuses to read the log, or to make it durable.
            ReplacedError: The directory was moved or replaced, or its contents were.
        """
        with self._lock, named(self._files, self._root):
            return self._aside() if self.is_amid else self._in_turn(self._newest)

    def forward(self, mark: Mark, wait_s: float) -> State | None:
        """Return the state at a MARK if one read of the log leads there; None: `state` does.

        It waits at most `wait_s` for another look; amid one of its own thread it returns None.

        Raises:
            LogTooLong: What is not flushed has become more than `bytes_max`.
        """
        if self.is_amid or not self._lock.acquire(timeout=wait_s):
            return None
        try:
            return self._in_turn(lambda: self._forward(mark))
        finally:
            self._lock.release()

    @property
    def is_amid(self) -> bool:
        """Whether this thread is amid a look, and a handler or a finalizer asks."""
        return self._looks_in == get_ident()

    def _in_turn(self, look: Callable[[], T]) -> T:
        ends, self._looks_in = self._ends, get_ident()
        try:
            return look()
        finally:
            self._looks_in = 0
            if self._ends != ends:
                self._let_go()

    def _aside(self) -> State:
        """Read the store with another follower: this one's parts are amid a change."""
        other = Follower(
            self._files, self._root, self._manifests, self._readers,
            trusts_mark=self._trusts_mark, bytes_max=self._bytes_max, log=self._log,
        )  # fmt: skip
        other._known, other._seen = self._known, self._seen
        try:
            return other.state()
        finally:
            other.close()

    def _forward(self, mark: Mark) -> State | None:
        state, replayer, wal = self._state, self._replayer, self._wal
        if state is None or replayer is None or wal is None:
            return None
        self._state = None  # an error from here on: the next look begins anew
        frames = wal.forward(mark)
        if frames:
            state = self._applied(replayer, frames)
        self._state = state
        return None if frames is None else state

    def _applied(self, replayer: Replayer, frames: Sequence[Logged]) -> State:
        for frame in frames:
            replayer.apply(frame.first_seq, frame.payload)
        if self._bytes_max is not None and replayer.nbytes > self._bytes_max:
            self._let_go()
            raise LogTooLong(replayer.nbytes)
        return State(replayer.finish(), self._seen_now(replayer.last_seq))

    def prepare(self) -> bool:
        """Make ready what a newer record needs, for the next `state`; say whether there is one.

        It reads files, and holds no lock while it does.
        """
        with self._lock:
            state = self._state
        if state is None or self._make_ready is None:
            return False
        newer = self._manifests.newer_record(state.view.record)
        if newer is None:
            return False
        self._ready = newer.number, self._make_ready(state.view, newer)
        return True

    def distrust_mark(self) -> None:
        """From now on believe MARK only if an owner holds it."""
        with self._lock:
            self._trusts_mark = False
            if self._wal is not None:
                self._wal.trusts_mark = False

    @property
    def store_id(self) -> bytes:
        """The id of the store; empty before the first look."""
        return b"" if self._known is None else bytes.fromhex(self._known.store_id)

    def has_newer(self) -> bool:
        """Return whether there is a newer record, or another store in the place of this one."""
        known, state = self._known, self._state
        if not self._files.are_in_place() or known is None:
            return True
        if state is not None and self._is_replaced(state):
            return True
        return self._manifests.newer_record(known) is not None

    def _newest(self) -> State:
        for _ in range(ATTEMPTS_MAX):
            try:
                return self._look()
            except SegmentRecycled as signal:
                record = self._manifests.newest()
                if record.wal_floor <= signal.segment and not self._moved(record):
                    raise signal.damage from signal
                self._state = None
        raise BusyError(f"{self._root}: the log moved on {ATTEMPTS_MAX} times; try again")

    def hand_over(self, wait_s: float) -> Followed | None:
        """Give up what was read: from now on the caller alone appends to it. None: nothing was.

        It waits at most `wait_s` for a look that is under way.
        """
        if self.is_amid or not self._lock.acquire(timeout=wait_s):
            return None
        try:
            state, replayer, wal = self._state, self._replayer, self._wal
            place = None if wal is None else wal.confirmed
            self._let_go()
        finally:
            self._lock.release()
        if state is None or replayer is None or place is None:
            return None
        last = replayer.last_seq, replayer.last_time_us
        return Followed(replayer.view, *last, replayer.nbytes, place)

    def close(self) -> None:
        """Release the record; from now on only open snapshots keep it from vacuum."""
        with self._lock:
            self._ends += 1
            self._let_go()

    def _let_go(self) -> None:
        wal, self._ready = self._wal, (0, MappingProxyType({}))
        self._state = self._replayer = self._wal = self._lease = None
        if wal is not None:
            wal.close()

    def _moved(self, record: Record) -> bool:
        """Say whether the record is newer than the one that the failed look was based on."""
        return self._replayer is None or record.number > self._replayer.view.record.number

    def _look(self) -> State:
        require_in_place(self._files, self._root)
        state, newer, replayer, wal = self._where_to_go_on()
        self._state = None  # an error from here on: the next look begins anew
        if newer is not None:
            state = None
            if self._adopted(replayer, *newer):
                newer = None  # before its owner's log is read: what it flushed may be gone there
        with refusals(f"the log of {self._root} cannot be read"):
            frames = wal.poll(SegmentNumber(replayer.view.record.wal_floor))
        if state is not None and not frames:
            self._state = state
            return state
        found = self._applied(replayer, frames)
        if newer is not None:
            if not self._adopted(replayer, *newer):
                return self._look()
            found = State(replayer.finish(), replayer.last_seq)
        _require_whole(replayer, self._root)
        self._state = found
        return found

    def _where_to_go_on(
        self,
    ) -> tuple[State | None, tuple[Record, Lease] | None, Replayer, LogFollower]:
        """Return the state and a newer record to adopt, both None at a beginning; and the parts.

        They are taken at once: a handler may close the follower at any line.
        """
        state, replayer, wal = self._state, self._replayer, self._wal
        if state is not None and replayer is not None and wal is not None:
            newer = self._manifests.newer_record(state.view.record)
            if newer is None and not self._is_replaced(state):
                return state, None, replayer, wal
            if self._adopt is not None and not self._is_replaced(state):
                return state, self._manifests.lease_newest(self._known), replayer, wal
        return None, None, *self._begun()

    def _begun(self) -> tuple[Replayer, LogFollower]:
        """Begin at the newest record, with nothing of the log."""
        record, lease = self._manifests.lease_newest(self._known)
        self._state, self._known, self._lease = None, record, lease
        replayer = Replayer(view_of(record, lease, self._readers), self._readers)
        self._replayer = replayer
        if self._wal is not None:
            self._wal.close()
        wal = self._wal = (self._log or self._log_of)(record)
        return replayer, wal

    def _log_of(self, record: Record) -> LogFollower:
        return WalFollower(
            self._files,
            self._root / "wal",
            store_id=bytes.fromhex(record.store_id),
            trusts_mark=self._trusts_mark,
            bytes_max=self._bytes_max,
        )

    def _adopted(self, replayer: Replayer, record: Record, lease: Lease) -> bool:
        """Go on over a newer record; False: it has flushed commits that were not read."""
        assert self._adopt is not None
        known = replayer.view.record.flushed_seq
        if not known <= record.flushed_seq <= replayer.last_seq:
            return False
        self._known, self._lease = record, lease
        view, flushed = cut(replayer.finish(), record)
        number, bases = self._ready
        bases = bases if number == record.number else MappingProxyType({})
        replayer.view = self._adopt(view, record, lease, flushed, bases)
        replayer.nbytes = sum(levels.active.nbytes for levels in replayer.view.levels.values())
        self._ready = 0, MappingProxyType({})
        return True

    def _is_replaced(self, state: State) -> bool:
        """Say whether another file is in the place of the record that is leased."""
        lease = self._lease
        path = self._manifests.path(state.view.record.number)
        return lease is not None and not lease.lock.names(path)

    def _seen_now(self, seq: int) -> int:
        if seq < self._seen:
            why = f"its newest commit is seq {seq}, and was {self._seen}"
            raise ReplacedError(self._root, why)
        self._seen = seq
        return seq


def _require_whole(replayer: Replayer, root: Path) -> None:
    """Refuse a log that ends before a commit that its record knows as durable."""
    last_seq = replayer.view.record.last_seq
    if replayer.last_seq < last_seq:
        reason = f"the log ends at seq {replayer.last_seq}, but seq {last_seq} was durable"
        raise CorruptionError(root / "wal", None, reason)
