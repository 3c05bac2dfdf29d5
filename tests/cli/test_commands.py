"""Commands agree with the store: what one writes, another shows, now and in the past."""

import json
import os
import pty
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

import siltstone as st
from siltstone.cli import main
from siltstone.storage.files.files import RealFiles
from tests.cli.shell import Shell

PAGE = "\x1b[H\x1b[J"


@pytest.fixture
def filled(orders: Shell, tmp_path: Path) -> Shell:
    """Seq 1 made the table, 2 wrote eu/1 and eu/2, 3 changed eu/1 and made us/3."""
    (tmp_path / "a.csv").write_text("region,id,total\neu,1,1\neu,2,2\n")
    (tmp_path / "b.csv").write_text("region,id,total\neu,1,10\nus,3,3\n")
    orders("upsert", "orders", tmp_path / "a.csv")
    orders("upsert", "orders", tmp_path / "b.csv")
    return orders


def totals(shell: Shell, *arguments: str) -> dict[int, str]:
    rows = shell.json("scan", "orders", *arguments)
    assert isinstance(rows, list)
    return {row["id"]: row["total"] for row in rows}


def test_every_read_goes_back_by_seq_by_tag_and_by_moment(filled: Shell) -> None:
    assert filled("tag", "add", "early", "--seq", "2") == 0
    log = filled.json("log")
    assert isinstance(log, list)
    moment = next(entry["time"] for entry in log if entry["seq"] == 2)
    for past in (["--seq", "2"], ["--tag", "early"], ["--at", moment]):
        assert totals(filled, *past) == {1: "1.00", 2: "2.00"}
        assert filled.json("get", "orders", "eu", "1", *past)["total"] == "1.00"  # type: ignore[call-overload,index]
        assert filled.json("query", "select count(*) n from orders", *past) == [{"n": 2}]
        assert filled.lines("tables", *past)[1] == ["orders", "region,id", "3", "2"]
        assert ["seq", "2"] in filled.lines("info", *past)
        assert filled.lines("schema", "orders", *past)[1] == ["region", "string", "false", "1"]
    assert filled("tables", "--seq", "0") == 0
    assert filled.out.splitlines() == ["table\tprimary_key\tcolumns\trows"]
    assert totals(filled) == {1: "10.00", 2: "2.00", 3: "3.00"}


def test_scan_takes_columns_a_filter_and_a_limit(filled: Shell) -> None:
    assert filled.lines("scan", "orders", "--columns", "id", "-f", "total > 5") == [["id"], ["1"]]
    assert len(filled.lines("scan", "orders", "--limit", "2")) == 3
    assert filled("scan", "orders", "-f", "nope = 1") == 2
    assert filled("scan", "orders", "--columns", "nope") == 1


def test_changes_come_in_the_order_of_the_commits(filled: Shell) -> None:
    shown = filled.lines("changes", "--since", "1")
    assert shown[0] == ["_seq", "_op", "region", "id", "total"]
    assert [line[0] for line in shown[1:]] == ["2", "2", "3", "3"]
    assert len(filled.lines("changes", "--until", "2")) == 3
    assert filled("create", "more", "-c", "id:int64", "--pk", "id") == 0
    assert filled("changes", "--since", "2", "--ndjson") == 0
    first = json.loads(filled.out.splitlines()[0])
    assert first == {
        "_table": "orders", "_seq": 3, "_op": "upsert",
        "row": {"region": "eu", "id": 1, "total": "10.00"},
    }  # fmt: skip
    assert filled("changes", "--since", "99") == 3


def test_the_log_shows_the_newest_commits_first_flushed_or_not(filled: Shell) -> None:
    before = filled.json("log", "--limit", "2")
    assert isinstance(before, list)
    assert [(e["seq"], e["tables"], e["rows"]) for e in before] == [
        (3, "orders", 2),
        (2, "orders", 2),
    ]
    assert filled("checkpoint") == 0
    assert filled.json("log", "--limit", "2") == before


def test_the_log_shows_tokens_and_old_names(filled: Shell) -> None:
    with st.connect(filled.db, background=False) as db:
        with db.transaction(token=("etl", 7)) as tx:
            tx["orders"].delete(("eu", 2))
        db.rename_table("orders", "sales")
    newest, tokened = filled.json("log", "--limit", "2")  # type: ignore[misc]
    assert (tokened["token"], tokened["tables"]) == ("etl:7", "orders")  # type: ignore[index]
    assert newest["rows"] == 0  # type: ignore[index]


def test_checkpoint_and_merge_change_no_answer(filled: Shell) -> None:
    before = totals(filled)
    assert filled.lines("checkpoint")[1][1] == "3"
    assert filled.lines("merge")[1] == ["3", "orders", "3"]
    assert totals(filled) == before
    assert totals(filled, "--seq", "2") == {1: "1.00", 2: "2.00"}


def test_optimize_makes_one_file_of_two_and_changes_no_answer(filled: Shell) -> None:
    assert filled("checkpoint") == 0
    with st.connect(filled.db, background=False) as db:
        db["orders"].upsert({"region": "eu", "id": 9, "total": Decimal("9.00")})
        db.checkpoint()
        before = totals(filled)
        found = {"tables": "orders", "files_before": 2, "files_after": 1, "rows": 5}
        found |= {"segments": 0, "indexed_rows": 0}
        assert filled.json("optimize", "orders") == found
        assert filled.lines("optimize")[1] == ["", "0", "0", "0", "0", "0"]
    assert totals(filled) == before
    assert filled("optimize", "nope") == 3
    assert filled("optimize", "--target-rows", "1") == 2


def test_what_is_put_off_is_no_error(filled: Shell) -> None:
    with st.connect(filled.db, background=False) as db:
        events = db.create_table("events", {"n": "int64"})
        for n in range(2):
            events.append({"n": n})
        db.checkpoint()
        assert filled("merge", "--attempts", "1") == 0
        assert filled("optimize", "events", "--wait", "0", "--attempts", "1") == 0
        assert "deferred" in filled.err
        assert "events" in filled.err
        lock = RealFiles().lock(filled.db / "manifest" / "FLOOR.lock", create=True)
        assert lock is not None
        assert filled("vacuum", "--yes") == 0
        assert "deferred" in filled.err
        lock.release()
        assert filled("vacuum", "--yes") == 0
        assert "deferred" not in filled.err


def test_merge_and_reads_work_beside_a_live_owner_and_writes_are_refused(
    filled: Shell, tmp_path: Path
) -> None:
    with st.connect(filled.db, background=False) as db:
        db.checkpoint()
        assert filled("merge", "--quiet") == 0
        assert filled.out == filled.err == ""
        assert len(totals(filled)) == 3
        words = ["upsert", "orders", tmp_path / "a.csv", "--db", filled.db]
        done = subprocess.run(
            [sys.executable, "-m", "siltstone", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 6
        assert str(os.getpid()) in done.stderr
        assert db["orders"].count() == 3
    assert filled("merge", "nope") == 3


def test_writes_beside_an_owner_that_serves_go_through_it(filled: Shell, tmp_path: Path) -> None:
    with st.connect(filled.db, background=False, retention="6d") as db:  # else it is a handle
        db.serve_local()
        (tmp_path / "more.csv").write_text("region,id,total\neu,77,1\n")
        assert filled("upsert", "orders", tmp_path / "more.csv") == 0, filled.err
        assert db["orders"].get(("eu", 77)) is not None
        assert filled("checkpoint") == 0, filled.err
        assert filled("vacuum", "--dry-run") == 0, filled.err
        assert filled("insert", "orders", tmp_path / "more.csv") == 1
        assert "77" in filled.err


def test_a_plain_table_takes_rows_by_insert(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("what\nhello\nworld\n")
    assert shell("create", "events", "-c", "what:string") == 0
    assert shell.lines("insert", "events", tmp_path / "events.csv")[1][1] == "2"
    assert shell("upsert", "events", tmp_path / "events.csv") == 2
    assert shell("get", "events", "hello") == 2
    assert sorted(shell.lines("scan", "events")) == [["hello"], ["what"], ["world"]]


def test_an_index_is_created_listed_and_dropped(filled: Shell) -> None:
    (table,) = (line[0] for line in filled.lines("tables")[1:])
    column = filled.lines("schema", table)[1][0]
    assert filled("index", "create", table, column, "--kind", "bitmap", "--name", "mine") == 0
    head, mine = filled.lines("index", "ls")
    assert head == ["table", "index", "column", "kind", "segments", "bytes", "lagging_rows"]
    assert mine[:4] == [table, "mine", column, "bitmap"]
    assert filled("index", "create", table, column, "--name", "mine") == 2
    assert filled("index", "create", "nowhere", column) == 3
    assert filled("index", "create", table, column, "-o", "metric") == 2
    assert filled("merge") == 0
    assert filled("optimize") == 0
    assert [one[6] for one in filled.lines("index", "ls", table)[1:]] == ["0"]
    (status,) = filled.json("status")["tables"]
    assert [index["name"] for index in status["indexes"]] == ["mine"]
    assert filled("index", "drop", table, "mine") == 2  # nobody is there to be asked
    assert filled.lines("index", "drop", table, "mine", "--dry-run")[1][:2] == [table, "mine"]
    assert len(filled.lines("index", "ls")) == 2
    assert filled("index", "drop", table, "mine", "--yes") == 0
    assert filled("index", "drop", table, "mine", "--yes") == 3
    assert filled("index", "drop", table, "mine", "--dry-run") == 3
    assert filled.lines("index", "ls") == [head]


def test_a_tag_is_forgotten_only_on_request(filled: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    filled("tag", "add", "audit")
    assert filled.lines("tag", "ls") == [["tag", "seq"], ["audit", "3"]]
    assert filled("tag", "rm", "audit", "--dry-run") == 0
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        assert filled("tag", "rm", "audit") == 2
    assert ["audit", "4"] not in filled.lines("tag", "ls")
    assert len(filled.lines("tag", "ls")) == 2
    assert filled("tag", "rm", "audit", "--yes") == 0
    assert filled("tag", "rm", "audit", "--yes") == 3
    assert len(filled.lines("tag", "ls")) == 1


def test_an_app_is_listed_and_is_forgotten_only_on_request(
    filled: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = ["app", "batch", "seq", "rows", "claim", "holder"]
    assert filled.lines("apps", "ls") == [head]
    with st.connect(filled.db) as db:
        db.claim("stream", holder="run 1")
        with db.transaction(token=("etl", 7)) as tx:
            tx["orders"].upsert({"region": "eu", "id": 9, "total": 1})
    rows = [["stream", "-1", "0", "0", "1", "run 1"], ["etl", "7", "5", "1", "0", ""]]
    assert filled.lines("apps", "ls") == [head, *rows]
    assert filled.lines("apps", "forget", "etl", "--dry-run") == [head, rows[1]]
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        assert filled("apps", "forget", "etl") == 2
    assert filled.lines("apps", "ls") == [head, *rows]
    assert filled("apps", "forget", "etl", "--yes") == 0
    assert filled("apps", "forget", "etl", "--yes") == 3
    assert filled.lines("apps", "ls") == [head, rows[0]]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["scan", "nope"], 3),
        (["scan", "orders", "--seq", "99"], 3),
        (["scan", "orders", "--tag", "nope"], 3),
        (["scan", "orders", "--at", "yesterday"], 2),
        (["scan", "orders", "--seq", "1", "--tag", "x"], 3),
        (["scan", "orders", "--json", "--ndjson"], 2),
        (["get", "orders", "eu", "99"], 3),
        (["create", "orders", "-c", "id:int64"], 1),
        (["create", "other", "-c", "id:nonsense"], 2),
        (["create", "other"], 2),
        (["create", "other", "-c", "id"], 2),
        (["query", "select nonsense from"], 2),
        (["merge", "nope"], 3),
    ],
)
def test_an_exit_code_says_what_to_do(filled: Shell, arguments: list[str], code: int) -> None:
    assert filled(*arguments) == code, filled.err
    assert filled.out == ""
    assert filled.err.startswith("siltstone: ")
    assert filled.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["head", "orders", "--tag", "mondya"], "no tag 'mondya'; did you mean 'monday'"),
        (["tag", "rm", "mondya", "--yes"], "no tag 'mondya'; did you mean 'monday'"),
        (["index", "drop", "orders", "totla", "--yes"], "no index 'totla'; did you mean 'total'"),
        (["create", "t", "-c", "idx:int64", "--pk", "id"], "no column 'id'; did you mean 'idx'"),
        (["token", "boss"], "'boss' is not one of 'read', 'write', 'admin'"),
        (["token", "read", "a b"], "the name of a client is one word"),
        (["token", "read", "#a"], "the name of a client is one word"),
        (["get", "orders", "eu"], "give 2 values"),
    ],
    ids=lambda given: given if isinstance(given, str) else " ".join(given),
)
def test_what_is_mistyped_is_told_with_what_there_is(
    filled: Shell, arguments: list[str], said: str
) -> None:
    assert filled("tag", "add", "monday") == 0
    assert filled("index", "create", "orders", "total") == 0
    assert filled(*arguments) in {1, 2, 3}
    assert said in filled.err
    assert not filled.out


def test_a_damaged_store_exits_with_5(filled: Shell) -> None:
    for log in (filled.db / "wal").glob("*.wal"):
        data = bytearray(log.read_bytes())
        at = data.find(b"orders")
        if at > 0:
            data[at] ^= 1
            log.write_bytes(data)
    assert filled("scan", "orders") == 5
    assert ".wal" in filled.err


def test_no_command_but_init_makes_a_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SILTSTONE_URI", raising=False)
    for command in (["tables"], ["create", "t", "-c", "id:int64"], ["checkpoint"], ["merge"]):
        assert main([*command, "--db", str(tmp_path / "typo")]) == 3, command
        assert not (tmp_path / "typo").exists()
    assert "siltstone init" in capsys.readouterr().err
    assert main(["init", "-d", str(tmp_path / "typo")]) == 0
    assert main(["tables", "-d", f"file://{tmp_path}/typo"]) == 0


def test_init_takes_the_store_as_a_word_too_but_not_two_stores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    assert main(["init", one]) == 0
    assert main(["init", one, "--db", one]) == 0
    assert main(["init", one, "--db", two]) == 2
    assert main(["--db", two, "init", one]) == 2
    assert main(["init", one, two]) == 2
    assert main(["init", "http://127.0.0.1:1"]) == 2
    assert "give it once" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_vacuum_changes_no_answer_and_a_dry_run_nothing_at_all(filled: Shell) -> None:
    before = totals(filled)
    files = sorted(filled.db.rglob("*"))
    assert filled.lines("vacuum", "--dry-run")[0] == ["file", "bytes", "reason"]
    assert filled.json("vacuum", "--dry-run") == []
    assert {f for f in files if "manifest" not in f.parts and "wal" not in f.parts} <= set(
        filled.db.rglob("*")
    )
    assert filled("vacuum", "--yes") == 0
    assert totals(filled) == before
    assert totals(filled, "--seq", "2") == {1: "1.00", 2: "2.00"}


def test_verify_says_what_is_sound_and_exits_with_5_when_it_is_not(filled: Shell) -> None:
    filled("checkpoint")
    found = filled.json("verify", "--deep")
    assert isinstance(found, dict)
    assert found["is_sound"]
    assert filled("verify", "--deep", "--quiet") == 0
    assert filled.err == ""
    damaged = max(filled.db.glob("tables/*/.history/data/*"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    assert filled("verify", "--deep") == 5
    assert damaged.name in filled.out


def test_status_shows_the_seqs_beside_a_live_owner(filled: Shell) -> None:
    with st.connect(filled.db, background=False):
        found = filled.json("status")
        assert isinstance(found, dict)
        assert (found["visible_seq"], found["is_read_only"]) == (3, True)
        assert ["visible_seq", "3"] in filled.lines("status")
        assert filled("status", "--watch", "--count", "2", "--interval", "0.1", "--ndjson") == 0
        assert [json.loads(line)["visible_seq"] for line in filled.out.splitlines()] == [3, 3]


def test_status_watched_on_a_terminal_draws_over_itself_what_a_live_owner_does(
    filled: Shell,
) -> None:
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "siltstone", "status", "--watch", "--interval", "0.1"]
    shown = b""
    with (
        st.connect(filled.db, background=False) as db,
        subprocess.Popen(
            [*command, "--db", str(filled.db)], stdin=end, stdout=end, stderr=end
        ) as watcher,
    ):
        os.close(end)
        for seq in (3, 4):
            while f"visible {seq}," not in shown.decode().rpartition(PAGE)[2]:
                shown += os.read(terminal, 65_536)
            if seq == 3:
                db["orders"].delete(("us", 3))
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait() == 130
    os.close(terminal)
    assert shown.decode().startswith(PAGE)
    assert "Traceback" not in shown.decode()
