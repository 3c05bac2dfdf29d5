"""Opened: a bucket as a process reads it, by the URL, its environment, and settings of its own."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping

from siltstone.paths import Place
from siltstone.storage.bucket.bucket import Bucket
from siltstone.storage.bucket.bucket_chain import BucketChain
from siltstone.storage.bucket.bucket_files import BucketFiles
from siltstone.storage.bucket.bucket_leases import BucketLeases
from siltstone.storage.objects.objects import Objects
from siltstone.storage.objects.obstore_server import ObstoreServer, endpoint_of

_LANCE = {"connect_timeout": "5s", "timeout": "120s"}
"""Of Lance's client, which tries each request a few times, and gives up after seconds."""


def opened(
    place: Place, settings: Mapping[str, str], new_token: Callable[[], str]
) -> tuple[BucketFiles, BucketChain, BucketLeases]:
    """Return a mirror to be read, and which of its records this process reads; none is asked yet.

    Raises:
        RequestError: The client refuses a setting.
        UnavailableError: A package of the extra `objects` is missing.
    """
    objects = Objects(ObstoreServer(place.url, settings), "read")
    reader = f"process {os.getpid()} on {platform.node()}"
    leases = BucketLeases(Bucket(objects), reader, new_token)
    files = BucketFiles(place, objects, leases)
    return files, BucketChain(place, files, leases), leases


def lance_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings by which Lance's client reaches what `settings` reach."""
    is_plain = endpoint_of(settings, os.environ).startswith("http://")
    return {**_LANCE, **({"allow_http": "true"} if is_plain else {}), **settings}
