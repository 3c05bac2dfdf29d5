"""A patch is applied to exactly the lines that it was made for, or not at all."""

from __future__ import annotations

import pytest

from proof.defects.patching import PatchError, parse

DIFF = """\
--- a.py
+++ a.py
@@ -1,3 +1,3 @@
 one
-two
+2
 three
"""


def patched(diff: str, text: str) -> str:
    (change,) = parse(diff)
    return change.applied(text)


def test_the_lines_of_a_hunk_are_replaced_wherever_they_are() -> None:
    assert patched(DIFF, "one\ntwo\nthree\n") == "one\n2\nthree\n"
    assert patched(DIFF, "zero\n\none\ntwo\nthree\nfour\n") == "zero\n\none\n2\nthree\nfour\n"


@pytest.mark.parametrize(
    "text", ["", "one\ntwo\n", "one\ntwo \nthree\n", " one\ntwo\nthree\n", "one\n2\nthree\n"]
)
def test_a_line_that_differs_refuses_the_patch(text: str) -> None:
    with pytest.raises(PatchError, match="0 times"):
        patched(DIFF, text)


def test_lines_that_are_there_twice_refuse_the_patch() -> None:
    with pytest.raises(PatchError, match="2 times"):
        patched(DIFF, "one\ntwo\nthree\n" * 2)


def test_files_and_hunks_come_in_their_order() -> None:
    more = "@@ -7,1 +7,2 @@\n seven\n+and a half\n--- b.py\n+++ b.py\n@@ -1 +1 @@\n-b\n+c\n"
    first, second = parse(DIFF + more)
    assert (first.path, second.path) == ("a.py", "b.py")
    assert first.applied("one\ntwo\nthree\nseven\n") == "one\n2\nthree\nseven\nand a half\n"
    assert second.applied("a\nb\n") == "a\nc\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("-1,3 +1,3", "-1,4 +1,3"),
        ("-two\n+2\n", " two\n"),
        ("+++ a.py", "+++ b.py"),
        ("+++ a.py", "+++ /dev/null"),
        ("@@ -1,3 +1,3 @@", "@@ somewhere @@"),
        (" three", "three"),
        ("--- a.py\n", ""),
    ],
)
def test_what_is_no_diff_of_one_file_is_refused(old: str, new: str) -> None:
    with pytest.raises(PatchError):
        parse(DIFF.replace(old, new))
