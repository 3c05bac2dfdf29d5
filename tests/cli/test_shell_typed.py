"""`siltstone shell` on a real terminal: what a person types, and what they see."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import siltstone as st
from tests.cli.terminal import LONG, Terminal

Open = Callable[..., Terminal]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Start shells on a store with two orders."""
    with st.connect(tmp_path / "shop", background=False) as db:
        db.sql('create table orders (id bigint primary key, total double, "Big Name" varchar)')
        db.sql("insert into orders values (1, 2.5, 'a'), (2, null, null)")
        db.sql("create table visits (id bigint)")
    shells: list[Terminal] = []

    def start(*words: object, **given: object) -> Terminal:
        made = Terminal("shell", "shop", *words, cwd=tmp_path, **given)  # type: ignore[arg-type]
        shells.append(made)
        return made

    yield start
    for each in shells:
        each.__exit__()


def ids(folder: Path) -> list[int]:
    with st.connect(folder / "shop", read_only=True) as db:
        return [row[0] for row in db.sql("select id from orders order by id").fetchall()]


def test_statements_span_lines_and_end_at_a_semicolon(opened: Open) -> None:
    shell = opened()
    assert shell.ask("select id,\n  total\nfrom orders order by id;") == (
        "  id   total\n ────────────\n   1     2.5\n   2   NULL\n\n2 rows"
    )
    assert "\n...> " not in shell.text
    assert " ...>   total" in shell.text
    assert shell.ask("select 1 as one; select 2 as two;").count("1 row") == 2


def test_a_transaction_is_in_the_prompt_until_it_ends(opened: Open, tmp_path: Path) -> None:
    shell = opened()
    assert shell.ask("begin;") == "a transaction at seq 3"
    assert shell.ask("delete from orders where id = 1;") == "1 row, not committed yet"
    assert shell.text.endswith("shop [transaction]>")
    assert shell.ask("rollback;") == "rolled back"
    assert shell.text.endswith("\nshop>")
    assert shell.ask("delete from orders where id = 2;") == "1 row, committed at seq 4"
    assert shell.ask(".seq 3") == "as of seq 3"
    assert shell.text.endswith("shop [seq 3]>")
    assert "2 rows" in shell.ask("from orders;")
    assert "a write is of now" in shell.ask("delete from orders;")
    assert shell.ask(".now") == "now"
    assert "1 row" in shell.ask("from orders;")
    assert ids(tmp_path) == [1]


def test_tab_completes_tables_columns_keywords_and_dot_commands(opened: Open) -> None:
    shell = opened()
    shell.prompt()
    for typed, seen in (
        ("sel\t", "shop> select"),
        (" tot\t", "shop> select total"),
        (" fr\t", "shop> select total from"),
        (" vi\t", "shop> select total from visits"),
        (" WHER\t", "shop> select total from visits WHERE"),
        (" visits.i\t", "shop> select total from visits WHERE visits.id"),
    ):
        shell.type(typed)
        shell.sees(seen)
    shell.child.sendintr()
    shell.prompt(below=1)
    shell.type(".sch\t")
    shell.sees(".schema")
    shell.type(" vi\t")
    shell.sees(".schema visits")
    shell.type("\n")
    shell.sees("int64")
    shell.prompt(below=2)
    shell.type('select * from orders where "B\t')
    shell.sees('where "Big Name"')


def test_the_columns_of_a_new_table_are_completed_also_in_its_transaction(opened: Open) -> None:
    shell = opened()
    shell.ask("begin; create table fresh (uncommon int);")
    shell.type("select unc\t")
    shell.sees("select uncommon")


def interrupt(shell: Terminal, statement: str) -> None:
    """Press Ctrl-C while a statement of years runs, which is when the shell works at all."""
    shell.type(f"select 6 * 7 as n; {statement}\n")
    shell.sees(" 42")
    begun = shell.cpu_s()
    shell.until(lambda: shell.cpu_s() > begun + 0.5, "the statement to run")
    shell.child.sendintr()
    shell.sees("interrupted")


def test_ctrl_c_stops_a_statement_and_neither_the_shell_nor_its_transaction(
    opened: Open, tmp_path: Path
) -> None:
    shell = opened()
    shell.ask("begin;")
    shell.ask("delete from orders where id = 1;")
    interrupt(shell, LONG)
    shell.prompt(below=3)
    assert shell.text.endswith("shop [transaction]>")
    assert "1 row" in shell.ask("from orders;")
    assert "committed at seq 4" in shell.ask("commit;")
    assert ids(tmp_path) == [2]


def test_ctrl_c_stops_a_write_before_its_commit(opened: Open, tmp_path: Path) -> None:
    shell = opened()
    shell.prompt()
    interrupt(shell, f"insert into visits select id from orders where id = ({LONG[:-1]});")
    shell.prompt(below=2)
    assert "0" in shell.ask("select count(*) from visits;")
    assert "committed at seq 4" in shell.ask("delete from orders where id = 1;")


def test_ctrl_c_at_the_prompt_drops_the_text(opened: Open) -> None:
    shell = opened()
    shell.prompt()
    shell.type("select 'never\n ended")
    shell.sees("ended")
    shell.child.sendintr()
    shell.prompt(below=2)
    assert "interrupted" not in shell.text
    assert "1 row" in shell.ask("select 1;")


def test_ctrl_d_ends_the_shell_and_rolls_back(opened: Open, tmp_path: Path) -> None:
    shell = opened()
    shell.ask("begin; delete from orders;")
    shell.child.sendeof()
    assert shell.end() == 0
    assert shell.text.rstrip().endswith("the transaction was rolled back")
    assert ids(tmp_path) == [1, 2]


def test_quit_and_an_error_before_it_end_with_status_0(opened: Open) -> None:
    shell = opened()
    shell.ask("selct;")
    shell.type(".quit\n")
    assert shell.end() == 0


def test_a_shell_that_is_killed_in_a_transaction_leaves_nothing_of_it(
    opened: Open, tmp_path: Path
) -> None:
    shell = opened()
    shell.ask("begin; delete from orders where id = 1; create table t (a int);")
    shell.child.kill(signal.SIGKILL)
    assert shell.end() is None
    with st.connect(tmp_path / "shop", background=False) as db:
        assert db.tables() == ["orders", "visits"]
        assert db["orders"].count() == 2


def test_an_error_keeps_the_caret_of_duckdb_below_its_line(opened: Open) -> None:
    assert opened().ask("select id,\n  totl\nfrom orders;").splitlines()[-2:] == [
        "LINE 2:   totl",
        "          ^",
    ]


def test_a_terminal_of_40_columns_shows_wide_rows_sideways(opened: Open) -> None:
    shell = opened(width=40)
    told = shell.ask("select *, 'x' as a_longer_name, 'y' as another from orders;")
    assert "-- row 2" in told
    assert "Big Name       NULL" in told
    assert shell.ask("select id from orders;").splitlines()[0] == "  id"
    assert max(map(len, shell.ask(".help").splitlines())) <= 40


def test_a_dumb_terminal_gets_no_escape(opened: Open) -> None:
    shell = opened(TERM="dumb")
    assert "2 rows" in shell.ask("from\norders;")
    shell.type(".quit\n")  # Ctrl-D before it waits for keys would be none
    assert shell.end() == 0
    assert b"\x1b" not in shell.raw


def test_rows_go_to_a_file_without_the_prompts(opened: Open, tmp_path: Path) -> None:
    shell = opened("--csv", into=tmp_path / "rows.csv")
    assert shell.ask("select id from orders order by id;") == "2 rows"
    assert (tmp_path / "rows.csv").read_text() == "id\n1\n2\n"


def test_what_was_typed_comes_back_in_the_next_shell_and_is_for_the_user_alone(
    opened: Open, tmp_path: Path
) -> None:
    first = opened()
    first.ask("select 41 + 1;")
    first.child.sendeof()
    assert first.end() == 0
    kept = tmp_path / "state" / "siltstone" / "shell_history"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.chmod(0o644)
    second = opened()
    second.prompt()
    second.type("\x1b[A")
    second.sees("select 41 + 1;")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_a_shell_without_a_place_for_its_history_remembers_its_own(
    opened: Open, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("no directory")
    shell = opened()
    shell.ask("select 41 + 1;")
    shell.type("\x1b[A\n")
    shell.until(lambda: shell.text.count("42") == 2, "the statement again")


def test_a_read_only_shell_says_so_and_reads(opened: Open) -> None:
    shell = opened("--read-only")
    shell.prompt()
    assert shell.text.endswith("shop [read-only]>")
    assert "2 rows" in shell.ask("from orders;")
    for write in ("delete from orders;", "begin;", "create table t (a int);"):
        assert shell.ask(write) == "the store is open to be read alone: the shell writes nothing"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_store_without_the_right_to_write_is_read(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "shop").chmod(0o555)
    shell = opened()
    shell.prompt()
    assert shell.text.endswith("shop [read-only]>")
    assert "2 rows" in shell.ask("from orders;")
    (tmp_path / "shop").chmod(0o755)
