"""Idle work: tasks of a scheduler that do nothing, but for those that a test gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class IdleWork:
    """See the module; it is a `scheduler.Work`."""

    checkpoint: Callable[[], object] = lambda: None
    refresh: Callable[[], object] = lambda: None
    prepare: Callable[[], object] = lambda: None
    merge_runs: Callable[[], bool] = lambda: False
    merge: Callable[[], int] = lambda: 0
    vacuum: Callable[[], object] = lambda: None
    history_bytes: Callable[[], int] = lambda: 0
    merge_here: Callable[[], object] = lambda: None
    optimize: Callable[[], object] = lambda: None
    has_finished: Callable[[], bool] = lambda: False
    take_finished: Callable[[], object] = lambda: None
    rest: Callable[[], bool] = lambda: True
    hurry: Callable[[bool], object] = lambda _: None
    is_merging: Callable[[], bool] = lambda: False
    wants_vacuum: Callable[[], bool] = lambda: False
    refused: Callable[[], Mapping[int, str]] = dict
    look: Callable[[], object] = lambda: None
