"""A driver's protocol in small: the logs of a checkpoint and the calls that Spark makes, no JVM.

An offset is logged before its batch runs, a commit after it; a run that dies between any two steps
leaves the logs as they are, and the next run does again what has no commit.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa

from siltstone.spark.context.application import APPLICATION
from siltstone.spark.context.options import FeedOptions, SinkOptions
from siltstone.spark.context.schemas import arrow_schema, to_spark
from siltstone.spark.sessions.source import durable_seq
from siltstone.spark.streams import feed
from siltstone.spark.streams.feed import ChangeTaskReader, FeedReader
from siltstone.spark.writes.writer import Sink, SinkWritten

STEPS = ("logged", "staged", "committed", "acknowledged")


class KilledError(Exception):
    """The driver is no more."""


@dataclass
class Checkpoint:
    """What Spark keeps of a query."""

    query: str = field(default_factory=lambda: str(uuid.uuid4()))
    offsets: list[str] = field(default_factory=list)
    commits: set[int] = field(default_factory=set)


class Run:
    """One run of the query that reads the changes of a table, changes them, and writes them."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        source: dict[str, str],
        sink: dict[str, str],
        change: Callable[[pa.RecordBatch], pa.RecordBatch],
        *,
        is_overwrite: bool = False,
        clock_s: Callable[[], float] = time.monotonic,
        driver: str | None = None,
    ) -> None:
        options = FeedOptions.parse(source)
        self.checkpoint, self.driver = checkpoint, driver or str(uuid.uuid4())
        self.first_commit: int | None = None
        self.schema = feed.describe(options)
        self.reader = FeedReader(options, self.schema, clock_s)
        self.change, self.sink_options, self.is_overwrite = change, sink, is_overwrite

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()

    def finish(self, kill: tuple[str, int] | None = None) -> int:
        """Process what there is; return how many batches ran. `kill`: after which step of which."""
        self.reader.prepareForTriggerAvailableNow()
        return self.drain(kill)

    def drain(self, kill: tuple[str, int] | None = None) -> int:
        """Process what there is, and what comes meanwhile."""
        done = 0
        while True:
            number = len(self.checkpoint.offsets) - 1
            if number < 0 or number in self.checkpoint.commits:
                if not self.plan():
                    return done
                number += 1
            self.execute(number, kill)
            done += 1

    def plan(self) -> bool:
        """Log where the next batch ends; say whether there is one."""
        offsets = self.checkpoint.offsets
        start = json.loads(offsets[-1]) if offsets else self.reader.initialOffset()
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        if json.dumps(end) == json.dumps(start):
            return False
        offsets.append(json.dumps(end))
        if len(offsets) > 1:
            self.reader.commit(json.loads(offsets[-2]))
        return True

    def execute(self, number: int, kill: tuple[str, int] | None) -> None:
        offsets = self.checkpoint.offsets
        start = json.loads(offsets[number - 1]) if number else self.reader.initialOffset()
        kill_after("logged", number, kill)
        batches = list(self.rows(start, json.loads(offsets[number])))
        messages = self.stage(batches)
        kill_after("staged", number, kill)
        self.commit(messages, number)
        kill_after("committed", number, kill)
        self.checkpoint.commits.add(number)
        kill_after("acknowledged", number, kill)

    def commit(self, messages: list[SinkWritten | None], number: int) -> None:
        if self.first_commit is None:  # Spark pickles the source then
            self.first_commit = durable_seq(self.sink_options["uri"])
        self.sink().commit(messages, number)

    def rows(self, start: dict, end: dict) -> Iterator[list[pa.RecordBatch]]:
        wanted = arrow_schema(self.schema)
        for partition in self.reader.partitions(start, end):
            batches = list(ChangeTaskReader(self.schema).read(partition))
            assert all(batch.schema.equals(wanted) for batch in batches)
            yield [self.change(batch) for batch in batches]

    def sink(self) -> Sink:
        fields = arrow_schema(self.schema)
        nothing = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in fields], schema=fields)
        where = {"checkpointLocation": self.checkpoint.query}
        options = SinkOptions.parse({**self.sink_options, **where})
        return Sink(
            options,
            to_spark(self.change(nothing).schema),
            is_overwrite=self.is_overwrite,
            first_commit=self.first_commit or 0,
            environment={APPLICATION: self.driver},
        )

    def stage(self, parts: list[list[pa.RecordBatch]]) -> list[SinkWritten | None]:
        piece, start = self.sink().planned()
        return [
            SinkWritten(piece, piece.write(iter(part)), self.checkpoint.query, start)
            for part in parts
        ]


def kill_after(step: str, number: int, kill: tuple[str, int] | None) -> None:
    if kill is not None and kill[0] == step and number >= kill[1]:
        raise KilledError
