"""The checker of histories finds each anomaly, and allows what its level allows."""

from __future__ import annotations

import pytest

from tests.isolation.histories import Append, Read, Status, Transaction, violations

COMMITTED, ABORTED, UNKNOWN = Status.COMMITTED, Status.ABORTED, Status.UNKNOWN
Step = Read | Append


def r(key: str, *values: int) -> Read:
    return Read(key, values)


def a(key: str, value: int) -> Append:
    return Append(key, value)


def history(*given: tuple[float, float, Status, list[Step]]) -> list[Transaction]:
    return [Transaction(n, *when, tuple(steps)) for n, (*when, steps) in enumerate(given)]


LAST = (90, 91, COMMITTED)
SERIAL = [
    (0, 1, COMMITTED, [r("x"), a("x", 1)]),
    (2, 3, COMMITTED, [r("x", 1), a("x", 2), r("x", 1, 2)]),
    (2, 3, ABORTED, [r("x", 1), a("x", 3)]),
    (4, 5, UNKNOWN, [r("x", 1, 2), a("x", 4)]),
    (*LAST, [r("x", 1, 2)]),
]
WRITE_SKEW = [
    (0, 9, COMMITTED, [r("x"), r("y"), a("x", 1)]),
    (0, 9, COMMITTED, [r("x"), r("y"), a("y", 2)]),
    (*LAST, [r("x", 1), r("y", 2)]),
]
ANOMALIES = {
    "lost update": [
        (0, 9, COMMITTED, [r("x"), a("x", 1)]),
        (0, 9, COMMITTED, [r("x"), a("x", 2)]),
        (*LAST, [r("x", 1, 2)]),
    ],
    "lost commit": [(0, 9, COMMITTED, [r("x"), a("x", 1)]), (*LAST, [r("x")])],
    "aborted read": [(0, 9, ABORTED, [r("x"), a("x", 1)]), (*LAST, [r("x", 1)])],
    "intermediate read": [
        (0, 9, COMMITTED, [r("x"), a("x", 1), a("x", 2)]),
        (0, 9, COMMITTED, [r("x", 1)]),
        (*LAST, [r("x", 1, 2)]),
    ],
    "half of an unknown": [
        (0, 9, UNKNOWN, [r("x"), r("y"), a("x", 1), a("y", 2)]),
        (*LAST, [r("x", 1), r("y")]),
    ],
    "fractured read": [
        (0, 9, COMMITTED, [r("x"), r("y"), a("x", 1), a("y", 2)]),
        (0, 9, COMMITTED, [r("x", 1), r("y")]),
        (*LAST, [r("x", 1), r("y", 2)]),
    ],
    "long fork": [
        (0, 9, COMMITTED, [r("x"), a("x", 1)]),
        (0, 9, COMMITTED, [r("y"), a("y", 2)]),
        (0, 9, COMMITTED, [r("x", 1), r("y")]),
        (0, 9, COMMITTED, [r("x"), r("y", 2)]),
        (*LAST, [r("x", 1), r("y", 2)]),
    ],
    "other order": [
        (0, 9, COMMITTED, [r("x"), a("x", 1)]),
        (0, 9, COMMITTED, [r("x", 1), a("x", 2)]),
        (0, 9, COMMITTED, [r("x", 2)]),
        (*LAST, [r("x", 1, 2)]),
    ],
    "stale read": [
        (0, 1, COMMITTED, [r("x"), a("x", 1)]),
        (2, 3, COMMITTED, [r("x")]),
        (*LAST, [r("x", 1)]),
    ],
    "own write unseen": [(0, 9, COMMITTED, [r("x"), a("x", 1), r("x")]), (*LAST, [r("x", 1)])],
}


def test_a_serial_history_is_right() -> None:
    assert violations(history(*SERIAL), is_serializable=True) == []


@pytest.mark.parametrize("name", ANOMALIES)
def test_each_anomaly_is_found(name: str) -> None:
    assert violations(history(*ANOMALIES[name]), is_serializable=False)
    assert violations(history(*ANOMALIES[name]), is_serializable=True)


def test_write_skew_is_right_in_snapshots_and_wrong_in_series() -> None:
    assert violations(history(*WRITE_SKEW), is_serializable=False) == []
    assert violations(history(*WRITE_SKEW), is_serializable=True)
