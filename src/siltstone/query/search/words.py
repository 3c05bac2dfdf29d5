"""Words: the rows of a table at one seq whose texts have some words, by one column.

    base     Lance's index of texts, with the hidden rows in the block list and the filter before
    the rest rows above base, and merged rows that no segment covers where Lance does not find all
             of them: taken apart by the index's own tokenizer, and scored by the same formula

Lance's scores are by the statistics of all indexed rows. So the rest is scored by these and its
own together; `is_exact` counts the rows of the seq alone, and scores all of them here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import cast

import numpy as np
import pyarrow as pa

from siltstone.engine.columns.row_texts import TextBlock, text_block
from siltstone.engine.filter.filters import Filter
from siltstone.engine.filter.typed import is_text
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.reader import PlainReader, Reader
from siltstone.errors import RequestError
from siltstone.maintenance.index.index_plan import stored_name
from siltstone.process import deadline
from siltstone.query.search.candidates import BASE, Candidates
from siltstone.query.search.fresh import matching
from siltstone.query.search.stored import Blocked, Stored, tied_at
from siltstone.query.search.tally import Statistics, Tally, Wanted
from siltstone.query.search.text_query import TextQuery, check_fuzzy, needs_index
from siltstone.storage.tables.tables import TextAnalyzer
from siltstone.storage.tables.values import IndexOption, Span, TextIndex, WordsQuery

_MARGIN, _GROWTH, _ASKED_MAX = 128, 8, 100_000  # short texts often have like scores
_TAKEN_ROWS = 4_096
Options = Mapping[str, IndexOption | None]


def indexed_columns(reader: Reader) -> frozenset[str]:
    """Return the columns that have an index of texts."""
    shown = [field.name for field in reader.table_schema.arrow if is_text(field.type)]
    if isinstance(reader, PlainReader):
        indexes = () if reader.table is None else reader.table.search.text_indexes
        return frozenset(shown) & {index.column for index in indexes}
    if reader.texts is None:
        return frozenset()
    ids, texts = reader.table_schema.ids, reader.texts
    return frozenset(name for name in shown if texts.on(ids[name]))


@dataclass(frozen=True)
class WordSearch:
    """A search for words in one column.

    `stored` is base, or the version of a plain table; `index` is its index, None: there is none, or
    it is not the one that is declared.
    """

    reader: Reader
    query: TextQuery
    column: str
    weight: float
    where: Filter | None
    stored: Stored | None
    index: TextIndex | None
    wanted: Wanted
    name: object

    def candidates(self) -> Iterator[Candidates]:
        """Yield the rows that may be among the k with the highest scores."""
        if not self.wanted.terms:
            return
        tally = Tally(self.wanted)
        covered = () if self.index is None else self.index.covered
        if self.stored is not None and self.stored.may_have(self.column):
            rest = [span for span in self.stored.table.spans if span not in covered]
            if covered and not self.query.is_exact:
                yield from self._ranked()
            # Lance finds words that are like one only if the index has them.
            if not covered or self.query.edits or self.query.is_exact:
                self._add_stored(tally, rest)
        if isinstance(self.reader, KeyedReader):
            self._add_fresh(self.reader, tally)
        statistics = self._statistics(tally)  # before the rows are added whose statistics it has
        if covered and self.query.is_exact:
            self._add_covered(tally, self.where)
        yield from tally.candidates(statistics, self.weight)

    # base, ranked by Lance

    def _asked(self, query: TextQuery, limit: int, blocked: Blocked) -> WordsQuery:
        assert self.stored is not None
        return WordsQuery(
            self.stored.names[self.column],
            query.words,
            limit,
            query.has_all,
            query.is_phrase,
            self.wanted.terms,
            query.edits,
            bool(query.edits) or query.is_exact,
            blocked.prefilter,
        )

    def _ranked(self) -> Iterator[Candidates]:
        """Yield the rows that Lance ranks highest, and those that are as high as the last."""
        assert self.stored is not None
        blocked = self.stored.blocked(self.where)
        if blocked.is_empty:
            return
        asked = self.query.k + _MARGIN
        while True:
            found = self.stored.table.search.with_words(
                self._asked(self.query, asked, blocked), blocked.visible, is_kept=blocked.is_kept
            )
            scores = (found.distances * np.float32(self.weight)).astype(np.float32)
            is_all = len(scores) < asked or asked >= _ASKED_MAX
            if is_all or not tied_at(-scores, self.query.k):
                yield Candidates.of(0, BASE, found.positions, -scores)
                return
            asked = min(asked * _GROWTH, _ASKED_MAX)

    # rows that are taken apart here

    def _add_stored(self, tally: Tally, spans: list[Span]) -> None:
        """Add the visible rows of some parts."""
        assert self.stored is not None
        names = [self.column, *(self.where.columns if self.where else ())]
        names = list(dict.fromkeys(names))
        for span in spans:
            for positions, rows in self.stored.rows_of(names, within=span):
                lives = self.stored.are_visible(positions)
                may = lives
                if self.where is not None:
                    may = lives & self.where.mask(rows).to_numpy(zero_copy_only=False)
                texts = rows.column(self.column)
                tally.add(self._block(texts), BASE, positions, lives, may, _taken_of(texts))

    def _add_fresh(self, reader: KeyedReader, tally: Tally) -> None:
        schema, column, name = reader.table_schema, self.column, self.name
        make = partial(text_block, self.wanted.analyzer.tokens)
        for number, level in enumerate(reader.overlay().levels):
            lives = level.kept.to_numpy(zero_copy_only=False)
            may = matching(reader, level, self.where)
            start = 0
            for index, part in enumerate(level.parts):
                blocks = reader.levels.vectors.blocks(level, index, schema, column, name, make)
                for block in deadline.checked(blocks):
                    places = np.arange(block.start + start, block.end + start)
                    texts = partial(self._fresh_texts, reader, number, places)
                    tally.add(block, number, places, lives[places], may[places], texts)
                start += part.rows

    def _fresh_texts(
        self, reader: KeyedReader, number: int, places: np.ndarray, rows: np.ndarray
    ) -> pa.Array:
        """Return the texts of some rows (ascending) among those at some places of a level."""
        level = reader.overlay().levels[number]
        mask = np.zeros(len(level.kept), bool)
        mask[places[rows]] = True
        batches = level.source.rows_kept(
            level.parts, pa.array(mask), reader.table_schema, [self.column]
        )
        return pa.concat_arrays([batch.column(0) for batch in batches])

    def _add_covered(self, tally: Tally, where: Filter | None) -> None:
        """Add the rows that Lance finds in the index, however many: their texts are read."""
        assert self.stored is not None
        blocked = self.stored.blocked(where)
        if blocked.is_empty:
            return
        table, name = self.stored.table, self.stored.names[self.column]
        query = self._asked(tally.wanted.query, max(table.rows, 1), blocked)
        found = table.search.with_words(query, blocked.visible, is_kept=blocked.is_kept)
        positions = np.sort(found.positions)
        for start in range(0, len(positions), _TAKEN_ROWS):
            deadline.check()
            some = positions[start : start + _TAKEN_ROWS]
            texts = pa.concat_arrays(table.take(some, [name]).column(0).chunks)
            everything = np.ones(len(some), bool)
            tally.add(self._block(texts), BASE, some, everything, everything, _taken_of(texts))

    def _block(self, texts: pa.Array) -> TextBlock:
        return text_block(self.wanted.analyzer.tokens, texts, 0)

    # statistics

    def _statistics(self, tally: Tally) -> Statistics:
        """Return the statistics of the rows added so far and of the index together."""
        df = dict(tally.df)
        if self.stored is None or self.index is None or not self.index.covered:
            return Statistics(tally.texts, tally.words, lambda word: df.get(word, 0))
        table, name = self.stored.table, self.stored.names[self.column]
        visible = self.stored.all_visible if self.query.is_exact else None
        totals = table.search.text_totals(self.index, visible)

        def together(word: str) -> int:
            asked = self._surface(word)
            if asked is None and self.query.is_exact:
                return df.get(word, 0) + self._df_of_texts.get(word, 0)
            return df.get(word, 0) + table.search.count_with_word(name, asked or word, visible)

        return Statistics(tally.texts + totals.texts, tally.words + totals.words, together)

    def _surface(self, word: str) -> str | None:
        """Return a text that becomes this very word; None: none is known."""
        if word in self._surfaces:
            return self._surfaces[word]
        return word if list(self.wanted.analyzer.tokens(word)) == [word] else None

    @cached_property
    def _df_of_texts(self) -> Mapping[str, int]:
        """How many rows in the index have a word, counted in the texts of all that have one."""
        query = replace(self.query, has_all=False, is_phrase=False)
        tally = Tally(replace(self.wanted, query=query))
        self._add_covered(tally, None)
        return tally.df

    @cached_property
    def _surfaces(self) -> dict[str, str]:
        """The words of the query by what they become: a stem may have another stem."""
        tokens = self.wanted.analyzer.tokens
        found: dict[str, str] = {}
        pieces = [*re.findall(r"\w+", self.query.words), *self.query.words.split()]
        for text in dict.fromkeys(pieces):
            made = tokens(text)
            if len(made) == 1:
                found.setdefault(made[0], text)
        return found


def _taken_of(texts: pa.Array) -> Callable[[np.ndarray], pa.Array]:
    return lambda rows: texts.take(pa.array(rows, pa.int64()))


def word_search(
    reader: Reader,
    query: TextQuery,
    column: str,
    weight: float,
    where: Filter | None,
    stored: Stored | None,
) -> WordSearch:
    """Return the search of one column.

    Raises:
        RequestError: Its index does not serve it.
    """
    options, index, name = _index(reader, column, stored)
    if query.is_phrase and not options.get("with_position"):
        is_plain = isinstance(reader, PlainReader)
        raise needs_index(column, ", with_position=True", is_plain=is_plain)
    assert reader.texts is not None
    analyzer = reader.texts.analyzer(options)
    wanted = _wanted(query, analyzer)
    return WordSearch(reader, query, column, weight, where, stored, index, wanted, name)


def _wanted(query: TextQuery, analyzer: TextAnalyzer) -> Wanted:
    terms = tuple(analyzer.tokens(query.words))
    if query.edits:
        check_fuzzy(terms)
    places = analyzer.places(query.words) if query.has_all else ()
    if len(set(places)) < len(places):
        raise RequestError(
            "the index takes words apart into pieces, of which Lance needs only one: operator 'and'"
            " and phrases are not offered for it"
        )
    return Wanted(query, terms, analyzer)


def _index(
    reader: Reader, column: str, stored: Stored | None
) -> tuple[Options, TextIndex | None, object]:
    """Return the options of the index of a column, it in base, and what its words are kept by."""
    found: list[TextIndex] = []
    if stored is not None and column in stored.names:
        found = [i for i in stored.table.search.text_indexes if i.column == stored.names[column]]
    if isinstance(reader, PlainReader):
        _require_one(column, [index.name for index in found])
        return dict(found[0].options), found[0], None
    assert reader.texts is not None
    number = reader.table_schema.ids[column]
    declared = reader.texts.on(number)
    _require_one(column, [index.name for index in declared])
    is_built = [index.name for index in found] == [stored_name(declared[0])]
    options = cast("Options", dict(declared[0].options))
    name = (number, "words", declared[0].options)
    return options, found[0] if is_built else None, name


def _require_one(column: str, names: list[str]) -> None:
    if len(names) > 1:
        raise RequestError(
            f"{column!r} has several indexes of texts, which may find different words:"
            f" {', '.join(sorted(names))}; drop all but one"
        )
