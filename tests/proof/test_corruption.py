"""Damage gives the right answer or names the file: a sample of `python -m proof.corruption`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proof.corruption.damages import KINDS, Damage, applied, every, kind_of
from proof.corruption.trial import Reader, Trial, run
from tests.compat.golden import unpacked


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    reader.close()


def test_damaged_files_of_golden_stores_are_named_or_not_needed(
    reader: Reader, tmp_path: Path
) -> None:
    trials = [Trial(s, tmp_path, reader) for s in ("index", "tags-and-past", "mid-optimize")]
    assert run(trials, seed=1, count_max=24) == 24
    for trial in trials:
        assert trial.problems == []


def test_a_damaged_inventory_is_named_and_not_the_table(reader: Reader, tmp_path: Path) -> None:
    trial = Trial("lance-client", tmp_path, reader)
    for path in sorted((trial.source / "inventory").iterdir()):
        trial.judge(Damage(f"inventory/{path.name}", "garbage"), read_only=True)
    assert trial.problems == []
    assert trial.judged["named"] > 3


def test_another_answer_and_another_file_are_wrong(reader: Reader, tmp_path: Path) -> None:
    trial = Trial("torn-tail", tmp_path, reader)
    damage = Damage("wal/MARK", "flip")
    assert trial._verdict(damage, {"answers": "of another store"}, tmp_path) == "wrong"
    died = {"error": "it died", "path": "", "text": ""}
    assert trial._verdict(damage, died, tmp_path) == "wrong"
    named = {"error": "CorruptionError", "path": f"{tmp_path}/manifest/x.json", "text": ""}
    assert trial._verdict(damage, named, tmp_path) == "wrong"


def test_every_byte_length_and_block_of_every_file_has_its_damages(tmp_path: Path) -> None:
    root = unpacked("torn-tail", tmp_path)
    damages = list(every(root))
    files = [path for path in root.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    counts = {kind: sum(damage.kind == kind for damage in damages) for kind in KINDS}
    assert counts["flip"] == counts["invert"] == counts["cut"] == size
    assert counts["missing"] == counts["older"] == len(files)
    lock = (root / "LOCK").read_bytes()
    assert applied(root, Damage("LOCK", "flip", 3)) == lock[:3] + bytes([lock[3] ^ 1]) + lock[4:]
    assert applied(root, Damage("LOCK", "cut", 3)) == lock[:3]
    assert applied(root, Damage("LOCK", "missing")) is None
    assert {"LOCK LOCK", "wal .wal", "wal MARK", "manifest .json", "inventory .arrow"} <= {
        kind_of(path.relative_to(root)) for path in files
    }
