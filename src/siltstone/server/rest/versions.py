"""Versions: the number that the specification calls a table's version, and the tags of versions.

Of a plain table it is the number of its Lance version; of a keyed one, which moves with every row,
the seq of the store. Either leads back to a seq at which the table can be read. Tags name seqs,
which are of the whole store.
"""

from __future__ import annotations

import contextlib
from typing import Any, cast

from siltstone.engine.catalog import catalog as catalogs
from siltstone.errors import TableNotFoundError
from siltstone.formats.manifest import TableDefinition
from siltstone.server.http.replies import Reply
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.refusals import Code, Refused
from siltstone.server.rest.scope import RequestScope
from siltstone.server.served import Served


def version_at(served: Served, table: str, seq: int) -> int:
    """Return the version that a table has at a seq that its catalog has seen."""
    found = catalogs.find(served.parts.core.state().view.catalog, table, seq)
    if catalogs.schema_of(found, seq).key:
        return seq
    version = catalogs.version_of(catalogs.incarnation_of(found, seq), seq)
    return 0 if version is None else version.pin.version


def version_now(served: Served, table: str, seq: int | None) -> int:
    """Return the version that a statement made; in a transaction there is none yet."""
    try:
        return 0 if seq is None else version_at(served, table, seq)
    except TableNotFoundError:  # made, or named so, by the transaction that asks
        return 0


def seq_of(served: Served, table: str, version: int) -> int:
    """Return the newest seq at which a table has a version.

    Raises:
        Refused: It has no such version, or not any more.
    """
    state = served.parts.core.state()
    found = catalogs.find(state.view.catalog, table)
    if catalogs.schema_of(found).key:
        if version > state.visible or version < found.created:
            raise _unknown(table, version)
        return version
    return _plain_seq(found, table, version, state.visible)


def _plain_seq(found: TableDefinition, table: str, version: int, visible: int) -> int:
    versions = catalogs.incarnation_of(found).versions
    until = visible
    for known in reversed(versions):
        if known.pin.version == version and known.seq > until:
            text = f"version {version} of {table!r} is a step within a commit: read the next one"
            raise Refused(Code.VERSION_NOT_FOUND, text)
        if known.pin.version == version:
            return until
        until = known.seq - 1
    if version == 0 and until >= found.created:
        return until
    raise _unknown(table, version)


def _unknown(table: str, version: int) -> Refused:
    return Refused(Code.VERSION_NOT_FOUND, f"table {table!r} has no version {version}")


class TagRoutes:
    """The routes of tags. Any thread."""

    def __init__(self, scope: RequestScope) -> None:
        self._scope, self._served = scope, scope.served

    def list_all(self, call: RestCall[bodies.TableRequest]) -> Reply[bodies.TagsAnswer]:
        """Return the tags at which this table can be read."""
        name, found = call.table, dict[str, bodies.TaggedVersion]()
        for tag, seq in self._served.db.tags().items():
            with contextlib.suppress(TableNotFoundError):
                found[tag] = bodies.TaggedVersion(version_at(self._served, name, seq), 0)
        with self._scope.reading(call) as face:
            _ = face[name].name
        if not call.is_remote:
            return Reply(bodies.TagsAnswer(found))
        shown = {tag: {"version": one.version, "manifestSize": 0} for tag, one in found.items()}
        return Reply(cast("Any", shown))

    def version(self, call: RestCall[bodies.TagRequest]) -> Reply[bodies.VersionAnswer]:
        """Return the version that a tag names."""
        name, seq = call.table, self._tagged(call.asked.tag)
        return Reply(bodies.VersionAnswer(version_at(self._served, name, seq)), seq)

    def create(self, call: RestCall[bodies.SetTagRequest]) -> Reply[bodies.NoMembers]:
        """Name a version."""
        tag = call.asked.tag
        if tag in self._served.db.tags():
            raise Refused(Code.TAG_EXISTS, f"tag {tag!r} names a seq already")
        return self._tag(call)

    def update(self, call: RestCall[bodies.SetTagRequest]) -> Reply[bodies.NoMembers]:
        """Let a tag name another version."""
        self._tagged(call.asked.tag)
        return self._tag(call)

    def _tag(self, call: RestCall[bodies.SetTagRequest]) -> Reply[bodies.NoMembers]:
        seq = seq_of(self._served, call.table, call.asked.version)
        return Reply(bodies.NoMembers(), self._served.db.tag(call.asked.tag, seq).seq)

    def delete(self, call: RestCall[bodies.TagRequest]) -> Reply[bodies.NoMembers]:
        """Forget a tag."""
        tag = call.asked.tag
        _ = self._served.db[call.table]
        self._tagged(tag)
        return Reply(bodies.NoMembers(), self._served.db.untag(tag).seq)

    def _tagged(self, tag: str) -> int:
        found = self._served.db.tags().get(tag)
        if found is None:
            raise Refused(Code.TAG_NOT_FOUND, f"no tag {tag[:128]!r}")
        return found
