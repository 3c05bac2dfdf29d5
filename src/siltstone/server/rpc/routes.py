"""Routes of joined processes: an address for each operation, and one for those that do not exist.

The table of operations says which role each needs, and whether it may be given up. A verb that does
not exist needs the highest role, and is answered with the ones that do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial

from siltstone.joined import protocol
from siltstone.local.statements.sent import refuse_directories
from siltstone.operations import Codec, Effect, Face, of_face
from siltstone.server.http.pipeline import Pipeline
from siltstone.server.http.route import MESSAGE, NOTHING, Role, Route
from siltstone.server.rpc.calls import Calls, Outcome, RpcCall
from siltstone.server.served import Served
from siltstone.server.sessions import Sessions

_TABLE = Face.TABLE | Face.TRANSACTION_TABLE | Face.SNAPSHOT_TABLE
_POST = partial(Route, "POST", takes=MESSAGE)
RpcHandler = Callable[[RpcCall], Outcome]


def rpc_use(
    prefix: str, served: Served, sessions: Sessions, pipeline: Pipeline, *, is_elsewhere: bool
) -> tuple[Pipeline, list[Route]]:
    """Return the pipeline with the routes of all operations below `prefix`.

    A client may be `is_elsewhere`: on another machine, or another user.
    """
    posts = partial(_posts, prefix, is_elsewhere=is_elsewhere)
    db, parts, calls = served.db, served.parts, Calls(served, sessions)
    record = parts.core.state().view.record
    identity = parts.site.files.identity(db.path)

    def hello(_: RpcCall) -> Outcome:
        """Return what a client must know before it asks for anything."""
        return Outcome(
            {
                "version": protocol.VERSION,
                "path": str(db.path),
                "store": record.store_id,
                "epoch": record.epoch,
                "identity": list(identity),
                "pid": os.getpid(),
                "has_witness": True,
                "idle_s": sessions.idle_s,
                "body_bytes_max": pipeline.policy.body_bytes_max,
            }
        )

    def sign(_: RpcCall) -> Outcome:
        return Outcome(parts.witness.sign())

    return pipeline, [
        Route("GET", f"{prefix}/hello", Role.READ, hello, takes=NOTHING, name="hello"),
        Route("GET", f"{prefix}/witness", Role.READ, sign, takes=NOTHING, name="witness"),
        *posts(Face.STORE, "", calls.of_store),
        *posts(_TABLE, "/table/{table}", calls.of_table),
        *posts(Face.TRANSACTION, "/transaction/{key}", calls.of_transaction),
        *posts(Face.SNAPSHOT, "/snapshot/{key}", calls.of_snapshot),
    ]


def _posts(
    prefix: str, face: Face, below: str, handler: RpcHandler, *, is_elsewhere: bool
) -> Iterable[Route]:
    at = f"{prefix}{below}"
    for name, found in of_face(face).items():
        path, is_timed = f"{at}/{protocol.ADDRESSES.get(name, name)}", found.effect is Effect.READ
        is_read = is_timed and (found.codec is not Codec.VALUE or name == "count")
        yield _POST(
            path,
            found.role,
            partial(_sent, handler) if is_elsewhere and found.is_statement else handler,
            name=name,
            is_timed=is_timed,
            is_read=is_read,
            is_statement=found.is_statement,
        )
    yield _POST(f"{at}/{{verb}}", Role.ADMIN, handler)  # refuses what does not exist


def _sent(handler: RpcHandler, call: RpcCall) -> Outcome:
    for each in (*call.arguments[:1], call.named.get("statement")):
        if isinstance(each, str):
            refuse_directories(each)
    return handler(call)
