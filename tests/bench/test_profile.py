"""A profile finds every stage of a commit, and leaves the product as it was."""

import os
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from bench.cpu import profile
from siltstone.engine.commit.committer import Committer
from siltstone.storage.files.files import RealFile


def test_a_profile_names_each_stage_and_puts_back_what_it_wrapped(tmp_path: Path) -> None:
    before = Committer.commit, RealFile.sync, RealFile.pwritev_synced
    found = profile.profile(tmp_path / "store", 0.1)
    assert (Committer.commit, RealFile.sync, RealFile.pwritev_synced) == before
    synced, instant = found.values()
    names = {stage for _, _, stage in profile._STAGES}
    for case in (synced, instant):
        assert case["whole"] > 0
        assert sum(case["stages"].values()) == pytest.approx(case["whole"])
        assert case["stages"].keys() - names == {profile._REST}
    assert set(synced["ran"]) == names  # a stage that nobody runs is stale


def test_as_if_a_sync_took_no_time_nothing_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, pwritev, fdatasync = list[str](), os.pwritev, os.fdatasync

    def written(fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        synced.extend(["written"] if flags & os.RWF_DSYNC else [])
        return pwritev(fd, buffers, offset, flags)

    monkeypatch.setattr(os, "pwritev", written)
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append("synced") or fdatasync(fd))
    with st.connect(tmp_path / "store", background=False) as db:
        table = db.create_table("t", {"id": "int64"}, primary_key="id")
        synced.clear()
        table.upsert({"id": 1})
        assert synced
        synced.clear()
        with profile._instant_sync():
            table.upsert({"id": 2})
        assert synced == []


def test_a_stage_is_without_the_stages_inside_it() -> None:
    probe = profile.Probe()
    inner = probe.wrap(lambda: sum(range(200_000)), "inner")
    probe.wrap(inner, "outer")()
    assert probe.now["outer"] < probe.now["inner"]
    assert probe.calls == 2
