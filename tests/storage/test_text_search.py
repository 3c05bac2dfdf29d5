"""What is known of an index of texts agrees with the texts: counts, phrases and like words."""

from __future__ import annotations

import random
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.query import MatchQuery, MultiMatchQuery

from siltstone.engine.columns.row_texts import text_block
from siltstone.errors import RequestError
from siltstone.formats.bits import all_of
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.files.row_addresses import RowIds
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.values import IndexSpec, TextTotals, WordsQuery
from tests.query.words_found import edits, has_phrase, tokens

FOLDER = "tables/notes-3/base"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("s", pa.string())])
WORDS = ("silt", "silts", "stone", "stoned", "store", "river", "driver", "re-read", "naïve", "x")
PLAIN = {"stem": False, "remove_stop_words": False}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return lance_tables(tmp_path, RealFiles())


def texts(count: int, seed: int = 1) -> list[str | None]:
    rng = random.Random(seed)
    some = [" ".join(rng.choices(WORDS, k=rng.randrange(1, 6))) for _ in range(count)]
    return [None, "", *some]


def test_the_rows_and_words_of_an_index_are_counted_with_and_without_hidden_rows(
    tables: Tables,
) -> None:
    pin = tables.writer.create(FOLDER, SCHEMA)
    rows = [texts(30, seed) for seed in range(3)]
    for number, part in enumerate(rows):
        ids = [100 * number + n for n in range(len(part))]
        pin = tables.writer.append(pin, [pa.record_batch([ids, part], schema=SCHEMA)])
    spec = IndexSpec("s.1", "s", "fts", tuple(PLAIN.items()))
    spans = tables.reader.open(pin).spans
    built = [tables.indexer.build(pin, spec, spans[:1])]
    built.append(tables.indexer.build(pin, spec, spans[1:2]))
    table = tables.reader.open(tables.indexer.put(pin, built))
    (index,) = table.search.text_indexes
    assert (index.name, index.column, list(index.covered)) == ("s.1", "s", list(spans[:2]))
    assert dict(index.options)["stem"] is False
    covered = [len(tokens(text, PLAIN)) for part in rows[:2] for text in part]
    assert table.search.text_totals(index) == TextTotals(60, sum(covered))
    hidden = np.arange(5, 45)
    left = [n for at, n in enumerate(covered) if at not in hidden and n]
    visible = all_of(table.rows).without(hidden)
    assert table.search.text_totals(index, visible) == TextTotals(len(left), sum(left))
    everything = [text for part in rows for text in part]
    with_word = [at for at, t in enumerate(everything) if "stone" in (t or "").split()]
    assert table.search.count_with_word("s", "stone") == sum(at < 64 for at in with_word)
    seen = [at for at in with_word if at not in hidden]
    assert table.search.count_with_word("s", "stone", visible) == sum(at < 64 for at in seen)
    found = table.search.with_words(WordsQuery("s", "stone", 1_000), visible)
    assert sorted(found.positions.tolist()) == seen


def test_positions_are_found_by_row_ids_as_row_ids_by_positions() -> None:
    ids = RowIds.of([pa.array([7, 8, 9, 20, 21], pa.uint64()), pa.array([3, 4, 30], pa.uint64())])
    positions = np.arange(8)
    assert ids.positions(ids.at(positions), 8).tolist() == positions.tolist()
    assert ids.positions(np.array([0, 5, 10, 19, 22, 31]), 8).tolist() == [-1] * 6
    assert RowIds.of([]).positions(np.array([1]), 0).tolist() == [-1]


def test_phrases_and_like_words_are_found_as_by_hand(tables: Tables) -> None:
    analyzer = tables.reader.analyzer({})
    some = texts(60)
    for phrase in ("stone silt", "store", "driver the naïve", "of the river x"):
        by_hand = [has_phrase(tokens(text, {}), tokens(phrase, {})) for text in some]
        assert analyzer.with_phrase(pa.array(some, pa.string()), phrase).tolist() == by_hand
    words = pa.array(["stone", "Stone", "stoned", "re-read", "the", "x", "naïve", "store"])
    for word in ("stone", "naive", "the", "y"):
        for most in (1, 2):
            by_hand = [edits(each, word) <= most for each in words.to_pylist()]
            assert analyzer.near(words, word, most).tolist() == by_hand
    assert analyzer.near(words[:0], "stone", 1).tolist() == []


def test_a_tokenizer_that_lance_has_not_is_refused(tables: Tables) -> None:
    with pytest.raises(RequestError, match="no such index of texts"):
        tables.reader.analyzer({"language": "Klingon"})


def test_blocks_of_texts_are_joined_and_cut_as_their_rows(tables: Tables) -> None:
    tokens_of = tables.reader.analyzer(PLAIN).tokens
    some = texts(20)
    whole = text_block(tokens_of, pa.array(some), 5)
    joined = text_block(tokens_of, pa.array(some[:9]), 5).followed_by(
        text_block(tokens_of, pa.array(some[9:]), 14)
    )
    for block, rows in ((whole, some), (joined, some), (joined.upto(16), some[:11])):
        assert (block.start, block.end) == (5, 5 + len(rows))
        assert block.lengths.tolist() == [len(tokens_of(text or "")) for text in rows]
        for number, word in enumerate(block.words.to_pylist()):
            at, counts = block.having(number)
            counted = {n: list(tokens_of(text or "")).count(word) for n, text in enumerate(rows)}
            assert dict(zip(at.tolist(), counts.tolist(), strict=True)) == {
                n: count for n, count in counted.items() if count
            }
    assert joined.upto(5).having(0)[0].tolist() == []


def test_lance_gives_a_row_the_highest_score_of_its_columns(tmp_path: Path) -> None:
    """So a `multi_match` over REST is a search in several columns."""
    rows = {"a": ["stone", "river silt", "stone river"], "b": ["stone stone", "stone", "z"]}
    dataset = lance.write_dataset(pa.table({"id": range(3), **rows}), tmp_path / "t")
    for column in rows:
        dataset.create_scalar_index(column, "INVERTED")

    def scores(query: object) -> dict[int, float]:
        options = {"disable_scoring_autoprojection": True, "full_text_query": query}
        found = dataset.scanner(columns=["id", "_score"], **options).to_table()
        return {row["id"]: row["_score"] for row in found.to_pylist()}

    of_a, of_b = (scores(MatchQuery("stone", column)) for column in rows)
    assert scores(MultiMatchQuery("stone", ["a", "b"], boosts=[2.0, 0.5])) == pytest.approx(
        {row: max(2 * of_a.get(row, 0), of_b.get(row, 0) / 2) for row in range(3)}
    )
