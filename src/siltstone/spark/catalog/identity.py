"""Identity: which siltstone a jar, or the Python process of a JVM, is made of.

The version alone would not do: the sources of a working copy change without it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import msgspec
import xxhash

from siltstone.errors import UnavailableError
from siltstone.spark.context.workers import version

SOURCES = Path(__file__).parents[1] / "scala"
ENTRY = "siltstone-identity.json"
"""The file in the jar that says its identity."""


class Identity(msgspec.Struct, frozen=True):
    """The version of siltstone, and the hash of the Scala sources that come with it."""

    siltstone: str
    sources: str

    def __str__(self) -> str:
        return f"siltstone {self.siltstone} ({self.sources})"

    def require(self, other: Identity) -> None:
        """Check that a jar is of this siltstone.

        Raises:
            UnavailableError: It is of another.
        """
        if other != self:
            raise UnavailableError(
                f"the jar of this Spark is of {other}, its Python has {self}; start Spark with the"
                " jar that `siltstone spark jar` prints"
            )


def sources() -> Mapping[str, bytes]:
    """Return the Scala sources by name."""
    return {path.name: path.read_bytes() for path in sorted(SOURCES.glob("*.scala"))}


@functools.cache
def here() -> Identity:
    """Return the identity of the siltstone that runs here."""
    digest = xxhash.xxh3_64()
    for name, text in sources().items():
        digest.update(name.encode() + b"\0" + text + b"\0")
    return Identity(version(), digest.hexdigest())
