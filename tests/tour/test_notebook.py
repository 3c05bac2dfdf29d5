"""The notebook of the pages runs from top to bottom, and shows what its text says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

from tests.tour.notebook import cells, executed, plots, printed


@pytest.mark.filterwarnings("ignore")  # of the kernel's own making
def test_the_notebook_runs_and_shows_two_moments_a_race_and_a_search(tmp_path: Path) -> None:
    ran = executed(tmp_path)
    assert [len(plot) > 10_000 for plot in plots(ran)] == [True, True]
    text = printed(ran)
    assert "Ada commits at seq 21\nBo: ConflictError\nboarding\n" in text
    assert re.search(r"^400 boarded in \d+ tries$", text, re.MULTILINE)
    assert "Long Island Mac Arthur" in str(ran)


def test_the_notebook_is_stored_without_what_it_shows() -> None:
    code = [cell for cell in cells() if cell.cell_type == "code"]
    assert code
    assert [cell for cell in code if cell.outputs or cell.execution_count is not None] == []
