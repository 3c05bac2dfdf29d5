"""Schemas: the JSON bodies of requests and answers, as `/openapi.json` describes them.

Names and meanings are those of the Lance Namespace specification where it has the operation.
Those of rows, columns, tags and indexes are in `lance_namespace.rows.bodies`: this process asks in
the same words. A member that is not here is refused (`members`). A request with no member that
counts is a `TableRequest` (or a `RequestBody`): its `id` is that of the path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from siltstone.api.results import Status
from siltstone.lance_namespace.rows.bodies import (
    AnswerBody,
    CommittedAnswer,
    PageAnswer,
    TablePageRequest,
    TableRequest,
    VersionAnswer,
)
from siltstone.lance_namespace.rows.members import (
    Count,
    HintFlag,
    HintText,
    Name,
    NotOffered,
    OnlyFalse,
    RequestBody,
    RequestPart,
)

ERROR_CHARACTERS_MAX = 2_000
TransactionStatus = Literal["Running", "Succeeded", "Failed", "Canceled"]
JobKind = Literal["checkpoint", "merge", "optimize", "vacuum"]


class ErrorAnswer(AnswerBody):
    """Every refusal: `code` is the specification's."""

    error: Annotated[str, Meta(min_length=1, max_length=ERROR_CHARACTERS_MAX)]
    code: Annotated[int, Meta(ge=0, le=21)]
    detail: str | None = None
    instance: str | None = None


# the server and its jobs


class HealthAnswer(AnswerBody):
    status: Literal["ok", "ready"]


class ServerCounts(AnswerBody):
    requests: Count
    transactions: Count
    jobs: Count


@dataclass(frozen=True)
class StatusAnswer(Status):
    server: ServerCounts


class JobAnswer(AnswerBody):
    """One run of maintenance; `result` depends on its kind."""

    id: str
    kind: JobKind
    status: Literal["queued", "running", "succeeded", "failed"]
    result: dict[str, Any] | None = None
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


class JsonType(AnswerBody):
    """An Arrow type; `fields` of lists and structs, `length` of lists of a fixed size."""

    type: str
    fields: list[JsonField] | None = None
    length: Count | None = None


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
    version: Count | None = None
    schema: JsonSchema | None = None


class DropTableAnswer(CommittedAnswer):
    id: list[str]
    location: str


class RenameTableRequest(TableRequest):
    new_table_name: Name
    new_namespace_id: list[str] | None = None
    new_namespace: list[str] | None = None  # LanceDB sends this one, empty if unnamed


# transactions


class BeginRequest(RequestPart):
    isolation: Literal["snapshot", "serializable"] | None = None
    durability: Literal["sync", "async"] | None = None
    turns: list[str] | None = None


class BeginAnswer(AnswerBody):
    id: str
    seq: Count


class CommitAnswer(BeginAnswer):
    transaction_id: str


class RollbackAnswer(AnswerBody):
    id: str


class RowsWritten(AnswerBody):
    """How many rows one operation wrote; of a delete those that lived, or null: too many keys."""

    rows: Count | None


class ApplyAnswer(AnswerBody):
    seq: Count
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
    ranges: Annotated[list[VersionRange], Meta(min_length=1)]


class DeletedVersionsAnswer(CommittedAnswer):
    deleted_count: Count


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


class DoneOperation(AnswerBody):
    """What came of an operation, under its name."""

    declare_table: DeclareAnswer | None = None
    create_table_version: OneVersionAnswer | None = None
    delete_table_versions: DeletedVersionsAnswer | None = None
    deregister_table: DropTableAnswer | None = None


class CommitTablesAnswer(CommittedAnswer):
    results: Annotated[list[DoneOperation], Meta(min_length=1)]
