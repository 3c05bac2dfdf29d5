"""Tables: the routes that list, describe, drop and rename tables."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from operator import methodcaller

from siltstone.errors import UnavailableError
from siltstone.lance_namespace import requests
from siltstone.lance_namespace.rows.bodies import NoMembers, TableRequest
from siltstone.lance_namespace.rows.creation import PRIMARY_KEY, place_of, root_of
from siltstone.lance_namespace.rows.version_numbers import past_of, version_now
from siltstone.lance_namespace.scope import location_of, seq_shown
from siltstone.lance_versions.errors import invalid
from siltstone.local.transaction import LocalTransaction
from siltstone.server.http.replies import Reply
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.arrow_schemas import schema_json
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.lance_scope import LanceScope
from siltstone.server.rest.namespaces import NamespaceRoutes
from siltstone.server.rest.scope import Face, RequestScope

PAGE_MAX = 10_000


class TableRoutes:
    """See the module. Any thread."""

    def __init__(self, scope: RequestScope, spaces: NamespaceRoutes) -> None:
        self._scope, self._spaces = scope, spaces
        self._served = scope.served

    # looking

    def list_all(self, call: RestCall[None]) -> Reply[bodies.TablesAnswer]:
        """Return the names of all tables, a page at a time."""
        with self._scope.reading(call) as face:
            names = face.tables()
            if call.query.get("include_declared") and not call.truth("include_declared"):
                names = [name for name in names if len(face[name].schema)]
            return Reply(_page(names, call), seq_shown(face))

    def describe(self, call: RestCall[bodies.DescribeTableRequest]) -> Reply[bodies.TableAnswer]:
        """Return where a table is, its version and its columns."""
        if not call.is_remote:
            return self._spaces.table(call)
        name, version, core = call.table, call.asked.version, self._served.parts.core
        with self._scope.reading(call) as face:
            seq, table = seq_shown(face), face[name]
            schema = table.schema
            if version is None:
                version = version_now(core, name, seq)
            else:
                past = past_of(core, name, version)
                seq = past.seq
                with self._served.db.snapshot(seq=seq) as snapshot:
                    schema = snapshot[past.name].schema
            found = bodies.TableAnswer(
                table=requests.ids_of(name)[-1],
                namespace=requests.ids_of(name)[:-1],
                location=location_of(LanceScope(self._scope, call), self._shown(face, name)),
                properties={PRIMARY_KEY: ",".join(table.primary_key)},
                is_only_declared=False,
                version=version,
                schema=schema_json(schema, is_remote=True),
            )
            return Reply(found, seq)

    def _shown(self, face: Face, name: str) -> str:
        """Return the folder of a table, for a client that opens it by its path.

        There a version of a plain table has a name from the next checkpoint on, or from now.
        """
        seen = face.lance.versions(name)
        if not seen.is_keyed and seen.committed:
            with suppress(UnavailableError):  # it opens an older one, as every reader of a path
                newest = seen.committed[-1].pin
                self._served.parts.core.tables.names.show(seen.folder, [newest])
        return seen.folder

    def exists(self, call: RestCall[bodies.TableExistsRequest]) -> Reply[bytes]:
        """Answer nothing, or that there is no such table, or not in that version."""
        with self._scope.reading(call) as face:
            _ = face[call.table].name
            if call.asked.version is not None:
                past_of(self._served.parts.core, call.table, call.asked.version)
            return Reply(b"", seq_shown(face))

    # changing

    def drop(self, call: RestCall[TableRequest]) -> Reply[bodies.DropTableAnswer]:
        """Drop a table with its rows; older snapshots still see it."""
        name = call.table

        scope = LanceScope(self._scope, call)

        def work(tx: LocalTransaction) -> str:
            location = place_of(scope, tx, name)
            tx.drop_table(name)
            return location

        location, seq = self._scope.write(call, work, root_of(scope))
        return Reply(bodies.DropTableAnswer(list(call.named()), location), seq)

    def rename(self, call: RestCall[bodies.RenameTableRequest]) -> Reply[NoMembers]:
        """Rename a table, in its namespace or into the one that is named."""
        name, asked = call.table, call.asked
        members = {
            "new_table_name": asked.new_table_name,
            "new_namespace_id": asked.new_namespace or None,
        }
        if asked.new_namespace_id is not None:
            if asked.new_namespace and asked.new_namespace != asked.new_namespace_id:
                raise invalid("new_namespace and new_namespace_id name two namespaces: give one")
            members["new_namespace_id"] = asked.new_namespace_id
        rename = methodcaller("rename_table", name, requests.renamed(name, members))
        return Reply(NoMembers(), self._scope.write(call, rename, None)[1])


def _page(names: Sequence[str], call: RestCall[None]) -> bodies.TablesAnswer:
    """Return the names after the page token, which is the last name of the page before."""
    after = call.query.get("page_token") or ""
    most = min(call.number("limit") or PAGE_MAX, PAGE_MAX)
    left = [name for name in sorted(names) if name > after]
    token = left[most - 1] if len(left) > most else None
    return bodies.TablesAnswer(left[:most], page_token=token)
