"""Schemas: the JSON bodies of requests and answers, as `/openapi.json` describes them.

Names and meanings are those of the Lance Namespace specification where it has the operation.
A member that is not here is refused (`members`). A request with no member that counts is a
`TableRequest` (or a `RequestBody`): its `id` is that of the path. Over 400 lines, as all are here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from siltstone.api.results import Status
from siltstone.server.rest.members import (
    FIXED,
    Count,
    HintFlag,
    HintNumber,
    HintText,
    Limit,
    Name,
    Names,
    NotOffered,
    OnlyFalse,
    RequestBody,
    RequestPart,
)

IndexType = Annotated[Any, Meta(extra_json_schema={"type": "string"})]
"""Of another kind or type it is "not offered", which clients tell from a wrong request."""


TransactionStatus = Literal["Running", "Succeeded", "Failed", "Canceled"]
JobKind = Literal["checkpoint", "merge", "optimize", "vacuum"]


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


class NothingAsked(RequestPart):
    """A request that its address says already."""


class TableJobRequest(RequestPart):
    """All tables without `table`."""

    table: str | None = None


class VacuumRequest(RequestPart):
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
    """`branch` is main."""

    id: list[str] | None = None
    branch: str | None = None


class DescribeTableRequest(TableRequest, kw_only=True):
    version: Count | None = None
    with_table_uri: bool | None = None
    load_detailed_metadata: bool | None = None
    check_declared: HintFlag = None
    tag: NotOffered = None
    vend_credentials: OnlyFalse = None


class TableExistsRequest(TableRequest):
    version: Count | None = None


class DeclareRequest(TableRequest):
    location: str | None = None
    vend_credentials: OnlyFalse = None
    properties: NotOffered = None


class TablePageRequest(TableRequest, kw_only=True):
    page_token: str | None = None
    limit: Count | None = None


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
    new_namespace: list[str] | None = None  # LanceDB sends this one, empty if unnamed


class NewColumn(RequestPart):
    name: Name
    expression: Name | None = None
    computed: NotOffered = None
    virtual_column: NotOffered = None


class AddColumnsRequest(TableRequest):
    new_columns: Annotated[list[NewColumn], Meta(min_length=1)]


class ColumnAlteration(RequestPart):
    """Only `rename` is offered; `nullable` may say neither true nor false."""

    path: Name
    rename: Name | None = None
    data_type: Annotated[Any, Meta(extra_json_schema={"type": "null"})] = None
    nullable: Annotated[Any, Meta(extra_json_schema={"type": "null"})] = None
    virtual_column: NotOffered = None


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


class QueryVector(RequestPart):
    single_vector: list[float] | None = None
    multi_vector: NotOffered = None


class QueryRequest(TableRequest):
    """`columns`: see `selection`. No index is asked: what is said of one is a hint."""

    columns: list[str] | dict[str, str | list[str] | dict[str, str] | None] | None = None
    filter: str | None = None
    prefilter: bool | None = None
    k: Limit | None = None
    offset: Count | None = None
    vector: list[float] | QueryVector | None = None
    vector_column: str | None = None
    distance_type: str | None = None
    version: Count | None = None
    nprobes: HintNumber = None
    minimum_nprobes: HintNumber = None
    maximum_nprobes: HintNumber = None
    ef: HintNumber = None
    refine_factor: HintNumber = None
    bypass_vector_index: HintFlag = None
    fast_search: HintFlag = None
    full_text_query: NotOffered = None
    with_row_id: OnlyFalse = None
    order_by: NotOffered = None
    lower_bound: float | None = None
    upper_bound: float | None = None


class ExplainRequest(QueryRequest):
    """The query is in `query`, or the request itself."""

    query: QueryRequest | None = None
    verbose: HintFlag = None


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
    properties: NotOffered = None


class UpdateAnswer(VersionAnswer):
    """LanceDB's remote client also gets `rows_updated`."""

    updated_rows: int
    rows_updated: int | None = None


class DeleteRequest(TableRequest):
    predicate: Name


class DeleteAnswer(VersionAnswer):
    num_deleted_rows: int


class RestoreRequest(TableRequest):
    version: Count


# indexes


class CreateIndexRequest(TableRequest):
    column: Name
    index_type: IndexType = None
    name: str | None = None
    replace: OnlyFalse = None
    # of vectors; numbers that are fixed are those of our indexes
    distance_type: str | None = None
    metric_type: str | None = None
    num_partitions: int | None = None
    num_sub_vectors: int | None = None
    num_bits: Annotated[Literal[8] | None, FIXED] = None
    sample_rate: Annotated[Literal[256] | None, FIXED] = None
    max_iterations: Annotated[Literal[50] | None, FIXED] = None
    target_partition_size: NotOffered = None
    m: NotOffered = None
    ef_construction: NotOffered = None
    # of texts
    language: str | None = None
    base_tokenizer: str | None = None
    stem: bool | None = None
    lower_case: bool | None = None
    remove_stop_words: bool | None = None
    ascii_folding: bool | None = None
    with_position: bool | None = None
    max_token_length: Annotated[Literal[40] | None, FIXED] = None
    min_ngram_length: Annotated[Literal[3] | None, FIXED] = None
    max_ngram_length: Annotated[Literal[3] | None, FIXED] = None
    block_size: Annotated[Literal[128] | None, FIXED] = None
    prefix_only: OnlyFalse = None
    custom_stop_words: NotOffered = None
    lance_tokenizer: NotOffered = None
    index_operators: OnlyFalse = None
    preserve_original: OnlyFalse = None
    split_identifiers: OnlyFalse = None
    split_on_numerics: OnlyFalse = None


class IndexesRequest(TablePageRequest):
    version: NotOffered = None


class IndexRequest(TableRequest):
    """`index_name` is that of the path."""

    index_name: str | None = None
    version: NotOffered = None


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
    page_token: str | None = None


class IndexStatsAnswer(IndexRows):
    num_indices: int


# transactions


class BeginRequest(RequestPart):
    isolation: Literal["snapshot", "serializable"] | None = None
    durability: Literal["sync", "async"] | None = None


class BeginAnswer(AnswerBody):
    id: str
    seq: int


class CommitAnswer(BeginAnswer):
    transaction_id: str


class RollbackAnswer(AnswerBody):
    id: str


class RowsWritten(AnswerBody):
    rows: int


class ApplyAnswer(AnswerBody):
    seq: int
    transaction_id: str
    results: list[RowsWritten]


class TransactionRequest(RequestBody, kw_only=True):
    id: list[str] | None = None


class TransactionAnswer(AnswerBody):
    status: TransactionStatus
    properties: dict[str, str]


class StatusWanted(RequestPart):
    """`Succeeded` commits; `Canceled` and `Failed` roll back."""

    status: str


class TransactionAction(RequestPart):
    """Only the status is set; its member has two names."""

    set_status_action: StatusWanted | None = None
    status_action: StatusWanted | None = field(name="setStatusAction", default=None)
    set_property: NotOffered = field(name="setPropertyAction", default=None)
    unset_property: NotOffered = field(name="unsetPropertyAction", default=None)


class AlterTransactionRequest(TransactionRequest):
    actions: Annotated[list[TransactionAction], Meta(min_length=1, max_length=1)]


# versions that Lance clients commit


class DeclareAnswer(CommittedAnswer):
    location: str
    managed_versioning: bool


class BranchesAnswer(AnswerBody):
    branches: dict[str, Any]


class ListVersionsRequest(TablePageRequest):
    descending: bool | None = None


class DescribeVersionRequest(TableRequest):
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


class CreateVersionRequest(TableRequest):
    version: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
    manifest_path: str
    manifest_size: int | None = None
    e_tag: HintText = None
    naming_scheme: HintText = None
    metadata: NotOffered = None


class VersionRange(RequestPart):
    start_version: int | None = None
    end_version: int | None = None


class DeleteVersionsRequest(TableRequest):
    ranges: Annotated[list[VersionRange], Meta(min_length=1)]


class DeletedVersionsAnswer(CommittedAnswer):
    deleted_count: int


class CreateVersionsRequest(RequestBody):
    entries: Annotated[list[CreateVersionRequest], Meta(min_length=1)]


class TableOperation(RequestPart):
    """One of the four."""

    declare_table: DeclareRequest | None = None
    create_table_version: CreateVersionRequest | None = None
    delete_table_versions: DeleteVersionsRequest | None = None
    deregister_table: TableRequest | None = None


class CommitTablesRequest(RequestBody):
    operations: Annotated[list[TableOperation], Meta(min_length=1)]


class CommitTablesAnswer(CommittedAnswer):
    results: list[dict[str, Any]]
