"""Text query: what a caller asks a search for words for, checked against the columns of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast, get_args

import pyarrow as pa

from siltstone.arguments import count_of, flag_of
from siltstone.choices import TextOperator
from siltstone.engine.filter.typed import is_text
from siltstone.errors import RequestError, not_one_of
from siltstone.query.search.vector_query import K_MAX, column_of, float_of, only_of

SCORE = "_score"
CHARACTERS_MAX = 10_000
EDITS_MAX = 2
WEIGHT_MIN, WEIGHT_MAX = 1e-9, 1e9  # beyond these float32 has one score for many rows
FUZZY_WORDS_MAX = 64
FUZZY_LETTERS_MAX = 40  # of 50 on Lance gives up
_OPERATORS = get_args(TextOperator)


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A search for words.

    Args:
        words: The text that is searched for.
        columns: The columns to search, each with the weight of its scores.
        k: How many rows are wanted.
        has_all: A row must have all words; else one is enough.
        is_phrase: The words must follow each other.
        edits: A word is found with so many letters more, less or changed.
        is_exact: One set of statistics, that of the rows of the seq, is behind all scores.
    """

    words: str
    columns: tuple[tuple[str, float], ...]
    k: int
    has_all: bool
    is_phrase: bool
    edits: int
    is_exact: bool


def text_query(
    schema: pa.Schema,
    words: str,
    indexed: frozenset[str],
    *,
    is_plain: bool,
    k: object,
    column: object,
    operator: object,
    phrase: object,
    fuzzy: object,
    boost: object,
    exact: object,
) -> TextQuery:
    """Return the query of a caller's arguments; `indexed` are the columns with an index of texts.

    `is_plain`: the table has no key, so its indexes are those of other Lance clients.

    Raises:
        RequestError: One of them is wrong, does not fit the column, or there is no index.
        SchemaMismatchError: There is no such column.
    """
    _check_words(words)
    if operator is not None and not (isinstance(operator, str) and operator in _OPERATORS):
        raise RequestError(not_one_of("operator", operator, _OPERATORS))
    has_all = flag_of("phrase", phrase) or operator == "and"
    if phrase and (operator is not None or fuzzy is not None):
        raise RequestError("a phrase takes no operator and no fuzzy: its words must match")
    return TextQuery(
        words,
        _columns(_Searched(schema, indexed, is_plain), column, boost),
        count_of("k", k, 1, K_MAX),
        has_all,
        bool(phrase),
        0 if fuzzy is None else count_of("fuzzy", fuzzy, 0, EDITS_MAX),
        flag_of("exact", exact),
    )


def needs_index(column: str, also: str = "", *, is_plain: bool = False) -> RequestError:
    """Return the refusal of a search of a column whose index is not there, or lacks something."""
    needed = f"a search for words in {column!r} needs an index of texts"
    if is_plain:
        return RequestError(
            f"{needed}{also}; of a table without a key a Lance client makes it:"
            f' create_scalar_index({column!r}, "INVERTED"{also})'
        )
    return RequestError(f'{needed}: create_index({column!r}, kind="fts"{also})')


def check_fuzzy(terms: Sequence[str]) -> None:
    """Check that a fuzzy search for some words is not too large.

    Raises:
        RequestError: There are too many words, or one is too long, or has a sign in it.
    """
    longest = max(map(len, terms), default=0)
    if len(terms) > FUZZY_WORDS_MAX or longest > FUZZY_LETTERS_MAX:
        raise RequestError(
            f"a fuzzy search takes at most {FUZZY_WORDS_MAX} words of {FUZZY_LETTERS_MAX} letters;"
            f" got {len(terms)}, the longest of {longest}"
        )
    odd = [term for term in terms if not term.isalnum()]
    if odd:  # Lance takes these apart again
        raise RequestError(
            f"a fuzzy search takes words of letters and digits; the index makes {odd[0]!r} of them"
        )


def _check_words(words: str) -> None:
    if not words.strip():
        raise RequestError(f"a search for words needs a text; got {words[:80]!r}")
    if len(words) > CHARACTERS_MAX:
        raise RequestError(
            f"a search takes a text of at most {CHARACTERS_MAX} characters; got {len(words)}"
        )
    try:
        words.encode()
    except UnicodeEncodeError:
        raise RequestError(
            f"a search for words got {words[:80]!r}: half a surrogate pair is no character"
        ) from None


@dataclass(frozen=True, slots=True)
class _Searched:
    """A table's columns, and those with an index of texts."""

    schema: pa.Schema
    indexed: frozenset[str]
    is_plain: bool

    @property
    def texts(self) -> list[str]:
        return [field.name for field in self.schema if is_text(field.type)]

    def column(self, column: object) -> str:
        """Return the name of a column that can be searched; None: of the only one."""
        if column is None:
            return self._only()
        found = column_of(self.schema, column, self.texts, "a search for words needs texts")
        if found not in self.indexed:
            raise needs_index(found, is_plain=self.is_plain)
        return found

    def _only(self) -> str:
        indexed = [name for name in self.texts if name in self.indexed]
        if indexed:
            return only_of(indexed)
        if not self.texts:
            names = ", ".join(self.schema.names[:20])
            raise RequestError(f"no column holds texts; the columns are {names}")
        raise needs_index(self.texts[0], is_plain=self.is_plain)


def _columns(table: _Searched, column: object, boost: object) -> tuple[tuple[str, float], ...]:
    if not isinstance(boost, Mapping):
        return ((table.column(column), _weight(boost)),)
    weights = cast("Mapping[object, object]", boost)
    if column is not None or not weights:
        raise RequestError("boost={column: weight} names the columns to search: give no column")
    if None in weights:
        raise RequestError("boost={column: weight} needs names of columns; got None")
    return tuple((table.column(name), _weight(weight)) for name, weight in weights.items())


def _weight(given: object) -> float:
    if given is None:
        return 1.0
    found = float_of(given)
    if found is None or not WEIGHT_MIN <= found <= WEIGHT_MAX:
        raise RequestError(
            f"boost must be a number above 0, from {WEIGHT_MIN} to {WEIGHT_MAX:.0e}, or"
            f" {{column: number}}; got {given!r:.80}"
        )
    return found
