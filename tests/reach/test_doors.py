"""Each door that takes the path of a store takes a URL, or refuses it in one sentence.

takes      reads the mirror at the URL
refuses    says that a store in a bucket is only read, and how to write; nothing is changed
"""

from __future__ import annotations

import asyncio
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

import siltstone as st
from siltstone import admin, aio, dbapi
from siltstone.cli.app import app
from siltstone.cli.exits import Exit
from siltstone.errors import RequestError
from siltstone.namespace import SiltstoneNamespace
from siltstone.storage.objects.objects import Objects
from siltstone.store import own_or_join
from siltstone.web import WorkerStore
from tests.cli.shell import Shell
from tests.reach.conftest import Mirrored, objects_at

HOW = "a store in a bucket is only read, connect(url, read_only=True); to write, open the path with"
TAKES: dict[str, tuple[str, ...]] = {
    "tables": (),
    "schema": ("keyed",),
    "head": ("keyed",),
    "scan": ("keyed", "--tag", "first"),
    "get": ("keyed", "8"),
    "search": ("docs", "fox"),
    "query": ("select count(*) from plain",),
    "export": ("keyed", "{folder}/keyed.csv"),
    "info": (),
    "log": (),
    "changes": ("--since", "{changed}"),
    "diff": ("{changed}", "{seq}"),
    "tag ls": (),
    "status": (),
    "jobs": (),
    "verify": (),
    "index ls": ("docs",),
    "apps ls": (),
    "shell": (),
}
REFUSES: dict[str, tuple[str, ...]] = {
    "init": (),
    "create": ("t", "-c", "id:int64"),
    "insert": ("keyed", "{folder}/rows.csv"),
    "upsert": ("keyed", "{folder}/rows.csv"),
    "append": ("plain", "{folder}/rows.csv"),
    "delete": ("keyed", "8", "--yes"),
    "truncate": ("keyed", "--yes"),
    "rename": ("keyed", "other"),
    "drop": ("keyed", "--yes"),
    "undo": ("keyed", "--to", "{changed}", "--yes"),
    "tag add": ("mine",),
    "tag rm": ("first", "--yes"),
    "maintain": (),
    "checkpoint": (),
    "merge": (),
    "optimize": (),
    "vacuum": ("--dry-run",),
    "repair": ("--yes",),
    "backup": ("{folder}/copies",),
    "index create": ("keyed", "v"),
    "index drop": ("docs", "s", "--yes"),
}
ELSEWHERE = {
    "apps forget": "there is no app to forget, and --yes is asked for first",
    "token": "no store",
    "spark jar": "no store",
    "demo": "makes its own",
    "bench": "makes its own",
    "mirror": "tests/cli/test_mirror.py",
    "restore": "tests/cli/test_mirror.py",
    "serve": "tests/reach/test_served.py",
}


@pytest.fixture
def shell(
    shop: Mirrored, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    monkeypatch.setenv("SILTSTONE_URI", shop.url)
    monkeypatch.setattr("sys.stdin", typed("select count(*) from plain;"))
    return Shell(Path(), capsys)


def typed(statement: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(f"{statement}\n".encode()))


def commands() -> set[str]:
    def below(group: Any, prefix: str) -> set[str]:
        found = set[str]()
        for name, each in group.commands.items():
            is_group = hasattr(each, "commands")
            found |= below(each, f"{prefix}{name} ") if is_group else {f"{prefix}{name}"}
        return found

    return below(typer.main.get_command(app), "")


def test_each_command_is_a_door() -> None:
    assert commands() == {*TAKES, *REFUSES, *ELSEWHERE}


def words(name: str, given: tuple[str, ...], shop: Mirrored, folder: Path) -> list[str]:
    (folder / "rows.csv").write_text("id,v\n8,new\n")
    known = {"folder": folder, "changed": shop.changed, "seq": shop.seq}
    return [*name.split(), *(each.format(**known) for each in given)]


@pytest.mark.parametrize("name", TAKES)
def test_a_command_that_reads_takes_a_url(
    name: str, shell: Shell, shop: Mirrored, tmp_path: Path
) -> None:
    assert shell(*words(name, TAKES[name], shop, tmp_path)) == 0, shell.err


@pytest.mark.parametrize("name", REFUSES)
def test_a_command_that_writes_refuses_a_url(
    name: str, shell: Shell, shop: Mirrored, tmp_path: Path
) -> None:
    before = names_at(shop)
    assert shell(*words(name, REFUSES[name], shop, tmp_path)) == Exit.USAGE, shell.err
    (said,) = shell.err.splitlines()
    assert HOW in said
    assert names_at(shop) == before


def test_the_shell_reads_at_a_url_and_says_why_it_does_not_write(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", typed("delete from keyed where id = 8;"))
    assert shell("shell") == Exit.FAILED
    assert HOW in shell.err


def names_at(shop: Mirrored) -> list[str]:
    """Return what is there, but for the leases of readers."""
    objects: Objects = objects_at(shop.url)
    return [head.key for head in objects.list_after("") if not head.key.startswith("leases/")]


Door = Callable[[str, Path], object]


def dbapi_rows(url: str, _folder: Path) -> object:
    made = dbapi.connect(url, read_only=True)
    cursor = made.cursor()
    cursor.execute("select count(*) from plain")
    found = cursor.fetchall()
    with pytest.raises(dbapi.Error, match="mirror=URL"):
        cursor.execute("delete from plain")
    made.close()
    return found


def awaited(url: str, _folder: Path) -> object:
    async def run() -> object:
        async with await aio.connect(url, read_only=True) as db:
            with pytest.raises(RequestError, match="mirror=URL"):
                await db.create_table("t", {"id": "int64"})
            return await db.sql("select count(*) from plain")

    return asyncio.run(run())


def read(url: str, _folder: Path) -> object:
    with st.connect(url, read_only=True) as far, pickle.loads(pickle.dumps(far)) as again:
        for work in (
            lambda: again.create_table("t", {"id": "int64"}),
            again.transaction,
            again.checkpoint,
            again.merge,
            lambda: again.vacuum(grace_s=0),
            lambda: again.stage("keyed"),
            again.serve,
            again.serve_local,
            lambda: again.sql("delete from plain"),
            lambda: again.tag("mine"),
        ):
            with pytest.raises(RequestError, match="mirror=URL"):
                work()
        return again["keyed"].count()


def named(url: str, _folder: Path) -> object:
    with st.connect(url, read_only=True) as far:
        made: Any = SiltstoneNamespace(far)
        return made.list_tables({"id": []}).tables


DOORS: dict[str, Door] = {
    "connect(read_only)": read,
    "dbapi": dbapi_rows,
    "aio": awaited,
    "namespace": named,
    "verify_store": lambda url, _: admin.verify_store(url).is_sound,
}
CLOSED: dict[str, Door] = {
    "connect": lambda url, _: st.connect(url),
    "connect(join)": lambda url, _: st.connect(url, join=True),
    "connect(mirror)": lambda url, _: st.connect(url, mirror=url),
    "own_or_join": lambda url, _: own_or_join(url),
    "dbapi": lambda url, _: dbapi.connect(url),
    "aio": lambda url, _: asyncio.run(awaitable(aio.connect(url))),
    "web": lambda url, _: asyncio.run(entered(WorkerStore(url))),
    "merge_store": lambda url, _: admin.merge_store(url),
    "optimize_store": lambda url, _: admin.optimize_store(url),
    "optimize_histories": lambda url, _: admin.optimize_histories(url),
    "maintain_store": lambda url, _: admin.maintain_store(url),
    "due_of": lambda url, _: admin.due_of(url),
    "index_store": lambda url, _: admin.index_store(url),
    "create_index_in": lambda url, _: admin.create_index_in(url, "keyed", "v"),
    "drop_index_in": lambda url, _: admin.drop_index_in(url, "docs", "s"),
    "vacuum_store": lambda url, _: admin.vacuum_store(url),
    "repair": lambda url, _: st.repair(url),
    "backup_store": lambda url, folder: admin.backup_store(url, folder / "copies"),
    "mirror_store": lambda url, _: admin.mirror_store(url, f"{url}/copy"),
    "restore": lambda url, folder: st.restore(folder / "copies", url),
}


async def awaitable(work: Any) -> object:
    return await work


async def entered(worker: WorkerStore) -> object:
    async with worker:
        return None


@pytest.mark.parametrize("name", DOORS)
def test_a_door_that_reads_takes_a_url(name: str, shop: Mirrored, tmp_path: Path) -> None:
    assert DOORS[name](shop.url, tmp_path)


@pytest.mark.parametrize("name", CLOSED)
def test_a_door_that_writes_refuses_a_url(name: str, shop: Mirrored, tmp_path: Path) -> None:
    with pytest.raises((RequestError, dbapi.Error)) as found:
        CLOSED[name](shop.url, tmp_path)
    assert HOW in str(found.value)
    assert "\n" not in str(found.value)
