"""Staged catalog: makes Lance commit in private, and read only pinned versions.

    location of a reader, or of a writer of data files: <folder>
    location of a commit:                               <folder>/_siltstone/<transaction>

    Lance writes   <location>/_versions/<n>.manifest-<uuid>
    we move it to  <location>/<n>.manifest              n in Lance's inverted digits
    and answer     version -> that path, inside this catalog alone

One catalog serves one transaction, or one reader, on one dataset: it knows the versions it was
given and those staged through it. Two catalogs with the same version number do not conflict. A
commit has its own location because Lance also *lists* `<location>/_versions/` and rebases a commit,
without this catalog, over every higher version there: an external version, or one that we promoted
since. A commit changes no data file, and a manifest names no location.

Nothing is synced here; `commits` does it before it returns the pin. No lock: one Lance operation
at a time uses a catalog.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from siltstone.paths import key_of
from siltstone.storage.files.files import Files
from siltstone.storage.lance.files.errors import translated

_TABLE_ID = ["pin"]
# Of a handle that lives for one commit. Lance's own bounds are 1 GiB and 6 GiB.
_COMMIT_CACHES = {"metadata_cache_size_bytes": 16 << 20, "index_cache_size_bytes": 1 << 20}


class StagedCatalog:
    """One transaction's view of one dataset: the given pins, and its own above them.

    A namespace as Lance's native side calls it: by method, with dicts, and dicts are the answers.
    Not a `LanceNamespace`: this class and its models take a second to import, in every process.

    `versions` is version -> absolute path of its manifest. `storage_options` are those of Lance's
    client, where the files are in a bucket. `error` is the exception of our side in
    the last commit, which Lance does not pass on.
    """

    def __init__(
        self,
        location: Path,
        files: Files,
        versions: dict[int, Path],
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self.location, self._files = location, files
        self.storage_options = None if storage_options is None else dict(storage_options)
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

    def describe_table(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return how to reach the files: Lance asks that once, of a place that takes options."""
        del request
        return {"location": str(self.location), "storage_options": self.storage_options}

    def create_table_version(self, request: dict[str, Any]) -> dict[str, Any]:
        """Accept a manifest that Lance wrote: the moment at which a version is staged."""
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

    def adopt(self, number: int) -> None:
        """Accept the one manifest that Lance wrote to its own place."""
        where = self.location / "_versions"
        (name,) = (name for name in self._files.list(where) if name.endswith(".manifest"))
        self.create_table_version({"version": number, "manifest_path": str(where / name)})

    def _version(self, number: int) -> dict[str, Any]:
        return {"version": number, "manifest_path": key_of(self.versions[number])}


def _errors() -> Any:
    return importlib.import_module("lance_namespace.errors")


def lance_module() -> Any:
    """Return Lance, which is imported at its first use."""
    return importlib.import_module("lance")


def open_newest(catalog: StagedCatalog, session: Any = None) -> Any:
    """Open the newest version that `catalog` knows: the one pinned, or staged through it since.

    With the caches of a session; None: with its own, for a commit.
    """
    # Not `lance.dataset`: to ask the catalog where the table is, it imports a second of models.
    caches: dict[str, Any] = {**_COMMIT_CACHES} if session is None else {"session": session}
    if catalog.storage_options is not None:
        caches["storage_options"] = catalog.storage_options
    return lance_module().LanceDataset(str(catalog.location), **_managed(catalog), **caches)


def put(catalog: StagedCatalog, base: Any, operation: Any, **options: Any) -> Any:
    """Let Lance put a change on `base` (a handle or a path) through the catalog, or fail."""
    return lance_module().LanceDataset.commit(
        base, operation, max_retries=0, **_managed(catalog), **options
    )


def put_blank(catalog: StagedCatalog, schema: pa.Schema, storage_format: str) -> Any:
    """Let Lance make a dataset without rows, of a storage format that a commit cannot choose."""
    made = lance_module().write_dataset(
        schema.empty_table(),
        str(catalog.location),
        data_storage_version=storage_format,
        enable_stable_row_ids=True,
        enable_v2_manifest_paths=True,
    )
    catalog.adopt(made.version)
    return open_newest(catalog)


def _managed(catalog: StagedCatalog) -> dict[str, Any]:
    return {
        "namespace_client": catalog,
        "table_id": _TABLE_ID,
        "namespace_client_managed_versioning": True,
    }


@contextmanager
def writing(where: Path, catalog: StagedCatalog) -> Generator[None]:
    """Run a Lance commit; what our catalog raised inside comes out, not Lance's wrapping of it."""
    with translated(where, is_reading=False):
        try:
            yield
        except Exception as error:
            # It must not stay there: its frames refer to data sets, these in Rust to the catalog,
            # and Python sees no such circle. What else the frames have would never be let go.
            failed, catalog.error = catalog.error, None
            if failed is not None:
                raise failed from error
            raise
