"""Moment: what a user means by a point in time, as microseconds since 1970 UTC.

A moment says its zone. One without is local time to who wrote it, in a zone that the store does not
know: taken for UTC it would be another moment, by hours.
"""

from __future__ import annotations

import datetime as dt

import numpy as np

from siltstone.errors import RequestError, SnapshotExpiredError

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)
AHEAD_US_MAX = 5_000_000
"""How far a moment may lie ahead of our clock: that of who asks may be a little fast."""


def time_us_of(moment: object) -> int:
    """Return microseconds since 1970 UTC of a datetime or an ISO text with a zone.

    Raises:
        RequestError: It is neither, or it says no zone.
    """
    found = _parsed(moment) if isinstance(moment, str) else moment
    if isinstance(found, np.datetime64) and not np.isnat(found):
        raise _without_zone(moment)  # numpy has no zones
    if not isinstance(found, dt.datetime) or found != found:  # noqa: PLR0124 - NaT of pandas
        raise RequestError(
            f"a moment is a datetime with a zone, or a text like 2026-11-20T10:00Z, not {moment!r}"
        )
    if found.utcoffset() is None:
        raise _without_zone(moment)
    try:
        return int((found - EPOCH) // MICROSECOND)
    except (OverflowError, ValueError):  # of pandas, which knows more years than Python
        raise RequestError(f"the moment {moment} is outside the years 1 to 9999") from None


def as_utc(moment: object) -> object:
    """Return a moment in a form that any process reads alike; None stays None.

    Raises:
        RequestError: It is no moment, or says no zone.
    """
    if moment is None:
        return None
    time_us = time_us_of(moment)
    try:
        return EPOCH + time_us * MICROSECOND
    except OverflowError:  # within a day of the years that Python knows, by its zone
        return moment


def refuse_future(moment: object, time_us: int, *, now_us: int, oldest: int, newest: int) -> None:
    """Refuse a moment that has not come: what it will show is not known.

    Args:
        moment: As it was asked for.
        time_us: The same in microseconds since 1970 UTC.
        now_us: The time, or that of the last commit, if that is later: a clock may be set back.
        oldest: The lowest seq that is kept.
        newest: The highest.

    Raises:
        SnapshotExpiredError: It lies more than `AHEAD_US_MAX` ahead.
    """
    if time_us > now_us + AHEAD_US_MAX:
        text = moment.isoformat() if isinstance(moment, dt.datetime) else moment
        now = (EPOCH + now_us * MICROSECOND).isoformat()
        raise SnapshotExpiredError(f"{text}, in the future (it is {now})", oldest, newest)


def _parsed(text: str) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise RequestError(f"a moment is like 2026-11-20T10:00Z, not {text!r}") from None


def _without_zone(moment: object) -> RequestError:
    text = moment.isoformat() if isinstance(moment, dt.datetime) else str(moment)
    return RequestError(
        f"the moment {text} says no time zone: for UTC write it with a Z"
        " (2026-11-20T10:00Z), for local time with its offset, as"
        " datetime.now().astimezone() gives it (2026-11-20T10:00-05:00)"
    )
