"""TPC-H's ratio is the geometric mean over all queries of the medians of warm rounds."""

import pytest

from bench.spark import tpch
from bench.spark.tpch_queries import ALL


def test_the_mean_ratio_is_geometric_and_of_warm_rounds_alone() -> None:
    found = {f"{name}, {tpch.PARQUET}": [2.0, 1.0, 3.0] for name in ALL}
    found |= {f"{name}, {tpch.OURS}": [4.0, 8.0, 4.0] for name in ALL}
    found |= {f"{name}, {tpch.OURS}, cold": [99.0] for name in ALL}
    found["Q1, siltstone"] = [2.0**23]
    assert tpch.ratios(found, tpch.OURS)["Q2"] == 2.0
    assert tpch.mean_ratio(found, tpch.OURS) == pytest.approx(2.0 ** (1 + 21 / 22))
    assert tpch.mean_ratio(None, tpch.OURS) is None
