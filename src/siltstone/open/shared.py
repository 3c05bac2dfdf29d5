"""Shared: the stores that this process has open, each once, and the handles on them.

A store that this process has joined is open, too: its files, to be read.

    connect ─▶ OPENING ──▶ OPEN ──the last handle goes──▶ CLOSING ──▶ forgotten
                           ▲  │
                           └──┘ connect with equal options: one handle more

Each handle has its own core, a copy that refuses calls by itself: `close` ends one handle and
what came from it. Tables, snapshots and transactions refer to the core, so the core is collected
when no code can use the handle any more, nor anything that came from it; only then is the handle
lost. What the store itself refers to (its servers, its fresh versions) has the store's own core.

A finalizer can run anywhere, so it only notes the lost handle and wakes the closer. The closer, or
the next call that opens or closes a store, counts it. Lock: the registry's, for phases and handles;
no store is opened, closed or warned of while it is held, and no thread waits with it. It is
reentrant: a signal's handler may call here while its thread is here.

A handler may raise between any two steps, as the handler of Ctrl-C does. So signals are deferred
while a store opens: their handlers run when the store is open, and if one raises, the handle is
closed again. A thread that waits for another one holds no lock, and a signal interrupts it at once.
`with` takes the lock, and releases it, in one step each; those of a `Condition` are functions in
Python.
"""

from __future__ import annotations

import contextlib
import enum
import gc
import itertools
import os
import platform
import shutil
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Generator
from contextvars import ContextVar
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from siltstone.engine.commit.core import Core
from siltstone.engine.commit.interrupts import DeferredSignals
from siltstone.engine.recover.following import Followed
from siltstone.engine.recover.nearby import Nearby
from siltstone.errors import OwnedError, ReplacedError, SiltstoneError
from siltstone.maintenance.schedule.upkeep import Ending
from siltstone.open.closing import at_exit, closer, is_after_an_error
from siltstone.open.environment import Env
from siltstone.open.owner import own_store
from siltstone.open.parts import Parts, follow_beside, follow_store
from siltstone.open.succession import Succession
from siltstone.options import Options

T = TypeVar("T")
_asked_at: ContextVar[tuple[str, int] | None] = ContextVar("siltstone_asked_at", default=None)
_PACKAGE = str(Path(__file__).parents[1]) + os.sep
WAIT_S = 60.0
"""How long `connect` waits for a thread of this process that opens or closes the store."""
_SERVE_TIMEOUT_S = 60.0


class StorePhase(enum.Enum):
    """See the module; each changes under the registry's lock."""

    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"


class Opened:
    """An open store with all its handles: an owner's, or a reader's with one handle."""

    def __init__(self, root: Path, options: Options, parts: Parts | None = None) -> None:
        self.root, self.options = root, options
        self.is_temporary = False
        self.is_served = False  # a user asked for it: the store stays open for its clients
        self.serving = threading.RLock()  # a signal handler may close what begins to serve
        self.phase = StorePhase.OPENING
        self.worker = threading.get_ident()  # the thread that opens or closes it
        self.where: tuple[str, int] = ("", 0)  # the file and line that opened it
        self.handles: set[int] = set()
        self.ending = Ending(upkeep=False)
        self._cores: weakref.WeakSet[Core] = weakref.WeakSet()
        self._turn = threading.RLock()  # to close it
        self._parts = parts
        _all.add(self)

    @classmethod
    def alone(cls, root: Path, options: Options, parts: Parts) -> Opened:
        """Return a store with one handle, not shared: a reader's, or a simulated one."""
        opened = cls(root, options, parts)
        opened.phase = StorePhase.OPEN
        opened.handles.add(0)
        return opened

    @property
    def parts(self) -> Parts:
        """The parts of the store."""
        assert self._parts is not None
        return self._parts

    @property
    def closed(self) -> str:
        """The message of a closed handle."""
        return f"the store {self.root} is closed"

    def open(self, *, will_serve: bool) -> int:
        """Own the store; return the number of the first handle."""
        try:
            self._parts = own_store(
                self.root,
                self.options,
                Env(),
                will_serve=will_serve,
                followed=partial(_followed, self.root),
            )
        except BaseException:
            _registry.forget(self)
            raise
        with _registry.lock:
            self.phase = StorePhase.OPEN
            _registry.wake()
            return self.enter()

    def enter(self) -> int:
        """Add a handle; return its number. The registry is locked."""
        number = next(_numbers)
        self.handles.add(number)
        return number

    def core(self, number: int) -> Core:
        """Return the core of a handle; once it is collected, the handle is lost."""
        made = replace(self.parts.core, refusal=None)
        weakref.finalize(made, _lose, self, number).atexit = False
        self._cores.add(made)
        return made

    def leave(self, number: int, ending: Ending | None = None) -> None:
        """Remove a handle; the last one closes the store.

        A second call ends what the first one did not.

        Args:
            number: That of the handle.
            ending: How the store ends; by default without an upkeep.
        """
        with _registry.lock:
            _registry.count()
            is_first_time = number in self.handles
            self.handles.discard(number)
            if self.handles or not (is_first_time or self.phase is StorePhase.CLOSING):
                return
            self.begin_closing(ending)
        self.shut()

    def begin_closing(self, ending: Ending | None = None) -> None:
        """Accept no more handles; this thread will shut the store. The registry is locked.

        Args:
            ending: As for `leave`.
        """
        self.phase, self.worker = StorePhase.CLOSING, threading.get_ident()
        self.ending = ending or Ending(upkeep=False)

    def refuse(self, why: str) -> None:
        """Refuse every later call of every handle, and roll back what they have open."""
        for core in [self.parts.core, *self._cores]:
            core.end(why)

    def refuse_in_child(self) -> None:
        """Refuse every later call in the child of a fork; what is open is the parent's."""
        why = f"{self.root} was opened before a fork; open it again in this process"
        for core in [self.parts.core, *self._cores]:
            core.refusal = core.refusal or why
        if self.parts.owner is not None:
            self.parts.owner.committer.shown.free_in_child()
        if isinstance(self.parts.follower, Nearby):
            self.parts.follower.refuse()

    def shut(self) -> None:
        """End all parts; a second call ends what the first one did not."""
        self.parts.core.refusal = self.closed
        # A thread that began to serve before has done so, one that comes now is refused. Bounded:
        # the server is imported there, and may wait for an import that a handler interrupted.
        if self.serving.acquire(timeout=_SERVE_TIMEOUT_S):
            self.serving.release()
        owner = self.parts.owner
        if owner is not None and self.is_temporary:
            owner.upkeep.is_on = False
        try:
            with self._turn:
                self.parts.close(self.ending)
        finally:
            if owner is None or not owner.ownership.is_held:
                if self.is_temporary:
                    shutil.rmtree(self.root, ignore_errors=True)
                _registry.forget(self)

    def require_in_place(self) -> None:
        """Refuse a store whose directory was deleted, or replaced, while it was open.

        Raises:
            ReplacedError: Its path has another store now, or none.
        """
        owner = self.parts.owner
        if owner is not None and not owner.ownership.is_in_place():
            file, line = self.where
            raise ReplacedError(self.root, f"opened at {file}:{line}; close those handles first")


class _Registry:
    """The stores that this process owns, opens or closes."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.stores: dict[Path, Opened] = {}
        self.joined: dict[Path, Opened] = {}
        self.lost: deque[tuple[Opened, int]] = deque()
        self._waiters: list[threading.Lock] = []

    def forget(self, opened: Opened) -> None:
        with self.lock:
            for opens in (self.stores, self.joined):
                if opens.get(opened.root) is opened:
                    del opens[opened.root]
            self.wake()

    def give_up(self, root: Path) -> None:
        """Forget what this thread was about to open."""
        with self.lock:
            found = self.stores.get(root)
            is_mine = found is not None and found.worker == threading.get_ident()
            if found is not None and is_mine and found.phase is StorePhase.OPENING:
                self.forget(found)

    def waiter(self) -> threading.Lock:
        """Return a lock to wait at until something changes. The registry is locked."""
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        return waiter

    def wake(self) -> None:
        """Wake the threads that wait. The lock is held.

        A second call wakes also those that a first one, cut off, did not.
        """
        for waiter in self._waiters:
            with contextlib.suppress(RuntimeError):  # it was woken
                waiter.release()
        self._waiters.clear()

    def count(self) -> None:
        """Count the handles that were lost. The lock is held."""
        while self.lost:
            opened, number = self.lost.popleft()
            if number in opened.handles:
                opened.handles.discard(number)
                if self._is_idle(opened) and opened.parts.owner is not None:
                    closer.ask(partial(_warn, opened))

    def _is_idle(self, opened: Opened) -> bool:
        return (
            opened.phase is StorePhase.OPEN
            and not opened.handles
            and not opened.is_served
            and opened in {self.stores.get(opened.root), self.joined.get(opened.root)}
        )

    def close_idle(self) -> None:
        """Close the stores whose last handle was lost; the closer's thread calls."""
        with self.lock:
            self.count()
            every = [*self.stores.values(), *self.joined.values()]
            idle = [opened for opened in every if self._is_idle(opened)]
            for opened in idle:
                opened.begin_closing(Ending())
        for opened in idle:
            closer.ask(opened.shut)  # each by itself: one that fails keeps no other open


_all: weakref.WeakSet[Opened] = weakref.WeakSet()
_readers: weakref.WeakSet[Opened] = weakref.WeakSet()
_numbers = itertools.count(1)
_registry = _Registry()


def _lose(opened: Opened, number: int, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
    """Note a lost handle: a finalizer, which takes no lock and calls nothing that does."""
    if is_ending():  # modules may be gone, and no thread closes any more
        return
    _registry.lost.append((opened, number))
    closer.ask(_registry.close_idle)


def _warn(opened: Opened) -> None:
    file, line = opened.where
    try:
        warnings.warn_explicit(
            f"the last handle on the store {opened.root} was dropped without close()",
            ResourceWarning,
            file,
            line,
        )
    except ResourceWarning as error:  # where warnings are errors: as any thread's that fails
        threading.excepthook(
            threading.ExceptHookArgs(
                (type(error), error, error.__traceback__, threading.current_thread())
            )
        )


def caller() -> tuple[str, int]:
    """Return the file and line outside of this package that called it, or had it called."""
    asked = _asked_at.get()
    if asked is not None:
        return asked
    frame = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


@contextlib.contextmanager
def asked_at(place: tuple[str, int]) -> Generator[None]:
    """Let what is opened in the block, in whatever thread, be opened at a `caller`."""
    token = _asked_at.set(place)
    try:
        yield
    finally:
        _asked_at.reset(token)


def share(
    root: Path,
    options: Options,
    handle: Callable[[Opened, int], T],
    *,
    any_options: bool = False,
    will_serve: bool = False,
) -> T:
    """Return a handle on the store at `root` as this process has it open, or open it.

    If another process owns it and ends, it hears that this one waits, `join_timeout_s` at most.

    Args:
        root: As `paths.root_of` returns it.
        options: Equal to those of the store, if this process has it open.
        handle: Makes the handle of a store, with its number; if it raises, there is none.
        any_options: Accept the store as it is open, whatever its options.
        will_serve: If this call opens the store, note in LOCK that others will be able to join.

    Raises:
        OwnedError: Another process owns it; this one does, with other options, or is opening or
            closing it for longer than `WAIT_S`.
        UnavailableError: The directory was replaced; the file system refuses.
    """
    succession = Succession(Env().files, root, options.join_timeout_s)
    while True:
        try:
            return _shared(root, options, handle, any_options, will_serve)
        except OwnedError as owned:
            if owned.differing or not succession.waits():
                raise


def _shared(
    root: Path,
    options: Options,
    handle: Callable[[Opened, int], T],
    any_options: bool,
    will_serve: bool,
) -> T:
    deadline = time.monotonic() + WAIT_S
    is_collected = False
    while True:
        opened: Opened | None = None
        number: int | None = None
        made: T | None = None
        try:
            with DeferredSignals():
                closer.start()
                opened, number, waiter = _find(root, options, any_options)
                if number is None and waiter is None:
                    if opened.phase is StorePhase.OPEN and is_collected:
                        raise _owned(opened, options)
                    is_collected = opened.phase is StorePhase.OPEN
                    number = _moved_on(opened, will_serve)
                if number is not None:
                    opened.require_in_place()
                    return (made := handle(opened, number))
            if waiter is not None and not waiter.acquire(
                timeout=max(0.0, deadline - time.monotonic())
            ):
                raise OwnedError(root, os.getpid(), platform.node())
        except BaseException:
            with DeferredSignals():
                if opened is None or number is None:
                    _registry.give_up(root)
                else:
                    opened.leave(number)
            del made  # until now, so that the collector does not count it as lost
            raise


def _moved_on(opened: Opened, will_serve: bool) -> int | None:
    """Do what a store's phase asks for; return the number of a handle if it was opened."""
    if opened.phase is StorePhase.OPENING:
        return opened.open(will_serve=will_serve)
    if opened.phase is StorePhase.CLOSING:
        with contextlib.suppress(SiltstoneError, OSError):  # what failed, failed before
            opened.shut()
    else:  # its handles may be garbage that refers to itself: those do not count
        gc.collect()
    return None


def _owned(opened: Opened, options: Options) -> OwnedError:
    """Return the error for a `connect` with other options; it names the socket to join."""
    ours, given = asdict(opened.options), asdict(options)
    endpoint = opened.parts.endpoint
    return OwnedError(
        opened.root,
        os.getpid(),
        platform.node(),
        None if endpoint is None else str(endpoint.address),
        differing={name: (ours[name], given[name]) for name in ours if ours[name] != given[name]},
    )


def _find(
    root: Path, options: Options, any_options: bool
) -> tuple[Opened, int | None, threading.Lock | None]:
    """Return the store, and a handle's number or a lock to wait at.

    The lock: another thread works on the store. With neither, its phase says what the caller has to
    do. OPENING: open it. CLOSING: shut it, and look again. OPEN: its handles have other options.

    Raises:
        OwnedError: A signal's handler interrupted its own thread, which closes the store.
    """
    with _registry.lock:
        _registry.count()
        found = _registry.stores.get(root)
        if found is None:
            found = _registry.stores[root] = Opened(root, options)
            found.where = caller()
            return found, None, None
        if found.phase is not StorePhase.OPEN:
            if found.worker == threading.get_ident():
                raise OwnedError(root, os.getpid(), platform.node())
            found.ending.stop()  # this call waits for its end
            return found, None, _registry.waiter()
        owner = found.parts.owner
        failure = None if owner is None else owner.failure()
        if failure is None:
            if any_options or found.options == options:
                return found, found.enter(), None
            if found.handles or found.is_served:
                return found, None, None
        found.begin_closing()
        found.refuse(f"the store {root} was opened again in this process: {failure}")
        return found, None, None


def read(root: Path, options: Options, handle: Callable[[Opened, int], T]) -> T:
    """Return a handle that only reads the store at `root`; an exit closes it, too."""
    opened: Opened | None = None
    try:
        with DeferredSignals():
            closer.start()
            opened = Opened.alone(root, options, follow_store(root, options, Env()))
            _readers.add(opened)
            return handle(opened, 0)
    except BaseException:
        with DeferredSignals():
            if opened is not None:
                opened.leave(0)
        raise


def beside(root: Path, options: Options) -> tuple[Opened, int] | None:
    """Return the files of a store that this process has joined, to be read, and a handle's number.

    All handles share them, with the options of the first one. None: see `follow_beside`.
    """
    with DeferredSignals():
        closer.start()
        found = _beside(root)
        if found is not None:
            return found
        made = follow_beside(root, options, Env())
        if made is None:
            return None
        with _registry.lock:
            found = _beside(root)
            if found is None:
                opened = _registry.joined[root] = Opened.alone(root, options, made[0])
                opened.handles.clear()
                return opened, opened.enter()
        made[0].close()  # another thread was faster
        return found


def _beside(root: Path) -> tuple[Opened, int] | None:
    with _registry.lock:
        opened = _registry.joined.get(root)
        if opened is None or opened.phase is not StorePhase.OPEN:
            return None
        return opened, opened.enter()


def _followed(root: Path) -> Followed | None:
    """Return what this process has read of a store that it joined, and now owns."""
    with _registry.lock:
        opened = _registry.joined.get(root)
        if opened is None or opened.phase is not StorePhase.OPEN:
            return None
    follower = opened.parts.follower
    return follower.hand_over() if isinstance(follower, Nearby) else None


def _of_this_process() -> list[Opened]:
    with _registry.lock:
        every = [*_registry.stores.values(), *_registry.joined.values()]
        opened = [each for each in every if each.phase is not StorePhase.OPENING]
    return opened + list(_readers)


def _end_servers() -> None:
    for opened in _of_this_process():
        with contextlib.suppress(SiltstoneError):
            opened.parts.end_servers()


_exit = Ending()


def _close_all() -> None:
    """Close all stores; their upkeeps have the time of one."""
    if is_after_an_error():
        _exit.upkeep = False
    for opened in _of_this_process():
        opened.refuse(opened.closed)
        with _registry.lock:
            opened.handles.clear()
            opened.begin_closing(_exit)
        with contextlib.suppress(SiltstoneError):  # poisoned: recovery decides, as after a kill
            opened.shut()


def _settle() -> None:
    """Let threads end that import: a child of a fork would wait for what they hold, for ever."""
    for opened in list(_registry.joined.values()):
        if isinstance(opened.parts.follower, Nearby):
            opened.parts.follower.settle()


def _refuse_in_child() -> None:
    """Lance does not survive a fork, and the child must not write to the parent's log."""
    for opened in list(_all):
        if opened.phase is not StorePhase.OPENING:
            opened.refuse_in_child()
    _readers.clear()
    _registry.__init__()
    _exit.__init__()


os.register_at_fork(before=_settle, after_in_child=_refuse_in_child)
at_exit(end_servers=_end_servers, close_stores=_close_all, hurry=_exit.stop)
