"""Spark gives the rows and distances of a search that every other door gives.

The others are in tests/query/test_search_doors.py.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

import siltstone as st
from siltstone.spark import snapshot
from tests.query.search_doors import ASKED, fill, pairs, wanted


def test_a_search_in_spark_gives_the_rows_of_brute_force(
    spark: SparkSession, tmp_path: Path
) -> None:
    with st.connect(tmp_path / "library", background=False) as db:
        fill(db)
        with snapshot(spark, db) as snap:
            for asked in ASKED:
                frame = snap.search("docs", asked.vector, **asked.options)
                assert pairs(frame.orderBy("_distance", "id").toArrow()) == wanted(asked)
