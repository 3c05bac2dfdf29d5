"""Web: a transaction for each request of Starlette and FastAPI, committed before the answer.

    transaction   a dependency of FastAPI        begin     a block in a handler of Starlette
    RetryRoute    a route class of FastAPI       Retries   middleware: the same for any route
    snapshot      a dependency that reads        answer    errors of siltstone as answers
    WorkerStore   the store of one worker process, connected again when its owner has gone

The frameworks are the application's own: siltstone asks for none of them. See docs/web.md.
"""

from typing import TYPE_CHECKING

from siltstone.web.answers import answer
from siltstone.web.dependencies import snapshot, transaction
from siltstone.web.retries import Retries
from siltstone.web.transactions import begin
from siltstone.web.worker_store import WorkerStore

if TYPE_CHECKING:
    from siltstone.web.retry_route import RetryRoute

__all__ = [
    "Retries",
    "RetryRoute",
    "WorkerStore",
    "answer",
    "begin",
    "snapshot",
    "transaction",
]


def __getattr__(name: str) -> object:
    """Import what needs FastAPI when it is first asked for."""
    if name == "RetryRoute":
        from siltstone.web.retry_route import RetryRoute  # noqa: PLC0415 - Starlette has no FastAPI

        return RetryRoute
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
