"""An error is one of PEP 249's, by what its caller should do, and siltstone's own is its cause."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone import dbapi, errors
from siltstone.dbapi.pep_errors import error_of
from siltstone.server.rest.tokens import Role, new_token, tokens_of
from tests.server.rest import rest_of

SECRETS = {role: new_token() for role in (Role.READ, Role.WRITE)}

KINDS: dict[type[dbapi.Error], set[str]] = {
    dbapi.ProgrammingError: {
        *("RequestError", "TableNotFoundError", "TableExistsError", "ReadOnlyError"),
    },
    dbapi.DataError: {"SchemaMismatchError"},
    dbapi.IntegrityError: {"DuplicateKeyError"},
    dbapi.OperationalError: {
        *("SiltstoneError", "SnapshotExpiredError", "AccessError", "ClosedError", "LimitError"),
        *("UnsupportedFormatError", "ConflictError", "FencedError", "OwnedError", "InDoubtError"),
        *("PoisonedError", "BusyError", "UnavailableError", "LanceRefusedError", "ReplacedError"),
        "NotShippedError",
    },
    dbapi.InternalError: {"CorruptionError", "InvariantError"},
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_error_has_its_kind(kind: type[dbapi.Error]) -> None:
    for name in KINDS[kind]:
        ours = getattr(errors, name)
        assert type(error_of(ours.__new__(ours, "text"))) is kind, name


def test_no_error_is_left_out() -> None:
    known = {name for names in KINDS.values() for name in names}
    ours = {
        name
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, st.SiltstoneError)
    }
    assert ours == known


@pytest.mark.parametrize(
    ("statement", "kind", "text"),
    [
        ("selec 1", dbapi.ProgrammingError, r"syntax error at or near"),
        ("", dbapi.ProgrammingError, "this text has 0"),
        ("select 1; select 2", dbapi.ProgrammingError, "this text has 2"),
        ("select * from nope", dbapi.ProgrammingError, "there is no table 'nope'"),
        ("select m from t", dbapi.ProgrammingError, "m"),
        ("select ?", dbapi.ProgrammingError, "1"),
        ("select cast('x' as int)", dbapi.DataError, "Could not convert"),
        ("insert into t values (1, 1)", dbapi.IntegrityError, r"t\[1\] exists already"),
        ("insert into t values (2, 'x')", dbapi.DataError, "row 1 .* column 'n' is int64, not 'x'"),
        ("create table t (id bigint)", dbapi.ProgrammingError, "exists already"),
        ("copy t to 'x'", dbapi.ProgrammingError, "not offered"),
        ("attach 'x'", dbapi.ProgrammingError, "not offered"),
        ("create view v as select 1", dbapi.ProgrammingError, "VIEW|view"),
        ("select name from sqlite_master", dbapi.NotSupportedError, "this is no SQLite"),
    ],
)
def test_a_statement_is_refused_by_its_kind(
    db: st.Store, statement: str, kind: type[dbapi.Error], text: str
) -> None:
    con = dbapi.connect(db)
    with pytest.raises(kind, match=text) as caught:
        con.cursor().execute(statement)
    assert type(caught.value) is kind
    if kind is not dbapi.NotSupportedError:
        assert isinstance(caught.value.__cause__, st.SiltstoneError)
    assert not con.in_transaction
    con.close()


def test_errors_of_the_owner_are_those_of_the_connection(at_door: st.Store) -> None:
    con = dbapi.connect(at_door)
    cur = con.cursor()
    with pytest.raises(dbapi.IntegrityError) as caught:
        cur.execute("insert into t values (1, 1)")
    assert isinstance(caught.value.__cause__, st.DuplicateKeyError)
    with pytest.raises(dbapi.DataError, match=r"row 1 .* column 'n' is int64, not 'x'"):
        cur.execute("insert into t values (2, 'x')")
    with pytest.raises(dbapi.ProgrammingError, match="there is no table 'nope'"):
        cur.execute("select * from nope")
    con.close()


def test_a_store_that_another_process_owns_is_told_when_it_is_opened(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False):
        with pytest.raises(dbapi.OperationalError) as caught:
            dbapi.connect(tmp_path / "s", sync_interval_ms=77)
        assert isinstance(caught.value.__cause__, st.OwnedError)


def test_a_store_that_is_closed_below_its_connection_is_told(tmp_path: Path) -> None:
    db = st.connect(tmp_path / "s", background=False)
    con = dbapi.connect(db)
    db.close()
    with pytest.raises(dbapi.OperationalError) as caught:
        con.cursor().execute("select 1")
    assert isinstance(caught.value.__cause__, st.ClosedError)


# threads and processes


def test_another_thread_is_refused(con: dbapi.Connection) -> None:
    cur = con.cursor()
    found = _in_a_thread(lambda: cur.execute("select 1"))
    assert isinstance(found, dbapi.ProgrammingError)
    assert "was made in thread" in str(found)
    for call in (con.cursor, con.commit, con.close, cur.fetchone):
        assert isinstance(_in_a_thread(call), dbapi.ProgrammingError)


def test_another_thread_may_be_let_in_but_not_two_at_once(db: st.Store) -> None:
    con = dbapi.connect(db, check_same_thread=False)
    cur = con.cursor()
    assert _in_a_thread(lambda: cur.execute("select 1").fetchall()) == [(1,)]

    def rows():
        yield (2, 20)
        found = _in_a_thread(con.commit)
        assert isinstance(found, dbapi.ProgrammingError)
        assert "another thread uses the connection" in str(found)

    cur.executemany("insert into t values (?, ?)", rows())
    _in_a_thread(con.commit)
    assert db["t"].count() == 2
    con.close()


def _in_a_thread(call: Any) -> Any:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except dbapi.Error as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_the_child_of_a_fork_is_refused_and_its_parent_goes_on(db: st.Store) -> None:
    con = dbapi.connect(db)
    cur = con.cursor()
    cur.execute("insert into t values (2, 20)")
    large = con.cursor()
    large.execute("select range from range(100_000)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        refused = 0
        for call in (lambda: cur.execute("select 1"), large.fetchall, con.commit):
            try:
                call()
            except dbapi.OperationalError as error:
                refused += isinstance(error.__cause__, st.ClosedError)
        con.close()
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) >= 2
    assert len(large.fetchall()) == 100_000
    con.commit()
    assert db["t"].count() == 2
    con.close()


_PROGRAM = """
import os, signal, sys
from siltstone import dbapi
con = dbapi.connect(sys.argv[1], background=False)
cur = con.cursor()
cur.execute("create table t (id bigint primary key)")
cur.execute("insert into t values (1)")
con.commit()
cur.executemany("insert into t values (?)", [(n,) for n in range(2, 5000)])
assert con.in_transaction
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("sys.exit(0)", 0),
        ("raise SystemExit(3)", 3),
    ],
)
def test_nothing_is_there_of_a_transaction_whose_process_ended(
    tmp_path: Path, end: str, code: int
) -> None:
    run = [sys.executable, "-c", f"{_PROGRAM}\n{end}", str(tmp_path / "s")]
    assert subprocess.run(run, check=False, capture_output=True).returncode == code
    con = dbapi.connect(tmp_path / "s", background=False)
    assert con.cursor().execute("select id from t").fetchall() == [(1,)]
    con.close()


# roles


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Any]:
    secrets = ";".join(f"{role.name} {role.name} {secret}" for role, secret in SECRETS.items())
    with rest_of(tmp_path / "s", tokens=tokens_of(secrets, "test")) as (db, service, _):
        db.create_table("t", {"id": "int64", "n": "int64"}, primary_key="id")
        db["t"].insert({"id": 1, "n": 10})
        yield service


@pytest.mark.parametrize("autocommit", [-1, False, True])
def test_a_client_that_may_only_read_reads_and_is_refused_to_write(
    service: Any, autocommit: int
) -> None:
    con = dbapi.connect(service.url, token=SECRETS[Role.READ], autocommit=autocommit)
    cur = con.cursor()
    assert cur.execute("select n from t").fetchall() == [(10,)]
    with pytest.raises(dbapi.OperationalError) as caught:
        cur.execute("update t set n = 11")
    assert isinstance(caught.value.__cause__, st.AccessError)
    con.rollback()
    con.close()
