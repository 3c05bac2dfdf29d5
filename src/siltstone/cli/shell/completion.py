"""Completion: what the word before the cursor may become.

Dot commands and what they take; in a statement columns, tables and keywords. Columns are those of
the tables that the text names; if it names none yet, of all. The names are looked up once for each
prompt, at most `TABLES_MAX` tables of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from siltstone.cli.shell.dots import DOTS, FORMS
from siltstone.cli.shell.session import ShellSession
from siltstone.errors import SiltstoneError

TABLES_MAX = 50
_PIECE = re.compile(r'[\w$."]*$')
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*", re.IGNORECASE)
_KEYWORDS = (
    *("all", "alter", "and", "as", "asc", "begin", "between", "by", "case", "cast", "column"),
    *("commit", "conflict", "create", "cross", "delete", "desc", "describe", "distinct", "do"),
    *("drop", "else", "end", "except", "exists", "explain", "from", "full", "group", "having"),
    *("if", "ilike", "in", "index", "inner", "insert", "intersect", "into", "is", "join", "key"),
    *("left", "like", "limit", "matched", "merge", "not", "nothing", "null", "offset", "on", "or"),
    *("order", "outer", "over", "partition", "primary", "qualify", "recursive", "rename"),
    *("replace", "returning", "right", "rollback", "select", "set", "show", "summarize", "table"),
    *("then", "to", "transaction", "truncate", "union", "update", "using", "values", "when"),
    *("where", "with"),
)


class StoreCompleter(Completer):
    """See the module. One thread."""

    def __init__(self, session: ShellSession) -> None:
        self._session = session
        self._columns: dict[str, list[str]] = {}
        self._tables: list[str] | None = None

    def forget(self) -> None:
        """Look the names up again: a statement may have changed them."""
        self._columns, self._tables = {}, None

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        before = document.text_before_cursor.lstrip()
        if not before.startswith("."):
            yield from self._in_statement(document)
            return
        name, blank, given = before.partition(" ")
        if not blank:
            yield from _of(name, DOTS)
        elif name == ".read":
            yield from PathCompleter().get_completions(Document(given), complete_event)
        elif name in {".mode", ".schema", ".tag"}:
            yield from _of(given, FORMS if name == ".mode" else self._names(name))

    def _names(self, dot: str) -> list[str]:
        with suppress(SiltstoneError):
            return sorted(self._session.store().tags()) if dot == ".tag" else self._known_tables()
        return []

    def _in_statement(self, document: Document) -> Iterator[Completion]:
        found = _PIECE.search(document.text_before_cursor)
        piece = found[0] if found else ""
        keywords = [word.upper() for word in _KEYWORDS] if piece.isupper() else _KEYWORDS
        with suppress(SiltstoneError):  # whatever the store says: no word is offered of it
            tables = self._known_tables()
            yield from _of(
                piece, [*self._known_columns(tables, document.text), *map(_name, tables)]
            )
        yield from _of(piece, keywords if piece else ())

    def _known_tables(self) -> list[str]:
        if self._tables is None:
            with self._session.reading() as read:
                self._tables = read.tables()
        return self._tables

    def _known_columns(self, tables: list[str], text: str) -> list[str]:
        low = text.lower()
        named = [table for table in tables if table.lower() in low]
        found = dict[str, None]()
        with self._session.reading() as read:
            for table in (named or tables)[:TABLES_MAX]:
                if table not in self._columns:
                    self._columns[table] = [_quoted(each) for each in read[table].schema.names]
                found |= dict.fromkeys(self._columns[table])
                if named:
                    found |= dict.fromkeys(f"{_name(table)}.{c}" for c in self._columns[table])
        return list(found)


def _of(piece: str, words: Iterable[str]) -> Iterator[Completion]:
    low, dots = piece.lower(), piece.count(".")
    for word in words:
        if word.lower().startswith(low) and (dots or word.count(".") == 0 or word[0] == "."):
            yield Completion(word, -len(piece))


def _name(table: str) -> str:
    return ".".join(map(_quoted, table.split(".")))


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'
