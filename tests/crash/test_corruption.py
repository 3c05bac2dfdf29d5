"""A damaged file gives the right answer or a CorruptionError that names it, and never other data.

Every file of a real store that was killed: bytes flipped, zeroed, cut, deleted and swapped, each
read by the owner who recovers it and by a reader beside. The places are drawn with a fixed seed.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from siltstone.formats.log.frame import HEADER_BYTES
from siltstone.storage.tables.kept_names import public_of
from tests.unchanged import connect

ROOT = Path(__file__).parents[2]
ANSWER_SECONDS_MAX = 60
IMMUTABLE = {"tables", "inventory", "manifest", "commits"}
"""Nothing writes into these files, so that copies of the store share them."""

Damage = tuple[str, bytes | None]


class Reader:
    """A process that opens damaged stores; a new one when Lance took it down."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, path: Path, *, read_only: bool) -> dict[str, str]:
        if self.process is None:
            command = [sys.executable, "-m", "tests.crash.damage_reader"]
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(path), read_only]).encode() + b"\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_SECONDS_MAX)
        line = self.process.stdout.readline() if ready else b""
        if line:
            return json.loads(line)
        self.close()
        return {"error": "it died" if ready else "it hung", "path": "", "text": ""}

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


class Killed:
    """A store that was killed, and what it says when nothing is damaged."""

    def __init__(self, folder: Path, reader: Reader) -> None:
        self.folder, self.reader, self.copies = folder, reader, 0
        self.source = folder / "killed"
        with connect(folder / "live") as store:
            _live(store)
            shutil.copytree(store.path, self.source)
        found = [path for path in self.source.rglob("*") if path.is_file()]
        found.sort(key=lambda path: (path.stat().st_mtime_ns, path))  # names are drawn, ages not
        self.files = [path.relative_to(self.source) for path in found]
        self.right = reader.ask(self.copy(), read_only=False)
        assert "rows" in self.right, self.right
        assert reader.ask(self.copy(), read_only=True) == self.right

    def read(self, name: Path) -> bytes:
        return (self.source / name).read_bytes()

    def copy(self) -> Path:
        self.copies += 1
        copy = self.folder / f"copy-{self.copies}"
        for path in self.source.rglob("*"):
            target = copy / path.relative_to(self.source)
            if path.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.relative_to(self.source).parts[0] in IMMUTABLE:
                os.link(path, target)
            else:
                shutil.copy(path, target)
        return copy

    def judge(
        self, changed: dict[Path, bytes | None], what: str, *, read_only: bool, blamed: str = ""
    ) -> str:
        """Return "right" or "named"; anything else fails. `blamed`: or a file of this kind."""
        copy = self.copy()
        for name, data in changed.items():
            (copy / name).unlink()
            if data is not None:
                (copy / name).write_bytes(data)
        answer = self.reader.ask(copy, read_only=read_only)
        shutil.rmtree(copy)
        who = "reader" if read_only else "owner"
        case = f"{what} of {', '.join(map(str, changed))}, {who}: {answer}"
        if answer == self.right:
            return "right"
        assert answer.get("error") == "CorruptionError", case
        named = Path(answer["path"]).relative_to(copy)
        public = {Path(public_of(str(name))) for name in changed}  # of two names of one file
        assert named in public or (blamed and named.match(blamed)), case
        return "named"


def _live(store) -> None:
    """Fill every kind of file: base, history, plain versions, commits, several log segments."""
    keyed = store.create_table(
        "keyed", {"id": "int64", "name": "string", "x": "float64"}, primary_key="id"
    )
    plain = store.create_table("plain", {"id": "int64", "what": "string"})
    keyed.upsert([{"id": at, "name": f"n{at}", "x": at / 7} for at in range(8)])
    plain.append([{"id": 1, "what": "a"}, {"id": 5, "what": "b"}])
    store.checkpoint()
    store.merge()
    keyed.delete(1)
    keyed.upsert({"id": 3, "name": "three"}, missing="null")
    store.tag("one")
    store.checkpoint()
    plain.append({"id": 7, "what": "late"})
    keyed.upsert([{"id": 10}, {"id": 4, "name": "four"}], missing="null")
    keyed.delete(2)


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    reader.close()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, reader: Reader) -> Killed:
    return Killed(tmp_path_factory.mktemp("corruption"), reader)


def damages(data: bytes, rng: random.Random, count: int) -> Iterator[Damage]:
    """Yield `count` flips of each mask, and as many cuts, then a zeroed block and a deletion."""
    used = len(data.rstrip(b"\0")) or 1
    for mask in (0x01, 0xFF):
        for at in rng.sample(range(used), min(count, used)):
            yield f"byte {at} xor {mask}", data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
    for size in rng.sample(range(used), min(count, used)):
        yield f"cut at {size}", data[:size]
    start = rng.randrange(used) // 512 * 512
    yield (
        f"zeros from {start}",
        data[:start] + bytes(len(data[start : start + 512])) + data[start + 512 :],
    )
    yield "deletion", None


def chosen(killed: Killed, folder: str, pattern: str = "*") -> list[Path]:
    found = [p for p in killed.files if p.parts[0] == folder and p.match(pattern)]
    assert found, f"no {folder}/{pattern}"
    return found


def active(killed: Killed) -> Path:
    """Return the segment that holds the last commits; a higher one is prepared, and empty."""
    return next(p for p in chosen(killed, "wal", "*.wal") if b"four" in killed.read(p))


@pytest.mark.parametrize(
    ("folder", "pattern"),
    [
        ("inventory", "*.arrow"), ("tables", "*.manifest"), ("tables", "*.txn"),
        ("tables", "*.lance"), ("commits", "*"),
    ],
    ids=lambda value: value,
)  # fmt: skip
def test_a_damaged_immutable_file_is_named_or_not_needed(
    killed: Killed, folder: str, pattern: str
) -> None:
    rng = random.Random(f"{folder}/{pattern}")
    outcomes = set()
    for turn, name in enumerate(chosen(killed, folder, pattern)):
        data = killed.read(name)
        if not data:
            continue
        every = list(damages(data, rng, 1))
        for step, (what, damaged) in enumerate(rng.sample(every, 2)):
            outcomes.add(killed.judge({name: damaged}, what, read_only=(turn + step) % 2 == 0))
    if pattern != "*.txn":  # nobody reads what a Lance commit leaves in _transactions
        assert "named" in outcomes


def test_the_newest_base_and_history_are_found_damaged_at_every_place(killed: Killed) -> None:
    rng = random.Random(5)
    newest = max(chosen(killed, "tables", "data/*.lance"), key=lambda p: len(killed.read(p)))
    outcomes = {
        killed.judge({newest: damaged}, what, read_only=read_only)
        for what, damaged in damages(killed.read(newest), rng, 6)
        for read_only in (True, False)
    }
    assert outcomes == {"named"}


def test_a_damaged_newest_record_is_named_and_an_old_one_is_not_missed(killed: Killed) -> None:
    rng = random.Random(6)
    *old, newest = sorted(chosen(killed, "manifest", "*.json"))
    for what, damaged in damages(killed.read(newest), rng, 4):
        for read_only in (True, False):
            changed = {newest: damaged}
            blamed = "wal/*.wal" if damaged is None else ""  # the log of the record before is gone
            assert killed.judge(changed, what, read_only=read_only, blamed=blamed) == "named", what
    for name in old:
        what, damaged = rng.choice(list(damages(killed.read(name), rng, 1)))
        killed.judge({name: damaged}, what, read_only=rng.random() < 0.5)


def test_an_acknowledged_frame_that_is_damaged_is_named(killed: Killed) -> None:
    rng = random.Random(7)
    newest = active(killed)
    data = killed.read(newest)
    frames = range(HEADER_BYTES, int.from_bytes(killed.read(Path("wal/MARK"))[16:24], "little"))
    for at in (0, 30, *rng.sample(frames, 12)):
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        for read_only in (True, False):
            outcome = killed.judge({newest: damaged}, f"flip {at}", read_only=read_only)
            is_padding = data[at] == 0  # up to 7 zeros behind a frame say nothing
            assert outcome == "named" or is_padding, f"flip at {at}"
    for what, damaged in (("cut", data[: frames[-9]]), ("end", data[: frames[0]]), ("none", None)):
        for read_only in (True, False):
            assert killed.judge({newest: damaged}, what, read_only=read_only) == "named"


def test_a_frame_before_another_is_named_even_without_a_mark(killed: Killed) -> None:
    newest, mark = active(killed), Path("wal/MARK")
    data = killed.read(newest)
    at = data.index(b"four")
    damaged = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
    changed: dict[Path, bytes | None] = {newest: damaged, mark: None}
    assert killed.judge(changed, "a flip", read_only=False, blamed="wal/*.wal") == "named"


def test_zeros_behind_the_last_frame_may_be_anything(killed: Killed) -> None:
    newest = active(killed)
    data = killed.read(newest)
    used = len(data.rstrip(b"\0"))  # a recycled file has old frames behind the last one
    for at in (used + 8, (used + len(data)) // 2, len(data) - 1):
        damaged = data[:at] + b"\xff" + data[at + 1 :]
        for read_only in (True, False):
            assert killed.judge({newest: damaged}, "noise", read_only=read_only) == "right"


def test_lock_and_mark_are_hints_that_change_no_owners_answer(killed: Killed) -> None:
    rng = random.Random(8)
    for name in (Path("LOCK"), Path("wal/MARK")):
        for what, damaged in damages(killed.read(name), rng, 3):
            assert killed.judge({name: damaged}, what, read_only=False) == "right", what


def test_a_file_in_the_place_of_another_is_named(killed: Killed) -> None:
    for folder, pattern in (
        ("manifest", "*.json"), ("inventory", "*.arrow"), ("tables", "data/*.lance"),
        ("tables", "*.manifest"), ("commits", "*.lance"), ("wal", "*.wal"),
    ):  # fmt: skip
        first, second = chosen(killed, folder, pattern)[-2:]
        changed: dict[Path, bytes | None] = {
            first: killed.read(second), second: killed.read(first),
        }  # fmt: skip
        for read_only in (True, False):
            killed.judge(changed, "a swap", read_only=read_only, blamed=f"{folder}/*")
