"""The command: `python -m proof.defects --help`."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from proof.defects import page
from proof.defects.planted import Planted, every
from proof.defects.trial import Outcome, Trials, Verdict


def main() -> int:
    """Try what the command line asks for; return 1 where a defect was not caught."""
    arguments = _parser().parse_args()
    planted = every()
    known = page.known(page.DATA, planted) if arguments.report else {}
    skipped = known if arguments.changed else {}
    chosen = [each for each in _chosen(planted, arguments.names) if each.name not in skipped]
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="siltstone-defects-") as folder:
        trials = Trials(Path(folder))
        for each in chosen:
            outcomes.append(_tried(trials, each))
            known[each.name] = outcomes[-1]
            if arguments.report:  # at once: who is interrupted goes on with --changed
                page.write(arguments.report, page.DATA, known.values())
    if arguments.report:
        page.write(arguments.report, page.DATA, known.values())
    missed = [outcome for outcome in outcomes if outcome.verdict is not Verdict.CAUGHT]
    _say(f"{len(outcomes)} defects, {len(missed)} not caught")
    if arguments.json:
        arguments.json.write_text(page.as_json(outcomes))
    return 1 if missed else 0


def _chosen(planted: Sequence[Planted], names: Sequence[str]) -> list[Planted]:
    unknown = set(names) - {each.name for each in planted}
    if unknown:
        sys.exit(f"no defect {', '.join(sorted(unknown))}")
    return [each for each in planted if not names or each.name in names]


def _tried(trials: Trials, planted: Planted) -> Outcome:
    _say(f"{planted.name}: {' '.join(planted.suite)}")
    outcome = replace(trials.run(planted), tried=f"{dt.datetime.now(dt.UTC):%Y-%m-%d}")
    by = f" by {outcome.caught_by}" if outcome.caught_by else ""
    _say(f"  {outcome.verdict.value}{by}, {outcome.seconds:.1f} s of {outcome.sound_s:.1f} s")
    if outcome.reason:
        _say(outcome.reason)
    return outcome


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m proof.defects", description="plant each defect, see that its suite catches it"
    )
    parser.add_argument("names", nargs="*", help="defects; all of them if not given")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    parser.add_argument(
        "--report", type=Path, help="put the outcomes into this page and proof/defects.json"
    )
    parser.add_argument(
        "--changed", action="store_true", help="only those that the page does not know as they are"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
