"""Diary: what a golden store answered while it came to be, and the tables that each of them has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import siltstone as st
from tests.compat.answers import answers, as_text, rows_of

OPTIONS = {"background": False, "segment_bytes": 16 << 10, "retention": "1000w"}
NOT_KILLED = "the failpoint was not crossed"
SMALL = {"id": "int64", "v": "string"}


class Diary:
    """What the store answered right after each commit; at last all that it answers."""

    def __init__(self, path: Path, db: st.Store) -> None:
        self.db, self._path = db, path
        self._rows: dict[int, object] = {}

    def commit(self, *changes: Callable[[], object]) -> None:
        """Do one change after the other, each a commit or several."""
        for change in changes:
            change()
            self._rows[self.db.seq] = rows_of(self.db)

    def finish(self) -> None:
        """Write all down; nothing that changes an answer comes behind."""
        found = answers(self.db)
        for seq, rows in self._rows.items():
            at = found["at"][str(seq)]
            assert at in (rows, "expired"), f"seq {seq} is not what it was"
        self._path.write_text(as_text(found))


def begin(diary: Diary) -> None:
    """Fill a keyed and a plain table: rows in base, in history, none in the log alone."""
    db = diary.db
    diary.commit(
        lambda: db.create_table("small", SMALL, primary_key="id"),
        lambda: db.create_table("plain", {"n": "int64", "what": "string"}),
        lambda: _first(db),
    )
    db.checkpoint()
    db.merge()
    diary.commit(
        lambda: db["small"].delete([{"id": 1}, {"id": 4}]),
        lambda: db["plain"].delete_where("n = 2"),
    )
    db.checkpoint()


def _first(db: st.Store) -> None:
    with db.transaction(token=("etl", 1)) as tx:
        tx["plain"].append([{"n": n, "what": "a"} for n in range(5)])
        tx["small"].upsert([{"id": n, "v": f"v{n}"} for n in range(20)])


def take_turn(db: st.Store, number: int) -> None:
    with db.transaction() as tx:
        tx["small"].upsert({"id": number, "v": f"turn {number}"})
        tx["plain"].append([{"n": number, "what": "turn"}])
