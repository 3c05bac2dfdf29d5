"""Indexes: the routes that declare, list and drop indexes of keyed tables, in Lance's words.

    BTREE BITMAP FTS (or INVERTED) IVF_FLAT IVF_SQ IVF_PQ      the kinds that a client asks for

Indexes are maintenance: they change no result, so they are no part of a transaction. Lance clients
make those of a plain table, and commit them as versions.
"""

from __future__ import annotations

from typing import Any, cast

from siltstone import deadline
from siltstone.api.results import IndexStatus
from siltstone.api.tables import Table
from siltstone.lance_namespace import requests
from siltstone.server.http.replies import Reply
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.refusals import Code, Refused, invalid, no_column, unsupported
from siltstone.server.served import Served

_VECTOR = {"IVF_FLAT": "flat", "IVF_SQ": "sq", "IVF_PQ": "pq"}
_KINDS = {"BTREE": "btree", "BITMAP": "bitmap", "FTS": "fts", "INVERTED": "fts"}
_NAMES = {"btree": "BTREE", "bitmap": "BITMAP", "fts": "FTS"}
_WORDS = (
    *("language", "base_tokenizer", "stem", "lower_case"),
    *("remove_stop_words", "ascii_folding", "with_position"),
)

_VECTOR_WORDS = ("distance_type", "metric_type", "num_partitions", "num_sub_vectors")


class IndexRoutes:
    """See the module. Any thread."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def create(self, call: RestCall[bodies.CreateIndexRequest]) -> Reply[bodies.NoMembers]:
        """Declare an index and build it over what is merged."""
        _refuse_scope(call)
        asked, table = call.asked, self._keyed(call)
        column, name = asked.column, asked.name
        if column not in table.schema.names:
            raise no_column(table.name, column)
        kind, options = _kind_of(asked)
        if any(index.name == (name or column) for index in table.indexes()):
            raise Refused(Code.INDEX_EXISTS, f"{name or column}"[:200])
        with deadline.within(None):  # maintenance, like a job: large bases take minutes
            table.create_index(column, kind, name=name, **options)
        return Reply(bodies.NoMembers())

    def list_all(self, call: RestCall[bodies.IndexesRequest]) -> Reply[bodies.IndexesAnswer]:
        """Return the indexes of a table, and how far they are behind."""
        table = self._keyed(call)
        rows = table.count()
        found = [_shown(index, rows) for index in table.indexes()]
        page = requests.page(found, call.paging(), "indexes")
        return Reply(bodies.IndexesAnswer(page["indexes"], page.get("page_token")))

    def stats(self, call: RestCall[bodies.IndexRequest]) -> Reply[bodies.IndexStatsAnswer]:
        """Return how many rows an index has, and how many it lacks."""
        table = self._keyed(call)
        found = _shown(self._named(table, call), table.count())
        rows = found.num_indexed_rows, found.num_unindexed_rows
        kind, distance = found.index_type, found.distance_type
        return Reply(bodies.IndexStatsAnswer(kind, distance, *rows, found.num_segments))

    def drop(self, call: RestCall[bodies.IndexRequest]) -> Reply[bodies.NoMembers]:
        """Give an index up."""
        _refuse_scope(call)
        table = self._keyed(call)
        index = self._named(table, call)
        with deadline.within(None):
            table.drop_index(index.name)
        return Reply(bodies.NoMembers())

    def _named(self, table: Table, call: RestCall[bodies.IndexRequest]) -> IndexStatus:
        name = call.path["name"]
        if call.asked.index_name not in {None, name}:
            raise invalid(f"index_name is {call.asked.index_name!r:.80}, not that of the path")
        for index in table.indexes():
            if index.name == name:
                return index
        raise Refused(Code.INDEX_NOT_FOUND, name[:200])

    def _keyed(self, call: RestCall[Any]) -> Table:
        table = self._served.db[call.table]
        if not table.primary_key:
            raise unsupported(_OF_LANCE)
        return table


_OF_LANCE = "the indexes of a table without a primary key are made, and listed, by Lance clients"


def _refuse_scope(call: RestCall[Any]) -> None:
    if call.transaction or call.snapshot:
        raise invalid("an index is no part of a transaction or snapshot: ask without their header")


def _kind_of(asked: bodies.CreateIndexRequest) -> tuple[str, dict[str, Any]]:
    text = asked.index_type
    kind = text.upper() if isinstance(text, str) else ""
    for words, is_of in ((_VECTOR_WORDS, kind in _VECTOR), (_WORDS, _KINDS.get(kind) == "fts")):
        given = [word for word in words if getattr(asked, word) is not None]
        if given and not is_of and (kind in _VECTOR or kind in _KINDS):
            raise invalid(f"an index {kind} has no {', '.join(given)}")
    if kind in _VECTOR:
        metric = asked.distance_type or asked.metric_type
        options = {
            "encoding": _VECTOR[kind],
            "metric": metric and metric.lower(),
            "partitions": asked.num_partitions,
            "sub_vectors": asked.num_sub_vectors,
        }
        return "vector", _given(options)
    if kind not in _KINDS:
        wanted = ", ".join([*_KINDS, *_VECTOR])
        raise unsupported(f"index_type is one of {wanted}, not {text!r:.80}")
    if _KINDS[kind] == "fts":
        return "fts", _given({word: getattr(asked, word) for word in _WORDS})
    return _KINDS[kind], {}


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _shown(index: IndexStatus, rows: int) -> bodies.IndexAnswer:
    """Return an index in the specification's words; rows above base are found without one."""
    kind = _NAMES.get(index.kind) or f"IVF_{index.options.get('encoding', 'flat')}".upper()
    return bodies.IndexAnswer(
        index_name=index.name,
        index_uuid=index.name,  # it has several segments, each with an id of its own
        columns=[index.column],
        status="pending" if index.lagging_rows else "done",
        index_type=kind,
        distance_type=cast("str | None", index.options.get("metric")),
        num_indexed_rows=max(0, rows - index.lagging_rows),
        num_unindexed_rows=index.lagging_rows,
        size_bytes=index.nbytes,
        num_segments=index.segments,
    )
