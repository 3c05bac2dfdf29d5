"""Journal: what clients did and saw, a JSON line each, in files that outlive who is killed.

    {"client": 7, "n": 12, "what": "snapshot", "begun": .., "ended": .., "status": "unknown", ..}

`what` is the game: lists under "snapshot" or "serializable" isolation, a "register", a "fork". Who
is about to commit says so first: a line of unknown status, which a later one with the same client
and n replaces. So a client that is killed while it commits leaves an unknown end.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proof.isolation.histories import Append, Read, Status, Transaction, Worth, anomalies, worth
from proof.isolation.registers import Kind, Operation, is_linearizable, long_forks
from proof.lines import lines_of

LEVELS = ("snapshot", "serializable")
Entry = dict[str, Any]


class Journal:
    """A file that any number of threads and processes append lines to."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, entry: Mapping[str, object]) -> None:
        """Append a line, in one write."""
        os.write(self._file, json.dumps(entry).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def entries(paths: Iterable[Path]) -> list[Entry]:
    """Return what the files tell, of each client's steps the last word."""
    found: dict[tuple[int, int], Entry] = {}
    for path in paths:
        for line in lines_of(path):
            entry = json.loads(line)
            found[entry["client"], entry["n"]] = entry
    return [*found.values()]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with what clients saw, and how much they looked at."""

    violations: Sequence[str]
    worth: Mapping[str, Worth]
    has_write_skew: bool
    operations: Mapping[str, int]


def judge(told: Sequence[Entry], lists: Mapping[tuple[str, int], Sequence[int]]) -> Verdict:
    """Check all games; `lists` are all lists at the end, by table and id."""
    games = defaultdict[str, list[Entry]](list)
    for entry in told:
        games[entry["what"]].append(entry)
    histories = {level: _history(games[level], level, lists) for level in LEVELS}
    wrong = [
        f"{level}: {each}"
        for level, history in histories.items()
        for each in anomalies(history, is_serializable=level == "serializable")
    ]
    skews = anomalies(histories["snapshot"], is_serializable=True)
    return Verdict(
        violations=[*wrong, *_registers(games["register"]), *_forks(games["fork"])],
        worth={level: worth(history) for level, history in histories.items()},
        has_write_skew=any(each.name == "G2" for each in skews),
        operations={what: len(found) for what, found in games.items()},
    )


def _history(
    told: Sequence[Entry], level: str, lists: Mapping[tuple[str, int], Sequence[int]]
) -> list[Transaction]:
    found = [
        Transaction(
            number=number,
            begun=entry["begun"],
            ended=entry["ended"],
            status=Status(entry["status"]),
            steps=tuple(map(_step, entry["steps"])),
            is_beside=entry["is_beside"],
        )
        for number, entry in enumerate(told)
    ]
    keys = {step.key for each in found for step in each.steps}
    final = tuple(
        Read(key, tuple(values))
        for key, values in lists.items()
        if key[0].endswith(level) and key in keys
    )
    end = max((each.ended for each in found), default=0.0) + 1
    return [*found, Transaction(len(found), end, end, Status.COMMITTED, final)]


def _step(told: Sequence[Any]) -> Read | Append:
    table, place, seen = told
    key = (table, place)
    return Read(key, tuple(seen)) if isinstance(seen, list) else Append(key, seen)


def _registers(told: Sequence[Entry]) -> list[str]:
    by_place = defaultdict[int, list[Operation]](list)
    for entry in told:
        if entry["status"] == "aborted":
            continue
        by_place[entry["place"]].append(
            Operation(
                begun=entry["begun"],
                ended=entry["ended"],
                kind=Kind(entry["kind"]),
                value=entry["value"],
                expected=entry["expected"],
                is_certain=entry["status"] == "committed",
            )
        )
    return [
        f"register {place} is not linearizable: {told}"
        for place, told in by_place.items()
        if not is_linearizable(told)
    ]


def _forks(told: Sequence[Entry]) -> list[str]:
    by_place = defaultdict[int, list[list[int]]](list)
    for entry in told:
        by_place[entry["place"]].append(entry["seen"])
    return [
        f"long fork: {one} and {other}"
        for seen in by_place.values()
        for one, other in long_forks(seen)
    ]
