"""The same search gives the same rows and the same distances through every door.

Above a merged and indexed base there are fresh, updated and deleted rows, in history and in
memtables. Spark's door is in tests/spark/test_search_doors.py: it asks the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from tests.query.search_doors import ASKED, Doors, fill, found_by, wanted

pytestmark = pytest.mark.filterwarnings("ignore")  # of LanceDB's client's own making
OF_THIS_PROCESS = ("table", "snapshot", "transaction", "joined", "read_only", "past")
OF_OTHERS = ("rest", "namespace", "lancedb", "lancedb_async", "command_line", "server", "sql")


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    path: Path = tmp_path_factory.mktemp("doors") / "library"
    with st.connect(path, background=False) as db:
        fill(db)
        with Doors.of(db) as opened:
            yield opened


@pytest.mark.parametrize("number", range(len(ASKED)))
def test_every_door_gives_the_rows_of_brute_force(
    doors: Doors, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ASKED[number]
    expected = wanted(asked)
    assert expected
    for door in (*OF_THIS_PROCESS, *OF_OTHERS):
        answer: Any = found_by(doors, door, asked, capsys)
        assert answer == expected, door
