"""A pin that was returned survives every power cut; one that was not disturbs no other."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from siltstone.errors import UnavailableError
from siltstone.formats.manifest import Pin
from siltstone.storage.tables.store_tables import Tables
from tests.support.fake_lance import fake_lance
from tests.support.simulated_files import Fault, Kind, SimFiles, SimulatedCrash

ROOT, FOLDER = Path("/store"), "tables/t-1/base"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
STEPS = 6


def fake(files: SimFiles) -> Tables:
    numbers = itertools.count(files.operations)
    return fake_lance(ROOT, files, token=lambda: f"{id(files):x}-{next(numbers)}")


def batch(*ids: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(ids), pa.array(ids)], schema=SCHEMA)


def work(tables: Tables, done: Callable[[Pin, list[int]], None]) -> None:
    """Run every operation once, telling each pin and its rows."""
    pin = tables.writer.create(FOLDER, SCHEMA)
    done(pin, [])
    pin = tables.writer.append(pin, [batch(1, 2)], seqs=(1, 2))
    done(pin, [1, 2])
    pin = tables.writer.append(pin, [batch(3)], seqs=(3, 3))
    done(pin, [1, 2, 3])
    pin = tables.rewriter.rewrite(pin, drop=np.array([0]), batches=[batch(4)], seqs=(4, 4))
    done(pin, [2, 4, 3])  # files stand by their lowest seqs
    tables.names.promote([], pin)
    pin = tables.writer.alter(pin, rename={"v": "w"}, drop=[], add=[])
    done(pin, [2, 4, 3])  # files stand by their lowest seqs
    pin = tables.writer.overwrite(pin, SCHEMA, [batch(9)])
    done(pin, [9])


def expect(files: SimFiles, pins: list[tuple[Pin, list[int]]], label: str) -> None:
    tables = fake(files)
    for pin, rows in pins:
        tables.reader.check(pin)
        found = [i for b in tables.reader.open(pin).scan(["id"]) for i in b["id"].to_pylist()]
        assert found == rows, label


def begun(faults: tuple[Fault, ...] = ()) -> SimFiles:
    files = SimFiles()
    files.mkdir(ROOT)
    files.faults = faults
    return files


def test_returned_pins_survive_a_crash_at_every_step_and_every_disk_after_it() -> None:
    whole = begun()
    first = whole.operations
    work(fake(whole), lambda _pin, _rows: None)
    for at in range(first + 1, whole.operations + 1):
        files, pins = begun((Fault(at),)), []
        with pytest.raises(SimulatedCrash):
            work(fake(files), lambda pin, rows, pins=pins: pins.append((pin, rows)))
        for image in files.images(random.Random(at), limit=12):
            expect(image.files, pins, f"step {at}, {image.label}")
    assert len(pins) == STEPS - 1


@pytest.mark.parametrize("kind", [Kind.EIO, Kind.ENOSPC])
def test_a_failing_step_is_unavailable_and_leaves_returned_pins_good(kind: Kind) -> None:
    whole = begun()
    first = whole.operations
    work(fake(whole), lambda _pin, _rows: None)
    for at in range(first + 1, whole.operations + 1):
        files, pins = begun((Fault(at, kind),)), []
        try:
            work(fake(files), lambda pin, rows, pins=pins: pins.append((pin, rows)))
        except (UnavailableError, OSError):
            assert len(pins) < STEPS
        files.faults = ()
        expect(files, pins, f"step {at}")
