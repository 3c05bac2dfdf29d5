"""Mirror status: what the buckets of a store have, by its own notes, and what its owner is at."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from siltstone.bucket_url import is_bucket_url
from siltstone.errors import CorruptionError
from siltstone.formats.bucket import MirroredRecords
from siltstone.formats.manifest import Record
from siltstone.maintenance.backup.sent_records import mirrors_of
from siltstone.storage.site import Site

if TYPE_CHECKING:
    from siltstone.maintenance.backup.following import Following


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """The mirror at `url`: its newest record has all commits up to `seq`, in `nbytes` of files.

    `behind` commits are not there. The last one that is there was made `age_s` seconds ago; 0.0 if
    none is behind. Of the record that the owner copies now, `left_bytes` are not there yet; it
    holds `held_bytes` of files that newer records do not need. `failure`: why the owner's last try
    ended. `is_owed`: the last close did not wait for the rest.
    """

    url: str
    record: int = 0
    seq: int = 0
    nbytes: int = 0
    behind: int = 0
    age_s: float = 0.0
    left_bytes: int = 0
    held_bytes: int = 0
    is_owed: bool = False
    failure: str | None = None

    def __str__(self) -> str:
        text = f"{self.url}: record {self.record}, seq {self.seq}, {self.nbytes} bytes"
        if self.behind:
            text += f"; {self.behind} commits are not there, the last one is {self.age_s:.0f} s old"
        if self.left_bytes:
            text += f"; {self.left_bytes} bytes are on their way"
        if self.held_bytes:
            text += f"; {self.held_bytes} bytes of old files wait for it"
        if self.is_owed and self.behind:
            text += "; a close did not wait for it"
        return text if self.failure is None else f"{text}; it failed: {self.failure}"


def mirrors(
    site: Site, newest: Record, visible: int, running: Following | None
) -> tuple[MirrorStatus, ...]:
    """Return the mirrors of a store, by their URLs; `visible` is its newest commit.

    `running`: the one in the owner's process. A store that is itself read in a bucket has none, and
    nobody asks the server.
    """
    if is_bucket_url(str(site.root)):
        return ()
    known = {each.url: each for each in mirrors_of(site.files, site.root) if not each.origin}
    if running is not None and running.url not in known:
        known[running.url] = MirroredRecords(running.url)
    found = (_status(site, each, visible) for _, each in sorted(known.items()))
    return tuple(_with(each, site, newest, running) for each in found)


def _status(site: Site, known: MirroredRecords, visible: int) -> MirrorStatus:
    behind = max(0, visible - known.seq)
    age_s = (site.now_us() - known.time_us) / 1e6 if behind and known.time_us else 0.0
    return MirrorStatus(
        known.url, known.record, known.seq, known.nbytes, behind, age_s, is_owed=known.is_owed
    )


def _with(
    found: MirrorStatus, site: Site, newest: Record, running: Following | None
) -> MirrorStatus:
    if running is None or running.url != found.url:
        return found
    from siltstone.maintenance.backup.leased_records import files_of  # noqa: PLC0415 - it runs

    state, held = running.state, 0
    if state.record and state.record != newest.number:
        with suppress(CorruptionError):  # a newer one is published, and vacuumed
            here = {file.path for file in files_of(site, (newest,))}
            held = sum(size for path, size in state.sizes.items() if path not in here)
    return replace(found, left_bytes=state.left_bytes, held_bytes=held, failure=state.failure)
