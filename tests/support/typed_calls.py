"""Typed calls: what a type checker says of calls; pyright reads this file, and nothing runs it."""

# pyright: reportUnnecessaryTypeIgnoreComment=error

from __future__ import annotations

import siltstone as st


def options_have_names_and_types() -> None:
    st.connect("shop", verify="scrub", retention="7d", background=False, memory_bytes_max=1 << 30)
    st.connect("http://host:2333", token="secret")
    st.connect("shop", verify="sometimes")  # pyright: ignore[reportArgumentType]
    st.connect("shop", retentoin="7d")  # pyright: ignore[reportCallIssue]
    st.connect("shop", memory_bytes_max="1GB")  # pyright: ignore[reportArgumentType]
