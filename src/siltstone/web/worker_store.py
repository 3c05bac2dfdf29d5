"""Worker store: the store of one worker process of several, connected again after its owner's end.

    connected ──the owner has gone──▶ connected again: this worker owns it, or joins the next owner
        └──the application ends──▶ CLOSED

The first worker that connects owns the store, and the others join it. Lock: one, held while this
process connects, for at most `join_timeout_s`; who wants the store meanwhile gets the old handle.
"""

from __future__ import annotations

import os
import threading
from typing import Unpack

from starlette.exceptions import HTTPException

from siltstone.api.store import Store
from siltstone.errors import ClosedError, SiltstoneError
from siltstone.joined.store import JoinedStore
from siltstone.options import ConnectOptions
from siltstone.store import connect
from siltstone.web.answers import refusal_of
from siltstone.web.threads import called, ended

ANSWER_TIMEOUT_S = 30.0
"""An owner in another process that is silent for so long is taken for gone."""
JOIN_TIMEOUT_S = 10.0
"""How long a request waits for the next owner, unless the options say."""


class WorkerStore:
    """The store of one worker process: a context manager of its life, and a dependency.

    `async with shop as db:` in the application's lifespan connects with `join=True`, and closes
    without upkeep, so that the server's grace is enough. `web.transaction(shop)` begins in the
    handle of the moment. If the owner went away, the worker connects again: what was not committed
    runs again below `Retries`, or is answered with 503; of a commit that was on its way the
    next owner is asked.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        **options: Unpack[ConnectOptions],
    ) -> None:
        """Open nothing yet.

        Args:
            path: As for `connect`.
            answer_timeout_s: If the owner says nothing for so long, it is taken for gone. A stopped
                process owns its store still: then requests are answered with 503, or with 500
                where it is not known what became of a commit.
            options: As for `connect`; `join_timeout_s` is 10 seconds by default.
        """
        self._path, self._answer_timeout_s = path, answer_timeout_s
        self._options: ConnectOptions = {"join_timeout_s": JOIN_TIMEOUT_S, **options}
        self._store: Store | None = None
        self._lock, self._tries = threading.Lock(), 0

    def __call__(self) -> Store:
        """Return the handle of this moment.

        Raises:
            HTTPException: 503, before the application has begun and after its end.
        """
        store = self._store
        if store is None:
            refusal = refusal_of(ClosedError("the application has not begun, or has ended"))
            assert isinstance(refusal, HTTPException)
            raise refusal
        return store

    async def __aenter__(self) -> Store:
        return await called(self._connected)

    async def __aexit__(self, *_: object) -> None:
        await ended(self._close)

    def _connected(self) -> Store:
        with self._lock:
            self._store = self._connect()
            return self._store

    def _connect(self) -> Store:
        self._tries += 1
        made = connect(self._path, join=True, **self._options)
        if isinstance(made, JoinedStore):
            made.pool.wait_at_most(self._answer_timeout_s)
        return made

    def _close(self) -> None:
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            store.close(upkeep=False)

    def has_replaced(self, store: Store) -> bool:
        """Return whether a handle is not that of this moment."""
        return self._store is not None and self._store is not store

    def again(self, lost: Store) -> Store | None:
        """Return the handle after that of an owner that has gone; None: there is no other one.

        If the owner answers, it was not for its end that the call failed.

        Args:
            lost: The handle whose call failed; its owner is another process.
        """
        tries = self._tries
        with self._lock:
            if self._store is not lost:
                return self._store
            # One that waited here while another one tried does not wait as long again.
            if self._tries != tries or not isinstance(lost, JoinedStore) or _answers(lost):
                return None
            try:
                self._store = self._connect()
            except SiltstoneError:  # the next request tries
                return None
        lost.close()
        return self._store


def _answers(joined: JoinedStore) -> bool:
    """Return whether there is a connection to the owner, or one can be made."""
    try:
        joined.pool.give(joined.pool.take())
    except SiltstoneError:
        return False
    return True
