"""Searches: `search('docs', ?, k => 10)` in a statement, where it may name a table.

DuckDB has no table functions of Python. So the call is taken out of the text, and a table of its
own, whose rows are those of the search, stands for it:

    FROM search('docs', $v, k => 10) s WHERE s.id > $n   ─▶   FROM "_search_1" s WHERE s.id > $n

The search runs when DuckDB reads that table, and reads the columns that DuckDB asks for. What the
statement says about its rows (WHERE) is said of the k nearest; the argument `filter` is what
chooses among all rows. A second argument that is a text is words; with `vector` it is both.
"""

# ruff: noqa: A002 (`filter` is pyarrow's word)

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Protocol, cast

import pyarrow as pa

from siltstone.engine.filter.filters import filter_of
from siltstone.errors import RequestError, SchemaMismatchError, no_such, not_one_of
from siltstone.query.sql.dataset import Filter, Scannable
from siltstone.query.sql.taken.moments import SEARCH
from siltstone.query.sql.taken.tokens import closing, kind_of, tokens_of
from siltstone.query.sql.taken.values import Parameters, TakenValues, constant

_NAMED = ("k", "column", "metric", "filter", "columns", "distance_range")
_OF_INDEX = ("nprobes", "refine", "exact")
_OF_WORDS = ("operator", "phrase", "fuzzy", "boost", "vector", "vector_column", "fusion")
_ARGUMENTS = (*_NAMED, *_OF_INDEX, *_OF_WORDS)
_CALL = re.compile(r"\bsearch\s*\(", re.IGNORECASE)
_WHAT = "search(...)"
_HOW = "search('table', vector or words, k => 10)"
_CLAUSES = frozenset(
    [
        *("FROM", "JOIN", "SELECT", "WHERE", "GROUP_BY", "ORDER_BY", "HAVING", "QUALIFY"),
        *("LIMIT", "VALUES", "WITH"),
    ]
)
SEARCHES_MAX = 16
"""Of one statement."""


class _Found(Protocol):
    def to_arrow(self) -> pa.Table: ...


class Searched(Scannable, Protocol):
    """A table that can be searched."""

    def search(self, query: Any, k: int = 10, **options: Any) -> _Found:
        """Return the rows with the nearest vectors, or with the words."""
        ...


@dataclass(frozen=True, slots=True)
class SearchCall:
    """One call: the name that stands for it, the table it searches, and its other arguments."""

    name: str
    table: str
    query: object
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SearchedRows:
    """The rows of a search as a table of a statement: it is `Scannable`."""

    table: Searched
    call: SearchCall

    @property
    def schema(self) -> pa.Schema:
        """The columns that it was asked for, and those of the search behind them."""
        whole, names = self.table.schema, self.call.options.get("columns")
        shown = whole.names if names is None else names
        if not isinstance(shown, list):
            raise RequestError(f"columns must be a list of names, like ['id']; got {shown!r:.80}")
        unknown = [name for name in shown if name not in whole.names]
        if unknown:
            raise SchemaMismatchError(no_such("column", unknown, whole.names))
        fields = [whole.field(name) for name in shown]
        return pa.schema([*fields, *self._of_search])

    @property
    def _of_search(self) -> list[pa.Field]:
        scores = ["_distance"]
        if isinstance(self.call.query, str):
            has_both = self.call.options.get("vector") is not None
            scores = ["_distance", "_words_score", "_score"] if has_both else ["_score"]
        found = [pa.field(name, pa.float32()) for name in scores]
        return [pa.field("_query", pa.int32()), *found] if _is_many(self.call.query) else found

    def scan(
        self, columns: Sequence[str] | None, filter: Filter, limit: int | None
    ) -> pa.RecordBatchReader:
        """Search, and return the rows of it that match."""
        schema = self.schema
        shown = schema.names if columns is None else list(columns)
        wanted = filter_of(filter, schema)
        needed = {*shown, *(wanted.columns if wanted else ())}
        read = [name for name in self.table.schema.names if name in needed]
        options = {**self.call.options, "columns": read}
        rows = self.table.search(self.call.query, **cast("Any", options)).to_arrow()
        if wanted is not None:
            rows = wanted.keep(rows)
        rows = rows.select(shown).slice(0, limit)
        return rows.cast(pa.schema([schema.field(name) for name in shown])).to_reader()


def _is_many(vector: Any) -> bool:
    """Say whether there are several vectors, as the search will see them."""
    if isinstance(vector, pa.Array | pa.ChunkedArray):
        return pa.types.is_nested(vector.type)
    if hasattr(vector, "ndim"):
        return vector.ndim == 2
    return isinstance(vector, list | tuple) and any(hasattr(each, "__len__") for each in vector)


# finding the calls


def taken_out(sql: str, parameters: Parameters) -> tuple[str, Parameters, list[SearchCall]]:
    """Return a statement without its searches, the parameters that are left, and the searches.

    Raises:
        RequestError: A call has other arguments than constants and parameters, or lacks one.
    """
    if not _CALL.search(sql):
        return sql, parameters, []
    tokens = tokens_of(sql)
    spans = list(islice(_spans(tokens), SEARCHES_MAX + 1))
    if len(spans) > SEARCHES_MAX:
        raise RequestError(f"a statement has at most {SEARCHES_MAX} searches")
    calls, pieces, start = list[SearchCall](), list[str](), 0
    values, taken = TakenValues(tokens, parameters, _WHAT), {token.text.lower() for token in tokens}
    names = (name for number in count(1) if (name := f"{SEARCH}{number}") not in taken)
    for first, last in spans:
        arguments = sql[tokens[first + 1].end + 1 : tokens[last].start]
        calls.append(_call(next(names), arguments, values.within(first, last)))
        pieces += [sql[start : tokens[first].start], f'"{calls[-1].name}"']
        start = tokens[last].end + 1
    return "".join([*pieces, sql[start:]]), values.left(spans), calls


def _spans(tokens: list[Any]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last token of each call that stands where a table may."""
    clauses, end = [""], -1  # of each open parenthesis: the clause that the next word is of
    for place, token in enumerate(tokens[:-1]):
        kind = kind_of(token)
        if place <= end:
            continue
        if kind == "L_PAREN":
            clauses.append("")
        elif kind == "R_PAREN" and len(clauses) > 1:
            clauses.pop()
        elif kind in _CLAUSES:
            clauses[-1] = kind
        if _is_call(tokens, place) and clauses[-1] in {"FROM", "JOIN"}:
            end = closing(tokens, place + 1, _HOW)
            yield place, end


def _is_call(tokens: list[Any], place: int) -> bool:
    before, word, after = tokens[place - 1], tokens[place], tokens[place + 1]
    return (
        kind_of(before) in {"FROM", "JOIN", "COMMA"}
        and (kind_of(word), word.text.lower()) == ("VAR", "search")
        and kind_of(after) == "L_PAREN"
    )


# arguments


def _call(name: str, text: str, values: Iterator[object]) -> SearchCall:
    """Return the call with some arguments; `values` are those of its parameters, in order."""
    from sqlglot import errors, exp, parse_one  # noqa: PLC0415 (0.3 s)

    try:
        given = parse_one(f"select f({text}\n)", dialect="duckdb").expressions[0].expressions
    except (errors.SqlglotError, RecursionError, IndexError) as error:
        raise RequestError(f"the arguments of {_HOW} cannot be read: {text!r:.200}") from error
    plain, options = list[object](), dict[str, object]()
    for each in given:
        if not isinstance(each, exp.Kwarg | exp.PropertyEQ):
            if options:
                raise RequestError(f"in {_HOW} arguments with names come last: {text!r:.200}")
            plain.append(constant(each, values, _WHAT))
            continue
        word = each.this.name.lower()
        if word not in _ARGUMENTS:
            raise RequestError(not_one_of("an argument of search(...)", word, _ARGUMENTS))
        if word in options:
            raise RequestError(f"{word} appears twice in search({text[:200]})")
        options[word] = constant(each.expression, values, _WHAT)
    if len(plain) != 2 or not isinstance(plain[0], str):
        raise RequestError(f"a search is {_HOW}; got search({text[:200]})")
    return SearchCall(name, plain[0], plain[1], {k: v for k, v in options.items() if v is not None})
