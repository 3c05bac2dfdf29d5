"""Words: a statement cut into words, so that its parts are taken out of it as they were written.

DuckDB reads the parts again, and nothing of them is lost or put in another way. sqlglot would give
a tree and write it anew in its own way, and takes 0.3 s to be imported.

A placeholder `?` becomes `$p1`, `$p2` ..: a part keeps its parameters wherever it goes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from siltstone.errors import RequestError
from siltstone.query.sql.shielded import folded

_SPACES = r" \t\n\f\r\u00a0\u2000-\u200b\u202f\u205f\u2060\u3000\ufeff"
"""What DuckDB takes for a blank. Any other letter that is not of ASCII may stand in a name."""
_LETTER = rf"(?:[A-Za-z_]|[^\x00-\x7f{_SPACES}])"
_LETTER_OR_DIGIT = rf"(?:[A-Za-z_0-9]|[^\x00-\x7f{_SPACES}])"
_WORD = re.compile(
    rf"""
      (?P<gap> [{_SPACES}]+ | --[^\n\r]* )
    | (?P<comment> /\* )
    | (?P<text> [eExX]?' (?:[^']|'')* ')
    | (?P<dollars> \$(?:{_LETTER}{_LETTER_OR_DIGIT}*)?\$ )
    | (?P<quoted> "(?:[^"]|"")*" )
    | (?P<parameter> \?[0-9]* | \$[0-9]+ | \${_LETTER}{_LETTER_OR_DIGIT}* )
    | (?P<number> (?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)? )
    | (?P<name> {_LETTER}(?:{_LETTER_OR_DIGIT}|\$)* )
    | (?P<sign> ::|<=|>=|<>|!=|==|=>|->>|->|\|\||. )
    """,
    re.VERBOSE | re.DOTALL,
)
_OPENING, _CLOSING = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}


@dataclass(frozen=True, slots=True)
class Word:
    """One word: its kind in `_WORD`, its text, where it stands, and how many brackets are around.

    `low` is a keyword or a sign as it is compared: a name in small letters; of other kinds "".
    """

    kind: str
    text: str
    start: int
    end: int
    depth: int
    low: str

    @property
    def name(self) -> str | None:
        """The name that the word is, without its quotes; of other words None."""
        if self.kind == "quoted":
            return self.text[1:-1].replace('""', '"')
        return self.text if self.kind == "name" else None


@dataclass(frozen=True, slots=True)
class Words:
    """Some words that follow each other in a text; each method looks at those alone."""

    text: str
    words: tuple[Word, ...]

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[Word]:
        return iter(self.words)

    def __getitem__(self, part: slice) -> Words:
        return Words(self.text, self.words[part])

    @property
    def depth(self) -> int:
        """How many brackets are around the first word."""
        return self.words[0].depth if self.words else 0

    @property
    def sql(self) -> str:
        """The words as they were written."""
        return self.text[self.words[0].start : self.words[-1].end] if self.words else ""

    def low(self, at: int) -> str:
        """Return the keyword or sign at a place, else ""."""
        return self.words[at].low if at < len(self.words) else ""

    def starts(self, *lows: str, at: int = 0) -> bool:
        """Say whether these keywords and signs stand at a place."""
        return all(self.low(at + place) == low for place, low in enumerate(lows))

    def find(self, is_it: Callable[[Words, int], bool], at: int = 0) -> int:
        """Return the first place from `at` on that `is_it`, outside of brackets; else the end."""
        depth = self.depth
        for place in range(at, len(self.words)):
            if self.words[place].depth == depth and is_it(self, place):
                return place
        return len(self.words)

    def find_low(self, *lows: str, at: int = 0) -> int:
        """Return the first place of one of some keywords or signs, outside of brackets."""
        return self.find(lambda words, place: words.words[place].low in lows, at)

    def split(self, sign: str = ",") -> list[Words]:
        """Return the parts between the signs that stand outside of brackets; of nothing none."""
        parts, at = list[Words](), 0
        while at < len(self.words):
            end = self.find_low(sign, at=at)
            parts.append(self[at:end])
            at = end + 1
        return parts

    def bracketed(self, at: int = 0) -> int:
        """Return the place behind the bracket that begins at `at`; `at`: none begins there."""
        if self.low(at) not in _OPENING:
            return at
        depth = self.words[at].depth
        end = at + 1
        while self.words[end].depth > depth:
            end += 1
        return end + 1

    def inside(self, at: int = 0) -> Words:
        """Return what is in the bracket that begins at `at`."""
        return self[at + 1 : self.bracketed(at) - 1]


def words_of(text: str) -> Words:
    """Return the words of one statement, without a semicolon at its end.

    Raises:
        RequestError: A bracket, a text or a comment does not end; or there are two statements.
    """
    found = list(_cut(text))
    named = _named(text, found)
    if named is not text:
        text, found = named, list(_cut(named))
    while found and found[-1].low == ";":
        found.pop()
    if any(word.low == ";" and word.depth == 0 for word in found):
        raise RequestError("sql() runs one statement; this text has several")
    return Words(text, tuple(found))


def _named(text: str, words: list[Word]) -> str:
    """Give each placeholder a name: `?` and `$1` are `$p1`; behind `$5` a `?` is `$p6`."""
    number, pieces, end = 0, list[str](), 0
    for word in words:
        if word.kind != "parameter":
            continue
        given = word.text[1:]
        if not given:
            given = str(number + 1)
        if given.isdecimal():
            number = max(number, int(given))
            pieces += [text[end : word.start], f"$p{given}"]
            end = word.end
    return "".join([*pieces, text[end:]]) if pieces else text


def first_of(text: str) -> int:
    """Return where the first word of a text begins, behind blanks and comments.

    Raises:
        RequestError: A comment does not end.
    """
    place = 0
    while (found := _WORD.match(text, place)) and found.lastgroup in {"gap", "comment"}:
        place = _end_of(text, found)
    return place


def end_of_first(text: str) -> int | None:
    """Return where the first statement of a text ends, behind its semicolon; None: it has none.

    A semicolon within a bracket ends it, too: who forgot to close the bracket hears of it.
    """
    place = 0
    with suppress(RequestError):  # a comment or a text that does not end yet
        while found := _WORD.match(text, place):
            if found[0] in {"'", '"'}:
                return None
            place = _end_of(text, found)
            if found[0] == ";":
                return place
    return None


def _cut(text: str) -> Iterator[Word]:
    place, open_ = 0, list[str]()
    while place < len(text):
        found = _WORD.match(text, place)
        assert found is not None  # any letter is a sign
        kind, start, place = str(found.lastgroup), place, _end_of(text, found)
        if kind in {"gap", "comment"}:
            continue
        word = text[start:place]
        if word in {"'", '"'}:
            raise RequestError("the statement ends in a text")
        low = folded(word) if kind in {"name", "sign"} else ""
        if low in _CLOSING and (not open_ or open_.pop() != low):
            raise RequestError(f"the statement has a {low!r} that closes nothing")
        yield Word(kind, word, start, place, len(open_), low)
        if low in _OPENING:
            open_.append(_OPENING[low])
    if open_:
        raise RequestError(f"the statement ends where a {open_[-1]!r} is missing")


def _end_of(text: str, found: re.Match[str]) -> int:
    """Return where a word ends: the pattern does not find the end of some."""
    if found.lastgroup == "comment":
        return _end_of_comment(text, found.end())
    if found.lastgroup == "dollars":
        end = text.find(found[0], found.end())
        if end < 0:
            raise RequestError("the statement ends in a text")
        return end + len(found[0])
    if found.lastgroup == "text" and found[0][0] in "eE":
        return _end_of_escaped(text, found.start() + 2)
    return found.end()


def _end_of_comment(text: str, place: int) -> int:
    """Return where a comment ends that began before `place`: others may be in it."""
    depth = 1
    while depth:
        end = re.compile(r"/\*|\*/").search(text, place)
        if end is None:
            raise RequestError("the statement ends in a comment")
        depth += 1 if end[0] == "/*" else -1
        place = end.end()
    return place


def _end_of_escaped(text: str, place: int) -> int:
    """Return where a text ends that began with E' before `place`: a backslash escapes a quote."""
    found: Any = re.compile(r"(?:[^'\\]|\\.|'')*'", re.DOTALL).match(text, place)
    if found is None:
        raise RequestError("the statement ends in a text")
    return found.end()
