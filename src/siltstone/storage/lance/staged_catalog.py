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

import importlib
from pathlib import Path
from typing import Any

from siltstone.storage.files.files import Files

TABLE_ID = ["pin"]


class StagedCatalog:
    """What one transaction sees of one dataset: the pins given, and over them its own.

    A namespace as Lance's native side calls it: by method, with dicts, and dicts are the answers.
    Not a `LanceNamespace`: this class and its models take a second to import, in every process.

    `versions` is version -> absolute path of its manifest. `error` is what our side of the last
    commit raised: Lance wraps it beyond recognition.
    """

    def __init__(self, location: Path, files: Files, versions: dict[int, Path]) -> None:
        self.location, self._files = location, files
        self.versions = dict(versions)
        self.error: BaseException | None = None

    def namespace_id(self) -> str:
        return f"siltstone:{self.location}:{id(self)}"

    def list_table_versions(self, request: dict[str, Any]) -> dict[str, Any]:
        order = sorted(self.versions, reverse=bool(request.get("descending")))
        return {"versions": [self._version(number) for number in order[: request.get("limit")]]}

    def describe_table_version(self, request: dict[str, Any]) -> dict[str, Any]:
        number = request["version"]
        if number not in self.versions:
            raise _errors().TableVersionNotFoundError(f"{self.location} version {number}")
        return {"version": self._version(number)}

    def create_table_version(self, request: dict[str, Any]) -> dict[str, Any]:
        """Take over a manifest that Lance wrote: the moment at which a version is staged."""
        number = request["version"]
        if number in self.versions:
            raise _errors().ConcurrentModificationError(f"{self.location} version {number} exists")
        source = Path("/") / request["manifest_path"]
        target = self.location / source.name.partition("-")[0]
        try:
            self._files.rename(source, target)
        except BaseException as error:
            self.error = error
            raise
        self.versions[number] = target
        return {"version": self._version(number)}

    def _version(self, number: int) -> dict[str, Any]:
        path = str(self.versions[number])
        return {"version": number, "manifest_path": path.removeprefix("/")}


def _errors() -> Any:
    return importlib.import_module("lance_namespace.errors")
