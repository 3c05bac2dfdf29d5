"""Spark: bulk reads and writes of stores, through PySpark; SQL by a catalog, which has a jar.

`session()` starts a Spark that knows `format("siltstone")`, `register(spark)` tells another about
it; with `stores` both give it a catalog for each. See docs/spark.md.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from siltstone.spark.sessions.sessions import register, session
    from siltstone.spark.sessions.snapshots import snapshot
    from siltstone.spark.sessions.transactions import transaction
    from siltstone.spark.writes.maintenance import index, merge, optimize

if find_spec("pyspark") is None:
    _TEXT = "siltstone.spark needs the extra `spark`: pip install 'siltstone[spark]'"
    raise ModuleNotFoundError(_TEXT, name="pyspark")

# A process that Spark starts imports this package for the one module that its work names.
_LATE = {
    **dict.fromkeys(("index", "merge", "optimize"), "siltstone.spark.writes.maintenance"),
    **dict.fromkeys(("register", "session"), "siltstone.spark.sessions.sessions"),
    "snapshot": "siltstone.spark.sessions.snapshots",
    "transaction": "siltstone.spark.sessions.transactions",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for."""
    home = _LATE.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted({*globals(), *__all__})


__all__ = ["index", "merge", "optimize", "register", "session", "snapshot", "transaction"]
