"""Schemas: the JSON bodies of requests and answers, as `/openapi.json` describes them.

Names and meanings are those of the Lance Namespace specification where it has the operation.
Those of its other operations are in `lance_namespace.specification`: this process asks in the same
words. A member that is not here is refused (`members`).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from siltstone.api.results import Status
from siltstone.lance_namespace.specification.bodies import AnswerBody
from siltstone.lance_namespace.specification.members import (
    Count,
    NotOffered,
    RequestBody,
    RequestPart,
)

ERROR_CHARACTERS_MAX = 2_000
TransactionStatus = Literal["Running", "Succeeded", "Failed", "Canceled"]
JobKind = Literal["checkpoint", "merge", "optimize", "vacuum"]
Work = Literal["checkpoint", "index", "merge", "open", "optimize", "repair", "vacuum"]


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


# the past, and SQL


class LoggedCommit(AnswerBody):
    """One commit; `token` is `<app>/<batch>`, `changes` what it did to definitions."""

    seq: Count
    time: dt.datetime
    transaction: str
    tables: list[str]
    rows: int
    token: str | None
    changes: list[str]


class LogAnswer(AnswerBody):
    commits: list[LoggedCommit]


class PublishedRecord(AnswerBody):
    """One manifest record: commits up to `flushed_seq` are in files; `works` made it.

    `tables` are at most 100 of the `changed` ones. Works and tables are by the difference to the
    record `since`, which the oldest one that is kept lacks.
    """

    number: Count
    time: dt.datetime
    flushed_seq: Count
    works: list[Work]
    tables: list[str]
    changed: Count
    since: Count | None = None


class RecordsAnswer(AnswerBody):
    records: list[PublishedRecord]
    next: Count | None = None


class SqlRequest(RequestPart):
    """One statement; parameters are a list for `?` and `$1`, an object for `$name`."""

    sql: str
    parameters: list[Any] | dict[str, Any] | None = None


# transactions


class BeginRequest(RequestPart):
    isolation: Literal["snapshot", "serializable"] | None = None
    durability: Literal["sync", "async", "shipped"] | None = None
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
