"""Mirroring: how a store is mirrored to a URL: once, in a process of its own, or in its owner's.

Nothing of it is imported, and nothing is asked, before a URL of a bucket is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from siltstone.arguments import flag_of
from siltstone.bucket_url import BucketUrl
from siltstone.formats.bucket import BucketRecord
from siltstone.formats.manifest import Record
from siltstone.maintenance.backup.backup import Progress
from siltstone.maintenance.backup.bucket_vacuum import BucketVacuum
from siltstone.maintenance.backup.following import Following, Stop
from siltstone.maintenance.backup.mirror import Mirrored, Mirrorer
from siltstone.maintenance.shipping.shipper import Shipper
from siltstone.options import StorageOptions
from siltstone.storage.files.files import Files
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.objects.objects import Objects
from siltstone.storage.objects.obstore_server import ObstoreServer
from siltstone.storage.objects.probe import probe, require_known
from siltstone.storage.site import Site
from siltstone.storage.tables.store_tables import Tables


@dataclass(frozen=True, slots=True)
class Mirroring:
    """How a store is mirrored to a URL.

    Args:
        site: The store.
        url: Of the bucket.
        retention_s: How long records stay there.
        settings: As `admin.mirror_store` takes them.
        is_trusted: The user vouches for a server that siltstone does not know.
        stop: Ends it between any two requests.
    """

    site: Site
    url: str
    retention_s: float
    settings: Mapping[str, str] | None = field(default=None, repr=False)
    is_trusted: bool = False
    stop: Stop = field(default_factory=Stop)

    def mirrorer(self) -> tuple[Mirrorer, BucketVacuum]:
        """Return what mirrors, and what vacuums; nothing is asked yet.

        Raises:
            RequestError: It is no URL of a bucket.
            UnavailableError: obstore is not installed.
        """
        place = BucketUrl.of(self.url)
        server = ObstoreServer(place, StorageOptions.of(self.settings or {}))
        trusted = flag_of("trust_conditional_puts", self.is_trusted)

        def ask(objects: Objects) -> str:
            name = require_known(place, server.endpoint, trusted)
            probe(objects, self.site.new_token(), time.time)
            return name

        objects = Objects(server, "mirror", pause=self.stop.pause, abandon=self.stop.check_requests)
        return mirrorer_of(self, objects, ask)

    def run(
        self, *, take: bool = False, adopt: bool = False, on_progress: Progress | None = None
    ) -> Mirrored:
        """Mirror the newest record once; see `admin.mirror_store`."""
        taken = {"take": flag_of("take", take), "adopt": flag_of("adopt", adopt)}
        mirrorer, _ = self.mirrorer()
        return mirrorer.run(**taken, on_progress=on_progress)

    def follow(
        self, hears: Callable[[Mirrored], object], *, take: bool = False, adopt: bool = False
    ) -> None:
        """Mirror each newest record until it is stopped; see `admin.follow_mirror`."""
        taken = {"take": flag_of("take", take), "adopt": flag_of("adopt", adopt)}
        mirrorer, vacuum = self.mirrorer()
        Following(mirrorer, self.stop, hears=hears, vacuum=vacuum.run).run(**taken)

    def in_background(self) -> Following:
        """Return a mirror for a thread of the store's owner.

        Raises:
            RequestError, UnavailableError: As `mirrorer`.
        """
        mirrorer, vacuum = self.mirrorer()
        return Following(mirrorer, self.stop, vacuum=vacuum.run, is_patient=True)


def shipper_of(mirrorer: Mirrorer, record: Callable[[], Record]) -> Shipper:
    """Return what ships the log of a store that is mirrored, once somebody waits for it.

    Args:
        mirrorer: Mirrors the store; from now on its records say where the log goes on.
        record: Returns the newest record that the owner knows.
    """

    def require_ours(found: BucketRecord) -> None:
        # Not `record`: what other processes publish the mirror may copy before the owner reads it.
        mirrorer.require_ours(found, mirrorer.site.manifests.newest())
        mirrorer.claims.require_here()

    shipper = Shipper(mirrorer.site, mirrorer.objects, record=record, require_ours=require_ours)
    mirrorer.log = shipper
    return shipper


def mirrorer_of(
    how: Mirroring, objects: Objects, probe: Callable[[Objects], str]
) -> tuple[Mirrorer, BucketVacuum]:
    """Return what mirrors and vacuums the objects of a server."""
    vacuum = BucketVacuum(
        how.site, objects, _tables, retention_s=how.retention_s, step=how.stop.check
    )
    mirrorer = Mirrorer(how.site, objects, probe, vacuum=vacuum.run, step=how.stop.check)
    return mirrorer, vacuum


def _tables(root: Path, files: Files) -> Tables:
    return lance_tables(root, files, "scrub")
