"""Guests: the clients of a store that are not siltstone's own, in the words that the cases use.

    Guest             the words; a client that has no way to say one raises NoWordsError
    Pylance           datasets of pylance over the REST namespace
    PylanceInProcess  the same datasets over `siltstone.namespace`, no server between

A table is named by the path of its namespace and its name: `["team", "events"]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

import lance
import pyarrow as pa
from lance.namespace import RestNamespace

import siltstone as st
from siltstone.namespace import SiltstoneNamespace
from siltstone.server.rest.server import RestServer

# The module says of none of its classes that others may import it.
m: Any = import_module("lance_namespace_urllib3_client.models")
Path = list[str]


class NoWordsError(Exception):
    """The client has no call for what a case asks: the case does not name this client."""


class Guest:
    """What the cases ask of every client. One thread."""

    name = ""

    def __init__(self, db: st.Store, service: RestServer) -> None:
        self.db, self.service = db, service

    def __getattr__(self, word: str) -> Any:
        raise NoWordsError(f"{self.name} has no word for {word}")


class Spaces:
    """Namespaces, tables and tags by the operations of the specification.

    `_asked(operation, request, rows)` asks for one and returns its answer.
    """

    def _asked(self, operation: str, request: Any, rows: bytes | None = None) -> Any:
        raise NotImplementedError

    def create_namespace(self, path: Path, mode: str | None = None) -> None:
        self._asked("create_namespace", m.CreateNamespaceRequest(id=path, mode=mode))

    def drop_namespace(self, path: Path, behavior: str | None = None) -> None:
        self._asked("drop_namespace", m.DropNamespaceRequest(id=path, behavior=behavior))

    def list_namespaces(self, path: Path, limit: int | None = None) -> list[str]:
        found: list[str] = []
        token = None
        while True:
            request = m.ListNamespacesRequest(id=path, limit=limit, page_token=token)
            answer = self._asked("list_namespaces", request)
            found += answer.namespaces
            assert limit is None or len(answer.namespaces) <= limit
            token = answer.page_token
            if not token:
                return found

    def has_namespace(self, path: Path) -> bool:
        from lance_namespace.errors import NamespaceNotFoundError

        try:
            self._asked("namespace_exists", m.NamespaceExistsRequest(id=path))
        except NamespaceNotFoundError:
            return False
        return True

    def describe_namespace(self, path: Path) -> dict[str, str]:
        answer = self._asked("describe_namespace", m.DescribeNamespaceRequest(id=path))
        return answer.properties or {}

    def list_tables(self, path: Path, limit: int | None = None) -> list[str]:
        found: list[str] = []
        token = None
        while True:
            request = m.ListTablesRequest(id=path, limit=limit, page_token=token)
            answer = self._asked("list_tables", request)
            found += answer.tables
            token = answer.page_token
            if not token:
                return found

    def has_table(self, path: Path) -> bool:
        from lance_namespace.errors import TableNotFoundError

        try:
            self._asked("table_exists", m.TableExistsRequest(id=path))
        except TableNotFoundError:
            return False
        return True

    def declare(self, path: Path) -> str:
        return self._asked("declare_table", m.DeclareTableRequest(id=path)).location

    def register(self, path: Path, location: str) -> None:
        self._asked("register_table", m.RegisterTableRequest(id=path, location=location))

    def deregister(self, path: Path) -> None:
        self._asked("deregister_table", m.DeregisterTableRequest(id=path))

    def drop(self, path: Path) -> str:
        return self._asked("drop_table", m.DropTableRequest(id=path)).location

    def rename(self, path: Path, name: str, space: Path | None = None) -> None:
        request = m.RenameTableRequest(id=path, new_table_name=name, new_namespace_id=space)
        self._asked("rename_table", request)

    def location(self, path: Path) -> str:
        return self._asked("describe_table", m.DescribeTableRequest(id=path)).location

    def properties(self, path: Path) -> dict[str, str]:
        return self._asked("describe_table", m.DescribeTableRequest(id=path)).properties or {}

    def described_version(self, path: Path, version: int) -> int:
        request = m.DescribeTableVersionRequest(id=path, version=version)
        return self._asked("describe_table_version", request).version.version

    def versions(self, path: Path) -> list[int]:
        request = m.ListTableVersionsRequest(id=path)
        found = self._asked("list_table_versions", request).versions
        return sorted(each.version for each in found)

    def tag(self, path: Path, name: str, version: int) -> None:
        request = m.CreateTableTagRequest(id=path, tag=name, version=version)
        self._asked("create_table_tag", request)

    def move_tag(self, path: Path, name: str, version: int) -> None:
        request = m.UpdateTableTagRequest(id=path, tag=name, version=version)
        self._asked("update_table_tag", request)

    def untag(self, path: Path, name: str) -> None:
        self._asked("delete_table_tag", m.DeleteTableTagRequest(id=path, tag=name))

    def tagged(self, path: Path, name: str) -> int:
        request = m.GetTableTagVersionRequest(id=path, tag=name)
        return self._asked("get_table_tag_version", request).version

    def tags(self, path: Path) -> dict[str, int]:
        found = self._asked("list_table_tags", m.ListTableTagsRequest(id=path)).tags
        return {name: each.version for name, each in found.items()}

    def create_branch(self, path: Path, name: str) -> None:
        self._asked("create_table_branch", m.CreateTableBranchRequest(id=path, name=name))

    def list_branches(self, path: Path) -> list[str]:
        found = self._asked("list_table_branches", m.ListTableBranchesRequest(id=path))
        return sorted(found.branches)


class Datasets(Spaces, Guest):
    """Rows by pylance's datasets: what stands behind a table is read and written as files."""

    def namespace(self, **headers: str) -> Any:
        """Return a fresh client of the namespace."""
        raise NotImplementedError

    def _asked(self, operation: str, request: Any, rows: bytes | None = None) -> Any:
        method = getattr(self.namespace(), operation)
        return method(request) if rows is None else method(request, rows)

    def open(self, path: Path, version: int | str | None = None) -> lance.LanceDataset:
        return lance.dataset(namespace_client=self.namespace(), table_id=path, version=version)

    def create(self, path: Path, rows: pa.Table, mode: str = "create") -> None:
        lance.write_dataset(rows, namespace_client=self.namespace(), table_id=path, mode=mode)

    def append(self, path: Path, rows: pa.Table) -> None:
        self.create(path, rows, "append")

    def overwrite(self, path: Path, rows: pa.Table) -> None:
        self.create(path, rows, "overwrite")

    def schema(self, path: Path) -> pa.Schema:
        return self.open(path).schema

    def version(self, path: Path) -> int:
        return self.open(path).version

    def rows(
        self,
        path: Path,
        columns: Any = None,
        where: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
        version: int | None = None,
    ) -> pa.Table:
        dataset = self.open(path, version)
        return dataset.to_table(columns=columns, filter=where, limit=limit, offset=offset)

    def count(self, path: Path, where: str | None = None, version: int | None = None) -> int:
        return self.open(path, version).count_rows(where)

    def update(self, path: Path, where: str | None, **expressions: str) -> None:
        self.open(path).update(expressions, where=where)

    def delete(self, path: Path, where: str) -> None:
        self.open(path).delete(where)

    def merge(
        self,
        path: Path,
        rows: pa.Table,
        on: str | list[str] = "id",
        *,
        updates: bool = True,
        inserts: bool = True,
        deletes: str | bool = False,
        only_if: str | None = None,
    ) -> None:
        builder = self.open(path).merge_insert(on)
        if updates:
            builder.when_matched_update_all(only_if)
        if inserts:
            builder.when_not_matched_insert_all()
        if deletes:
            builder.when_not_matched_by_source_delete(None if deletes is True else deletes)
        builder.execute(rows)

    def restore(self, path: Path, version: int) -> None:
        self.open(path, version).restore()

    def add_column(self, path: Path, name: str, expression: str) -> None:
        self.open(path).add_columns({name: expression})

    def add_typed_column(self, path: Path, field: pa.Field) -> None:
        self.open(path).add_columns(field)

    def rename_column(self, path: Path, name: str, new: str) -> None:
        self.open(path).alter_columns(cast("Any", {"path": name, "name": new}))

    def cast_column(self, path: Path, name: str, kind: pa.DataType) -> None:
        self.open(path).alter_columns(cast("Any", {"path": name, "data_type": kind}))

    def drop_column(self, path: Path, name: str) -> None:
        self.open(path).drop_columns([name])

    def nearest(
        self,
        path: Path,
        vector: Sequence[float],
        k: int,
        where: str | None = None,
        *,
        prefilter: bool = True,
        column: str = "e",
        metric: str = "l2",
        between: tuple[float | None, float | None] | None = None,
        columns: list[str] | None = None,
        with_row_id: bool = False,
    ) -> pa.Table:
        near: dict[str, Any] = {"column": column, "q": list(vector), "k": k, "metric": metric}
        if between is not None:
            near["distance_range"] = between
        return self.open(path).to_table(
            columns=columns,
            filter=where,
            prefilter=prefilter,
            nearest=near,
            with_row_id=with_row_id,
        )

    def index_text(self, path: Path, column: str) -> None:
        self.open(path).create_scalar_index(column, "INVERTED")

    def text(self, path: Path, words: str, column: str, k: int = 10) -> pa.Table:
        query = {"query": words, "columns": [column]}
        return self.open(path).to_table(full_text_query=query, limit=k)

    def index(self, path: Path, column: str, kind: str = "BTREE") -> None:
        self.open(path).create_scalar_index(column, cast("Any", kind))

    def indexes(self, path: Path) -> list[str]:
        return [each.name for each in self.open(path).describe_indices()]

    def compact(self, path: Path) -> None:
        self.open(path).optimize.compact_files()


class Pylance(Datasets):
    name = "pylance"

    def namespace(self, **headers: str) -> RestNamespace:
        return RestNamespace(uri=self.service.url, **headers)

    def described_version(self, path: Path, version: int) -> int:
        request = {"id": path, "version": version}  # pylance has no model for this one
        return self.namespace().describe_table_version(request)["version"]["version"]


class PylanceInProcess(Datasets):
    name = "pylance, in process"

    def namespace(self, **headers: str) -> SiltstoneNamespace:
        assert not headers
        return SiltstoneNamespace(cast("Any", self.db))
