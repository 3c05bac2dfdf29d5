"""Life: a store in use, which tells what it begins and what it acknowledges.

What a reader sees is read again at each new seq: its rows, the tags, and the change feed up to it.
The checker of a disk holds the store on it to exactly that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import siltstone as st
from siltstone.api.snapshot import Snapshot
from siltstone.api.store import Store

Rows = dict[str, object]


def rows_of(source: Store | Snapshot) -> Rows:
    """Return the columns and the rows of all tables; a row as text, as the order says nothing."""
    found: Rows = {}
    for name in source.tables():
        rows = source[name].to_arrow()
        found[name] = [rows.schema.names, sorted(repr(row) for row in rows.to_pylist())]
    return found


def changes_of(db: Store, until: int) -> Rows:
    """Return the change feed of each keyed table up to a seq."""
    feeds = db.changes(until=until)
    return {
        name: sorted(repr(row) for row in feed.read_all().to_pylist())
        for name, feed in feeds.items()
    }


def write_everywhere(db: Store, made: str) -> Rows:
    """Make a table, and write to it and to all others in a second commit; return all rows then."""
    seq, expected = db.seq, rows_of(db)
    firsts = {name: db[name].to_arrow().slice(0, 1) for name in db.tables() if db[name].count()}
    db.create_table(made, {"id": "int64"}, primary_key="id")
    with db.transaction() as tx:
        tx[made].upsert({"id": seq})
        for name, first in firsts.items():
            if db[name].primary_key:
                tx[name].upsert(first)  # as it is
            else:
                tx[name].append(first)
                expected[name] = _with(expected[name], repr(first.to_pylist()[0]))
    expected[made] = [["id"], [repr({"id": seq})]]
    return expected


def _with(table: Any, row: str) -> list[object]:
    names, rows = table
    return [names, sorted([*rows, row])]


class Life:
    """Opens a store, uses it, and writes to `told` what it was promised."""

    def __init__(self, root: Path, told: Path, options: Mapping[str, Any]) -> None:
        self._root, self._options = root, options
        self._told = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._answered = 0
        self._db: Store | None = None

    @property
    def db(self) -> Store:
        """The open store."""
        if self._db is None:
            self._db = st.connect(self._root, **self._options)
            self._answered = 0
            self._acknowledge()  # what is shown after a crash survives the next one, too
        return self._db

    def close(self) -> None:
        """Close the store, if it is open."""
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def count(self) -> None:
        """Let the disks that a power cut leaves be looked at from here on."""
        self.tell(is_counting=True)

    def tell(self, **fields: object) -> None:
        """Write one line."""
        os.write(self._told, json.dumps(fields).encode())

    def begin(self, phase: str, commits: int = 1) -> None:
        """Tell that as many commits as `commits` may be on their way from now on."""
        self.tell(phase=phase, begun=self.db.seq + commits)

    def commit(self, phase: str, act: Callable[[Store], object], commits: int = 1) -> None:
        """Do what makes `commits` commits."""
        before = self.db.seq
        self.begin(phase, commits)
        act(self.db)
        if self.db.seq != before + commits:
            raise AssertionError(f"{phase}: {self.db.seq - before} commits, not {commits}")
        self._acknowledge()

    def do(self, phase: str, act: Callable[[Store], object]) -> None:
        """Do what changes no answer."""
        self.commit(phase, act, commits=0)

    def acknowledge(self, seq: int) -> None:
        """Tell that a commit was acknowledged as durable; any thread may."""
        self.tell(acknowledged=seq)

    def _acknowledge(self) -> None:
        """Tell what is durable, then what it looks like."""
        db, seq = self.db, self.db.durable_seq
        self.acknowledge(seq)
        answers: dict[str, Rows] = {}
        for at in range(self._answered + 1, seq + 1):
            with db.snapshot(seq=at) as then:
                answers[str(at)] = {"rows": rows_of(then), "changes": changes_of(db, at)}
        if answers and seq == db.seq:
            answers[str(seq)]["tags"] = sorted(db.tags().items())
        self._answered = seq
        self.tell(answers=answers)
