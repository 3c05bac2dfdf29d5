"""Recent writes: the keys written since the oldest open transaction began.

    per incarnation   newest: key -> last seq, in the order of the seqs; batches: (seq, codes), of
                      loads with exact codes in their key runs
    in all            order: (seq, incarnation, bytes, keys) of each commit, to forget it

Only this module decides conflicts (first committer wins), so they are found even if the conflicting
write was flushed and merged meanwhile (a merged delete leaves no trace in base). It forgets writes
that no open transaction can conflict with, but for the newest ones in `window_bytes`: transactions
of joined processes are not known here before they commit. Above `bytes_max` it also forgets writes
that open transactions need. What it forgets raises `floor`: who read below it is never admitted
without a check. Above the floor all is known, so an owner begins with the seq that it found.

Lock: one, for all methods; no step under it is slower than a search, in files where a load was
committed since the transaction began.
"""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from siltstone.engine.levels.load_keys import FiledCodes
from siltstone.formats.keys import Codes, Key

_KEY_BYTES = 180
_BYTES_MAX = 64 << 20
_FORGET_EVERY = 64
_IDLE_MAX = 1024  # tables with nothing remembered that keep their dicts for a next commit


class Keys(msgspec.Struct, frozen=True, eq=False):
    """The keys that one commit writes in one table.

    They are values (few), sorted codes (many), those of a load in files, or all.
    """

    values: Sequence[Key] = ()
    codes: Codes | None = None
    is_all: bool = False
    filed: FiledCodes | None = None

    @property
    def many(self) -> Codes | FiledCodes | None:
        """The codes of many keys, if they are many."""
        found = self.codes if self.filed is None else self.filed
        return found if found is not None and len(found) else None

    def as_codes(self, code_of: Callable[[Key], int]) -> Codes | FiledCodes:
        """Return them as codes, sorted if they are in memory; not if they are all."""
        if self.many is not None:
            return self.many
        return np.sort(np.fromiter(map(code_of, self.values), np.int64, len(self.values)))

    @property
    def nbytes(self) -> int:
        """The approximate bytes that they take here."""
        size = _KEY_BYTES * len(self.values)
        for key in self.values:
            if type(key) is not int:
                size += _length(key)
        return size + (0 if self.codes is None else self.codes.nbytes)


Written = tuple[int, Keys, Callable[[Key], int] | None]
"""What a commit writes in one table: its incarnation, the keys, and what codes one of them."""


def _length(key: Key) -> int:
    if type(key) is tuple:
        return sum(map(_length, key))
    return len(key) if isinstance(key, str | bytes) else 0


class Coded(msgspec.Struct, frozen=True):
    """A key with only its code: both writes were batches."""

    code: int


class ForgottenError(Exception):
    """What was written since our read seq is not remembered: it is below the `floor`."""

    def __init__(self, floor: int) -> None:
        self.floor = floor


class LostError(Exception):
    """A later commit wrote a key of ours: `place` is our table, `found` the key and its seq."""

    def __init__(self, place: int, found: tuple[Key | Coded, int]) -> None:
        self.place, self.found = place, found


class _Writes(msgspec.Struct):
    newest: dict[Key, int] = msgspec.field(default_factory=dict)
    batches: deque[tuple[int, Codes | FiledCodes]] = msgspec.field(default_factory=deque)
    whole: int = 0
    last: int = 0


_Ordered = tuple[int, int, int, Sequence[Key], bool]
"""One table of one commit: seq, incarnation, bytes, the keys one by one, whether it is all rows."""


class RecentWrites:
    """See the module. Codes of hashed keys may collide, which refuses a transaction needlessly."""

    def __init__(self, bytes_max: int = _BYTES_MAX, floor: int = 0) -> None:
        self._bytes_max = bytes_max
        self.window_bytes = 0
        """So many bytes of the newest writes stay, whether an open transaction needs them or not.

        One assignment, by any thread."""
        self._lock = threading.Lock()
        self._writes: dict[int, _Writes] = {}
        self._order: deque[_Ordered] = deque()
        self._since = 0
        self.nbytes = 0
        self.floor = floor
        self.is_due = False
        """Whether it is time to `forget`: so much was written since the last time."""

    def take(self, seq: int, written: Sequence[Written], read_seq: int | None = None) -> None:
        """Record that the commit `seq` wrote `written`, unless it conflicts since `read_seq`.

        Raises:
            LostError: It does; nothing is recorded.
            ForgottenError: What was written since is not remembered; nothing is recorded.
            MemoryError: `take_back` undoes what is recorded.
        """
        with self._lock:
            if read_seq is not None:
                if read_seq < self.floor:
                    raise ForgottenError(self.floor)
                _refuse_lost(self._writes, written, read_seq)
            for incarnation, keys, _ in written:
                writes, values = self._writes.get(incarnation), keys.values
                if writes is None:
                    writes = self._writes[incarnation] = _Writes()
                size = _KEY_BYTES * len(values)
                is_simple = values and type(values[0]) is int  # keys of a table are of one type
                if not is_simple:
                    size = keys.nbytes
                # First: `take_back` undoes what follows, wherever it ends.
                self._order.append((seq, incarnation, size, values, keys.is_all))
                self.nbytes += size
                newest = writes.newest
                for key in values:
                    newest.pop(key, None)  # to the end, where the last seqs stand
                    newest[key] = seq
                if not is_simple:
                    _record_many(writes, seq, keys)
                writes.last = seq
            self._since += len(written)
            self.is_due = self._since >= _FORGET_EVERY or self.nbytes > self._bytes_max

    def remember(self, incarnation: int, seq: int, keys: Keys) -> None:
        """Record that the commit `seq` wrote `keys`."""
        self.take(seq, ((incarnation, keys, None),))

    def take_back(self, first: int) -> None:
        """Forget the commits from seq `first` on, which were not written."""
        with self._lock:
            taken: set[int] = set()
            while self._order and self._order[-1][0] >= first:
                taken.add(self._order.pop()[1])
            self.nbytes = sum(each[2] for each in self._order)
            for incarnation in taken:
                left = [each for each in self._order if each[1] == incarnation]
                if left:
                    _take_back(self._writes[incarnation], first, left)
                else:
                    self._writes.pop(incarnation, None)

    def forget(self, oldest: int) -> None:
        """Forget the writes that no open transaction needs: none reads below `oldest`."""
        window = min(self.window_bytes, self._bytes_max)
        with self._lock:
            self._since, self.is_due = 0, False
            while self._order and self._order[0][0] <= oldest and self.nbytes > window:
                self._drop_first()
            while self.nbytes > self._bytes_max and len(self._order) > 1:
                self._drop_first()

    def _drop_first(self) -> None:
        seq, incarnation, size, keys, _ = self._order.popleft()
        self.floor = seq  # they go in order; first: who read below it must not be let in
        self.nbytes -= size
        writes = self._writes.get(incarnation)
        if writes is None:
            return
        newest = writes.newest
        for key in keys:
            if newest.get(key) == seq:
                del newest[key]
        while writes.batches and writes.batches[0][0] <= seq:
            writes.batches.popleft()
        if writes.last <= seq and writes.whole <= seq:
            if len(self._writes) > _IDLE_MAX:
                del self._writes[incarnation]
            else:  # for the table's next commit; a dict keeps its memory until it is cleared
                newest.clear()

    def conflict(
        self, incarnation: int, read_seq: int, keys: Keys, code_of: object = None
    ) -> tuple[Key, int] | None:
        """Return a key that was written after `read_seq`, and the seq; None if there is none.

        `code_of` codes one key; it is called only if batches were written.
        """
        with self._lock:
            writes = self._writes.get(incarnation)
            if writes is None or writes.last <= read_seq:
                return None
            return _conflict(writes, read_seq, keys, code_of)

    def written_since(self, incarnation: int, read_seq: int) -> int:
        """Return the last seq that wrote to the table if it is above `read_seq`, else 0."""
        with self._lock:
            writes = self._writes.get(incarnation)
            return writes.last if writes is not None and writes.last > read_seq else 0

    def keys_since(self, incarnation: int, read_seq: int, limit: int) -> tuple[list[Key], bool]:
        """Return the keys written one by one after `read_seq`, and whether these are all.

        They are not all if a batch was written or there are more than `limit`.
        """
        with self._lock:
            writes = self._writes.get(incarnation)
            if writes is None:
                return [], True
            if writes.whole > read_seq or any(seq > read_seq for seq, _ in writes.batches):
                return [], False
            keys = [key for key, _ in _newest_since(writes, read_seq)]
            return keys[:limit], len(keys) <= limit


def _refuse_lost(known: Mapping[int, _Writes], written: Sequence[Written], read_seq: int) -> None:
    for place, (incarnation, keys, code_of) in enumerate(written):
        writes = known.get(incarnation)
        if writes is not None and writes.last > read_seq:
            found = _conflict(writes, read_seq, keys, code_of)
            if found is not None:
                raise LostError(place, found)


def _record_many(writes: _Writes, seq: int, keys: Keys) -> None:
    if keys.many is not None:
        writes.batches.append((seq, keys.many))
    if keys.is_all:
        writes.whole = seq


def _newest_since(writes: _Writes, read_seq: int) -> Iterator[tuple[Key, int]]:
    """Yield the keys written one by one after `read_seq` with their last seqs, newest first."""
    for key, seq in reversed(writes.newest.items()):
        if seq <= read_seq:
            return
        yield key, seq


def _take_back(writes: _Writes, first: int, left: Sequence[_Ordered]) -> None:
    """Take away what was written from seq `first` on; `left` are the commits that stay."""
    while writes.batches and writes.batches[-1][0] >= first:
        writes.batches.pop()
    writes.newest = {}
    for seq, _, _, keys, _ in left:
        for key in keys:
            writes.newest.pop(key, None)
            writes.newest[key] = seq
    writes.whole = max((seq for seq, _, _, _, is_all in left if is_all), default=0)
    writes.last = left[-1][0]


def _conflict(
    writes: _Writes, read_seq: int, keys: Keys, code_of: object
) -> tuple[Key, int] | None:
    if keys.is_all or writes.whole > read_seq:
        return "*", writes.last
    for key in keys.values:
        seq = writes.newest.get(key, 0)
        if seq > read_seq:
            return key, seq
    recent = [(seq, codes) for seq, codes in writes.batches if seq > read_seq]
    found = _value_conflict(recent, keys.values, code_of) if recent and keys.values else None
    if found is not None:
        return found
    if keys.many is None:
        return None
    return _batch_conflict(writes, read_seq, keys.many, recent, code_of)


def _value_conflict(
    recent: Iterable[tuple[int, Codes | FiledCodes]], values: Sequence[Key], code_of: object
) -> tuple[Key, int] | None:
    own = np.fromiter(map(code_of, values), np.int64, len(values))  # type: ignore[arg-type]
    for seq, codes in recent:
        hit = _contains(codes, own)
        if hit.any():
            return values[int(np.flatnonzero(hit)[0])], seq
    return None


def _batch_conflict(
    writes: _Writes,
    read_seq: int,
    own: Codes | FiledCodes,
    recent: Iterable[tuple[int, Codes | FiledCodes]],
    code_of: object,
) -> tuple[Key, int] | None:
    for seq, codes in recent:
        code = common_code(own, codes)
        if code is not None:
            return Coded(code), seq
    if isinstance(own, FiledCodes):
        later = [*_newest_since(writes, read_seq)]
        found = own.has(np.fromiter((code_of(key) for key, _ in later), np.int64, len(later)))  # type: ignore[operator]
        return later[int(np.flatnonzero(found)[0])] if found.any() else None
    sought = own.data  # NumPy gives up the interpreter lock at each search
    for key, seq in _newest_since(writes, read_seq):
        code = code_of(key)  # type: ignore[operator]
        place = bisect_left(sought, code)
        if place < len(sought) and sought[place] == code:
            return key, seq
    return None


def common_code(own: Codes | FiledCodes, codes: Codes | FiledCodes) -> int | None:
    """Return a code that both have; None if there is none."""
    if isinstance(codes, FiledCodes):
        if isinstance(own, FiledCodes):
            return own.common(codes)
        own, codes = codes, own
    hit = _contains(own, codes)
    return int(codes[np.flatnonzero(hit)[0]]) if hit.any() else None


def _contains(codes: Codes | FiledCodes, wanted: Codes) -> np.ndarray:
    """Say for each of `wanted` whether the sorted `codes` have it."""
    if isinstance(codes, FiledCodes):
        return codes.has(wanted)
    if not len(codes):
        return np.zeros(len(wanted), bool)
    place = np.minimum(codes.searchsorted(wanted), len(codes) - 1)
    return codes[place] == wanted


class OpenTransactions:
    """The read seqs of the open transactions, and their token apps. Lock: one, for all methods.

    Who begins one takes the next of `numbers` first: whatever interrupts `begin`, it can be ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads: dict[int, int] = {}
        self._apps: dict[int, str] = {}
        self._abandoned: deque[int] = deque()
        self.numbers = itertools.count(1)

    def begin(self, number: int, visible: object, app: str = "") -> object:
        """Register a transaction at the state that `visible()` returns under the lock."""
        with self._lock:
            if app:
                self._apps[number] = app
            state = visible()  # type: ignore[operator]
            self._reads[number] = state.visible
            return state

    def end(self, number: int) -> None:
        """Remove a transaction. Further calls do nothing."""
        with self._lock:
            self._reads.pop(number, None)
            if self._apps:
                self._apps.pop(number, None)

    def abandon(self, number: int) -> None:
        """Remove a transaction soon: for a finalizer, which may run under its thread's lock."""
        self._abandoned.append(number)

    def _sweep(self) -> None:
        while self._abandoned:
            number = self._abandoned.popleft()
            self._reads.pop(number, None)
            self._apps.pop(number, None)

    def oldest(self, visible: object) -> int:
        """Return the lowest read seq of an open transaction, else the visible seq."""
        with self._lock:
            if self._abandoned:
                self._sweep()
            now: int = visible().visible  # type: ignore[operator]
            return min(self._reads.values()) if self._reads else now

    def has_app(self, app: str) -> bool:
        """Say whether a transaction with a token of the app is open."""
        with self._lock:
            self._sweep()
            return app in self._apps.values()

    @property
    def count(self) -> int:
        """The number of open transactions."""
        with self._lock:
            self._sweep()
            return len(self._reads)
