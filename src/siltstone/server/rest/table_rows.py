"""Table rows: the routes of rows, columns, tags and indexes of one table.

The operations are those of `lance_namespace.rows`, which this process calls in the same way. Here
is what is HTTP: members that stand in the address, rows that are sent as they are read (a whole
table costs no more memory than a batch), and the forms that LanceDB's remote client wants.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import msgspec

from siltstone.lance_namespace.rows import bodies
from siltstone.lance_namespace.rows.creation import PRIMARY_KEY
from siltstone.lance_namespace.rows.members import Count, RequestPart
from siltstone.lance_namespace.rows.operations import OFFERED, refuse_not_offered
from siltstone.lance_namespace.rows.queries import read
from siltstone.lance_namespace.rows.statements import collected
from siltstone.lance_versions.errors import invalid
from siltstone.server.http.replies import Pieces, Reply
from siltstone.server.http.route import Handler
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.lance_scope import LanceScope
from siltstone.server.rest.scope import RequestScope
from siltstone.server.rest.wire import arrow

_FLAGS = (
    *("when_matched_update_all", "when_not_matched_insert_all"),
    *("when_not_matched_by_source_delete", "use_index"),
)
_TEXTS = (
    *("when_not_matched_by_source_delete_filt", "when_matched_update_all_filt"),
    *("when_matched_delete", "timeout"),
)


class RowRoutes:
    """See the module. Any thread."""

    def __init__(self, scope: RequestScope) -> None:
        self._scope = scope

    def answered(self, operation: str) -> Handler:
        """Return the handler of an operation, by the name that the specification has for it."""

        def handler(call: RestCall[Any]) -> Reply[Any]:
            return Reply(*self._answered(call, operation))

        handler.__doc__ = OFFERED[operation].run.__doc__
        return handler

    def _answered(self, call: RestCall[Any], operation: str) -> tuple[Any, int | None]:
        scope = LanceScope(self._scope, call)
        return OFFERED[operation].run(scope, call.table, _asked(call))

    def _written(self, call: RestCall[None], operation: str, asked: RequestPart) -> Reply[Any]:
        """Answer a request whose body is rows."""
        refuse_not_offered(asked, call.query.get("branch"))
        scope = LanceScope(self._scope, call)
        return Reply(*OFFERED[operation].run(scope, call.table, asked, call.body))

    # reading

    def query(self, call: RestCall[bodies.QueryRequest]) -> Reply[Pieces]:
        """Return the rows that match, as an Arrow IPC file."""
        return self._rows(call, is_file=True)

    def scan(self, call: RestCall[bodies.QueryRequest]) -> Reply[Pieces]:
        """Return the rows that match, as an Arrow IPC stream."""
        return self._rows(call, is_file=False)

    def _rows(self, call: RestCall[bodies.QueryRequest], *, is_file: bool) -> Reply[Pieces]:
        with ExitStack() as held:
            reader, seq = read(LanceScope(self._scope, call), call.table, call.asked, held)
            if call.transaction:
                # The next statement of the transaction must not wait for this answer to be read.
                reader = collected(reader, self._scope.limits).to_reader()
                return Reply(arrow(reader, reader.close, is_file=is_file), seq)
            held.callback(reader.close)
            return Reply(arrow(reader, held.pop_all().close, is_file=is_file), seq)
        raise AssertionError

    def count(self, call: RestCall[bodies.CountRequest]) -> Reply[Count]:
        """Return how many rows there are, or how many match."""
        found, seq = self._answered(call, "count_table_rows")
        return Reply(found.count, seq)

    def explain(self, call: RestCall[bodies.ExplainRequest]) -> Reply[str]:
        """Return in words how a query is answered."""
        found, seq = self._answered(call, "explain_table_query_plan")
        return Reply(found.plan, seq)

    def analyze(self, call: RestCall[bodies.ExplainRequest]) -> Reply[str]:
        """Answer a query, and return in words how, and how many rows there were."""
        found, seq = self._answered(call, "analyze_table_query_plan")
        return Reply(found.plan, seq)

    def tags(self, call: RestCall[bodies.TablePageRequest]) -> Reply[bodies.TagsAnswer]:
        """Return the tags of a table, and the version that each names."""
        found, seq = self._answered(call, "list_table_tags")
        return Reply(found.tags if call.is_remote else found, seq)

    # writing

    def create(self, call: RestCall[None]) -> Reply[bodies.CreateTableAnswer]:
        """Create a table with the rows of an Arrow stream."""
        asked = bodies.CreateTableRequest(
            mode=call.query.get("mode"),
            properties=_properties(call),
            storage_options=call.query.get("storage_options"),
        )
        return self._written(call, "create_table", asked)

    def insert(self, call: RestCall[None]) -> Reply[bodies.InsertAnswer]:
        """Add the rows of an Arrow stream."""
        asked = bodies.InsertRequest(mode=call.query.get("mode"))
        return self._written(call, "insert_into_table", asked)

    def merge_insert(self, call: RestCall[None]) -> Reply[bodies.MergeInsertAnswer]:
        """Merge the rows of an Arrow stream: by the primary key, or by columns of a plain table."""
        on = [name for name in (call.query.get("on") or "").split(",") if name]
        if not on:
            raise invalid("on names the columns that say which rows are the same")
        flags: dict[str, Any] = {name: call.truth(name) for name in _FLAGS}
        texts: dict[str, Any] = {name: call.query.get(name) for name in _TEXTS}
        asked = bodies.MergeInsertRequest(on=on, **flags, **texts)
        return self._written(call, "merge_insert_into_table", asked)

    def update(self, call: RestCall[bodies.UpdateRequest]) -> Reply[bodies.UpdateAnswer]:
        """Set columns to SQL expressions in the rows that match."""
        found, seq = self._answered(call, "update_table")
        if call.is_remote:
            found.rows_updated = found.updated_rows
        return Reply(found, seq)


def _asked(call: RestCall[Any]) -> Any:
    """Return the body with the members that stand in the address."""
    asked = call.asked
    asked.id = list(call.named(asked.id))
    if isinstance(asked, bodies.TablePageRequest):
        page = call.paging()
        asked.page_token, asked.limit = page["page_token"], page["limit"]
    if isinstance(asked, bodies.IndexRequest):
        name = call.path["name"]
        if asked.index_name not in {None, name}:
            raise invalid(f"index_name is {asked.index_name!r:.80}, not that of the path")
        asked.index_name = name
    return asked


def _properties(call: RestCall[None]) -> dict[str, str]:
    """Return the properties of a new table; the query may also name its key alone."""
    text = call.query.get("properties") or call.headers.get("x-lance-table-properties")
    found: Any = {}
    if text:
        try:
            found = msgspec.json.decode(text)
        except msgspec.DecodeError:
            found = None
        if not isinstance(found, dict):
            raise invalid("properties is a JSON object of strings")
    found = {name: str(value) for name, value in found.items()}
    key = call.query.get(PRIMARY_KEY)
    return found | {PRIMARY_KEY: key} if key else found
