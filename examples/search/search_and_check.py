"""Search and check: search a store that is being written, and compare each answer.

    python examples/search/search_and_check.py [--seconds 20] [--texts 0] [--store FOLDER]

It starts writer.py in a process of its own. In this process it takes one snapshot after the other,
in turn by a handle that only reads and by one that joined the writer. In each it asks with a text
that the table has not, and compares every answer with all rows of the same snapshot. It ends with
1 if an answer was wrong, else with 0.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from brute_force import (
    WINDOW,
    Ranking,
    Rows,
    fused,
    nearest,
    ranking_of,
    recall,
    with_words,
    wrong_distances,
    wrong_ranking,
    wrong_rows,
)
from writer import read_texts

import siltstone as st

K = 10
EVERYTHING = 10_000  # more than there are rows
MERGES_MIN = 2
PROGRESS = ("seq", "rows", "merges")
SHOWN_EVERY_S = 2
WRONG_SHOWN_MAX = 5
HERE = Path(__file__).parent


class Question(NamedTuple):
    """What is asked: a text, and its vector as a list (for the search) and by NumPy."""

    text: str
    vector: list[float]
    numbers: np.ndarray


@dataclass
class Tally:
    """What became of the searches of one kind."""

    wrong: int = 0
    recalls: list[float] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def searches(self) -> int:
        return sum(map(len, self.seconds.values()))


# The searches. Each gets the table of a snapshot, a question, and what brute force finds there.


class Answer(NamedTuple):
    """What is wrong with an answer ("": nothing), its share of the nearest rows, and its time."""

    wrong: str
    recall: float | None
    seconds: float


def timed(search: Callable[[], Any], number: str) -> tuple[Ranking, float]:
    begun = time.perf_counter()
    rows = search().to_pylist()
    took = time.perf_counter() - begun
    return ranking_of(rows, number), took


def vector_exact(table: Any, asked: Question, rows: Rows) -> Answer:
    """With `exact=True` no index is asked."""
    found, took = timed(
        lambda: table.search(asked.vector, K, metric="cosine", exact=True, columns=["id"]),
        "_distance",
    )
    right = nearest(rows, asked.numbers, K)
    return Answer(wrong_ranking(found, right), recall(found, right), took)


def vector(table: Any, asked: Question, rows: Rows) -> Answer:
    """An index that rounds vectors finds nearly the nearest rows; what it gives is right."""
    found, took = timed(
        lambda: table.search(asked.vector, K, metric="cosine", columns=["id"]), "_distance"
    )
    share = recall(found, nearest(rows, asked.numbers, K))
    return Answer(wrong_distances(found, rows, asked.numbers), share, took)


def words_exact(table: Any, asked: Question, rows: Rows) -> Answer:
    """With `exact=True` the scores, hence the order, are those of the rows of the snapshot."""
    found, took = timed(lambda: table.search(asked.text, K, exact=True, columns=["id"]), "_score")
    return Answer(wrong_ranking(found, with_words(rows, asked.text)[:K]), None, took)


def words(table: Any, asked: Question, rows: Rows) -> Answer:
    """All rows that have a word; their order is by statistics that may be a little old."""
    found, took = timed(lambda: table.search(asked.text, EVERYTHING, columns=["id"]), "_score")
    return Answer(wrong_rows(found, with_words(rows, asked.text)), None, took)


def both_exact(table: Any, asked: Question, rows: Rows) -> Answer:
    """With `exact=True` it is the fusion of what brute force finds."""
    found, took = timed(lambda: _both(table, asked, exact=True), "_score")
    right = fused(with_words(rows, asked.text), nearest(rows, asked.numbers, WINDOW), K)
    return Answer(wrong_ranking(found, right), None, took)


def both(table: Any, asked: Question, rows: Rows) -> Answer:
    """It is the fusion of what two searches find by themselves."""
    found, took = timed(lambda: _both(table, asked, exact=False), "_score")
    of_words = ranking_of(table.search(asked.text, WINDOW, columns=["id"]), "_score")
    near = ranking_of(
        table.search(asked.vector, WINDOW, metric="cosine", columns=["id"]), "_distance"
    )
    wrong = wrong_ranking(found, fused(of_words, near, K))
    return Answer(wrong or wrong_distances(near, rows, asked.numbers), None, took)


def _both(table: Any, asked: Question, *, exact: bool) -> Any:
    return table.search(
        asked.text, K, vector=asked.vector, metric="cosine", exact=exact, columns=["id"]
    )


SEARCHES: dict[str, Callable[[Any, Question, Rows], Answer]] = {
    "vector": vector,
    "vector, exact": vector_exact,
    "words": words,
    "words, exact": words_exact,
    "words and vector": both,
    "words and vector, exact": both_exact,
}


@dataclass
class Run:
    """The searches so far; `progress` is what the last snapshot says of the writer."""

    questions: list[Question]
    tallies: dict[str, Tally] = field(default_factory=lambda: {name: Tally() for name in SEARCHES})
    texts: frozenset[str] = frozenset()
    torn: int = 0
    progress: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PROGRESS, 0))
    snapshots: int = 0
    wrong_shown: int = 0

    @property
    def wrong(self) -> int:
        return self.torn + sum(tally.wrong for tally in self.tallies.values())

    @property
    def searches(self) -> int:
        return sum(tally.searches for tally in self.tallies.values())

    def look(self, door: str, db: st.Store) -> None:
        """Ask one question in every way, in one snapshot."""
        asked = self.questions[self.snapshots % len(self.questions)]
        self.snapshots += 1
        with db.snapshot() as snapshot:
            table = snapshot["texts"]
            rows = all_rows(table)
            self._check_texts(rows)
            self.progress = {"seq": snapshot.seq, **snapshot["progress"].get("writer")}
            for name, search in SEARCHES.items():
                self.add(name, door, snapshot.seq, search(table, asked, rows))

    def _check_texts(self, rows: Rows) -> None:
        """See that a snapshot is whole: whatever the writer commits, each text is there once."""
        texts = frozenset(rows.texts)
        self.texts = self.texts or texts
        if texts != self.texts or len(texts) != len(rows.texts):
            self.torn += 1
            print("WRONG: a snapshot has half of a transaction", flush=True)

    def add(self, name: str, door: str, seq: int, answer: Answer) -> None:
        tally = self.tallies[name]
        tally.seconds.setdefault(door, []).append(answer.seconds)
        if answer.recall is not None:
            tally.recalls.append(answer.recall)
        if answer.wrong:
            tally.wrong += 1
            self.wrong_shown += 1
            if self.wrong_shown <= WRONG_SHOWN_MAX:
                print(f"WRONG at seq {seq} ({name}, {door}): {answer.wrong}", flush=True)

    def line(self) -> str:
        seq, rows, merges = (self.progress[name] for name in PROGRESS)
        return (
            f"seq {seq:,}: {rows:,} rows written, {merges} merges, {self.searches:,} searches,"
            f" {self.wrong} differences"
        )

    def report(self) -> str:
        """Return the table of all kinds of searches."""
        doors = [*next(iter(self.tallies.values())).seconds]
        head = ("search", "searches", "differences", "recall@10", *(f"{d}, p50" for d in doors))
        lines = [f"{head[0]:<26}" + "".join(f"{each:>17}" for each in head[1:])]
        for name, tally in self.tallies.items():
            share = f"{np.mean(tally.recalls):.3f}" if tally.recalls else ""
            times = [f"{np.median(tally.seconds[door]) * 1e3:.1f} ms" for door in doors]
            shown = (f"{tally.searches:,}", str(tally.wrong), share, *times)
            lines.append(f"{name:<26}" + "".join(f"{each:>17}" for each in shown))
        return "\n".join(lines)


def all_rows(table: Any) -> Rows:
    """Return all rows of a snapshot for brute force."""
    found = table.to_arrow(["id", "text", "v"]).sort_by("id").combine_chunks()
    vectors = found["v"].combine_chunks().flatten().to_numpy().astype(np.float64)
    return Rows(found["id"].to_pylist(), found["text"].to_pylist(), vectors.reshape(len(found), -1))


def questions() -> list[Question]:
    """Return the texts that are not in the table."""
    _, asked = read_texts()
    return [
        Question(row["text"], row["v"], np.array(row["v"], np.float64)) for row in asked.to_pylist()
    ]


@contextmanager
def writing(store: str, texts: int) -> Iterator[subprocess.Popen[str]]:
    """Start the writer, wait until the table is there, and end it afterwards."""
    command = [sys.executable, str(HERE / "writer.py"), store, str(texts)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        if writer.stdout.readline() != "ready\n":
            sys.exit("the writer did not start")
        yield writer
        writer.stdin.close()
        if writer.wait():
            sys.exit("the writer failed")


def search(store: str, seconds: float, texts: int) -> Run:
    """Search while the writer writes, at least until it merged twice."""
    run = Run(questions())
    with (
        writing(store, texts) as writer,
        st.connect(store, read_only=True) as reader,
        st.connect(store, join=True) as joined,
    ):
        doors = {"read-only": reader, "joined": joined}
        begun = shown = time.monotonic()
        while time.monotonic() - begun < seconds or run.progress["merges"] < MERGES_MIN:
            for door, db in doors.items():
                run.look(door, db)
            if time.monotonic() - shown >= SHOWN_EVERY_S:
                shown = time.monotonic()
                print(f"{shown - begun:4.0f} s, {run.line()}", flush=True)
            if writer.poll() is not None:
                sys.exit("the writer ended")
    return run


def main(*arguments: str) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--texts", type=int, default=0, help="about how many; 0: all")
    parser.add_argument("--store", help="a new folder; without it a temporary one")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="siltstone-search-") as folder:
        run = search(asked.store or str(Path(folder) / "store"), asked.seconds, asked.texts)
    return finish(run)


def finish(run: Run) -> int:
    """Print what became of all searches; return how the process ends."""
    print(run.line(), run.report(), sep="\n\n")
    return int(run.wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
