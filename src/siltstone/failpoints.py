r"""Failpoints: places where tests kill, break or hold a process, and the durable state there.

    cross(Failpoint.X)      nothing, unless X is armed: one test of an empty dict, 40 ns
    arm("optimize.before_publish=kill, vacuum.after_floor=pause@2", socket="/tmp/rendezvous")

Actions: `kill` (SIGKILL to oneself), `raise` (FailpointError, as if the file system refused) and
`pause`: connect to the Unix socket, send "<label> <pid>\n", and wait for a byte. Each action runs
once, at the nth crossing (`@n`, by default the first), so that a retry succeeds. `note` does
nothing but count, as every order does (`crossings`).

Failpoints are for tests and off in every other process. The environment arms child processes:
`SILTSTONE_FAILPOINTS` is the text above, `SILTSTONE_FAILPOINTS_SOCKET` the socket.

Lock: one, over the count of crossings; never held while an action runs.
"""

from __future__ import annotations

import os
import re
import signal
import socket as sockets
import threading
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

import msgspec

from siltstone.errors import RequestError

PAUSE_S_MAX = 120.0
_ORDER = re.compile(r"([a-z_.]+)=([a-z]+)(?:@([1-9]\d{0,8}))?")

Action = Literal["kill", "raise", "pause", "note"]


@dataclass(slots=True, eq=False)
class Point:
    """A place in the code: the durable part of the work there, and its name in an order.

    The name in an order follows from that in the catalog: MERGE_AFTER_PLAN is "merge.after_plan".
    """

    durable: str
    label: str = field(init=False)

    def __set_name__(self, owner: type, name: str) -> None:
        self.label = name.lower().replace("_", ".", 1)


class Failpoint:
    """The catalog. Not an Enum: there the name alone would take 90 ns (Python 3.11)."""

    FLUSH_BEFORE_PLAN = Point("the log alone has the rows; nothing is sealed")
    FLUSH_AFTER_PLAN = Point("the log has the rows, in segments that are sealed")
    FLUSH_AFTER_FRAGMENTS = Point("synced, unused files")
    FLUSH_BEFORE_PUBLISH = Point("files, and pins over them, unused")
    FLUSH_AFTER_PUBLISH = Point("the record; the log still has its rows, too")
    FLUSH_AFTER_RETIRE = Point("the record; segments below its floor are recycled")

    PUBLISH_BEFORE_CREATE = Point("nothing of a record; all that it names is synced")
    PUBLISH_AFTER_CREATE = Point("a record, its own or another's; its maker has no answer yet")

    MERGE_BEFORE_PLAN = Point("nothing of the merge")
    MERGE_AFTER_PLAN = Point("nothing of a table of which the overlay is known")
    MERGE_AFTER_DELETIONS = Point("synced, unused deletion files")
    MERGE_AFTER_FRAGMENTS = Point("synced, unused bases")
    MERGE_BEFORE_PUBLISH = Point("the same; the winner's record is read")
    MERGE_AFTER_PUBLISH = Point("the record; readers by path see the old bases")

    ALTER_AFTER_VALUES = Point("synced, unused files with the values of new columns")

    KEYS_BEFORE_WRITE = Point("an unused base; some of its parts have no key run")
    KEYS_AFTER_WRITE = Point("the same, and synced, unused key runs")

    OPTIMIZE_BEFORE_PLAN = Point("nothing of the optimize")
    OPTIMIZE_AFTER_PLAN = Point("nothing; the tasks are known")
    OPTIMIZE_AFTER_TASK = Point("synced files of one task, noted in its job's record")
    OPTIMIZE_AFTER_FRAGMENTS = Point("the same of all tasks")
    OPTIMIZE_BEFORE_PUBLISH = Point("rewrites on the winner's pins, unnamed")
    OPTIMIZE_AFTER_PUBLISH = Point("the record; readers by path see old bases")

    INDEX_BEFORE_PLAN = Point("declarations; nothing of the build")
    INDEX_AFTER_PLAN = Point("nothing of the build; its tasks are known")
    INDEX_BEFORE_BUILD = Point("the record of its job; no file of an index")
    INDEX_AFTER_BUILD = Point("synced, unused files of all segments")
    INDEX_BEFORE_PUBLISH = Point("the same, on the winner's pins, unnamed")
    INDEX_AFTER_PUBLISH = Point("the record; readers by path see bases without the indexes")

    VACUUM_BEFORE_PLAN = Point("nothing of the vacuum")
    VACUUM_AFTER_PLAN = Point("nothing; the oldest record to keep is known")
    VACUUM_BEFORE_PUBLISH = Point("nothing; the winner's record is read")
    VACUUM_AFTER_PUBLISH = Point("older seqs are refused; FLOOR is the old one")
    VACUUM_AFTER_FLOOR = Point("FLOOR; all that it gives up is still there")
    VACUUM_AFTER_TRIM = Point("the record without the unneeded past")
    VACUUM_AFTER_UNLINK = Point("records below FLOOR are gone, their files not")
    VACUUM_AFTER_GC_HORIZON = Point("the record with the gc horizon; all garbage is still there")
    VACUUM_BEFORE_DELETE = Point("the same; the garbage is listed")
    VACUUM_AFTER_DELETE = Point("the garbage is gone")

    OWN_AFTER_CLAIM = Point("the record of the epoch; the log is as the owner before left it")
    OWN_AFTER_SEGMENT = Point("the same, and a segment of the epoch, which MARK does not name")
    OWN_AFTER_MARK = Point("the same, and MARK; files off the chain are still there")
    OWN_AFTER_REPLAY = Point("the log of the epoch alone; LOCK does not say who owns the store")

    END_AFTER_LOG = Point("all commits, in the log that is closed; the store is still owned")
    END_AFTER_MERGE = Point("the same, and the record of a merge, if it fitted")
    END_AFTER_OPTIMIZE = Point("the same, and the record of an optimize, if it fitted")
    END_AFTER_VACUUM = Point("the same; LOCK still says that the owner ends")

    BACKUP_AFTER_PLAN = Point("nothing; the snapshot is leased")
    BACKUP_AFTER_COPY = Point("files that no backup names; its log is missing")
    BACKUP_BEFORE_PUBLISH = Point("all files of a backup that none names")
    BACKUP_AFTER_PUBLISH = Point("the backup")
    RESTORE_BEFORE_PLAN = Point("the sign in a directory that it is half restored")
    RESTORE_AFTER_COPY = Point("the sign, and files; no log, no record")
    RESTORE_BEFORE_PUBLISH = Point("the same, and the log; no record")
    RESTORE_AFTER_PUBLISH = Point("the record: it is a store; the sign is still there")
    REPAIR_AFTER_PLAN = Point("nothing; the store is owned")
    REPAIR_AFTER_FLOOR = Point("FLOOR, where it was lost")
    REPAIR_BEFORE_PUBLISH = Point("damaged files are in quarantine, replaced by copies")
    REPAIR_AFTER_PUBLISH = Point("the record that serves from now on")

    DDL_BEFORE_PLAN = Point("nothing of the change of a definition")
    DDL_AFTER_PLAN = Point("the change is in its transaction; staged files at most")
    ATTACH_BEFORE_PLAN = Point("pieces of a job, synced, marked as open")
    ATTACH_AFTER_PLAN = Point("one unused pin over the pieces")
    TAKE_BEFORE_PLAN = Point("a version that another Lance client staged")
    TAKE_AFTER_MOVE = Point("its manifest, under its private name")
    TAKE_AFTER_PLAN = Point("its files, synced, and an unused pin over them")
    COMMIT_BEFORE_FRAME = Point("nothing of the transaction but staged files")
    COMMIT_AFTER_FRAME = Point("the frame; no caller has an answer")
    SHOW_BEFORE_LINK = Point("the frame; a version has no public name yet")
    SHOW_AFTER_LINK = Point("the frame, and the public name of one table")

    NAME_AFTER_ADOPTION = Point("nothing: a file of a load has a name of base, unused")
    NAME_AFTER_LINK = Point("nothing: new files have both names, which a power cut may take")
    ASIDE_AFTER_LINK = Point("a version by path under both its public name and our own")
    ASIDE_AFTER_UNLINK = Point("a version by path under our own name; ours has no public one yet")

    IMPORT_AFTER_COMMIT = Point("the rows of a version by path; its manifest is still where it was")


CATALOG = tuple(value for value in vars(Failpoint).values() if isinstance(value, Point))


class FailpointError(OSError):
    """The error of the action `raise`, and of a `pause` that no test ended."""

    def __init__(self, point: Point, reason: str) -> None:
        self.point = point
        super().__init__(f"failpoint {point.label}: {reason}")


class _Armed(msgspec.Struct):
    action: Action
    due: int
    crossed: int = 0


_BY_LABEL = {point.label: point for point in CATALOG}
armed: dict[Point, _Armed] = {}
"""What is armed; nearly always nothing. The shortest paths look here before they call `cross`."""
_lock = threading.Lock()
_socket = ""


def cross(point: Point) -> None:
    """Pass `point`: no effect unless it is armed."""
    if armed:
        _obey(point)


def arm(orders: str, *, socket: str = "") -> None:
    """Arm the failpoints that `orders` names, in addition to the armed ones; see the module.

    Raises:
        RequestError: There is no such failpoint or action.
    """
    global _socket  # noqa: PLW0603 - one rendezvous per process
    parsed = [_parse(order.strip()) for order in orders.split(",") if order.strip()]
    with _lock:
        _socket = socket or _socket
        armed.update(parsed)


def crossings() -> dict[str, int]:
    """Return how often each armed point was crossed since it was armed, by label."""
    with _lock:
        return {point.label: order.crossed for point, order in armed.items()}


def disarm() -> None:
    """Disarm all failpoints."""
    with _lock:
        armed.clear()


def _parse(order: str) -> tuple[Point, _Armed]:
    match = _ORDER.fullmatch(order)
    if match is None or match[1] not in _BY_LABEL or match[2] not in get_args(Action):
        raise RequestError(f"an order must be like 'merge.after_plan=kill@2'; got {order!r}")
    return _BY_LABEL[match[1]], _Armed(cast("Action", match[2]), int(match[3] or 1))


def _obey(point: Point) -> None:
    with _lock:
        order = armed.get(point)
        if order is None:
            return
        order.crossed += 1
        if order.crossed != order.due:
            return
    if order.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif order.action == "raise":
        raise FailpointError(point, "set to fail")
    elif order.action == "pause":
        _pause(point)


def _pause(point: Point) -> None:
    """Say where we stand, and wait until the other side says go (or has gone)."""
    try:
        with sockets.socket(sockets.AF_UNIX) as held:
            held.settimeout(PAUSE_S_MAX)
            held.connect(_socket)
            held.sendall(f"{point.label} {os.getpid()}\n".encode())
            held.recv(1)
    except OSError as error:
        raise FailpointError(point, f"no byte came from the socket ({error})") from error


arm(
    os.environ.get("SILTSTONE_FAILPOINTS", ""),
    socket=os.environ.get("SILTSTONE_FAILPOINTS_SOCKET", ""),
)
