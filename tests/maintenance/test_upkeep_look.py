"""To look what is due is a part of an end: it opens histories, and may import Lance."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import siltstone as st
from siltstone.maintenance.merge.merge_child import MergeChild
from siltstone.maintenance.schedule import upkeep
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.ownership import read_holder
from tests.maintenance.ends import SMALL, behind


def test_the_look_counts_for_the_time_of_an_end_and_others_may_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, look, said, started = behind(tmp_path / "s"), upkeep.due_steps, [], []

    def slow(*args: object) -> dict[str, int]:
        said.append(read_holder(RealFiles(), root).ends)
        time.sleep(1.2)
        return look(*args)

    monkeypatch.setattr(upkeep, "due_steps", slow)
    monkeypatch.setattr(MergeChild, "run", lambda *_: started.append(1))
    db = st.connect(root, background=False, memory_bytes_max=SMALL, close_upkeep_s=1)
    db.close(upkeep=True)
    assert said == [True], "a process that connects meanwhile gets an OwnedError, and cannot wait"
    assert not started, "the time of the end was over"
