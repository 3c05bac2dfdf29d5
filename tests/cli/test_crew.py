"""The threads of a demo end when they are told to, and what breaks one off is a finding."""

from functools import partial

from siltstone.cli.demo.checks import Findings
from siltstone.cli.demo.crew import Crew


def test_all_parts_run_until_the_time_is_over() -> None:
    findings = Findings()
    crew = Crew(findings)
    ended: list[str] = []

    def wait(name: str) -> None:
        crew.stop.wait()
        ended.append(name)

    ticks: list[float] = []
    passed = crew.run([partial(wait, "a"), partial(wait, "b")], 0.2, ticks.append)
    assert sorted(ended) == ["a", "b"]
    assert findings.wrong == []
    assert ticks
    assert passed >= 0.2


def test_a_part_that_breaks_off_ends_all_and_is_named() -> None:
    findings = Findings()
    crew = Crew(findings)

    def lose(what: str) -> None:
        raise OSError(what)

    assert crew.run([partial(lose, "the disk"), crew.stop.wait], 60.0, lambda _: None) < 60.0
    assert findings.wrong == ["lose: OSError: the disk"]


def test_a_part_that_does_not_end_is_a_finding() -> None:
    findings = Findings()
    crew = Crew(findings, join_timeout_s=0.1)
    lock = crew.stop.__class__()
    crew.run([lock.wait], 0.01, lambda _: None)
    lock.set()
    assert findings.wrong == ["a thread did not end in 0.1 s"]
