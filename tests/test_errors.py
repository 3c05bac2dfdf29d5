"""An error that another process raised says the same here, with the same fields."""

from __future__ import annotations

import copy
import pickle

import pytest

from siltstone import errors

EXAMPLES = [
    errors.RequestError("what"),
    errors.TableNotFoundError("t"),
    errors.TableExistsError("t"),
    errors.DuplicateKeyError("t", ("a", 4)),
    errors.SnapshotExpiredError("seq 1", 2, 3),
    errors.UnsupportedFormatError("x", 2, 1),
    errors.ConflictError("t", "k", 1, 2),
    errors.FencedError(1, 2),
    errors.OwnedError("x", 1, "here"),
    errors.InDoubtError("1-2"),
    errors.CorruptionError("x", 7, "flipped"),
    errors.UnavailableError("full"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_it_travels(error: errors.SiltstoneError) -> None:
    for found in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(found) is type(error)
        assert (str(found), found.args, vars(found)) == (str(error), error.args, vars(error))
