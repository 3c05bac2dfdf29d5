"""`siltstone shell` on a store of another process: joined, by a URL, and when that one ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.query.sql.duckdbs.watch import watched_count
from siltstone.server.rest.tokens import digest_of, tokens_from
from tests.cli.terminal import LONG, Terminal

OWNER = """
import sys
import siltstone as st

with st.connect("shop", background=False) as db:
    print(db.serve_local(), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with st.connect(tmp_path / "shop", background=False) as db:
        db.sql("create table orders (id bigint primary key, total double)")
        db.sql("insert into orders values (1, 2.5), (2, 3)")
    return tmp_path


class Owner:
    """A process that owns the store and serves it."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def owner(shop: Path) -> Iterator[Owner]:
    made = Owner(shop)
    yield made
    made.kill()


def test_a_joined_shell_reads_and_writes_while_its_owner_lives(shop: Path, owner: Owner) -> None:
    with Terminal("shell", "shop", cwd=shop) as shell:
        assert "2 rows" in shell.ask("from orders;")
        assert shell.ask("insert into orders values (3, 1);") == "1 row, committed at seq 3"
        shell.ask("begin;")
        assert shell.ask("delete from orders where id = 1;") == "1 row, not committed yet"
        assert "2 rows" in shell.ask("from orders;")
        assert shell.ask("commit;") == "1 row, committed at seq 4"
        assert shell.ask("create table more (a int);") == "committed at seq 5"
        assert "more" in shell.ask(".tables")
        shell.ask("from orders;")
        shell.child.sendeof()
        assert shell.end() == 0
    owner.process.communicate("")
    assert owner.process.returncode == 0
    with st.connect(shop / "shop", read_only=True) as db:
        assert db["orders"].count() == 2


def test_a_joined_shell_goes_on_as_the_owner_when_its_owner_is_killed(
    shop: Path, owner: Owner
) -> None:
    with Terminal("shell", "shop", cwd=shop) as shell:
        shell.ask("begin;")
        shell.ask("create table lost (a int);")  # the transaction is at the owner now
        owner.kill()
        told = shell.ask("insert into lost values (1);")
        assert "is gone" in told
        assert told.endswith("the transaction was rolled back")
        assert shell.ask("insert into orders values (3, 1);") == "1 row, committed at seq 3"
        assert "3 rows" in shell.ask("from orders;")
        assert "lost" not in shell.ask(".tables")


def test_a_shell_in_the_past_reads_it_when_its_owner_is_killed(shop: Path, owner: Owner) -> None:
    with Terminal("shell", "shop", cwd=shop) as shell:
        shell.ask("delete from orders where id = 1;")
        assert shell.ask(".seq 2") == "as of seq 2"
        owner.kill()
        shell.ask("from orders;")  # it may hear by this one that the owner is gone
        assert "2 rows" in shell.ask("from orders;")
        shell.ask(".now")
        shell.ask("delete from orders;")  # it may hear by this one that the owner is gone
        shell.ask("delete from orders;")
        assert "0 rows" in shell.ask("from orders;")


def test_others_join_the_store_of_a_shell(shop: Path) -> None:
    with Terminal("shell", "shop", cwd=shop) as shell:
        shell.prompt()
        with st.connect(shop / "shop", join=True) as other:
            other.sql("delete from orders where id = 1")
        assert "1 row" in shell.ask("from orders;")


def test_a_conflict_ends_a_transaction_in_one_sentence(shop: Path) -> None:
    with Terminal("shell", "shop", cwd=shop) as shell:
        shell.ask("begin;")
        shell.ask("update orders set total = 1 where id = 1;")
        with st.connect(shop / "shop", join=True) as other:
            other.sql("update orders set total = 2 where id = 1")
        told = shell.ask("commit;")
        assert "was written at seq 3, after our snapshot at seq 2" in told.replace("\n", "")
        assert shell.text.endswith("\nshop>")
        assert shell.ask("update orders set total = 1 where id = 1;") == "1 row, committed at seq 4"


def test_an_owner_that_serves_nobody_is_named_and_may_be_read(shop: Path) -> None:
    with st.connect(shop / "shop", background=False):
        with Terminal("shell", "shop", cwd=shop) as shell:
            assert shell.end() == 6
            assert "siltstone: " in shell.text
        with Terminal("shell", "shop", "--read-only", cwd=shop) as shell:
            assert "2 rows" in shell.ask("from orders;")


@pytest.mark.parametrize("role", ["read", "write", ""])
def test_a_token_says_what_a_url_may_be_used_for(shop: Path, role: str) -> None:
    secret = "slt_" + "x" * 40
    tokens = shop / "tokens"
    tokens.write_text(f"someone {role or 'write'} sha256:{digest_of(secret).hex()}\n")
    tokens.chmod(0o600)
    with st.connect(shop / "shop", background=False) as db:
        url = db.serve(port=0, tokens=tokens_from(tokens, {})).url
        with Terminal("shell", url, cwd=shop, SILTSTONE_TOKEN=secret if role else "") as shell:
            if not role:
                assert shell.end() == 7
                assert len(shell.text.strip().splitlines()) <= 3
                return
            assert "2 rows" in shell.ask("from orders;")
            told = shell.ask("delete from orders;")
            assert ("committed" if role == "write" else "this needs write") in told
            assert "2 rows" in shell.ask("from range(2);")


def test_a_url_is_read_and_written_in_transactions_too(shop: Path) -> None:
    with st.connect(shop / "shop", background=False) as db:
        url = db.serve(port=0).url
        with Terminal("shell", url, cwd=shop) as shell:
            assert shell.ask("insert into orders values (3, 1);") == "1 row, committed at seq 3"
            shell.ask("begin;")
            shell.ask("delete from orders;")
            assert "0 rows" in shell.ask("from orders;")
            assert shell.ask("rollback;") == "rolled back"
            assert shell.ask("select count(*) n from orders;").split()[-3:] == ["3", "1", "row"]
            assert shell.ask(".seq 2") == "as of seq 2"
            assert "2 rows" in shell.ask("from orders;")
            shell.ask(".now")
            (shop / "rows.csv").write_text("id,total\n9,9\n")
            assert "'rows.csv' is a file" in shell.ask("from 'rows.csv';")
            assert "rows.csv" in shell.ask("insert into orders from 'rows.csv';")
            shell.ask(".rows 2")
            assert "the first 2 rows" in shell.ask("from range(100000000);")
            shell.type("select tot\t")
            shell.sees("select total")


def test_ctrl_c_stops_what_a_server_does(shop: Path) -> None:
    with st.connect(shop / "shop", background=False) as db:
        url = db.serve(port=0).url
        with Terminal("shell", url, cwd=shop) as shell:
            shell.ask("begin;")
            shell.ask("delete from orders where id = 1;")
            line = len(shell.screen.drawn())
            shell.type(f"{LONG}\n")
            shell.until(watched_count, "the statement at the server")
            shell.child.sendintr()
            shell.sees("interrupted")
            shell.until(lambda: not watched_count(), "its end there")
            shell.prompt(below=line)
            assert "rolled back" in shell.text
            assert "2 rows" in shell.ask("from orders;")
