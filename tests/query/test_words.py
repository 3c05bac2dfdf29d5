"""A search for words finds the rows of its seq, also those of a moment ago, through every door."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.namespace import SiltstoneNamespace
from siltstone.query.search.text_query import CHARACTERS_MAX, FUZZY_WORDS_MAX
from siltstone.query.search.vector_query import K_MAX
from tests.namespace.clients import make, opened
from tests.query.words_found import found, scores
from tests.server.stores import joined_to

COLUMNS = {"id": "int64", "s": "string", "note": "string", "v": "vector(float32, 2)"}
OPTIONS = {"with_position": True}
NOWHERE: Callable[[st.Store], None] = lambda _: None  # noqa: E731


@pytest.fixture
def db(tmp_path: Path) -> Any:
    with st.connect(tmp_path / "s", background=False) as store:
        yield store


def merged(db: st.Store) -> None:
    db.checkpoint()
    db.merge()


PLACES = [NOWHERE, lambda db: db.checkpoint(), merged]


def text(number: int) -> str:
    return f"row {number} of the {'even' if number % 2 == 0 else 'odd'} stones"


def filled(db: st.Store, rows: int = 30) -> Any:
    table = db.create_table("t", COLUMNS, primary_key="id")
    table.upsert([{"id": n, "s": text(n), "note": f"n{n}", "v": [n, 0]} for n in range(rows)])
    table.create_index("s", kind="fts", **OPTIONS)
    return table


def everything(table: Any) -> dict[int, str | None]:
    return {row["id"]: row["s"] for row in table.to_arrow().to_pylist()}


@pytest.mark.parametrize("place", PLACES, ids=["memtable", "history", "base"])
def test_a_row_updated_a_moment_ago_is_found_by_its_new_words_and_not_by_its_old_ones(
    db: st.Store, place: Callable[[st.Store], None]
) -> None:
    table = filled(db)
    place(db)
    for way in ({}, {"operator": "and"}, {"phrase": True}, {"fuzzy": 1}, {"exact": True}):
        assert found(table.search("row 7", k=50, phrase=True)) == [7]
        table.update(7, s="a river of silt")
        assert found(table.search("river", **way)) == [7]
        assert 7 not in found(table.search("row", k=50, **way))
        place(db)
        assert found(table.search("river", **way)) == [7]
        assert 7 not in found(table.search("row", k=50, **way))
        table.update(7, s=text(7))


def test_a_read_only_process_finds_the_new_words(db: st.Store, tmp_path: Path) -> None:
    table = filled(db)
    merged(db)
    with st.connect(tmp_path / "s", read_only=True) as reader:
        assert found(reader["t"].search("7")) == [7]
        table.update(7, s="a river of silt")
        assert found(reader["t"].search("7")) == []
        assert found(reader["t"].search("river silt", phrase=False)) == [7]


def test_a_joined_process_gets_the_same_rows(db: st.Store) -> None:
    table = filled(db)
    ways: list[dict[str, Any]] = [
        {"filter": "id % 2 = 0", "columns": ["note", "id"]},
        {"operator": "and", "boost": 2},
        {"phrase": True, "exact": True},
        {"fuzzy": 1, "boost": {"s": 0.5}},
    ]
    with joined_to(db) as joined:
        for way in ways:
            here = table.search("odd stones", k=40, **way).to_arrow()
            assert joined["t"].search("odd stones", k=40, **way).to_arrow() == here
            assert here.num_rows
        with joined.snapshot() as past, joined.transaction() as tx:
            tx["t"].delete(8)
            assert found(tx["t"].search("8")) == []
            assert found(past["t"].search("8")) == [8]
        with pytest.raises(st.RequestError, match="needs an index of texts"):
            joined["t"].search("odd", column="note")


def test_own_writes_of_a_transaction_are_found_in_it_alone(db: st.Store) -> None:
    table = filled(db)
    merged(db)
    with db.transaction() as tx:
        tx["t"].upsert({"id": 900, "s": "a river"}, "null")
        tx["t"].delete(29)
        for way in ({}, {"phrase": True}, {"fuzzy": 1}, {"exact": True}):
            assert found(tx["t"].search("river", **way)) == [900]
            assert found(table.search("river", **way)) == []
        assert found(tx["t"].search("29")) == []
        tx.rollback()


def test_an_older_seq_is_searched_as_it_was(db: st.Store) -> None:
    table = filled(db)
    merged(db)
    seq = db.seq
    table.update(7, s="a river of silt")
    table.delete([6, 8])
    merged(db)
    with db.snapshot(seq=seq) as past:
        assert found(past["t"].search("river")) == []
        assert found(past["t"].search("6 7 8")) == [6, 7, 8]
    assert found(table.search("6 7 8")) == []


def test_a_seq_before_the_index_is_searched_by_the_index_of_today(db: st.Store) -> None:
    table = db.create_table("t", COLUMNS, primary_key="id")
    table.upsert([{"id": n, "s": text(n)} for n in range(9)], "null")
    merged(db)
    seq = db.seq
    table.update(3, s="a river")
    table.create_index("s", kind="fts", stem=False)
    merged(db)
    with db.snapshot(seq=seq) as past:
        assert found(past["t"].search("stones odd", operator="and")) == [1, 3, 5, 7]
        assert found(past["t"].search("stone")) == []
    assert found(table.search("stones odd", operator="and")) == [1, 5, 7]


def test_an_index_made_anew_with_other_options_counts_from_then_on(db: st.Store) -> None:
    table = filled(db)
    merged(db)
    assert len(table.search("stone", k=50)) == 30
    table.drop_index("s")
    table.create_index("s", kind="fts", stem=False, build=False)
    assert len(table.search("stone", k=50)) == 0
    assert len(table.search("stones", k=50)) == 30
    db.optimize()
    assert len(table.search("stone", k=50)) == 0
    assert len(table.search("stones", k=50)) == 30


def test_a_search_of_a_serializable_transaction_conflicts_with_a_write_that_its_filter_meets(
    db: st.Store,
) -> None:
    table = db.create_table("t", {"id": "int64", "s": "string"}, primary_key="id")
    table.upsert([{"id": n, "s": text(n)} for n in range(30)], "null")
    table.create_index("s", kind="fts")
    both = [db.transaction(isolation="serializable") for _ in range(2)]
    for number, tx in enumerate(both):
        assert tx["t"].search("unheard", filter="id >= 100").to_pylist() == []
        tx["t"].upsert({"id": 200 + number, "s": "unheard"}, "null")
    table.upsert({"id": 5, "s": "unheard"}, "null")
    both[0].commit()
    with pytest.raises(st.ConflictError):
        both[1].commit()


def test_scores_with_exact_are_those_of_the_rows_of_the_seq(db: st.Store) -> None:
    table = filled(db)
    merged(db)
    table.upsert([{"id": n, "s": "even stones and a river"} for n in range(10, 20)], "null")
    table.delete([1, 2, 3])
    for words in ("even stones", "river", "row 4 of the even stones"):
        best = scores(everything(table), words, OPTIONS)
        for row in table.search(words, k=50, exact=True, filter="id > 4"):
            assert row["_score"] == pytest.approx(best[row["id"]], rel=1e-6)


def test_a_merge_of_all_rows_leaves_the_scores(db: st.Store) -> None:
    table = filled(db)
    before = [(row["id"], row["_score"]) for row in table.search("odd stones row 4", k=50)]
    merged(db)
    after = [(row["id"], row["_score"]) for row in table.search("odd stones row 4", k=50)]
    assert [key for key, _ in before] == [key for key, _ in after]
    assert [score for _, score in before] == pytest.approx([score for _, score in after], rel=1e-5)


def test_rows_with_like_scores_come_by_their_keys(db: st.Store) -> None:
    table = db.create_table("k", {"a": "string", "b": "int64", "s": "string"}, ["b", "a"])
    table.create_index("s", kind="fts")
    rows = [{"a": a, "b": b, "s": "the same stone"} for a in "zyx" for b in range(300)]
    table.upsert(rows)
    merged(db)
    wanted = sorted((row["b"], row["a"]) for row in rows)[:7]
    assert [(row["b"], row["a"]) for row in table.search("stone", k=7)] == wanted


def test_several_columns_are_searched_by_their_weights(db: st.Store) -> None:
    table = filled(db)
    table.create_index("note", kind="fts")
    table.update(4, note="river")
    table.update(5, s="river", note="river")
    merged(db)
    table.update(6, s="river")
    both = table.search("river", boost={"s": 3, "note": 0.01}, exact=True)
    assert found(both) == [5, 6, 4]
    one = {row["id"]: row["_score"] for row in table.search("river", column="s", exact=True)}
    other = {row["id"]: row["_score"] for row in table.search("river", column="note", exact=True)}
    best = {n: max(3 * one.get(n, 0), 0.01 * other.get(n, 0)) for n in (4, 5, 6)}
    assert {row["id"]: row["_score"] for row in both} == pytest.approx(best)


def test_a_word_that_is_there_in_another_form_is_found_by_each_of_them(db: st.Store) -> None:
    table = db.create_table("t", COLUMNS, primary_key="id")
    table.create_index("s", kind="fts")
    texts = {1: "Generically NAÏVE rivers", 2: "a generic, naive river", 3: "silt"}
    table.upsert([{"id": n, "s": s} for n, s in texts.items()], "null")
    for place in PLACES:
        place(db)
        for words in ("generically", "GENERIC", "naïve", "Rivers"):
            for way in ({}, {"fuzzy": 1}, {"exact": True, "fuzzy": 1}):
                assert sorted(found(table.search(words, **way))) == [1, 2]


def test_an_empty_text_is_a_word_where_whole_texts_are(db: st.Store) -> None:
    table = db.create_table("t", COLUMNS, primary_key="id")
    options = {"base_tokenizer": "raw"}
    table.create_index("s", kind="fts", **options)
    texts = {1: "", 2: "x", 3: "xy", 4: None, 5: "stone"}
    table.upsert([{"id": n, "s": s} for n, s in texts.items()], "null")
    for place in PLACES:
        place(db)
        for way in ({}, {"fuzzy": 1}):
            best = scores(texts, "x", options, **way)
            rows = table.search("x", k=9, exact=True, **way).to_pylist()
            assert {row["id"]: row["_score"] for row in rows} == pytest.approx(best)
            assert {*best} == ({1, 2, 3} if way else {2})


def test_words_that_the_index_leaves_out_find_nothing(db: st.Store) -> None:
    table = filled(db)
    assert found(table.search("the of")) == []
    assert found(table.search("... !")) == []
    assert len(table.search("the stones", operator="and", k=50)) == 30


def test_an_empty_table_has_no_words(db: st.Store) -> None:
    table = db.create_table("t", COLUMNS, primary_key="id")
    table.create_index("s", kind="fts")
    result = table.search("stone").to_arrow()
    assert result.num_rows == 0
    assert result.column_names == ["id", "s", "note", "v", "_score"]
    table.upsert({"id": 1}, "null")
    merged(db)
    assert found(table.search("stone")) == []


@pytest.mark.parametrize("place", PLACES, ids=["memtable", "history", "base"])
def test_a_column_is_searched_by_the_name_that_it_has_at_the_seq(
    db: st.Store, place: Callable[[st.Store], None]
) -> None:
    table = filled(db)
    place(db)
    seq = db.seq
    table.rename_column("s", "words")
    assert found(table.search("7")) == [7]
    with db.snapshot(seq=seq) as past:
        assert found(past["t"].search("7", column="s")) == [7]
    table.drop_column("words")
    table.add_column("s", "string")
    with pytest.raises(st.RequestError, match="needs an index of texts"):
        table.search("7", column="s")


def test_texts_above_base_are_taken_apart_once(db: st.Store) -> None:
    table = filled(db)
    for number in range(20):
        table.update(number, s=f"river {number}")
        table.search("river", k=1)
    before = _kept_rows(db)
    assert before == 50
    db.checkpoint()
    table.search("river", k=1)
    assert _kept_rows(db) == before


def _kept_rows(db: Any) -> int:
    origins = [*db.core.readers._vectors._origins]
    return sum(blocks[-1].end for origin in origins for blocks in origin.blocks.values())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("has_stable_ids", [False, True])
def test_a_table_without_a_key_is_searched_by_the_index_of_its_client(
    db: st.Store, has_stable_ids: bool
) -> None:
    ns = SiltstoneNamespace(db)
    rows = {"id": [*range(40)], "s": [text(n) for n in range(40)]}
    make(ns, "p", pa.table(rows), max_rows_per_file=10, enable_stable_row_ids=has_stable_ids)
    with pytest.raises(st.RequestError, match="a Lance client makes it"):
        db["p"].search("odd")
    opened(ns, "p").create_scalar_index("s", "INVERTED")
    opened(ns, "p").delete("id >= 10 and id < 20")
    opened(ns, "p").insert(pa.table({"id": [50, 51], "s": ["a river", "odd stoners"]}))
    texts = everything(db["p"])
    for way in ({}, {"operator": "and"}, {"fuzzy": 2}):
        best = scores(texts, "odd stones 7", {}, **way)
        assert {*found(db["p"].search("odd stones 7", k=90, **way))} == {*best}
        for row in db["p"].search("odd stones 7", k=90, exact=True, **way):
            assert row["_score"] == pytest.approx(best[row["id"]], rel=1e-5)
    assert found(db["p"].search("river", filter="id % 50 = 0")) == [50]
    with pytest.raises(st.RequestError, match="with_position=True"):
        db["p"].search("odd stones", phrase=True)


def test_searches_beside_seals_folds_index_builds_and_compaction_miss_nothing(
    tmp_path: Path,
) -> None:
    texts: dict[int, str | None] = {}
    ended = threading.Event()
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"id": "int64", "s": "string"}, primary_key="id")
        table.create_index("s", kind="fts", with_position=True)

        def maintain() -> None:
            while not ended.is_set():
                merged(db)
                db.optimize()

        thread = threading.Thread(target=maintain)
        thread.start()
        try:
            for step in range(40):
                new = {n % 200: f"step {step} stone {n}" for n in range(31 * step, 31 * step + 25)}
                table.upsert([{"id": n, "s": s} for n, s in new.items()], "null")
                texts.update(new)
                words = f"step {step}"
                for way in ({"phrase": True}, {"operator": "and"}, {"fuzzy": 1}):
                    best = scores(texts, words, OPTIONS, **way)
                    assert {*found(table.search(words, k=300, **way))} == {*best}
        finally:
            ended.set()
            thread.join()


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    ("", {}, "needs a text"),
    ("  \n", {}, "needs a text"),
    ("x" * (CHARACTERS_MAX + 1), {}, "at most 10000 characters"),
    ("odd \ud800", {}, "half a surrogate pair is no character"),
    ("odd", {"k": 0}, "k must be an integer from 1 to 10000; got 0"),
    ("odd", {"k": K_MAX + 1}, "k must be"),
    ("odd", {"k": True}, "k must be"),
    ("odd", {"column": "nowhere"}, "no column 'nowhere'"),
    ("odd", {"column": "id"}, "column 'id' is int64; a search for words needs texts"),
    ("odd", {"column": "v"}, "a search for words needs texts"),
    ("odd", {"column": 3}, "column must be a name"),
    ("odd", {"column": "note"}, "create_index\\('note', kind=\"fts\"\\)"),
    ("odd", {"operator": "xor"}, "operator must be one of"),
    ("odd", {"operator": 1}, "operator must be one of"),
    ("odd", {"operator": np.ones(2)}, "operator must be one of"),
    ("odd", {"phrase": 1}, "phrase must be True or False"),
    ("odd", {"phrase": True, "operator": "or"}, "a phrase takes no operator"),
    ("odd", {"phrase": True, "fuzzy": 1}, "takes no operator and no fuzzy"),
    ("odd", {"fuzzy": 3}, "fuzzy must be an integer from 0 to 2"),
    ("odd", {"fuzzy": -1}, "fuzzy must be"),
    ("odd", {"fuzzy": True}, "fuzzy must be"),
    ("odd " * (FUZZY_WORDS_MAX + 1), {"fuzzy": 1}, "at most 64 words of 40 letters; got 65"),
    ("odd", {"boost": 0}, "boost must be a number above 0"),
    ("odd", {"boost": float("nan")}, "boost must be"),
    ("odd", {"boost": "much"}, "boost must be"),
    ("odd", {"boost": 10**400}, "boost must be"),
    ("odd", {"boost": 1e300}, "boost must be a number above 0, from 1e-09 to 1e\\+09"),
    ("odd", {"boost": {"s": 1e-44}}, "boost must be"),
    ("odd", {"boost": {}}, "give no column"),
    ("odd", {"boost": {"s": 2}, "column": "s"}, "give no column"),
    ("odd", {"boost": {"s": -2}}, "boost must be"),
    ("odd", {"boost": {"note": 2}}, "needs an index"),
    ("odd", {"boost": {None: 2}}, "needs names of columns"),
    ("odd", {"exact": 1}, "exact must be"),
    ("odd", {"filter": "nope = 1"}, "nope"),
    ("odd", {"columns": ["nope"]}, "nope"),
    ("odd", {"metric": "l2"}, "metric needs a search for a vector; this one is for words"),
    ("odd", {"nprobes": 3}, "nprobes needs a search for a vector"),
    ("odd", {"refine": 3}, "refine needs a search for a vector"),
    ("odd", {"distance_range": (0, 1)}, "distance_range needs a search for a vector"),
    ([1, 2], {"operator": "or"}, "operator needs a search for words; this one is for a vector"),
    ([1, 2], {"phrase": True}, "phrase needs a search for words"),
    ([1, 2], {"fuzzy": 0}, "fuzzy needs a search for words"),
    ([1, 2], {"boost": 2}, "boost needs a search for words"),
]


@pytest.mark.parametrize(("query", "options", "words"), WRONG)
def test_a_wrong_search_is_one_clear_error_and_changes_nothing(
    db: st.Store, query: Any, options: dict[str, Any], words: str
) -> None:
    table = filled(db, 5)
    seq = db.seq
    with pytest.raises(st.RequestError, match=words):
        table.search(query, **options)
    assert db.seq == seq


def test_a_table_without_texts_or_with_several_says_so(db: st.Store) -> None:
    db.create_table("none", {"id": "int64"}, primary_key="id")
    with pytest.raises(st.RequestError, match="no column holds texts; the columns are id"):
        db["none"].search("odd")
    table = filled(db)
    table.create_index("note", kind="fts")
    with pytest.raises(st.RequestError, match="one of s, note; got none"):
        table.search("odd")
    table.create_index("s", kind="fts", name="again", stem=False)
    with pytest.raises(st.RequestError, match=r"several indexes of texts.*again, s; drop all but"):
        table.search("odd", column="s")


def test_what_an_index_cannot_answer_is_refused_by_name(db: st.Store) -> None:
    table = db.create_table("t", {"id": "int64", "s": "string", "w": "string"}, primary_key="id")
    table.create_index("s", kind="fts", base_tokenizer="ngram")
    table.create_index("w", kind="fts", base_tokenizer="whitespace")
    with pytest.raises(st.RequestError, match="into pieces"):
        table.search("stone", column="s", operator="and")
    with pytest.raises(st.RequestError, match="with_position=True"):
        table.search("stone", column="w", phrase=True)
    with pytest.raises(st.RequestError, match="letters and digits; the index makes 're-read'"):
        table.search("re-read", column="w", fuzzy=1)
    table.drop_index("w")
    for option in ({"language": "Klingon"}, {"base_tokenizer": "typo"}):
        with pytest.raises(st.RequestError, match="no such index of texts"):
            table.create_index("w", kind="fts", build=False, **option)
    assert [index.column for index in table.indexes()] == ["s"]


def test_rows_are_found_without_an_index_that_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = filled(db)
        merged(db)
        right = {row["id"]: row["_score"] for row in table.search("odd 7", k=50, exact=True)}
    path = min((tmp_path / "s").rglob("_indices/*/part_0_invert.lance"))
    spoiled = bytearray(path.read_bytes())
    spoiled[len(spoiled) // 3] ^= 1
    path.write_bytes(spoiled)
    with st.connect(tmp_path / "s", background=False) as db:
        for way in ({}, {"exact": True}):
            found_now = {row["id"]: row["_score"] for row in db["t"].search("odd 7", k=50, **way)}
            assert found_now == pytest.approx(right)
    assert "damaged index" in caplog.text
