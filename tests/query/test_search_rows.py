"""The rows of an answer are read from where they cost least, and are the same from everywhere."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.storage.cache.part_cache import PartCache
from siltstone.storage.lance.read.pinned import LancePinned
from tests.engine.seams import open_store
from tests.maintenance.stores import env_of
from tests.query.search_doors import fill, vector_of

ONE_FILE, MIB = 20_000, 1 << 20
"""Room for one file of the table or so, which the next read evicts; and for all."""
SEARCHES: list[tuple[Any, dict[str, Any]]] = [
    ([vector_of(7)], {"column": "v"}),
    ([vector_of(9)], {"column": "v", "exact": True, "filter": "kind = 'a'"}),
    (["river clay"], {"column": "title"}),
    (["stone"], {"column": "note", "filter": "id > 100", "exact": True}),
    (["silt delta"], {"vector": vector_of(3), "vector_column": "v", "column": "title"}),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("searched")
    with open_store(folder / "s", env_of(real_lance=True), background=False) as db:
        fill(db)
    return folder


@contextmanager
def opened(folder: Path, bytes_max: int) -> Generator[st.Store]:
    """Open the store with a cache that is asked for each row, in the place of memory; 0: none."""
    parts = PartCache(
        folder / str(bytes_max),
        lambda: "store",
        bytes_max=bytes_max,
        open_bytes_max=MIB,
        is_eager=True,
    )
    env = env_of(real_lance=True)
    if bytes_max:
        env = replace(env, part_cache=lambda *_: parts)
    with open_store(folder / "s", env, background=False, cache_bytes_max=bytes_max) as db:
        yield db


def answers(db: st.Store) -> list[pa.Table]:
    """Return the answers to all searches, with all columns, of now and in a transaction."""
    with db.transaction() as tx:
        tx["docs"].delete([7, 9])
        tables = (db["docs"], tx["docs"])
        found = [
            table.search(*asked, k=20, **options).to_arrow()
            for table in tables
            for asked, options in SEARCHES
        ]
        tx.rollback()
    return found


@pytest.mark.parametrize("bytes_max", [ONE_FILE, MIB])
def test_answers_are_the_same_with_files_of_rows_and_without(made: Path, bytes_max: int) -> None:
    with opened(made, 0) as db:
        wanted = answers(db)
    assert all(table.num_rows == 20 for table in wanted)
    with opened(made, bytes_max) as db:
        for _ in range(2):
            assert all(map(pa.Table.equals, answers(db), wanted))


def test_the_rows_of_an_answer_are_not_taken_from_lance(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    take = LancePinned.take

    def noted(self: LancePinned, *args: Any) -> pa.Table:
        taken.extend([self.pin.folder] * self.pin.folder.endswith("/base"))
        return take(self, *args)

    with opened(made, MIB) as db:
        first = answers(db)
        monkeypatch.setattr(LancePinned, "take", noted)
        found = [db["docs"].search(*asked, k=20, **options) for asked, options in SEARCHES[:3]]
        assert [each.to_arrow() for each in found] == first[:3]
    assert taken == []


def test_searches_bring_rows_into_memory_as_reads_of_rows_do(made: Path) -> None:
    with open_store(made / "s", env_of(real_lance=True), background=False) as db:
        reader: Any = db["docs"]._reader()  # pyright: ignore[reportPrivateUsage]
        for _ in range(20):
            db["docs"].search("river", column="title", k=5).to_arrow()
        assert reader.base.in_memory is not None
