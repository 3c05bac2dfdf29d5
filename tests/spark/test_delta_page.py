"""What the page for those who come from Delta shows is true: its code runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.test_documents import blocks_of

PAGE = "docs/delta.md"


def test_the_code_of_the_page_runs_and_prints_what_stands_below_it(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert spark is not None
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = blocks_of(PAGE)
    assert sum(bool(block.output) for block in blocks) > 3
    for block in blocks:
        exec(compile("\n" * block.line + block.code, PAGE, "exec"), names)
        assert capsys.readouterr().out == block.output, f"{PAGE}, line {block.line}"
