"""Sent commits: transactions that ran in other processes, which this one commits as the owner.

Any thread. What is sent, and what comes back, is said in `engine.write.sent_writes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.commit.write_set import Receipt, WriteSet
from siltstone.engine.write import sent_writes
from siltstone.errors import RequestError

if TYPE_CHECKING:
    from siltstone.engine.commit.core import Core
    from siltstone.engine.write.transaction import EngineTransaction

WINDOW_BYTES = 8 << 20
"""So many recent writes are remembered for transactions that began elsewhere, while there may be
some. What is older is looked for in history, which takes a tenth of a millisecond and more."""


class SentCommits:
    """See the module."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def expect(self, *, is_joined: bool) -> None:
        """Hear whether other processes are joined, so that such transactions may come."""
        self._core.recent.window_bytes = WINDOW_BYTES if is_joined else 0

    def few(self, body: object) -> WriteSet | None:
        """Return what is sent if it is a few rows that a group may commit; None: it goes alone.

        It has no number yet. Errors as of `commit`.
        """
        state = self._core.state()
        made = sent_writes.decode(_bytes(body), 0, state.view.catalog)
        floor, read_seq = self._core.recent.floor, made.read_seq or 0
        return made if made.few is not None and floor <= read_seq <= state.visible else None

    def commit(
        self, body: object, number: int, closed: frozenset[str] = frozenset()
    ) -> Receipt | sent_writes.Recheck | list[str]:
        """Commit what is sent under a number; return the `closed` tables that it wrote instead.

        Raises:
            RequestError: It is nothing that can be committed.
            ConflictError: Another commit won; the sender may run its transaction again.
        """
        core = self._core
        core.writer()
        catalog = core.state().view.catalog
        made = sent_writes.decode(_bytes(body), number, catalog)
        written = {catalogs.name_of(catalogs.owner_of(catalog, p.incarnation)) for p in made.parts}
        return sorted(written & closed) or sent_writes.commit(core, made)


def adopt(tx: EngineTransaction, body: object) -> None:
    """Go on in `tx` with a transaction that another process began at the same seq."""
    sent_writes.adopt(tx, _bytes(body))


def numbered(write_set: WriteSet, number: int) -> WriteSet:
    """Return a write set under the number of its commit."""
    return msgspec.structs.replace(write_set, number=number)


def _bytes(body: object) -> bytes:
    if not isinstance(body, bytes):
        raise RequestError(f"the writes of a transaction are bytes, not {type(body).__name__}")
    return body
