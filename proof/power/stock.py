"""Stock: what an unmodified Lance client does through our namespace."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import lance
import lance_namespace as spec
import pyarrow as pa

from siltstone.namespace import SiltstoneNamespace
from siltstone.store import Store


class _Staging(spec.LanceNamespace):
    """The client's side of a batch commit: it stages versions and commits none."""

    def __init__(self, ns: SiltstoneNamespace) -> None:
        self._ns = ns
        self.staged: list[dict[str, Any]] = []

    def namespace_id(self) -> str:
        return f"staging {id(self)}"

    def describe_table(self, request: Any) -> Any:
        return self._ns.describe_table(request)

    def list_table_versions(self, request: Any) -> Any:
        return self._ns.list_table_versions(request)

    def describe_table_version(self, request: Any) -> Any:
        return self._ns.describe_table_version(request)

    def create_table_version(self, request: Any) -> Any:
        self.staged.append(dict(request))
        version = spec.TableVersion(version=request["version"], manifest_path="staged elsewhere")
        return spec.CreateTableVersionResponse(version=version)


def make(db: Store, name: str, rows: pa.Table) -> None:
    """Create a table as a client does: it declares it, then writes its first version."""
    lance.write_dataset(
        rows, namespace_client=SiltstoneNamespace(db), table_id=[name], mode="create"
    )


def commit(db: Store, rows: Mapping[str, pa.Table], declared: str | None = None) -> None:
    """Append to several tables in one batch commit; declare one more in it."""
    ns = SiltstoneNamespace(db)
    operations: list[dict[str, Any]] = [
        {"create_table_version": _staged(ns, name, more)} for name, more in rows.items()
    ]
    if declared is not None:
        operations.append({"declare_table": {"id": [declared]}})
    ns.batch_commit_tables({"operations": operations})


def _staged(ns: SiltstoneNamespace, name: str, rows: pa.Table) -> dict[str, Any]:
    """Return the request by which a client would commit rows that it has staged."""
    client = _Staging(ns)
    with contextlib.suppress(OSError):  # it looks for the version that it believes committed
        lance.write_dataset(rows, namespace_client=client, table_id=[name], mode="append")
    return client.staged[0]
