"""Moments: the seq that a seq, a time or a tag names, in one state of the store."""

from __future__ import annotations

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.commit.core import Core
from siltstone.engine.read.moment import refuse_future, time_us_of
from siltstone.engine.read.view import State
from siltstone.errors import RequestError, no_such


def seq_at(core: Core, state: State, moment: object) -> int:
    """Return the seq of the last commit by a time, at most the newest that `state` has.

    Raises:
        RequestError: It is no time, or has no zone.
        SnapshotExpiredError: It is in the future.
    """
    time_us, commits = time_us_of(moment), core.commits
    refuse_future(
        moment,
        time_us,
        now_us=max(core.site.now_us(), commits.last_time_us(state)),
        oldest=state.view.record.oldest_seq,
        newest=state.visible,
    )
    return min(commits.seq_at(state, time_us), state.visible)


def seq_of_tag(state: State, tag: str) -> int:
    """Return the seq of a tag.

    Raises:
        RequestError: There is none of that name.
    """
    tags = catalogs.store_tags(state.view.catalog)
    if tag not in tags:
        raise RequestError(no_such("tag", tag, sorted(tags)))
    return tags[tag]
