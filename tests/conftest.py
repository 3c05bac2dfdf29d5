"""Fixtures and profiles of all tests.

`HYPOTHESIS_PROFILE=dev` runs few examples, new ones each time; `ci` (the default, so that a test
run is the same for everybody) runs a fixed set, larger at night, and `quick` a small one; `soak`
runs many new ones, for hours.

A run ends with what it left to `make nightly`; one of more than one suite with the share that each
had of the time.
"""

import gc
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from siltstone.engine.write import bulk
from siltstone.maintenance.merge import merge
from siltstone.telemetry.notices import settle
from tests.children import hide_pandas
from tests.nightly import IS_NIGHTLY, SEED, by_day, left

# A deadline measures the machine, not siltstone: a busy runner would fail a right test.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=by_day(40, 200),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "quick",
    deadline=None,
    derandomize=True,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("dev", deadline=None, max_examples=20)
settings.register_profile(
    "soak", deadline=None, max_examples=5_000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_FILES = 12
_LEFT = pytest.StashKey[Counter[str]]()
_FOLDING = ("crash", "model", "races")


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C be heard, start children without pandas, and keep to a cache of the tests' own.

    A shell that starts tests in the background has Ctrl-C ignored by all.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hide_pandas()
    scratch = tempfile.TemporaryDirectory(prefix="siltstone-scratch-", ignore_cleanup_errors=True)
    os.environ["SILTSTONE_SCRATCH"] = scratch.name
    config.add_cleanup(scratch.cleanup)
    config.stash[_LEFT] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without collecting garbage, in two thirds of the time; and never look at them.

    A run has 13,000 of them in each process, and each full collection walked through all.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each file to one process by `--dist loadgroup`, and to one all that use Spark's session.

    A file may name another group, to share with others what is made once for a process.

    A session starts a JVM and a dozen processes of Python, and gets faster by use. These tests
    begin: they take longer than any file. What is left to the night is deselected.
    """
    _leave(config, items)
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            group = "spark" if _has_session(item) else item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: not _has_session(item))


def _leave(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what `make nightly` alone runs, but no test of a file that is asked for by name."""
    if IS_NIGHTLY:
        return
    at = config.invocation_params.dir
    named = {(at / argument.partition("::")[0]).resolve() for argument in config.args}
    marks = left(item.nodeid for item in items)
    gone = [
        item
        for item, is_left in zip(items, marks, strict=True)
        if is_left and item.path.resolve() not in named
    ]
    if gone:
        config.stash[_LEFT].update(_suite(item.nodeid) for item in gone)
        config.hook.pytest_deselected(items=gone)
        kept = set(items) - set(gone)
        items[:] = [item for item in items if item in kept]


def _suite(nodeid: str) -> str:
    """Return the folder of a test, as tests/crash."""
    return nodeid.partition("::")[0].rpartition("/")[0]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that reports what this one left; all of them leave the same."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = dict(session.config.stash[_LEFT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear what a process left."""
    told = getattr(node, "workeroutput", {})
    if "left" in told:  # a process that was killed tells nothing
        node.config.stash[_LEFT] = Counter(told["left"])


def pytest_report_header() -> str:
    """Say by what the moments of crashes and the forms of tests were chosen."""
    return f"SILTSTONE_SEED={SEED}"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse an xdist that does not group: each process would have a session of Spark."""
    is_grouping = session.config.getoption("loadgroup", False)
    lost = [item.nodeid for item in session.items if "@" not in item.nodeid]
    if is_grouping and lost:
        raise pytest.UsageError(f"--dist loadgroup gave {lost[0]} no group")


def _has_session(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


@pytest.fixture(autouse=True)
def _small_parts_are_folded(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where crashes, races and models are tried, merges hide rows: of parts so small, too.

    And loads have key runs, however few their rows.
    """
    if request.path.parent.name in _FOLDING:
        monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)
        monkeypatch.setattr(bulk, "COVERED_ROWS_MIN", 1)


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as Python lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what is left to the night, what each suite took, and the slowest files."""
    if config.stash[_LEFT]:
        terminalreporter.section("left to `make nightly`")
        for name, count in sorted(config.stash[_LEFT].items()):
            terminalreporter.write_line(f"{count:7} tests of {name}")
    suites, files = Counter[str](), Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                files[report.nodeid.partition("::")[0]] += report.duration
                suites[_suite(report.nodeid)] += report.duration
    if len(suites) < 2:
        return
    terminalreporter.section("seconds of each suite, and of the slowest files")
    for name, seconds in [*suites.most_common(), *files.most_common(_FILES)]:
        terminalreporter.write_line(f"{seconds:7.0f}  {name}")


class _Settled:
    """What `caplog` has, once the thread that writes the log has written all of it."""

    def __init__(self, caught: pytest.LogCaptureFixture) -> None:
        self._caught = caught

    def __getattr__(self, name: str) -> Any:
        settle(60)
        return getattr(self._caught, name)


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Any:
    settle(60)  # what the tests before have said is none of its own
    caplog.clear()
    return _Settled(caplog)
