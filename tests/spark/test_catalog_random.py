"""Random statements of SQL leave the rows that a copy in DuckDB has, and are refused as it says.

By day the same life is lived again; by night other ones, and what fails says its seed: run it again
with `SILTSTONE_NIGHTLY=1 SILTSTONE_SEED=<the first word>`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.spark import register
from tests.nightly import IS_NIGHTLY, SEED, by_day
from tests.spark.random_life import Life

_numbers = itertools.count()


def _sql(spark: SparkSession, db: st.Store) -> Callable[[str], DataFrame]:
    name, session = f"r{next(_numbers)}", spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    register(session, stores={name: db})
    session.sql(f"USE {name}")
    return session.sql


@pytest.mark.parametrize("number", range(by_day(1, 20)))
def test_random_statements_do_what_a_copy_says(
    spark: SparkSession, tmp_path: Path, number: int
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        db.serve_local()
        seed = SEED if IS_NIGHTLY else "day"
        life = Life(db, _sql(spark, db), f"{seed} life {number}")
        try:
            life.run(by_day(30, 120))
        finally:
            life.close()
        assert db.verify(deep=True).is_sound
