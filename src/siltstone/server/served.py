"""Served: a store as its server uses it: statements under ids that are known before they run.

An id (`<epoch>-<number>`) is given out before a commit is asked for, so that a client whose answer
is lost can ask `outcome`. Nothing leaves the process before it is durable: `settle` stands between
each call and its answer.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from siltstone.engine.core import Core
from siltstone.handles import Table
from siltstone.store import Store
from siltstone.wiring import Parts


@dataclass(frozen=True, slots=True)
class Served:
    """See the module. Any thread."""

    db: Store
    parts: Parts

    def reserve(self) -> str:
        """Return a transaction id that no commit has and none but its holder will get."""
        core = self.parts.core
        return f"{core.state().view.record.epoch}-{next(core.numbers)}"

    def settle(self) -> None:
        """Make all that a call may have seen durable: what is answered survives a power loss."""
        self.parts.core.writer().sync()

    def table(self, table_id: int, transaction_id: str) -> Table:
        """Return a table whose next statement commits under `transaction_id`."""
        return Table(
            self._core(transaction_id), table_id, self.numbered(transaction_id).transaction
        )

    def numbered(self, transaction_id: str) -> Store:
        """Return the store for one statement, which commits under `transaction_id`."""
        parts = replace(self.parts, core=self._core(transaction_id))
        return Store(self.db.path, self.db.options, parts)

    def _core(self, transaction_id: str) -> Core:
        number = int(transaction_id.partition("-")[2])
        return replace(self.parts.core, numbers=itertools.repeat(number))
