"""What Spark's processes import: each query is planned in a new one."""

import subprocess
import sys
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement

from tests.children import with_pandas


@pytest.mark.parametrize(
    "module", ["siltstone.spark.sessions.source", "siltstone.joined.store", "siltstone.store"]
)
def test_who_reads_writes_or_joins_a_store_does_not_wait_for_pandas(module: str) -> None:
    code = f"import {module}, sys; sys.exit('pandas' in sys.modules or 'duckdb' in sys.modules)"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, check=False, env=with_pandas()).returncode == 0


def test_who_installs_siltstone_for_spark_gets_the_pandas_that_a_transaction_asks_for() -> None:
    """`mapInArrow`, which stages the writes of a transaction, refuses to work without it."""
    ours = [Requirement(each) for each in requires("siltstone") or ()]
    (spark,) = (each for each in ours if each.name == "pyspark" and "spark" in str(each.marker))
    theirs = [Requirement(each) for each in requires("pyspark") or ()]
    brought = {each.name for each in theirs if any(_is_of(each, x) for x in spark.extras)}
    assert "pandas" in brought


def _is_of(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is not None and requirement.marker.evaluate({"extra": extra})
