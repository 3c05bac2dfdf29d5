"""A process is held, and its store's directory is replaced: it ends by name, and harms nothing.

new           the directory is deleted, and another store is made at its path
emptied       only what was in it is deleted, and another store is made in the same directory
restored      the directory is renamed, and an older copy of the store is in its place
overwritten   an older copy is put in its place file by file, as `rsync --inplace --delete` does
moved         the directory is renamed, and nothing is at its path

Where the operation stood is a failpoint of it. `SILTSTONE_RACES=all` tries all ways at each point,
else each point has one of them, and the last one before the publish all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path

import pytest

import siltstone as st
from siltstone import admin
from siltstone.failpoints import Failpoint, Point
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore
from tests.races import shop
from tests.races.ledger import IS_ALL, held_at, points_of
from tests.races.processes import (
    WAIT_S,
    CallFailedError,
    Meeting,
    Process,
    ProcessDiedError,
    Spares,
    workers,
)
from tests.races.test_killed import looks

HOWS = ("new", "emptied", "restored", "overwritten", "moved")
NO_OWNERS = {"merge", "optimize", "backup"}
"""They work beside any owner; the others own the store while they work."""
POINTS = {
    "merge": [*points_of("merge"), *points_of("keys"), *points_of("publish")],
    "optimize": points_of("optimize"),
    "vacuum": points_of("vacuum"),
    "index": points_of("index"),
    "backup": points_of("backup"),
    "repair": points_of("repair"),
    "flush": [*points_of("flush"), *points_of("publish")],
    "open": points_of("publish"),
}
FULL = {
    Failpoint.MERGE_BEFORE_PUBLISH,
    Failpoint.VACUUM_BEFORE_DELETE,
    *points_of("publish"),
}
GARBAGE = ("tables/", "inventory/", "jobs/", "commits/")
"""Where a process may leave new files, of names that nobody else has."""


def cells() -> list[tuple[str, Point, str]]:
    whole = [(name, held_at(point)) for name, points in POINTS.items() for point in points]
    return [
        (name, point, how)
        for number, (name, point) in enumerate(whole)
        for index, how in enumerate(HOWS)
        if IS_ALL or point in FULL or number % len(HOWS) == index
    ]


@dataclass
class Place:
    """Two processes; the store that they get copies of, and the same store some commits ago."""

    held: Process
    other: Process
    meeting: Meeting
    made: Path
    older: Path
    of_older: shop.Answers


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("replaced")
    made, older = folder / "shop", folder / "older"
    meeting = Meeting()
    with workers(2) as (held, other):
        shop.make(made)
        shutil.copytree(made, older)
        write_on(made)
        yield Place(held, other, meeting, made, older, answers_at(older))
    meeting.close()


def write_on(root: Path) -> None:
    """Have commits, records and files that the older copy has not; something is left to do."""
    with st.connect(root, **shop.OPTIONS) as db:
        for turn in range(3):
            db["wide"].upsert(
                [{"id": n, "name": f"on {turn}", "n": turn} for n in range(30)], missing="null"
            )
            db["short"].upsert({"id": 50 + turn, "n": turn})
            db["plain"].append([{"n": 100 + turn}])
            db.checkpoint()
        db["wide"].upsert({"id": 1, "name": "in the log", "n": 0}, missing="null")


def spoil(root: Path) -> None:
    """Damage it so that a repair has something to do at each of its steps."""
    with st.connect(root, **shop.OPTIONS) as db:
        db.vacuum(dry_run=False)
    assert not isinstance(admin.merge_store(root), st.Deferred)
    manifests = ManifestStore(RealFiles(), root)
    newest = manifests.path(manifests.newest().number)
    newest.write_bytes(newest.read_bytes()[:-40])
    (root / "manifest" / "FLOOR").unlink()


def replace(how: str, root: Path, older: Path) -> None:
    """Take the store away from whoever works on it."""
    if how in {"restored", "moved"}:
        root.rename(aside_of(root))
    if how == "new":
        shutil.rmtree(root)
    if how == "emptied":
        empty(root)
    if how == "restored":
        # Other threads of who is held may write by the path meanwhile, and make directories there.
        shutil.copytree(older, root, dirs_exist_ok=True)
    if how == "overwritten":
        overwrite(root, older)


def aside_of(root: Path) -> Path:
    return root.with_name("aside")


def empty(root: Path) -> None:
    for path in root.iterdir():
        take(path)


def take(path: Path) -> None:
    # Other threads of who is held may write and rename by the path meanwhile.
    while path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)


def overwrite(root: Path, older: Path) -> None:
    """Make it what the older copy is, and keep the directories and files that both have."""
    for path in sorted(root.rglob("*"), reverse=True):
        if not (older / path.relative_to(root)).exists():
            take(path)
    shutil.copytree(older, root, dirs_exist_ok=True)


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return each file with its inode and bytes."""
    return {
        str(path.relative_to(root)): (path.stat().st_ino, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file()
    }


def begin(place: Place, name: str, root: Path, point: Point) -> tuple[object, object]:
    """Begin an operation, and return it as it stands at the failpoint."""
    if name == "repair":
        spoil(root)
    if name == "flush":
        place.held.call("open", root=str(root))
    place.held.call("arm", orders=f"{point.label}=pause", socket=place.meeting.address)
    given = {"root": str(root)} if name == "open" else {"root": str(root), "stamp": 1}
    running = place.held.start(name, **given)
    held = place.meeting.expect(running)
    assert held.label == point.label
    return running, held


def fails_by_name(running) -> None:
    with pytest.raises(CallFailedError) as failed:
        running.result(WAIT_S)
    assert "ReplacedError" in failed.value.kinds, failed.value


@contextlib.contextmanager
def owned(how: str, root: Path, name: str) -> Iterator[st.Store | None]:
    """Own what is at the path now; it has a table that it had not before.

    None if nothing is there, or the LOCK that is there is the file that the operation has locked.
    """
    if how == "moved" or (how == "overwritten" and name not in NO_OWNERS):
        yield None
        return
    with st.connect(root, **shop.OPTIONS) as db:
        db.create_table("n", {"id": "int64"}, "id").upsert([{"id": n} for n in range(20)])
        db.checkpoint()
        db["n"].upsert({"id": 1_000})
        yield db


@pytest.mark.parametrize(("name", "point", "how"), cells())
def test_who_is_held_while_the_directory_is_replaced_ends_by_name_and_harms_nothing(
    place: Place, tmp_path: Path, name: str, point: Point, how: str
) -> None:
    root = Path(shutil.copytree(place.made, tmp_path / "shop"))
    before = None if name == "repair" else answers_at(root)
    running, held = begin(place, name, root, point)
    try:
        replace(how, root, place.older)
        with owned(how, root, name) as db:
            seen, expected = tree(root), place.of_older
            held.go()
            fails_by_name(running)
            require_untouched(seen, tree(root))
            if db is not None:
                expected = go_on(db)
    finally:
        held.go()
        place.held.call("close")
    if how == "moved":
        assert not (root / "manifest").exists()
    else:
        require_answers(root, expected)
    if aside_of(root).exists() and before is not None:
        require_answers(aside_of(root), before)


def answers_at(root: Path) -> shop.Answers:
    with st.connect(root, read_only=True) as db:
        return shop.answers(db)


def require_untouched(before: dict[str, object], after: dict[str, object]) -> None:
    assert {path: after.get(path) for path in before} == before
    new = after.keys() - before.keys()
    assert [path for path in sorted(new) if not path.startswith(GARBAGE)] == []


def go_on(db: st.Store) -> shop.Answers:
    """Write, and let all maintenance run: it finds nothing of who was held."""
    db["n"].upsert({"id": 1_001})
    db.checkpoint()
    assert not isinstance(db.merge(), st.Deferred)
    db.vacuum(dry_run=False)
    assert db["n"].count() == 22
    return shop.answers(db)


def require_answers(root: Path, expected: shop.Answers) -> None:
    with st.connect(root, **shop.OPTIONS) as db:
        assert shop.answers(db) == expected
        assert db.verify(deep=True).is_sound


# --- beside an owner


@pytest.mark.parametrize("how", HOWS)
def test_a_merge_beside_an_owner_whose_directory_is_replaced_ends_as_the_owner_does(
    place: Place, tmp_path: Path, how: str
) -> None:
    root = Path(shutil.copytree(place.made, tmp_path / "shop"))
    place.other.call("open", root=str(root))
    running, held = begin(place, "merge", root, held_at(Failpoint.MERGE_BEFORE_PUBLISH))
    try:
        replace(how, root, place.older)
        with owned(how, root, "its owner") as db:
            seen, expected = tree(root), place.of_older
            held.go()
            fails_by_name(running)
            fails_by_name(place.other.start("flush", root=str(root), stamp=0))
            require_untouched(seen, tree(root))
            if db is not None:
                expected = go_on(db)
    finally:
        held.go()
        place.held.call("close")
        place.other.call("close")
    if how != "moved":
        require_answers(root, expected)


# --- a crash


@pytest.mark.parametrize("how", ["restored", "moved"])
def test_who_dies_between_the_publish_and_the_look_leaves_a_whole_record(
    spares: Spares, place: Place, tmp_path: Path, how: str
) -> None:
    """The record is in the directory that was moved, and so are all its files."""
    root = Path(shutil.copytree(place.made, tmp_path / "shop"))
    before = answers_at(root)
    victim = spares.take()
    point = held_at(Failpoint.PUBLISH_AFTER_CREATE)
    victim.call("arm", orders=f"{point.label}=pause", socket=place.meeting.address)
    running = victim.start("merge", root=str(root), stamp=1)
    held = place.meeting.expect(running)
    replace(how, root, place.older)
    os.kill(held.pid, signal.SIGKILL)
    with pytest.raises(ProcessDiedError):
        running.result(WAIT_S)
    victim.died()
    held.go()
    require_answers(aside_of(root), before)
    if how == "restored":
        require_answers(root, place.of_older)


# --- readers


def read(db: st.Store) -> object:
    return db["wide"].count()


def take_snapshot(db: st.Store) -> object:
    with db.snapshot() as snapshot:
        return snapshot.seq


@pytest.mark.parametrize("look", [read, take_snapshot, methodcaller("tables"), looks])
@pytest.mark.parametrize("how", HOWS)
def test_a_reader_whose_directory_is_replaced_ends_by_name(
    place: Place, tmp_path: Path, how: str, look: Callable[[st.Store], object]
) -> None:
    root = Path(shutil.copytree(place.made, tmp_path / "shop"))
    with st.connect(root, read_only=True) as reader:
        look(reader)
        replace(how, root, place.older)
        with owned(how, root, "backup"):
            for _ in range(2):
                with pytest.raises(st.SiltstoneError, match="replaced") as refused:
                    look(reader)
                assert type(refused.value).__name__ == "ReplacedError"
