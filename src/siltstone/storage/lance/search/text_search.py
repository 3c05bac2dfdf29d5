"""Text search: the rows of one version whose texts have some words, scored by Lance.

Lance asks its index for the parts that it covers, and takes the texts of the others apart, unless
only the covered are asked for. Rows that it should not see are in a block list, as for vectors.

    score = sum over words of  idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * words / average))
    idf   = ln(1 + (texts - df + 0.5) / (df + 0.5)),  k1 = 1.2,  b = 0.75

Of covered rows `texts`, `df` and `average` are those of all indexed rows, also of hidden ones.

    part_*_docs.lance   of a segment: `_rowid` and `_num_tokens` of each text that has a word, and
                        in the metadata of its schema `total_tokens`
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from siltstone.errors import RequestError
from siltstone.storage.lance.files.row_addresses import RowIds
from siltstone.storage.tables.values import (
    IndexOption,
    Ranked,
    Segment,
    TextIndex,
    TextTotals,
    WordsQuery,
)

SCORE, ROW_ID = "_score", "_rowid"
EXPANSIONS_MAX = 2**31 - 1  # all words that are near enough: Lance's own default is 50
_NOT_OF_A_TOKENIZER = frozenset(
    {"lance_tokenizer", "with_position", "block_size", "document_granularity"}
)
_DOCS = "_docs.lance"
_ANALYZERS_MAX = 256


def indexes_of(dataset: Any, segments: Iterable[Segment]) -> list[TextIndex]:
    """Return the indexes of texts of a version."""
    covered: dict[str, tuple[tuple[int, int], ...]] = {}
    for segment in segments:
        covered[segment.index] = (*covered.get(segment.index, ()), *segment.covered)
    return [
        TextIndex(
            index.name,
            index.field_names[0],
            tuple(sorted((index.details or {}).items())),
            tuple(sorted(covered.get(index.name, ()))),
        )
        for index in dataset.describe_indices()
        if index.index_type == "Inverted" and len(index.field_names) == 1
    ]


def options_of(asked: WordsQuery, blocked: bytes | None) -> dict[str, Any]:
    """Return the options of Lance's scanner for a search."""
    return {
        "columns": [SCORE],
        "disable_scoring_autoprojection": True,
        "full_text_query": _query(asked),
        "fast_search": asked.covered,
        "limit": asked.limit,
        "filter": asked.prefilter,
        "prefilter": True,
        "use_scalar_index": True,
        "with_row_id": True,  # the index knows them: an address is looked up for each row
        "row_addr_blocklist": blocked,
    }


def _query(asked: WordsQuery) -> Any:
    lance = importlib.import_module("lance.query")
    if asked.is_phrase:
        return lance.PhraseQuery(asked.words, asked.column)
    if asked.edits:
        # Lance takes the words of a fuzzy query as they are, with capitals and endings, whatever
        # the index does with texts; it only splits at signs. So it gets those of the index.
        occur = lance.Occur.MUST if asked.has_all else lance.Occur.SHOULD
        return lance.BooleanQuery(
            [(occur, _near(term, asked.column, asked.edits)) for term in asked.terms]
        )
    operator = lance.FullTextOperator
    operator = operator.AND if asked.has_all else operator.OR
    return lance.MatchQuery(asked.words, asked.column, operator=operator)


def _near(word: str, column: str, edits: int) -> Any:
    lance = importlib.import_module("lance.query")
    return lance.MatchQuery(word, column, fuzziness=edits, max_expansions=EXPANSIONS_MAX)


def ranked(found: pa.Table, ids: RowIds, rows: int) -> Ranked:
    """Return what Lance found, of a version with so many rows, as positions."""
    positions = ids.positions(found.column(ROW_ID).to_numpy().view(np.int64), rows)
    scores = found.column(SCORE).to_numpy()
    return Ranked(np.zeros(len(positions), np.int32), positions, scores, found.select([]))


def totals(
    paths: Iterable[str],
    opened: Callable[[str], Any],
    has: Callable[[np.ndarray], np.ndarray] | None = None,
) -> TextTotals:
    """Return the rows and words of the segments with some files.

    `opened` opens a file. `has` says of some row ids which count; None: all, also those of rows
    that are gone.
    """
    texts, words = 0, 0
    for path in paths:
        if path.endswith(_DOCS):
            reader = opened(path)
            if has is None:
                texts += reader.num_rows()
                words += int(reader.metadata().schema.metadata[b"total_tokens"])
                continue
            for batch in reader.read_all().to_batches():
                counted = has(batch.column("_rowid").to_numpy().view(np.int64))
                texts += int(counted.sum())
                words += int(batch.column("_num_tokens").to_numpy()[counted].sum(dtype=np.int64))
    return TextTotals(texts, words)


class LanceAnalyzer:
    """See `tables.TextAnalyzer`. Phrases and like words are found by a small index in memory."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._lance = importlib.import_module("lance")
        self._options = {k: v for k, v in options.items() if k not in _NOT_OF_A_TOKENIZER}

    def tokens(self, text: str) -> Sequence[str]:
        """See `tables.TextAnalyzer.tokens`."""
        return [token.text for token in self._lance.tokenize(text, **self._options)]

    def places(self, text: str) -> Sequence[int]:
        """See `tables.TextAnalyzer.places`."""
        return [token.position for token in self._lance.tokenize(text, **self._options)]

    def with_phrase(self, texts: pa.Array, phrase: str) -> np.ndarray:
        """See `tables.TextAnalyzer.with_phrase`."""
        lance = importlib.import_module("lance.query")
        options = {**self._options, "with_position": True}
        return self._found(texts, options, lance.PhraseQuery(phrase, "text"))

    def near(self, words: pa.Array, word: str, edits: int) -> np.ndarray:
        """See `tables.TextAnalyzer.near`."""
        as_they_are = {
            "base_tokenizer": "raw",
            "max_token_length": None,
            "lower_case": False,
            "stem": False,
            "remove_stop_words": False,
            "ascii_folding": False,
        }
        return self._found(words, as_they_are, _near(word, "text", edits))

    def _found(self, texts: pa.Array, options: Mapping[str, Any], query: Any) -> np.ndarray:
        found = np.zeros(len(texts), bool)
        if not len(texts):
            return found
        rows = pa.table([pa.array(np.arange(len(texts))), texts], names=["row", "text"])
        dataset = self._lance.write_dataset(rows, "memory://")
        dataset.create_scalar_index("text", "INVERTED", **options)
        scanner = dataset.scanner(
            columns=["row"],
            full_text_query=query,
            limit=len(texts),
            disable_scoring_autoprojection=True,
        )
        found[scanner.to_table()["row"].to_numpy()] = True
        return found


def analyzer(options: Mapping[str, IndexOption | None]) -> LanceAnalyzer:
    """See `tables.TableReader.analyzer`; each is checked once."""
    return _analyzer(tuple(sorted(options.items())))


@functools.lru_cache(_ANALYZERS_MAX)
def _analyzer(options: tuple[tuple[str, IndexOption | None], ...]) -> LanceAnalyzer:
    made = LanceAnalyzer(dict(options))
    try:
        made.tokens("")
    except (ValueError, TypeError) as error:
        raise RequestError(f"Lance has no such index of texts: {error}") from error
    return made
