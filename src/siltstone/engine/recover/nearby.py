"""Nearby: the newest state of a store whose owner runs on this machine, for each read anew.

    MARK as it was ──▶ the state as it was                         one read of 40 bytes
    MARK moved on  ──▶ the frames up to it are applied             one read of the log
    anything else  ──▶ a helper thread looks properly (`following`): the first look, a next segment,
                       a newer record. A read waits for it at most `WAIT_S`, then the owner is asked

A group of commits is in MARK before it is acknowledged, so a read that begins after that sees it.
MARK is believed whether its owner lives or not: the owner that this process joined wrote it since
the machine started; `alone` reads what that owner wrote above it, synced or not. Every `LOOK_S`
a read also looks for a newer record, and whether the directory is still there.

`AskOwner` says that the owner has to be asked instead: nothing is ready yet, or the log is more
than this process may hold. That ends with the next record, for it flushes the log.

Lock: one, for the helper's beginning and end. The follower has its own; a read does not wait for it
longer than for the helper. A read amid another of its thread, in a signal's handler or a finalizer,
cannot wait for that: the owner is asked.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import msgspec

from siltstone.engine.read.view import State
from siltstone.engine.recover.following import Followed, Follower
from siltstone.errors import BusyError, UnavailableError
from siltstone.formats.log.frame import MARK_BYTES, Mark, decode_mark
from siltstone.process import threads
from siltstone.storage.files.files import File, Files
from siltstone.storage.wal.follower import LogTooLong
from siltstone.storage.wal.segments import MARK_NAME

WAIT_S = 0.02
LOOK_S = 0.05
AGAIN_S = 1.0
"""When it is tried again to read files that could not be read."""
HAND_OVER_S = 5.0
"""How long an owner waits for a look that is under way: it reads what the owner would replay."""
SETTLED_S = 1.0
_LOCK_WAIT_S = 0.001
_TURNS_MAX = 8
_SETTLE_S = 10.0
_AMID = "this thread is amid a look at the files"
_ASKS = (UnavailableError, BusyError, OSError)


class AskOwner(UnavailableError):
    """The owner has to answer: see the module."""


class _Seen(msgspec.Struct, frozen=True, eq=False):
    """A state, and the bytes of MARK that were read before it."""

    raw: bytes
    state: State


class _Helper:
    """One proper look, in a thread."""

    def __init__(self, begun_s: float, look: Callable[[_Helper], object]) -> None:
        self.begun_s = begun_s
        name = "siltstone-follower"
        self.thread = threading.Thread(target=look, args=(self,), name=name)
        self.is_over = threading.Event()
        self.error: BaseException | None = None


class Nearby:
    """See the module. Any thread."""

    def __init__(
        self,
        follower: Follower,
        files: Files,
        root: Path,
        clock_s: Callable[[], float],
        warm_up: Callable[[bool], object] = lambda _: None,
    ) -> None:
        """Read nothing yet.

        `warm_up` imports what a read may need later; once this process has read for `SETTLED_S`,
        it is told so, and imports what it would need as the owner, too.
        """
        self._follower, self._files, self._clock_s = follower, files, clock_s
        self._warm_up = warm_up
        self._path = root / "wal" / MARK_NAME
        self._lock = threading.Lock()
        self._helper: _Helper | None = None
        self._thread: threading.Thread | None = None
        self._mark: File | None = None
        self._identity: tuple[int, int] | None = None
        self._seen: _Seen | None = None
        self._due_s = self._asks_until_s = 0.0
        self._settled_s: float | None = None
        self._is_too_long = self._is_closed = self._is_settled = False
        self.awaited_seq = 0
        """Commits of this process up to here have to be seen by its next read."""

    def state(self) -> State:
        """Return a state with all that was acknowledged before the call.

        Raises:
            AskOwner: See the module.
            CorruptionError, ReplacedError: As `Follower.state`.
        """
        mark, seen = self._mark, self._seen
        if mark is None or seen is None or self._clock_s() >= self._due_s:
            return self._looked()
        raw = mark.pread(MARK_BYTES, 0)
        return seen.state if raw == seen.raw else self._moved(raw)

    def newest(self) -> State:
        """Return a state as `state` does, over the newest record, however long that takes."""
        helper = self._begun()
        if self._follower.is_amid or helper.thread is threading.current_thread():
            raise AskOwner(_AMID)
        helper.is_over.wait()
        self._raise(helper)
        return self.state()

    def alone(self) -> State:
        """Return a state as `newest` does, with what is above MARK if no process owns the store."""
        self._follower.distrust_mark()
        return self.newest()

    def hand_over(self) -> Followed | None:
        """Give up what was read, as this process owns the store now; the next read begins anew."""
        found = self._follower.hand_over(HAND_OVER_S)
        self._seen = None  # it would keep rows in memory that the owner has flushed
        return found

    def close(self) -> None:
        """Release the files. MARK stays open for as long as a read may be under way."""
        self.refuse()
        self._follower.close()

    def refuse(self) -> None:
        """Return no state from now on; it takes no lock, for the child of a fork."""
        self._is_closed = True
        self._mark = self._seen = None

    def settle(self) -> None:
        """Wait for a helper, before a fork: the child would wait for what it holds, for ever."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_SETTLE_S)

    # the quick way

    def _moved(self, raw: bytes) -> State:
        """Return the state at a MARK that was just read."""
        for _ in range(_TURNS_MAX):
            mark = decode_mark(raw, self._follower.store_id)
            if mark is None:  # the owner writes it just now
                raw = self._read()
                mark = decode_mark(raw, self._follower.store_id)
            state = None if mark is None else self._forward(mark)
            if state is not None:
                self._seen = _Seen(raw, state)
                return state
            self._wait(self._begun())
            raw = self._read()
        raise AskOwner("the log moves on faster than this process can read it")

    def _forward(self, mark: Mark) -> State | None:
        if self._follower.is_amid:
            raise AskOwner(_AMID)
        helper = self._helper
        wait_s = WAIT_S if helper is None else max(_LOCK_WAIT_S, self._left_s(helper))
        try:
            return self._follower.forward(mark, wait_s)
        except LogTooLong as error:
            raise self._too_long() from error

    def _read(self) -> bytes:
        mark = self._mark
        if mark is None:
            raise AskOwner("MARK is not open")
        return mark.pread(MARK_BYTES, 0)

    # the proper one

    def _looked(self) -> State:
        now_s = self._clock_s()
        if self._is_closed or now_s < self._asks_until_s:
            raise AskOwner("this process does not read the files now")
        try:
            has_newer = self._follower.has_newer()
        except _ASKS as error:
            raise self._unreadable(error) from error
        if self._is_too_long and not has_newer:
            raise self._too_long()
        if self._seen is None or self._mark is None:
            self._wait(self._begun())
        elif has_newer or self._settles(now_s) or self._is_new_mark():
            self._begun()
        self._due_s = now_s + LOOK_S
        return self._moved(self._read())

    def _is_new_mark(self) -> bool:
        return self._files.identity(self._path) != self._identity

    def _settles(self, now_s: float) -> bool:
        """Say once that this process goes on to read."""
        if self._settled_s is None:
            self._settled_s = now_s + SETTLED_S
        if self._is_settled or now_s < self._settled_s:
            return False
        self._is_settled = True
        return True

    def _too_long(self) -> AskOwner:
        self._is_too_long, self._seen = True, None
        self._asks_until_s = self._clock_s() + LOOK_S
        return AskOwner("the log is more than this process may hold")

    def _begun(self) -> _Helper:
        """Begin a look, unless one is under way."""
        if not self._lock.acquire(timeout=WAIT_S):
            raise AskOwner(_AMID)
        try:
            found = self._helper
            if found is None:
                found = _Helper(self._clock_s(), self._look)
                threads.start(found.thread)
                self._thread = found.thread
                self._helper = found
            return found
        finally:
            self._lock.release()

    def _look(self, helper: _Helper) -> None:
        try:
            self._open_mark()
            raw = self._read()
            self._follower.prepare()
            state = self._follower.state()
            self._seen = None if self._is_closed else _Seen(raw, state)
            self._is_too_long = False
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._seen, helper.error = None, error
        finally:
            with self._lock:
                self._helper = None
            helper.is_over.set()
        self._warm_up(self._is_settled)

    def _open_mark(self) -> None:
        identity = self._files.identity(self._path)
        if identity != self._identity or self._mark is None:
            self._mark = mark = self._files.open(self._path, write=False)
            weakref.finalize(self, mark.close)
            self._identity = identity

    def _left_s(self, helper: _Helper) -> float:
        return helper.begun_s + WAIT_S - self._clock_s()

    def _wait(self, helper: _Helper) -> None:
        if not helper.is_over.wait(max(0.0, self._left_s(helper))):
            raise AskOwner("this process has not read the files yet")
        self._raise(helper)

    def _raise(self, helper: _Helper) -> None:
        """Raise what ended a look; an error that an owner may not have means to ask it."""
        error = helper.error
        if error is None:
            return
        if isinstance(error, LogTooLong):
            raise self._too_long() from error
        if isinstance(error, _ASKS):
            raise self._unreadable(error) from error
        raise error

    def _unreadable(self, error: BaseException) -> AskOwner:
        self._asks_until_s = self._clock_s() + AGAIN_S
        return AskOwner(f"the files cannot be read: {error}")
