"""Searchable: the search of a table, the same through a store, a snapshot and a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.arguments import count_of
from siltstone.choices import SearchMetric, TextOperator
from siltstone.engine.filter.filters import filter_of
from siltstone.engine.read.readable import Readable, known_columns
from siltstone.engine.read.reader import PlainReader, Reader
from siltstone.errors import RequestError

if TYPE_CHECKING:
    from siltstone.query.search.search_result import SearchResult
    from siltstone.query.search.text_query import TextQuery
    from siltstone.query.search.vector_query import VectorQuery

Boost: TypeAlias = float | Mapping[str, float] | None


class Searchable(Readable):
    """A table that can be searched. Any thread."""

    __slots__ = ()

    def search(
        self,
        query: object = None,
        k: int = 10,
        *,
        column: str | None = None,
        filter: str | pc.Expression | None = None,  # noqa: A002 - the contract's name
        columns: object = None,
        exact: bool = False,
        operator: TextOperator | None = None,
        phrase: bool = False,
        fuzzy: int | None = None,
        boost: Boost = None,
        metric: SearchMetric | None = None,
        distance_range: object = None,
        nprobes: int | None = None,
        refine: int | None = None,
        vector: object = None,
        vector_column: str | None = None,
        fusion: str | Mapping[str, float] | None = None,
        rerank: Callable[[pa.Table], object] | None = None,
    ) -> SearchResult:
        """See `api.tables.ReadableTable.search`."""
        from siltstone.query.search import plan  # noqa: PLC0415 - few ask for it
        from siltstone.query.search.search_result import SearchResult  # noqa: PLC0415 - as above

        reader = self._reader()
        arrow = reader.table_schema.arrow
        of_words = {"operator": operator, "phrase": phrase, "fuzzy": fuzzy, "boost": boost}
        of_vectors = {
            "metric": metric,
            "distance_range": distance_range,
            "nprobes": nprobes,
            "refine": refine,
        }
        both = {"vector_column": vector_column, "fusion": fusion, "rerank": rerank}
        common = {"k": k, "column": column, "exact": exact}
        asked: Callable[..., pa.Table]
        if query is None:
            query, vector = vector, None
        if vector is not None:
            asked = _both(reader, query, vector, common | of_words, common | of_vectors, both)
        elif isinstance(query, str):
            _refuse(of_vectors | both, "a vector", "words")
            asked = partial(plan.search, reader, _words(reader, query, **common, **of_words))
        else:
            _refuse(of_words, "words", "a vector")
            _refuse(both, "words and a vector", "a vector")
            asked = partial(plan.search, reader, _vector(reader, query, **common, **of_vectors))
        shown = known_columns(arrow, columns)
        wanted = filter_of(filter, arrow)
        self._note(reader, (), wanted)
        return SearchResult(asked(wanted, arrow.names if shown is None else shown))

    def search_in_parts(
        self,
        query: object,
        k: int,
        rows_max: int,
        *,
        filter: str | pc.Expression | None = None,  # noqa: A002 - the contract's name
        columns: object = None,
        numbered: bool = False,
        **options: Any,
    ) -> pa.RecordBatchReader:
        """Return the rows of `search`, ranked now, and read as they are asked for.

        Args:
            query: A text, or a vector, as for `search`.
            k: How many rows.
            rows_max: How many rows are read at once.
            filter: Only rows that match are ranked.
            columns: The columns; None: all.
            numbered: Before the distance or score comes the `_rowid`: see `engine.read.row_ids`.
            options: All the other arguments of that kind of search.
        """
        from siltstone.query.search import plan  # noqa: PLC0415 - as above

        reader = self._reader()
        arrow = reader.table_schema.arrow
        checked = _words if isinstance(query, str) else _vector
        asked = checked(reader, cast("Any", query), k=k, **options)
        shown = known_columns(arrow, columns)
        wanted = filter_of(filter, arrow)
        self._note(reader, (), wanted)
        shown = arrow.names if shown is None else shown
        return plan.search_in_parts(reader, asked, wanted, shown, rows_max, is_numbered=numbered)


def _both(
    reader: Reader,
    text: object,
    vector: object,
    of_words: dict[str, Any],
    of_vectors: dict[str, Any],
    both: dict[str, Any],
) -> Callable[..., pa.Table]:
    """Return a search for words and by a vector; `column` is that of the words."""
    from siltstone.query.search import fusion, plan  # noqa: PLC0415 - as above
    from siltstone.query.search.vector_query import K_MAX  # noqa: PLC0415 - as above

    if not isinstance(text, str):
        raise RequestError("vector= needs a search for words: give a text as the first argument")
    k = count_of("k", of_words["k"], 1, K_MAX)
    wide = {"k": fusion.window(k, K_MAX)}
    words = _words(reader, text, **of_words | wide)
    near = _vector(reader, vector, **of_vectors | wide | {"column": both["vector_column"]})
    if near.is_many:
        raise RequestError("a search for words and by a vector takes one vector")
    how = fusion.fusion_of(k, both["fusion"], both["rerank"])
    return partial(plan.search_both, reader, words, near, how)


def _words(reader: Reader, text: str, **options: object) -> TextQuery:
    from siltstone.query.search.text_query import text_query  # noqa: PLC0415 - as above
    from siltstone.query.search.words import indexed_columns  # noqa: PLC0415 - as above

    arrow = reader.table_schema.arrow
    is_plain = isinstance(reader, PlainReader)
    indexed = indexed_columns(reader)
    return text_query(arrow, text, indexed, is_plain=is_plain, **cast("Any", options))


def _vector(reader: Reader, vector: object, **options: object) -> VectorQuery:
    from siltstone.query.search.vector_query import vector_query  # noqa: PLC0415 - as above

    return vector_query(reader.table_schema.arrow, vector, **cast("Any", options))


def _refuse(options: dict[str, Any], needed: str, given: str) -> None:
    """Refuse options of the other kind of search."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise RequestError(f"{name} needs a search for {needed}; this one is for {given}")
