"""Guest: another program that treats the store's plain tables as Lance datasets of its own.

It cleans up with no age at all, compacts, tags and appends: through the owner's server as a stock
client, and by the bare path, past siltstone. None of it may cost the store a row, a tag or a
snapshot. The rows it appends by path are `(-client, n)`: the store shows none of them until they
are imported, and then each of them once.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance.namespace import RestNamespace

from proof.soak.post import Post
from proof.soak.stock import REFUSED, require_foreseen

TABLES = ("stock", "journal")
TAGS_MAX = 5
APPENDED = 3


def folder_of(root: Path, table: str) -> Path:
    """Return the dataset of a plain table that nobody dropped."""
    (found,) = (root / "tables").glob(f"{table}-*")
    return found


def check(rows: Iterable[Mapping[str, Any]]) -> int:
    """Check that no row that was appended by path is there twice; return how many there are."""
    counts = Counter((row["client"], row["n"]) for row in rows if row["client"] < 0)
    twice = [row for row, count in counts.items() if count > 1]
    assert not twice, f"imported twice: {twice}"
    return len(counts)


class Guest:
    """One thing after the other, chosen at random."""

    def __init__(self, post: Post) -> None:
        self._post, self._chance = post, random.Random(post.seed + post.number)
        self._n = 0

    def run(self, stop: threading.Event) -> None:
        """Work until told to stop."""
        turns: tuple[tuple[str, Callable[[], object]], ...] = (
            ("clean-up by path", lambda: self._clean_up(self._by_path(self._table()))),
            ("clean-up by server", lambda: self._clean_up(self._by_server(self._table()))),
            ("optimize by path", lambda: self._compact(self._by_path(self._table()))),
            ("optimize by server", lambda: self._compact(self._by_server(self._table()))),
            ("tag by path", lambda: self._tag(self._by_path(self._table()))),
            ("tag by server", lambda: self._tag(self._by_server(self._table()))),
            ("append by path", self._append),
        )
        while not stop.wait(self._chance.uniform(0, 0.3)):
            what, turn = self._chance.choice(turns)
            try:
                turn()
            except REFUSED as error:
                require_foreseen(error)
                self._post.tally.add(f"{what} refused: {type(error).__name__}")
            else:
                self._post.tally.add(what)
                self._post.tally.add("guest")

    def _table(self) -> str:
        return self._chance.choice(TABLES)

    def _by_path(self, table: str) -> lance.LanceDataset:
        return lance.dataset(str(folder_of(self._post.root, table)))

    def _by_server(self, table: str) -> lance.LanceDataset:
        space = RestNamespace(uri=self._post.url.read_text())
        return lance.dataset(namespace_client=space, table_id=[table])

    def _clean_up(self, dataset: lance.LanceDataset) -> None:
        dataset.cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)

    def _compact(self, dataset: lance.LanceDataset) -> None:
        dataset.optimize.compact_files()

    def _tag(self, dataset: lance.LanceDataset) -> None:
        ours = [name for name in dataset.tags.list() if name.startswith("guest-")]
        for name in sorted(ours)[: len(ours) - TAGS_MAX]:
            dataset.tags.delete(name)
        self._n += 1
        dataset.tags.create(f"guest-{self._post.number}-{self._n}", dataset.version)

    def _append(self) -> None:
        """Append to the folder of a table, past the store."""
        numbers = range(self._n + 1, self._n + 1 + APPENDED)
        self._n += APPENDED
        rows = pa.table({"client": [-self._post.number] * APPENDED, "n": [*numbers]})
        lance.write_dataset(rows, str(folder_of(self._post.root, "stock")), mode="append")
