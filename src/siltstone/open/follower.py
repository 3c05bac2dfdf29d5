"""Follower: a store that this process only reads, with or without an owner.

lease the newest record ─▶ copy the log up to MARK ─▶ look again at each read
"""

from __future__ import annotations

from pathlib import Path

from siltstone.engine.read.past import CommitHistory
from siltstone.engine.recover.following import Follower
from siltstone.open.environment import Env, Storage, core_of
from siltstone.open.parts import Parts
from siltstone.options import Options


def follow_store(root: Path, options: Options, env: Env) -> Parts:
    """Return the parts of the store at `root`, to read it; it makes no write call."""
    env.require_store(root)
    storage = Storage.of(root, options, env)
    commits = CommitHistory(storage.site.tables.reader)
    follower = Follower(env.files, root, storage.site.manifests, storage.readers)
    first_seq = follower.state().visible
    core = core_of(storage, commits, options, follower.state)
    return Parts(core, storage, commits, first_seq, follower=follower)
