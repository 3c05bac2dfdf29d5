"""What the documents show is true: their code runs, and everything public has its place in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

import siltstone as st
from siltstone import errors
from siltstone.cli.exits import Exit
from siltstone.maintenance.index.index_plan import IndexStatus
from siltstone.maintenance.schedule.pace import Backpressure
from siltstone.maintenance.schedule.status import JobStatus, Memory, Status, TableStatus
from siltstone.options import Options

ROOT = Path(__file__).parent.parent
FENCED = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """Code of a page: on which line it begins, and what the page says that it prints."""

    line: int
    code: str
    output: str


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of Python; what one prints is in a block of text right below it."""
    text = (ROOT / page).read_text()
    found: list[Block] = []
    for fenced in FENCED.finditer(text):
        if fenced[1] == "python":
            below = FENCED.match(text, fenced.end())
            output = below[2] if below is not None and below[1] == "text" else ""
            found.append(Block(text.count("\n", 0, fenced.start()) + 1, fenced[2], output))
    return found


PAGES = (
    *("docs/index.md", "docs/guide.md", "docs/mvcc.md", "docs/search.md", "docs/sql.md"),
    *("docs/dbapi.md", "docs/asyncio.md"),
)


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_and_prints_what_stands_below_it(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    try:
        for block in blocks_of(page):
            # Lines are counted as in the page: a traceback leads to it.
            exec(compile("\n" * block.line + block.code, page, "exec"), names)
            assert capsys.readouterr().out == block.output, f"{page}, line {block.line}"
    finally:
        for store in [each for each in names.values() if isinstance(each, st.Store)]:
            store.close()


def code_of(page: str) -> str:
    """Return the code of a page: blocks, and what stands in backticks."""
    text = (ROOT / page).read_text()
    blocks = [fenced[2] for fenced in FENCED.finditer(text)]
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", FENCED.sub("", text))])


@pytest.mark.parametrize(
    "face", [st.Store, st.Table, st.Snapshot, st.SnapshotTable, st.Transaction]
)
def test_the_guide_shows_every_public_method(face: type) -> None:
    told = code_of("docs/guide.md")
    names = {name for name in dir(face) if not name.startswith("_")}
    shown = {name for name in names if re.search(rf"\.{name}\b|\b{name}\(", told)}
    assert names - shown == set()


def test_the_guide_shows_every_function_option_and_error() -> None:
    told = {cell.strip("`") for cell in first_cells((ROOT / "docs" / "guide.md").read_text())}
    options = {field.name for field in fields(Options)} - {"retention_s"} | {"retention"}
    assert options - told == set()
    cells = {name for cell in told for name in re.findall(r"\w+Error", cell)}
    assert {name for name in st.__all__ if name.endswith("Error")} - {"SiltstoneError"} == cells
    code = code_of("docs/guide.md")
    functions = [name for name in st.__all__ if name.islower()]
    assert [name for name in functions if f"st.{name}(" not in code] == []


def test_what_the_glossary_names_exists() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    homes = {kind.__name__: kind for kind in (Status, TableStatus, IndexStatus)}
    homes |= {name: getattr(st, name) for name in st.__all__}
    named = re.findall(r"`([A-Z]\w+)\.(\w+)", text)
    assert named
    assert [pair for pair in named if not hasattr(homes[pair[0]], pair[1])] == []


def test_what_the_page_on_mvcc_leads_to_exists() -> None:
    *_, table = (ROOT / "docs" / "mvcc.md").read_text().partition("## Where to read on")
    told = set(re.findall(r"`([^`]+)`", table))
    paths = {name for name in told if name.startswith("tests/")}
    assert [path for path in paths if not (ROOT / path).exists()] == []
    sources = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    names = told - paths
    assert [n for n in names if not re.search(rf"^(class|def) {n}\b", sources, re.MULTILINE)] == []


def test_the_tests_of_make_quick_exist() -> None:
    lines = (ROOT / "tests" / "quick.txt").read_text().splitlines()
    nodes = [line.partition("#")[0].strip().removeprefix("--deselect=") for line in lines]
    for path, _, test in (node.partition("::") for node in nodes if node):
        assert (ROOT / path).exists(), path
        assert not test or f"def {test.partition('[')[0]}(" in (ROOT / path).read_text(), test


def test_every_error_is_public() -> None:
    found = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, st.SiltstoneError)
    }
    assert {name for name in found if name not in st.__all__} == set()


def test_every_module_that_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    tree = text.split("```")[1]
    names = re.findall(r"\b(\w+\.py)\b", tree)
    have = {path.name for path in (ROOT / "src").rglob("*.py")}
    assert [name for name in names if name not in have] == []


def test_where_to_look_names_modules_functions_and_methods_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    told = re.findall(r"`([^`]+)`", text.split("## ")[1])
    root = ROOT / "src" / "siltstone"
    modules = [path.relative_to(root) for path in root.rglob("*.py")]
    folders = [path for path in told if path.endswith("/")]
    assert [name for name in folders if not (root / name).is_dir()] == []
    lost = [path for path in told if path.endswith(".py") and not is_in(path, modules)]
    assert lost == []
    sources = "\n".join((root / path).read_text() for path in modules)
    names = [name for name in told if not name.endswith((".py", "/"))]
    calls = [name.rpartition(".")[2] for name in names]
    classes = [name.partition(".")[0] for name in names if "." in name]
    assert {"_conflict", "append", "_scan_base", "_census"} <= {*calls}
    assert [n for n in calls if not re.search(rf"\b(def|class) {n}\b|\.{n}\(", sources)] == []
    assert [n for n in classes if not re.search(rf"^class {n}\b", sources, re.MULTILINE)] == []


def is_in(path: str, modules: list[Path]) -> bool:
    """Say whether there is a module whose path ends so."""
    parts = Path(path).parts
    return any(module.parts[-len(parts) :] == parts for module in modules)


def operating() -> str:
    return (ROOT / "docs" / "operating.md").read_text()


def first_cells(text: str) -> Iterator[str]:
    """Yield the first cell of each row of each table."""
    for line in text.splitlines():
        if line.startswith("| "):
            yield line.split("|")[1].strip()


def test_every_number_of_the_status_is_explained() -> None:
    told = {name for cell in first_cells(operating()) for name in re.findall(r"`(\w+)`", cell)}
    names = {
        field.name
        for kind in (Status, TableStatus, IndexStatus, JobStatus, Memory, Backpressure)
        for field in fields(kind)
    }
    assert names | {"total"} <= told


def test_every_error_and_exit_code_says_what_to_do() -> None:
    cells = [*first_cells(operating())]
    told = {name for cell in cells for name in re.findall(r"`(\w+Error)`", cell)}
    classes = {name for name in vars(errors) if name.endswith("Error")} - {"SiltstoneError"}
    assert told == classes
    assert {int(cell) for cell in cells if cell.isdigit()} == {code.value for code in Exit}


def test_every_page_that_a_page_links_to_exists() -> None:
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
