"""Claim: which mirror writes to a bucket; STORE says it, changed by a put if it is unchanged.

    no STORE ──put_new──▶ HELD by us, epoch 1 ──end──▶ FREE ──put_if──▶ HELD, epoch 2 ──▶ ...
                            │  its process is gone: the next run of the same store on this machine
                            └──▶ goes on; any other one only if it is told to take it

A claim keeps two mirrors from doing the same work, and says whose it is. Publishes and deletions
are safe without it, by order alone and by no clock: who publishes under a claim that was taken
meets a record of the new epoch, or FLOOR above its own (`mirror.py`). Who claims puts STORE if it
is as it was before the bucket was looked at, so no other mirror began in between.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from siltstone.errors import BusyError, RequestError, SiltstoneError
from siltstone.formats import bucket as formats
from siltstone.formats.bucket import BucketMark, MirrorHolder
from siltstone.storage.bucket.bucket import Bucket
from siltstone.storage.objects.objects import Objects
from siltstone.storage.site import Site


@dataclass(frozen=True, slots=True)
class FoundMark:
    """STORE as it was read, or put."""

    mark: BucketMark
    etag: str


class Claims:
    """Claims a bucket for the store of a site. `probe` is asked before the first put."""

    def __init__(self, site: Site, objects: Objects, probe: Callable[[Objects], str]) -> None:
        self._site, self._objects, self._probe = site, objects, probe
        self._url = objects.url
        self._is_left = False

    def look(self) -> FoundMark | None:
        """Return STORE; None: the prefix is nobody's.

        Raises:
            CorruptionError, UnsupportedFormatError: It is damaged, or of another siltstone.
        """
        found = self._objects.get(formats.MARK)
        if found is None:
            return None
        url = Bucket(self._objects).key_url(formats.MARK)
        return FoundMark(formats.decode_mark(found.data, url), found.etag)

    def require_free(self, found: FoundMark, *, is_taken: bool) -> None:
        """Refuse a bucket that a mirror elsewhere has claimed, unless its claim is to be taken.

        Raises:
            BusyError: It is claimed; the message says by whom, and since when.
        """
        holder = found.mark.holder
        if holder is None or is_taken or self.is_here(found):
            return
        raise BusyError(
            f"{self._url} is claimed by the mirror of {holder}; if that one is gone, take its"
            " claim: siltstone mirror PATH URL --take"
        )

    def is_here(self, found: FoundMark) -> bool:
        """Say whether a mirror of this store on this machine has it, or had it last.

        We have the lock of those.
        """
        last = found.mark.last
        here = platform.node(), str(self._site.root)
        return last is not None and (last.host, last.path) == here

    def require_here(self) -> None:
        """Refuse to write to the log of a bucket that a mirror elsewhere claimed last.

        Raises:
            BusyError: As said.
        """
        found = self.look()
        if found is None or not self.is_here(found):
            last = None if found is None else found.mark.last
            raise BusyError(f"{self._url} is not claimed for this store, but by {last or 'nobody'}")

    def claim(self, store_id: str, found: FoundMark | None) -> FoundMark | None:
        """Claim the bucket whose STORE was as `found`; None: it changed meanwhile.

        Raises:
            UnavailableError: The server refuses, or its probe failed. It may be claimed.
        """
        made = BucketMark(
            store_id=store_id,
            writer=self._site.new_token(),
            time_us=self._site.now_us() if found is None else found.mark.time_us,
            server=self._probe(self._objects) if found is None else found.mark.server,
            epoch=1 if found is None else found.mark.epoch + 1,
            holder=self._holder(),
        )
        data = formats.encode_mark(made)
        done = self._objects.put_over(formats.MARK, data, found and found.etag)
        return None if done is None else FoundMark(made, done.etag)

    def leave(self) -> None:
        """Have claims not released: a server that is slow is asked nothing more at a close."""
        self._is_left = True

    def end(self, claimed: FoundMark) -> None:
        """Release a claim, unless another one took it, or the server does not answer."""
        if self._is_left:
            return
        ended = msgspec.structs.replace(
            claimed.mark,
            writer=self._site.new_token(),
            holder=None,
            released=claimed.mark.holder,
        )
        with contextlib.suppress(SiltstoneError):  # then the next run here goes on with it
            self._objects.put_if(formats.MARK, formats.encode_mark(ended), claimed.etag)

    def taken_by(self) -> str:
        """Say who has the bucket now, for a mirror whose claim is over."""
        found = self.look()
        if found is None or found.mark.holder is None:
            return "another mirror, which ended"
        return f"the mirror of {found.mark.holder}"

    def _holder(self) -> MirrorHolder:
        return MirrorHolder(
            host=platform.node(),
            path=str(self._site.root),
            pid=os.getpid(),
            time_us=self._site.now_us(),
        )


def require_nothing_else(url: str, keys: Iterable[str], ignored: tuple[str, ...]) -> None:
    """Refuse a prefix that has objects, and is no mirror.

    Raises:
        RequestError: As said; it names one.
    """
    foreign = [key for key in keys if not key.startswith(ignored)]
    if foreign:
        raise RequestError(f"{url} is neither empty nor a mirror: it has {min(foreign)!r}")


def require_of(url: str, found: FoundMark, store_id: str, root: object) -> None:
    """Refuse the mirror of another store.

    Raises:
        RequestError: It is one.
    """
    if found.mark.store_id != store_id:
        raise RequestError(
            f"{url} has the mirror of store {found.mark.store_id}, and {root} is store"
            f" {store_id}: choose another prefix"
        )
