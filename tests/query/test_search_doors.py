"""The same search gives the same rows, distances and scores through every door.

Above a merged and indexed base there are fresh, updated and deleted rows, in history and in
memtables. Spark's door is in tests/spark/test_search_doors.py: it asks the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from tests.query.search_doors import ASKED, Asked, Doors, fill, found_by, wanted
from tests.query.words_doors import (
    ALL,
    BOTH,
    EXACT,
    WORDS,
    WRONG,
    AskedWords,
    scored,
    wanted_words,
    words_by,
)

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


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """The same rows, all of them in base."""
    path: Path = tmp_path_factory.mktemp("merged") / "library"
    with st.connect(path, background=False) as db:
        fill(db)
        db.checkpoint()
        db.merge()
        with Doors.of(db) as opened:
            yield opened


@pytest.fixture(params=["doors", "merged"])
def either(request: pytest.FixtureRequest) -> Doors:
    return request.getfixturevalue(request.param)


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


def test_every_door_that_sees_a_boolean_in_a_vector_refuses_it(
    doors: Doors, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Asked([True, 1, 0, 0, 0, 0, 0, 0], 3)
    for door in OF_THIS_PROCESS:
        with pytest.raises(st.RequestError, match="numbers, not of booleans"):
            found_by(doors, door, asked, capsys)
    assert doors.rest.post("/v1/table/docs/query", asked.query).code == (400, 13)
    with pytest.raises(Exception, match="vector"):
        found_by(doors, "namespace", asked, capsys)
    for door in ("command_line", "server"):
        with pytest.raises(AssertionError):
            found_by(doors, door, asked, capsys)
        assert "boolean" in capsys.readouterr().err


@pytest.mark.parametrize("asked", WORDS, ids=str)
def test_every_door_finds_the_same_words(
    either: Doors, asked: AskedWords, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = scored(words_by(either, "table", asked, capsys))
    there = wanted_words(asked)
    assert {n for n, _ in expected} <= {*there}
    assert len(expected) == min(asked.k, len(there)) > 0
    for door in (*OF_THIS_PROCESS, *OF_OTHERS):
        assert scored(words_by(either, door, asked, capsys)) == expected, door


def test_exact_scores_are_those_of_brute_force_where_a_door_can_ask_for_them(
    either: Doors, capsys: pytest.CaptureFixture[str]
) -> None:
    there = wanted_words(EXACT)
    for door in (*OF_THIS_PROCESS, "command_line", "server", "sql"):
        found = dict(scored(words_by(either, door, EXACT, capsys)))
        assert found == pytest.approx(there, rel=1e-5), door
        assert len(found) < ALL


@pytest.mark.parametrize("asked", BOTH, ids=str)
def test_words_and_a_vector_are_one_ranking_at_every_door_that_takes_both(
    either: Doors, asked: AskedWords, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = words_by(either, "table", asked, capsys).to_pylist()
    assert [*expected[0]] == ["id", "_distance", "_words_score", "_score"]
    for door in (*OF_THIS_PROCESS, "command_line", "server", "sql"):
        found: Any = words_by(either, door, asked, capsys)
        if door == "sql":
            found = found.arrow()
        assert (found if isinstance(found, list) else found.to_pylist()) == expected, door
    beside = {**asked.query, "vector": asked.vector}
    answer = either.rest.post("/v1/table/docs/query", beside)
    assert answer.code == (406, 0)
    assert "full_text_query with a vector is not offered" in answer.json["error"]


@pytest.mark.parametrize(("asked", "said", "by_lancedb"), WRONG, ids=str)
def test_every_door_says_the_same_of_a_wrong_search_for_words(
    doors: Doors,
    asked: AskedWords,
    said: str,
    by_lancedb: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for door in (*OF_THIS_PROCESS, *OF_OTHERS):
        if door.startswith("lancedb") and not by_lancedb:
            continue
        with pytest.raises(Exception) as caught:  # noqa: PT011 - each door has its own class
            scored(words_by(doors, door, asked, capsys))
        assert said in str(caught.value).replace("\\", ""), door
        if door in OF_THIS_PROCESS or door == "sql":
            assert isinstance(caught.value, st.RequestError | st.SchemaMismatchError), door
