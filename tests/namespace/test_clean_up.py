"""Whatever another program cleans up, what a tag, snapshot, retained seq or backup names stays."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import lancedb
import pyarrow as pa
import pytest
from lancedb.namespace import LanceNamespaceDBConnection

import siltstone as st
from siltstone import failpoints
from siltstone.api.store import Store
from siltstone.maintenance.merge import merge
from siltstone.namespace import SiltstoneNamespace
from siltstone.server.rest.tokens import new_token, tokens_of
from tests.races.processes import Meeting

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making

NOW = timedelta(microseconds=1)
"""Older than that is everything; to pylance a timedelta of zero means "not given"."""
CleanUp = Callable[[Store, str], None]


def rest_optimize(**more: Any) -> CleanUp:
    """LanceDB's optimize, by a token that may only write."""

    def clean(db: Store, name: str) -> None:
        token = new_token()
        service = db.serve(port=0, tokens=tokens_of(f"us write {token}", "test"))
        properties = {"uri": service.url, "header.x-api-key": token}
        client = lancedb.connect_namespace("rest", properties)
        client.open_table(name).optimize(cleanup_older_than=timedelta(0), **more)
        service.close()

    return clean


def namespace_optimize(db: Store, name: str) -> None:
    table = LanceNamespaceDBConnection(SiltstoneNamespace(db)).open_table(name)
    table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)


def namespace_clean_up(db: Store, name: str) -> None:
    dataset = lance.dataset(namespace_client=SiltstoneNamespace(db), table_id=[name])
    dataset.cleanup_old_versions(NOW, delete_unverified=True, error_if_tagged_old_versions=False)


def folder_of(db: Store, name: str) -> Path:
    (found,) = Path(db.path, "tables").glob(f"{name}-*")
    return found / "base" if (found / "base").exists() else found


def show(db: Store, name: str) -> None:
    """Let a client commit a version: then all of them have public names."""
    if not db[name].primary_key:
        lance.dataset(namespace_client=SiltstoneNamespace(db), table_id=[name]).delete("id = 77")


def path_clean_up(db: Store, name: str) -> None:
    show(db, name)
    lance.dataset(str(folder_of(db, name))).cleanup_old_versions(
        NOW, delete_unverified=True, error_if_tagged_old_versions=False
    )


def path_optimize(db: Store, name: str) -> None:
    show(db, name)
    folder = folder_of(db, name)
    (folder.parent / "linked.lance").symlink_to(folder)  # LanceDB wants the name to end so
    table = lancedb.connect(folder.parent).open_table("linked")
    table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)
    (folder.parent / "linked.lance").unlink()


CLEAN_UPS = {
    "rest": rest_optimize(),
    "rest, also unverified files": rest_optimize(delete_unverified=True),
    "namespace": namespace_optimize,
    "pylance, namespace": namespace_clean_up,
    "pylance, path": path_clean_up,
}


@pytest.fixture(autouse=True)
def _small_parts_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)  # merges hide rows, of few


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Store]:
    with st.connect(tmp_path / "shop", segment_bytes=65536, background=False) as db:
        yield db


def plain_past(db: Store) -> dict[int, list[int]]:
    """Make a plain table of a few versions; return seq -> ids of all of them."""
    table = db.create_table("t", {"id": "int64", "v": "string"})
    table.append([{"id": n, "v": "x" * 20} for n in range(5)])
    past = {db.seq: [0, 1, 2, 3, 4]}
    db.tag("audit")
    table.delete_where("id = 1")
    past[db.seq] = [0, 2, 3, 4]
    table.append([{"id": 9, "v": "y"}])
    past[db.seq] = [0, 2, 3, 4, 9]
    lance.dataset(namespace_client=SiltstoneNamespace(db), table_id=["t"]).delete("id = 2")
    past[db.seq] = [0, 3, 4, 9]
    table.append([{"id": 10, "v": "z"}])
    past[db.seq] = [0, 3, 4, 9, 10]
    return past


def keyed_past(db: Store) -> dict[int, list[int]]:
    table = db.create_table("t", {"id": "int64", "v": "string"}, "id")
    table.upsert([{"id": n, "v": "x"} for n in range(30)])
    past = {db.seq: list(range(30))}
    db.tag("audit")
    fold(db)
    for gone in (3, 4):  # hidden in the one part: with a second one LanceDB's optimize is refused
        table.delete({"id": gone})
        past[db.seq] = [*range(3), *range(gone + 1, 30)]
        fold(db)
    assert len(deletion_files(db)) == 2
    return past


def deletion_files(db: Store) -> list[Path]:
    return [*(folder_of(db, "t") / "_deletions").glob("*")]


def fold(db: Store) -> None:
    db.checkpoint()
    db.merge()


def read(space: Any) -> list[Any]:
    """Return the ids that a client finds which opens the files itself."""
    found = lance.dataset(namespace_client=space, table_id=["t"])
    return sorted(found.to_table().to_pydict()["id"])


def ids(table: Any) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def check(db: Store, past: dict[int, list[int]], backup: Path) -> None:
    for seq, expected in past.items():
        with db.snapshot(seq=seq) as then:
            assert ids(then["t"]) == expected, f"at seq {seq}"
    with db.snapshot(tag="audit") as then:
        assert ids(then["t"]) == past[min(past)]
    assert ids(db["t"]) == past[max(past)]
    db.backup(backup)
    st.restore(backup, backup.with_suffix(".restored"))
    with st.connect(backup.with_suffix(".restored"), read_only=True) as other:
        assert ids(other["t"]) == past[max(past)]
        with other.snapshot(tag="audit") as then:
            assert ids(then["t"]) == past[min(past)]
    found = db.verify(deep=True)
    assert found.is_sound, str(found)


@pytest.mark.parametrize("make", [plain_past, keyed_past])
@pytest.mark.parametrize("way", CLEAN_UPS)
def test_all_that_the_store_retains_is_read_after_a_clean_up(
    db: Store, tmp_path: Path, way: str, make: Callable[[Store], dict[int, list[int]]]
) -> None:
    past = make(db)
    with db.snapshot() as before:
        CLEAN_UPS[way](db, "t")
        assert ids(before["t"]) == past[max(past)]
        check(db, past, tmp_path / "backup")
    db.close()
    with st.connect(tmp_path / "shop", segment_bytes=65536, background=False) as again:
        CLEAN_UPS[way](again, "t")
        check(again, past, tmp_path / "second")
        with again.transaction() as tx:
            row = {"id": 50, "v": ""}
            tx["t"].upsert(row) if again["t"].primary_key else tx["t"].append([row])
        assert 50 in ids(again["t"])


@pytest.mark.parametrize("way", ["rest, also unverified files", "namespace"])
def test_a_compaction_of_a_keyed_table_by_a_client_is_refused_and_nothing_is_lost(
    db: Store, tmp_path: Path, way: str
) -> None:
    past = keyed_past(db)
    db["t"].upsert([{"id": 5, "v": "y"}])
    past[db.seq] = past[max(past)]
    fold(db)
    with pytest.raises(RuntimeError, match=r"version \d is unknown"):
        CLEAN_UPS[way](db, "t")
    check(db, past, tmp_path / "backup")
    assert db["t"].get(5) == {"id": 5, "v": "y"}


READER = """
import sys
import siltstone as st
with st.connect(sys.argv[1], read_only=True) as db, db.snapshot(seq=int(sys.argv[2])) as then:
    print(flush=True)
    sys.stdin.readline()
    print(sorted(then["t"].to_arrow()["id"].to_pylist()), flush=True)
"""


TASKS = """
import pickle, sys
tasks = pickle.load(sys.stdin.buffer)
print(sorted(id for task in tasks for batch in task.read() for id in batch["id"].to_pylist()))
"""


def test_another_process_reads_on_at_its_snapshot(db: Store) -> None:
    past = plain_past(db)
    seq = min(past)
    arguments = [sys.executable, "-c", READER, str(db.path), str(seq)]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdout.readline()
        path_clean_up(db, "t")
        reader.stdin.write("\n")
        reader.stdin.flush()
        assert reader.stdout.readline().strip() == str(past[seq])


@pytest.mark.parametrize("way", ["rest, also unverified files", "pylance, namespace"])
def test_clients_go_on_after_a_clean_up_and_find_the_newest_version(db: Store, way: str) -> None:
    past = plain_past(db)
    space = SiltstoneNamespace(db)
    CLEAN_UPS[way](db, "t")
    with space.at(tag="audit") as then:
        assert read(then) == past[min(past)]
    assert read(space) == past[max(past)]
    found = lance.dataset(namespace_client=space, table_id=["t"])
    found.insert(pa.table({"id": [60], "v": [""]}))
    found.delete("id = 0")
    assert ids(db["t"]) == sorted([*set(past[max(past)]) - {0}, 60])
    assert found.tags.list() == {}


def test_an_optimize_by_path_takes_nothing_from_the_store(db: Store, tmp_path: Path) -> None:
    past = plain_past(db)
    with db.snapshot() as before:
        path_optimize(db, "t")
        assert ids(before["t"]) == past[max(past)]
    for seq, expected in past.items():
        with db.snapshot(seq=seq) as then:
            assert ids(then["t"]) == expected, f"at seq {seq}"
    db.backup(tmp_path / "backup")


def test_rows_that_a_transaction_has_staged_survive_a_clean_up_of_all_that_nobody_names(
    db: Store,
) -> None:
    past = plain_past(db)
    with db.transaction() as tx:
        tx["t"].append([{"id": 70, "v": "staged"}])
        lance.dataset(str(folder_of(db, "t"))).cleanup_old_versions(
            NOW, delete_unverified=True, error_if_tagged_old_versions=False
        )
        assert ids(tx["t"]) == [*past[max(past)], 70]
    assert ids(db["t"]) == [*past[max(past)], 70]


def test_a_backup_goes_on_while_others_clean_up(db: Store, tmp_path: Path) -> None:
    """At each stop of a backup a client deletes all that Lance would delete of both tables."""
    past = plain_past(db)
    db.create_table("k", {"id": "int64"}, "id")
    db["k"].upsert([{"id": 1}])
    db.checkpoint()
    db.merge()
    with contextlib.closing(Meeting()) as meeting, ThreadPoolExecutor(1) as pool:
        for stop in ("backup.after_plan", "backup.after_copy", "backup.before_publish"):
            failpoints.arm(f"{stop}=pause", socket=meeting.address)
            newest = ids(db["t"])
            done = pool.submit(db.backup, tmp_path / stop)
            held = meeting.expect(done)
            failpoints.disarm()
            for name in "tk":
                path_clean_up(db, name)
            db["t"].append([{"id": 40, "v": "later"}])
            held.go()
            done.result()
            st.restore(tmp_path / stop, tmp_path / f"{stop}.restored")
            with st.connect(tmp_path / f"{stop}.restored", background=False) as other:
                assert other.verify(deep=True).findings == ()
                with other.snapshot(tag="audit") as then:
                    assert ids(then["t"]) == past[min(past)], stop
                assert (ids(other["t"]), ids(other["k"])) == (newest, [1]), stop


def test_tasks_of_a_scan_are_read_after_a_clean_up_by_another_process(db: Store) -> None:
    past = plain_past(db)
    with db.snapshot(tag="audit") as then:
        tasks = then.scan_tasks("t")
    path_clean_up(db, "t")
    found = subprocess.run(
        [sys.executable, "-c", TASKS], input=pickle.dumps(tasks), capture_output=True, check=True
    )
    assert found.stdout.decode().strip() == str(past[min(past)])
