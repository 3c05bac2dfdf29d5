"""A process keeps the stores that it read open: a plan after a commit reads only what is new."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.spark.context import kept_stores
from siltstone.spark.context.kept_stores import STORES_MAX, close_idle, kept


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> Iterator[None]:
    close_idle(0)
    yield
    close_idle(0)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False, retention="0s") as store:
        store.create_table("t", {"id": "int64"}, primary_key="id").insert({"id": 1})
        yield store


def test_the_next_reader_gets_the_same_store_with_what_was_committed_since(db: st.Store) -> None:
    with kept(str(db.path)) as first:
        assert first["t"].count() == 1
    db["t"].insert({"id": 2})
    with kept(str(db.path)) as again, kept(str(db.path)) as beside:
        assert again is beside is first
        assert again["t"].count() == 2


def test_an_idle_store_is_closed_and_one_in_use_is_not(db: st.Store) -> None:
    with kept(str(db.path)) as used:
        close_idle(0)
        assert used["t"].count() == 1
    close_idle(60)
    assert used["t"].count() == 1
    close_idle(0)
    with pytest.raises(st.ClosedError):
        used["t"].count()
    with kept(str(db.path)) as another:
        assert another is not used
    assert kept_stores._timer is not None  # it closes that one


def test_a_vacuum_beside_a_kept_store_disturbs_no_later_read(db: st.Store) -> None:
    def merged() -> int:
        db.checkpoint()
        db.merge()
        db.vacuum(dry_run=False, grace_s=0)
        return db.status().oldest_seq

    merged()
    with kept(str(db.path)) as store:
        read = store.seq
    db["t"].insert({"id": 3})
    db["t"].insert({"id": 4})
    assert merged() > read
    with kept(str(db.path)) as store:
        assert store["t"].count() == 3


def test_a_store_that_was_made_anew_at_the_path_is_opened_anew(tmp_path: Path) -> None:
    for count in (3, 1):
        with st.connect(tmp_path / "s", background=False) as db:
            db.create_table("t", {"id": "int64"}, primary_key="id")
            db["t"].insert([{"id": n} for n in range(count)])
        with kept(str(tmp_path / "s")) as store:
            assert store["t"].count() == count
        shutil.rmtree(tmp_path / "s")
        with pytest.raises(st.RequestError), kept(str(tmp_path / "s")):
            pass


def test_there_is_a_bound_of_idle_stores(tmp_path: Path) -> None:
    found = list[st.Store]()
    for n in range(STORES_MAX + 1):
        st.connect(tmp_path / str(n), background=False).close()
        with kept(str(tmp_path / str(n))) as store:
            found.append(store)
    assert found[1].tables() == found[-1].tables() == []
    with pytest.raises(st.ClosedError):
        found[0].tables()
