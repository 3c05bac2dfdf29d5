"""Probe: whether a server does what a chain of records needs, asked once, before the first put.

    list, get what is absent ─▶ put if absent, twice ─▶ races of puts ─▶ put if unchanged, stale and
    not ─▶ list ─▶ the clock ─▶ delete, get what is absent

It finds blatant faults only: a server that ignores the condition, or that evaluates it beside the
put. One that does so once in a million is not found. So a server must be known to be atomic, or its
user says so (`trust_conditional_puts`).
"""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress

from siltstone.bucket_url import BucketUrl
from siltstone.errors import SiltstoneError, UnavailableError
from siltstone.storage.objects.objects import SIDE_BY_SIDE, Lost, Made, Objects, Taken, side_by_side

ROUNDS = 4
CLOCK_S_MAX = 60.0
"""So far apart the clocks of this machine and of the server may be."""
_ASK_S = 5.0
_SEAWEED_LEAST = (4, 17)
_PROVIDERS = {
    "s3": (".amazonaws.com", ".r2.cloudflarestorage.com"),
    "az": (".core.windows.net",),
    "gs": (".googleapis.com",),
}


def require_known(url: BucketUrl, endpoint: str, is_trusted: bool) -> str:
    """Return the name of a server whose conditional puts are known to be atomic.

    Args:
        url: Of the bucket.
        endpoint: The server's address; "": the provider's own.
        is_trusted: The caller vouches for any other.

    Raises:
        UnavailableError: Nobody vouches for the server.
    """
    host = re.sub(r"^\w+://|[:/].*$", "", endpoint)
    if not endpoint or f".{host}".endswith(_PROVIDERS[url.scheme]):
        return host or _PROVIDERS[url.scheme][0].strip(".")
    name = server_name(endpoint)
    if is_trusted or _is_known(name):
        return name or host
    raise UnavailableError(
        f"the server at {endpoint} ({name or 'it gives no name'}) may not put an object only if it"
        " is absent, whatever else is running; docs/operating.md names servers that do; if it"
        " does, say trust_conditional_puts"
    )


def _is_known(name: str) -> bool:
    if name.startswith(("MinIO", "Azurite")):
        return True
    version = re.fullmatch(r"SeaweedFS .*?(\d+)\.(\d+)", name)
    return version is not None and (int(version[1]), int(version[2])) >= _SEAWEED_LEAST


def server_name(endpoint: str) -> str:
    """Return what a server calls itself in its answers; "" if it does not answer."""
    try:
        request = urllib.request.Request(endpoint, method="GET")  # noqa: S310 - the user's endpoint
        with urllib.request.urlopen(request, timeout=_ASK_S) as answer:  # noqa: S310
            return answer.headers.get("Server", "")
    except urllib.error.HTTPError as refused:
        return refused.headers.get("Server", "")
    except (OSError, ValueError):
        return ""


def probe(objects: Objects, token: str, now_s: Callable[[], float]) -> None:
    """Ask a server for all that a mirror needs of it; what was put is deleted again.

    Args:
        objects: The prefix; nothing is read or changed but keys below `probe/<token>/`.
        token: No other probe has it.
        now_s: The clock of this machine: seconds since 1970.

    Raises:
        UnavailableError: The sentence says which of it failed.
        RequestError: There is no such bucket.
    """
    place = f"probe/{token}/"
    asked = _Probe(objects.of("probe"), place)
    list(objects.of("probe").list_after(place))  # first: some servers make a bucket for any put
    try:
        asked.puts_once()
        asked.races()
        asked.puts_unchanged()
        asked.lists()
        asked.require_clock(now_s)
    except SiltstoneError:
        with suppress(SiltstoneError):
            asked.clear()
        raise
    asked.clear()


class _Probe:
    """The questions; `keys` are what was put. One thread."""

    def __init__(self, objects: Objects, place: str) -> None:
        self._objects, self._place = objects, place
        self._keys: list[str] = []

    def puts_once(self) -> None:
        key = self._key("new")
        if self._objects.get(key) is not None:
            raise self._failed("an object is there that nobody put")
        first = self._objects.put_new(key, b"first")
        second = self._objects.put_new(key, b"second")
        if not isinstance(first, Made) or not isinstance(second, Taken):
            raise self._failed("of two puts that want to be the first, not exactly one was")

    def races(self) -> None:
        for number in range(ROUNDS):
            key = self._key(f"race-{number}")
            puts = [b"%d" % each for each in range(SIDE_BY_SIDE)]
            done = list(side_by_side(lambda data, key=key: self._objects.put_new(key, data), puts))
            won = [data for data, answer in done if isinstance(answer, Made)]
            found = self._objects.get(key)
            if len(won) != 1 or found is None or found.data != won[0]:
                raise self._failed(
                    f"of {SIDE_BY_SIDE} puts at once that want to be the first, {len(won)} were"
                )

    def puts_unchanged(self) -> None:
        key = self._key("changed")
        old = self._objects.put(key, b"old")
        if not isinstance(self._objects.put_if(key, b"new", old), Made):
            raise self._failed("a put on the ETag that the object has is refused")
        if not isinstance(self._objects.put_if(key, b"newer", old), Lost):
            raise self._failed("a put on an ETag that the object had before is done")

    def lists(self) -> None:
        found = [head.key for head in self._objects.list_after(self._place)]
        if found != sorted(self._keys):
            raise self._failed(f"a list has {len(found)} of {len(self._keys)} objects")

    def require_clock(self, now_s: Callable[[], float]) -> None:
        theirs, ours = self._objects.now(self._place.split("/")[1]), now_s()
        if abs(theirs - ours) > CLOCK_S_MAX:
            raise UnavailableError(
                f"the clocks differ: {_moment(ours)} on this machine, {_moment(theirs)} at"
                f" {self._objects.url}; set the wrong one"
            )

    def clear(self) -> None:
        self._objects.delete([*self._keys, f"now/{self._place.split('/')[1]}"])
        if any(True for _ in self._objects.list_after(self._place)):
            raise self._failed("an object is there that was deleted")

    def _key(self, name: str) -> str:
        self._keys.append(self._place + name)
        return self._keys[-1]

    def _failed(self, why: str) -> UnavailableError:
        return UnavailableError(f"{self._objects.url} cannot hold a mirror: {why}")


def _moment(time_s: float) -> str:
    import datetime as dt  # noqa: PLC0415 - for a message alone

    return dt.datetime.fromtimestamp(time_s, dt.UTC).isoformat(timespec="seconds")
