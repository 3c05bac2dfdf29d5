"""In one process the handles of one path share one open store; the last one that goes closes it."""

from __future__ import annotations

import gc
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import siltstone as st
from siltstone.engine.commit.committer import Committer
from siltstone.engine.commit.recent_writes import OpenTransactions
from siltstone.engine.commit.write_set import WriteSet
from siltstone.open import shared
from siltstone.open.parts import Parts
from siltstone.storage.files.files import RealFile
from siltstone.storage.manifest.manifest_store import claim_epoch
from tests.engine.seams import Threads
from tests.support.handles import SCHEMA, dropped, filled, in_a_child, is_owned, settled
from tests.unchanged import SMALL, connect


def test_a_second_connect_is_a_handle_on_the_same_open_store(tmp_path: Path) -> None:
    with filled(tmp_path / "s") as one, connect(tmp_path / "s") as two:
        two["t"].upsert({"id": 7, "v": "y"})
        assert one["t"].get(7) == {"id": 7, "v": "y"}
        assert (one.seq, repr(one)) == (two.seq, repr(two))
        mine = one.transaction()
        mine["t"].insert({"id": 8, "v": "mine"})
        two["t"].upsert({"id": 8, "v": "theirs"})
        with pytest.raises(st.ConflictError):
            mine.commit()
    with connect(tmp_path / "s") as again:
        assert again["t"].get(8) == {"id": 8, "v": "theirs"}


def test_the_last_handle_that_closes_closes_the_store(tmp_path: Path) -> None:
    one, two = filled(tmp_path / "s"), connect(tmp_path / "s")
    one.close()
    one.close()
    assert is_owned(tmp_path / "s")
    assert in_a_child(tmp_path / "s").startswith(f"OwnedError {tmp_path}/s is owned by process")
    assert two["t"].count() == 5
    two.close()
    assert not is_owned(tmp_path / "s")
    assert in_a_child(tmp_path / "s") == "opened\n"
    two.close()
    one.close()


def test_a_closed_handle_ends_what_was_got_from_it_and_nothing_of_another(tmp_path: Path) -> None:
    one, two = filled(tmp_path / "s"), connect(tmp_path / "s")
    table, snapshot, tx = one["t"], one.snapshot(), one.transaction()
    tx["t"].upsert({"id": 9, "v": "never"})
    other_table, other_snapshot, other = two["t"], two.snapshot(), two.transaction()
    one.close()
    uses: list[Callable[[], object]] = [
        one.tables,
        one.transaction,
        one.serve_local,
        one.merge,
        table.count,
        lambda: table.upsert({"id": 1, "v": "z"}),
        snapshot.tables,
        lambda: tx["t"],
        tx.commit,
    ]
    for use in uses:
        with pytest.raises(st.ClosedError, match="closed"):
            use()
    other["t"].upsert({"id": 8, "v": "y"})
    other.commit()
    assert (other_table.count(), other_snapshot["t"].count()) == (6, 5)
    assert two["t"].get(9) is None
    two.close()


def test_names_of_one_directory_are_one_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "s")
    (tmp_path / "aside").mkdir()
    monkeypatch.chdir(tmp_path / "aside")
    with filled(tmp_path / "s") as one:
        for name in ("../s", tmp_path / "link", f"file://{tmp_path}/%73"):
            with connect(name) as two:  # type: ignore[arg-type]
                assert two._parts is one._parts


def test_other_options_are_refused_and_the_error_says_which(tmp_path: Path) -> None:
    with filled(tmp_path / "s") as one:
        with pytest.raises(
            st.OwnedError,
            match=r"open in this process with segment_bytes=65536, not 131072, "
            r"retention_s=604800\.0, not 60\.0; use the same options, or close",
        ) as found:
            connect(tmp_path / "s", segment_bytes=131_072, retention="60s")
        assert found.value.differing == {
            "segment_bytes": (65_536, 131_072),
            "retention_s": (604_800.0, 60.0),
        }
        assert found.value.pid == os.getpid()
        assert pickle.loads(pickle.dumps(found.value)).differing == found.value.differing
        assert one["t"].count() == 5
    with connect(tmp_path / "s", segment_bytes=131_072) as two:
        assert two["t"].count() == 5


def test_options_are_equal_wherever_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(tmp_path / "s") as one:
        for name, value in SMALL.items():
            monkeypatch.setenv(f"SILTSTONE_{name.upper()}", str(value))
        with st.connect(tmp_path / "s", retention="168h") as two:
            assert two._parts is one._parts


# readers, joined handles and servers


def test_a_reader_is_a_handle_of_its_own_beside_an_owner(tmp_path: Path) -> None:
    with filled(tmp_path / "s") as db:
        with connect(tmp_path / "s", read_only=True) as reader:
            assert reader.is_read_only
            assert reader["t"].count() == 5
        reader = connect(tmp_path / "s", read_only=True, retention="1h")
        del reader  # claims nothing that others lack: no warning
        gc.collect()
        settled()
        assert db["t"].count() == 5


def test_who_joins_in_the_owning_process_gets_a_handle_on_its_store(tmp_path: Path) -> None:
    with filled(tmp_path / "s") as db:
        with st.connect(tmp_path / "s", join=True, segment_bytes=1 << 20) as joined:
            assert isinstance(joined, st.Store)
            assert joined._parts is db._parts
            joined["t"].upsert({"id": 7, "v": "y"})
        assert db["t"].count() == 6
        script = "import sys, siltstone as st\nwith st.connect(sys.argv[1], join=True) as db:\n"
        subprocess.run(
            [sys.executable, "-c", script + "    db['t'].delete(7)", str(tmp_path / "s")],
            check=True,
        )
        assert db["t"].count() == 5


def test_a_handle_that_joined_and_was_dropped_closes_what_it_owned(tmp_path: Path) -> None:
    with dropped(tmp_path / "s"):
        db = st.connect(tmp_path / "s", join=True, **SMALL)
        assert db._parts.endpoint is not None
        address = db._parts.endpoint.address
        assert address.exists()
        del db
    assert not is_owned(tmp_path / "s")
    assert not address.exists()


@pytest.mark.parametrize("serve", [lambda db: db.serve_local(), lambda db: db.serve(port=0)])
def test_a_store_that_a_user_serves_stays_open_until_a_handle_closes_it(
    tmp_path: Path, serve: Callable[[st.Store], object]
) -> None:
    db = filled(tmp_path / "s")
    serve(db)
    del db
    gc.collect()
    settled()
    assert is_owned(tmp_path / "s")
    with connect(tmp_path / "s") as again:
        assert again._parts.endpoint is not None or again._parts.service is not None
        assert again["t"].count() == 5
    assert not is_owned(tmp_path / "s")


# what a closed handle leaves


def begun(db: st.Store) -> st.Transaction:
    tx = db.transaction()
    tx["t"].upsert({"id": 9, "v": "never"})
    tx["p"].append([{"id": 9, "v": "never"}])
    return tx


def test_a_handle_that_closes_rolls_back_what_it_has_open_and_nothing_else(tmp_path: Path) -> None:
    one, two = filled(tmp_path / "s"), connect(tmp_path / "s")
    one.create_table("p", SCHEMA)
    mine, other = begun(one), two.transaction()
    other["p"].append([{"id": 8, "v": "y"}])
    jobs = tmp_path / "s" / "jobs"
    assert (two.status().open_transactions, len(list(jobs.iterdir()))) == (2, 2)
    one.close()
    assert (two.status().open_transactions, len(list(jobs.iterdir()))) == (1, 1)
    for use in (mine.commit, lambda: mine["t"], mine.__enter__):
        with pytest.raises(st.ClosedError, match="closed"):
            use()
    mine.rollback()
    other.commit()
    assert (two["t"].count(), two["p"].count()) == (5, 1)
    two.close()
    assert not list(jobs.iterdir())


def test_a_commit_that_is_under_way_goes_on_when_its_handle_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its snapshot stays registered until it is admitted: else a lost update would pass."""
    one, two = filled(tmp_path / "s"), connect(tmp_path / "s")
    tx = one.transaction()
    tx["t"].update(1, v="mine")
    commit, counted = Committer.commit, []

    def after_the_handle_closed(committer: Committer, write_set: WriteSet) -> object:
        if not counted:
            one.close()
            counted.append(two.status().open_transactions)
            two["t"].upsert({"id": 1, "v": "theirs"})
        return commit(committer, write_set)

    monkeypatch.setattr(Committer, "commit", after_the_handle_closed)
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert counted == [1]
    assert two["t"].get(1) == {"id": 1, "v": "theirs"}
    assert two.status().open_transactions == 0
    two.close()


def test_a_transaction_that_begins_while_its_handle_closes_is_refused_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = filled(tmp_path / "s"), connect(tmp_path / "s")
    begin = OpenTransactions.begin

    def after_the_handle_closed(*given: object) -> object:
        one.close()
        return begin(*given)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(OpenTransactions, "begin", after_the_handle_closed)
        with pytest.raises(st.ClosedError):
            one.transaction()
    assert two.status().open_transactions == 0
    two.close()


# stores that cannot be shared any more


def test_a_poisoned_store_is_opened_anew_and_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = filled(tmp_path / "s")

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(RealFile, "pwritev_synced", fails)
        with pytest.raises(st.InDoubtError):
            db["t"].upsert({"id": 7, "v": "y"})
    with pytest.raises(st.PoisonedError):
        db["t"].upsert({"id": 8, "v": "y"})
    with connect(tmp_path / "s") as again:
        assert again._parts is not db._parts
        again["t"].upsert({"id": 8, "v": "y"})
        assert again["t"].get(8) == {"id": 8, "v": "y"}
        with pytest.raises(st.ClosedError, match="opened again in this process"):
            db["t"].count()
        db.close()
        assert again["t"].count() in {6, 7}
        assert is_owned(tmp_path / "s")
    assert not is_owned(tmp_path / "s")


@pytest.mark.parametrize("has_background", [True, False])
def test_a_fenced_store_is_opened_anew_in_its_process(tmp_path: Path, has_background: bool) -> None:
    """Another owner claimed an epoch, as it may where locks are not to be trusted."""
    db = connect(tmp_path / "s", background=has_background)
    db.create_table("t", SCHEMA, "id").upsert({"id": 1, "v": "x"})
    parts = db._parts
    assert parts.owner is not None
    thread = parts.owner.scheduler._thread
    claim_epoch(parts.site.manifests, parts.site.manifests.newest())
    if thread is not None:  # it looks for news, and ends where it meets the other epoch
        thread.join(60)
        assert not thread.is_alive()
    else:
        with pytest.raises(st.FencedError):
            db.checkpoint()
    with connect(tmp_path / "s", background=has_background) as again:
        assert again._parts is not parts
        again["t"].upsert({"id": 2, "v": "y"})
        again.checkpoint()
        assert again["t"].count() == 2
        with pytest.raises(st.ClosedError, match="opened again in this process"):
            db["t"].count()
        db.close()
        assert again["t"].count() == 2
        assert is_owned(tmp_path / "s")
    assert not is_owned(tmp_path / "s")


@pytest.mark.parametrize("is_made_anew", [True, False])
def test_a_store_whose_directory_was_replaced_is_not_handed_out(
    tmp_path: Path, is_made_anew: bool
) -> None:
    db = filled(tmp_path / "s")
    shutil.move(tmp_path / "s", tmp_path / "aside")
    if is_made_anew:
        (tmp_path / "s").mkdir()
    with pytest.raises(st.UnavailableError, match=r"deleted or replaced.*unchanged\.py:"):
        connect(tmp_path / "s")
    shutil.rmtree(tmp_path / "s", ignore_errors=True)
    shutil.move(tmp_path / "aside", tmp_path / "s")
    db.close()
    with connect(tmp_path / "s") as again:
        assert again["t"].count() == 5


# threads and forks


def test_who_connects_while_the_store_closes_waits_and_gets_a_fresh_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, threads = filled(tmp_path / "s"), Threads()
    is_closing, may_close = threading.Event(), threading.Event()
    close = Parts.close

    def slowly(parts: Parts, *ending: object) -> None:
        is_closing.set()
        assert may_close.wait(60)
        close(parts, *ending)

    with monkeypatch.context() as patched:
        patched.setattr(Parts, "close", slowly)
        threads.start(db.close)
        assert is_closing.wait(60)
        with monkeypatch.context() as hasty:
            hasty.setattr(shared, "WAIT_S", 0.01)
            with pytest.raises(st.OwnedError, match=str(os.getpid())):
                connect(tmp_path / "s")
        found: list[st.Store] = []
        threads.start(lambda: found.append(connect(tmp_path / "s")))
        may_close.set()
        threads.join()
    with found[0] as again:
        assert again._parts is not db._parts
        assert again["t"].count() == 5


def test_threads_that_connect_close_and_drop_lose_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "s").close()
    threads, written = Threads(), [0] * 6

    def work(me: int) -> None:
        chance = random.Random(me)
        for step in range(25):
            db = connect(tmp_path / "s")
            db["t"].upsert({"id": 1000 * (me + 1) + step, "v": "x"})
            written[me] += 1
            if chance.random() < 0.7:
                db.close()
            del db

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for me in range(6):
            threads.start(work, me)
        threads.join()
        gc.collect()
        settled()
    assert not is_owned(tmp_path / "s")
    assert tmp_path / "s" not in shared._registry.stores
    with connect(tmp_path / "s") as db:
        assert db["t"].count() == 5 + sum(written) == 155


def test_a_failed_open_leaves_the_path_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "letter.txt").write_text("mine")
    for _ in range(2):
        with pytest.raises(st.RequestError, match="letter"):
            connect(tmp_path / "s")
    (tmp_path / "s" / "letter.txt").unlink()
    filled(tmp_path / "s").close()


@pytest.mark.parametrize(
    ("owner", "step"),
    [(shared, "caller"), (shared.Opened, "open"), (shared.Opened, "core")],
)
def test_ctrl_c_while_a_store_is_opened_leaves_the_path_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, step: str
) -> None:
    filled(tmp_path / "s").close()
    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(owner, step, lambda *_, **__: signal.raise_signal(signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                connect(tmp_path / "s")
        assert tmp_path / "s" not in shared._registry.stores
        assert not is_owned(tmp_path / "s")
        with connect(tmp_path / "s", segment_bytes=131_072) as db:
            assert db["t"].count() == 5


FORKED = """
import os, sys, warnings
warnings.simplefilter("ignore")
import siltstone as st
options = dict(segment_bytes=65536, background=False)
db = st.connect(sys.argv[1], **options)
db.create_table("t", {"id": "int64"}, "id")
kept, lost = st.connect(sys.argv[1], **options), st.connect(sys.argv[1], **options)
child = os.fork()
if child == 0:
    said = []
    for use in (db.tables, kept.tables, lambda: st.connect(sys.argv[1], **options)):
        try: use()
        except st.SiltstoneError as error: said.append(type(error).__name__)
    del lost
    kept.close(); db.close()
    print(*said, flush=True)
    os._exit(0)
os.waitpid(child, 0)
db["t"].upsert({"id": 1})
lost.close(); db.close()
print(kept["t"].count())
kept.close()
"""


def test_a_forked_child_shares_no_store_with_its_parent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path / "s")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "ClosedError ClosedError OwnedError\n1\n"
