"""Staged catalog: how Lance is made to commit in private and to read only what is pinned.

    location of a reader, or of who writes data files:  <folder>
    location of a commit:                               <folder>/_siltstone/<transaction>

    Lance writes   <location>/_versions/<n>.manifest-<uuid>
    we move it to  <location>/<n>.manifest              n in Lance's inverted digits
    and answer     version -> that path, inside this catalog alone

One catalog serves one transaction, or one reader, on one dataset: it knows the versions it was
given and those staged through it. Two that stage the same version number meet nowhere. A commit
gets a location of its own because Lance also *lists* `<location>/_versions/` and rebases a commit,
unasked and past this catalog, over every higher version that stands there: what a stranger wrote,
or what we promoted since. A commit touches no data file, and a manifest names no location.

Nothing is synced here; `lance_io` does it before it returns the pin. No lock: a catalog is used by
one Lance operation at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance_namespace as ns
import lance_namespace.errors as ns_errors

from siltstone.storage.files import Files

TABLE_ID = ["pin"]


class StagedCatalog(ns.LanceNamespace):
    """What one transaction sees of one dataset: the pins given, and over them its own.

    `versions` is version -> absolute path of its manifest. `error` is what our side of the last
    commit raised: Lance wraps it beyond recognition.
    """

    def __init__(self, location: Path, files: Files, versions: dict[int, Path]) -> None:
        self.location, self._files = location, files
        self.versions = dict(versions)
        self.error: BaseException | None = None

    def namespace_id(self) -> str:
        return f"siltstone:{self.location}:{id(self)}"

    def describe_table(self, request: Any) -> ns.DescribeTableResponse:  # noqa: ARG002  # one table
        return ns.DescribeTableResponse(location=str(self.location), managed_versioning=True)

    def declare_table(self, request: Any) -> ns.DeclareTableResponse:  # noqa: ARG002  # one table
        return ns.DeclareTableResponse(location=str(self.location), managed_versioning=True)

    def list_table_versions(self, request: Any) -> ns.ListTableVersionsResponse:
        wanted = _fields(request)
        order = sorted(self.versions, reverse=bool(wanted.get("descending")))
        return ns.ListTableVersionsResponse(
            versions=[self._version(number) for number in order[: wanted.get("limit")]]
        )

    def describe_table_version(self, request: Any) -> ns.DescribeTableVersionResponse:
        number = _fields(request)["version"]
        if number not in self.versions:
            raise ns_errors.TableVersionNotFoundError(f"{self.location} version {number}")
        return ns.DescribeTableVersionResponse(version=self._version(number))

    def create_table_version(self, request: Any) -> ns.CreateTableVersionResponse:
        """Take over a manifest that Lance wrote: the moment at which a version is staged."""
        staged = _fields(request)
        number = staged["version"]
        if number in self.versions:
            raise ns_errors.ConcurrentModificationError(f"{self.location} version {number} exists")
        source = Path("/") / staged["manifest_path"]
        target = self.location / source.name.partition("-")[0]
        try:
            self._files.rename(source, target)
        except BaseException as error:
            self.error = error
            raise
        self.versions[number] = target
        return ns.CreateTableVersionResponse(version=self._version(number))

    def _version(self, number: int) -> ns.TableVersion:
        return ns.TableVersion(
            version=number, manifest_path=str(self.versions[number]).removeprefix("/")
        )


def _fields(request: Any) -> dict[str, Any]:
    return request if isinstance(request, dict) else request.to_dict()
