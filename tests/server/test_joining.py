"""Who joins waits by what the owner is at, not by a time: it is told at once, or it gets in."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import siltstone as st
from siltstone.errors import OwnedError
from siltstone.joined import joining
from siltstone.joined.store import JoinedStore
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.ownership import Holder, own, read_holder
from tests.server.stores import opened


class Time:
    """A clock that goes ten seconds with every pause."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses = 0
        self.at_pause: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _: float) -> None:
        self.now += 10
        self.pauses += 1
        self.at_pause()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(joining, "time", found)
    return found


SLOW = """
import sys
import siltstone as st
from siltstone.local.store import LocalStore

serve = LocalStore.serve_local

def slowly(store):
    print("open", flush=True)
    sys.stdin.readline()
    return serve(store)

LocalStore.serve_local = slowly
with st.connect(sys.argv[1], join=True):
    print("serves", flush=True)
    sys.stdin.read()
"""


def test_an_owner_that_joined_first_and_is_slow_to_serve_is_waited_for(
    tmp_path: Path, time: Time
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, str(tmp_path / "s")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        assert owner.stdout.readline() == "open\n"

        def served_at_last() -> None:
            if time.pauses == 5:
                owner.stdin.write("\n")
                owner.stdin.flush()
                assert owner.stdout.readline() == "serves\n"

        time.at_pause = served_at_last
        with st.connect(tmp_path / "s", join=True) as db:
            assert isinstance(db, JoinedStore)
            assert time.pauses >= 5
        owner.stdin.close()


def test_an_owner_that_does_not_serve_is_told_after_two_looks(tmp_path: Path, time: Time) -> None:
    (tmp_path / "s").mkdir()
    ownership = own(RealFiles(), tmp_path / "s")
    ownership.announce(epoch=3)
    with pytest.raises(OwnedError, match=r"serve_local\(\)"):
        st.connect(tmp_path / "s", join=True)
    ownership.release()
    assert time.pauses == 1


def test_an_owner_that_opens_is_waited_for_and_then_told(tmp_path: Path, time: Time) -> None:
    (tmp_path / "s").mkdir()
    ownership = own(RealFiles(), tmp_path / "s")
    time.at_pause = lambda: time.pauses == 5 and ownership.announce(epoch=3)
    with pytest.raises(OwnedError):
        st.connect(tmp_path / "s", join=True)
    ownership.release()
    assert time.pauses >= 6


def test_an_owner_that_ends_while_it_is_waited_for_leaves_the_store(
    tmp_path: Path, time: Time
) -> None:
    (tmp_path / "s").mkdir()
    ownership = own(RealFiles(), tmp_path / "s")
    time.at_pause = lambda: time.pauses == 5 and ownership.release()
    with st.connect(tmp_path / "s", join=True) as db:
        assert isinstance(db, st.Store)


def test_the_wait_for_an_owner_has_a_bound_that_can_be_told(tmp_path: Path, time: Time) -> None:
    (tmp_path / "s").mkdir()
    ownership = own(RealFiles(), tmp_path / "s")
    with pytest.raises(st.BusyError, match=r"recovers the log.*30") as caught:
        st.connect(tmp_path / "s", join=True, join_timeout_s=30)
    assert f"process {os.getpid()}" in str(caught.value)
    assert time.pauses == 3
    ownership.release()


def test_an_owner_that_does_not_say_who_it_is_is_named_so(tmp_path: Path, time: Time) -> None:
    (tmp_path / "s").mkdir()
    ownership = own(RealFiles(), tmp_path / "s")
    ownership._write(Holder())
    with pytest.raises(st.BusyError, match="does not say in LOCK which") as caught:
        st.connect(tmp_path / "s", join=True, join_timeout_s=30)
    assert "None" not in str(caught.value)
    ownership.release()


def test_what_a_killed_owner_left_in_lock_is_no_refusal(tmp_path: Path, time: Time) -> None:
    """The next owner has the lock, and has not said so yet."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    (tmp_path / "s").mkdir()
    ownership = own(RealFiles(), tmp_path / "s")
    ownership._write(Holder(child, platform.node(), 4, None, serves=False))
    time.at_pause = lambda: time.pauses == 5 and ownership.announce(epoch=5)
    with pytest.raises(OwnedError):
        st.connect(tmp_path / "s", join=True)
    ownership.release()
    assert time.pauses >= 6


def test_lock_says_whether_its_owner_will_serve(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as db:
        assert read_holder(RealFiles(), tmp_path / "s").serves is False
        db.serve_local()
        assert read_holder(RealFiles(), tmp_path / "s").serves is True
    with st.connect(tmp_path / "s", join=True):
        assert read_holder(RealFiles(), tmp_path / "s").serves is True


SERVES = """
import sys
import siltstone as st

with st.connect(sys.argv[1]) as db:
    db.create_table("t", {"id": "int64"}, "id")
    db.serve(port=0)
    print("serves", flush=True)
    sys.stdin.read()
"""


def test_an_owner_that_serves_by_its_url_alone_is_joined_there(tmp_path: Path, time: Time) -> None:
    command = [sys.executable, "-c", SERVES, str(tmp_path / "s")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        assert owner.stdout.readline() == "serves\n"
        with st.connect(tmp_path / "s", join=True) as db:
            db["t"].upsert({"id": 1})
            assert db["t"].count() == 1
        owner.stdin.close()
    assert time.pauses == 0
