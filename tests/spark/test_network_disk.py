"""On a network file system Spark commits only by `force`, where no owner answers."""

from __future__ import annotations

from pathlib import Path

import pytest

import siltstone as st
from siltstone.spark.context.options import ReadOptions, WriteOptions
from siltstone.storage.files.files import RealFiles
from tests.spark.followed_stores import World, as_log
from tests.spark.micro_batches import Checkpoint, Run


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Two stores without owners, on a disk that says that it is one of the network."""
    world = World(tmp_path)
    world.upsert()
    world.close()
    monkeypatch.setattr(RealFiles, "filesystem", lambda *_: "nfs4")
    return world


def test_a_stream_commits_there_only_by_force(remote: World) -> None:
    checkpoint = Checkpoint()
    with (
        pytest.raises(st.UnavailableError, match="on nfs4, where locks are unreliable"),
        Run(checkpoint, remote.source(), remote.sink(), as_log) as run,
    ):
        run.finish()
    with Run(checkpoint, remote.source(force="true"), remote.sink(force="TRUE"), as_log) as run:
        assert run.finish()
    with st.connect(remote.b.path, read_only=True) as db:
        assert db["log"].count() == 4


def test_writes_take_it_reads_ignore_it_and_another_value_is_refused() -> None:
    place = {"uri": "/x", "table": "t"}
    assert WriteOptions.parse({**place, "force": "true"}).force
    assert not WriteOptions.parse(place).force
    assert ReadOptions.parse({**place, "force": "true"}) == ReadOptions.parse(place)
    with pytest.raises(st.RequestError, match="option 'force'"):
        WriteOptions.parse({**place, "force": "yes"})
