"""Bodies: the requests and answers of all operations, as types.

Names and meanings are those of the Lance Namespace specification. A member that is not here is
refused (`members`). A request with no member that counts is a `TableRequest`, or a
`NamespaceRequest`: its `id` is that of the path, over REST.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from siltstone.lance_namespace.specification.full_text import FullTextQuery
from siltstone.lance_namespace.specification.members import (
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

OPERATIONS_MAX = 1_000
"""Of one batch."""
IndexType = Annotated[Any, Meta(extra_json_schema={"type": "string"})]
"""Of another kind or type it is "not offered", which clients tell from a wrong request."""


class AnswerBody(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The body of an answer: a member that has nothing to say is left out, and never null."""


class PageAnswer(AnswerBody, kw_only=True):
    """A page of a list; `page_token` asks for the next one, if there is one."""

    page_token: str | None = None


class CommittedAnswer(AnswerBody, kw_only=True):
    """The answer of a commit, by its id, or of a statement of an open transaction."""

    transaction_id: str | None = None


class VersionAnswer(AnswerBody):
    version: Count


class NoMembers(AnswerBody):
    """An answer that says no more than that it is done."""


class TableRequest(RequestBody, kw_only=True):
    """`branch` is main."""

    id: list[str] | None = None
    branch: str | None = None


class TablePageRequest(TableRequest, kw_only=True):
    page_token: str | None = None
    limit: Count | None = None


# namespaces


class NamespaceRequest(RequestBody, kw_only=True):
    id: list[str] | None = None


class CreateNamespaceRequest(NamespaceRequest):
    mode: str | None = None
    properties: dict[str, str] | None = None


class DropNamespaceRequest(NamespaceRequest):
    mode: str | None = None
    behavior: str | None = None


class ListNamespacesRequest(NamespaceRequest, kw_only=True):
    page_token: str | None = None
    limit: Count | None = None


class ListTablesRequest(ListNamespacesRequest, kw_only=True):
    include_declared: bool | None = None


class ListAllTablesRequest(ListTablesRequest, kw_only=True):
    """`delimiter` stands between the levels of a table: `$` by default. An `id` is the root's."""

    delimiter: str | None = None


class NamespaceAnswer(AnswerBody):
    properties: dict[str, str]
    transaction_id: str | list[str] | None = None


class NamespacesAnswer(PageAnswer):
    namespaces: list[str]


class TablesAnswer(PageAnswer):
    tables: list[str]


# tables


class DescribeTableRequest(TableRequest, kw_only=True):
    version: Count | None = None
    with_table_uri: bool | None = None
    load_detailed_metadata: bool | None = None
    check_declared: HintFlag = None
    tag: NotOffered = None
    vend_credentials: HintFlag = None  # files of this machine need none


class TableExistsRequest(TableRequest):
    version: Count | None = None


class DeclareRequest(TableRequest):
    location: str | None = None
    vend_credentials: HintFlag = None
    properties: NotOffered = None


class JsonType(AnswerBody):
    """An Arrow type; `fields` of lists and structs, `length` of lists of a fixed size."""

    type: str
    fields: list[JsonField] | None = None
    length: Count | None = None


class JsonField(AnswerBody):
    name: str
    nullable: bool
    type: JsonType
    metadata: dict[str, str] | None = None


class JsonSchema(AnswerBody):
    fields: list[JsonField]
    metadata: dict[str, str]


class TableAnswer(AnswerBody):
    """Where a table is. `version` and `schema`: where they were asked for."""

    table: str
    namespace: list[str]
    location: str
    properties: dict[str, str]
    is_only_declared: bool
    managed_versioning: bool | None = None
    table_uri: str | None = None
    version: Count | None = None
    schema: JsonSchema | None = None


class DropTableAnswer(CommittedAnswer):
    id: list[str]
    location: str


class RenameTableRequest(TableRequest):
    new_table_name: Name
    new_namespace_id: list[str] | None = None
    new_namespace: list[str] | None = None  # LanceDB sends this one, empty if unnamed


# versions that Lance clients commit


class DeclareAnswer(CommittedAnswer):
    location: str
    managed_versioning: bool


class BranchesAnswer(AnswerBody):
    """A table has no branch but main, which is not named."""

    branches: Annotated[dict[str, Any], Meta(max_length=0)]


class ListVersionsRequest(TablePageRequest):
    descending: bool | None = None


class DescribeVersionRequest(TableRequest):
    version: Count | None = None


class TableVersionAnswer(VersionAnswer):
    manifest_path: str
    manifest_size: Count
    e_tag: str
    metadata: dict[str, str]
    timestamp_millis: Count | None = None


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
    ranges: Annotated[list[VersionRange], Meta(min_length=1, max_length=OPERATIONS_MAX)]


class DeletedVersionsAnswer(CommittedAnswer):
    deleted_count: Count


class CreateVersionsRequest(RequestBody):
    entries: Annotated[list[CreateVersionRequest], Meta(min_length=1, max_length=OPERATIONS_MAX)]


class TableOperation(RequestPart):
    """One of the four."""

    declare_table: DeclareRequest | None = None
    create_table_version: CreateVersionRequest | None = None
    delete_table_versions: DeleteVersionsRequest | None = None
    deregister_table: TableRequest | None = None


class CommitTablesRequest(RequestBody):
    operations: Annotated[list[TableOperation], Meta(min_length=1, max_length=OPERATIONS_MAX)]


class DoneOperation(AnswerBody):
    """What came of an operation, under its name."""

    declare_table: DeclareAnswer | None = None
    create_table_version: OneVersionAnswer | None = None
    delete_table_versions: DeletedVersionsAnswer | None = None
    deregister_table: DropTableAnswer | None = None


class CommitTablesAnswer(CommittedAnswer):
    results: Annotated[list[DoneOperation], Meta(min_length=1)]


# tables with their rows


class FragmentLengths(AnswerBody):
    min: Count
    max: Count
    mean: Count
    p25: Count
    p50: Count
    p75: Count
    p99: Count


class FragmentStats(AnswerBody):
    num_fragments: Count
    num_small_fragments: Count
    lengths: FragmentLengths


class TableStatsAnswer(AnswerBody):
    total_bytes: Count
    num_rows: Count
    num_indices: Count
    fragment_stats: FragmentStats


class CreateTableRequest(RequestBody, kw_only=True):
    """`mode` is create, exist_ok or overwrite; of the properties only the primary key counts."""

    id: list[str] | None = None
    mode: str | None = None
    properties: dict[str, str] | None = None
    storage_options: NotOffered = None


class NewColumn(RequestPart):
    name: Name
    expression: Name | None = None
    computed: NotOffered = None
    virtual_column: NotOffered = None


class AddColumnsRequest(TableRequest):
    new_columns: Annotated[list[NewColumn], Meta(min_length=1)]


class WantedType(RequestPart):
    """An Arrow type without others inside; `length` of bytes of a fixed size."""

    type: str
    length: Count | None = None
    fields: NotOffered = None


class ColumnAlteration(RequestPart):
    """A new name, a new type, whether the column may be null, or several of these."""

    path: Name
    rename: Name | None = None
    data_type: WantedType | str | None = None
    nullable: bool | None = None
    virtual_column: NotOffered = None


class AlterColumnsRequest(TableRequest):
    alterations: Annotated[list[ColumnAlteration], Meta(min_length=1)]


class DropColumnsRequest(TableRequest):
    columns: Names


class SchemaMetadataRequest(TableRequest):
    """What takes the place of all metadata of a table; over REST it is the whole body."""

    metadata: dict[str, str]


class SchemaMetadataAnswer(CommittedAnswer):
    """Over REST `metadata` is the whole answer."""

    metadata: dict[str, str]


class FieldMetadata(RequestPart):
    """`path` is a column; null removes a name. `replace`: in the place of what the column has."""

    path: Name
    metadata: dict[str, str | None]
    replace: bool | None = None


class FieldMetadataRequest(TableRequest):
    updates: Annotated[list[FieldMetadata], Meta(min_length=1)]


class FieldMetadataAnswer(VersionAnswer):
    """`fields`: all that is noted of each column that was asked about."""

    fields: dict[str, dict[str, str]]


class CreateTableAnswer(VersionAnswer):
    location: str


# tags


class TagRequest(TableRequest):
    tag: Name


class SetTagRequest(TagRequest):
    version: Count


class TaggedVersion(VersionAnswer):
    manifest_size: Count = field(name="manifestSize")


class TagsAnswer(PageAnswer):
    """LanceDB's remote client gets the object in it."""

    tags: dict[str, TaggedVersion]


# rows


class QueryVector(RequestPart):
    single_vector: list[float] | None = None
    multi_vector: NotOffered = None


class ColumnOrdering(RequestPart):
    """A column of the key, which has no nulls; `ascending` by default."""

    column_name: Name
    ascending: bool | None = None
    nulls_first: HintFlag = None


class QueryRequest(TableRequest):
    """`columns`: see `selection`. An index of vectors takes three members; others are hints.

    `vector` is one vector, or, as LanceDB's client sends several, a list of them.
    """

    columns: list[str] | dict[str, str | list[str] | dict[str, str] | None] | None = None
    filter: str | None = None
    prefilter: bool | None = None
    k: Limit | None = None
    offset: Count | None = None
    vector: list[float | list[float]] | QueryVector | None = None
    vector_column: str | None = None
    distance_type: str | None = None
    version: Count | None = None
    nprobes: Count | None = None
    minimum_nprobes: Count | None = None
    maximum_nprobes: HintNumber = None
    ef: HintNumber = None
    refine_factor: Count | None = None
    bypass_vector_index: bool | None = None
    fast_search: HintFlag = None
    full_text_query: FullTextQuery | None = None
    with_row_id: bool | None = None
    order_by: list[ColumnOrdering] | None = None
    lower_bound: float | None = None
    upper_bound: float | None = None


class ExplainRequest(QueryRequest):
    """The query is in `query`, or the request itself."""

    query: QueryRequest | None = None
    verbose: HintFlag = None


class CountRequest(TableRequest):
    version: Count | None = None
    predicate: str | None = None


class QueryAnswer(AnswerBody):
    """The rows as an Arrow IPC file."""

    data: bytes


class CountAnswer(AnswerBody):
    count: Count


class PlanAnswer(AnswerBody):
    plan: str


class InsertRequest(TableRequest):
    """`mode` is append or overwrite."""

    mode: str | None = None


class InsertAnswer(VersionAnswer):
    num_inserted_rows: Count


class MergeInsertRequest(TableRequest):
    """`on` are the columns that say which rows are the same."""

    on: Names
    when_matched_update_all: bool | None = None
    when_matched_update_all_filt: NotOffered = None
    when_matched_delete: NotOffered = None
    when_not_matched_insert_all: bool | None = None
    when_not_matched_by_source_delete: bool | None = None
    when_not_matched_by_source_delete_filt: str | None = None
    timeout: NotOffered = None
    use_index: HintFlag = None


class MergeInsertAnswer(VersionAnswer):
    num_updated_rows: Count
    num_inserted_rows: Count
    num_deleted_rows: Count


Assignment = Annotated[list[str], Meta(min_length=2, max_length=2)]
"""A column, and the SQL expression of its new value; a tuple is no schema that clients can read."""


class UpdateRequest(TableRequest):
    """`updates` are pairs of a column and a SQL expression."""

    updates: Annotated[list[Assignment], Meta(min_length=1)]
    predicate: str | None = None
    only_if: str | None = None
    properties: NotOffered = None


class UpdateAnswer(VersionAnswer):
    """LanceDB's remote client also gets `rows_updated`."""

    updated_rows: Count
    rows_updated: Count | None = None


class DeleteRequest(TableRequest):
    predicate: Name


class DeleteAnswer(VersionAnswer):
    num_deleted_rows: Count


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
    num_indexed_rows: Count
    num_unindexed_rows: Count


class IndexAnswer(IndexRows, kw_only=True):
    index_name: str
    index_uuid: str
    columns: list[str]
    status: Literal["pending", "done"]
    size_bytes: Count
    num_segments: Count


class IndexesAnswer(PageAnswer):
    indexes: list[IndexAnswer]


class IndexStatsAnswer(IndexRows):
    num_indices: Count
