"""Drivers: determines the newest of several drivers of one stream; only that one continues.

    before its first batch    the driver claims the *start* of the stream: a number, durable, that
                              rises from driver to driver
    with its first commit     the driver claims the app with its number, unless a higher one has it
    with each commit          the driver must still have the app

A driver is a Spark application with a checkpoint; Spark itself runs a checkpoint once in it. The
processes of Spark that plan and commit remember nothing, but two things tell them apart: the number
is in the messages of the tasks, and the process that commits is made from the state pickled at the
first commit of the run. A driver whose start another driver claimed after that moment may continue
while it still has the app, but may not claim it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from siltstone.errors import FencedError, UnavailableError
from siltstone.process.retry import Retry
from siltstone.spark.context import stores
from siltstone.spark.context.application import APPLICATION
from siltstone.spark.context.options import SinkOptions
from siltstone.store import Store

START_PREFIX = "spark-start-"
_RETRY = Retry(10, (FencedError,))  # another driver of the stream was faster
_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Start:
    """A driver, the number with which it claimed the start of its stream, and the seq then."""

    driver: str
    number: int
    seq: int


def driver_of(environment: Mapping[str, str], checkpoint: str) -> str:
    """Return the name of the driver that started this process.

    Raises:
        UnavailableError: Spark does not tell the application of this process.
    """
    application = environment.get(APPLICATION)
    if not application:
        raise UnavailableError(
            f"this Spark does not tell its processes their application ({APPLICATION}), so an older"
            " driver could not be distinguished from a newer one"
        )
    return _short(f"{application}\n{checkpoint}")


def started(db: Store, place: SinkOptions, stream: str, driver: str) -> Start:
    """Return the driver's start of a stream; claim it if necessary. `db` reads the store.

    Raises:
        OwnedError: The owner does not serve: call `serve_local()` there.
        FencedError: Other drivers started at the same moment, repeatedly.
    """
    name = START_PREFIX + _short(stream)
    number, holder = db.claimed(name)
    whose, _, seq = holder.partition("@")
    if whose == driver:
        return Start(driver, number, int(seq))
    with stores.owner(place.uri, force=place.force) as owner:
        return _RETRY.run(lambda: _claimed_by(driver, owner, name))


def _claimed_by(driver: str, owner: Store, name: str) -> Start:
    seq = owner.seq + 1  # no claim number tells when: those of forgotten apps may be of any size
    return Start(driver, owner.claim(name, f"{driver}@{seq}"), seq)


def take(db: Store, app: str, start: Start, first_commit: int) -> int:
    """Return the claim of an app for a driver whose run committed first at the seq `first_commit`.

    Raises:
        FencedError: A driver that started later has the app; this one must stop.
    """
    return db.claim(app, start.driver, start.number if start.seq <= first_commit else 0)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
