"""A profile finds every stage of a commit, and leaves the product as it was."""

from pathlib import Path

import pytest

from bench import profile
from siltstone.engine.commit.committer import Committer
from siltstone.storage.files.files import RealFile


def test_a_profile_names_each_stage_and_puts_back_what_it_wrapped(tmp_path: Path) -> None:
    before = Committer.commit, RealFile.sync, RealFile.pwritev_synced
    found = profile.profile(tmp_path / "store", 0.1)
    assert (Committer.commit, RealFile.sync, RealFile.pwritev_synced) == before
    synced, instant = found["cases"].values()
    names = {stage for _, _, stage in profile._STAGES}
    for case in (synced, instant):
        assert case["whole"] > 0
        assert sum(case["stages"].values()) == pytest.approx(case["whole"])
        assert case["stages"].keys() - names == {profile._REST}
    assert set(synced["ran"]) == names  # a stage that nobody runs is stale
    assert instant["stages"]["write and sync"] < synced["stages"]["write and sync"]


def test_a_stage_is_without_the_stages_inside_it() -> None:
    probe = profile.Probe()
    inner = probe.wrap(lambda: sum(range(200_000)), "inner")
    probe.wrap(inner, "outer")()
    assert probe.now["outer"] < probe.now["inner"]
    assert probe.calls == 2
