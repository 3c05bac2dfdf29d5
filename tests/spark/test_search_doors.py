"""Spark gives the rows, distances and scores of a search that every other door gives.

The others are in tests/query/test_search_doors.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import siltstone as st
from siltstone.spark import snapshot
from tests.query.search_doors import ASKED, fill, pairs, wanted
from tests.query.words_doors import BOTH, EXACT, WORDS, WRONG, scored


def test_a_search_in_spark_gives_the_rows_of_brute_force(
    spark: SparkSession, tmp_path: Path
) -> None:
    with st.connect(tmp_path / "library", background=False) as db:
        fill(db)
        with snapshot(spark, db) as snap:
            for asked in ASKED:
                frame = snap.search("docs", asked.vector, **asked.options)
                assert pairs(frame.orderBy("_distance", "id").toArrow()) == wanted(asked)


def test_a_search_for_words_in_spark_gives_the_rows_of_every_door(
    spark: SparkSession, tmp_path: Path
) -> None:
    with st.connect(tmp_path / "library", background=False) as db:
        fill(db)
        with snapshot(spark, db) as snap:
            for asked in (*WORDS, EXACT):
                expected = scored(db["docs"].search(asked.words, **asked.options))
                frame = snap.search("docs", asked.words, **asked.options)
                assert scored(frame.orderBy(frame["_score"].desc(), "id").toArrow()) == expected
            for asked in BOTH:
                rows = db["docs"].search(asked.words, **asked.options).to_pylist()
                frame = snap.search("docs", asked.words, **asked.options)
                assert frame.orderBy(frame["_score"].desc(), "id").toArrow().to_pylist() == rows
            for asked, said, _ in WRONG:
                with pytest.raises(st.SiltstoneError, match=re.escape(said)):
                    snap.search("docs", asked.words, **asked.options)
