"""A large import is committed in chunks, each once; one that was killed goes on where it ended."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import siltstone as st
from siltstone.cli.arguments import CsvForm
from siltstone.cli.exits import UsageError
from siltstone.cli.imports.file_parts import LINES_BYTES
from siltstone.cli.imports.importing import Import, Imported, ImportTarget, chunked
from siltstone.cli.imports.sources import one_source
from siltstone.server.rest.tokens import new_token, tokens_of
from tests.server.rest import rest_of
from tests.server.stores import DOORS, behind

ROWS = 10_000
CHUNK = 20_000
"""Bytes: some thousand rows."""


class StoppedError(Exception):
    """What a test raises in the middle of an import."""


def _files(folder: Path, kind: str) -> Path:
    """Write 10,000 rows with the ids from 0 on; return the source."""
    folder.mkdir(exist_ok=True)
    rows = pa.table({"id": range(ROWS), "who": [f"name {n}" for n in range(ROWS)]})
    if kind == "parquet":
        for place in range(4):
            pq.write_table(rows.slice(place * 2_500, 2_500), folder / f"{place}.parquet")
        return folder
    if kind == "csv":
        for place in range(4):
            part = rows.slice(place * 2_500, 2_500)
            lines = "".join(f"{row['id']},{row['who']}\n" for row in part.to_pylist())
            (folder / f"{place}.csv").write_text(f"id,who\n{lines}")
        return folder / "*.csv"
    path = folder / "a.db"
    with sqlite3.connect(path) as made:
        made.execute("create table t (id integer primary key, who text)")
        made.executemany(
            "insert into t values (?, ?)", list(zip(*rows.to_pydict().values(), strict=True))
        )
    made.close()
    return path


def _run(
    db: st.Store, source: Path, *, creates: bool = True, stops_after: int = 0, run: str = "one",
    key: tuple[str, ...] = (), bytes_max: int = CHUNK,
) -> Imported:  # fmt: skip
    commits = 0

    def told(_what: str, _done: int, _all: int) -> None:
        nonlocal commits
        commits += 1
        if commits == stops_after:
            raise StoppedError

    target = ImportTarget("t", None, key, creates=creates)
    found = one_source(source, CsvForm())
    return Import(db, target, found, run, bytes_max=bytes_max).run(told)


def _ids(db: st.Store) -> list[int]:
    return [row[0] for row in db.sql("select id from t order by id").fetchall()]


@contextmanager
def _store(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as db:
        yield db


@pytest.mark.parametrize("kind", ["csv", "parquet", "sqlite"])
@pytest.mark.parametrize("key", [(), ("id",)])
def test_it_goes_on_where_it_was_stopped_and_has_each_row_once(
    tmp_path: Path, kind: str, key: tuple[str, ...]
) -> None:
    source = _files(tmp_path / "in", kind)
    with _store(tmp_path) as db:
        stops = 0
        for stop in (2, 1, 3, 0):
            try:
                done = _run(db, source, stops_after=stop, run=f"run {stop}", key=key)
            except StoppedError:
                stops += 1
                assert 0 < len(_ids(db)) < ROWS
                assert [app.name for app in db.token_apps()] == ["import t"]
        assert stops == 3
        assert _ids(db) == list(range(ROWS))
        assert 0 < done.rows < ROWS
        assert db.token_apps() == []


@pytest.mark.parametrize("door", DOORS)
def test_it_works_at_each_door(tmp_path: Path, door: str) -> None:
    source = _files(tmp_path / "in", "csv")
    with behind(door, tmp_path / "s") as db:
        with pytest.raises(StoppedError):
            _run(db, source, stops_after=2)
        _run(db, source, run="two")
        assert _ids(db) == list(range(ROWS))


_PROGRAM = """
import os, signal, sys
from pathlib import Path
import siltstone as st
from siltstone.cli.arguments import CsvForm
from siltstone.cli.imports.importing import Import, ImportTarget
from siltstone.cli.imports.sources import one_source
commits = 0
def told(what, done, all_):
    global commits
    commits += 1
    if commits == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
with st.connect(sys.argv[1], background=False) as db:
    source = one_source(Path(sys.argv[2]), CsvForm())
    Import(db, ImportTarget("t", creates=True), source, sys.argv[3], bytes_max=40_000).run(told)
"""


def test_a_process_that_was_killed_is_followed_by_one_that_goes_on(tmp_path: Path) -> None:
    source = _files(tmp_path / "in", "csv")
    for commits, code in (("3", -signal.SIGKILL), ("2", -signal.SIGKILL), ("0", 0)):
        run = [sys.executable, "-c", _PROGRAM, str(tmp_path / "s"), str(source), commits]
        done = subprocess.run(run, check=False, capture_output=True)
        assert done.returncode == code, done.stderr
    with _store(tmp_path) as db:
        assert _ids(db) == list(range(ROWS))
        assert db.token_apps() == []


def test_rows_are_appended_once_and_the_same_command_again_appends_again(tmp_path: Path) -> None:
    source = _files(tmp_path / "in", "csv")
    with _store(tmp_path) as db:
        db.create_table("t", {"id": "int64", "who": "string"})
        with pytest.raises(StoppedError):
            _run(db, source, creates=False, stops_after=2)
        _run(db, source, creates=False, run="two")
        assert _ids(db) == list(range(ROWS))
        _run(db, source, creates=False, run="three")
        assert db["t"].count() == 2 * ROWS


def test_an_end_between_the_last_commit_and_forgetting_imports_nothing_again(
    tmp_path: Path,
) -> None:
    source = _files(tmp_path / "in", "parquet")
    with st.connect(":memory:", background=False) as other:
        commits = _run(other, source).commits
    with _store(tmp_path) as db:
        with pytest.raises(StoppedError):
            _run(db, source, stops_after=commits)
        again = _run(db, source, run="two")
        assert (again.rows, again.commits) == (0, 0)
        assert _ids(db) == list(range(ROWS))
        assert db.token_apps() == []


def test_a_run_that_is_still_alive_is_fenced_by_the_next(tmp_path: Path) -> None:
    source = _files(tmp_path / "in", "csv")
    with _store(tmp_path) as db:
        found = one_source(source, CsvForm())
        first = Import(db, ImportTarget("t", creates=True), found, "one", bytes_max=CHUNK)
        commits = 0

        def told(_what: str, _done: int, _all: int) -> None:
            nonlocal commits
            commits += 1
            if commits == 2:
                _run(db, source, run="two")

        with pytest.raises(st.FencedError):
            first.run(told)
        assert _ids(db) == list(range(ROWS))


# files that change


def test_a_part_that_was_not_begun_may_be_corrected(tmp_path: Path) -> None:
    source = _files(tmp_path / "in", "csv")
    last = tmp_path / "in" / "3.csv"
    whole = last.read_text()
    last.write_text(whole.replace("7501,", "x,"))
    with _store(tmp_path) as db:
        with pytest.raises(st.SchemaMismatchError, match=r"3\.csv: column 'id': CSV conversion"):
            _run(db, source)
        assert len(_ids(db)) == 7_500
        last.write_text(whole)
        assert _run(db, source, run="two").rows == 2_500
        assert _ids(db) == list(range(ROWS))


@pytest.mark.parametrize("changed", ["0.csv", "1.csv"])
def test_parts_that_were_begun_must_be_the_same(tmp_path: Path, changed: str) -> None:
    source = _files(tmp_path / "in", "csv")
    with _store(tmp_path) as db:
        with pytest.raises(StoppedError):
            _run(db, source, stops_after=5)
        count = len(_ids(db))
        path = tmp_path / "in" / changed
        path.write_text(path.read_text() + "99999,x\n")
        with pytest.raises(UsageError, match=r"ended after .* rows, of other files or"):
            _run(db, source, run="two")
        assert len(_ids(db)) == count
        db.forget_token_app("import t")
        with pytest.raises(st.TableExistsError):
            _run(db, source, run="three")


def test_an_import_whose_table_is_gone_begins_anew(tmp_path: Path) -> None:
    source = _files(tmp_path / "in", "csv")
    with _store(tmp_path) as db:
        with pytest.raises(StoppedError):
            _run(db, source, stops_after=2)
        db.drop_table("t")
        assert _run(db, source, run="two").rows == ROWS
        with pytest.raises(StoppedError):
            _run(db, source, creates=False, stops_after=2, run="three")
        db.drop_table("t")
        db.create_table("t", {"id": "int64"})
        with pytest.raises(st.TableExistsError):
            _run(db, source, run="four")
        assert db["t"].count() == 0


# bounds


def test_chunks_have_about_as_many_bytes_as_they_may() -> None:
    wide = pa.table({"v": [bytes(1_000)] * 100})
    sizes = [len(rows) for rows in chunked(iter([wide, wide.slice(0, 0), wide]), 10_500)]
    assert sum(sizes) == 200
    assert max(sizes) <= 10
    assert [len(rows) for rows in chunked(iter([wide.slice(0, 3)]), 10)] == [1, 1, 1]


def test_rows_of_one_chunk_are_one_commit_without_an_app(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n2\n")
    with _store(tmp_path) as db:
        seq = db.seq
        _run(db, tmp_path / "a.csv")
        assert (db.seq, db.token_apps()) == (seq + 1, [])


_LARGE = """
import resource, sys
from pathlib import Path
import siltstone as st
from siltstone.cli.arguments import CsvForm
from siltstone.cli.imports.importing import Import, ImportTarget
from siltstone.cli.imports.sources import one_source
with st.connect(sys.argv[1], background=False, memory_bytes_max=64 << 20) as db:
    source = one_source(Path(sys.argv[2]), CsvForm())
    done = Import(db, ImportTarget("t", creates=True), source, "x", bytes_max=4 << 20).run()
    print(done.rows, done.commits)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_a_file_larger_than_what_is_held_is_imported(tmp_path: Path) -> None:
    with (tmp_path / "a.csv").open("w") as file:
        file.write("id,text\n")
        for start in range(0, 400_000, 10_000):
            file.writelines(f"{n},{'some text' * 12}\n" for n in range(start, start + 10_000))
    run = [sys.executable, "-c", _LARGE, str(tmp_path / "s"), str(tmp_path / "a.csv")]
    done = subprocess.run(run, check=True, capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    rows, commits = map(int, first.split())
    assert (rows, commits > 10) == (400_000, True)
    assert int(second) < 1_000, "MiB"
    assert os.path.getsize(tmp_path / "a.csv") > 40 << 20  # noqa: PTH202


def test_a_list_of_rows_is_a_chunk_of_its_own() -> None:
    table: Any = pa.table({"a": [1]})
    found = list(chunked(iter([table, [{"a": 2}], [], table]), 1 << 20))
    assert [type(rows) for rows in found] == [pa.Table, list, pa.Table]


def test_lines_of_json_are_read_in_pieces_and_keep_the_types_of_the_first(tmp_path: Path) -> None:
    path, text = tmp_path / "a.ndjson", "x" * 400
    count = LINES_BYTES // 400 + 10_000
    with path.open("w") as file:
        file.writelines(f'{{"id": {n}, "text": "{text}"}}\n' for n in range(count))
    with _store(tmp_path) as db:
        _run(db, path, bytes_max=1 << 30)
        assert _ids(db) == list(range(count))
    with path.open("a") as file:
        file.write('{"id": "late", "text": null}\n')
    with st.connect(":memory:") as db, pytest.raises(st.SchemaMismatchError, match=r"a\.ndjson: "):
        _run(db, path, bytes_max=16 << 20)


def test_a_client_that_is_no_admin_leaves_an_app_that_is_over(tmp_path: Path) -> None:
    source, secret = _files(tmp_path / "in", "csv"), new_token()
    tokens = tokens_of(f"me write {secret}", "test")
    with (
        rest_of(tmp_path / "s", tokens=tokens) as (db, service, _),
        st.connect(service.url, token=secret) as client,
    ):
        _run(client, source)
        assert [app.name for app in db.token_apps()] == ["import t"]
        _run(client, source, creates=False, run="two")
        assert db["t"].count() == 2 * ROWS
        db.drop_table("t")
        assert _run(client, source, run="three").rows == ROWS
        with pytest.raises(StoppedError):
            _run(client, source, creates=False, stops_after=2, run="four")
        _run(client, source, creates=False, run="five")
        assert db["t"].count() == 2 * ROWS
