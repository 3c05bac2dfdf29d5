"""Indexes: the operations that create, list and drop indexes of tables, in Lance's words.

    BTREE BITMAP FTS (or INVERTED) IVF_FLAT IVF_SQ IVF_PQ      the kinds that a client asks for
    IVF_RQ IVF_HNSW_SQ IVF_HNSW_FLAT

Indexes are maintenance: they change no result, so they are no part of a transaction. That of a
plain table is a version of it, as Lance clients commit their own, and has Lance's name by default.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, cast, get_args

from siltstone.choices import Encoding
from siltstone.errors import no_such
from siltstone.lance_namespace.scope import Scope
from siltstone.lance_namespace.specification import bodies, ids
from siltstone.lance_namespace.specification.pages import page
from siltstone.lance_versions.errors import Code, Refused, invalid, no_column, unsupported
from siltstone.local.tables import LocalTable
from siltstone.maintenance.index.index_plan import IndexStatus
from siltstone.process import deadline

Done = tuple[bodies.NoMembers, None]
_VECTOR = {f"IVF_{encoding.upper()}": encoding for encoding in get_args(Encoding)}
_KINDS = {"BTREE": "btree", "BITMAP": "bitmap", "FTS": "fts", "INVERTED": "fts"}
_NAMES = {"btree": "BTREE", "bitmap": "BITMAP", "fts": "FTS"}
_WORDS = (
    *("language", "base_tokenizer", "stem", "lower_case"),
    *("remove_stop_words", "ascii_folding", "with_position"),
)

_VECTOR_WORDS = ("distance_type", "metric_type", "num_partitions", "num_sub_vectors")


def create_table_index(scope: Scope, asked: bodies.CreateIndexRequest) -> Done:
    """Declare an index and build it over what is merged."""
    name = ids.table_of(asked)
    _refuse_scope(scope)
    table = scope.db[name]
    column = asked.column
    if column not in table.schema.names:
        raise no_column(name, column, table.schema.names)
    kind, options = _kind_of(asked)
    wanted = asked.name or (column if table.primary_key else f"{column}_idx")
    if any(index.name == wanted for index in table.indexes()):
        raise Refused(Code.INDEX_EXISTS, wanted[:200])
    with deadline.within(None):  # maintenance, like a job: large bases take minutes
        table.create_index(column, kind, name=wanted, **options)
    return bodies.NoMembers(), None


def list_table_indices(
    scope: Scope, asked: bodies.IndexesRequest
) -> tuple[bodies.IndexesAnswer, None]:
    """Return the indexes of a table, and how far they are behind."""
    name = ids.table_of(asked)
    indexes = sorted(scope.db[name].indexes(), key=_name_of)
    shown, token = page(indexes, asked, _name_of)
    return bodies.IndexesAnswer([_shown(index) for index in shown], page_token=token), None


def describe_table_index_stats(
    scope: Scope, asked: bodies.IndexRequest
) -> tuple[bodies.IndexStatsAnswer, None]:
    """Return how many rows an index has, and how many it lacks."""
    name = ids.table_of(asked)
    table = scope.db[name]
    found = _shown(_named(table, asked))
    rows = found.num_indexed_rows, found.num_unindexed_rows
    kind, distance = found.index_type, found.distance_type
    return bodies.IndexStatsAnswer(kind, distance, *rows, found.num_segments), None


def drop_table_index(scope: Scope, asked: bodies.IndexRequest) -> Done:
    """Give an index up."""
    name = ids.table_of(asked)
    _refuse_scope(scope)
    table = scope.db[name]
    index = _named(table, asked)
    with deadline.within(None):
        table.drop_index(index.name)
    return bodies.NoMembers(), None


_name_of = attrgetter("name")


def _named(table: LocalTable, asked: bodies.IndexRequest) -> IndexStatus:
    if not asked.index_name:
        raise invalid("index_name is the name of an index")
    known = {index.name: index for index in table.indexes()}
    if asked.index_name not in known:
        text = f"table {table.name!r} has {no_such('index', asked.index_name, known)}"
        raise Refused(Code.INDEX_NOT_FOUND, text)
    return known[asked.index_name]


def _refuse_scope(scope: Scope) -> None:
    if not scope.is_newest:
        raise invalid("an index is no part of a transaction or snapshot: ask outside of them")


def _kind_of(asked: bodies.CreateIndexRequest) -> tuple[Any, dict[str, Any]]:
    text = asked.index_type
    kind = text.upper() if isinstance(text, str) else ""
    for words, is_of in ((_VECTOR_WORDS, kind in _VECTOR), (_WORDS, _KINDS.get(kind) == "fts")):
        given = [word for word in words if getattr(asked, word) is not None]
        if given and not is_of and (kind in _VECTOR or kind in _KINDS):
            raise invalid(f"an index {kind} has no {', '.join(given)}")
    if kind in _VECTOR:
        metric = asked.distance_type or asked.metric_type
        if asked.metric_type and asked.metric_type != metric:
            raise invalid("distance_type and metric_type are names of one member: give one of them")
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


def _shown(index: IndexStatus) -> bodies.IndexAnswer:
    """Return an index in the specification's words; rows above base are not counted."""
    kind = _NAMES.get(index.kind, index.kind).upper()
    if index.kind == "vector":
        kind = f"IVF_{index.encoding or index.options.get('encoding', 'flat')}".upper()
    return bodies.IndexAnswer(
        index_name=index.name,
        index_uuid=index.name,  # it has several segments, each with its own id
        columns=[index.column],
        status="pending" if index.lagging_rows else "done",
        index_type=kind,
        distance_type=cast("str | None", index.options.get("metric")),
        num_indexed_rows=index.indexed_rows,
        num_unindexed_rows=index.lagging_rows,
        size_bytes=index.nbytes,
        num_segments=index.segments,
    )
