"""Commands read at a URL what the store has; which take one is in `test_doors`."""

from __future__ import annotations

from pathlib import Path

import pytest

from siltstone.cli.exits import Exit
from tests.cli.shell import Shell
from tests.reach.conftest import Mirrored


@pytest.fixture
def shell(
    shop: Mirrored, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    monkeypatch.setenv("SILTSTONE_URI", shop.url)
    return Shell(Path(), capsys)


def test_commands_that_read_take_a_url(shell: Shell, shop: Mirrored) -> None:
    assert [line[0] for line in shell.lines("tables")][-3:] == ["docs", "keyed", "plain"]
    assert shell.json("query", "select count(*) as n from plain") == [
        {"n": len(shop.at[shop.seq]["plain"])}
    ]
    status = shell.json("status")
    assert (status["visible_seq"], status["path"]) == (shop.seq, shop.url)  # type: ignore[index]
    assert shell("verify") == 0, shell.err
    assert shell("scan", "keyed", "--tag", "first", "--ndjson") == 0
    assert len(shell.out.splitlines()) == len(shop.at[shop.tagged]["keyed"])


def test_a_url_without_a_mirror_is_told(shell: Shell, shop: Mirrored) -> None:
    assert shell("tables", "--db", f"{shop.url}/nothing") == Exit.USAGE
    assert "has no mirror of a store" in shell.err
