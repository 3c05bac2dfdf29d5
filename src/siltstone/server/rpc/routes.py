"""Routes of joined processes: an address for each verb, and one for verbs that do not exist.

Each verb needs a role; one that is not listed here needs the highest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from siltstone.server.calls import (
    READS,
    SNAPSHOT_VERBS,
    STORE_READS,
    TABLE_READS,
    TABLE_WRITES,
    TRANSACTION_VERBS,
    Calls,
)
from siltstone.server.http.route import MESSAGE, NOTHING, Role, Route
from siltstone.server.lance_calls import VERB as LANCE
from siltstone.server.rpc.call import Outcome, RpcCall

_READS = (
    TABLE_READS
    | STORE_READS
    | frozenset(
        (
            "indexes",
            *("hello", "changes", "changes_of", "scan_tasks", "outcome", "verify"),
            *("transaction", "snapshot", "commit", "rollback", "close"),
        )
    )
)
_WRITES = TABLE_WRITES | frozenset(
    (
        *("create_table", "drop_table", "rename_table", "tag", "untag", "claim"),
        *("checkpoint", "merge", "optimize", "create_index", "drop_index"),
        LANCE,
    )
)
_VERB = "{verb}"


def role_of(verb: str) -> Role:
    """Return the role that a verb needs."""
    if verb in _READS:
        return Role.READ
    return Role.WRITE if verb in _WRITES else Role.ADMIN


def rpc_routes(prefix: str, calls: Calls, hello: Callable[[], object]) -> list[Route]:
    """Return the routes of all verbs below `prefix`."""
    known = _READS | _WRITES | STORE_READS | {"vacuum", "stage", _VERB}
    table = f"{prefix}/table/{{table}}"
    transaction, snapshot = f"{prefix}/transaction/{{key}}", f"{prefix}/snapshot/{{key}}"
    return [
        Route(
            "GET", f"{prefix}/hello", Role.READ, lambda _: Outcome(hello()), "Say who answers",
            takes=NOTHING, name="hello",
        ),
        *_posts(prefix, known, calls.of_store),
        *_posts(
            table,
            {*TABLE_READS, *TABLE_WRITES, "indexes", "create_index", "drop_index", _VERB},
            lambda call: calls.of_table(call.path["table"], call),
        ),
        _post(f"{prefix}/transaction/begin", "transaction", calls.begin),
        *_posts(
            transaction,
            {*TRANSACTION_VERBS, "commit", "rollback", _VERB},
            lambda call: calls.of_transaction(call.path["key"], call),
        ),
        _post(f"{prefix}/snapshot/open", "snapshot", calls.open),
        *_posts(
            snapshot,
            {*SNAPSHOT_VERBS, "close", _VERB},
            lambda call: calls.of_snapshot(call.path["key"], call),
        ),
    ]  # fmt: skip


def _posts(at: str, verbs: Iterable[str], handler: Callable[[RpcCall], Outcome]) -> Iterable[Route]:
    for verb in sorted(verbs):
        yield _post(f"{at}/{verb}", verb, handler)


def _post(path: str, verb: str, handler: Callable[[RpcCall], Outcome]) -> Route:
    return Route(
        "POST",
        path,
        role_of(verb),
        handler,
        f"Ask for {verb}",
        takes=MESSAGE,
        name="" if verb == _VERB else verb,
        is_timed=verb in READS,
    )
