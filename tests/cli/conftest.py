"""Fixtures of the command line's tests."""

from pathlib import Path

import pytest

from tests.cli.shell import Shell


@pytest.fixture
def shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    monkeypatch.setenv("SILTSTONE_SEGMENT_BYTES", "65536")
    monkeypatch.setenv("SILTSTONE_URI", str(tmp_path / "shop"))
    made = Shell(tmp_path / "shop", capsys)
    assert made("init") == 0
    return made


@pytest.fixture
def orders(shell: Shell) -> Shell:
    columns = ["-c", "region:string", "-c", "id:int64", "-c", "total:decimal(10,2)"]
    assert shell("create", "orders", *columns, "--pk", "region,id") == 0
    return shell
