"""Loop store: what the handles of one awaited store share."""

from __future__ import annotations

from dataclasses import dataclass

from siltstone.aio.commits import GroupCommits
from siltstone.aio.threads import Threads
from siltstone.api import store
from siltstone.local.loop_commits import News


@dataclass(frozen=True, slots=True)
class LoopStore:
    """See the module. `groups`: its commits, where this process owns the store; else None.

    `news`: where that tells of commits.
    """

    db: store.Store
    threads: Threads
    groups: GroupCommits | None
    news: News | None
