"""Session zone: the time zone of a session, which its planners ask for.

A zone that was noted at `register()` would be wrong after `SET TIME ZONE`, so the driver answers
with that of the moment. Where no driver answers, a time without an offset is refused.

A stream has a copy of its session, with the registered class and the settings of its start. A read
in its batches cannot be distinguished from one in the session, so the driver answers only if both
have one zone.
"""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import SparkSession

from siltstone.spark.session_answers import Address, asked
from siltstone.spark.times import SESSION_ZONE

ZONE_QUESTION = "zone"


def zone_at(address: Address) -> str | None:
    """Return the zone of a session now; None: no driver answers, or its streams have another."""
    try:
        return asked(address, ZONE_QUESTION)
    except TimeoutError:
        return None


def zone_of(spark: SparkSession, _about: str, _until: float) -> str:
    """Return the zone of a session and of the copies that its streams have of it; "": none."""
    # Only a query of the JVM has its session.
    running = [cast("Any", query)._jsq for query in spark.streams.active]  # noqa: SLF001
    copies = [query.streamingQuery().sparkSessionForStream().conf() for query in running]
    zones = {spark.conf.get(SESSION_ZONE), *(conf.get(SESSION_ZONE) for conf in copies)}
    return str(zones.pop()) if len(zones) == 1 else ""
