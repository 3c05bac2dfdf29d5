"""What the tour shows of Spark is true, on the store that the tour's commands made."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.test_documents import blocks_of
from tests.tour.test_tour import PAGE, walked


def test_the_code_of_the_tour_runs_and_prints_what_stands_below_it(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert spark is not None
    assert all(seen == page for seen, page in walked(tmp_path))
    monkeypatch.chdir(tmp_path / "home")
    (block,) = blocks_of(PAGE)
    exec(compile(block.code, PAGE, "exec"), {})
    assert capsys.readouterr().out == block.output
