"""Searches for words of the table of `search_doors`, by every door that takes them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from siltstone.cli import main
from siltstone.namespace import SiltstoneNamespace
from tests.query.search_doors import IN_PYTHON, LIVES, Doors
from tests.query.words_found import scores

POSITIONS = {"with_position": True}
ALL = 1_000
Scored = list[tuple[int, float]]


@dataclass(frozen=True)
class AskedWords:
    """A search for words; without `column` by the columns of `boost`."""

    words: str
    k: int = ALL
    column: str | None = "title"
    operator: Any = None
    phrase: bool = False
    fuzzy: int | None = None
    boost: Any = None
    filter: str | None = None
    exact: bool = False
    vector: Any = None
    fusion: Any = None

    @property
    def sought(self) -> object:
        return self.words

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `search` but the text."""
        given = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "words"}
        return {**given, "columns": ["id"]}

    @property
    def query(self) -> dict[str, Any]:
        """The same as the namespace has it."""
        return {
            "k": self.k,
            "columns": ["id"],
            "filter": self.filter,
            "full_text_query": self._full_text,
        }

    @property
    def _full_text(self) -> dict[str, Any]:
        if self.phrase:
            part: Any = {"phrase": {"terms": self.words, "column": self.column}}
        elif isinstance(self.boost, Mapping):
            matches = [self._match(name, weight) for name, weight in self.boost.items()]
            part = {"multi_match": {"match_queries": matches}}
        elif (self.operator, self.fuzzy, self.boost) == (None, None, None):
            return {"string_query": {"query": self.words, "columns": [self.column]}}
        else:
            part = {"match": self._match(self.column, self.boost)}
        return {"structured_query": {"query": part}}

    def _match(self, column: str | None, boost: float | None) -> dict[str, Any]:
        given = {"operator": self.operator, "fuzziness": self.fuzzy, "boost": boost}
        said = {name: value for name, value in given.items() if value is not None}
        return {"terms": self.words, "column": column, **said}

    @property
    def of_lancedb(self) -> Any:
        """The same as LanceDB has it."""
        from lancedb.query import FullTextOperator, MatchQuery, MultiMatchQuery, PhraseQuery

        if self.phrase:
            return PhraseQuery(self.words, self.column)
        if isinstance(self.boost, Mapping):
            return MultiMatchQuery(self.words, [*self.boost], boosts=[*self.boost.values()])
        operator = FullTextOperator.AND if self.operator == "and" else FullTextOperator.OR
        return MatchQuery(
            self.words,
            self.column,
            operator=operator,
            fuzziness=self.fuzzy or 0,
            boost=self.boost or 1.0,
        )


WORDS = [
    AskedWords("river silt"),
    AskedWords("river silt", 7),
    AskedWords("River, silts", operator="and"),
    AskedWords("river of silt", phrase=True),
    AskedWords("rivar", fuzzy=1),
    AskedWords("rivar stine", fuzzy=1, operator="and"),
    AskedWords("stone", 25, boost=2.5),
    AskedWords("clay 3", filter="kind = 'a' AND id > 100"),
    AskedWords("river", 40, None, boost={"title": 2.0, "note": 1.0}),
]
EXACT = AskedWords("river silt", exact=True)
BOTH = [
    AskedWords("river silt", 10, vector=[0.3] * 8),
    AskedWords("delta", 10, vector=[0.3] * 8, fusion={"words": 0.25, "vector": 0.75}),
]
WRONG: list[tuple[AskedWords, str, bool]] = [
    (AskedWords("river", column="kind"), "create_index('kind', kind=", True),
    (AskedWords("river", column="nope"), "no column 'nope'", True),
    (AskedWords("river", column="v"), "a search for words needs texts", True),
    (AskedWords("river", fuzzy=3), "fuzzy must be an integer from 0 to 2; got 3", True),
    (AskedWords("the river", column="note", phrase=True), "with_position=True", True),
    (AskedWords(" "), "a search for words needs a text", True),
    (AskedWords("river", operator="xor"), "operator must be one of or, and", False),
    (AskedWords("river", 0), "k must be an integer from 1", False),
]
"""What is wrong, what is said of it, and whether LanceDB's client can ask for it."""


def wanted_words(asked: AskedWords) -> dict[int, float]:
    """Return the keys of the rows that have the words, by a look at each, with exact scores."""
    rows = {
        n: (title, note)
        for n, (_, kind, title, note) in LIVES.items()
        if asked.filter is None or (kind == "a" and n > 100)
    }
    how: dict[str, Any] = {
        "operator": asked.operator or "or",
        "phrase": asked.phrase,
        "fuzzy": asked.fuzzy or 0,
    }
    titles = scores({n: title for n, (title, _) in rows.items()}, asked.words, POSITIONS, **how)
    if asked.column is not None:
        return titles
    notes = scores({n: note for n, (_, note) in rows.items()}, asked.words, POSITIONS, **how)
    return {**notes, **titles}


def scored(rows: Any) -> Scored:
    """Return key and score of rows of any door."""
    listed = rows if isinstance(rows, list) else pa.table(rows).to_pylist()
    return [(row["id"], row["_score"]) for row in listed]


class RefusedByDoorError(Exception):
    """The command line, or a server by plain HTTP, answered that it does not."""


def words_by(doors: Doors, door: str, asked: AskedWords, capsys: Any) -> Any:
    """Return the rows that one door answers."""
    return _ANSWERS[door](doors, asked, capsys)


def _rest(doors: Doors, asked: AskedWords, _: Any) -> Any:
    answer = doors.rest.post("/v1/table/docs/query", asked.query)
    if answer.status != 200:
        assert answer.code in {(400, 13), (404, 12)}
        raise RefusedByDoorError(answer.json["error"])
    return answer.rows


def _namespace(doors: Doors, asked: AskedWords, _: Any) -> Any:
    answer: Any = SiltstoneNamespace(doors.db).query_table({"id": ["docs"], **asked.query})
    return pa.ipc.open_file(answer.data).read_all()


def _lancedb_query(query: Any, asked: AskedWords) -> Any:
    query = query.select(["id"]).limit(asked.k)
    return query if asked.filter is None else query.where(asked.filter)


def _lancedb(doors: Doors, asked: AskedWords, _: Any) -> Any:
    table = doors.lancedb.open_table("docs")
    return _lancedb_query(table.search(asked.of_lancedb, query_type="fts"), asked).to_arrow()


def _lancedb_async(doors: Doors, asked: AskedWords, _: Any) -> Any:
    import lancedb

    async def answer() -> Any:
        db = await lancedb.connect_async("db://dev", api_key="none", host_override=doors.url)
        table = await db.open_table("docs")
        query = table.query().nearest_to_text(asked.of_lancedb)
        return await _lancedb_query(query, asked).to_arrow()

    return asyncio.run(answer())


def _command_line(doors: Doors, asked: AskedWords, capsys: Any) -> Any:
    return _printed(str(doors.db.path), asked, capsys)


def _server(doors: Doors, asked: AskedWords, capsys: Any) -> Any:
    return _printed(doors.url, asked, capsys)


def _printed(db: str, asked: AskedWords, capsys: Any) -> Any:
    options = ["--k", asked.k, "--columns", "id"]
    for name in ("column", "operator", "fuzzy", "filter"):
        value = getattr(asked, name)
        options += [] if value is None else [f"--{name}", value]
    for name in ("boost", "vector", "fusion"):
        value = getattr(asked, name)
        options += [] if value is None else [f"--{name}", json.dumps(value)]
    options += [f"--{name}" for name in ("phrase", "exact") if getattr(asked, name)]
    capsys.readouterr()
    code = main(["search", "docs", asked.words, *map(str, options), "--json", "--db", db])
    shown = capsys.readouterr()
    if code:
        raise RefusedByDoorError(shown.err)
    return json.loads(shown.out)


def _sql(doors: Doors, asked: AskedWords, _: Any) -> Any:
    given = {name: value for name, value in asked.options.items() if value is not None}
    named = ", ".join(f"{name} => ${name}" for name in given)
    return doors.db.sql(
        f"select * from search('docs', $words, {named}) order by _score desc, id",
        {"words": asked.words, **given},
    )


_ANSWERS = {
    **IN_PYTHON,
    "rest": _rest,
    "namespace": _namespace,
    "lancedb": _lancedb,
    "lancedb_async": _lancedb_async,
    "command_line": _command_line,
    "server": _server,
    "sql": _sql,
}
