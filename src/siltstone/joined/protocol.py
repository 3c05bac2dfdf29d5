"""Protocol: the words that both ends of a connection to an owner use.

    <verb>                                   of the store: [positional arguments, named arguments]
    table/<id>/<verb>                        of a table, now; or with one of these named:
         a transaction                           as the transaction sees it
         a snapshot                              at the snapshot's seq; <id> is the name
    transaction/begin                        ─▶ {id, seq};  transaction/<id>/<verb>
                                                 and `closed` (tables), if there are some
    turn                                     of a run: take, close, end, wait (`server.rpc.turns`)
    snapshot/open                            ─▶ {id, seq};  snapshot/<id>/<verb>
    hello                                    ─▶ who answers, and what it takes
    witness                                  ─▶ what the file WITNESS of the store has from now on

On the socket of an owner they travel in frames (`frames.frame`). At a server's URL they are the
paths of HTTP below /v1/joined, where hello and witness are GET, all others POST; what is named
beside the path is in headers.

A body is a message (`values`), or rows as one Arrow IPC stream: then they are the one argument.
Each answer carries the transaction id of the connection's next commit, which the request for it (a
statement, or the commit of a transaction) repeats.
"""

from __future__ import annotations

VERSION = 8
ARROW_TYPE = "application/vnd.apache.arrow.stream"
VALUES_TYPE = "application/vnd.msgpack"
ERROR_KEY = b"siltstone.error"
END_KEY = b"siltstone.end"

ADDRESSES = {"transaction": "transaction/begin", "snapshot": "snapshot/open"}
"""Where operations of the store are asked for whose address is not their name."""

SEQS_PATH = "/v1/follow?seqs=true"
"""What a server tells of its commits by itself."""

ID_HEADER = "x-siltstone-id"
TRANSACTION_HEADER = "x-siltstone-txn"
SNAPSHOT_HEADER = "x-siltstone-snapshot"
SEQ_HEADER = "x-siltstone-seq"

FRESH_S = 5.0
"""An id that was given out longer ago is replaced before a commit is asked for under it."""

BODY_BYTES_MAX = 256 << 20
"""The most that one request may carry; more goes in several calls of one transaction."""
