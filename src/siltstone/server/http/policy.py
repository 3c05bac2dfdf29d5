"""Policy: what one use of the pipeline allows, in bytes, counts and seconds.

The socket of this user and REST over TCP run the same code; all that differs is here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """Bounds and manners of requests. At a bound a request is refused, never cut."""

    body_bytes_max: int
    json_bytes_max: int
    """The same for bodies that are JSON."""
    bodies_bytes_max: int
    """All bodies that are inside at once."""
    body_timeout_s: float
    """How long a client may send nothing of a body."""
    requests_max: int
    statement_timeout_s: float | None
    """How long a route that is timed may run; None is for ever."""
    send_timeout_s: float | None = None
    """How long a client may read nothing of an answer."""
    answer_timeout_s: float | None = None
    """How long an answer of rows may take in all, however fast the client reads."""
    piece_timeout_s: float | None = None
    """How long each piece of an answer may take to be read, if the whole has no time."""
    reads_ahead: bool = True
    """Whether the next piece of an answer is read while one is sent."""
    takes_chunks: bool = True
    """Whether a body may come without its length."""
    drains: bool = False
    """A body that finds no room is read to its end and dropped: the connection carries a
    transaction, and a client that tries again later needs it. Then a request counts against
    `requests_max` once its body is whole."""


@dataclass(frozen=True, slots=True)
class LanePolicy:
    """Bounds of the SQL statements of one server, in all and for each client with a token."""

    running_max: int = 4
    running_per_client_max: int = 2
    waiting_max: int = 64
    waiting_per_client_max: int = 16
    send_timeout_s: float = 300.0
    """How long a client may read nothing of a result."""
    unread_s: float = 30.0
    """How long it may do so while other statements wait for its turn. PostgreSQL gives a query that
    holds others up on a standby as long (`max_standby_streaming_delay`)."""
    answer_timeout_s: float = 3_600.0
    """How long the rows of a result may take in all."""


@dataclass(frozen=True, slots=True)
class ListenerPolicy:
    """Bounds and manners of a listening socket and its connections."""

    name: str
    """Of its threads."""
    graceful_s: float
    """How long a stop waits for answers on their way."""
    sweep_every_s: float
    connections_max: int | None = None
    """Of connections above it some are cut, see `connections`; None: each is a session, and those
    are bounded."""
    health_path: str | None = None
    """What a few connections above the bound may ask for."""
    header_bytes_max: int = 64 << 10
    header_timeout_s: float | None = None
    """How long a connection without a session may take to send the head of a request."""
    idle_timeout_s: float = 75.0
    """How long one that was answered may send nothing of its next request."""
    bad_request_code: int = 400
    """The `code` in the answer to bytes that are not HTTP."""
    busy_code: int = 429
    """The `code` in the answer to a request that finds too many connections."""
