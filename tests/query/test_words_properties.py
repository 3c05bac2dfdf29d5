"""A search for words finds at each seq the rows that brute force finds, whatever was done.

Which rows have the words is always exact; with `exact=True` the scores are, too. The k rows with
the highest scores are the first k of all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from tests.query.random_life import FILTERS, IDS, SEEDS, RandomLife, Rows
from tests.query.words_found import found, scores

STEPS = 40
WORDS = (
    "silt", "silts", "stone", "stoned", "stones", "store", "river", "rivers", "driver", "the",
    "of", "a", "generically", "generic", "naïve", "naive", "re-read", "x", "Stone",
)  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"with_position": True, "stem": False, "remove_stop_words": False},
    "stemmed": {"with_position": True},
    "trigrams": {"base_tokenizer": "ngram", "stem": False, "remove_stop_words": False},
}


class Life(RandomLife):
    def __init__(self, db: st.Store, options: dict[str, Any], seed: int) -> None:
        super().__init__(db, seed)
        self.options = options
        columns = {"id": "int64", "s": "string", "g": "int32"}
        self.table = db.create_table("t", columns, primary_key="id")
        self.table.create_index("s", kind="fts", **options)

    def text(self, most: int = 7) -> str | None:
        if self.random.random() < 0.06:
            return self.random.choice([None, "", "...", "the of"])
        return " ".join(self.random.choices(WORDS, k=self.random.randrange(1, most)))

    def row(self) -> tuple[str | None, int]:
        return self.text(), self.random.randrange(3)

    def upsert(self) -> None:
        new = {n: self.row() for n in self.some_ids()}
        self.rows.update(new)
        self.table.upsert([{"id": n, "s": text, "g": g} for n, (text, g) in new.items()])

    def one(self) -> None:
        number, (text, group) = self.random.randrange(IDS), self.row()
        self.rows[number] = (text, group)
        self.table.upsert({"id": number, "s": text, "g": group})

    def value_alone(self) -> None:
        if self.rows:
            number, text = self.random.choice([*self.rows]), self.text()
            self.rows[number] = (text, self.rows[number][1])
            self.table.update(number, s=text)

    def index(self) -> None:
        self.table.drop_index("s")
        self.table.create_index("s", kind="fts", build=self.random.random() < 0.5, **self.options)


def asked_of(life: Life) -> dict[str, Any]:
    """Return what is asked besides the words."""
    ways: list[dict[str, Any]] = [{}, {"operator": "or"}]
    if "base_tokenizer" not in life.options:
        ways = [*ways, {"fuzzy": 1}, {"fuzzy": 2}, {"operator": "and"}, {"phrase": True}]
        ways.append({"operator": "and", "fuzzy": 1})
    return life.random.choice(ways)


def check(life: Life, table: Any, rows: Rows) -> None:
    rng = life.random
    text, wanted = rng.choice(FILTERS)
    words = " ".join(rng.choices([*WORDS, "nowhere"], k=rng.choice([1, 1, 2, 3])))
    asked, exact = asked_of(life), rng.random() < 0.5
    texts = {number: row for number, (row, _) in rows.items()}
    best = scores(texts, words, life.options, **asked)
    best = {n: score for n, score in best.items() if wanted(n, rows[n][1])}
    result = table.search(words, k=200, filter=text, exact=exact, **asked)
    assert {*found(result)} == {*best}, (words, asked, text, exact)
    order = [(-row["_score"], row["id"]) for row in result]
    assert order == sorted(order)
    assert all(row["s"] == texts[row["id"]] for row in result)
    first = table.search(words, k=rng.choice([1, 5]), filter=text, exact=exact, **asked)
    assert [(-row["_score"], row["id"]) for row in first] == order[: len(first)]
    assert len(first) == min(len(order), len(first))
    if exact:
        for row in result:
            assert row["_score"] == pytest.approx(best[row["id"]], rel=1e-5), (words, asked, text)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", OPTIONS)
def test_each_seq_is_searched_as_by_brute_force(tmp_path: Path, kind: str, seed: int) -> None:
    with st.connect(tmp_path / "s", background=False, retention="1h") as db:
        life = Life(db, OPTIONS[kind], seed)
        for _ in range(STEPS):
            life.step()
            for _ in range(3):
                check(life, db["t"], life.rows)
            seq = life.random.choice([*life.past])
            with db.snapshot(seq=seq) as past:
                check(life, past["t"], life.past[seq])
            with db.transaction() as tx:
                life.table, table = tx["t"], life.table
                before = dict(life.rows)
                life.random.choice([life.upsert, life.value_alone, life.delete])()
                check(life, tx["t"], life.rows)
                life.table, life.rows = table, before
                tx.rollback()
