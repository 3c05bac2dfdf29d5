"""Reader: opens damaged stores one after the other in a process of its own, for Lance may abort.

A line on stdin is JSON [path, read_only]; the answer on stdout is one line: {"answers": ...}, all
that a user can read, or {"error": type, "path": the file it names, "text": ...}.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys

import siltstone as st
from tests.compat.answers import answers
from tests.compat.diary import OPTIONS


def answer(path: str, *, read_only: bool) -> dict[str, str]:
    """Return a digest of all that the store says, or how it refuses."""
    options = {} if read_only else OPTIONS
    try:
        with st.connect(path, read_only=read_only, **options) as store:
            text = json.dumps(answers(store), sort_keys=True)
    except Exception as error:  # noqa: BLE001 - it is judged by who asked
        named = str(getattr(error, "path", ""))
        return {"error": type(error).__name__, "path": named, "text": str(error)[:500]}
    return {"answers": hashlib.sha256(text.encode()).hexdigest()}


def serve() -> None:
    """Answer until stdin ends."""
    logging.disable()
    for line in sys.stdin:
        path, read_only = json.loads(line)
        print(json.dumps(answer(path, read_only=read_only)), flush=True)


if __name__ == "__main__":
    serve()
