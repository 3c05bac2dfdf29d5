"""Limits: what one client, and all of them together, may cost the server."""

from __future__ import annotations

from dataclasses import dataclass

from siltstone.lance_namespace.limits import RowLimits
from siltstone.server.shipped_waits import SHIPPED_WAITS_MAX


@dataclass(frozen=True, slots=True)
class Limits(RowLimits):
    """Bytes, counts and seconds. At a limit a request is refused, never cut."""

    body_bytes_max: int = 256 << 20
    json_bytes_max: int = 16 << 20
    bodies_bytes_max: int = 1 << 30
    """All bodies that are inside at once."""
    operations_max: int = 1_000
    """Of one `transaction/apply` or batch."""
    header_bytes_max: int = 64 << 10
    header_timeout_s: float = 10.0
    """How long a connection may take to send the head of a request."""
    idle_timeout_s: float = 75.0
    """How long a connection that was answered may send nothing of its next request."""
    body_timeout_s: float = 30.0
    """How long a client may send nothing of a body, or read nothing of an answer."""
    statement_timeout_s: float = 300.0
    """How long a statement may read and think; looked at between batches, and before it commits."""
    answer_timeout_s: float = 3_600.0
    """How long an answer of rows may take in all, however fast the client reads."""
    connections_max: int = 512
    requests_max: int = 256
    threads: int = 32
    shipped_waits_max: int = SHIPPED_WAITS_MAX
    """Requests that wait for a bucket at once: each holds a thread, the others go on."""
    statements_max: int = 4
    """SQL statements that run at once."""
    token_statements_max: int = 2
    """Those of one access token."""
    unread_rows_s: float = 30.0
    """How long the rows of a statement may be left unread while others wait."""
    waiting_statements_max: int = 64
    token_waiting_statements_max: int = 16
    transactions_max: int = 256
    idle_s: float = 60.0
    """A transaction that is left alone for longer is rolled back."""
    jobs_max: int = 4
    """Maintenance jobs that run or wait."""
    finished_jobs_max: int = 256
    ended_transactions_max: int = 4_096
    graceful_s: float = 10.0
    """How long a stop waits for answers on their way."""
