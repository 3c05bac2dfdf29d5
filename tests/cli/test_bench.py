"""`siltstone bench` measures in a directory of its own, and leaves nothing behind."""

import json
from pathlib import Path

import pytest

from bench.trial import scratch
from siltstone.cli import main
from siltstone.cli.exits import UsageError
from tests.cli.shell import Shell

SMALL = ["bench", "--rows", "1000", "--seconds", "0.05"]


def test_a_bench_says_what_the_machine_allows_and_what_a_store_takes_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, "--dir", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    measured = {one["name"]: one for one in found["measured"]}
    assert found["rows"] == 1_000
    assert found["siltstone"]
    assert all(one["value"] > 0 for one in measured.values())
    assert {one["of"] for one in measured.values() if one["share"] is not None} <= measured.keys()
    assert {"commits of one row, 1 thread", "commits of one row, 8 threads"} <= measured.keys()
    assert list(tmp_path.iterdir()) == []


def test_a_bench_in_a_store_is_refused(shell: Shell) -> None:
    before = sorted(shell.db.rglob("*"))
    for folder in (shell.db, shell.db / "manifest"):
        assert shell(*SMALL, "--dir", folder) == 2
        assert f"{shell.db} is a store" in shell.err
    assert sorted(shell.db.rglob("*")) == before


def test_a_bench_where_no_directory_is_or_too_little_room_is_refused(tmp_path: Path) -> None:
    assert main([*SMALL, "--dir", str(tmp_path / "nowhere")]) == 2
    with pytest.raises(UsageError, match="fewer --rows"), scratch(tmp_path, 10**15):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_bench_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail_in(folder: Path) -> None:
        (folder / "store").mkdir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), scratch(tmp_path, 1) as folder:
        fail_in(folder)
    assert list(tmp_path.iterdir()) == []


def test_without_its_source_a_bench_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.setattr("siltstone.cli.bench.SOURCE", tmp_path)
    assert shell(*SMALL) == 1
    assert "bench/" in shell.err
