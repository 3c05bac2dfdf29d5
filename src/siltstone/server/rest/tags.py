"""Tags: the routes of the tags of one table, which name its versions.

A tag keeps the seq at which the table has the version, as a tag of the store does: the catalog has
it as `#<table id>/<name>`. So it follows its table when that is renamed, and goes with it. The
store's own tags are not among them. Lock: a turn of each table, so that of two that create the same
tag one finds the other.
"""

from __future__ import annotations

from typing import Any, cast

from siltstone.engine.catalog import catalog as catalogs
from siltstone.formats.manifest import Catalog
from siltstone.lance_namespace import requests
from siltstone.lance_namespace.turns import Turns
from siltstone.local.transaction import LocalTransaction
from siltstone.server.http.replies import Reply
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.refusals import Code, Refused, invalid
from siltstone.server.rest.scope import RequestScope
from siltstone.server.rest.versions import seq_of, version_in

_NAME_MAX = 128


class TagRoutes:
    """See the module. Any thread."""

    def __init__(self, scope: RequestScope) -> None:
        self._scope, self._served, self._turns = scope, scope.served, Turns()

    def list_all(self, call: RestCall[bodies.TablePageRequest]) -> Reply[bodies.TagsAnswer]:
        """Return the tags of a table, and the version that each names."""
        page = requests.page(sorted(self._tags(call).items()), call.paging(), "tags")
        found = {tag: self._shown(call, seq) for tag, seq in page["tags"]}
        if not call.is_remote:
            return Reply(bodies.TagsAnswer(found, page.get("page_token")))
        return Reply(cast("Any", found))

    def version(self, call: RestCall[bodies.TagRequest]) -> Reply[bodies.VersionAnswer]:
        """Return the version that a tag names."""
        seq = _seq_at(self._tags(call), call.asked.tag)
        return Reply(bodies.VersionAnswer(self._shown(call, seq).version), seq)

    def create(self, call: RestCall[bodies.SetTagRequest]) -> Reply[bodies.NoMembers]:
        """Name a version."""
        return self._set(call, is_new=True)

    def update(self, call: RestCall[bodies.SetTagRequest]) -> Reply[bodies.NoMembers]:
        """Let a tag name another version."""
        return self._set(call, is_new=False)

    def delete(self, call: RestCall[bodies.TagRequest]) -> Reply[bodies.NoMembers]:
        """Forget a tag."""
        name, tag = call.table, call.asked.tag

        def work(tx: LocalTransaction) -> None:
            _seq_at(_tags_of(tx.catalog, name), tag)
            tx.lance.tag_table(name, tag, None)

        with self._turns.of(name):
            return Reply(bodies.NoMembers(), self._scope.write(call, work, None)[1])

    def _set(
        self, call: RestCall[bodies.SetTagRequest], *, is_new: bool
    ) -> Reply[bodies.NoMembers]:
        name, tag = call.table, call.asked.tag
        if len(tag) > _NAME_MAX:
            raise invalid(f"a tag is 1 to {_NAME_MAX} characters; this one is {len(tag)}")

        def work(tx: LocalTransaction) -> None:
            known = _tags_of(tx.catalog, name)
            if not is_new:
                _seq_at(known, tag)
            elif tag in known:
                raise Refused(
                    Code.TAG_EXISTS, f"tag {tag!r} of table {name!r} names a version already"
                )
            tx.lance.tag_table(name, tag, seq)

        with self._turns.of(name):
            seq = seq_of(self._served, name, call.asked.version)
            # No vacuum takes it before the tag is there.
            kept = self._served.db.snapshot(seq=seq)
            with self._served.parts.core.until_known(kept):
                return Reply(bodies.NoMembers(), self._scope.write(call, work, None)[1])

    def _tags(self, call: RestCall[Any]) -> dict[str, int]:
        name = call.table
        with self._scope.reading(call) as face:
            table = face[name].name
            if isinstance(face, LocalTransaction):
                return _tags_of(face.catalog, table)
        catalog = self._served.parts.core.state().view.catalog
        return _tags_of(catalog, name)

    def _shown(self, call: RestCall[Any], seq: int) -> bodies.TaggedVersion:
        """Return a version as the specification has it; of a keyed table no manifest is one."""
        found = catalogs.find(self._served.parts.core.state().view.catalog, call.table)
        pin = None
        if not catalogs.schema_of(found, seq).key:
            pin = catalogs.version_of(catalogs.incarnation_of(found, seq), seq)
        return bodies.TaggedVersion(version_in(found, seq), 0 if pin is None else pin.pin.size)


def _seq_at(tags: dict[str, int], tag: str) -> int:
    if tag not in tags:
        raise Refused(Code.TAG_NOT_FOUND, f"this table has no tag {tag[:_NAME_MAX]!r}")
    return tags[tag]


def _tags_of(catalog: Catalog, table: str) -> dict[str, int]:
    return catalogs.tags_of_table(catalog, catalogs.find(catalog, table).id)
