"""Times: the local times of options, in the zone of the option `timeZone`, else of the session.

A local time that a clock shows twice is the earlier one; one that it skips is as much later as the
clock is put forward. So does Spark when it casts a text to a timestamp.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from collections.abc import Mapping

from pyspark.sql import SparkSession

from siltstone.errors import RequestError

ZONE, SESSION_ZONE = "timeZone", "spark.sql.session.timeZone"
_OF_TIMES = ("at", "timestampasof", "startingtimestamp", "endingtimestamp")
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?([0-5]\d))?")
_OFFSET_HOURS_MAX = 18  # as Java has it
_ZERO = ("Z", "UTC", "GMT", "UT")


def zone_name(name: str, text: str) -> str:
    """Return the name of a zone.

    Raises:
        RequestError: There is no such zone.
    """
    _zone_of(name, text)
    return text


def in_zone(found: Mapping[str, str]) -> dict[str, str]:
    """Return options, of lower case, whose local times are UTC if there is a zone.

    Raises:
        RequestError: There is no such zone, or a time is outside the years that Python knows.
    """
    text = found.get(ZONE.lower())
    if text is None:
        return dict(found)
    zone = _zone_of(ZONE, text)
    times = {name: _utc(found[name], zone) for name in _OF_TIMES if name in found}
    return {**found, **times}


def is_local(text: str) -> bool:
    """Return whether a text is a time without an offset."""
    try:
        return dt.datetime.fromisoformat(text).utcoffset() is None
    except ValueError:
        return False


def of_session(spark: SparkSession, moment: object) -> object:
    """Return a text of a local time in the zone of the session; anything else as it is.

    Raises:
        RequestError: The session has a zone that Python does not know, or the time is outside the
            years that it knows.
    """
    if not isinstance(moment, str):
        return moment
    return _utc(moment, _zone_of(SESSION_ZONE, spark.conf.get(SESSION_ZONE) or "UTC"))


def _utc(text: str, zone: dt.tzinfo) -> str:
    try:
        local = dt.datetime.fromisoformat(text)
        if local.utcoffset() is not None:
            return text
        return local.replace(tzinfo=zone, fold=0).astimezone(dt.UTC).isoformat()
    except ValueError:
        return text  # the option's own check refuses it
    except OverflowError:
        raise RequestError(f"the time {text} is outside the years 1 to 9999") from None


def _zone_of(name: str, text: str) -> dt.tzinfo:
    if text in _ZERO:
        return dt.UTC
    offset = _OFFSET.fullmatch(text)
    if offset is not None:
        sign, hours, minutes = offset[1], int(offset[2]), int(offset[3] or 0)
        if (hours, minutes) <= (_OFFSET_HOURS_MAX, 0):
            found = dt.timedelta(hours=hours, minutes=minutes)
            return dt.timezone(-found if sign == "-" else found)
    try:
        return zoneinfo.ZoneInfo(text)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):  # a folder, no key, unknown
        raise RequestError(
            f"option {name!r} must be a time zone, like Europe/Berlin or +02:00; got {text!r}"
        ) from None
