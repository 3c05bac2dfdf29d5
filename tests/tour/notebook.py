"""Notebook: runs docs/notebook.ipynb from top to bottom, and finds what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbclient
import nbformat

from tests.children import with_pandas
from tests.test_documents import ROOT

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
_BOUND_S = 250
"""Of a cell, on a machine as busy as may be."""


def cells() -> list[Any]:
    """Return the cells as they are stored."""
    return list(nbformat.read(NOTEBOOK, 4).cells)


def executed(folder: Path) -> list[Any]:
    """Return all cells with what they show, run in a folder.

    Raises:
        CellExecutionError: A cell failed.
    """
    notebook = nbformat.read(NOTEBOOK, 4)
    resources = {"metadata": {"path": str(folder)}}
    client = nbclient.NotebookClient(notebook, timeout=_BOUND_S, resources=resources)
    client.execute(env=with_pandas())
    return list(notebook.cells)


def plots(ran: list[Any]) -> list[str]:
    """Return the plots that cells show, as SVG."""
    outputs = [each for cell in ran for each in cell.get("outputs", ())]
    return [
        each.data["image/svg+xml"] for each in outputs if "image/svg+xml" in each.get("data", ())
    ]


def printed(ran: list[Any]) -> str:
    """Return what all cells print."""
    outputs = [each for cell in ran for each in cell.get("outputs", ())]
    return "".join(each.text for each in outputs if each.output_type == "stream")
