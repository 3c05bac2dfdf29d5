"""Settings: the catalogs of a Spark session, each a store by a name of the caller's.

spark.sql.catalog.shop        the class
spark.sql.catalog.shop.uri    the path of the store, its URL in a bucket, or the URL of its server
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession

from siltstone.api.store import Store
from siltstone.errors import RequestError, UnavailableError
from siltstone.joined.targets import is_url
from siltstone.local.store import require_store
from siltstone.paths import root_of
from siltstone.spark.catalog.jars import jar
from siltstone.spark.context import stores as places
from siltstone.spark.context.application import context_of

CLASS = "org.apache.spark.sql.siltstone.SiltstoneCatalog"
PLUGIN = "org.apache.spark.sql.siltstone.SiltstonePlugin"
EXTENSIONS = "org.apache.spark.sql.siltstone.SiltstoneExtensions"
"""Starts the Python processes with their JVMs."""
PYTHON = "spark.siltstone.python"
_log = logging.getLogger(__name__)
_PREFIX = "spark.sql.catalog."
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_SPARK = ("spark_catalog", "system", "session")
Stores = Mapping[str, str | os.PathLike[str] | Store]


def settings_of(stores: Stores) -> dict[str, str]:
    """Return the settings of catalogs.

    Raises:
        RequestError: A name is none of a catalog, or there is no store.
        UnavailableError: No server answers at a URL.
    """
    found: dict[str, str] = {}
    for name, store in stores.items():
        if not _NAME.fullmatch(name) or name in _OF_SPARK:
            raise RequestError(
                f"a catalog's name has letters, digits and underscores, and is none of Spark's own"
                f" ({', '.join(_OF_SPARK)}); got {name!r}"
            )
        found[f"{_PREFIX}{name}"] = CLASS
        found[f"{_PREFIX}{name}.uri"] = _uri_of(store)
    return found


def _uri_of(store: str | os.PathLike[str] | Store) -> str:
    path = places.path_of(store)
    require_store(root_of(path, only_reads=True))
    return str(store) if is_url(store) else path


def with_jar(config: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session that is to be started, with the jar and this Python."""
    ours = {"spark.jars": str(jar()), "spark.plugins": PLUGIN, "spark.sql.extensions": EXTENSIONS}
    joined = {
        key: ",".join(each for each in (config.get(key), mine) if each)
        for key, mine in ours.items()
    }
    return {PYTHON: sys.executable, **config, **joined}


def add_catalogs(spark: SparkSession, stores: Stores) -> None:
    """Give a running session catalogs, and the jar if it has none.

    Raises:
        RequestError: As `settings_of`, or the session has another catalog of that name.
        UnavailableError: As `settings_of`, or siltstone has no jar for this Spark.
    """
    wanted = settings_of(stores)
    for key, value in wanted.items():
        known = spark.conf.get(key, None)
        if known not in {None, value}:
            name = key.removeprefix(_PREFIX).removesuffix(".uri")
            raise RequestError(
                f"this session has a catalog {name!r} already: {known}; take another name for"
                f" {value}"
            )
    _choose_python(spark)
    _bring_jar(spark)
    for key, value in wanted.items():
        spark.conf.set(key, value)


def catalog_of(spark: SparkSession, path: str) -> str | None:
    """Return the session's catalog of the store at `path`; it gets one if it has none.

    None: it is a client of Spark Connect, whose server has none; or there is no jar.
    """
    for name, uri in _catalogs(spark):
        if not is_url(uri) and str(root_of(uri, only_reads=True)) == path:
            if context_of(spark) is not None:
                _bring_jar(spark)
            return name
    if context_of(spark) is None:
        return None
    name = f"siltstone_{hashlib.sha256(path.encode()).hexdigest()[:12]}"
    try:
        add_catalogs(spark, {name: path})
    except UnavailableError as error:
        _log.warning(
            "frames of snapshots are those of load(), and need a retention that keeps their seq:"
            " %s",
            error,
        )
        return None
    return name


def _catalogs(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """Yield the names of this session's catalogs of stores, and where these are."""
    known = spark.conf.getAll
    for key, value in known.items():
        if key.startswith(_PREFIX) and value == CLASS and f"{key}.uri" in known:
            yield key.removeprefix(_PREFIX), known[f"{key}.uri"]


def quoted(*parts: str) -> str:
    """Return a name of Spark SQL, of one part or several, each quoted."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


def _bring_jar(spark: SparkSession) -> None:
    """Add the jar to a session that was started without, and let this thread see its classes.

    Spark shows an added jar to the thread that adds it, and batches of a stream have another one.
    """
    mine = jar()
    started = spark.conf.get("spark.jars", "") or ""
    if any(each.endswith(mine.name) for each in started.split(",")):
        return
    if not any(str(row[0]).endswith(mine.name) for row in spark.sql("LIST JARS").collect()):
        spark.sql(f"ADD JAR '{mine}'")
    elif context_of(spark) is not None:
        session: Any = spark
        loader = session._jsparkSession.sharedState().jarClassLoader()  # noqa: SLF001
        session._jvm.java.lang.Thread.currentThread().setContextClassLoader(loader)  # noqa: SLF001


def _choose_python(spark: SparkSession) -> None:
    """Let a local master start this Python if none was chosen: see `sessions`."""
    if "PYSPARK_PYTHON" in os.environ:
        return
    context: Any = context_of(spark)
    if context is not None and (context.master or "").startswith("local"):
        conf = context._jsc.sc().conf()  # noqa: SLF001 - nothing public changes it afterwards
        conf.setIfMissing(PYTHON, sys.executable)
