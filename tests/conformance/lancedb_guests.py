"""LanceDB guests: its connection to a namespace, which opens files, and its remote client.

LanceDBNamespace  `lancedb.connect_namespace("rest", ...)`
LanceDBRemote     `lancedb.connect("db://...", host_override=...)`: the server runs everything
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lancedb
import pyarrow as pa

from tests.conformance.guests import Guest, Path

HOST = "dev.us-east-1.api.lancedb.com"
"""What the remote client names as its host, whatever it is connected to."""


class LanceDB(Guest):
    """What both connections have in common."""

    def connection(self, **headers: str) -> Any:
        raise NotImplementedError

    def open(self, path: Path) -> Any:
        return self.connection().open_table(path[-1], namespace_path=path[:-1])

    # namespaces and tables

    def create_namespace(self, path: Path, mode: str | None = None) -> None:
        self.connection().create_namespace(path, mode=mode)

    def drop_namespace(self, path: Path, behavior: str | None = None) -> None:
        self.connection().drop_namespace(path, behavior=behavior)

    def list_namespaces(self, path: Path, limit: int | None = None) -> list[str]:
        found: list[str] = []
        token = None
        while True:
            answer = self.connection().list_namespaces(path, page_token=token, limit=limit)
            found += answer.namespaces
            assert limit is None or len(answer.namespaces) <= limit
            token = answer.page_token
            if not token:
                return found

    def describe_namespace(self, path: Path) -> dict[str, str]:
        return self.connection().describe_namespace(path).properties or {}

    def list_tables(self, path: Path, limit: int | None = None) -> list[str]:
        found: list[str] = []
        token = None
        while True:
            answer = self.connection().list_tables(path, page_token=token, limit=limit)
            found += answer.tables
            token = answer.page_token
            if not token:
                return found

    def create(self, path: Path, rows: pa.Table, mode: str = "create") -> None:
        self.connection().create_table(path[-1], rows, mode=mode, namespace_path=path[:-1])

    def create_empty(self, path: Path, schema: pa.Schema) -> None:
        self.connection().create_table(path[-1], schema=schema, namespace_path=path[:-1])

    def drop(self, path: Path) -> None:
        self.connection().drop_table(path[-1], namespace_path=path[:-1])

    def rename(self, path: Path, name: str, space: Path | None = None) -> None:
        self.connection().rename_table(
            path[-1], name, cur_namespace_path=path[:-1], new_namespace_path=space
        )

    # rows

    def schema(self, path: Path) -> pa.Schema:
        return self.open(path).schema

    def version(self, path: Path) -> int:
        return self.open(path).version

    def append(self, path: Path, rows: pa.Table) -> None:
        self.open(path).add(rows)

    def overwrite(self, path: Path, rows: pa.Table) -> None:
        self.open(path).add(rows, mode="overwrite")

    def _at(self, path: Path, version: int | None) -> Any:
        table = self.open(path)
        if version is not None:
            table.checkout(version)
        return table

    def rows(
        self,
        path: Path,
        columns: Any = None,
        where: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
        version: int | None = None,
    ) -> pa.Table:
        query = self._at(path, version).search()
        if columns is not None:
            query = query.select(columns)
        if where is not None:
            query = query.where(where)
        if offset is not None:
            query = query.offset(offset)
        return query.limit(limit).to_arrow()

    def count(self, path: Path, where: str | None = None, version: int | None = None) -> int:
        return self._at(path, version).count_rows(where)

    def update(self, path: Path, where: str | None, **expressions: str) -> None:
        self.open(path).update(where=where, values_sql=expressions)

    def set_values(self, path: Path, where: str, **values: Any) -> None:
        self.open(path).update(where=where, values=values)

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
            builder = builder.when_matched_update_all(where=only_if)
        if inserts:
            builder = builder.when_not_matched_insert_all()
        if deletes:
            condition = None if deletes is True else deletes
            builder = builder.when_not_matched_by_source_delete(condition)
        builder.execute(rows)

    # versions, tags, columns

    def versions(self, path: Path) -> list[int]:
        return sorted(each["version"] for each in self.open(path).list_versions())

    def restore(self, path: Path, version: int) -> None:
        self.open(path).restore(version)

    def tag(self, path: Path, name: str, version: int) -> None:
        self.open(path).tags.create(name, version)

    def move_tag(self, path: Path, name: str, version: int) -> None:
        self.open(path).tags.update(name, version)

    def untag(self, path: Path, name: str) -> None:
        self.open(path).tags.delete(name)

    def tagged(self, path: Path, name: str) -> int:
        return self.open(path).tags.get_version(name)

    def tags(self, path: Path) -> dict[str, int]:
        return {name: each["version"] for name, each in self.open(path).tags.list().items()}

    def list_branches(self, path: Path) -> list[str]:
        return sorted(self.open(path).branches.list())

    def create_branch(self, path: Path, name: str) -> None:
        self.open(path).branches.create(name)

    def add_column(self, path: Path, name: str, expression: str) -> None:
        self.open(path).add_columns({name: expression})

    def add_typed_column(self, path: Path, field: pa.Field) -> None:
        self.open(path).add_columns(field)

    def rename_column(self, path: Path, name: str, new: str) -> None:
        self.open(path).alter_columns({"path": name, "rename": new})

    def cast_column(self, path: Path, name: str, kind: pa.DataType) -> None:
        self.open(path).alter_columns({"path": name, "data_type": kind})

    def allow_null(self, path: Path, name: str) -> None:
        self.open(path).alter_columns({"path": name, "nullable": True})

    def note_column(self, path: Path, name: str, metadata: dict[str, str | None]) -> None:
        self.open(path).update_field_metadata({"path": name, "metadata": metadata})

    def drop_column(self, path: Path, name: str) -> None:
        self.open(path).drop_columns([name])

    # searches and indexes

    def nearest(
        self,
        path: Path,
        vector: Sequence[float],
        k: int,
        where: str | None = None,
        *,
        prefilter: bool = True,
        column: str | None = None,
        metric: str | None = None,
        between: tuple[float | None, float | None] | None = None,
        columns: list[str] | None = None,
        with_row_id: bool = False,
    ) -> pa.Table:
        query = self.open(path).search(list(vector), vector_column_name=column).limit(k)
        if where is not None:
            query = query.where(where, prefilter=prefilter)
        if metric is not None:
            query = query.distance_type(metric)
        if between is not None:
            query = query.distance_range(*between)
        if columns is not None:
            query = query.select(columns)
        return query.with_row_id(with_row_id).to_arrow()

    def index_text(self, path: Path, column: str) -> None:
        self.open(path).create_fts_index(column)

    def text(self, path: Path, words: str, column: str, k: int = 10) -> pa.Table:
        query = self.open(path).search(words, query_type="fts", fts_columns=column)
        return query.limit(k).to_arrow()

    def index(self, path: Path, column: str, kind: str = "BTREE") -> None:
        self.open(path).create_scalar_index(column, index_type=kind)

    def indexes(self, path: Path) -> list[str]:
        return [each.name for each in self.open(path).list_indices()]

    def compact(self, path: Path) -> None:
        self.open(path).optimize()


class LanceDBNamespace(LanceDB):
    name = "LanceDB, namespace"

    def connection(self, **headers: str) -> Any:
        return lancedb.connect_namespace("rest", {"uri": self.service.url, **headers})


class LanceDBRemote(LanceDB):
    name = "LanceDB, remote"

    def connection(self, **headers: str) -> Any:
        config = {"extra_headers": headers, "retry_config": {"retries": 0}}
        return lancedb.connect(
            "db://dev", api_key="any", host_override=self.service.url, client_config=config
        )
