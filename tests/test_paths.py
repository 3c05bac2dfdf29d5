"""A path names one directory, however it is written; what names none of this machine is refused."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import siltstone as st
from siltstone.admin import (
    backup_store,
    merge_store,
    optimize_store,
    vacuum_store,
    verify_store,
)
from tests.unchanged import connect

SCHEMA = {"id": "int64", "v": "string"}


def rows(first: int, count: int = 5) -> list[dict[str, object]]:
    return [{"id": number, "v": "x"} for number in range(first, first + count)]


def live_through_all(path: str | os.PathLike[str], real: Path) -> None:
    """Do to the store at `path` what writes and reads each kind of file, by each door."""
    with connect(path) as db:
        assert db.path == real
        t = db.create_table("t", SCHEMA, "id")
        p = db.create_table("p", SCHEMA)
        for first in (0, 5):
            t.upsert(rows(first))
            p.append(rows(first))
            db.checkpoint()
        db.merge()
        t.upsert(rows(3))
        db.checkpoint()
        with pickle.loads(pickle.dumps(db)) as reader:
            assert reader["t"].count() == 10
        tasks = pickle.loads(pickle.dumps(db.snapshot().scan_tasks("t")))
        assert sum(batch.num_rows for task in tasks for batch in task.read()) == 10
    assert isinstance(merge_store(path), st.Merged)
    optimize_store(path)
    vacuum_store(path)
    assert verify_store(path, deep=True).is_sound
    with connect(path, read_only=True) as db:
        assert (db["t"].count(), db["p"].count()) == (10, 10)
        assert db["t"].get(4) == {"id": 4, "v": "x"}


def a_path_with_dots(folder: Path) -> str:
    (folder / "aside").mkdir()
    return str(folder / "aside" / ".." / "shop")


def a_relative_path_with_dots(folder: Path) -> str:
    (folder / "aside").mkdir()
    os.chdir(folder / "aside")
    return "../shop"


def a_link(folder: Path) -> Path:
    (folder / "link").symlink_to(folder / "shop")
    return folder / "link"


def a_link_above(folder: Path) -> Path:
    (folder / "link").symlink_to(folder)
    return folder / "link" / "shop"


def the_home(folder: Path) -> str:
    del folder
    return "~/shop"


def a_path_of_the_home(folder: Path) -> Path:
    del folder
    return Path("~/shop")


def a_url(folder: Path) -> str:
    return f"file://{folder}/shop"


def a_url_of_localhost(folder: Path) -> str:
    return f"FILE://localhost{folder}/%73hop"


def a_url_as_spark_writes_it(folder: Path) -> str:
    return f"file:{folder}/shop"


def a_url_with_dots(folder: Path) -> str:
    return f"file://{folder}/aside/%2E%2E/shop"


@pytest.mark.parametrize(
    "name",
    [
        a_path_with_dots,
        a_relative_path_with_dots,
        a_link,
        a_link_above,
        the_home,
        a_path_of_the_home,
        a_url,
        a_url_of_localhost,
        a_url_as_spark_writes_it,
        a_url_with_dots,
    ],
)
def test_a_store_lives_whatever_its_path_is_called_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: Callable[[Path], str | Path]
) -> None:
    folder = tmp_path.resolve()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    live_through_all(name(folder), folder / "shop")
    assert not (folder / "~").exists()


@pytest.mark.parametrize("name", ["with space", "p%41", "a#b", "a?b", "a:b", "[ab]*", "ü€", "a\\b"])
def test_a_store_lives_in_a_directory_of_any_printable_name(tmp_path: Path, name: str) -> None:
    live_through_all(tmp_path / name, tmp_path.resolve() / name)


def test_a_percent_sign_is_a_code_in_a_url_and_itself_in_a_path(tmp_path: Path) -> None:
    with connect(f"file://{tmp_path}/a%20%25b") as db:
        assert db.path.name == "a %b"
    with connect(str(tmp_path / "a%20%25b")) as db:
        assert db.path.name == "a%20%25b"


def test_a_relative_path_stays_the_same_store_after_a_chdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aside").mkdir()
    with connect("shop") as db:
        monkeypatch.chdir(tmp_path / "aside")
        db.create_table("t", SCHEMA, "id").upsert(rows(0))
        db.checkpoint()
        db.merge()
        db.backup("copies")
        with pickle.loads(pickle.dumps(db)) as reader:
            assert reader["t"].count() == 5
    st.restore("../aside/copies", "./again")
    with connect(tmp_path / "aside" / "again") as db:
        assert db["t"].count() == 5
    assert sorted(p.name for p in tmp_path.iterdir()) == ["aside", "shop"]
    assert sorted(p.name for p in (tmp_path / "aside").iterdir()) == ["again", "copies"]


REFUSED = {
    "s3://bucket/shop": "s3:",
    "s3a://bucket/shop": "s3a:",
    "gs://bucket/shop": "gs:",
    "abfss://box@account/shop": "abfss:",
    "hdfs:/shop": "hdfs:",
    "hdfs://host/shop": "hdfs:",
    "dbfs:/shop": "dbfs:",
    "memory://shop": "memory:",
    "grpc://host/shop": "grpc:",
    "file://host/{here}/shop": "on host",
    "file://{here}/shop?version=1": "%3F",
    "file://{here}/shop#1": "%23",
    "file://{here}/a%00b": "control characters",
    "file://{here}/a\tb": "control characters",
    "file://{here}/a%FFb": "UTF-8",
    "file:shop": "write the path itself, or file:///",
    "file:": "write the path itself, or file:///",
    "file://": "write the path itself, or file:///",
    "file:%2e": "write the path itself, or file:///",
    "jdbc:siltstone:/shop": "jdbc:siltstone:",
    "x" * 300: "name too long",
    "/".join(["y" * 200] * 25): "name too long",
    "~nobody-of-this-name/shop": "~nobody-of-this-name",
    "a\nb": "control characters",
    "a\x7fb": "control characters",
    "\udcff": "UTF-8",
    "": "''",
}


DOORS: list[Callable[[str], object]] = [
    st.connect,
    lambda path: st.connect(path, read_only=True),
    lambda path: st.connect(path, join=True),
    merge_store,
    verify_store,
    st.repair,
    st.backups,
    lambda path: st.restore(path, "target"),
    lambda path: st.restore("source", path),
]
TAKES_MIRRORS = [DOORS[1], DOORS[4], *DOORS[6:8]]
"""What takes the URL of a bucket: `tests/cli/test_mirror.py` and `tests/reach`."""


@pytest.mark.parametrize("given", REFUSED)
def test_a_path_of_no_local_directory_is_refused_and_says_what_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = given.format(here=tmp_path)
    for door in DOORS:
        is_bucket = given.startswith(("s3:", "gs:"))
        if is_bucket and door in TAKES_MIRRORS:
            continue
        with pytest.raises(st.RequestError) as refused:
            door(path)
        text = str(refused.value)
        assert "local directory" in text
        assert ("open the path with mirror=URL" if is_bucket else "file://") in text
        assert REFUSED[given] in text
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", [None, 5, b"shop", object()])
def test_what_is_no_path_is_refused_like_a_bad_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: object
) -> None:
    monkeypatch.chdir(tmp_path)
    for door in DOORS:
        with pytest.raises(st.RequestError, match="local directory"):
            door(given)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_directory_that_is_no_store_is_told_by_each_door(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "one.txt").write_text("mine")
    for door in (
        lambda path: st.connect(path, read_only=True),
        merge_store,
        optimize_store,
        verify_store,
        vacuum_store,
        st.repair,
        lambda path: backup_store(path, tmp_path / "copies"),
        st.backups,
    ):
        with pytest.raises(st.RequestError, match="letters"):
            door(tmp_path / "letters")
    assert [path.name for path in tmp_path.rglob("*")] == ["letters", "one.txt"]


def test_two_slashes_at_the_front_are_one(tmp_path: Path) -> None:
    """POSIX lets `//host` be a place of its own, and `Path` keeps it; on Linux it is `/host`."""
    with connect(tmp_path / "s") as db:
        for name in (f"/{tmp_path}/s", f"file:///{tmp_path}/s", f"///{tmp_path}/s/"):
            with connect(name) as again:  # type: ignore[arg-type]
                assert again.path == db.path == tmp_path.resolve() / "s"


def test_a_path_object_is_a_path_and_no_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Path` has taken a slash away by then: what was a host is a directory."""
    monkeypatch.chdir(tmp_path)
    for text in (f"file://{tmp_path}/shop", "s3://bucket/shop", ":memory:"):
        with pytest.raises(st.RequestError, match="local directory"):
            st.connect(Path(text))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["s3://bucket/copies", "dbfs:/copies", ":memory:"])
def test_a_backup_and_a_restore_go_to_local_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with connect("shop") as db:
        with pytest.raises(st.RequestError, match="local directory"):
            db.backup(target)
        db.backup("copies")
    with pytest.raises(st.RequestError, match="local directory"):
        st.restore("copies", target)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copies", "shop"]


def test_links_that_turn_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(st.RequestError, match="local directory"):
        st.connect(tmp_path / "a" / "shop")


def test_a_drive_letter_is_no_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with connect("C:\\shop") as db:
        assert db.path == tmp_path.resolve() / "C:\\shop"


def test_the_command_line_takes_what_connect_takes(tmp_path: Path) -> None:
    (tmp_path / "aside").mkdir()
    environment = {**os.environ, "HOME": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "siltstone", *words],
            cwd=tmp_path / "aside",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    assert run("init", "--db", "../shop").returncode == 0
    for db in ("~/shop", "../shop", f"file:{tmp_path}/shop", str(tmp_path / "aside/../shop")):
        done = run("status", "--db", db)
        assert done.returncode == 0, done.stderr
    refused = run("status", "--db", "dbfs:/shop")
    assert refused.returncode == 2
    assert "local directory" in refused.stderr
    assert [p.name for p in tmp_path.iterdir() if p.name != "aside"] == ["shop"]
    assert not list((tmp_path / "aside").iterdir())


# :memory:


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories are made."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "tmp"


def test_a_store_in_memory_is_a_directory_that_goes_when_it_is_closed(temporary: Path) -> None:
    with st.connect(":memory:") as db:
        (folder,) = temporary.iterdir()
        assert db.path == folder.resolve()
        assert folder.stat().st_mode & 0o077 == 0
        db.create_table("t", SCHEMA, "id").upsert(rows(0))
        db.merge()
        db.backup(temporary.parent / "copies")
        with pickle.loads(pickle.dumps(db)) as reader:
            assert reader["t"].count() == 5
    assert not list(temporary.iterdir())
    assert [path.name for path in temporary.parent.iterdir() if path != temporary] == ["copies"]


def test_two_stores_in_memory_are_two(temporary: Path) -> None:
    with st.connect(":memory:") as one, st.connect(":memory:") as two:
        assert one.path != two.path
        one.create_table("t", SCHEMA, "id")
        assert two.tables() == []
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("option", ["read_only", "join"])
def test_a_store_in_memory_is_neither_read_nor_joined_by_that_name(
    temporary: Path, option: str
) -> None:
    with pytest.raises(st.RequestError, match=option):
        st.connect(":memory:", **{option: True})
    assert not list(temporary.iterdir())


def test_a_bad_option_of_a_store_in_memory_leaves_no_directory(temporary: Path) -> None:
    with pytest.raises(st.RequestError, match="nonsense"):
        st.connect(":memory:", nonsense=1)
    with pytest.raises(st.RequestError, match="at least"):
        st.connect(":memory:", segment_bytes=1)
    assert not list(temporary.iterdir())


def test_a_store_in_memory_says_that_no_temporary_directory_can_be_had(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "gone"))
    with pytest.raises(st.UnavailableError, match="TMPDIR"):
        st.connect(":memory:")


def test_maintenance_by_path_refuses_the_name_of_stores_in_memory(temporary: Path) -> None:
    for door in (merge_store, verify_store, st.repair, st.backups):
        with pytest.raises(st.RequestError, match=r"local directory.*:memory:"):
            door(":memory:")
    assert [path.name for path in temporary.parent.iterdir()] == ["tmp"]


GONE = """
import os, sys, warnings
warnings.simplefilter("ignore")
import siltstone as st
db = st.connect(":memory:")
t = db.create_table("t", {"id": "int64"}, "id")
t.upsert({"id": 1})
db.merge()
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    assert os.listdir(os.environ["TMPDIR"]), "the child took it away"
    assert t.count() == 1
"""


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError"])
def test_a_store_in_memory_goes_with_its_process_and_not_with_a_fork_of_it(
    temporary: Path, end: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{GONE}    {end}"],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == {"": 0, "sys.exit(3)": 3}.get(end, 1), done.stderr
    assert not list(temporary.iterdir())


# what a directory says of its options


def test_a_file_of_options_that_is_no_text_is_named(tmp_path: Path) -> None:
    with connect(tmp_path / "s"):
        pass
    (tmp_path / "s" / "siltstone.toml").write_bytes(b"\xff\xfe")
    for door in (connect, verify_store):
        with pytest.raises(st.RequestError, match=r"siltstone\.toml"):
            door(tmp_path / "s")


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["memory_bytes_max", "retention_s", "retention", "join_timeout_s"])
def test_an_option_that_is_no_finite_number_is_refused(
    tmp_path: Path, name: str, value: float
) -> None:
    with pytest.raises(st.RequestError, match=name):
        st.connect(tmp_path / "s", **{name: value})
    assert not list(tmp_path.iterdir())
