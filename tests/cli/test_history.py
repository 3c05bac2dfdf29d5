"""The history of a shell has a bound, and a failure of its file ends no shell."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from siltstone.cli.shell.history import BYTES_MAX, history_of


def test_the_newest_half_is_kept_where_the_bound_is_passed(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    history = history_of(environment)
    texts = [f"select {number}, '{'x' * 1000}';\n-- é" for number in range(2_500)]
    for text in texts:
        history.store_string(text)
    file = tmp_path / "siltstone" / "shell_history"
    assert file.stat().st_size <= BYTES_MAX + 2_000
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = list(history_of(environment).load_history_strings())
    assert kept == texts[::-1][: len(kept)]
    assert len(kept) > 500


def test_a_text_of_many_pages_is_not_kept(tmp_path: Path) -> None:
    history = history_of({"XDG_STATE_HOME": str(tmp_path)})
    history.store_string("x" * 100_000)
    history.store_string("select 1;")
    assert list(history.load_history_strings()) == ["select 1;"]


def test_a_file_that_goes_away_ends_nothing(tmp_path: Path) -> None:
    history = history_of({"XDG_STATE_HOME": str(tmp_path)})
    (tmp_path / "siltstone" / "shell_history").unlink()
    (tmp_path / "siltstone").rmdir()
    history.store_string("select 1;")


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "siltstone").mkdir()
    (tmp_path / "other").write_text("of another program")
    (tmp_path / "siltstone" / "shell_history").symlink_to(tmp_path / "other")
    history_of({"XDG_STATE_HOME": str(tmp_path)}).store_string("select 1;")
    assert (tmp_path / "other").read_text() == "of another program"


def test_a_state_folder_that_is_not_absolute_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    history_of({"XDG_STATE_HOME": "here"}).store_string("select 1;")
    assert (tmp_path / ".local" / "state" / "siltstone" / "shell_history").exists()
    assert not (tmp_path / "here").exists()
