"""Staging: what a client of a batch commit does before it: it stages versions and commits none."""

from __future__ import annotations

import contextlib
from typing import Any

import lance
import lance_namespace as spec

from siltstone.namespace import SiltstoneNamespace


class Staging(spec.LanceNamespace):
    """A namespace that lets its client stage versions, and keeps what it would have committed."""

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


def staged(ns: SiltstoneNamespace, name: str, table: Any, mode: str = "append") -> dict[str, Any]:
    """Return the request by which a client would commit rows."""
    client = Staging(ns)
    with contextlib.suppress(OSError):  # it looks for the version that it believes committed
        lance.write_dataset(table, namespace_client=client, table_id=[name], mode=mode)
    return client.staged[0]
