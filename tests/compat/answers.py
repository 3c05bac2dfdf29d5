"""Answers: all that a store says, as JSON that is compared for ever; rows in an order of their own.

    seq, tags, tables (columns, key, count, rows found by key), log (seq, time, transaction, ...)
    at        seq -> table -> rows; "expired" where the past is not kept
    changes   table -> row versions in the order of their seqs
    apps      the token apps, and the number above which claims begin, if some were forgotten

Values are written by `repr`: it tells 1 from True, and one time zone from another. In a file each
text that is longer than a number is there once: a row lives at many seqs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

import siltstone as st
from siltstone.local.snapshot import LocalSnapshot

Answers = dict[str, Any]
KEYS_MAX = 12


def answers(store: st.Store) -> Answers:
    """Return what the store says now, of now and of every seq before."""
    seqs = range(1, store.seq + 1)
    return {
        "seq": store.seq,
        "tags": store.tags(),
        "tables": {name: table_answers(store, name) for name in store.tables()},
        "log": [
            [e.seq, e.time.isoformat(), e.transaction, list(e.tables), e.rows, repr(e.token)]
            for e in store.log(1000)
        ],
        "at": {str(seq): past(store, seq) for seq in seqs},
        "changes": {
            name: list(map(repr, stream.read_all().to_pylist()))
            for name, stream in sorted(changes(store).items())
        },
        **apps(store),
    }


def apps(store: st.Store) -> Answers:
    first, _ = store.claimed("an app that nobody has")
    told = [
        repr((a.name, a.batch, a.seq, a.claim, a.rows, a.holder, a.superseded, a.since))
        for a in store.token_apps()
    ]
    return {"apps": [first, *told]} if first else {}


def rows_of(source: st.Store | st.Snapshot) -> dict[str, list[str]]:
    """Return the rows of each table, and the namespaces if there are some, as one of them."""
    spaces = {name: dict(found) for name, found in spaces_of(source).items()}
    found = {name: _rows(source[name].to_arrow()) for name in sorted(source.tables())}
    return found | ({"(namespaces)": [repr(sorted(spaces.items()))]} if spaces else {})


def spaces_of(source: st.Store | st.Snapshot) -> Mapping[str, Mapping[str, str]]:
    """Return the properties of all namespaces, by name."""
    if isinstance(source, LocalSnapshot):
        return source.namespaces()
    assert isinstance(source, st.Store)
    with source.snapshot() as snapshot:
        return spaces_of(snapshot)


def table_answers(store: st.Store, name: str) -> Answers:
    table = store[name]
    keys = [tuple(row.values()) for row in key_rows(table)][:KEYS_MAX]
    return {
        "columns": [[field.name, str(field.type), field.nullable] for field in table.schema],
        "key": list(table.primary_key),
        "count": table.count(),
        "found": {repr(key): repr(table.get(key[0] if len(key) == 1 else key)) for key in keys},
    }


def key_rows(table: st.Table) -> list[dict[str, Any]]:
    if not table.primary_key:
        return []
    rows = table.to_arrow(columns=list(table.primary_key)).to_pylist()
    return sorted(rows, key=repr)


def past(store: st.Store, seq: int) -> object:
    try:
        with store.snapshot(seq=seq) as snapshot:
            return rows_of(snapshot)
    except st.SnapshotExpiredError:
        return "expired"


def changes(store: st.Store) -> dict[str, pa.RecordBatchReader]:
    try:
        return store.changes()
    except st.SnapshotExpiredError:
        return {}


def _rows(found: pa.Table) -> list[str]:
    return sorted(map(repr, found.to_pylist()))


def as_text(found: Answers) -> str:
    """Return the answers as JSON: {"texts": [...], "answers": with an index for each of them}."""
    texts: dict[str, int] = {}
    body = _interned(found, texts)
    parts = [f'"answers": {json.dumps(body, separators=(",", ":"))}']
    lines = ",\n".join(json.dumps(text, ensure_ascii=False) for text in texts)
    return f'{{"texts": [\n{lines}\n],\n{parts[0]}}}\n'


def from_text(text: str) -> Answers:
    """Return what `as_text` wrote."""
    stored = json.loads(text)
    return _restored(stored["answers"], stored["texts"])


def _interned(value: object, texts: dict[str, int]) -> object:
    if isinstance(value, str):
        return [texts.setdefault(value, len(texts))]
    if isinstance(value, dict):
        return {key: _interned(each, texts) for key, each in value.items()}
    if isinstance(value, list):
        return {"list": [_interned(each, texts) for each in value]}
    return value


def _restored(value: Any, texts: list[str]) -> Any:
    if isinstance(value, list):
        return texts[value[0]]
    if isinstance(value, dict):
        if set(value) == {"list"}:
            return [_restored(each, texts) for each in value["list"]]
        return {key: _restored(each, texts) for key, each in value.items()}
    return value
