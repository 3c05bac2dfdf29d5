"""Tag routes: names of seqs, which are of the whole store, as versions of one table."""

from __future__ import annotations

from typing import cast

from siltstone.errors import TableNotFoundError
from siltstone.server.http.replies import Reply
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.names import table_of
from siltstone.server.rest.refusals import Code, Refused
from siltstone.server.rest.schemas import SetTagRequest, TagRequest
from siltstone.server.rest.scope import RequestScope
from siltstone.server.rest.versions import seq_of, version_at


class TagRoutes:
    """See the module. Any thread."""

    def __init__(self, scope: RequestScope) -> None:
        self._scope, self._served = scope, scope.served

    def list_all(self, call: RestCall) -> Reply:
        """Return the tags at which this table can be read."""
        name = table_of(call)
        found: dict[str, object] = {}
        for tag, seq in self._served.db.tags().items():
            try:
                version = version_at(self._served, name, seq)
            except TableNotFoundError:
                continue
            size = "manifestSize" if call.is_remote else "manifest_size"
            found[tag] = {"version": version, size: 0}
        with self._scope.reading(call) as face:
            _ = face[name].name
        return Reply(found if call.is_remote else {"tags": found})

    def version(self, call: RestCall) -> Reply:
        """Return the version that a tag names."""
        name, seq = table_of(call), self._tagged(cast("TagRequest", call.asked).tag)
        return Reply({"version": version_at(self._served, name, seq)}, seq)

    def create(self, call: RestCall) -> Reply:
        """Name a version."""
        return self._tag(call, is_new=True)

    def update(self, call: RestCall) -> Reply:
        """Let a tag name another version."""
        return self._tag(call, is_new=False)

    def _tag(self, call: RestCall, *, is_new: bool) -> Reply:
        name, asked = table_of(call), cast("SetTagRequest", call.asked)
        tag = asked.tag
        if is_new and tag in self._served.db.tags():
            raise Refused(Code.TAG_EXISTS, f"tag {tag!r} names a seq already")
        if not is_new:
            self._tagged(tag)
        seq = seq_of(self._served, name, asked.version)
        return Reply({}, self._served.db.tag(tag, seq).seq)

    def delete(self, call: RestCall) -> Reply:
        """Forget a tag."""
        tag = cast("TagRequest", call.asked).tag
        _ = self._served.db[table_of(call)]
        self._tagged(tag)
        return Reply({}, self._served.db.untag(tag).seq)

    def _tagged(self, tag: str) -> int:
        found = self._served.db.tags().get(tag)
        if found is None:
            raise Refused(Code.TAG_NOT_FOUND, f"no tag {tag[:128]!r}")
        return found
