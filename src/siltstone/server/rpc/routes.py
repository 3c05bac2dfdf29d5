"""Routes of joined processes: an address for each operation, and one for those that do not exist.

The table of operations says which role each needs, and whether it may be given up. A verb that does
not exist needs the highest role, and is answered with the ones that do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial

from siltstone.joined import protocol
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
    prefix: str, served: Served, sessions: Sessions, pipeline: Pipeline
) -> tuple[Pipeline, list[Route]]:
    """Return the pipeline with the routes of all operations below `prefix`."""
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
        *_posts(Face.STORE, prefix, calls.of_store),
        *_posts(_TABLE, f"{prefix}/table/{{table}}", calls.of_table),
        *_posts(Face.TRANSACTION, f"{prefix}/transaction/{{key}}", calls.of_transaction),
        *_posts(Face.SNAPSHOT, f"{prefix}/snapshot/{{key}}", calls.of_snapshot),
    ]


def _posts(face: Face, at: str, handler: RpcHandler) -> Iterable[Route]:
    for name, found in of_face(face).items():
        path, is_timed = f"{at}/{protocol.ADDRESSES.get(name, name)}", found.effect is Effect.READ
        is_read = is_timed and (found.codec is not Codec.VALUE or name == "count")
        yield _POST(
            path,
            found.role,
            handler,
            name=name,
            is_timed=is_timed,
            is_read=is_read,
            is_statement=found.is_statement,
        )
    yield _POST(f"{at}/{{verb}}", Role.ADMIN, handler)  # refuses what does not exist
