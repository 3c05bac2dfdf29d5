"""Whatever a clean-up takes by path while files are written, what is then named is whole.

Before each file operation in turn another program deletes every file that Lance would list. The
work fails with an error of ours, and names nothing, or what it names can be read to the last byte.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from siltstone.errors import RequestError, SiltstoneError, UnavailableError
from siltstone.formats.manifest import PRIVATE_DIRECTORY, Pin
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.tables import kept_names, promotion
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.values import IndexSpec, StagedVersion

FOLDER = "tables/t-1"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
NEEDED = {"link", "rename", "unlink", "sync_file", "sync_dir", "list", "is_dir", "size", "open"}


class Cleaned(RealFiles):
    """Real files, where somebody cleans up before operation `at`."""

    def __init__(self, root: Path) -> None:
        self.root, self.at, self.done = root, 0, 0

    def __getattribute__(self, name: str) -> object:
        found = super().__getattribute__(name)
        return self.counted(found) if name in NEEDED else found

    def counted(self, call: Callable[..., object]) -> Callable[..., object]:
        def after_others(*given: object, **named: object) -> object:
            self.done += 1
            if self.done == self.at:
                clean_up(self.root)
            return call(*given, **named)

        return after_others


def clean_up(root: Path) -> None:
    for directory in kept_names.DIRECTORIES:
        for path in (root / FOLDER / directory).rglob("*"):
            if path.is_file():
                path.unlink()


def batch(first: int) -> pa.RecordBatch:
    ids = list(range(first, first + 4))
    return pa.record_batch([ids, [f"v{n % 3}" for n in ids]], schema=SCHEMA)


def append(tables: Tables, pin: Pin) -> Pin:
    return tables.writer.append(pin, [batch(100)])


def compact(tables: Tables, pin: Pin) -> Pin:
    return tables.compactor.swap(pin, [tables.compactor.compact(pin, (0, 8))])


def index(tables: Tables, pin: Pin) -> Pin:
    spec = IndexSpec("by_v", "v", "bitmap")
    spans = tables.reader.open(pin).spans
    return tables.indexer.put(pin, [tables.indexer.build(pin, spec, spans)])


def lived(root: Path, files: RealFiles) -> tuple[Tables, Pin]:
    tables = lance_tables(root, files)
    pin = tables.writer.create(FOLDER, SCHEMA)
    for first in (0, 4, 8):
        pin = tables.writer.append(pin, [batch(first)])
    return tables, pin


def copied(before: Path, files: Cleaned) -> Tables:
    """Give all files one more name each in another store: none of them ever changes."""
    shutil.copytree(before, files.root, copy_function=os.link)
    return lance_tables(files.root, files)


def answers(tables: Tables, pin: Pin) -> list[object]:
    opened = tables.reader.open(pin)
    found = [row for one in opened.scan(prefilter="v = 'v1'", indexed=True) for row in one["id"]]
    return sorted(value.as_py() for value in found)


def indexed_files(tables: Tables, pin: Pin) -> set[str]:
    return {Path(f.path).name for f in tables.reader.files(pin) if "/_indices/" in f.path}


@pytest.mark.parametrize("work", [append, compact, index])
def test_a_clean_up_before_any_step_leaves_what_is_named_whole(
    tmp_path: Path, work: Callable[[Tables, Pin], Pin]
) -> None:
    _, pin = lived(tmp_path / "before", RealFiles())
    made = work(copied(tmp_path / "before", Cleaned(tmp_path / "undisturbed")), pin)
    tables = lance_tables(tmp_path / "undisturbed", RealFiles())
    whole, of_index = answers(tables, made), indexed_files(tables, made)
    at, is_over, failed = 0, False, 0
    while not is_over:
        at += 1
        root = tmp_path / f"{at}"
        files = Cleaned(root)
        tables = copied(tmp_path / "before", files)
        files.done, files.at = 0, at
        try:
            made = work(tables, pin)
        except SiltstoneError:
            made, failed = pin, failed + 1
        is_over = files.done < at
        if made is pin and at % 8:
            continue  # nothing new is named; what was is looked at now and then
        clean_up(root)
        other = lance_tables(root, RealFiles())
        other.names.unite(FOLDER)
        other.reader.check(made)
        if made is not pin:
            assert indexed_files(other, made) == of_index, f"cleaned up before step {at}"
            assert answers(other, made) == whole, f"cleaned up before step {at}"
        assert other.names.lacking(f.path for f in other.reader.files(made)) == ([], [])
    assert at > 5
    assert failed < at - 1


def staged(root: Path, tables: Tables, pin: Pin) -> StagedVersion:
    """Have stock Lance write a version, as its client stages it."""
    tables.names.promote([pin], pin)
    rows = pa.table({"id": [100], "v": ["new"]}, schema=SCHEMA)
    lance.write_dataset(rows, root / FOLDER, mode="append")
    public = root / FOLDER / "_versions" / promotion.public_name(pin.version + 1)
    manifest = public.rename(f"{public}-{uuid.uuid4()}")
    return StagedVersion(pin.version + 1, str(manifest), manifest.stat().st_size)


def test_a_staged_version_whose_rows_a_clean_up_took_is_refused(tmp_path: Path) -> None:
    tables, pin = lived(tmp_path, RealFiles())
    before = {*(tmp_path / FOLDER / "data").iterdir()}
    given = staged(tmp_path, tables, pin)
    for path in {*(tmp_path / FOLDER / "data").iterdir()} - before:
        path.unlink()
    with pytest.raises(RequestError, match="does not exist"):
        tables.external.import_version(FOLDER, pin, given)


def test_a_staged_version_that_a_clean_up_takes_while_it_is_looked_at_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lance opens the manifest once more to say what made the version."""
    tables, pin = lived(tmp_path, RealFiles())
    given = staged(tmp_path, tables, pin)
    look = lance.LanceDataset.read_transaction

    def after_others(dataset: lance.LanceDataset, version: int) -> object:
        shutil.rmtree(tmp_path / FOLDER / "_versions")
        shutil.rmtree(tmp_path / FOLDER / PRIVATE_DIRECTORY)
        return look(dataset, version)

    monkeypatch.setattr(lance.LanceDataset, "read_transaction", after_others)
    with pytest.raises(UnavailableError):
        tables.external.import_version(FOLDER, pin, given)
