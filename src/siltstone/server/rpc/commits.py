"""Commits: requests of joined processes that commit a few rows, made in one group by the loop.

    a request ─▶ prepared: its id taken, its write set made ─▶ one group ─▶ a receipt, or its error
       └──it has to wait, or more to do──▶ goes alone: the calls, in a thread

To prepare waits for nothing: what has to read, or writes many rows, goes alone. The commit waits
for the sync of its group; if there is no room for it, it goes alone, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from siltstone.joined import protocol
from siltstone.joined.frames.frame import Head
from siltstone.joined.values import decode, encode
from siltstone.local.group_upserts import GroupUpserts, WriteSet
from siltstone.local.sent_commits import SentCommits, numbered
from siltstone.server.served import Served, number_of
from siltstone.server.sessions import Session, Sessions

COMMIT_WRITES = "commit_writes"
BODY_BYTES_MAX = 16 << 10
"""A longer body goes alone: to read it would hold the others up."""
_BLIND = ("refuse", "null")
"""What an upsert may say of missing columns here: it needs no look at the rows that exist."""


class Prepared(msgspec.Struct, eq=False):
    """One commit: its connection, the id under which it runs, and its write set."""

    session: Session
    running: str
    write_set: WriteSet


class Commits:
    """See the module. The event loop's thread."""

    def __init__(self, served: Served, sessions: Sessions) -> None:
        self._sessions = sessions
        self._turns = served.turns
        self._upserts = GroupUpserts(served.parts.core)
        self._sent = SentCommits(served.parts.core)

    def expect(self, *, is_joined: bool) -> None:
        """Hear whether other processes are joined."""
        self._sent.expect(is_joined=is_joined)

    @property
    def has_closed(self) -> bool:
        """Whether tables are closed to first tries."""
        return bool(self._turns.closed)

    def prepare(self, session: Session, head: Head, body: memoryview) -> Prepared | None:
        """Return the commit that a request asks for; None: it goes alone.

        Raises:
            SiltstoneError: It is refused.
        """
        path, kind, transaction_id, transaction, snapshot = head
        if kind != protocol.VALUES_TYPE or transaction or snapshot or len(body) > BODY_BYTES_MAX:
            return None
        if path == COMMIT_WRITES:
            return self._writes(session, transaction_id, body)
        words = path.split("/")
        if len(words) != 3 or words[0] != "table" or words[2] != "upsert":
            return None
        return self._upsert(session, words[1], transaction_id, body)

    def _upsert(
        self, session: Session, table: str, transaction_id: str, body: memoryview
    ) -> Prepared | None:
        given = _one_row(decode(body))
        if given is None or not (table.isascii() and table.isdecimal()):
            return None
        planned = self._upserts.table(int(table))
        if planned is None:
            return None
        row, missing = given
        running = self._sessions.begin_commit(session, transaction_id or None)
        try:
            write_set = planned.plan.upsert(row, number_of(running), is_whole=missing == "refuse")
        except BaseException:
            self._sessions.end_commit(running)
            raise
        return Prepared(session, running, write_set)

    def _writes(self, session: Session, transaction_id: str, body: memoryview) -> Prepared | None:
        match decode(body):
            case [[given], {**named}] if not (named and self.has_closed):
                write_set = self._sent.few(given)
            case _:
                return None
        if write_set is None or named not in ({}, {"is_first": True}):
            return None
        running = self._sessions.begin_commit(session, transaction_id or None)
        return Prepared(session, running, numbered(write_set, number_of(running)))

    def run(self, prepared: Sequence[Prepared]) -> list[bytes | BaseException | None]:
        """Return for each its receipt as a body, or its error; None: nothing was written.

        Then it goes alone, under the same id.
        """
        if not prepared:
            return []
        try:
            found = self._upserts.commit([each.write_set for each in prepared])
        except BaseException as error:  # noqa: BLE001 - each error becomes the answer
            found = [error] * len(prepared)
        answers: list[bytes | BaseException | None] = []
        for each, outcome in zip(prepared, found, strict=True):
            if outcome is None:
                self._sessions.put_back(each.session, each.running)
                answers.append(None)
                continue
            self._sessions.end_commit(each.running)
            answers.append(outcome if isinstance(outcome, BaseException) else encode(outcome))
        return answers


def _one_row(message: object) -> tuple[dict[str, Any], str] | None:
    """Return the row of a message that upserts one, and what it says of missing columns."""
    match message:
        case [[dict() as row], {**named}] if len(named) <= 1:
            missing = named.get("missing", "refuse")
            is_known = not named or "missing" in named
            return (row, missing) if is_known and missing in _BLIND else None
        case _:
            return None
