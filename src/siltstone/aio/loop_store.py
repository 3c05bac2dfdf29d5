"""Loop store: what the handles of one awaited store share."""

from __future__ import annotations

from dataclasses import dataclass

from siltstone.aio.commits import GroupCommits
from siltstone.aio.threads import Threads
from siltstone.api import store
from siltstone.joined.news.server_news import ServerNews
from siltstone.local.loop_commits import News


@dataclass(frozen=True, slots=True)
class LoopStore:
    """See the module. `groups`: its commits, where this process owns the store; else None.

    `news`: where that, or the server that is asked, tells of commits.
    """

    db: store.Store
    threads: Threads
    groups: GroupCommits | None
    news: News | ServerNews | None
