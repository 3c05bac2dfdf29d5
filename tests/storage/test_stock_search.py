"""A stock client that searches what we show it finds each live row once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest

from siltstone.formats.manifest import Pin
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.tables import BuiltSegment, Span
from tests.storage.searches import BY_PLACE, BY_WORDS, SCHEMA, check, nearest, rows, with_word

FOLDER = "tables/notes-3/base"
PART = 300


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return lance_tables(tmp_path, RealFiles())


def four_parts(tables: Tables, near: int = 20) -> Pin:
    pin = tables.writer.create(FOLDER, SCHEMA)
    for n in range(4):
        some = [rows(1_000 * n, PART, near=near)]
        pin = tables.writer.append(pin, some, seqs=(n + 1, n + 1))
    return pin


def built(tables: Tables, pin: Pin, within: list[Span] | None = None) -> list[BuiltSegment]:
    spans = tables.reader.open(pin).spans if within is None else within
    return [tables.indexer.build(pin, spec, spans) for spec in (BY_PLACE, BY_WORDS)]


def indexed(tables: Tables, pin: Pin, within: list[Span] | None = None) -> Pin:
    return tables.indexer.put(pin, built(tables, pin, within))


def shown(tables: Tables, tmp_path: Path, pin: Pin) -> Any:
    """Open the version as a client does that knows no siltstone."""
    tables.names.promote([], pin)
    return lance.dataset(tmp_path / FOLDER, version=pin.version)


def hide(tables: Tables, pin: Pin, drop: np.ndarray, *more: Any) -> Pin:
    return tables.rewriter.fold(pin, drop=drop, batches=more, compact_below=0)


def compacted(tables: Tables, pin: Pin, within: Span) -> Pin:
    return tables.compactor.swap(pin, [tables.compactor.compact(pin, within)])


def covered(tables: Tables, pin: Pin, name: str) -> list[Span]:
    segments = tables.reader.open(pin).segments
    return sorted(span for one in segments if one.index == name for span in one.covered)


def test_rows_that_a_fold_hides_are_found_by_no_search(tables: Tables, tmp_path: Path) -> None:
    pin = indexed(tables, four_parts(tables))
    pin = hide(tables, pin, np.arange(20))
    assert tables.reader.open(pin).spans[0] == (0, PART)  # rewritten by nobody
    assert covered(tables, pin, "place.1") == tables.reader.open(pin).spans
    check(shown(tables, tmp_path, pin))


def test_rows_of_parts_that_a_fold_rewrites_are_found_once(tables: Tables, tmp_path: Path) -> None:
    pin = indexed(tables, four_parts(tables))
    pin = hide(tables, pin, np.arange(150), rows(9_000, 30, near=5))
    assert len(covered(tables, pin, "place.1")) == 3
    check(shown(tables, tmp_path, pin))
    lacking = sorted(set(tables.reader.open(pin).spans) - set(covered(tables, pin, "place.1")))
    check(shown(tables, tmp_path, indexed(tables, pin, lacking)))


def test_words_are_found_while_no_part_of_base_is_covered(tables: Tables, tmp_path: Path) -> None:
    pin = indexed(tables, four_parts(tables))
    pin = tables.rewriter.fold(
        pin, drop=np.arange(5), batches=[rows(9_000, 5)], compact_below=10 * PART
    )
    assert covered(tables, pin, "words.1") == []
    found = shown(tables, tmp_path, pin)
    assert len(with_word(found, "stone")) == 4 * PART
    check(found)


def test_a_compaction_beside_an_uncovered_part_hides_no_row_of_it(
    tables: Tables, tmp_path: Path
) -> None:
    pin = four_parts(tables)
    pin = indexed(tables, pin, tables.reader.open(pin).spans[1:])
    pin = compacted(tables, pin, (PART, 3 * PART))
    assert (0, PART) not in covered(tables, pin, "place.1")
    check(shown(tables, tmp_path, pin))


def test_a_compaction_lets_no_segment_find_a_row_of_another_one(
    tables: Tables, tmp_path: Path
) -> None:
    pin = four_parts(tables)
    spans = list(tables.reader.open(pin).spans)
    pin = indexed(tables, indexed(tables, pin, spans[1:]), spans[:1])
    pin = compacted(tables, pin, (PART, 3 * PART))
    check(shown(tables, tmp_path, pin))
    lacking = sorted(set(tables.reader.open(pin).spans) - set(covered(tables, pin, "place.1")))
    if lacking:
        pin = indexed(tables, pin, lacking)
    check(shown(tables, tmp_path, pin))


def test_what_is_compacted_stays_covered_by_text_and_vector_segments(
    tables: Tables, tmp_path: Path
) -> None:
    pin = indexed(tables, four_parts(tables))
    pin = compacted(tables, pin, (0, 2 * PART))
    spans = tables.reader.open(pin).spans
    assert len(spans) == 3
    assert covered(tables, pin, "place.1") == covered(tables, pin, "words.1") == spans
    check(shown(tables, tmp_path, pin))
    pin = compacted(tables, pin, (0, 4 * PART))
    assert covered(tables, pin, "place.1") == [(0, 4 * PART)]
    check(shown(tables, tmp_path, pin))


def test_a_segment_that_was_built_beside_a_fold_gives_no_dropped_row_a_place(
    tables: Tables, tmp_path: Path
) -> None:
    pin = four_parts(tables)
    late = built(tables, pin)
    pin = tables.indexer.put(hide(tables, pin, np.arange(150)), late)
    check(shown(tables, tmp_path, pin))
    lacking = sorted(set(tables.reader.open(pin).spans) - set(covered(tables, pin, "place.1")))
    pin = indexed(tables, pin, lacking)
    assert covered(tables, pin, "place.1") == tables.reader.open(pin).spans
    found = shown(tables, tmp_path, pin)
    assert len(with_word(found, "stone", 7)) == 7
    assert len(nearest(found, 60)) == 60
    check(found)
