"""Bucket URL: which bucket, and which keys of it, a URL means.

    s3://bucket/shop/eu   the keys below shop/eu/ of a bucket of S3, or of a server that speaks it
    gs:// az://           likewise of Google and of Azure (the container)

A URL has neither secrets nor settings: these come from the environment of each process. So a URL
with a user or a query is refused, and not repeated in the message. `file://` is no bucket: a disk
has backups, which also have the log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from siltstone.errors import RequestError

SCHEMES = ("s3", "gs", "az")
PREFIX_BYTES_MAX = 512
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\%*:<>|\"'`{}^~\[\]]")
_FORM = "give s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"


@dataclass(frozen=True, slots=True)
class BucketUrl:
    """A bucket and the prefix of its keys, without slashes at the ends; "": all of the bucket."""

    scheme: str
    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    @classmethod
    def of(cls, text: object) -> BucketUrl:
        """Return what a URL means.

        Raises:
            RequestError: It is no URL of a bucket, or has parts that none has.
        """
        if not isinstance(text, str) or not is_bucket_url(text):
            raise RequestError(f"{text!r:.128} is no URL of a bucket: {_FORM}")
        try:
            parts = urlsplit(text)
            has_port = parts.port is not None
        except ValueError:
            raise _refused(f"begins with the name of the bucket; {_FORM}") from None
        if "@" in parts.netloc:
            raise _refused("has no user: credentials come from the environment")
        if "?" in text or "#" in text:
            raise _refused("has no query: settings come from the environment")
        if has_port or not parts.netloc:
            raise _refused(f"begins with the name of the bucket; {_FORM}")
        if not _BUCKET.fullmatch(parts.netloc):
            raise _refused(
                "begins with the name of the bucket, 3 to 63 of a-z, 0-9, dots, dashes and"
                f" underscores; {parts.netloc!r:.70} is none"
            )
        prefix = text.partition("://")[2].partition("/")[2].removesuffix("/")
        return cls(parts.scheme, parts.netloc, _prefix_of(prefix))


def is_bucket_url(text: object) -> bool:
    """Say whether a text means a bucket, as its scheme says, and no path."""
    return isinstance(text, str) and text.partition("://")[0] in SCHEMES and "://" in text


def _prefix_of(prefix: str) -> str:
    names = prefix.split("/") if prefix else []
    for name in names:
        if name in {"", ".", ".."} or _UNSAFE.search(name):
            raise _refused(f"has plain names between its slashes; {name!r:.64} is none")
    if len(prefix.encode()) > PREFIX_BYTES_MAX:
        raise _refused(f"has a prefix of at most {PREFIX_BYTES_MAX} bytes")
    return prefix


def _refused(why: str) -> RequestError:
    return RequestError(f"the URL of a bucket {why}")
