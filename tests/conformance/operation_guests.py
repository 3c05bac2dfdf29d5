"""Operation guests: clients that ask the store for rows, by the operations of the specification.

Generated            the client that is generated from the specification's document
OperationsInProcess  the operations of `siltstone.namespace`, no server between
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

import pyarrow as pa
from lance_namespace.errors import LanceNamespaceError, from_error_code
from lance_namespace_urllib3_client.api.namespace_api import NamespaceApi
from lance_namespace_urllib3_client.api.table_api import TableApi
from lance_namespace_urllib3_client.api_client import ApiClient
from lance_namespace_urllib3_client.configuration import Configuration
from lance_namespace_urllib3_client.exceptions import ApiException
from lance_namespace_urllib3_client.models.error_response import ErrorResponse

from siltstone.namespace import SiltstoneNamespace
from tests.conformance.guests import Guest, Path, Spaces
from tests.server.rest import stream_of

# The module says of none of its classes that others may import it.
m: Any = import_module("lance_namespace_urllib3_client.models")

WITHOUT_LIMIT = (1 << 63) - 1
"""What LanceDB sends for "all": the specification has no other word for it."""


class Operations(Spaces, Guest):
    """Rows by `query_table`, `insert_into_table` and the like."""

    def create(self, path: Path, rows: pa.Table, mode: str = "create") -> str:
        request = m.CreateTableRequest(id=path, mode=mode)
        return self._asked("create_table", request, stream_of(rows)).location

    def create_keyed(self, path: Path, rows: pa.Table, key: str) -> None:
        request = m.CreateTableRequest(id=path, properties={"primary_key": key})
        self._asked("create_table", request, stream_of(rows))

    def append(self, path: Path, rows: pa.Table) -> None:
        request = m.InsertIntoTableRequest(id=path)
        self._asked("insert_into_table", request, stream_of(rows))

    def overwrite(self, path: Path, rows: pa.Table) -> None:
        request = m.InsertIntoTableRequest(id=path, mode="overwrite")
        self._asked("insert_into_table", request, stream_of(rows))

    def schema(self, path: Path) -> pa.Schema:
        return self.rows(path, limit=0).schema

    def version(self, path: Path) -> int:
        return self.versions(path)[-1]

    def _query(self, path: Path, **members: Any) -> pa.Table:
        vector = m.QueryTableRequestVector(single_vector=list(members.pop("vector", [])))
        given = {name: value for name, value in members.items() if value is not None}
        request = m.QueryTableRequest(id=path, vector=vector, **given)
        found = self._asked("query_table", request)
        data = getattr(found, "data", found)
        return pa.ipc.open_file(pa.py_buffer(bytes(data))).read_all()

    def rows(
        self,
        path: Path,
        columns: Any = None,
        where: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
        version: int | None = None,
    ) -> pa.Table:
        k = WITHOUT_LIMIT if limit is None else limit
        return self._query(
            path, k=k, columns=_columns(columns), filter=where, offset=offset, version=version
        )

    def count(self, path: Path, where: str | None = None, version: int | None = None) -> int:
        request = m.CountTableRowsRequest(id=path, predicate=where, version=version)
        found = self._asked("count_table_rows", request)
        return found if isinstance(found, int) else found.count

    def update(self, path: Path, where: str | None, **expressions: str) -> None:
        updates = [[name, value] for name, value in expressions.items()]
        request = m.UpdateTableRequest(id=path, predicate=where, updates=updates)
        self._asked("update_table", request)

    def delete(self, path: Path, where: str) -> None:
        self._asked("delete_from_table", m.DeleteFromTableRequest(id=path, predicate=where))

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
        request = m.MergeInsertIntoTableRequest(
            id=path,
            on=[on] if isinstance(on, str) else on,
            when_matched_update_all=updates,
            when_matched_update_all_filt=only_if,
            when_not_matched_insert_all=inserts,
            when_not_matched_by_source_delete=bool(deletes),
            when_not_matched_by_source_delete_filt=deletes if isinstance(deletes, str) else None,
        )
        self._asked("merge_insert_into_table", request, stream_of(rows))

    def restore(self, path: Path, version: int) -> None:
        self._asked("restore_table", m.RestoreTableRequest(id=path, version=version))

    def add_column(self, path: Path, name: str, expression: str) -> None:
        new = m.AddColumnsEntry(name=name, expression=expression)
        request = m.AlterTableAddColumnsRequest(id=path, new_columns=[new])
        self._asked("alter_table_add_columns", request)

    def rename_column(self, path: Path, name: str, new: str) -> None:
        entry = m.AlterColumnsEntry(path=name, rename=new)
        request = m.AlterTableAlterColumnsRequest(id=path, alterations=[entry])
        self._asked("alter_table_alter_columns", request)

    def cast_column(self, path: Path, name: str, kind: pa.DataType) -> None:
        entry = m.AlterColumnsEntry(path=name, data_type={"type": str(kind)})
        request = m.AlterTableAlterColumnsRequest(id=path, alterations=[entry])
        self._asked("alter_table_alter_columns", request)

    def allow_null(self, path: Path, name: str) -> None:
        entry = m.AlterColumnsEntry(path=name, nullable=True)
        request = m.AlterTableAlterColumnsRequest(id=path, alterations=[entry])
        self._asked("alter_table_alter_columns", request)

    def note_column(self, path: Path, name: str, metadata: dict[str, str | None]) -> None:
        entry = m.UpdateFieldMetadataEntry(path=name, metadata=metadata)
        request = m.UpdateFieldMetadataRequest(id=path, updates=[entry])
        self._asked("update_field_metadata", request)

    def drop_column(self, path: Path, name: str) -> None:
        request = m.AlterTableDropColumnsRequest(id=path, columns=[name])
        self._asked("alter_table_drop_columns", request)

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
        with_row_id: bool | None = None,
    ) -> pa.Table:
        lower, upper = between or (None, None)
        return self._query(
            path,
            k=k,
            vector=vector,
            filter=where,
            prefilter=prefilter,
            vector_column=column,
            distance_type=metric,
            lower_bound=lower,
            upper_bound=upper,
            columns=_columns(columns),
            with_row_id=with_row_id,
        )

    def text(self, path: Path, words: str, column: str, k: int = 10) -> pa.Table:
        asked = m.StringFtsQuery(query=words, columns=[column])
        query = m.QueryTableRequestFullTextQuery(string_query=asked)
        return self._query(path, k=k, full_text_query=query)

    def index_text(self, path: Path, column: str) -> None:
        request = m.CreateTableIndexRequest(id=path, column=column, index_type="FTS")
        self._asked("create_table_index", request)

    def index(self, path: Path, column: str, kind: str = "BTREE") -> None:
        request = m.CreateTableIndexRequest(id=path, column=column, index_type=kind)
        self._asked("create_table_scalar_index", request)

    def indexes(self, path: Path) -> list[str]:
        found = self._asked("list_table_indices", m.ListTableIndicesRequest(id=path))
        return [each.index_name for each in found.indexes]

    def stats(self, path: Path) -> int:
        return self._asked("get_table_stats", m.GetTableStatsRequest(id=path)).num_rows

    def set_schema_metadata(self, path: Path, **metadata: str) -> None:
        request = m.UpdateTableSchemaMetadataRequest(id=path, metadata=metadata)
        self._asked("update_table_schema_metadata", request)


def _columns(columns: Any) -> Any:
    if columns is None:
        return None
    if isinstance(columns, dict):
        return m.QueryTableRequestColumns(column_aliases=columns)
    return m.QueryTableRequestColumns(column_names=columns)


class Generated(Operations):
    name = "generated client"

    def _asked(self, operation: str, request: Any, rows: bytes | None = None) -> Any:
        """Ask as the generated client has it: a body as it is, a model, or single arguments.

        Raises:
            LanceNamespaceError: What the server refused, by the specification's code.
        """
        configuration = Configuration(host=self.service.url)
        with ApiClient(configuration) as client:
            apis = (TableApi(client), NamespaceApi(client))
            method = next(found for api in apis if (found := getattr(api, operation, None)))
            taken = inspect.signature(method).parameters
            given = request.model_dump(exclude_none=True)
            arguments = {name: value for name, value in given.items() if name in taken}
            arguments["id"] = "$".join(request.id) or "$"
            if rows is not None:
                arguments |= {"body": rows}
                if "properties" in arguments:
                    arguments["properties"] = _json(arguments["properties"])
            model = next((name for name in taken if name.endswith("_request")), None)
            if model is not None:
                arguments[model] = request
            elif "request_body" in taken:
                arguments["request_body"] = request.metadata
            try:
                return method(**arguments)
            except ApiException as error:
                raise refusal_of(error) from error


class OperationsInProcess(Operations):
    name = "operations, in process"

    def _asked(self, operation: str, request: Any, rows: bytes | None = None) -> Any:
        method = getattr(SiltstoneNamespace(cast("Any", self.db)), operation)
        return method(request) if rows is None else method(request, rows)


def _json(value: object) -> str:
    import json

    return json.dumps(value)


def refusal_of(error: ApiException) -> LanceNamespaceError:
    """Return the specification's error that the body of an answer tells."""
    told = ErrorResponse.from_json(str(error.body))
    assert told is not None
    return from_error_code(told.code, told.error or "")
