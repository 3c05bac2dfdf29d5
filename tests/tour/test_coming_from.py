"""The pages for those who come from SQLite and LanceDB are true: all they show runs, in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.tours import bash, shown, without_times
from tests.test_documents import FENCED, ROOT


@pytest.mark.filterwarnings("ignore")  # of LanceDB's own making
@pytest.mark.parametrize("page", ["docs/from-sqlite.md", "docs/from-lancedb.md"])
def test_the_page_shows_what_happens(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / page).read_text()
    blocks = list(FENCED.finditer(text))
    assert sum(block[1] == "text" for block in blocks) > 3
    names: dict[str, object] = {}
    with bash(tmp_path) as terminal:
        monkeypatch.chdir(terminal.cwd)
        for block, below in zip(blocks, [*blocks[1:], None], strict=True):
            if block[1] == "console":
                assert shown(terminal, block[2]) == without_times(block[2])
            if block[1] == "python":
                line = text.count("\n", 0, block.start()) + 1
                exec(compile("\n" * line + block[2], page, "exec"), names)
                output = below[2] if below is not None and below[1] == "text" else ""
                assert capsys.readouterr().out == output, f"{page}, line {line}"
