"""One table: the name in a query of a single table, as `SELECT .. FROM t WHERE ..`, by its words.

Nearly all small statements are of this form. sqlglot takes 0.1 to 0.4 ms for one, and 0.3 s to be
imported; DuckDB's own tokens take 4 us. Whatever has another form goes to the parser: two FROM, a
query in parentheses, WITH, joins, commas, functions that give rows, letters that are not ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NAME = re.compile(r'([A-Za-z_]\w*|"(?:[^"]|"")+")', re.ASCII)
_MAY_FOLLOW = {"select", "where", "group", "having", "qualify", "order", "limit", "offset"}
_OTHER_FORMS = {
    "describe", "except", "execute", "exists", "explain", "intersect", "join", "lateral",
    "pivot", "show", "summarize", "table", "tablesample", "union", "unpivot", "using", "values",
    "window", "with",
}  # fmt: skip
_SHORT = {"count", "min", "max"}
_COUNT = [["count", "(", "*", ")"], ["count", "(", ")"]]


@dataclass(frozen=True, slots=True)
class OneTable:
    """A name in its parts; `is_counted`: nothing is read but how many rows the table has."""

    parts: tuple[str, ...]
    is_counted: bool


def one_table(sql: str) -> OneTable | None:
    """Return the one table that a query reads; None: the statement may have another form."""
    import duckdb  # noqa: PLC0415 (it is there)

    if not sql.isascii():
        return None
    found = duckdb.tokenize(sql)
    ends = [*(place for place, _ in found[1:]), len(sql)]
    words = [sql[first:end] for (first, _), end in zip(found, ends, strict=True)]
    kinds = [kind.name for _, kind in found]
    words = [_word(word, kind) for word, kind in zip(words, kinds, strict=True)]
    if words and words[-1] == ";":
        words.pop()
    return _found(words, kinds) if _is_simple(words, kinds) else None


def _word(text: str, kind: str) -> str:
    """Return a token without what is behind it; keywords and signs in small letters."""
    found = _NAME.match(text)
    if found is None:
        return text[:1] if kind == "operator" else ""
    return found[1].lower() if kind == "keyword" else found[1]


def _is_simple(words: Sequence[str], kinds: Sequence[str]) -> bool:
    keywords = [word for word, kind in zip(words, kinds, strict=False) if kind == "keyword"]
    return (
        keywords.count("select") == keywords.count("from") == 1
        and words[0] in {"select", "from"}
        and kinds[0] == "keyword"
        and not _OTHER_FORMS.intersection(keywords)
        and all(words[n + 1 : n + 2] == ["("] for n, word in enumerate(words) if word == "in")
    )


def _found(words: Sequence[str], kinds: Sequence[str]) -> OneTable | None:
    is_keyword = [kind == "keyword" for kind in kinds]
    at = next(n for n, word in enumerate(words) if word == "from" and is_keyword[n]) + 1
    if words[:at].count("(") != words[:at].count(")"):
        return None
    end = _end_of_name(words, kinds, at)
    behind = _end_of_alias(words, kinds, end)
    is_last = behind == len(words)
    if end == at or not (is_last or (words[behind] in _MAY_FOLLOW and is_keyword[behind])):
        return None
    parts = tuple(_unquoted(word) for word in words[at:end:2])
    chosen = [word.lower() for word in words]
    if _SHORT.isdisjoint(chosen) or (words[0] == "select" and not is_last):
        return OneTable(parts, is_counted=False)
    return OneTable(parts, is_counted=True) if chosen[1 : at - 1] in _COUNT else None


def _end_of_name(words: Sequence[str], kinds: Sequence[str], at: int) -> int:
    """Return where a name that begins at `at` ends, with dots in it; `at`: none is there."""
    end = at
    while end < len(words) and kinds[end] == "identifier":
        end += 1
        if words[end : end + 1] != ["."]:
            return end
        end += 1
    return at


def _end_of_alias(words: Sequence[str], kinds: Sequence[str], at: int) -> int:
    has_as = words[at : at + 1] == ["as"]
    place = at + has_as
    return place + 1 if place < len(words) and kinds[place] == "identifier" else at


def _unquoted(word: str) -> str:
    return word[1:-1].replace('""', '"') if word.startswith('"') else word
