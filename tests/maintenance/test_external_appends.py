"""What a stranger writes into a table's folder is never read, blocks nothing, and is reported."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import siltstone as st
from siltstone import failpoints
from siltstone.admin import verify_store
from siltstone.errors import RequestError, SchemaMismatchError, TableNotFoundError, UnavailableError
from siltstone.maintenance.repair.external_appends import Adopter
from siltstone.maintenance.repair.quarantine import Quarantine
from siltstone.maintenance.repair.verify import DRIFT
from siltstone.namespace import SiltstoneNamespace
from tests.maintenance.stores import open_store, rows
from tests.races.processes import Meeting

KEYED = {"id": "int64", "v": "string"}
STRANGE = [{"id": 100, "v": "s"}, {"id": 101, "v": "s"}]


@pytest.fixture
def db(tmp_path: Path):
    with open_store(tmp_path / "s", real_lance=True) as store:
        store.create_table("t", KEYED, primary_key="id")
        store.create_table("p", KEYED)
        store["t"].upsert([{"id": n, "v": "a"} for n in range(10)])
        store["p"].append([{"id": n, "v": "a"} for n in range(10)])
        store.checkpoint()
        store.merge()
        yield store


def folder_of(db, name: str) -> Path:
    record = db._parts.site.manifests.newest()
    if name == "t":
        return db.path / record.keyed[0].folder / "base"
    (table,) = [t for t in record.catalog.tables if not t.schemas[0].schema.key]
    return db.path / table.incarnations[0].versions[0].pin.folder


def strange(db, name: str, mode: str = "append", written=STRANGE) -> Path:
    folder = folder_of(db, name)
    lance.write_dataset(pa.Table.from_pylist(written), str(folder), mode=mode)
    return folder


def drift(db, *, deep: bool = False) -> list[str]:
    found = db.verify(deep=deep).findings
    assert {finding.severity for finding in found} <= {DRIFT}
    return [str(finding) for finding in found]


@pytest.mark.parametrize("name", ["t", "p"])
def test_what_a_client_staged_and_never_committed_is_no_version(db, name):
    """Lance completes such a manifest where it opens one: to look at it would publish it."""
    ours = {path.name for path in (folder_of(db, name) / "_versions").iterdir()}
    folder = strange(db, name)
    (made,) = [p for p in (folder / "_versions").glob("*.manifest") if p.name not in ours]
    made.rename(made.with_name(f"{made.name}-eb698e4e-aeae-492c-a98b-cf07ace3b07f"))
    before = sorted(db.path.rglob("*"))
    assert drift(db, deep=True) == []
    assert sorted(db.path.rglob("*")) == before


def test_a_file_whose_name_is_no_number_is_no_version(db):
    for name in ("t", "p"):
        for odd in ("²", "٣", "9" * 200):
            (folder_of(db, name) / "_versions" / f"{odd}.manifest").write_bytes(b"x")
    assert drift(db, deep=True) == []
    db["t"].upsert({"id": 1, "v": "b"})
    db.checkpoint()
    db.merge()
    db.vacuum(dry_run=False, grace_s=0)
    assert len(rows(db["t"])) == 10


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_reads_commits_and_maintenance_go_on_at_the_pin(db, mode):
    for name in ("t", "p"):
        strange(db, name, mode)
    expected = {name: rows(db[name]) for name in ("t", "p")}
    for n in range(3):
        db["t"].upsert({"id": n, "v": "b"})
        db["p"].append([{"id": 50 + n, "v": "b"}])
        db["t"].delete(9 - n)
        db.checkpoint()
        db.merge()
        db.optimize()
        for name in ("t", "p"):
            strange(db, name, "append" if n else mode)
    expected["t"] = sorted([(n, "b" if n < 3 else "a") for n in range(7)])
    expected["p"] = sorted(expected["p"] + [(50 + n, "b") for n in range(3)])
    assert {name: rows(db[name]) for name in ("t", "p")} == expected
    assert drift(db, deep=True)
    db.close()
    with open_store(db.path, real_lance=True) as again:
        assert {name: rows(again[name]) for name in ("t", "p")} == expected
        again["t"].upsert({"id": 1, "v": "c"})
        again["p"].delete_where("id = 50")
        again.checkpoint()
        again.merge()
        assert (again["t"].count(), again["p"].count()) == (7, 12)


def test_readers_of_the_plain_path_see_ours_again_after_the_next_merge(db):
    folder = strange(db, "t")
    assert lance.dataset(str(folder)).count_rows() == 12
    db["t"].upsert({"id": 1, "v": "c"})
    db.checkpoint()
    db.merge()
    db["t"].upsert({"id": 1, "v": "d"})
    db.checkpoint()
    db.merge()
    assert lance.dataset(str(folder)).count_rows() == 10


def test_verify_says_which_version_by_what_transaction_and_how_many_rows(db):
    folder = strange(db, "p")
    uuid = lance.dataset(str(folder)).read_transaction(2).uuid
    (found,) = drift(db)
    assert found.startswith(f"drift: {folder.relative_to(db.path)}/_versions/")
    assert f"version 2 was not written by siltstone (Append, transaction {uuid})" in found
    assert "12 rows, 2 of them appended by it" in found
    strange(db, "p", "overwrite")
    assert len(drift(db)) == 2
    assert db.verify().is_sound


def test_a_stranger_that_stood_in_the_way_is_still_reported(db):
    strange(db, "p")
    db["p"].append([{"id": 7, "v": "b"}])
    db["t"].upsert({"id": 7, "v": "b"})
    db.checkpoint()
    db.merge()
    (found,) = drift(db)
    assert "/_siltstone/strangers/" in found


def test_a_stranger_that_cannot_be_read_is_named_and_no_more(db):
    folder = strange(db, "p")
    (path,) = [Path(text.split(": ")[1]) for text in drift(db)]
    (db.path / path).write_bytes(b"nonsense")
    (found,) = drift(db, deep=True)
    assert "it cannot be read" in found
    with pytest.raises(RequestError, match="cannot be imported"):
        db.import_external("p")
    assert folder.is_dir()


def test_vacuum_leaves_young_files_of_strangers_alone(db):
    for name in ("t", "p"):
        strange(db, name)
    before = drift(db)
    db._owner().vacuum._retention_s = 0
    db["t"].upsert({"id": 1, "v": "c"})
    db.checkpoint()
    db.vacuum(dry_run=False)
    assert [text.split(": ", 2)[2] for text in drift(db)] == [
        text.split(": ", 2)[2] for text in before
    ]
    assert db.import_external("p").rows == 2


def test_no_vacuum_takes_what_a_version_by_path_names_until_it_is_adopted_or_moved_away(db):
    folder, own = folder_of(db, "p"), {path.name for path in folder_of(db, "p").glob("data/*")}
    strange(db, "p")
    strange(db, "p", "overwrite")
    (theirs, replaced) = sorted(drift(db))
    kept = {path.name for path in folder.glob("data/*")} - own
    assert len(kept) == 2
    db["p"].append([{"id": 50, "v": "b"}])
    for _ in range(2):  # as they stand, and set aside
        db.vacuum(dry_run=False, grace_s=0)
        assert kept < {path.name for path in folder.glob("data/*")}
        db.checkpoint()
        db.merge()
    (path,) = [Path(text.split(": ")[1]) for text in drift(db) if "Overwrite" in text]
    (db.path / path).unlink()
    assert db.import_external("p", dry_run=False).rows == 2
    assert rows(db["p"])[-2:] == [(100, "s"), (101, "s")]
    db.vacuum(dry_run=False, grace_s=0)
    assert not kept & {path.name for path in folder.glob("data/*")}
    assert db.verify(deep=True).findings == ()
    assert theirs != replaced


def test_vacuum_spares_the_files_of_a_table_with_a_version_by_path_that_cannot_be_read(db):
    folder, own = folder_of(db, "p"), {path.name for path in folder_of(db, "p").glob("data/*")}
    strange(db, "p")
    (path,) = [db.path / text.split(": ")[1] for text in drift(db)]
    whole = path.read_bytes()
    path.write_bytes(b"nonsense")
    db.vacuum(dry_run=False, grace_s=0)
    assert len({path.name for path in folder.glob("data/*")} - own) == 1
    path.write_bytes(whole)
    assert db.import_external("p", dry_run=False).rows == 2


# adopting


def test_what_a_stranger_appended_to_a_plain_table_is_previewed_and_committed_once(db):
    strange(db, "p")
    before = rows(db["p"])
    preview = db.import_external("p")
    assert (preview.rows, preview.sample, preview.seq) == (2, tuple(STRANGE), None)
    assert rows(db["p"]) == before
    assert drift(db)
    done = db.import_external("p", dry_run=False)
    assert (done.rows, done.seq) == (2, db.seq)
    assert rows(db["p"]) == sorted([*before, (100, "s"), (101, "s")])
    assert drift(db) == []
    assert db.import_external("p", dry_run=False).rows == 0
    assert db["p"].count() == 12
    (note,) = (db.path / "quarantine").glob("*/MANIFEST.json")
    (moved,) = json.loads(note.read_text())["files"]
    assert (note.parent / moved["to"]).exists()
    assert f"2 rows were committed to p at seq {done.seq}" in moved["why"]


def test_rows_that_were_deleted_since_do_not_come_back_with_what_a_stranger_built_upon_them(db):
    strange(db, "p")
    strange(db, "p", written=[{"id": 102, "v": "s"}])
    db["p"].delete_where("id < 9")
    db["t"].upsert({"id": 7, "v": "b"})
    db.checkpoint()
    db.merge()
    assert db.import_external("p").rows == 3
    db.import_external("p", dry_run=False)
    assert rows(db["p"]) == [(9, "a"), (100, "s"), (101, "s"), (102, "s")]


def test_what_was_appended_where_a_table_has_no_version_yet_is_found_and_committed(db):
    db.create_table("new", KEYED)
    (step,) = [t.incarnations[0] for t in db._core.state().view.catalog.tables][-1:]
    folder = db.path / "tables" / f"new-{step.id}"
    lance.write_dataset(pa.Table.from_pylist(STRANGE), str(folder), mode="append")
    assert len(drift(db)) == 1
    db.vacuum(dry_run=False, grace_s=0)
    assert db.import_external("new", dry_run=False).rows == 2
    assert rows(db["new"]) == [(100, "s"), (101, "s")]
    assert drift(db) == []


def test_a_version_under_two_names_is_one_and_is_committed_once(db):
    folder = strange(db, "p")
    (path,) = [db.path / text.split(": ")[1] for text in drift(db)]
    aside = folder / "_siltstone" / "strangers"
    aside.mkdir()
    os.link(path, aside / f".{path.name}.1.manifest")  # what a crash leaves while it is set aside
    assert len(drift(db)) == 1
    assert db.import_external("p", dry_run=False).rows == 2
    db.import_external("p", dry_run=False)
    assert db["p"].count() == 12
    assert drift(db) == []


def test_versions_by_path_upon_each_other_are_each_committed_once_wherever_they_stand(db):
    for n in range(2):
        strange(db, "p", written=[{"id": 100 + n, "v": "s"}])
    db["p"].append([{"id": 50, "v": "b"}])
    db["t"].upsert({"id": 7, "v": "b"})
    db.checkpoint()
    db.merge()  # sets both aside
    for n in range(2, 4):
        strange(db, "p", written=[{"id": 100 + n, "v": "s"}])
    assert db.import_external("p").rows == 4
    db.import_external("p", dry_run=False)
    assert rows(db["p"])[-5:] == [(50, "b"), *((n, "s") for n in range(100, 104))]
    assert drift(db) == []


def test_it_is_named_beside_an_owner_and_after_it(db):
    strange(db, "p")
    before = drift(db)
    with st.connect(db.path, read_only=True) as reader:
        assert drift(reader) == before
        assert reader["p"].count() == 10
    db.close()
    assert [str(finding) for finding in verify_store(str(db.path)).findings] == before
    with open_store(db.path, real_lance=True) as again:
        assert drift(again) == before
        assert again.import_external("p", dry_run=False).rows == 2
        assert again["p"].count() == 12


@pytest.mark.parametrize("inside", ["base", ".history"])
def test_what_is_appended_to_a_keyed_table_by_path_is_named_and_changes_no_merge(db, inside):
    folder = folder_of(db, "t").parent / inside
    lance.write_dataset(pa.Table.from_pylist(STRANGE), str(folder), mode="append")
    (found,) = drift(db)
    assert f"/{inside}/_versions/" in found
    for n in range(3):  # the next merges take the same numbers
        db["t"].upsert({"id": n, "v": "b"})
        db.checkpoint()
        db.merge()
        db.vacuum(dry_run=False, grace_s=0)
    assert rows(db["t"]) == [(n, "b" if n < 3 else "a") for n in range(10)]
    assert len(drift(db, deep=True)) == 1
    if inside == "base":
        assert lance.dataset(str(folder)).count_rows() == 10


class Full:
    """A quarantine that takes nothing."""

    def take(self, items):
        raise OSError(28, "No space left on device")


def test_a_failure_between_the_commit_and_the_quarantine_commits_nothing_twice(db):
    strange(db, "p")
    parts = db._parts
    adopter = Adopter(parts.site, Full())
    with pytest.raises(UnavailableError, match="were committed to p at seq"):
        adopter.run(db["p"].id, db.transaction, dry_run=False)
    assert db["p"].count() == 12
    db.import_external("p", dry_run=False)
    assert db["p"].count() == 12
    assert drift(db) == []


def test_what_cannot_be_adopted_is_refused_and_nothing_changes(db):
    strange(db, "t")
    with pytest.raises(RequestError, match="is keyed"):
        db.import_external("t", dry_run=False)
    with pytest.raises(TableNotFoundError):
        db.import_external("none")
    strange(db, "p", "overwrite")
    with pytest.raises(RequestError, match=r"Overwrite.*cannot be imported"):
        db.import_external("p", dry_run=False)
    assert (db["t"].count(), db["p"].count()) == (10, 10)


def test_rows_that_do_not_fit_the_table_any_more_are_refused(db):
    strange(db, "p")
    db["p"].drop_column("v")
    db["p"].add_column("v", "float64")
    with pytest.raises(SchemaMismatchError):
        db.import_external("p", dry_run=False)
    assert db["p"].count() == 10
    assert drift(db)


def test_what_was_set_aside_is_adopted_after_a_clean_up_by_path(db):
    folder = strange(db, "p")
    assert db._parts.site.tables.names.set_aside(str(folder.relative_to(db.path)), 1)
    dataset = lance.dataset(str(folder))
    dataset.cleanup_old_versions(older_than=dt.timedelta(0), delete_unverified=True)
    assert db.import_external("p", dry_run=False).rows == len(STRANGE)
    assert sorted(db["p"].to_arrow()["id"].to_pylist()) == [*range(10), 100, 101]


def test_no_clean_up_takes_the_rows_of_a_version_while_ours_is_shown_in_its_place(db):
    """Its files have kept names before its manifest is taken away."""
    folder = strange(db, "p")
    db["p"].append([{"id": 50, "v": "b"}])  # takes the number, too
    db.checkpoint()
    with contextlib.closing(Meeting()) as meeting, ThreadPoolExecutor(1) as pool:
        failpoints.arm("aside.after_link=pause", socket=meeting.address)
        done = pool.submit(db.merge)
        held = meeting.expect(done)
        (private,) = (folder / "_siltstone" / "strangers").iterdir()
        (public,) = [p for p in (folder / "_versions").glob("*.manifest") if p.samefile(private)]
        held_back = folder / "held-back.manifest"
        public.rename(held_back)  # as the next step of the promotion does
        dataset = lance.dataset(str(folder))
        dataset.cleanup_old_versions(older_than=dt.timedelta(0), delete_unverified=True)
        held_back.rename(public)
        failpoints.disarm()
        held.go()
        done.result()
    assert db.import_external("p", dry_run=False).rows == len(STRANGE)
    assert db["p"].count() == 13


def test_a_version_whose_rows_a_clean_up_took_is_named_and_keeps_no_other_for_ever(db):
    """Lance deletes the data first: one that is killed leaves a manifest without its rows."""
    folder = strange(db, "p")
    (external,) = db._parts.site.tables.external.versions(str(folder.relative_to(db.path)))
    (gone,) = external.files
    (folder / "data" / gone).unlink()
    strange(db, "p", written=[{"id": 102, "v": "s"}])
    (first, _) = drift(db, deep=True)
    assert external.path in first
    assert f"{gone} is gone" in first
    with pytest.raises(RequestError, match=rf"{gone} is gone.*move this file away"):
        db.import_external("p", dry_run=False)
    assert db["p"].count() == 10
    (db.path / external.path).unlink()
    assert db.import_external("p", dry_run=False).rows == 1
    assert db["p"].count() == 11


def test_rows_that_have_kept_names_alone_are_adopted_beside_files_that_lack_theirs(db):
    folder = strange(db, "p")
    place = str(folder.relative_to(db.path))
    (external,) = db._parts.site.tables.external.versions(place)
    kept = folder / "_siltstone" / "_kept" / "data"
    db._parts.site.tables.names.unite(place)
    (ours,) = [p.name for p in kept.iterdir() if p.name not in external.files]
    (folder / "data" / external.files[0]).unlink()
    (kept / ours).unlink()  # as a store that was copied without it
    assert db.import_external("p", dry_run=False).rows == len(STRANGE)


# stores that were copied without their hard links


def test_versions_of_a_store_that_was_copied_file_by_file_are_its_own(db, tmp_path):
    """`cp -r` makes two files of the two names of each: a version is known by its bytes, too."""
    ns = SiltstoneNamespace(db)
    for n in range(3):
        more = pa.Table.from_pylist([{"id": 50 + n, "v": "b"}])
        lance.write_dataset(more, namespace_client=ns, table_id=["p"], mode="append")
    expected = {name: rows(db[name]) for name in ("t", "p")}
    db.close()
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    with st.connect(tmp_path / "copy", read_only=True) as reader:
        assert reader.verify(deep=True).findings == ()
    with open_store(tmp_path / "copy", real_lance=True) as copy:
        assert drift(copy, deep=True) == []
        assert copy.import_external("p", dry_run=False).rows == 0
        more = pa.Table.from_pylist([{"id": 60, "v": "b"}])
        ns = SiltstoneNamespace(copy)
        lance.write_dataset(more, namespace_client=ns, table_id=["p"], mode="append")
        copy["t"].upsert({"id": 1, "v": "c"})
        copy._owner().vacuum._retention_s = 0
        for _ in range(2):
            copy.checkpoint()
            copy.merge()
            copy.vacuum(dry_run=False, grace_s=0)  # the names of what goes, go
        assert copy.verify(deep=True).findings == ()
        assert copy.import_external("p", dry_run=False).rows == 0
        assert rows(copy["p"]) == sorted([*expected["p"], (60, "b")])
        strange(copy, "p")
        assert len(drift(copy)) == 1


# adopting while others are at work


def test_rows_by_path_go_to_the_table_they_lie_in_whatever_is_called_so_by_then(db):
    strange(db, "p")
    db.checkpoint()
    record, parts = db._parts.site.manifests.newest(), db._parts
    site = replace(parts.site, new_token=iter(["one", "two"]).__next__)
    adopter = Adopter(site, Quarantine(site))

    def renamed_before(**named):
        with db.transaction() as tx:
            tx.rename_table("p", "q")
            tx.create_table("p", KEYED)
        return db.transaction(**named)

    (table,) = [t for t in record.catalog.tables if not t.schemas[0].schema.key]
    adopter.run(table.id, renamed_before, dry_run=False)
    assert (db["p"].count(), db["q"].count()) == (0, 12)


def test_a_table_that_is_renamed_while_the_import_checkpoints_gets_its_rows(db):
    strange(db, "p")
    db["t"].upsert({"id": 1, "v": "b"})
    with contextlib.closing(Meeting()) as meeting, ThreadPoolExecutor(1) as pool:
        failpoints.arm("flush.after_publish=pause", socket=meeting.address)
        done = pool.submit(db.import_external, "p", False)
        held = meeting.expect(done)
        with db.transaction() as tx:
            tx.rename_table("p", "q")
            tx.create_table("p", KEYED)
        failpoints.disarm()
        held.go()
        assert done.result().rows == 2
    assert (db["p"].count(), db["q"].count()) == (0, 12)


def test_two_who_adopt_at_once_commit_each_row_once_and_neither_fails(db):
    for n in range(4):
        strange(db, "p", written=[{"id": 100 + n, "v": "s"}])
    with ThreadPoolExecutor(2) as pool:
        done = [
            each.result()
            for each in [pool.submit(db.import_external, "p", False) for _ in range(2)]
        ]
    assert rows(db["p"])[10:] == [(100 + n, "s") for n in range(4)]
    assert max(each.rows for each in done) <= 4
    assert drift(db) == []


@pytest.mark.parametrize("moment", ["commits", "reads"])
def test_a_version_that_another_one_adopts_or_sets_aside_meanwhile_is_found_again(db, moment):
    strange(db, "p")
    strange(db, "p", written=[{"id": 102, "v": "s"}])
    folder = str(folder_of(db, "p").relative_to(db.path))
    db.checkpoint()
    record, parts = db._parts.site.manifests.newest(), db._parts
    other = [
        lambda: db.import_external("p", dry_run=False),
        lambda: parts.site.tables.names.set_aside(folder, 1),
    ]

    class Meanwhile:
        """External versions, where another one acts before each of two reads."""

        def __getattr__(self, name):
            return getattr(parts.site.tables.external, name)

        def added(self, *given):
            if other and moment == "reads":
                other.pop()()
            return parts.site.tables.external.added(*given)

    def begin(**named):
        if other and moment == "commits":
            other.pop()()
        return db.transaction(**named)

    tokens = (str(n) for n in range(9))
    site = replace(
        parts.site,
        new_token=tokens.__next__,
        tables=replace(parts.site.tables, external=Meanwhile()),
    )
    adopter = Adopter(site, Quarantine(site))
    (table,) = [t for t in record.catalog.tables if not t.schemas[0].schema.key]
    adopter.run(table.id, begin, dry_run=False)
    assert rows(db["p"])[10:] == [(100, "s"), (101, "s"), (102, "s")]
    assert drift(db) == []


def test_what_blocks_an_import_is_moved_away_as_the_message_says_and_then_it_goes(db, tmp_path):
    strange(db, "p")
    folder = folder_of(db, "p")
    lance.dataset(str(folder)).delete("id = 0")  # on top of it, and more on top of that
    strange(db, "p", written=[{"id": 102, "v": "s"}])
    with pytest.raises(RequestError, match="move this file away") as refused:
        db.import_external("p", dry_run=False)
    assert "import again" in str(refused.value)
    assert "through siltstone" in str(refused.value)
    named = db.path / str(refused.value).split(": ")[0]
    shutil.move(named, tmp_path / "moved")
    assert db.import_external("p", dry_run=False).rows == 3
    assert rows(db["p"]) == [*((n, "a") for n in range(10)), *((n, "s") for n in (100, 101, 102))]
    db.vacuum(dry_run=False, grace_s=0)
    assert db.verify(deep=True).findings == ()


def test_a_version_of_ours_that_a_client_tagged_is_no_version_by_path_after_a_vacuum(tmp_path):
    with open_store(tmp_path / "r", real_lance=True, retention_s=0.0) as db:
        db.create_table("p", KEYED)
        for n in range(3):
            seen = lance.write_dataset(
                pa.Table.from_pylist([{"id": n, "v": "a"}]),
                namespace_client=SiltstoneNamespace(db),
                table_id=["p"],
                mode="append",
            )
            db.checkpoint()
            lance.dataset(str(folder_of(db, "p"))).tags.create(f"theirs-{n}", seen.version)
        names = {path: path.read_bytes() for path in folder_of(db, "p").glob("_versions/*")}
        for _ in range(2):
            db.vacuum(dry_run=False, grace_s=0)
        assert drift(db) == []
        assert db.import_external("p", dry_run=False).rows == 0
        for path, manifest in names.items():  # as a copy without links keeps them
            path.write_bytes(manifest)
        assert db.import_external("p", dry_run=False).rows == 0
        assert sorted(db["p"].to_arrow()["id"].to_pylist()) == [0, 1, 2]
