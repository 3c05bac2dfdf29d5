"""The demo on Spark runs to its end: loads, refreshes, moves, asks, and finds nothing wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import siltstone as st
from examples.tpch.data import KEYS
from examples.tpch.queries import QUERIES
from siltstone.cli import main
from siltstone.cli.exits import Exit
from tests.children import with_pandas

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_the_demo_on_spark_ends_with_no_violated_check(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    options = ["--scale", "0.01", "--seconds", "4", "--threads", "1", "--kills", "1"]
    command = [sys.executable, "-m", "siltstone", "demo", "--spark", "--ndjson", *options]
    ran = subprocess.run(
        [*command, "--keep", kept], capture_output=True, text=True, check=False, env=with_pandas()
    )
    assert ran.returncode == 0, ran.stderr
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    facts = {line["fact"]: line["value"] for line in lines if line["part"] == "Summary"}
    assert facts["violated checks"] == 0
    assert facts["rows of orders"] == 15_000
    assert facts["restarts of the stream"] == 1
    assert facts["refresh sets"] > 0
    assert facts["sets that came again"] > 0
    assert facts["row transactions"] > 0
    assert facts["checkpoints"] > 0
    assert facts["merges"] > 0
    assert facts["optimizes on Spark"] > 0
    assert facts["checks: each set applied once"] == 1
    assert facts["checks: Spark answers as DuckDB"] == facts["rounds of queries"] * len(QUERIES)
    for engine in ("Spark", "DuckDB"):
        assert facts[f"checks: sums in {engine}"] == facts["rounds of queries"]
    assert {line["query"] for line in lines if line["part"] == "Queries, fastest ms"} == set(
        QUERIES
    )
    with st.connect(kept / "store", read_only=True) as store:
        assert store.tables() == sorted(KEYS)
        loaded = store.snapshot(seq=2)
        assert [loaded[name].count() > 0 for name in KEYS] == [True] * 8
        empty = store.snapshot(seq=1)
        assert [empty[name].count() for name in KEYS] == [0] * 8


def test_an_installed_package_says_where_the_demo_on_spark_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "siltstone.cli.demo.SOURCE", tmp_path
    )  # as in site-packages: no examples beside it
    assert main(["demo", "--spark"]) == Exit.FAILED
    said = capsys.readouterr()
    assert said.out == ""
    assert "examples/tpch" in said.err
    assert "make demo-spark" in said.err


def test_the_scale_is_of_the_demo_on_spark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--scale", "0.1"]) == 2
    assert "--spark" in capsys.readouterr().err
