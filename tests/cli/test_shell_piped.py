"""`siltstone shell` runs what a pipe says, up to its first error, and then ends with status 1."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash

import siltstone as st
from siltstone.cli import main
from tests.children import without
from tests.cli.shell import Shell
from tests.cli.terminal import LONG

Run = Callable[..., int]


@pytest.fixture
def run(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Pipe a script into a shell on the store, which has three orders."""
    monkeypatch.chdir(tmp_path)

    def piped(script: str | bytes, *words: str) -> int:
        data = script.encode() if isinstance(script, str) else script
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return shell("shell", *words)

    made = "create table orders (id bigint primary key, total double, who varchar);"
    assert (
        piped(f"{made} insert into orders values (1, 2.5, 'a'), (2, null, ''), (3, 1, null);") == 0
    )
    assert (shell.out, shell.err) == ("", "")
    return piped


def test_rows_go_to_stdout_and_a_write_says_nothing(run: Run, shell: Shell) -> None:
    assert run("update orders set total = 3 where id = 3; from orders order by id") == 0
    assert shell.out == "id\ttotal\twho\n1\t2.5\ta\n2\t\t\n3\t3.0\t\n"
    assert shell.err == ""


def test_the_first_error_ends_it_with_its_line_and_status_1(run: Run, shell: Shell) -> None:
    assert run("select 1 as n;\n\nselect\n  1 +\n  totl from orders;\nselect 2;") == 1
    assert shell.out == "n\n1\n"
    told = shell.err.splitlines()
    assert told[0].startswith(
        "siltstone: line 3: DuckDB refuses the statement: Binder Error: Refer"
    )
    assert told[1:] == ["LINE 3:   totl from orders", "          ^"]


def test_what_was_committed_before_an_error_stays_and_what_was_not_does_not(
    run: Run, shell: Shell
) -> None:
    script = "delete from orders where id = 1; begin; delete from orders; select nothing;"
    assert run(script) == 1
    assert shell.json("query", "select id from orders order by id") == [{"id": 2}, {"id": 3}]


def test_a_transaction_sees_itself_and_others_do_not(run: Run, shell: Shell) -> None:
    own = "begin; insert into orders (id) values (4); select count(*) n from orders;"
    assert run(f".mode json\n{own} rollback; select count(*) n from orders;") == 0
    assert [each["n"] for each in _documents(shell.out)] == [4, 3]
    assert run(f".mode json\n{own} commit; select count(*) n from orders;") == 0
    assert [each["n"] for each in _documents(shell.out)] == [4, 4]
    assert run(own.replace("4", "5")) == 0  # the end of the script is no commit
    assert shell.json("query", "select count(*) n from orders") == [{"n": 4}]


def _documents(text: str) -> list[dict[str, int]]:
    return [row for part in text.split("]\n")[:-1] for row in json.loads(f"{part}]")]


@pytest.mark.parametrize(
    "turns",
    [
        "begin; commit",
        "BEGIN TRANSACTION; END TRANSACTION",
        "start transaction; abort",
        "begin isolation level serializable; commit work",
        "begin work; rollback",
        "begin /* one; row */ transaction; rollback /* x */",
        "-- first\nbegin -- now\n; rollback -- all of it\n",
    ],
)
def test_a_transaction_begins_and_ends_in_the_words_of_sql(run: Run, turns: str) -> None:
    assert run(f"{turns}; begin; rollback;") == 0


def test_the_past_is_read_and_not_written(run: Run, shell: Shell) -> None:
    with st.connect(shell.db, background=False) as db:
        seq, at = db.seq, db.log(1)[0].time.isoformat()
        db.tag("before")
        db.sql("delete from orders where id < 3")
    for moment in (f".seq {seq}", ".tag before", f".at {at}", f".at '{at}'"):
        count = "select count(*) n from orders;"
        assert run(f".mode csv\n{moment}\n{count}\n.now\n{count}") == 0, shell.err
        assert shell.out == "n\n3\nn\n1\n", moment
    assert run(f".seq {seq}\ndelete from orders;") == 1
    told = f"line 2: the shell reads seq {seq}, and a write is of now: .now goes back there"
    assert shell.err == f"siltstone: {told}\n"
    assert run(f".seq {seq}\nbegin;") == 1
    assert "a write is of now" in shell.err
    assert run(f"begin;\n.seq {seq}") == 1
    assert "a transaction is open" in shell.err


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("csv", 'n,t\n9223372036854775807,"a,b"\n,""\n'),
        ("json", '[\n{"n":9223372036854775807,"t":"a,b"},\n{"n":null,"t":""}\n]\n'),
        ("ndjson", '{"n":9223372036854775807,"t":"a,b"}\n{"n":null,"t":""}\n'),
        ("tsv", "n\tt\n9223372036854775807\ta,b\n\t\n"),
        ("line", "-- row 1\nn  9223372036854775807\nt  a,b\n-- row 2\nn  NULL\nt\n"),
    ],
)
def test_the_forms_are_exact(run: Run, shell: Shell, form: str, text: str) -> None:
    rows = "from (values (9223372036854775807, 'a,b'), (null, '')) t(n, t)"
    assert run(f".mode {form}\n{rows};") == 0
    assert shell.out == text
    if form in {"csv", "json", "ndjson"}:
        assert run(f"{rows};", f"--{form}") == 0
        assert shell.out == text


def test_programs_get_all_rows_and_people_the_first_ones(run: Run, shell: Shell) -> None:
    assert run("select range n from range(1000);") == 0
    assert len(shell.out.splitlines()) == 1001
    for form in ("table", "line"):
        assert run(f".mode {form}\nselect range n from range(1000000000000);") == 0
        assert "199" in shell.out
        assert shell.err == "the first 200 rows; .rows says how many are shown\n"
        assert "200" not in shell.out.replace("row 200", "")
        assert (
            run(f".mode {form}\n.rows 3\nselect range n from range(9);\nbegin;\nfrom range(9);")
            == 0
        )
        assert shell.out.count("2") == 2 if form == "table" else 4
    assert run(".mode table\n.rows 0\nselect range n from range(1000);") == 0
    assert " 999" in shell.out


def test_null_is_to_be_seen_in_a_table_and_a_zone_in_a_time(run: Run, shell: Shell) -> None:
    at = "timestamptz '2026-07-01 10:00:00+02' as at"
    assert run(f".mode table\nselect total, who, {at} from orders where id > 1 order by id;") == 0
    rows = [line.split() for line in shell.out.splitlines() if "2026" in line]
    assert rows == [
        ["NULL", "2026-07-01T08:00:00+00:00"],
        ["1.0", "NULL", "2026-07-01T08:00:00+00:00"],
    ]


def test_a_table_in_a_pipe_has_no_colors(run: Run, shell: Shell) -> None:
    assert run(".mode table\nselect null as n;\n.tables\nexplain select 1;\nselct;") == 1
    assert "\x1b" not in shell.out + shell.err


def test_returned_rows_are_shown_also_if_they_are_called_count(run: Run, shell: Shell) -> None:
    assert run('delete from orders where id = 1 returning id as "Count";') == 0
    assert shell.out == "Count\n1\n"
    assert run("create table returning_ones (a int);") == 0
    assert shell.out == ""


def test_a_plan_is_shown_as_duckdb_draws_it(run: Run, shell: Shell) -> None:
    assert run(".mode table\nexplain select count(*) from orders where total > 1;") == 0
    assert shell.out.startswith("┌─")
    assert "\\n" not in shell.out


def test_files_are_read_by_their_names(run: Run, shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("id,total,who\n8,1.5,x\n9,2.5,y\n")
    gone = "begin; delete from orders where id in (select id from 'more.csv'); commit;"
    count = "select count(*) n from 'more.csv'"
    assert run(f"{count}; insert into orders from 'more.csv'; {gone}") == 0, shell.err
    assert shell.out == "n\n2\n"
    assert shell.json("query", "select count(*) n from orders") == [{"n": 3}]


def test_dot_commands_look_at_the_store(run: Run, shell: Shell) -> None:
    assert (
        run(".tables\n.schema orders\n.schema\n.log 1\nbegin; create table t (a int);\n.tables\n")
        == 0
    )
    lines = shell.out.splitlines()
    assert lines[:5] == [
        "table\tprimary_key\tcolumns\trows",
        "orders\tid\t3\t3",
        "column\ttype\tnullable\tkey",
        "id\tint64\tfalse\t1",
        "total\tdouble\ttrue\t",
    ]
    assert lines[6:8] == ["table\tcolumn\ttype\tnullable\tkey", "orders\tid\tint64\tfalse\t1"]
    assert lines[10] == "seq\ttime\ttables\trows\tchanges"
    assert lines[11].split("\t")[0::2] == ["2", "orders", ""]
    assert lines[-1] == "t\t\t1\t0"


def test_a_timer_says_seconds_to_stderr(run: Run, shell: Shell) -> None:
    assert run(".timer\nselect 1;\n.timer off\nselect 2;") == 0
    assert shell.err.splitlines() == [shell.err.strip()]
    assert float(shell.err.removesuffix(" s\n")) < 60


def test_help_names_every_dot_command(run: Run, shell: Shell) -> None:
    assert run(".help") == 0
    for dot in ("tables", "schema", "log", "at", "seq", "tag", "now", "mode", "rows", "timer"):
        assert f"\n.{dot} " in shell.out


def test_quit_ends_it_with_status_0(run: Run, shell: Shell) -> None:
    assert run("select 1;\n.quit\nselct;") == 0
    assert shell.out == "1\n1\n"


def test_read_runs_a_file_and_names_its_line(run: Run, shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "inner.sql").write_text("\nselect 2 as n;\nselct 3;\n")
    (tmp_path / "outer.sql").write_text("select 1 as n;\n.read inner.sql\n")
    assert run(".read outer.sql\nselect 4;") == 1
    assert shell.out == "n\n1\nn\n2\n"
    assert shell.err.splitlines()[0].startswith("inner.sql:3: DuckDB refuses the statement")


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (".foo", "there is no dot command '.foo'; "),
        (".table", "there is no dot command '.table'; did you mean '.tables' or '.tag'?"),
        (".tables orders", ".tables stands alone; it was given 'orders'"),
        (
            ".schema ordrs",
            "there is no table 'ordrs'; did you mean 'orders'? The tables are orders",
        ),
        (".read", ".read needs FILE"),
        (".read none.sql", "cannot read none.sql: No such file or directory"),
        (".read .", "cannot read .: Is a directory"),
        (".read a\0b", "cannot read a\ufffdb: embedded null byte"),
        (".read self.sql", "self.sql reads itself"),
        (".read chain0.sql", "chain16.sql is one file too many: 16 read each other"),
        (".read bytes.sql", "bytes.sql is no text in UTF-8: "),
        (".read /dev/zero", "a statement has at most 1048576 characters"),
        (".at yesterday", "yesterday"),
        (".at 2026-11-20T10:00", "2026-11-20T10:00"),
        (".at", ".at needs TIME"),
        (".seq -1", ".seq takes a whole number from 0; it was given '-1'"),
        (".seq 99", "99"),
        (".tag nothing", "there is no tag 'nothing'"),
        (".mode xml", "there is no mode 'xml'; the modes are table, tsv, json, ndjson, csv, line"),
        (".rows many", ".rows takes a whole number from 0; it was given 'many'"),
        (".timer perhaps", ".timer takes on or off; it was given 'perhaps'"),
        ("commit;", "no transaction is open: BEGIN begins one"),
        ("rollback", "no transaction is open: BEGIN begins one"),
        ("begin; begin;", "a transaction is open: COMMIT or ROLLBACK ends it"),
        ("begin; create index i on orders (who);", "an index is no part of a transaction"),
        ("savepoint x;", "transactions are BEGIN, or BEGIN ISOLATION LEVEL SERIALIZABLE"),
        ("begin read only;", "transactions are BEGIN, or BEGIN ISOLATION LEVEL SERIALIZABLE"),
        ("begin isolation level serializable; begin;", "a transaction is open"),
        ("copy orders to 'x.csv';", "this is COPY, which is not offered"),
        ("update orders set id = 7;", "insert the new row"),
        ("insert into orders values (1, 'x', 'y');", "column 'total' is double, not 'x'"),
        ("select 'abc", "DuckDB refuses the statement: Parser Error: unterminated quoted string"),
        ("select (1;", "DuckDB refuses the statement: Parser Error: syntax error"),
        (b"select '\xff';", "standard input is no text in UTF-8: "),
        ("\x1b[31m;", "DuckDB refuses the statement: Parser Error: syntax error"),
    ],
    ids=ascii,
)
def test_what_is_wrong_is_one_sentence_and_status_1(
    run: Run, shell: Shell, tmp_path: Path, script: str | bytes, told: str
) -> None:
    (tmp_path / "self.sql").write_text("select 1;\n.read ./self.sql\n")
    (tmp_path / "bytes.sql").write_bytes(b"select '\xff';")
    for number in range(20):
        (tmp_path / f"chain{number}.sql").write_text(f".read chain{number + 1}.sql\n")
    assert run(script) == 1
    lines = [line for line in shell.err.splitlines() if line.strip("^ ")]
    assert told in lines[0]
    assert all(line.startswith("LINE ") for line in lines[1:])
    assert "\x1b" not in shell.err
    assert shell.json("query", "select count(*) n from orders") == [{"n": 3}]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["nowhere"], 3, "there is no store at 'nowhere'; `siltstone init` creates one"),
        (["a", "--db", "b"], 2, "the store is 'a', and --db is 'b'; give it once"),
        (["a", "b"], 2, "shell takes no word 'b'"),
        (["old"], 1, "format"),
        (["http://127.0.0.1:1"], 1, "does not answer"),
        (["s3://bucket/a/../x"], 2, "plain names"),
    ],
    ids=str,
)
def test_a_store_that_cannot_be_opened_is_told_with_the_code_of_its_error(
    run: Run, shell: Shell, tmp_path: Path, words: list[str], code: int, told: str
) -> None:
    _of_another_format(tmp_path / "old")
    assert run("select 1;", *words) == code
    assert told in shell.err
    assert len(shell.err.splitlines()) == 1


def _of_another_format(store: Path) -> None:
    assert main(["init", "--db", str(store)]) == 0
    head, body = b"siltstone-manifest 99 ", b"what no other siltstone reads\n"
    check = xxhash.xxh3_64_hexdigest(head + body).encode()
    max((store / "manifest").glob("*.json")).write_bytes(head + check + b"\n" + body)


def test_only_a_shell_on_a_terminal_imports_prompt_toolkit(shell: Shell) -> None:
    child = "import sys; from siltstone.cli import main; code = main();"
    claim = "assert 'prompt_toolkit' not in sys.modules"
    for words, script in ((["tables"], ""), (["shell"], "select 1;")):
        done = subprocess.run(
            [sys.executable, "-c", f"{child} {claim}; sys.exit(code)", *words],
            input=script,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_ctrl_c_ends_a_script_with_status_130_and_nothing_of_its_transaction(shell: Shell) -> None:
    script = f"create table t (a int); begin; insert into t values (1); select 7; {LONG}"
    with subprocess.Popen(
        [sys.executable, "-m", "siltstone", "shell"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(script)
        child.stdin.close()
        assert child.stdout.readline()  # of the query before the one that takes years
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
    assert shell.json("query", "select * from t") == []


def test_without_duckdb_it_says_what_to_install(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "path").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "siltstone", "shell"],
        input=".tables\nselect 1;",
        env=without("duckdb", tmp_path / "path"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "table\tprimary_key\tcolumns\trows\n")
    assert done.stderr.startswith("siltstone: line 2: ")
    assert "siltstone[sql]" in done.stderr
