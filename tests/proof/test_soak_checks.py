"""What the soak checks, it notices: each check fails where its violation is planted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from lance_namespace.errors import InternalError

import siltstone as st
from proof.isolation import clients
from proof.soak import acknowledged, bank, players, stock
from proof.soak.acknowledged import Acknowledged
from proof.soak.crew import Member, MemberError
from proof.soak.post import Post
from proof.soak.soak import QUIET, Soak, SoakError
from tests.isolation.stores import opened
from tests.support.simulated_files import SimFiles


@pytest.fixture
def known(tmp_path: Path) -> Acknowledged:
    path = tmp_path / "acknowledged"
    path.write_text("0 0 11\n1 0 12\n0 1 13\n")
    found = Acknowledged(path)
    found.read_on()
    return found


def test_what_was_acknowledged_and_is_there_is_right(known: Acknowledged) -> None:
    known.check({0: 0, 1: 0}, 12)
    known.check({0: 1, 1: 4}, 20)
    assert known.newest_seq == 13


def test_a_lost_commit_is_noticed(known: Acknowledged) -> None:
    with pytest.raises(AssertionError, match="writer 0: 1 is lost"):
        known.check({0: 0, 1: 0}, 13)


def test_a_commit_that_is_there_before_its_seq_is_noticed(known: Acknowledged) -> None:
    with pytest.raises(AssertionError, match="writer 0: 1 of seq 13 is there at 12"):
        known.check({0: 1, 1: 0}, 12)


def test_only_whole_lines_are_read_and_later_ones_later(tmp_path: Path) -> None:
    path = tmp_path / "acknowledged"
    path.write_text("0 0 11\n0 1")
    known = Acknowledged(path)
    known.read_on()
    assert known.newest_seq == 11
    with path.open("ab") as file:
        file.write(b" 12\n")
        file.flush()
        known.read_on()
        assert known.newest_seq == 12
        acknowledged.note(file.fileno(), 0, 2, 14)
    known.read_on()
    assert known.newest_seq == 14


@pytest.fixture
def db() -> st.Store:
    found = opened(SimFiles())
    bank.create(found)
    for n in range(60):
        bank.transfer(found, n % 2, n // 2, bank.random.Random(n))
    return found


def test_a_bank_that_nobody_touched_is_right(db: st.Store, tmp_path: Path) -> None:
    with db.snapshot() as snapshot:
        last = bank.check(snapshot)
        bank.check_filters(snapshot, last)
    assert last == {0: 29, 1: 29, 2: -1, 3: -1}
    bank.tag(db, "then", tmp_path / "tagged")
    (noted,) = bank.tagged(tmp_path / "tagged")
    bank.transfer(db, 2, 0, bank.random.Random(1))
    assert bank.is_at_tag(db, noted)
    db.tag("then")
    with pytest.raises(AssertionError):
        bank.is_at_tag(db, noted)
    db.untag("then")
    assert not bank.is_at_tag(db, noted)


def test_a_cent_more_is_noticed(db: st.Store) -> None:
    db["accounts"].upsert({"id": 0, "balance": 1_000_000})
    with db.snapshot() as snapshot, pytest.raises(AssertionError, match="seq"):
        bank.check(snapshot)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("stamps", {"writer": 0, "slot": 3, "n": 3, "text": "another"}),
        ("stamps", {"writer": 0, "slot": 49, "n": 49, "text": bank.text(0, 49)}),
    ],
)
def test_a_stamp_of_somebody_else_is_noticed(db: st.Store, name: str, row: dict) -> None:
    db[name].upsert(row)
    with db.snapshot() as snapshot, pytest.raises(AssertionError):
        bank.check(snapshot)


def test_a_deleted_stamp_is_noticed(db: st.Store) -> None:
    db["stamps"].delete((1, 1))
    with db.snapshot() as snapshot, pytest.raises(AssertionError):
        bank.check(snapshot)


def test_rows_of_a_stock_client_are_noticed_if_lost_or_there_twice() -> None:
    rows = [{"client": 1, "n": 1}, {"client": 1, "n": 2}]
    stock.check(rows, {(1, 1)})
    with pytest.raises(AssertionError, match="lost"):
        stock.check(rows, {(1, 3)})
    with pytest.raises(AssertionError, match="twice"):
        stock.check([*rows, rows[0]], {(1, 1)})


def test_a_server_that_failed_is_noticed_and_one_that_is_gone_is_not() -> None:
    gone = "Internal error: Failed to execute request: reqwest::Error { kind: Request, .. }"
    stock.require_foreseen(InternalError(gone))
    stock.require_foreseen(OSError("Concurrent modification: beaten"))
    with pytest.raises(AssertionError, match="request 7"):
        stock.require_foreseen(
            InternalError("Internal error: the server failed; its log has request 7")
        )


def test_a_pair_with_two_rows_is_a_phantom(db: st.Store) -> None:
    clients.create(db)
    db["pairs"].insert([{"id": n, "pair": n} for n in range(3)])
    assert clients.crowded_pairs(db) == []
    db["pairs"].insert({"id": 7, "pair": 2})
    assert clients.crowded_pairs(db) == ["phantom: pair 2 is there twice"]


def test_a_file_that_nothing_needs_is_a_leak(tmp_path: Path) -> None:
    soak = Soak(tmp_path, 1, roles=())
    soak._check()
    garbage = next((tmp_path / "bank" / "tables").glob("*/base")) / "data" / "left.lance"
    garbage.parent.mkdir(exist_ok=True)
    with players.own(tmp_path / "bank", **QUIET) as db:
        garbage.write_bytes(b"left")
        with pytest.raises(AssertionError, match=r"left\.lance"):
            soak._check_leaks(db)


def test_a_process_that_fails_ends_the_soak_with_its_words_and_what_repeats_it(
    tmp_path: Path,
) -> None:
    soak = Soak(tmp_path, 5, roles=("nobody",))
    with pytest.raises(
        SoakError, match=r"KeyError: 'nobody'(.|\n)*python -m proof.soak .*--seed 5"
    ):
        soak.run(60)


@pytest.fixture
def dead(tmp_path: Path) -> Member:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    post = Post("owner", str(tmp_path), seed=1, number=1, run=1, begun=0.0)
    return Member(post, process, tmp_path / "1-owner.err", point=None)


@pytest.mark.parametrize(
    "said",
    [
        "Exception in thread x:\nTraceback (most recent call last):\n  File 'x'\nKeyError: 1\n",
        "background work stops: fenced by epoch 3\n",
        "thread 'lance' panicked at src/lib.rs:1:\n",
        "merge of t failed and will be retried later: CorruptionError: data/x.lance\n",
        "background work failed and will be retried: KeyError: 'x'\n",
    ],
)
def test_an_alarm_of_a_process_that_carried_on_or_was_killed_is_noticed(
    dead: Member, said: str
) -> None:
    dead.errors.write_text(f"a warning\n{said}")
    with pytest.raises(MemberError) as raised:
        dead.said()
    assert said in str(raised.value)


def test_what_lance_says_of_a_killed_server_is_no_alarm(dead: Member) -> None:
    dead.errors.write_text(
        "[2026-11-22T07:50:20Z WARN  lance::io::commit] Could not verify: ConnectError(refused)\n"
    )
    assert dead.said() == {"lance::io::commit": 1}


def test_warnings_are_counted_without_what_varies_in_them(dead: Member) -> None:
    dead.errors.write_text(
        "merge of t failed and will be retried later: no\n"
        "merge of t failed and will be retried later: 7\n"
        "request 3f2a-99 was refused: no\n"
    )
    assert dead.said() == {
        "merge of t failed and will be retried later": 2,
        "request # was refused": 1,
    }
