"""Dots: the commands of the shell that are no SQL: a dot, a name, and at most one word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from siltstone.cli import listings
from siltstone.cli.arguments import AsOf
from siltstone.cli.exits import UsageError
from siltstone.cli.output import Form
from siltstone.cli.shell.screen import Screen
from siltstone.cli.shell.session import ShellSession
from siltstone.errors import no_such

FORMS = tuple(form.value for form in Form)
_COMMITS = 20
_LONG = ("transaction", "token")
"""What `.log` leaves out, so that a commit fits into a line."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A dot command: what it takes (in brackets: or nothing), what it does, and how.

    `run` None: whatever runs scripts does it.
    """

    takes: str
    does: str
    run: Callable[[ShellSession, Screen, str], None] | None = None


def dot_of(text: str) -> tuple[Dot, str]:
    """Return the dot command that a line names, and the word that it gives it.

    Raises:
        UsageError: There is none of that name, or it takes no such word.
    """
    name, *rest = text.split(maxsplit=1)
    found = DOTS.get(name)
    if found is None:
        raise UsageError(f"there is {no_such('dot command', name, DOTS)}")
    given = "".join(rest)
    if len(given) > 1 and given[0] == given[-1] and given[0] in "'\"":
        given = given[1:-1]
    if given and not found.takes:
        raise UsageError(f"{name} stands alone; it was given {given!r:.80}")
    if not given and found.takes and not found.takes.startswith("["):
        raise UsageError(f"{name} needs {found.takes}")
    return found, given


def _tables(session: ShellSession, screen: Screen, _: str) -> None:
    with session.reading() as read:
        found = listings.tables_of(read)
    screen.emit(listings.TABLE_FACTS, found)


def _schema(session: ShellSession, screen: Screen, table: str) -> None:
    with session.reading() as read:
        names = [table] if table else read.tables()
        found = {name: listings.columns_in(read, name) for name in names}
    if table:
        screen.emit(listings.COLUMN_FACTS, found[table])
        return
    lines = [(name, *line) for name, columns in found.items() for line in columns]
    screen.emit(("table", *listings.COLUMN_FACTS), lines)


def _log(session: ShellSession, screen: Screen, limit: str) -> None:
    lines = listings.commits_of(session.store(), _count(".log", limit) if limit else _COMMITS)
    kept = [place for place, name in enumerate(listings.COMMIT_FACTS) if name not in _LONG]
    names = [listings.COMMIT_FACTS[place] for place in kept]
    screen.emit(names, [tuple(line[place] for place in kept) for line in lines])


def _at(session: ShellSession, screen: Screen, time: str) -> None:
    screen.say(session.look_at(AsOf(at=time)))


def _seq(session: ShellSession, screen: Screen, seq: str) -> None:
    screen.say(session.look_at(AsOf(seq=_count(".seq", seq))))


def _tag(session: ShellSession, screen: Screen, tag: str) -> None:
    screen.say(session.look_at(AsOf(tag=tag)))


def _now(session: ShellSession, screen: Screen, _: str) -> None:
    screen.say(session.look_at(AsOf()))


def _mode(_: ShellSession, screen: Screen, form: str) -> None:
    if form not in FORMS:
        raise UsageError(f"there is {no_such('mode', form, FORMS)}")
    screen.form = Form(form)


def _rows(_: ShellSession, screen: Screen, most: str) -> None:
    screen.rows_max = _count(".rows", most)


def _timer(_: ShellSession, screen: Screen, given: str) -> None:
    if given not in {"", "on", "off"}:
        raise UsageError(f".timer takes on or off; it was given {given!r:.80}")
    screen.is_timed = given == "on" if given else not screen.is_timed
    screen.say(f"the timer is {'on' if screen.is_timed else 'off'}")


def _help(_: ShellSession, __: Screen, ___: str) -> None:
    print("SQL, up to its semicolon, on one line or several. BEGIN; COMMIT; and ROLLBACK; too.")
    for name, dot in DOTS.items():
        print(f"{f'{name} {dot.takes}':<16} {dot.does}")


def _quit(_: ShellSession, __: Screen, ___: str) -> None:
    raise EOFError


def _count(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise UsageError(f"{name} takes a whole number from 0; it was given {text!r:.80}")
    return int(text)


DOTS = {
    ".tables": Dot("", "List the tables.", _tables),
    ".schema": Dot("[TABLE]", "Show the columns of a table, or of all.", _schema),
    ".log": Dot("[N]", "Show the newest commits.", _log),
    ".at": Dot("TIME", "Read the store as of a time: 2026-11-20T10:00Z.", _at),
    ".seq": Dot("N", "Read it as of a sequence number.", _seq),
    ".tag": Dot("TAG", "Read it as of a tag.", _tag),
    ".now": Dot("", "Read it as it is now, and write it.", _now),
    ".mode": Dot("FORM", f"Show rows as {', '.join(FORMS)}.", _mode),
    ".rows": Dot("N", "Show at most N rows of a query; 0 shows all.", _rows),
    ".timer": Dot("[on|off]", "Say how long each statement takes.", _timer),
    ".read": Dot("FILE", "Run the commands of a file."),
    ".help": Dot("", "List these commands.", _help),
    ".quit": Dot("", "End the shell; so does Ctrl-D.", _quit),
}
