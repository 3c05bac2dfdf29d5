"""Spark commands: spark jar. The jar of the catalog, for sessions that others start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from siltstone.cli.arguments import add_command
from siltstone.process.extras import imported

app = typer.Typer(name="spark", help="Prepare Spark for siltstone.", no_args_is_help=True)
Into = Annotated[
    Path | None,
    typer.Option("--into", metavar="FOLDER", help="Compile it into this folder, as for a wheel."),
]


def jar(into: Into = None) -> None:
    """Print the path of the jar with the catalog; compile it if there is none yet.

    For `spark-submit --jars`, and for servers of Spark Connect.
    """
    jars = imported("siltstone.spark.catalog.jars", "siltstone spark jar", "PySpark", "spark")
    print(jars.jar() if into is None else jars.compile_into(into))


add_command(app, jar)
