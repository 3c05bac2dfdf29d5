"""Buckets: the restore of a mirror, by the URL and the environment alone."""

from __future__ import annotations

from collections.abc import Mapping

from siltstone.bucket_url import BucketUrl
from siltstone.maintenance.backup.mirror_restore import MirrorRestorer
from siltstone.open.environment import Env
from siltstone.options import StorageOptions
from siltstone.storage.objects.objects import Objects
from siltstone.storage.objects.obstore_server import ObstoreServer


def mirror_restorer(url: str, env: Env, settings: Mapping[str, str] | None) -> MirrorRestorer:
    """Return what makes a store of a mirror; see `admin.restore`."""
    server = ObstoreServer(BucketUrl.of(url), StorageOptions.of(settings or {}))
    return MirrorRestorer(
        env.files,
        Objects(server, "restore"),
        lambda root, files: env.tables(root, files, "scrub"),
        now_us=env.now_us,
        new_token=env.new_token,
    )
