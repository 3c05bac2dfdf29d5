"""Follower: a store that this process only reads, with or without an owner.

lease the newest record ─▶ copy the log up to MARK ─▶ look again at each read
"""

from __future__ import annotations

from pathlib import Path

from siltstone.engine.commit.core import Core
from siltstone.engine.read.past import CommitHistory
from siltstone.engine.recover.following import Follower
from siltstone.open.environment import Env, Storage
from siltstone.open.parts import Parts
from siltstone.options import Options


def follow_store(root: Path, options: Options, env: Env) -> Parts:
    """Return the parts of the store at `root`, to read it; it makes no write call."""
    env.require_store(root)
    storage = Storage.of(root, options, env)
    commits = CommitHistory(storage.tables.reader)
    follower = Follower(env.files, root, storage.manifests, storage.readers)
    first_seq = follower.state().visible
    core = Core(
        tables=storage.tables,
        readers=storage.readers,
        state=follower.state,
        find_token=lambda token: commits.find_token(follower.state(), token),
        touched=commits.touched,
        files=env.files,
        new_token=env.new_token,
        now_us=env.now_us,
        gc_horizon_us=lambda: storage.gc_horizon_us(follower.state().view.record),
        hold=storage.jobs.hold,
        root=root,
        verify=options.verify,
    )
    return Parts(core, storage, commits, first_seq, follower=follower)
