"""A scan with a limit is the beginning of the scan, and reads little more of base than that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pytest

import siltstone as st
from siltstone.namespace import SiltstoneNamespace
from siltstone.storage.lance.read.pinned import LancePinned

ROWS = 3_000


def rows(first: int, last: int, v: float = 0.0) -> list[dict[str, Any]]:
    return [{"id": n, "v": v, "s": f"row {n}"} for n in range(first, last)]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    """A keyed table, whose newer rows hide some of base, and two plain ones, all of several parts.

    Another client deleted most rows of the first part of `d`.
    """
    with st.connect(tmp_path / "store", background=False) as store:
        columns = {"id": "int64", "v": "float64", "s": "string"}
        store.create_table("t", columns, "id")
        for name in ("p", "d"):
            store.create_table(name, columns)
        for first in range(0, ROWS, 1_000):
            store["t"].upsert(rows(first, first + 1_000))
            for name in ("p", "d"):
                store[name].append(rows(first, first + 1_000))
            store.checkpoint()
            store.merge()
        store["t"].delete([0, 1, 2, 1_500])
        store["t"].upsert(rows(10, 20, 1.0))
        store.checkpoint()
        store["t"].upsert(rows(ROWS, ROWS + 5, 2.0))
        store["p"].append(rows(ROWS, ROWS + 5, 2.0))
        given = {"namespace_client": SiltstoneNamespace(store), "table_id": ["d"]}
        lance.dataset(**given).delete("id < 900")
        yield store


@pytest.mark.parametrize("name", ["t", "p", "d"])
@pytest.mark.parametrize("filter", [None, "v < 1", "id % 7 = 3"])
def test_a_scan_with_a_limit_is_the_beginning_of_the_scan(
    db: st.Store,
    name: str,
    filter: str | None,  # noqa: A002 - as the argument of a scan
) -> None:
    whole = db[name].scan(filter=filter).read_all()
    for limit in (0, 1, 2, 986, 987, 1_000, 1_001, ROWS - 1, ROWS, ROWS + 1, 1 << 70):
        found = db[name].scan(filter=filter, limit=limit).read_all()
        assert found.equals(whole.slice(0, min(limit, len(whole)))), limit
    with db.transaction() as tx:
        if name == "t":
            tx[name].delete([3, 4])
        else:
            tx[name].append(rows(9_000, 9_003))
        whole = tx[name].scan(filter=filter).read_all()
        for limit in (1, 5, whole.num_rows, whole.num_rows + 1):
            assert (
                tx[name].scan(filter=filter, limit=limit).read_all().equals(whole.slice(0, limit))
            )
        tx.rollback()


@pytest.mark.parametrize(("name", "hidden"), [("t", 14), ("p", 0), ("d", 0)])
def test_a_scan_with_a_limit_reads_of_base_what_it_returns_and_what_base_hides(
    db: st.Store, name: str, hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan, read = LancePinned.scan, []

    def counted(self: LancePinned, *args: Any, **options: Any) -> Iterator[Any]:
        for batch in scan(self, *args, **options):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(LancePinned, "scan", counted)
    assert db[name].scan(limit=5).read_all().num_rows == 5
    assert sum(read) <= 5 + hidden
    read.clear()
    assert db[name].scan(limit=0).read_all().num_rows == 0
    assert not read
