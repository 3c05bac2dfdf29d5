"""The lives of stores on a disk of their own that is full; each is a child of `test_full_disk`.

python -m tests.maintenance.full_disk <life> <an empty, small file system>
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lance

import siltstone as st
from siltstone.api.store import Store
from siltstone.errors import UnavailableError
from siltstone.maintenance.merge import merge

ROWS, ROUNDS_MAX = 2_000, 400
OPTIONS = {"retention": "0s", "background": False}


def opened(root: Path) -> Store:
    return st.connect(root, **OPTIONS)


def free(root: Path) -> int:
    found = os.statvfs(root)
    return found.f_bavail * found.f_frsize


def rows(number: int) -> list[dict[str, object]]:
    # Not to be compressed: the garbage is to fill the disk.
    return [{"id": n, "round": number, "v": os.urandom(500).hex()} for n in range(ROWS)]


def write(db: Store, number: int) -> None:
    """Write all rows anew."""
    table = db["t"]
    (table.upsert if table.primary_key else table.overwrite)(rows(number))


def filled(db: Store, key: str | None = "id") -> int:
    """Write the same rows anew until the disk is full; return the last round that was committed."""
    db.create_table("t", {"id": "int64", "round": "int64", "v": "string"}, key)
    number = 0
    try:
        for number in range(1, ROUNDS_MAX):
            write(db, number)
            db.checkpoint()
            db.merge()
    except UnavailableError as error:
        refuse_other(db.path, error)
    found = set(db["t"].to_arrow()["round"].to_pylist())
    assert len(found) == 1
    assert number - 1 <= min(found) <= number < ROUNDS_MAX - 1
    return min(found)


def refuse_other(root: Path, error: UnavailableError) -> None:
    """Refuse an error that does not say which disk is full."""
    assert "no space left" in str(error).lower(), error
    assert str(root) in str(error), error


def stuff(root: Path) -> None:
    """Take what is left of the disk, to the last block."""
    size = 1 << 20
    with (root.parent / "ballast").open("ab", buffering=0) as file:
        while size >= 1:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
    assert free(root) == 0


def check(db: Store, number: int) -> None:
    """All is there, the garbage is not, and the store goes on."""
    assert set(db["t"].to_arrow()["round"].to_pylist()) == {number}
    assert db["t"].count() == ROWS
    assert free(db.path) > 16 << 20, "nothing was freed"
    write(db, number + 1)
    db.checkpoint()
    found = db.verify()
    assert found.is_sound, found
    assert not found.findings, found
    assert (db.path / "RESERVE").stat().st_size >= 1 << 20, "it is made again"


def by_its_owner(root: Path, key: str | None = "id") -> None:
    with opened(root) as db:
        number = filled(db, key)
        stuff(root)
        db.vacuum(dry_run=False, grace_s=0)
        check(db, number)


def by_the_next_owner(root: Path, key: str | None = "id") -> None:
    with opened(root) as db:
        number = filled(db, key)
        stuff(root)
    stuff(root)
    by_one_that_opens(root, number)


def by_one_that_opens(root: Path, number: int) -> None:
    with opened(root) as db:
        stuff(root)  # also what opening left or lent
        assert db["t"].count() == ROWS
        db.vacuum(dry_run=False, grace_s=0)
        check(db, number)


def after_a_kill(root: Path) -> None:
    if os.fork() == 0:
        db = opened(root)
        number = filled(db)
        stuff(root)
        os._exit(number)
    _, status = os.wait()
    stuff(root)
    by_one_that_opens(root, os.waitstatus_to_exitcode(status))


def vacuum(root: Path) -> None:
    command = [sys.executable, "-m", "siltstone", "vacuum", "--yes", "--db", str(root)]
    environment = {**os.environ, "SILTSTONE_RETENTION": "0s"}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr


def by_a_command(root: Path) -> None:
    with opened(root) as db:
        number = filled(db)
    stuff(root)
    vacuum(root)
    with opened(root) as db:
        check(db, number)


def beside_its_owner(root: Path) -> None:
    with opened(root) as db:
        number = filled(db)
        stuff(root)
        vacuum(root)
        assert free(root) > 16 << 20, "what is beside the owner cannot free it"
        db.vacuum(dry_run=False, grace_s=0)
        check(db, number)


def filled_by_others(root: Path) -> None:
    with opened(root) as db:
        db.create_table("t", {"id": "int64", "round": "int64", "v": "string"}, "id")
        db["t"].upsert(rows(1))
    for _ in range(3):
        stuff(root)
        try:
            with opened(root) as db:
                stuff(root)
                assert db["t"].count() == ROWS
                for number in range(2, 12):
                    db["t"].upsert(rows(number))
        except UnavailableError as error:
            refuse_other(root, error)
        else:
            raise AssertionError("a full disk took 20 MB")
    (root.parent / "ballast").unlink()
    with opened(root) as db:
        check(db, max(db["t"].to_arrow()["round"].to_pylist()))


def of_a_plain_table(root: Path) -> None:
    """Other programs may open one, so each of its files has a second name (`kept_names`)."""
    by_its_owner(root, key=None)


def of_a_plain_table_by_the_next_owner(root: Path) -> None:
    by_the_next_owner(root, key=None)


def of_a_plain_table_of_an_older_release(root: Path) -> None:
    """Opening gives each file its second name."""
    with opened(root) as db:
        number = filled(db, key=None)
    for kept in root.glob("tables/*/_siltstone/_kept"):
        shutil.rmtree(kept)
    (root / "RESERVE").unlink()
    by_one_that_opens(root, number)


def in_the_middle_of_folds(root: Path) -> None:
    """A fold that finds no room says so, and hides no row, whatever it had written."""
    merge.COMPACT_BELOW_ROWS = 0
    refused, rooms = 0, range(0, 200_000, 12_000)
    with opened(root) as db:
        table = db.create_table("t", {"id": "int64", "round": "int64", "v": "string"}, "id")
        table.upsert(rows(0))
        db.checkpoint()
        db.merge()
        for number, room in enumerate(rooms, 1):
            table.upsert(rows(number)[number::97])
            table.delete([number])
            db.checkpoint()
            before = sorted(map(str, table.to_arrow().to_pylist()))
            stuff(root)
            ballast = root.parent / "ballast"
            os.truncate(ballast, ballast.stat().st_size - room)
            try:
                db.merge()
            except UnavailableError as error:
                refuse_other(root, error)
                refused += 1
            assert sorted(map(str, table.to_arrow().to_pylist())) == before
            ballast.unlink()
            db.merge()
            assert sorted(map(str, table.to_arrow().to_pylist())) == before
            assert lance.dataset(root / "tables/t-1/base").count_rows() == len(before)
        assert 0 < refused < len(rooms), refused
        assert db.verify(deep=True).is_sound


LIVES: dict[str, Callable[[Path], None]] = {
    life.__name__: life
    for life in (
        by_its_owner,
        by_the_next_owner,
        after_a_kill,
        by_a_command,
        beside_its_owner,
        filled_by_others,
        of_a_plain_table,
        of_a_plain_table_by_the_next_owner,
        of_a_plain_table_of_an_older_release,
        in_the_middle_of_folds,
    )
}

if __name__ == "__main__":
    LIVES[sys.argv[1]](Path(sys.argv[2]) / "store")
