"""Stands before pandas in the children of tests, as if it were not installed: `tests.children`."""

raise ModuleNotFoundError("the children of tests have no pandas", name="pandas")
