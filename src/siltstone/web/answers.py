"""Answers: what a client is told of an error of siltstone.

An error that a client can act on has a status here. All others, such as damage, go on to the
server of the application: it answers 500, and its log has the traceback.
"""

from __future__ import annotations

import logging
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from siltstone import errors
from siltstone.process.turns import TableClosedError

_log = logging.getLogger("siltstone.web")
RETRY_AFTER = {"retry-after": "1"}
_UNAVAILABLE = int(HTTPStatus.SERVICE_UNAVAILABLE)

# The first that fits decides, so leaves come before their group.
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (TableClosedError, 409),
    (errors.TableNotFoundError, 404),
    (errors.TableExistsError, 409),
    (errors.DuplicateKeyError, 409),
    (errors.SchemaMismatchError, 422),
    (errors.SnapshotExpiredError, 410),
    (errors.ReadOnlyError, 403),
    (errors.LimitError, 413),
    (errors.ClosedError, _UNAVAILABLE),
    (errors.AccessError, 500),
    (errors.UnsupportedFormatError, 500),
    (errors.RequestError, 400),
    (errors.ConflictError, 409),
    (errors.FencedError, _UNAVAILABLE),
    (errors.OwnedError, _UNAVAILABLE),
    (errors.PoisonedError, _UNAVAILABLE),
    (errors.BusyError, _UNAVAILABLE),
    (errors.UnavailableError, _UNAVAILABLE),
)


def refusal_of(error: BaseException) -> HTTPException | None:
    """Return what answers a request that failed with `error`; None: its client can do nothing.

    A 503 says nothing of the store, whose path is not the client's to know: the log has it.
    """
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    if isinstance(error, errors.InDoubtError):
        _log.error("a request is in doubt: %s", error)
        text = f"it is not known whether this was done: transaction {error.transaction_id}"
        return HTTPException(500, text)
    if status == _UNAVAILABLE:
        _log.warning("a request got 503: %s", errors.in_words(error))
        return HTTPException(status, "the store is not available now; try again", RETRY_AFTER)
    return None if status == 500 else HTTPException(status, str(error))


def torn(error: Exception) -> HTTPException:
    """Return what answers a request of two stores of which one has committed: none is to be run."""
    _log.error("a request is committed in one store, and not in another one: %s", error)
    text = "the transaction of one store is committed, and that of another one is not"
    return HTTPException(500, text)


async def answer(request: Request, error: Exception) -> Response:  # noqa: ARG001 - as handlers are
    """Answer a request whose handler raised an error of siltstone outside of a transaction.

    Raises:
        Exception: `error`, if a client can do nothing about it.
    """
    refusal = refusal_of(error)
    if refusal is None:
        raise error
    return JSONResponse({"detail": refusal.detail}, refusal.status_code, refusal.headers)
