"""Moments: the seq that a seq, a time or a tag names, in one state of the store."""

from __future__ import annotations

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.commit.core import Core
from siltstone.engine.read.kept import readable
from siltstone.engine.read.moment import refuse_future, time_us_of
from siltstone.engine.read.view import State
from siltstone.errors import RequestError, no_such


def seq_of(core: Core, state: State, moment: object) -> int:
    """Return the seq that a moment names: a seq, a time with a zone, or a tag; a text may be both.

    Raises:
        RequestError: It has another type, or is a text that is no tag, and no time with a zone.
        SnapshotExpiredError: It is not kept, or in the future.
    """
    if isinstance(moment, int) or moment is None:
        return readable(state, moment, core.readers)
    if isinstance(moment, str) and moment in catalogs.store_tags(state.view.catalog):
        return readable(state, seq_of_tag(state, moment), core.readers)
    try:
        return readable(state, seq_at(core, state, moment), core.readers)
    except RequestError as error:
        if type(error) is not RequestError or not isinstance(moment, str):
            raise
        tags = sorted(catalogs.store_tags(state.view.catalog))
        raise RequestError(f"{no_such('tag', moment, tags)}; and as a time: {error}") from error


def names_given(tables: object) -> list[str]:
    """Return names of tables that a caller gave: a list of them, or one.

    Raises:
        RequestError: It is something else.
    """
    names = [tables] if isinstance(tables, str) else tables
    if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
        raise RequestError(f"tables must be a list of names; got {tables!r:.80}")
    return list(dict.fromkeys(names))


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
