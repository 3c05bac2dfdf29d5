"""A store behind a URL has the faces of a store: transactions, snapshots, the same errors."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.joined.store import JoinedStore
from siltstone.server.rest.server import RestServer
from siltstone.server.rest.tokens import Role, new_token, tokens_of
from tests.server.rest import rest_of
from tests.server.stores import eventually, joined_to

SECRETS = {role: new_token() for role in (Role.READ, Role.WRITE, Role.ADMIN)}
TOKENS = tokens_of(";".join(f"{r.name} {r.name} {s}" for r, s in SECRETS.items()), "test")
Both = tuple[st.Store, RestServer, st.Store]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    with rest_of(tmp_path / "shop", tokens=TOKENS) as (db, service, _):
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        db["t"].upsert([{"id": 1, "v": 10}])
        with st.connect(service.url, token=SECRETS[Role.ADMIN]) as remote:
            yield db, service, remote


def test_it_reads_writes_and_commits_as_a_store_does(both: Both) -> None:
    db, _, remote = both
    assert isinstance(remote, JoinedStore)
    remote.create_table("p", {"id": "int64"})
    with remote.transaction() as tx:
        tx["t"].update(1, v=11)
        tx["p"].append([{"id": 5}])
        assert tx["t"].get(1) == {"id": 1, "v": 11}
        assert remote["t"].get(1) == {"id": 1, "v": 10}
    assert tx.seq == db.seq == remote.seq
    with remote.snapshot(seq=tx.seq - 1) as past:
        assert past["t"].get(1) == {"id": 1, "v": 10}
        assert past["p"].count() == 0
    rows = pa.table({"id": range(100_000), "v": range(100_000)})
    assert remote["t"].upsert(rows).rows == 100_000
    assert remote["t"].scan(filter="v < 50000").read_all().num_rows == 50_000
    assert remote["t"].count() == db["t"].count() == 100_000
    assert remote.status().visible_seq == db.seq


def test_errors_are_the_ones_of_the_owner(both: Both) -> None:
    db, _, remote = both
    with pytest.raises(st.TableNotFoundError):
        _ = remote["none"]
    with pytest.raises(st.DuplicateKeyError) as caught:
        remote["t"].insert([{"id": 1, "v": 0}])
    assert caught.value.key == 1
    first = remote.transaction()
    first["t"].update(1, v=1)
    db["t"].update(1, v=2)
    with pytest.raises(st.ConflictError) as conflict:
        first.commit()
    assert conflict.value.table == "t"


def test_a_transaction_ends_with_its_connection(both: Both) -> None:
    db, service, remote = both
    with st.connect(service.url, token=SECRETS[Role.WRITE]) as other:
        tx = other.transaction()
        tx["t"].upsert([{"id": 2, "v": 2}])
        assert db.status().open_transactions == 1
    eventually(lambda: db.status().open_transactions == 0)
    assert remote["t"].count() == 1


def test_a_token_opens_what_its_role_allows(both: Both) -> None:
    db, service, _ = both
    with st.connect(service.url, token=SECRETS[Role.READ]) as reader:
        assert reader["t"].count() == 1
        with pytest.raises(st.AccessError, match="needs write"):
            reader["t"].upsert([{"id": 3, "v": 3}])
        with reader.transaction() as tx:
            assert tx["t"].count() == 1
            with pytest.raises(st.AccessError, match="needs write"):
                tx["t"].upsert([{"id": 3, "v": 3}])
            tx.rollback()
    with (
        st.connect(service.url, token=SECRETS[Role.WRITE]) as writer,
        pytest.raises(st.AccessError, match="needs admin"),
    ):
        writer.vacuum()
    for token in (None, new_token()):
        with pytest.raises(st.AccessError, match="token") as caught:
            st.connect(service.url, token=token)
        assert caught.value.status == 401
    assert db["t"].count() == 1


def test_a_client_that_reads_is_told_the_id_of_a_table_at_a_snapshot(both: Both) -> None:
    db, service, _ = both
    with st.connect(service.url, token=SECRETS[Role.READ]) as reader, reader.snapshot() as past:
        assert past["t"].id == db["t"].id == reader["t"].id


def test_a_client_that_writes_is_told_whether_its_token_was_applied(both: Both) -> None:
    _, service, _ = both
    with st.connect(service.url, token=SECRETS[Role.WRITE]) as writer:
        for is_applied in (False, True):
            with writer.transaction(token=("app", 1)) as tx:
                tx["t"].upsert([{"id": 2, "v": 2}])
                assert tx.is_applied is is_applied


@pytest.mark.parametrize("at", ["", "table/1/", "transaction/t1/", "snapshot/s1/"])
def test_an_operation_that_does_not_exist_needs_the_highest_role(both: Both, at: str) -> None:
    _, service, remote = both
    unknown = remote.pool.message(f"{at}explode")
    with pytest.raises(st.RequestError, match="has no 'explode'; it has"):
        remote.pool.ask(unknown)
    with (
        st.connect(service.url, token=SECRETS[Role.WRITE]) as writer,
        pytest.raises(st.AccessError, match="needs admin"),
    ):
        writer.pool.ask(unknown)


def test_what_needs_the_files_says_so_where_they_are_not(both: Both, tmp_path: Path) -> None:
    _, _, remote = both
    assert pickle.loads(pickle.dumps(remote)).is_read_only
    remote.path = tmp_path / "elsewhere"
    with pytest.raises(st.RequestError, match="must be on this machine"):
        remote.backup(tmp_path / "copy")
    with pytest.raises(st.RequestError, match="must be on this machine"):
        remote.repair()
    with pytest.raises(st.RequestError, match="must be on this machine"):
        pickle.dumps(remote)


@pytest.mark.parametrize(
    "url", ["http://", "http://h:x", "http://u:p@h", "http://h/path", "https://h?q=1"]
)
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(st.RequestError):
        st.connect(url)


def test_a_server_that_is_not_there_is_unavailable(both: Both) -> None:
    with pytest.raises(st.UnavailableError):
        st.connect("http://127.0.0.1:1")
    with pytest.raises(st.RequestError, match="options of a store's owner"):
        st.connect(both[1].url, retention="7d")


def test_the_token_is_in_no_representation_and_no_error(both: Both) -> None:
    _, service, remote = both
    secret = SECRETS[Role.ADMIN]
    assert secret not in repr(remote)
    assert secret not in repr(remote.pool.target)
    service.close()
    with pytest.raises(st.UnavailableError) as caught:
        remote.tables()
    assert secret not in str(caught.value)


def test_a_body_that_grows_a_thousandfold_is_refused_before_it_is_decompressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from siltstone.joined import values

    monkeypatch.setattr(values, "DECOMPRESSED_BYTES_MAX", 1 << 20)
    rows = pa.table({"id": [7], "v": [0], "text": ["x" * (4 << 20)]})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    assert sink.tell() < 64 << 10
    with pytest.raises(st.RequestError, match="at most 1048576 bytes"):
        values.stream_of_bytes(sink.getvalue().to_pybytes())


def test_what_nobody_foresaw_is_told_to_this_user_alone(
    both: Both, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its words may hold what is not a stranger's to know."""
    db, _, remote = both

    def fail(_: st.Store) -> list[object]:
        raise OSError("/home/ada/secret")

    monkeypatch.setattr(type(db), "jobs", fail)
    with pytest.raises(st.SiltstoneError) as caught:
        remote.jobs()
    assert "secret" not in str(caught.value)
    assert "its log says why" in str(caught.value)
    assert "/home/ada/secret" in caplog.text
    with (
        joined_to(db) as near,
        pytest.raises(st.SiltstoneError, match="OSError: /home/ada/secret"),
    ):
        near.jobs()


def test_what_nobody_foresaw_in_a_scan_is_not_told_either(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = both[2]
    schema = pa.schema([("id", pa.int64())])

    def failing() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1]})
        raise OSError("/home/ada/secret")

    def scan(_: object, *arguments: object) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(schema, failing())

    monkeypatch.setattr(type(both[0]["t"]), "scan", scan)
    with pytest.raises(st.SiltstoneError, match="its log says why") as caught:
        remote["t"].scan().read_all()
    assert "secret" not in str(caught.value)


def test_both_ends_of_a_connection_notice_a_machine_that_is_gone(both: Both) -> None:
    """Else a snapshot is pinned, or a commit waited for, until somebody ends the process."""
    _, service, remote = both
    (near,) = [connection.sock for connection in remote.pool._idle]
    (far,) = [
        connection.transport.get_extra_info("socket")
        for connection in service.http.thread.server_state.connections
    ]
    for sock in (near, far):
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle_s, interval_s, probes = (
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle_s + interval_s * probes == 60
    # What was sent, too: a request is read at once, rows are when their reader wants them.
    assert near.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
    assert far.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
