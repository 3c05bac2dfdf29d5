"""Transactions: one for a request, committed when the block ends: before the answer is sent.

begin ──the block returned──▶ commit ─▶ the answer is sent ─▶ background tasks
  ├──it raised──▶ rollback ─▶ the error goes on; one of siltstone is an answer
  └──the commit was refused──▶ an answer, or the handler runs again (`retries`)
"""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any

from starlette.requests import HTTPConnection

from siltstone.api.store import Store
from siltstone.api.transaction import Transaction
from siltstone.errors import (
    ClosedError,
    ConflictError,
    InDoubtError,
    SiltstoneError,
    UnavailableError,
)
from siltstone.process.turns import TableClosedError
from siltstone.web.answers import refusal_of, torn
from siltstone.web.threads import called, ended
from siltstone.web.tries import Try
from siltstone.web.worker_store import WorkerStore


class RequestTransaction:
    """A transaction of one request; `with` in a handler's thread, `async with` on the event loop.

    One thread at a time. It is begun by `begin`.
    """

    def __init__(
        self, one_try: Try, store: Store, options: dict[str, Any], worker: WorkerStore | None
    ) -> None:
        self._try, self._store, self._options = one_try, store, options
        self._worker = worker
        self._tx: Transaction | None = None

    def __enter__(self) -> Transaction:
        try:
            tx = self._tx = self._store.transaction(**self._options)
            tx.closed = self._try.closed_at(self._store)
        except Exception as error:
            raise self._told(error) from error
        return tx

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tx = self._tx
        assert tx is not None
        try:
            if error is not None:
                raise error
            self._commit(tx)
        except BaseException as found:
            tx.rollback()
            told = self._told(found)
            if told is error:
                return
            raise told from found

    async def __aenter__(self) -> Transaction:
        try:
            return await called(self.__enter__)
        except BaseException:  # cancelled: the thread has begun it all the same
            if self._tx is not None:
                await ended(self._tx.rollback)
            raise

    async def __aexit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await ended(lambda: self.__exit__(kind, error, trace))

    def _commit(self, tx: Transaction) -> None:
        """Commit, unless the block named a closed table, whatever it made of the error.

        Raises:
            TableClosedError: It did.
        """
        if tx.closed_at:
            raise TableClosedError(tx.closed_at)
        if tx.is_open:
            try:
                tx.commit()
            except InDoubtError as error:
                if self._options.get("durability") == "shipped":  # that it is committed is not all
                    raise
                self._ask(error)
        if tx.receipt is not None:
            self._try.note_commit(tx)

    def _ask(self, error: InDoubtError) -> None:
        """Ask what became of a commit whose answer was lost; return if it came to be.

        Raises:
            UnavailableError: It did not, and never will.
            InDoubtError: The owner does not answer, or does not know.
        """
        found = ""
        if self._worker is not None:
            asked = self._worker.again(self._store) or self._store
            with suppress(SiltstoneError):  # else it is still in doubt, whatever this one says
                found = asked.outcome(error.transaction_id)
        if found == "not committed":
            raise UnavailableError("the owner went away before it committed") from error
        if found != "committed":
            raise error
        self._try.has_committed = True

    def _is_replaced(self, error: BaseException) -> bool:
        """Return whether the owner has gone, and the worker has another handle now."""
        if self._worker is None or not isinstance(error, UnavailableError | ClosedError):
            return False
        if isinstance(error, ClosedError):  # by another request, or the handler did it
            return self._worker.has_replaced(self._store)
        return self._worker.again(self._store) is not None

    def _told(self, error: BaseException) -> BaseException:
        """Return what goes on in place of an error: what a client is told, where it can act."""
        tx = self._tx
        if tx is not None and tx.receipt is not None:  # its block committed it
            self._try.note_commit(tx)
            if self._try.is_torn and isinstance(error, Exception):
                assert self._try.lost_by is not None
                return torn(self._try.lost_by)
        if tx is not None and tx.closed_at and isinstance(error, Exception):
            error = TableClosedError(tx.closed_at)
        if isinstance(error, ConflictError | TableClosedError):
            self._try.lose(error, self._store)
        elif self._is_replaced(error):
            assert isinstance(error, SiltstoneError)
            self._try.lose(error, None)
        elif not isinstance(error, SiltstoneError):
            return error
        return self._refusal(error)

    def _refusal(self, error: SiltstoneError | TableClosedError) -> Exception:
        if self._try.has_committed and not isinstance(error, InDoubtError):
            return torn(error)
        return refusal_of(error) or error


def begin(
    connection: HTTPConnection,
    store: Store | WorkerStore,
    *,
    worker: WorkerStore | None = None,
    **options: Any,
) -> RequestTransaction:
    """Return a transaction for a block of a request's handler; its end commits, before the answer.

    `with` in a handler that runs in a thread, `async with` in one on the event loop, where begin
    and commit have threads of their own. An error rolls back and goes on. One of siltstone that a
    client can act on becomes an `HTTPException`: 409 for a conflict and for a key that exists,
    503 with Retry-After for `BusyError`. Below `Retries` the handler runs again after a conflict.

    Args:
        connection: The request.
        store: Where; a request may have transactions of several stores, which commit one by one.
        worker: Whose store it is, if it is one's.
        options: Those of `Store.transaction`.
    """
    if isinstance(store, WorkerStore):
        worker, store = store, store()
    return RequestTransaction(Try.of(connection.scope), store, options, worker)
