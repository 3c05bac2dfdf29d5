"""The endpoint: a private socket, named in LOCK, that refuses what is wrong and changes nothing."""

from __future__ import annotations

import json
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.joined.address import address_of
from siltstone.joined.connection import Message
from siltstone.joined.frames.connection import FrameOwnerConnection
from siltstone.joined.store import JoinedStore
from siltstone.joined.targets import SocketTarget
from siltstone.joined.values import decode, encode
from siltstone.server.rpc.server import rpc_policy
from siltstone.server.sessions import Sessions
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.ownership import read_holder
from tests.server.stores import asking, endpoint_of, opened, served

Both = tuple[st.Store, JoinedStore]


def test_the_socket_is_private_and_named_in_lock_until_the_store_closes(tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as owner:
        address = owner.serve_local()
        assert owner.serve_local() == address
        assert stat.S_ISSOCK(address.lstat().st_mode)
        assert stat.S_IMODE(address.lstat().st_mode) == 0o600
        assert stat.S_IMODE(address.parent.lstat().st_mode) == 0o700
        holder = read_holder(RealFiles(), owner.path)
        assert holder.endpoint == str(address)
        assert holder.epoch == owner.status().epoch
    assert not address.exists()
    assert read_holder(RealFiles(), tmp_path / "shop").endpoint is None


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path leaves room in the 107 bytes of a socket's, wherever tests run."""
    with tempfile.TemporaryDirectory(prefix="s-") as path:
        yield Path(path)


def test_a_runtime_directory_that_is_too_long_or_not_ours_alone_is_passed_over(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = short_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    assert not str(address_of((1, 2))).startswith(str(long))
    open_to_all = short_path / "runtime"
    (open_to_all / "siltstone").mkdir(parents=True, mode=0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(open_to_all))
    assert not str(address_of((1, 2))).startswith(str(open_to_all))
    (open_to_all / "siltstone").chmod(0o700)
    assert str(address_of((1, 2))).startswith(str(open_to_all))


def test_a_link_in_place_of_the_directory_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "siltstone").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert not str(address_of((1, 2))).startswith(str(tmp_path))


def test_another_store_has_another_socket(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as one, opened(tmp_path / "b") as two:
        address = one.serve_local()
        assert two.serve_local() != address
        with pytest.raises(st.UnavailableError, match="serves"):
            JoinedStore(tmp_path / "b", str(address))


def test_a_read_only_store_does_not_serve(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "shop"),
        st.connect(tmp_path / "shop", read_only=True) as reader,
        pytest.raises(st.ReadOnlyError),
    ):
        reader.serve_local()
    with pytest.raises(st.RequestError, match="exclude"):
        st.connect(tmp_path / "shop", read_only=True, join=True)


def test_another_user_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as owner:
        address = tmp_path / "s.sock"
        with (
            endpoint_of(owner, address, user=12345),
            pytest.raises(st.RequestError, match="served to user 12345"),
        ):
            JoinedStore(owner.path, str(address))


def test_too_many_connections_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as owner:
        ids = iter(f"1-{number}" for number in range(1000, 2000))
        sessions = Sessions(lambda: next(ids), connections_max=2)
        with endpoint_of(owner, tmp_path / "s.sock", sessions=sessions):
            joined = JoinedStore(owner.path, str(tmp_path / "s.sock"))
            past = [joined.snapshot(), joined.snapshot()]
            with pytest.raises(st.BusyError, match="2 connections"):
                joined.tables()
            past.pop().close()
            joined.close()


def test_a_request_that_is_too_large_is_refused_on_both_sides(tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as owner:
        owner.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        address = tmp_path / "s.sock"
        with endpoint_of(owner, address, policy=rpc_policy(body_bytes_max=4096)):
            joined = JoinedStore(owner.path, str(address))
            table = joined["t"]
            for rows in (
                {"id": 1, "v": "x" * 5000},
                pa.table({"id": [1], "v": ["x" * 5000]}),
                pa.table({"id": range(5000)}),
            ):
                with pytest.raises(st.RequestError, match="at most 4096 bytes"):
                    table.upsert(rows)
            joined.pool.hello["body_bytes_max"] = 10**6  # a client that does not keep to it
            with pytest.raises(st.SiltstoneError):
                table.upsert({"id": 1, "v": "x" * 5000})
            joined.close()
        assert owner["t"].count() == 0


def test_too_many_requests_at_once_are_refused_and_may_be_tried_again(tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as owner:
        address = tmp_path / "s.sock"
        full = rpc_policy(requests_max=0)
        with endpoint_of(owner, address, policy=full), pytest.raises(st.BusyError):
            JoinedStore(owner.path, str(address))
        with endpoint_of(owner, address) as endpoint:
            joined = JoinedStore(owner.path, str(address))
            tx = joined.transaction()
            made = tx.create_table("t", {"id": "int64"}, "id")
            endpoint.pipeline.policy = full
            with pytest.raises(st.BusyError, match="try again later"):
                made.insert({"id": 1})
            endpoint.pipeline.policy = rpc_policy()
            made.insert({"id": 1})  # the transaction goes on
            tx.commit()
            joined.close()
        assert owner["t"].count() == 1


def asked(address: Path, path: str, body: bytes = b"", kind: str = "") -> tuple[int, bytes]:
    connection = FrameOwnerConnection(SocketTarget(str(address)), 10)
    connection.connect()
    try:
        connection.send(Message(path, body, kind))
        status, _, found = connection.next_frame()
        return status, bytes(found)
    finally:
        connection.close()


VALUES = "application/vnd.msgpack"
ROWS = "application/vnd.apache.arrow.stream"
MALFORMED = [
    ("no such route", "nothing/at/all/here", b"", VALUES),
    ("no such method", "tables", b"", ""),
    ("no such verb", "close", b"", VALUES),
    ("a private verb", "__init__", b"", VALUES),
    ("no such verb of a table", "table/1/_run", b"", VALUES),
    ("a table by name", "table/t/truncate", b"", VALUES),
    ("a table that is none", "table/99/truncate", b"", VALUES),
    ("a body that is no message", "table/1/truncate", b"\xc1", VALUES),
    ("a message that is no call", "table/1/truncate", encode({"x": 1}), VALUES),
    ("arguments that do not fit", "table/1/truncate", encode([[1, 2], {}]), VALUES),
    ("names that do not fit", "table/1/truncate", encode([[], {"x": 1}]), VALUES),
    ("rows that are none", "table/1/upsert", b"rows", ROWS),
    ("rows that break off", "table/1/upsert", b"\xff\xff\xff\xff\x10\0\0\0", ROWS),
    ("a transaction that is none", "transaction/7-7/commit", b"", VALUES),
    ("a verb of no transaction", "transaction/7-7/alter", b"", VALUES),
    ("a snapshot that is none", "snapshot/s7/tables", b"", VALUES),
    ("options that are none", "transaction/begin", encode([[], {"x": 1}]), VALUES),
    ("a moment that is none", "snapshot/open", encode([[], {"at": "x"}]), VALUES),
]


@pytest.mark.parametrize("wrong", MALFORMED, ids=lambda wrong: wrong[0])
def test_a_malformed_request_is_refused_in_words(both: Both, wrong: tuple) -> None:
    owner, _ = both
    seq = owner.seq
    status, body = asked(owner.serve_local(), *wrong[1:])
    found = json.loads(body)
    assert 400 <= status < 500, found
    assert found["code"] == status
    assert found["error"]
    assert found["type"].endswith("Error")
    assert owner.seq == seq
    assert owner["t"].count() == 2


def test_who_answers_says_so_in_words(both: Both) -> None:
    owner, _ = both
    status, body = asked(owner.serve_local(), "hello")
    assert status == 200
    assert decode(body)["path"] == str(owner.path)


def test_an_owner_without_the_extra_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "siltstone.server.rpc.server", None)
    with opened(tmp_path / "shop") as owner:
        with pytest.raises(st.UnavailableError, match=r"siltstone\[server\]"):
            owner.serve_local()
        assert read_holder(RealFiles(), owner.path).endpoint is None
    with pytest.warns(RuntimeWarning, match=r"no other process can join.*siltstone\[server\]"):
        alone = st.connect(tmp_path / "shop", join=True)
    with alone:
        assert alone.tables() == []


@asking
def test_closing_the_store_rolls_back_what_is_open_in_joined_processes(tmp_path: Path) -> None:
    with served(tmp_path / "shop") as (owner, joined):
        owner.create_table("t", {"id": "int64"}, primary_key="id")
        tx = joined.transaction()
        tx["t"].insert({"id": 1})
        owner.close()
        with pytest.raises(st.UnavailableError):
            tx.commit()
        with pytest.raises(st.UnavailableError):
            joined.tables()
    with opened(tmp_path / "shop") as db:
        assert db["t"].count() == 0
