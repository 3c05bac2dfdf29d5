"""What Spark's processes import: each query is planned in a new one."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module", ["siltstone.spark.source", "siltstone.joined.store", "siltstone.store"]
)
def test_who_reads_writes_or_joins_a_store_does_not_wait_for_pandas(module: str) -> None:
    code = f"import {module}, sys; sys.exit('pandas' in sys.modules or 'duckdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
