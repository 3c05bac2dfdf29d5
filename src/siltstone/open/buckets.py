"""Buckets: the restore of a mirror, by the URL and the environment alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from siltstone.bucket_url import BucketUrl
from siltstone.maintenance.backup.backup import Progress
from siltstone.maintenance.backup.mirror_restore import MirrorRestorer
from siltstone.maintenance.backup.restore import Restored
from siltstone.open.environment import Env
from siltstone.open.mirroring import settings_of
from siltstone.storage.objects.objects import Objects
from siltstone.storage.objects.obstore_server import ObstoreServer


def restore_mirror(
    url: str,
    target: Path,
    env: Env,
    *,
    settings: Mapping[str, str] | None = None,
    seq: int | None = None,
    at_us: int | None = None,
    tag: str | None = None,
    on_progress: Progress | None = None,
) -> Restored:
    """Make a store of a mirror; see `admin.restore`."""
    server = ObstoreServer(BucketUrl.of(url), settings_of(settings))
    restorer = MirrorRestorer(
        env.files,
        Objects(server, "restore"),
        lambda root, files: env.tables(root, files, "scrub"),
        now_us=env.now_us,
        new_token=env.new_token,
    )
    return restorer.run(target, seq=seq, at_us=at_us, tag=tag, on_progress=on_progress)
