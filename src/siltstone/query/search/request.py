"""Request: what a caller asks a search for, checked by the columns of the table.

words, or a vector                one search
words and a vector                both, whose rankings become one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias, cast

import pyarrow as pa

from siltstone.arguments import count_of
from siltstone.engine.filter.filters import Filter
from siltstone.engine.read.reader import PlainReader, Reader
from siltstone.errors import RequestError
from siltstone.query.search import fusion, plan
from siltstone.query.search.text_query import TextQuery, text_query
from siltstone.query.search.vector_query import K_MAX, VectorQuery, vector_query
from siltstone.query.search.words import indexed_columns

Options: TypeAlias = Mapping[str, Any]
Search: TypeAlias = Callable[[Filter | None, list[str]], pa.Table]
"""Returns the best rows that a filter keeps, with some columns."""


def search_of(
    reader: Reader,
    query: object,
    vector: object,
    *,
    common: Options,
    of_words: Options,
    of_vectors: Options,
    of_both: Options,
) -> Search:
    """Return the search that a caller asks for by words, a vector, or both, and their options.

    Raises:
        RequestError: What is asked for does not fit the columns, or an option is of another kind
            of search.
        SchemaMismatchError: There is no such column.
    """
    if query is None:
        query, vector = vector, None
    if vector is not None:
        return _both(
            reader, query, vector, {**common, **of_words}, {**common, **of_vectors}, of_both
        )
    if isinstance(query, str):
        _refuse({**of_vectors, **of_both}, "a vector", "words")
        return partial(plan.search, reader, _words(reader, query, **common, **of_words))
    _refuse(of_words, "words", "a vector")
    _refuse(of_both, "words and a vector", "a vector")
    return partial(plan.search, reader, _vector(reader, query, **common, **of_vectors))


def search_in_parts(
    reader: Reader, query: object, rows_max: int, *, numbered: bool, **options: Any
) -> Callable[[Filter | None, list[str]], pa.RecordBatchReader]:
    """Return a search by words or a vector whose rows are read as they are asked for.

    Raises:
        RequestError, SchemaMismatchError: As `search_of`.
    """
    checked = _words if isinstance(query, str) else _vector
    asked = checked(reader, cast("Any", query), **options)
    return partial(plan.search_in_parts, reader, asked, rows_max=rows_max, is_numbered=numbered)


def _both(
    reader: Reader,
    text: object,
    vector: object,
    of_words: Options,
    of_vectors: Options,
    of_both: Options,
) -> Search:
    """Return a search for words and by a vector; `column` is that of the words."""
    if not isinstance(text, str):
        raise RequestError("vector= needs a search for words: give a text as the first argument")
    k = count_of("k", of_words["k"], 1, K_MAX)
    wide = {"k": fusion.window(k, K_MAX)}
    words = _words(reader, text, **{**of_words, **wide})
    near = _vector(reader, vector, **{**of_vectors, **wide, "column": of_both["vector_column"]})
    if near.is_many:
        raise RequestError("a search for words and by a vector takes one vector")
    how = fusion.fusion_of(k, of_both["fusion"], of_both["rerank"])
    return partial(plan.search_both, reader, words, near, how)


def _words(reader: Reader, text: str, **options: object) -> TextQuery:
    arrow = reader.table_schema.arrow
    is_plain = isinstance(reader, PlainReader)
    indexed = indexed_columns(reader)
    return text_query(arrow, text, indexed, is_plain=is_plain, **cast("Any", options))


def _vector(reader: Reader, vector: object, **options: object) -> VectorQuery:
    return vector_query(reader.table_schema.arrow, vector, **cast("Any", options))


def _refuse(options: Options, needed: str, given: str) -> None:
    """Refuse options of the other kind of search."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise RequestError(f"{name} needs a search for {needed}; this one is for {given}")
