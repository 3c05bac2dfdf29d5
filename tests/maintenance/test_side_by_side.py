"""Many tables are flushed two at a time: in order, to the end, and with the first error alone."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import siltstone as st
from siltstone.maintenance.flush import side_by_side as module
from siltstone.maintenance.flush.side_by_side import ITEMS_MIN, side_by_side


@pytest.mark.parametrize("count", [0, 1, ITEMS_MIN - 1, ITEMS_MIN, 100])
def test_the_results_are_in_the_order_of_the_items(count: int) -> None:
    assert side_by_side(range(count), lambda n: n * n) == [n * n for n in range(count)]


def test_two_threads_work_where_there_are_many_and_one_where_there_are_few() -> None:
    both = threading.Barrier(2, timeout=30)

    def work(n: int) -> int:
        if n < 2:
            both.wait()
        return threading.get_ident()

    assert len({*side_by_side(range(ITEMS_MIN), work)}) == 2
    assert {*side_by_side(range(ITEMS_MIN - 1), lambda _: threading.get_ident())} == {
        threading.get_ident()
    }


@pytest.mark.parametrize("at", [0, 1, 50])
def test_what_fails_first_is_raised_when_nothing_runs_any_more(at: int) -> None:
    def work(n: int) -> None:
        if n == at:
            raise KeyboardInterrupt(str(n))

    with pytest.raises(KeyboardInterrupt, match=str(at)):
        side_by_side(range(100), work)
    assert "siltstone-flush" not in {thread.name for thread in threading.enumerate()}


def test_one_thread_does_it_all_if_the_system_has_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise st.UnavailableError(f"cannot start the thread {thread.name}")

    monkeypatch.setattr(module.threads, "start", refuse)
    assert side_by_side(range(100), lambda n: n) == list(range(100))


def test_a_first_checkpoint_of_many_tables_has_each_row_once(tmp_path: Path) -> None:
    names = [f"t{n}" for n in range(3 * ITEMS_MIN)]
    with st.connect(tmp_path / "s", background=False) as db:
        with db.transaction() as tx:
            for name in names:
                tx.create_table(name, {"id": "int64"}, "id")
        with db.transaction() as tx:
            for number, name in enumerate(names):
                tx[name].upsert([{"id": n} for n in range(number)])
        db.checkpoint()
        assert [db[name].count() for name in names] == list(range(len(names)))
    with st.connect(tmp_path / "s", background=False) as db:
        assert [db[name].count() for name in names] == list(range(len(names)))
        assert db.verify(deep=True).is_sound
