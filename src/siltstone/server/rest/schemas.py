"""Schemas: the JSON bodies of requests and answers, as `/openapi.json` describes them.

Names and meanings are those of the Lance Namespace specification where it has the operation.
Members that are not here are passed over. A request with no member that counts is a `TableRequest`
(or a `RequestBody`): its `id`, if there is one, is that of the path. Over 400 lines, as every body
is here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from siltstone.api.results import Status

Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Limit = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Name = Annotated[str, Meta(min_length=1)]
IndexType = Annotated[Any, Meta(extra_json_schema={"type": "string"})]
"""Of another kind or type it is "not offered", which clients tell from a wrong request."""
Names = Annotated[list[str], Meta(min_length=1)]


TransactionStatus = Literal["Running", "Succeeded", "Failed", "Canceled"]
JobKind = Literal["checkpoint", "merge", "optimize", "vacuum"]


class RequestBody(Struct):
    """The body of a request."""


class AnswerBody(Struct, omit_defaults=True):
    """The body of an answer."""


class PageAnswer(AnswerBody, kw_only=True):
    """A page of a list; `page_token` asks for the next one, if there is one."""

    page_token: str | None = None


class CommittedAnswer(AnswerBody, kw_only=True):
    """The answer of a commit, by its id, or of a statement of an open transaction."""

    transaction_id: str | None = None


class NoMembers(AnswerBody):
    """An answer that says no more than that it is done."""


class ErrorAnswer(AnswerBody):
    """Every refusal: `code` is the specification's."""

    error: str
    code: int
    detail: str | None = None
    instance: str | None = None


# the server and its jobs


class HealthAnswer(AnswerBody):
    status: str


class ServerCounts(AnswerBody):
    requests: int
    transactions: int
    jobs: int


@dataclass(frozen=True)
class StatusAnswer(Status):
    server: ServerCounts


class JobAnswer(AnswerBody):
    """One run of maintenance; `result` depends on its kind."""

    id: str
    kind: JobKind
    status: Literal["queued", "running", "succeeded", "failed"]
    result: Any = None
    error: str | None = None


class JobsAnswer(AnswerBody):
    jobs: list[JobAnswer]


class TableJobRequest(RequestBody):
    """All tables without `table`."""

    table: str | None = None


class VacuumRequest(RequestBody):
    dry_run: bool = True


# namespaces


class NamespaceRequest(RequestBody, kw_only=True):
    id: list[str] | None = None


class CreateNamespaceRequest(NamespaceRequest):
    mode: str | None = None
    properties: dict[str, str] | None = None


class DropNamespaceRequest(NamespaceRequest):
    mode: str | None = None
    behavior: str | None = None


class NamespaceAnswer(AnswerBody):
    properties: dict[str, str]
    transaction_id: str | list[str] | None = None


class NamespacesAnswer(PageAnswer):
    namespaces: list[str]


class TablesAnswer(PageAnswer):
    tables: list[str]


# tables


class TableRequest(RequestBody, kw_only=True):
    id: list[str] | None = None


class DescribeTableRequest(TableRequest):
    version: Count | None = None
    with_table_uri: bool | None = None
    load_detailed_metadata: bool | None = None


class JsonType(AnswerBody):
    """An Arrow type; `fields` of lists and structs, `length` of lists of a fixed size."""

    type: str
    fields: list[JsonField] | None = None
    length: int | None = None


class JsonField(AnswerBody):
    name: str
    nullable: bool
    type: JsonType


class JsonSchema(AnswerBody):
    fields: list[JsonField]
    metadata: dict[str, str]


class TableAnswer(AnswerBody):
    table: str
    namespace: list[str]
    location: str
    properties: dict[str, str]
    is_only_declared: bool
    managed_versioning: bool | None = None
    table_uri: str | None = None
    version: int | None = None
    schema: JsonSchema | None = None


class FragmentLengths(AnswerBody):
    min: int
    max: int
    mean: int
    p25: int
    p50: int
    p75: int
    p99: int


class FragmentStats(AnswerBody):
    num_fragments: int
    num_small_fragments: int
    lengths: FragmentLengths


class TableStatsAnswer(AnswerBody):
    total_bytes: int
    num_rows: int
    num_indices: int
    fragment_stats: FragmentStats


class DropTableAnswer(CommittedAnswer):
    id: list[str]
    location: str


class RenameTableRequest(TableRequest):
    new_table_name: Name
    new_namespace_id: list[str] | None = None


class NewColumn(RequestBody):
    name: Name
    expression: Name | None = None
    computed: Any = None
    virtual_column: Any = None


class AddColumnsRequest(TableRequest):
    new_columns: Annotated[list[NewColumn], Meta(min_length=1)]


class ColumnAlteration(RequestBody):
    """Only `rename` is offered."""

    path: Name
    rename: Name | None = None
    data_type: Any = None
    nullable: Any = None
    virtual_column: Any = None


class AlterColumnsRequest(TableRequest):
    alterations: Annotated[list[ColumnAlteration], Meta(min_length=1)]


class DropColumnsRequest(TableRequest):
    columns: Names


class VersionAnswer(AnswerBody):
    version: int


class CreateTableAnswer(VersionAnswer):
    location: str


# tags


class TagRequest(TableRequest):
    tag: Name


class SetTagRequest(TagRequest):
    version: Count


class TaggedVersion(VersionAnswer):
    manifest_size: int = field(name="manifestSize")


class TagsAnswer(AnswerBody):
    """LanceDB's remote client gets the object in it."""

    tags: dict[str, TaggedVersion]
    page_token: str | None = None


# rows


class QueryVector(RequestBody):
    single_vector: list[float] | None = None
    multi_vector: Any = None


class QueryRequest(TableRequest):
    """`columns`: see `selection`. `full_text_query`, `with_row_id`, `order_by`: not offered."""

    columns: list[str] | dict[str, str | list[str] | dict[str, str] | None] | None = None
    filter: str | None = None
    prefilter: bool | None = None
    k: Limit | None = None
    offset: Count | None = None
    vector: list[float] | QueryVector | None = None
    vector_column: str | None = None
    distance_type: str | None = None
    version: Count | None = None
    full_text_query: Any = None
    with_row_id: Any = None
    order_by: Any = None
    lower_bound: float | None = None
    upper_bound: float | None = None


class ExplainRequest(QueryRequest):
    """The query is in `query`, or the request itself."""

    query: QueryRequest | None = None


class CountRequest(TableRequest):
    version: Count | None = None
    predicate: str | None = None


class InsertAnswer(VersionAnswer):
    num_inserted_rows: int


class MergeInsertAnswer(VersionAnswer):
    num_updated_rows: int
    num_inserted_rows: int
    num_deleted_rows: int


class UpdateRequest(TableRequest):
    """`updates` are pairs of a column and a SQL expression."""

    updates: Annotated[list[tuple[str, str]], Meta(min_length=1)]
    predicate: str | None = None
    only_if: str | None = None


class UpdateAnswer(VersionAnswer):
    """LanceDB's remote client also gets `rows_updated`."""

    updated_rows: int
    rows_updated: int | None = None


class DeleteRequest(TableRequest):
    predicate: Name


class DeleteAnswer(VersionAnswer):
    num_deleted_rows: int


class BranchRequest(TableRequest, kw_only=True):
    """A table has one branch, `main`."""

    branch: str | None = None


class RestoreRequest(BranchRequest):
    version: Count


# indexes


class CreateIndexRequest(TableRequest):
    column: Name
    index_type: IndexType = None
    name: str | None = None
    distance_type: str | None = None
    metric_type: str | None = None
    num_partitions: int | None = None
    num_sub_vectors: int | None = None
    language: str | None = None
    base_tokenizer: str | None = None
    stem: bool | None = None
    lower_case: bool | None = None
    remove_stop_words: bool | None = None
    ascii_folding: bool | None = None
    with_position: bool | None = None


class IndexRows(AnswerBody):
    """What an index is of, and how many rows of its table it covers."""

    index_type: str
    distance_type: str | None
    num_indexed_rows: int
    num_unindexed_rows: int


class IndexAnswer(IndexRows, kw_only=True):
    index_name: str
    index_uuid: str
    columns: list[str]
    status: Literal["pending", "done"]
    size_bytes: int
    num_segments: int


class IndexesAnswer(AnswerBody):
    indexes: list[IndexAnswer]


class IndexStatsAnswer(IndexRows):
    num_indices: int


# transactions


class BeginRequest(RequestBody):
    isolation: Literal["snapshot", "serializable"] | None = None
    durability: Literal["sync", "async"] | None = None


class BeginAnswer(AnswerBody):
    id: str
    seq: int


class CommitAnswer(BeginAnswer):
    transaction_id: str


class RollbackAnswer(AnswerBody):
    id: str


class RowOperation(RequestBody):
    """One operation of `apply`: `rows` of those that add, `key` and `set` of update, ..."""

    table: str
    op: Literal[
        "upsert", "insert", "append", "overwrite", "update", "delete", "delete_where", "truncate"
    ]
    rows: Any = None
    key: Any = None
    set: dict[str, Any] | None = None
    keys: list[Any] | None = None
    filter: str | None = None


class ApplyRequest(RequestBody):
    ops: Annotated[list[RowOperation], Meta(min_length=1)]
    isolation: Literal["snapshot", "serializable"] | None = None


class RowsWritten(AnswerBody):
    rows: int


class ApplyAnswer(AnswerBody):
    seq: int
    transaction_id: str
    results: list[RowsWritten]


class TransactionAnswer(AnswerBody):
    status: TransactionStatus
    properties: dict[str, str]


class StatusWanted(RequestBody):
    status: Literal["Succeeded", "Canceled", "Failed"]


class TransactionAction(RequestBody):
    set_status_action: StatusWanted


class AlterTransactionRequest(RequestBody):
    actions: Annotated[list[TransactionAction], Meta(min_length=1, max_length=1)]


# versions that Lance clients commit


class DeclareAnswer(CommittedAnswer):
    location: str
    managed_versioning: bool


class BranchesAnswer(AnswerBody):
    branches: dict[str, Any]


class ListVersionsRequest(BranchRequest):
    descending: bool | None = None
    limit: Count | None = None
    page_token: str | None = None


class DescribeVersionRequest(BranchRequest):
    version: Count | None = None


class TableVersionAnswer(VersionAnswer):
    manifest_path: str
    manifest_size: int
    e_tag: str
    metadata: dict[str, str]
    timestamp_millis: int | None = None


class VersionsAnswer(PageAnswer):
    versions: list[TableVersionAnswer]
    transaction_id: str | None = None


class OneVersionAnswer(CommittedAnswer):
    version: TableVersionAnswer


class CreateVersionRequest(BranchRequest):
    version: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
    manifest_path: str
    manifest_size: int | None = None


class VersionRange(RequestBody):
    start_version: int | None = None
    end_version: int | None = None


class DeleteVersionsRequest(BranchRequest):
    ranges: Annotated[list[VersionRange], Meta(min_length=1)]


class DeletedVersionsAnswer(CommittedAnswer):
    deleted_count: int


class CreateVersionsRequest(RequestBody):
    entries: Annotated[list[CreateVersionRequest], Meta(min_length=1)]


class TableOperation(RequestBody):
    """One of the four."""

    declare_table: TableRequest | None = None
    create_table_version: CreateVersionRequest | None = None
    delete_table_versions: DeleteVersionsRequest | None = None
    deregister_table: TableRequest | None = None


class CommitTablesRequest(RequestBody):
    operations: Annotated[list[TableOperation], Meta(min_length=1)]


class CommitTablesAnswer(CommittedAnswer):
    results: list[dict[str, Any]]
