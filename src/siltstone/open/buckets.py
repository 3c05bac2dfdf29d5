"""Buckets: the mirror of a store, and its restore, by the URL and the environment alone.

Nothing of it is imported, and nothing is asked, before a URL of a bucket is given.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from siltstone.arguments import flag_of
from siltstone.bucket_url import BucketUrl
from siltstone.errors import RequestError
from siltstone.maintenance.backup.backup import Progress
from siltstone.maintenance.backup.mirror import Mirrored, Mirrorer
from siltstone.maintenance.backup.mirror_restore import MirrorRestorer
from siltstone.maintenance.backup.restore import Restored
from siltstone.open.environment import Env
from siltstone.storage.objects.objects import Objects
from siltstone.storage.objects.obstore_server import ObstoreServer
from siltstone.storage.objects.probe import probe, require_known
from siltstone.storage.site import Site


def mirror(
    site: Site,
    url: str,
    *,
    settings: Mapping[str, str] | None = None,
    is_trusted: bool = False,
    take: bool = False,
    adopt: bool = False,
    on_progress: Progress | None = None,
) -> Mirrored:
    """Mirror the newest record of a store; see `admin.mirror_store`."""
    place = BucketUrl.of(url)
    taken = {"take": flag_of("take", take), "adopt": flag_of("adopt", adopt)}
    server = ObstoreServer(place, _settings_of(settings))
    trusted = flag_of("trust_conditional_puts", is_trusted)

    def ask(objects: Objects) -> str:
        name = require_known(place, server.endpoint, trusted)
        probe(objects, site.new_token(), time.time)
        return name

    return Mirrorer(site, Objects(server, "mirror"), ask).run(on_progress=on_progress, **taken)


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
    server = ObstoreServer(BucketUrl.of(url), _settings_of(settings))
    restorer = MirrorRestorer(
        env.files,
        Objects(server, "restore"),
        lambda root, files: env.tables(root, files, "scrub"),
        now_us=env.now_us,
        new_token=env.new_token,
    )
    return restorer.run(target, seq=seq, at_us=at_us, tag=tag, on_progress=on_progress)


def _settings_of(settings: Mapping[str, str] | None) -> dict[str, str]:
    """Return the settings of a bucket; a value may be a secret, so no message has one."""
    found = dict(settings or {})
    wrong = [name for name, value in found.items() if not isinstance(value, str)]
    if wrong:
        raise RequestError(f"storage_options are texts by their names; {wrong[0]!r} is no text")
    return found
