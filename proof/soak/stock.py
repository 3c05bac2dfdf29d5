"""Stock: a plain table that a stock Lance client writes, through the owner's server.

Each of its rows is written once: (client, n). What is acknowledged is a line "client n" of a file;
what failed may be there or not, and is not tried again.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance.namespace import RestNamespace
from lance_namespace.errors import LanceNamespaceError

import siltstone as st
from proof.lines import lines_of
from proof.soak.post import Post

Row = tuple[int, int]
REFUSED = (OSError, ValueError, RuntimeError, LanceNamespaceError)


def create(db: st.Store) -> None:
    """Make the table."""
    db.create_table("stock", {"client": "int64", "n": "int64"})
    db["stock"].append([{"client": 0, "n": 0}])


def acknowledged(path: Path) -> set[Row]:
    """Return the rows that have to be there."""
    pairs = (line.split() for line in lines_of(path))
    return {(0, 0), *((int(client), int(n)) for client, n in pairs)}


def check(rows: Iterable[Mapping[str, Any]], wanted: set[Row]) -> None:
    """Check that each acknowledged row is there, and none twice."""
    counts = Counter((row["client"], row["n"]) for row in rows)
    assert not wanted - {*counts}, f"lost: {wanted - {*counts}}"
    twice = [row for row, count in counts.items() if count > 1]
    assert not twice, f"there twice: {twice}"


def require_foreseen(error: Exception) -> None:
    """See that a server did not fail: it may refuse, or be gone.

    Lance calls both an internal error, and says of a connection that ended whose error it is.

    Raises:
        AssertionError: The server answered that something happened in it which nobody foresaw.
    """
    text = str(error)
    assert "Internal error" not in text or "reqwest::Error" in text, f"the server failed: {text}"


class Client:
    """Appends a few rows at a time, and reads all."""

    def __init__(self, post: Post) -> None:
        self._post, self._n = post, 0
        self._file = os.open(post.stocked, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def run(self, stop: threading.Event) -> None:
        """Work until told to stop."""
        while not stop.wait(0.1):
            if not self._post.url.exists():
                continue
            space = RestNamespace(uri=self._post.url.read_text())
            try:
                self._append(space)
            except REFUSED as error:
                # Beaten, or the server died: Lance has no more to say than these.
                require_foreseen(error)
                self._post.tally.add(f"refused: {type(error).__name__}")
                continue
            self._post.tally.add("stock append")
            self._read(space)

    def _append(self, space: RestNamespace) -> None:
        rows = [(self._post.number, self._n + more) for more in range(1, 4)]
        self._n += len(rows)
        table = pa.table({"client": [c for c, _ in rows], "n": [n for _, n in rows]})
        lance.write_dataset(table, namespace_client=space, table_id=["stock"], mode="append")
        os.write(self._file, "".join(f"{client} {n}\n" for client, n in rows).encode())

    def _read(self, space: RestNamespace) -> None:
        wanted = acknowledged(self._post.stocked)
        try:
            found = lance.dataset(namespace_client=space, table_id=["stock"]).to_table()
        except REFUSED as error:
            require_foreseen(error)
            self._post.tally.add(f"unread: {type(error).__name__}")
            return
        check(found.to_pylist(), wanted)
        self._post.tally.add("stock read")
