"""Moment: a user's point in time, as microseconds since 1970 UTC.

A moment needs a zone. Without one it is local time in a zone that the store does not know; read as
UTC it would be wrong by hours.
"""

from __future__ import annotations

import datetime as dt

import numpy as np

from siltstone.errors import RequestError, SnapshotExpiredError

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)
AHEAD_US_MAX = 5_000_000
"""How far a moment may lie ahead of our clock: the caller's clock may be a little fast."""


def time_us_of(moment: object) -> int:
    """Return microseconds since 1970 UTC of a datetime or an ISO text with a zone.

    Raises:
        RequestError: It is neither, or it has no zone.
    """
    found = _parsed(moment) if isinstance(moment, str) else moment
    if isinstance(found, np.datetime64) and not np.isnat(found):
        raise _without_zone(moment)  # numpy has no zones
    if not isinstance(found, dt.datetime) or found != found:  # noqa: PLR0124 - NaT of pandas
        raise RequestError(
            f"a time must be a datetime with a zone, or like 2026-11-20T10:00Z; got {moment!r}"
        )
    if found.utcoffset() is None:
        raise _without_zone(moment)
    try:
        return int((found - EPOCH) // MICROSECOND)
    except (OverflowError, ValueError):  # of pandas, which knows more years than Python
        raise RequestError(f"the time {moment} is outside the years 1 to 9999") from None


def as_utc(moment: object) -> object:
    """Return a moment in a form with the same meaning in every process; None stays None.

    Raises:
        RequestError: It is no moment, or has no zone.
    """
    if moment is None:
        return None
    time_us = time_us_of(moment)
    try:
        return EPOCH + time_us * MICROSECOND
    except OverflowError:  # within a day of the years that Python knows, by its zone
        return moment


def refuse_future(moment: object, time_us: int, *, now_us: int, oldest: int, newest: int) -> None:
    """Refuse a moment in the future, whose snapshot is not known yet.

    Args:
        moment: The moment, as requested.
        time_us: The same in microseconds since 1970 UTC.
        now_us: The time now, or of the last commit if that is later: a clock may be set back.
        oldest: The lowest kept seq.
        newest: The highest seq.

    Raises:
        SnapshotExpiredError: It is more than `AHEAD_US_MAX` ahead.
    """
    if time_us > now_us + AHEAD_US_MAX:
        text = moment.isoformat() if isinstance(moment, dt.datetime) else moment
        now = (EPOCH + now_us * MICROSECOND).isoformat()
        raise SnapshotExpiredError(f"{text}, in the future (it is {now})", oldest, newest)


def _parsed(text: str) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise RequestError(f"a time must be like 2026-11-20T10:00Z; got {text!r}") from None


def _without_zone(moment: object) -> RequestError:
    text = moment.isoformat() if isinstance(moment, dt.datetime) else str(moment)
    return RequestError(
        f"the time {text} has no zone: for UTC write it with a Z"
        " (2026-11-20T10:00Z), for local time with its offset, as"
        " datetime.now().astimezone() gives it (2026-11-20T10:00-05:00)"
    )
