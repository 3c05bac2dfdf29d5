"""Scripts of transactions that overlap: a line is a command, its answer stands below it.

    t1: begin [serializable]              ->  nothing
    t1: get 1                             ->  1=10, or "1 is not there"
    t1: scan v > 5                        ->  the rows by key: 1=10 2=20, or "no rows"
    t1: set 1 10 | insert 1 10 | delete 1 | delete_where v > 5 | truncate | add_column w
    t1: commit | rollback                 ->  an error's class, if there is one
    checkpoint | merge                    ->  of the store; no transaction

Below `---` stands what the commands above it said, each line with its command before the answer.
`#` begins a comment. The table is `t` (id, v: int64); before the script its rows are 1=10, 2=20.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from siltstone.api.store import Store
from siltstone.errors import SiltstoneError


def steps(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the commands and the expected lines of each part of a script."""
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    commands: list[str] = []
    expected: list[str] | None = None
    for line in [*lines, ""]:
        if line == "---":
            expected = []
        elif expected is not None and not line:
            yield commands, expected
            commands, expected = [], None
        elif expected is not None:
            expected.append(line)
        elif line:
            commands.append(line)
    assert not commands, f"{commands} have no expectation"


class Runner:
    """Runs the commands of one script against one store."""

    def __init__(self, db: Store, verbs: Verbs) -> None:
        self._db, self._verbs = db, verbs
        self._open: dict[str, Any] = {}

    def answers(self, commands: list[str]) -> list[str]:
        said = ((command, self._run(command)) for command in commands)
        return [f"{command} -> {answer}" for command, answer in said if answer]

    def _run(self, command: str) -> str:
        if ": " not in command:
            getattr(self._db, command)()
            return ""
        who, _, rest = command.partition(": ")
        verb, _, argument = rest.partition(" ")
        if verb == "begin":
            self._open[who] = self._db.transaction(isolation=argument or "snapshot")
            return ""
        try:
            return self._verbs[verb](self._open[who], argument)
        except SiltstoneError as error:
            return type(error).__name__


def _shown(rows: list[dict[str, int]]) -> str:
    return " ".join(f"{r['id']}={r['v']}" for r in sorted(rows, key=lambda r: r["id"])) or "no rows"


def _row(argument: str) -> dict[str, int]:
    key, value = map(int, argument.split())
    return {"id": key, "v": value}


def _get(tx: Any, argument: str) -> str:
    row = tx["t"].get(int(argument))
    return f"{argument} is not there" if row is None else _shown([row])


def _scan(tx: Any, argument: str) -> str:
    return _shown(tx["t"].to_arrow(filter=argument or None).to_pylist())


def _quiet(work: Callable[[Any, str], object]) -> Callable[[Any, str], str]:
    def run(tx: Any, argument: str) -> str:
        work(tx, argument)
        return ""

    return run


Verbs: TypeAlias = Mapping[str, Callable[[Any, str], str]]
BY_METHODS: Verbs = {
    "get": _get,
    "scan": _scan,
    "set": _quiet(lambda tx, argument: tx["t"].upsert(_row(argument))),
    "insert": _quiet(lambda tx, argument: tx["t"].insert(_row(argument))),
    "delete": _quiet(lambda tx, argument: tx["t"].delete(int(argument))),
    "delete_where": _quiet(lambda tx, argument: tx["t"].delete_where(argument)),
    "truncate": _quiet(lambda tx, _: tx["t"].truncate()),
    "add_column": _quiet(lambda tx, argument: tx["t"].add_column(argument, "int64")),
    "commit": _quiet(lambda tx, _: tx.commit()),
    "rollback": _quiet(lambda tx, _: tx.rollback()),
}


def _is_read_by_methods(tx: Any) -> bool:
    """Say whether SQL would read more: under serializable a statement reads all of `t`."""
    return tx.rows.is_strict


def _sql_get(tx: Any, argument: str) -> str:
    if _is_read_by_methods(tx):
        return _get(tx, argument)
    found = tx.sql("select id, v from t where id = ?", [int(argument)]).to_pylist()
    return _shown(found) if found else f"{argument} is not there"


def _sql_scan(tx: Any, argument: str) -> str:
    if _is_read_by_methods(tx):
        return _scan(tx, argument)
    return _shown(tx.sql(f"select id, v from t where {argument or 'true'}").to_pylist())


IN_SQL: Verbs = {
    **BY_METHODS,
    "get": _sql_get,
    "scan": _sql_scan,
    "set": _quiet(
        lambda tx, argument: tx.sql(
            "insert or replace into t (id, v) values ($id, $v)", _row(argument)
        )
    ),
    "insert": _quiet(lambda tx, argument: tx.sql("insert into t values ($id, $v)", _row(argument))),
    "delete": _quiet(lambda tx, argument: tx.sql("delete from t where id = ?", [int(argument)])),
    "delete_where": _quiet(lambda tx, argument: tx.sql(f"delete from t where {argument}")),
    "truncate": _quiet(lambda tx, _: tx.sql("truncate t")),
    "add_column": _quiet(lambda tx, argument: tx.sql(f"alter table t add {argument} bigint")),
}


def mismatch(path: Path, db: Store, verbs: Verbs = BY_METHODS) -> str | None:
    """Run a script; return what differs, None if it all holds."""
    runner, parts = Runner(db, verbs), 0
    for commands, expected in steps(path.read_text()):
        parts += 1
        answers = runner.answers(commands)
        if answers != expected:
            return "\n".join([f"{path.name} says", *expected, "the store says", *answers])
    return None if parts else f"{path.name} expects nothing"
