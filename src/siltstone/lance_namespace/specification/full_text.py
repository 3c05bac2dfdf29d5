"""Full text: what a query asks for words, as the search of a table takes it.

    string_query      {"query": "river silt", "columns": ["title"]}
    structured_query  {"query": {...}}, with one of
                        match        {"terms": "river", "column": "title", "operator": "And", ...}
                        phrase       {"terms": "river silt", "column": "title"}
                        multi_match  {"match_queries": [...]}: of the same words in several columns

LanceDB's remote client says what stands in `structured_query` without that word around it, and a
`multi_match` as {"query": "river", "columns": ["title", "note"], "boost": [2, 1]}. It does so for
servers that give a version of `STRUCTURED`; for others it leaves out operators and the like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from siltstone.lance_namespace.specification.members import FIXED, Name, NotOffered, RequestPart
from siltstone.lance_versions.errors import invalid, unsupported

STRUCTURED = "0.3.0"
"""The version of LanceDB's server from which on its clients send structured queries."""


class MatchQuery(RequestPart):
    """`max_expansions` is what clients send by default; all words that are like one are found."""

    terms: str
    column: Name | None = None
    boost: float | None = None
    fuzziness: int | None = None
    operator: str | None = None
    max_expansions: Annotated[Literal[50] | None, FIXED] = None
    prefix_length: Annotated[Literal[0] | None, FIXED] = None


class PhraseQuery(RequestPart):
    terms: str
    column: Name | None = None
    slop: Annotated[Literal[0] | None, FIXED] = None


class MultiMatchQuery(RequestPart):
    """`match_queries`, or LanceDB's words: `boost` has a number for each column, or is left out."""

    match_queries: list[MatchQuery] | None = None
    query: str | None = None
    columns: list[Name] | None = None
    boost: list[float] | None = None


class TextQueryPart(RequestPart):
    """One of them."""

    match: MatchQuery | None = None
    phrase: PhraseQuery | None = None
    multi_match: MultiMatchQuery | None = None
    boost: NotOffered = None
    boolean: NotOffered = None


class StringQuery(RequestPart):
    query: str
    columns: list[Name] | None = None


class StructuredQuery(RequestPart):
    query: TextQueryPart


class FullTextQuery(RequestPart):
    """One of them; `query` is LanceDB's."""

    string_query: StringQuery | None = None
    structured_query: StructuredQuery | None = None
    query: TextQueryPart | None = None


@dataclass(frozen=True, slots=True)
class AskedWords:
    """A search for words: the text, and the arguments of `Table.search` that are of words."""

    text: str
    column: str | None = None
    operator: str | None = None
    phrase: bool = False
    fuzzy: int | None = None
    boost: float | Mapping[str, float] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """All but the text; statistics are those of the index."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in given.items() if name != "text"} | {"exact": False}

    @property
    def columns(self) -> list[str]:
        """The columns that are named."""
        if isinstance(self.boost, Mapping):
            return [*self.boost]
        return [] if self.column is None else [self.column]

    def told(self) -> str:
        """Return in words what is looked for."""
        given = {name: value for name, value in self.options.items() if value}
        return ", ".join([repr(self.text), *(f"{name} {value}" for name, value in given.items())])


def words_of(asked: FullTextQuery) -> AskedWords:
    """Return the search of a request.

    Raises:
        Refused: It has none of the forms, or several; or a `multi_match` of different searches.
    """
    string, structured, plain = asked.string_query, asked.structured_query, asked.query
    name = _only("full_text_query", string_query=string, structured_query=structured, query=plain)
    if string is not None:
        return _of_string(string)
    part = structured.query if structured is not None else plain
    assert part is not None, name
    return _of_part(part)


def _only(where: str, **given: object) -> str:
    found = [name for name, value in given.items() if value is not None]
    if len(found) != 1:
        has = " and ".join(found) or "none of them"
        raise invalid(f"{where} has one of {', '.join(given)}; it has {has}")
    return found[0]


def _of_string(asked: StringQuery) -> AskedWords:
    columns = asked.columns or []
    if len(columns) < 2:
        return AskedWords(asked.query, columns[0] if columns else None)
    return AskedWords(asked.query, boost=_weights(columns, [1.0] * len(columns)))


def _of_part(asked: TextQueryPart) -> AskedWords:
    match, phrase, several = asked.match, asked.phrase, asked.multi_match
    _only("the query of full_text_query", match=match, phrase=phrase, multi_match=several)
    if match is not None:
        return _of_match(match)
    if phrase is not None:
        return AskedWords(phrase.terms, phrase.column, phrase=True)
    assert several is not None
    return _of_several(several)


def _of_match(asked: MatchQuery) -> AskedWords:
    operator = None if asked.operator is None else asked.operator.lower()
    return AskedWords(
        asked.terms, asked.column, operator, fuzzy=asked.fuzziness or None, boost=asked.boost
    )


def _of_several(asked: MultiMatchQuery) -> AskedWords:
    words, columns, boost = asked.query, asked.columns, asked.boost
    if asked.match_queries is None:
        if words is None or not columns:
            raise invalid("multi_match has match_queries, or a query and its columns")
        return AskedWords(words, boost=_weights(columns, boost or [1.0] * len(columns)))
    if not (words is None and columns is None and boost is None):
        raise invalid("multi_match has match_queries, or a query and its columns; it has both")
    found = [_of_match(each) for each in asked.match_queries]
    if not found or any(each.column is None for each in found):
        raise invalid("each of match_queries in multi_match names a column, and there is one")
    if len({(each.text, each.operator or "or", each.fuzzy) for each in found}) > 1:
        raise unsupported(
            "match_queries of different terms, operator or fuzziness in multi_match are not offered"
            " here: a row has the highest score of one search in several columns"
        )
    weights = [1.0 if each.boost is None else each.boost for each in asked.match_queries]
    names = [each.column for each in asked.match_queries if each.column is not None]
    first = found[0]
    return AskedWords(
        first.text, None, first.operator, fuzzy=first.fuzzy, boost=_weights(names, weights)
    )


def _weights(columns: Sequence[str], weights: Sequence[float]) -> dict[str, float]:
    if len(weights) != len(columns):
        raise invalid(f"boost has {len(weights)} numbers for {len(columns)} columns")
    if len({*columns}) != len(columns):
        raise invalid(f"a column is named twice in {list(columns)!r:.200}")
    return dict(zip(columns, weights, strict=True))
