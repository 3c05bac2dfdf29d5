"""The checkers find each planted anomaly, call it by its name, and allow what is allowed."""

from __future__ import annotations

import pytest

from proof.isolation.histories import Append, Read, Status, Transaction, anomalies, worth
from proof.isolation.registers import Kind, Operation, is_linearizable, long_forks

COMMITTED, ABORTED, UNKNOWN = Status.COMMITTED, Status.ABORTED, Status.UNKNOWN
Step = Read | Append
RowInput = tuple[float, float, Status, list[Step]]


def r(key: str, *values: int) -> Read:
    return Read(key, values)


def a(key: str, value: int) -> Append:
    return Append(key, value)


def history(*given: RowInput) -> list[Transaction]:
    return [Transaction(n, *when, tuple(steps)) for n, (*when, steps) in enumerate(given)]


def names(given: list[RowInput], *, is_serializable: bool) -> list[str]:
    found = anomalies(history(*given), is_serializable=is_serializable)
    return [each.name for each in found]


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
READ_ONLY_ANOMALY = [  # Fekete, O'Neil and O'Neil 2004
    (0, 9, COMMITTED, [r("x"), r("y"), a("x", 1)]),
    (1, 2, COMMITTED, [r("y"), a("y", 2)]),
    (3, 4, COMMITTED, [r("x"), r("y", 2)]),
    (*LAST, [r("x", 1), r("y", 2)]),
]
ANOMALIES: dict[str, tuple[str, list[RowInput]]] = {
    "lost update": (
        "lost update",
        [
            (0, 9, COMMITTED, [r("x"), a("x", 1)]),
            (0, 9, COMMITTED, [r("x"), a("x", 2)]),
            (*LAST, [r("x", 1, 2)]),
        ],
    ),
    "lost commit": (
        "lost commit",
        [(0, 9, COMMITTED, [r("x"), a("x", 1)]), (*LAST, [r("x")])],
    ),
    "aborted read": ("G1a", [(0, 9, ABORTED, [r("x"), a("x", 1)]), (*LAST, [r("x", 1)])]),
    "intermediate read": (
        "G1b",
        [
            (0, 9, COMMITTED, [r("x"), a("x", 1), a("x", 2)]),
            (0, 9, COMMITTED, [r("x", 1)]),
            (*LAST, [r("x", 1, 2)]),
        ],
    ),
    "circular information flow": (
        "G1c",
        [
            (0, 9, COMMITTED, [r("x"), a("x", 1), r("y", 2)]),
            (0, 9, COMMITTED, [r("y"), a("y", 2), r("x", 1)]),
            (*LAST, [r("x", 1), r("y", 2)]),
        ],
    ),
    "dirty write": (
        "G0",
        [
            (0, 9, COMMITTED, [r("x"), r("y", 4), a("x", 1), a("y", 2)]),
            (0, 9, COMMITTED, [r("x", 1), r("y"), a("x", 3), a("y", 4)]),
            (*LAST, [r("x", 1, 3), r("y", 4, 2)]),
        ],
    ),
    "half of an unknown": (
        "half a commit",
        [
            (0, 9, UNKNOWN, [r("x"), r("y"), a("x", 1), a("y", 2)]),
            (*LAST, [r("x", 1), r("y")]),
        ],
    ),
    "fractured read": (
        "G-single",
        [
            (0, 9, COMMITTED, [r("x"), r("y"), a("x", 1), a("y", 2)]),
            (0, 9, COMMITTED, [r("x", 1), r("y")]),
            (*LAST, [r("x", 1), r("y", 2)]),
        ],
    ),
    "long fork": (
        "G-nonadjacent",
        [
            (0, 9, COMMITTED, [r("x"), a("x", 1)]),
            (0, 9, COMMITTED, [r("y"), a("y", 2)]),
            (0, 9, COMMITTED, [r("x", 1), r("y")]),
            (0, 9, COMMITTED, [r("x"), r("y", 2)]),
            (*LAST, [r("x", 1), r("y", 2)]),
        ],
    ),
    "other order": (
        "incompatible order",
        [
            (0, 9, COMMITTED, [r("x"), a("x", 1)]),
            (0, 9, COMMITTED, [r("x", 1), a("x", 2)]),
            (0, 9, COMMITTED, [r("x", 2)]),
            (*LAST, [r("x", 1, 2)]),
        ],
    ),
    "a value twice": (
        "duplicate",
        [(0, 9, COMMITTED, [r("x"), a("x", 1)]), (*LAST, [r("x", 1, 1)])],
    ),
    "a value from nowhere": ("garbage", [(*LAST, [r("x", 7)])]),
    "stale read": (
        "G-single-realtime",
        [
            (0, 1, COMMITTED, [r("x"), a("x", 1)]),
            (2, 3, COMMITTED, [r("x")]),
            (*LAST, [r("x", 1)]),
        ],
    ),
    "read from the future": (
        "G1c-realtime",
        [
            (0, 1, COMMITTED, [r("x", 1)]),
            (2, 3, COMMITTED, [r("x"), a("x", 1)]),
            (*LAST, [r("x", 1)]),
        ],
    ),
    "own write unseen": (
        "internal",
        [(0, 9, COMMITTED, [r("x"), a("x", 1), r("x")]), (*LAST, [r("x", 1)])],
    ),
    "two looks that differ": (
        "internal",
        [
            (0, 1, COMMITTED, [r("x"), a("x", 1)]),
            (0, 9, COMMITTED, [r("x"), r("x", 1)]),
            (*LAST, [r("x", 1)]),
        ],
    ),
}


def test_a_serial_history_is_right() -> None:
    assert names(SERIAL, is_serializable=True) == []


@pytest.mark.parametrize("what", ANOMALIES)
@pytest.mark.parametrize("is_serializable", [False, True])
def test_each_anomaly_is_found_and_named(what: str, is_serializable: bool) -> None:
    name, given = ANOMALIES[what]
    assert name in names(given, is_serializable=is_serializable)


@pytest.mark.parametrize("what", ANOMALIES)
def test_an_anomaly_is_found_between_many_that_are_right(what: str) -> None:
    """What follows from two others is left out of the order of real time; it is not lost."""
    name, given = ANOMALIES[what]
    calm = [(80 + n / 10, 80.05 + n / 10, COMMITTED, [r("z")]) for n in range(50)]
    early = [(-20 + n / 10, -19.95 + n / 10, COMMITTED, [r("z")]) for n in range(50)]
    assert name in names([*early, *given[:-1], *calm, given[-1]], is_serializable=False)


@pytest.mark.parametrize("given", [WRITE_SKEW, READ_ONLY_ANOMALY])
def test_snapshots_allow_two_overwrites_in_a_row_and_a_series_does_not(
    given: list[RowInput],
) -> None:
    assert names(given, is_serializable=False) == []
    assert names(given, is_serializable=True) == ["G2"]


@pytest.mark.parametrize("is_beside", [False, True])
def test_who_reads_beside_sees_what_was_acknowledged_before(is_beside: bool) -> None:
    wrote, looked = history((0, 1, COMMITTED, [r("x"), a("x", 1)]), (2, 3, COMMITTED, [r("x")]))
    again = Transaction(2, 4, 5, COMMITTED, (r("x", 1),))
    stale = Transaction(1, 2, 3, COMMITTED, looked.steps, is_beside)
    (found,) = anomalies([wrote, stale, again], is_serializable=False)
    assert found.name == "G-single-realtime"


def test_who_reads_beside_may_see_a_durable_commit_before_the_owner_reveals_it() -> None:
    ahead = Transaction(1, 1, 2, COMMITTED, (r("x", 1),), is_beside=True)
    others = [
        Transaction(0, 0, 9, COMMITTED, (r("x"), a("x", 1))),
        Transaction(2, 3, 4, COMMITTED, (r("x"),)),
        Transaction(3, 90, 91, COMMITTED, (r("x", 1),)),
    ]
    assert anomalies([others[0], ahead, *others[1:]], is_serializable=True) == []
    before = Transaction(1, 1, 2, COMMITTED, (r("x", 1),))
    assert anomalies([others[0], before, *others[1:]], is_serializable=True)


def test_a_history_in_which_nobody_meets_anybody_is_worth_nothing() -> None:
    alone = [(n, n + 0.5, COMMITTED, [r("x"), a("x", n)]) for n in range(100)]
    assert not worth(history(*alone)).is_enough
    met = [(0, 9, COMMITTED if n % 2 else ABORTED, [r("x"), a("x", n)]) for n in range(12)]
    assert worth(history(*met)).is_enough


# registers

READ, WRITE, SWAP = Kind.READ, Kind.WRITE, Kind.SWAP


def test_a_register_may_change_at_any_moment_of_a_write() -> None:
    told = [Operation(0, 9, WRITE, 1), Operation(1, 2, READ, 0), Operation(3, 4, READ, 1)]
    assert is_linearizable(told)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("a stale read", [Operation(0, 1, WRITE, 1), Operation(2, 3, READ, 0)]),
        (
            "a read that goes back",
            [Operation(0, 9, WRITE, 1), Operation(1, 2, READ, 1), Operation(3, 4, READ, 0)],
        ),
        ("a read of nobody's value", [Operation(0, 1, READ, 5)]),
        (
            "a lost write",
            [Operation(0, 1, WRITE, 1), Operation(2, 3, WRITE, 2), Operation(4, 5, READ, 1)],
        ),
        ("two swaps of one value", [Operation(0, 9, SWAP, n, expected=0) for n in (1, 2)]),
        (
            "an unknown write before it was begun",
            [Operation(0, 1, READ, 1), Operation(2, 3, WRITE, 1, is_certain=False)],
        ),
        (
            "an unknown write that takes effect twice",
            [
                Operation(0, 1, WRITE, 1, is_certain=False),
                Operation(2, 3, READ, 1),
                Operation(4, 5, WRITE, 2),
                Operation(6, 7, READ, 1),
            ],
        ),
    ],
)
def test_what_no_register_does_is_found(what: str, told: list[Operation]) -> None:
    assert not is_linearizable(told), what


@pytest.mark.parametrize("seen", [0, 1])
def test_an_unknown_write_may_happen_late_or_never(seen: int) -> None:
    unknown = Operation(0, 1, WRITE, 1, is_certain=False)
    assert is_linearizable([unknown, Operation(2, 3, READ, 0), Operation(4, 5, READ, seen)])


def test_writes_of_which_nothing_is_known_or_seen_cost_nothing() -> None:
    unknown = [Operation(0, 1, WRITE, n, is_certain=False) for n in range(1, 60)]
    assert not is_linearizable([*unknown, Operation(2, 3, READ, 77)])
    assert is_linearizable([*unknown, Operation(2, 3, READ, 0), Operation(4, 5, READ, 8)])


def test_many_operations_at_once_are_checked_in_time() -> None:
    told = [Operation(n, n + 8, WRITE, n) for n in range(1, 400)]
    told += [Operation(n + 7.5, n + 9, READ, n) for n in range(1, 400, 40)]
    assert is_linearizable(told)
    assert not is_linearizable([*told, Operation(300, 301, READ, 5)])


def test_two_vectors_that_are_each_ahead_are_a_long_fork() -> None:
    assert long_forks([(1, 1), (0, 0), (2, 1), (1, 0)]) == []
    assert long_forks([(0, 0), (1, 0), (0, 1), (1, 1)])
