"""Tags of tables hold through joined processes, kills, backups, renames and tables made again."""

# pyright: reportArgumentType=false

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lance_namespace.errors import InvalidInputError

import siltstone as st
from siltstone.engine.catalog import catalog as catalogs
from siltstone.local.store import LocalStore
from siltstone.namespace import SiltstoneNamespace
from tests.maintenance.stores import Clock, open_store, rows
from tests.server.stores import joined_to

COLUMNS = {"id": "int64", "v": "int64"}

VICTIM = """
import sys
import siltstone as st
from siltstone.failpoints import arm
from siltstone.namespace import SiltstoneNamespace

with st.connect(sys.argv[1], join=True) as db:
    ns = SiltstoneNamespace(db)
    arm(sys.argv[2])
    ns.create_table_tag({"id": ["p"], "tag": "second", "version": 2})
"""


def filled(db: st.Store) -> None:
    for name in ("p", "q"):
        db.create_table(name, COLUMNS)
        for value in range(3):
            db[name].overwrite([{"id": value, "v": value}])


def tags_of(db: st.Store, name: str) -> dict[str, int]:
    found = SiltstoneNamespace(db).list_table_tags({"id": [name]}).tags
    return {tag: entry.version for tag, entry in found.items()}


def tag(db: st.Store, name: str, tag: str, version: int) -> None:
    SiltstoneNamespace(db).create_table_tag({"id": [name], "tag": tag, "version": version})


def seq_of_tag(db: LocalStore, name: str, tag: str) -> int:
    catalog = db._core.state().view.catalog
    return catalogs.tags_of_table(catalog, catalogs.find(catalog, name).id)[tag]


def test_one_name_on_two_tables_is_two_tags_for_joined_processes_too(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db, joined_to(db) as joined:
        filled(db)
        tag(joined, "p", "prod", 1)
        tag(joined, "q", "prod", 2)
        for each in (db, joined):
            assert (tags_of(each, "p"), tags_of(each, "q")) == ({"prod": 1}, {"prod": 2})
            with pytest.raises(Exception, match="prod"):
                tag(each, "p", "prod", 3)
        SiltstoneNamespace(joined).delete_table_tag({"id": ["p"], "tag": "prod"})
        assert (tags_of(db, "p"), tags_of(joined, "q")) == ({}, {"prod": 2})


@pytest.mark.parametrize(("order", "is_done"), [("before_frame", False), ("after_frame", True)])
def test_a_kill_around_the_commit_of_a_tag_leaves_it_or_not(
    tmp_path: Path, order: str, is_done: bool
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        filled(db)
        tag(db, "p", "first", 1)
        tag(db, "q", "second", 1)
    arguments = [str(tmp_path / "s"), f"commit.{order}=kill"]
    done = subprocess.run([sys.executable, "-c", VICTIM, *arguments], check=False)
    assert done.returncode == -signal.SIGKILL
    with st.connect(tmp_path / "s", background=False) as db:
        found = {"first": 1} | ({"second": 2} if is_done else {})
        assert (tags_of(db, "p"), tags_of(db, "q")) == (found, {"second": 1})


def test_tags_at_past_seqs_come_back_with_a_backup_and_keep_their_rows(tmp_path: Path) -> None:
    clock = Clock()
    with open_store(tmp_path / "s", clock, real_lance=True, retention_s=0) as db:
        filled(db)
        db.create_table("k", COLUMNS, primary_key="id").upsert({"id": 1, "v": 1})
        past = db.seq
        tag(db, "k", "then", past)
        tag(db, "p", "then", 1)
        for value in (2, 3):
            db["k"].upsert({"id": 1, "v": value})
            db["p"].overwrite([{"id": 9, "v": value}])
            db.checkpoint()
            db.merge()
            clock.move(days=2)
            db.vacuum(dry_run=False, grace_s=0)
        db.rename_table("p", "n.p")
        db.drop_table("q")
        found = db.backup(tmp_path / "backup")
        assert found.lost_tags == ()
    st.restore(tmp_path / "backup", tmp_path / "restored")
    for path in (tmp_path / "s", tmp_path / "restored"):
        with open_store(path, clock, real_lance=True, retention_s=0) as db:
            assert (tags_of(db, "k"), tags_of(db, "n.p")) == ({"then": past}, {"then": 1})
            db.vacuum(dry_run=False, grace_s=0)
            with db.snapshot(seq=seq_of_tag(db, "n.p", "then")) as then:
                assert rows(then["p"]) == [(0, 0)]
            with db.snapshot(seq=seq_of_tag(db, "k", "then")) as then:
                assert rows(then["k"]) == [(1, 1)]
            assert db.verify(deep=True).is_sound
            db.drop_table("n.p")
            db.create_table("n.p", COLUMNS)
            assert tags_of(db, "n.p") == {}


def test_a_tag_loses_to_the_drop_of_its_table_and_no_tag_is_left(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", real_lance=True) as db:
        filled(db)
        tx = db.transaction()
        tx.lance.tag_table("p", "late", db.seq)
        number = db["p"].id
        db.drop_table("p")
        db.create_table("p", COLUMNS).append([{"id": 5, "v": 5}])
        with pytest.raises(st.TableNotFoundError):
            tx.commit()
        assert tags_of(db, "p") == {}
        tags = db._core.state().view.catalog.tags
        assert [t for t in tags if catalogs.table_of_tag(t.name) == number] == []
        with pytest.raises(Exception, match="no tag"):
            SiltstoneNamespace(db).delete_table_tag({"id": ["p"], "tag": "late"})


@pytest.mark.parametrize(
    "tag",
    ["\ud800", "a\ud800", "x" * 129, "x" * 1_000_000, "", 5, None],
    ids=["half", "ends in half", "long", "very long", "empty", "number", "none"],
)
def test_a_tag_that_cannot_be_stored_is_refused_in_a_short_sentence(
    tmp_path: Path, tag: object
) -> None:
    with open_store(tmp_path / "s", real_lance=True) as db:
        filled(db)
        ns, before = SiltstoneNamespace(db), (db.seq, tags_of(db, "p"))
        with pytest.raises(InvalidInputError) as refused:
            ns.create_table_tag({"id": ["p"], "tag": tag, "version": 1})
        assert "tag" in str(refused.value)
        assert len(str(refused.value)) < 300
        with db.transaction() as tx:
            with pytest.raises(st.RequestError, match="a tag must be a string"):
                tx.lance.tag_table("p", tag, db.seq)
            with pytest.raises(st.RequestError, match="a tag must be a string"):
                tx.tag(tag, db.seq)
        assert (db.seq, tags_of(db, "p")) == before
