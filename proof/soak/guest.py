"""Guest: another program that takes the store's tables for Lance datasets of its own.

All the while it cleans up with no age at all, compacts, tags and appends: as a stock client of the
owner's server, and by the bare path, past siltstone. None of it may cost the store a row, a tag, a
snapshot or a backup. What it writes by path is no commit: between the rounds the rows that it
appended are imported, each once, and its other versions are moved away, as the docs say.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
from lance.namespace import RestNamespace

import siltstone as st
from proof.soak.post import Post
from proof.soak.stock import REFUSED, require_foreseen
from siltstone.maintenance.repair.external_appends import external_versions_of
from siltstone.storage.tables.values import ExternalVersion

APPENDED, COMPACTED = "stock", "journal"
"""Written by path: a version that did anything but append keeps others from being imported."""
PLAIN, KEYED = (APPENDED, COMPACTED), ("accounts", "stamps")
TAGS_MAX = 5
ROWS = 3


def folder_of(root: Path, table: str) -> Path:
    """Return the dataset of a table, as somebody finds it who looks into the directory."""
    (found,) = (root / "tables").glob(f"{table}-*")
    return found / "base" if table in KEYED else found


def settle(db: st.Store, aside: Path) -> int:
    """Import what was appended by path and is whole, move away the rest; return the rows' number.

    Args:
        db: The store, which nobody else works on.
        aside: A directory outside of it.
    """
    parts = db._parts  # noqa: SLF001 - as `verify`
    for _, version in list(
        external_versions_of(parts.site.tables.external, parts.site.manifests.newest())
    ):
        if not version.path.startswith(f"tables/{APPENDED}-") or _is_lost(version):
            aside.mkdir(exist_ok=True)
            (db.path / version.path).rename(aside / version.path.replace("/", "~"))
    return db.import_external(APPENDED, dry_run=False).rows


def _is_lost(version: ExternalVersion) -> bool:
    """Say whether a clean-up by path has taken rows that were appended by path, or hid the table.

    One that finds the version below another one takes both its data and its manifest, the data
    first: a guest that is killed in between leaves the manifest. And one that takes the manifest
    that an append has just found as the newest lets Lance find no dataset: it makes one then, by a
    transaction of version 0 that replaces all, and commits that as the next version.
    """
    made_anew = version.by.startswith("Overwrite, ")
    return version.added is None and ("is gone" in version.by or made_anew)


class Guest:
    """One thing after the other, chosen at random."""

    def __init__(self, post: Post) -> None:
        self._post, self._chance, self._n = post, random.Random(post.seed + post.number), 0

    def run(self, stop: threading.Event) -> None:
        """Work until told to stop."""
        turns: tuple[tuple[str, Callable[[], object]], ...] = (
            ("clean-up by path", lambda: _clean_up(self._by_path(*PLAIN, *KEYED))),
            ("clean-up by server", lambda: _clean_up(self._by_server(*PLAIN, *KEYED))),
            ("optimize by path", lambda: _compact(self._by_path(COMPACTED))),
            ("optimize by server", lambda: _compact(self._by_server(*PLAIN))),
            ("tag by path", lambda: self._tag(self._by_path(*PLAIN))),
            ("tag by server", lambda: self._tag(self._by_server(*PLAIN))),
            ("append by path", self._append),
        )
        while not stop.wait(self._chance.uniform(0, 0.3)):
            what, turn = self._chance.choice(turns)
            try:
                turn()
            except REFUSED as error:  # it met an owner, a vacuum, or a server that was killed
                require_foreseen(error)
                self._post.tally.add(f"{what} refused: {type(error).__name__}")
            else:
                self._post.tally.add(what)
                self._post.tally.add("guest")

    def _by_path(self, *tables: str) -> lance.LanceDataset:
        return lance.dataset(str(folder_of(self._post.root, self._chance.choice(tables))))

    def _by_server(self, *tables: str) -> lance.LanceDataset:
        space = RestNamespace(uri=self._post.url.read_text())
        return lance.dataset(namespace_client=space, table_id=[self._chance.choice(tables)])

    def _tag(self, dataset: lance.LanceDataset) -> None:
        for name in _too_many([name for name in dataset.tags.list() if name.startswith("guest-")]):
            dataset.tags.delete(name)
        self._n += 1
        dataset.tags.create(f"guest-{self._post.number}-{self._n}", dataset.version)

    def _append(self) -> None:
        """Append to a table's folder, past the store."""
        numbers = range(self._n + 1, self._n + 1 + ROWS)
        self._n += ROWS
        rows = pa.table({"client": [-self._post.number] * ROWS, "n": [*numbers]})
        lance.write_dataset(rows, str(folder_of(self._post.root, APPENDED)), mode="append")


def _clean_up(dataset: lance.LanceDataset) -> None:
    """Delete all that no version needs but the newest, as `optimize` of LanceDB does."""
    dataset.cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)


def _compact(dataset: lance.LanceDataset) -> None:
    dataset.optimize.compact_files()


def _too_many(names: Sequence[str]) -> Sequence[str]:
    return sorted(names)[: max(0, len(names) - TAGS_MAX)]
