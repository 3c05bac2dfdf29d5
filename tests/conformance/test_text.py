"""Text: words are found by an index that the client makes, or has the store make."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.conformance.cases import CLIENTS, case
from tests.conformance.guests import Guest, Path

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
KIND = "text search"
TEXTS = pa.table(
    {
        "id": [1, 2, 3],
        "text": ["the quick brown fox", "a lazy dog", "the fox and the dog"],
        "e": pa.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]], pa.list_(pa.float32(), 2)),
    }
)


@case(KIND, *CLIENTS)
def test_words_are_found(guest: Guest, table: Path) -> None:
    guest.create(table, TEXTS)
    guest.index_text(table, "text")
    assert sorted(guest.text(table, "fox", "text")["id"].to_pylist()) == [1, 3]


@case(KIND, *CLIENTS)
def test_rows_that_came_after_the_index_are_found(guest: Guest, table: Path) -> None:
    guest.create(table, TEXTS)
    guest.index_text(table, "text")
    guest.append(table, TEXTS.slice(0, 1).set_column(0, "id", pa.array([4])))
    assert sorted(guest.text(table, "quick", "text")["id"].to_pylist()) == [1, 4]


@case(KIND, *CLIENTS)
def test_the_index_of_a_text_is_listed(guest: Guest, table: Path) -> None:
    guest.create(table, TEXTS)
    assert guest.indexes(table) == []
    guest.index_text(table, "text")
    assert guest.indexes(table) == ["text_idx"]


@case(KIND, *CLIENTS)
def test_a_scalar_index_never_changes_results(guest: Guest, table: Path) -> None:
    guest.create(table, TEXTS)
    guest.index(table, "id")
    assert len(guest.indexes(table)) == 1
    assert guest.rows(table, ["text"], "id = 2", limit=9).to_pylist() == [{"text": "a lazy dog"}]
