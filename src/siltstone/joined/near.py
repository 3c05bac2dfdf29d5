"""Near: the files of a joined store, as this process reads them itself, without its owner.

One follower for all handles of the process reads the owner's log (`engine.recover.nearby`). Each
handle has a store that only reads, whose calls are those of any store; where the follower says
`AskOwner`, the call goes to the owner (`remote.near_first`).

A commit of this process that was not synced is above MARK. The next read of the process must see
it, so it first asks the owner for its durable seq, which the owner syncs its log for. If the owner
is gone, this process reads the log to its end, as one that has no owner does: the commit is there,
or it was lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from siltstone.engine.read.view import State
from siltstone.engine.recover.nearby import Nearby
from siltstone.errors import SiltstoneError, UnavailableError
from siltstone.joined.connection_pool import ConnectionPool
from siltstone.local.store import LocalStore
from siltstone.open.shared import beside
from siltstone.operations import Face, operation
from siltstone.options import Options


@dataclass(frozen=True, slots=True)
class _States:
    """What a read of one handle sees."""

    nearby: Nearby
    pool: ConnectionPool

    def state(self) -> State:
        found = self.nearby.state()
        return found if found.visible >= self.nearby.awaited_seq else self._synced()

    def _synced(self) -> State:
        awaited = self.nearby.awaited_seq
        try:
            self.pool.call(operation(Face.STORE, "durable_seq"), "", (), {})
        except UnavailableError:
            return self.nearby.alone()
        found = self.nearby.state()
        if found.visible < awaited == self.nearby.awaited_seq:
            self.nearby.awaited_seq = 0  # another owner, and the commit was lost: it was not synced
        return found


@dataclass(frozen=True, slots=True)
class Near:
    """See the module; `db` is the store that only reads."""

    db: LocalStore
    nearby: Nearby

    @classmethod
    def of(cls, pool: ConnectionPool, root: Path, options: Options) -> Near | None:
        """Return the files of a store that was joined; None: its owner is asked for all."""
        found = beside(root, options) if options.followed_bytes_max else None
        if found is None:
            return None
        opened, number = found
        nearby = opened.parts.follower
        assert isinstance(nearby, Nearby)
        db = LocalStore(opened, number)
        db.core.state = _States(nearby, pool).state
        return cls(db, nearby)

    def look(self) -> bool:
        """Read the files, however long that takes; say whether they could be read."""
        try:
            self.nearby.newest()
        except SiltstoneError:
            return False
        return True

    def committed(self, seq: int) -> None:
        """Hear of a commit of this process, which its next read is to see."""
        self.nearby.awaited_seq = max(seq, self.nearby.awaited_seq)
