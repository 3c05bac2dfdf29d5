"""Serving: what answers others for an open store, and how it attaches itself to the stores.

    siltstone/__init__ ── attach ──▶ factories     names the modules; nothing is imported yet
    Store.serve, serve_local ── factories ──▶ import the server, an extra; make it

The stores know this module only. The server is above them and may not be installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Endpoint(Protocol):
    """Where other processes of the same user join an open store: a socket."""

    address: Path

    def close(self) -> None:
        """Stop answering; roll back what is open in joined processes."""
        ...


class Service(Protocol):
    """What answers clients over TCP."""

    url: str

    def close(self) -> None:
        """Answer the requests that have begun, roll back open transactions, and stop."""
        ...
