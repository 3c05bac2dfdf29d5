"""Joining: the way to an owner that may be about to open, about to serve, or just gone.

What LOCK says of the owner decides, not how long it takes:

    says nothing, or names a dead process   it changes hands                     wait
    epoch 0                                 it recovers the log                  wait
    an endpoint, or that it will serve      it serves, or is about to            join, or wait
    a URL alone                             its server answers                   join
    open, and will not serve                                                     OwnedError
    another machine, and a URL              its server answers there             join

The owner may end meanwhile: each look first tries to own the store, so no process waits for a dead
owner. A live owner that makes no progress has `join_timeout_s`. An owner on another machine comes
before that: locks of a shared file system may say nothing, and if its server answers, it lives.

An owner that opened during the wait may not have said yet that it will serve: it has
`SERVING_WAIT_S` to say so.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from pathlib import Path

from siltstone.errors import BusyError, OwnedError, SiltstoneError, UnavailableError
from siltstone.joined.store import JoinedStore
from siltstone.joined.targets import ServerTarget, server_at
from siltstone.options import Options
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.ownership import Holder, read_holder

ANSWER_TIMEOUT_S = 5.0
"""For an owner where a reader answers as well."""
SERVING_WAIT_S = 2.0
_PAUSE_S = 0.02
_PAUSE_S_MAX = 0.25


def owner_of(root: Path) -> str | None:
    """Return who owns a store, None if no process does."""
    return _named(read_holder(RealFiles(), root))


def owner_at(root: Path) -> tuple[JoinedStore | None, str | None]:
    """Join the owner of a store if it answers now; return also who it is, if a process owns it.

    Each later question to it has `ANSWER_TIMEOUT_S`, too.
    """
    holder = read_holder(RealFiles(), root)
    who, target = _named(holder), _near(holder) or _server_of(holder)
    if who is not None and target is not None:
        with contextlib.suppress(SiltstoneError):  # it is busy, or of another version, or gone
            return JoinedStore(root, target, answer_timeout_s=ANSWER_TIMEOUT_S), who
    return None, who


def _named(holder: Holder) -> str | None:
    if not holder.epoch or not _is_alive(holder):
        return None
    return f"process {holder.pid} on {holder.host}"


class Joining:
    """One attempt to join, over all its tries."""

    def __init__(self, root: Path, options: Options) -> None:
        self._root, self._options = root, options
        self._timeout_s = options.join_timeout_s
        self._begun = time.monotonic()
        self._pause_s = _PAUSE_S
        self._far: UnavailableError | None = None
        self._silent: Holder | None = None
        self._silent_since = 0.0
        self._was_coming = False

    def join_far(self) -> JoinedStore | None:
        """Join the owner if it is on another machine and its server answers.

        Raises:
            AccessError: The server wants another access token ($SILTSTONE_TOKEN).
        """
        holder = read_holder(RealFiles(), self._root)
        target = None if holder.host in {None, platform.node()} else _server_of(holder)
        if target is not None:
            try:
                return JoinedStore(self._root, target)
            except UnavailableError as error:
                self._far = error
        return None

    def join(self, owned: OwnedError | UnavailableError) -> JoinedStore | None:
        """Join the owner; None after a pause: try to own, or join again.

        Args:
            owned: How the try to own the store ended.

        Raises:
            OwnedError: The owner does not serve.
            UnavailableError: What it names did not answer until the bound; or the store cannot be
                owned here, and no owner answers.
            BusyError: It neither served nor ended until the bound.
            AccessError: Its server wants another access token.
        """
        holder = read_holder(RealFiles(), self._root)
        failure = self._far
        target = _near(holder)
        if target is not None:
            options = self._options if isinstance(target, str) else None  # it may be a tunnel's end
            try:
                return JoinedStore(self._root, target, options)
            except UnavailableError as error:
                failure = error
        if isinstance(owned, UnavailableError):
            raise owned if failure is None else UnavailableError(f"{owned}; {failure}") from failure
        if self._refuses(holder):
            raise owned
        waited = time.monotonic() - self._begun
        if waited >= self._timeout_s:
            raise failure or self._late(holder, waited) from owned
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)
        return None

    def _refuses(self, holder: Holder) -> bool:
        """Say whether the owner is open and will not serve, as two looks in a row found it.

        Two, for the next owner has the lock a moment before it says so.
        """
        is_open = bool(holder.epoch)
        if holder.host not in {None, platform.node()}:
            is_silent = is_open and _server_of(holder) is None  # its socket is of that machine
        else:
            is_silent = is_open and holder.endpoint is None and not holder.serves
        if not is_silent or not _is_alive(holder):
            self._silent, self._was_coming = None, self._was_coming or holder.epoch == 0
            return False
        if holder != self._silent:
            self._silent, self._silent_since = holder, time.monotonic()
            return False
        is_open_question = self._was_coming or holder.serves
        return not is_open_question or time.monotonic() - self._silent_since >= SERVING_WAIT_S

    def _late(self, holder: Holder, waited: float) -> BusyError:
        who = f"process {holder.pid} on {holder.host}"
        state = f"{who} recovers the log, or is about to"
        if holder.pid is None:
            state = "a process owns it and does not say in LOCK which"
        elif holder.epoch:
            state = f"{who} is about to serve"
        return BusyError(
            f"{self._root}: {state}, {waited:.0f} s long"
            f" (join_timeout_s={self._timeout_s:.0f}); try again, or with a longer join_timeout_s"
        )


def _near(holder: Holder) -> str | ServerTarget | None:
    """Return where an owner on this machine answers: at its socket, else at its server's URL."""
    if holder.host not in {None, platform.node()}:
        return None
    if holder.endpoint is not None or holder.url is None:
        return holder.endpoint
    return server_at(holder.url)


def _server_of(holder: Holder) -> ServerTarget | None:
    """Return the server of an owner, unless it answers its own machine alone."""
    if holder.url is None:
        return None
    found = server_at(holder.url)
    is_of_one_machine = found.name in {"localhost", "::1"} or found.name.startswith("127.")
    return None if is_of_one_machine else found


def _is_alive(holder: Holder) -> bool:
    """Say whether the process is there, as far as one can tell from here."""
    if holder.pid is None or holder.host != platform.node():
        return holder.pid is not None
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
