"""Bodies: the requests and answers of the operations on rows, columns, tags and indexes, as types.

Names and meanings are those of the Lance Namespace specification. A member that is not here is
refused (`members`). A request with no member that counts is a `TableRequest`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from siltstone.lance_namespace.rows.full_text import FullTextQuery
from siltstone.lance_namespace.rows.members import (
    FIXED,
    Count,
    HintFlag,
    HintNumber,
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


class AnswerBody(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The body of an answer: a member that has nothing to say is left out, and never null."""


class PageAnswer(AnswerBody, kw_only=True):
    """A page of a list; `page_token` asks for the next one, if there is one."""

    page_token: str | None = None


class CommittedAnswer(AnswerBody, kw_only=True):
    """The answer of a commit, by its id, or of a statement of an open transaction."""

    transaction_id: str | None = None


class NoMembers(AnswerBody):
    """An answer that says no more than that it is done."""


class TableRequest(RequestBody, kw_only=True):
    """`branch` is main."""

    id: list[str] | None = None
    branch: str | None = None


class TablePageRequest(TableRequest, kw_only=True):
    page_token: str | None = None
    limit: Count | None = None


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
    version: Count


class CreateTableAnswer(VersionAnswer):
    location: str


# tags


class TagRequest(TableRequest):
    tag: Name


class SetTagRequest(TagRequest):
    version: Count


class TaggedVersion(VersionAnswer):
    manifest_size: Count = field(name="manifestSize")


class TagsAnswer(AnswerBody):
    """LanceDB's remote client gets the object in it."""

    tags: dict[str, TaggedVersion]
    page_token: str | None = None


# rows


class QueryVector(RequestPart):
    single_vector: list[float] | None = None
    multi_vector: NotOffered = None


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


class UpdateRequest(TableRequest):
    """`updates` are pairs of a column and a SQL expression."""

    updates: Annotated[list[tuple[str, str]], Meta(min_length=1)]
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

    index_type: Literal[
        "BTREE", "BITMAP", "FTS",
        "IVF_FLAT", "IVF_SQ", "IVF_PQ", "IVF_RQ", "IVF_HNSW_SQ", "IVF_HNSW_FLAT",
    ]  # fmt: skip
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


class IndexesAnswer(AnswerBody):
    indexes: list[IndexAnswer]
    page_token: str | None = None


class IndexStatsAnswer(IndexRows):
    num_indices: Count
