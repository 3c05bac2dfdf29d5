"""The example of searches compares each answer with brute force, and notices wrong ones."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import siltstone as st

EXAMPLE = Path(__file__).parents[2] / "examples" / "search"
KINDS = [
    "vector", "vector, exact", "words", "words, exact", "words and vector",
    "words and vector, exact",
]  # fmt: skip


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    monkeypatch.syspath_prepend(str(EXAMPLE))  # as it is for a script
    return lambda name: SimpleNamespace(**runpy.run_path(str(EXAMPLE / f"{name}.py")))


def test_searches_beside_a_writer_have_no_difference(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE / "search_and_check.py"), "--store", str(tmp_path / "s")]
    done = subprocess.run(
        [*command, "--seconds", "1", "--texts", "300"],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    table = {line[:26].rstrip(): line[26:].split() for line in done.stdout.splitlines()}
    for kind in KINDS:
        searches, differences = table[kind][:2]
        assert int(searches) >= 2  # by both doors
        assert differences == "0"
    assert table["vector, exact"][2] == "1.000"
    assert float(table["vector"][2]) >= 0.95


class Stale:
    """A table of two snapshots: searches see the rows of the older one."""

    def __init__(self, now: Any, before: Any) -> None:
        self.to_arrow, self.search = now.to_arrow, before.search


def test_a_search_of_old_rows_is_noticed(tmp_path: Path, script: Callable[[str], Any]) -> None:
    writer, searches = script("writer"), script("search_and_check")
    rows, _ = writer.read_texts(100)
    changes, asked = writer.Changes(rows), searches.questions()[5]
    with st.connect(tmp_path / "s", background=False) as db:
        writer.fill(db, rows)
        with db.snapshot() as before:
            for _ in range(40):
                with db.transaction() as tx:
                    changes.swap(tx["texts"])
                    changes.move(tx["texts"])
            assert [*searches.SEARCHES] == KINDS
            run = searches.Run([asked])
            run.look("now", db)
            assert searches.finish(run) == 0
            stale = Stale(db["texts"], before["texts"])
            found = searches.all_rows(stale)
            for name, search in searches.SEARCHES.items():
                run.add(name, "now", db.seq, search(stale, asked, found))
            wrong = {name for name, tally in run.tallies.items() if tally.wrong}
            assert wrong == {*KINDS}
            assert searches.finish(run) == 1


PLANTED: dict[str, tuple[Callable[[Any], Any], set[str]]] = {
    "nothing": (lambda right: right, set()),
    "two rows in the wrong order": (
        lambda right: [right[1], right[0], *right[2:]], {"ranking", "distances"},
    ),
    "a row that is missing": (lambda right: right[1:], {"ranking", "rows"}),
    "a row that comes twice": (
        lambda right: [right[0], *right], {"ranking", "rows", "distances"},
    ),
    "a row that was deleted": (
        lambda right: [(99, right[0][1]), *right[1:]], {"ranking", "rows", "distances"},
    ),
    "an old distance": (
        lambda right: [(right[0][0], np.float32(0)), *right[1:]], {"ranking", "distances"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_wrong_answer_is_noticed(planted: str, script: Callable[[str], Any]) -> None:
    force = script("brute_force")
    vectors = np.random.default_rng(1).standard_normal((5, 4))
    rows = force.Rows([1, 2, 3, 4, 5], ["a b", "b", "C-b", "a", ""], vectors)
    asked = np.ones(4)
    right = force.nearest(rows, asked, 3)
    change, noticed = PLANTED[planted]
    found = change(right)
    seen = {
        "ranking": force.wrong_ranking(found, right),
        "rows": force.wrong_rows(found, right),
        "distances": force.wrong_distances(found, rows, asked),
    }
    assert {name for name, wrong in seen.items() if wrong} == noticed


def test_brute_force_ranks_as_the_formulas_say(script: Callable[[str], Any]) -> None:
    force = script("brute_force")
    rows = force.Rows([1, 2, 3, 4], ["a b", "b", "B-b", "!"], np.eye(4))
    ranked = force.with_words(rows, "b")
    # Three rows of five words, all with b: idf = ln(1 + 0.5 / 3.5), the average is 5 / 3.
    idf = np.log(1 + 0.5 / 3.5)
    norms = {length: 1.2 * (0.25 + 0.75 * length / (5 / 3)) for length in (1, 2)}
    assert [key for key, _ in ranked] == [3, 2, 1]
    assert [float(score) for _, score in ranked] == pytest.approx(
        [
            *(
                idf * 2.2 * times / (times + norms[length])
                for times, length in ((2, 2), (1, 1), (1, 2))
            )
        ]
    )
    near = force.nearest(rows, np.array([0, 2.0, 0, 0]), 2)
    assert near == [(2, 0), (1, 1)]
    both = force.fused(ranked, near, 2)
    assert [key for key, _ in both] == [2, 1]
    assert float(both[0][1]) == pytest.approx(1 / 61 + 1 / 62)


def test_the_committed_vectors_are_of_different_texts_and_of_length_1() -> None:
    table = pq.read_table(EXAMPLE / "texts.parquet")
    texts = table["text"].to_pylist()
    assert len(texts) == len({*texts})
    assert {*table["kind"].to_pylist()} == {"airline", "airport", "package"}
    vectors = table["v"].combine_chunks().flatten().to_numpy().astype(np.float64).reshape(-1, 384)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-3)
    assert (EXAMPLE / "texts.parquet").stat().st_size < 1_500_000
