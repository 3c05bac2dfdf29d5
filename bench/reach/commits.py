"""Commits: durable ones that the bucket has when they return, beside a put, SlateDB and Delta."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import siltstone as st
from bench.measure import Sample, median, run_for
from bench.reach.lake import Door
from bench.workload import Metrics

_TURNS = {0: 30, 30: 20, 100: 10}
_MANY, _FEW, _DELTA_COMMITS = 64, 16, 3
_COLUMNS = {"id": "int64", "v": "string"}


def shipped(doors: dict[int, Door], folder: Path, seconds: float) -> Metrics:
    """Measure shipped commits, in turns with a put of as many bytes; then of many clients."""
    found: Metrics = {}
    for added_ms, door in doors.items():
        url = door.url()
        with st.connect(
            folder / f"shipped-{added_ms}", mirror=url, storage_options=door.settings
        ) as db:
            db.create_table("t", _COLUMNS, primary_key="id")
            numbers = itertools.count()
            commit = _committed(db, numbers)
            commit()  # it waits for the first record in the bucket
            put = _put(door)
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(_TURNS[added_ms]):
                times[0].append(_seconds(put))
                times[1].append(_seconds(commit))
            labels = f", {added_ms} ms added"
            found[f"a put, p50 ms{labels}"] = 1e3 * median(times[0])
            found[f"shipped, p50 ms{labels}"] = 1e3 * median(times[1])
            found[f"shipped / a put{labels}"] = median(times[1]) / median(times[0])
            for clients in (1, _FEW, _MANY):
                rate = run_for(seconds, [_counted(commit)] * clients).rate
                found[f"shipped/s, {clients} clients{labels}"] = rate
    found["shipped: 64 clients / 1"] = (
        found["shipped/s, 64 clients, 30 ms added"] / found["shipped/s, 1 clients, 30 ms added"]
    )
    return found


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _committed(db: st.Store, numbers: itertools.count[int]) -> Callable[[], object]:
    def commit() -> None:
        with db.transaction(durability="shipped") as tx:
            tx["t"].upsert({"id": next(numbers), "v": "some text of a row"})

    return commit


def _counted(call: Callable[[], object]) -> Callable[[], int]:
    def once() -> int:
        call()
        return 0

    return once


def _put(door: Door) -> Callable[[], object]:
    objects, numbers = door.objects(door.url()), itertools.count()
    objects.list_after("")
    return lambda: objects.put_new(f"wal/{next(numbers)}", b"x" * 400)


# others, on the same server


def slatedb(doors: dict[int, Door], seconds: float) -> Metrics:
    """Measure durable puts of SlateDB, which has 1 ms between flushes."""
    try:
        from slatedb import uniffi
    except ImportError:
        _skipped("slatedb")
        return {}
    del uniffi
    found: Metrics = {}
    for added_ms, door in doors.items():
        with door.entered():
            for clients, sample in asyncio.run(_slatedb_puts(door, seconds)).items():
                found[f"SlateDB: puts/s, {clients} clients, {added_ms} ms added"] = sample.rate
    return found


async def _slatedb_puts(door: Door, seconds: float) -> dict[int, Sample]:
    from slatedb.uniffi import DbBuilder, ObjectStore, Settings

    path = door.url().removeprefix(door.server.url)
    builder = DbBuilder(path.strip("/"), ObjectStore.resolve(door.server.url))
    settings = Settings.default()
    settings.set("flush_interval", '"1ms"')
    builder.with_settings(settings)
    db = await builder.build()
    numbers = itertools.count()

    async def client(sample: Sample, end: float) -> None:
        while time.perf_counter() < end:
            put = await db.put(b"%d" % next(numbers), b"some text of a row")
            await put.await_durable()
            sample.count += 1

    found: dict[int, Sample] = {}
    try:
        await (await db.put(b"first", b"")).await_durable()
        for clients in (1, _FEW):
            sample = found[clients] = Sample()
            begin = time.perf_counter()
            await asyncio.gather(*(client(sample, begin + seconds) for _ in range(clients)))
            sample.seconds = time.perf_counter() - begin
    finally:
        await db.shutdown()
    return found


def delta(doors: dict[int, Door]) -> Metrics:
    """Count the requests of a commit of Delta by a table that is open, and measure its time."""
    try:
        from deltalake import DeltaTable, write_deltalake
    except ImportError:
        _skipped("deltalake")
        return {}
    found: Metrics = {}
    row = pa.table({"id": pa.array([1]), "v": ["some text of a row"]})
    for added_ms, door in doors.items():
        url, options = door.url(), door.environment | {"conditional_put": "etag"}

        write_deltalake(url, row, storage_options=options)
        table = DeltaTable(url, storage_options=options)

        def commit(table: DeltaTable = table) -> None:
            write_deltalake(table, row, mode="append")

        commit()
        before = door.requests()
        times = [_seconds(commit) for _ in range(_DELTA_COMMITS)]
        found[f"Delta: a commit, ms, {added_ms} ms added"] = 1e3 * median(times)
        found["Delta: requests of a commit"] = (door.requests() - before) / _DELTA_COMMITS
    return found


def _skipped(package: str) -> None:
    print(f"reach: skipped, the package {package} is not installed", file=sys.stderr)
