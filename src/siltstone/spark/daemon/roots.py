"""Roots: the stores that a catalog may name, as the application's SparkConf says.

Anybody who may run SQL may set `spark.sql.catalog.x.uri`; the application alone sets
`spark.siltstone.roots`, when it starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from siltstone.bucket_url import BucketUrl, is_bucket_url
from siltstone.errors import RequestError
from siltstone.joined.targets import is_url
from siltstone.spark.context import stores

ROOTS = "spark.siltstone.roots"


@dataclass(frozen=True, slots=True)
class Roots:
    """Folders and URLs of buckets below which stores lie, and URLs of servers; none: anywhere."""

    allowed: Sequence[str] = ()

    def path_of(self, uri: str) -> str:
        """Return the path of the store at a path or a URL.

        Raises:
            RequestError: It is not below one of the roots; or as `stores.path_of`.
            UnavailableError: No server answers at the URL.
        """
        if self.allowed and not any(_is_below(uri, root) for root in self.allowed):
            raise RequestError(
                f"a catalog may not name the store at {uri}: {ROOTS} allows only"
                f" {', '.join(self.allowed)}"
            )
        return stores.path_of(uri)


def _is_below(uri: str, root: str) -> bool:
    if is_url(uri) or is_url(root):
        return uri.rstrip("/") == root.rstrip("/")
    if is_bucket_url(uri) or is_bucket_url(root):
        are_both = is_bucket_url(uri) and is_bucket_url(root)
        return are_both and f"{BucketUrl.of(uri)}/".startswith(f"{BucketUrl.of(root)}/")
    # Where links lead: else a link below a root would lead anywhere.
    return Path(uri).resolve().is_relative_to(Path(root).resolve())
