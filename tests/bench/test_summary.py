"""The page of benchmarks begins with five sentences, before any table."""

from bench import page


def test_the_page_begins_with_five_sentences_before_any_table() -> None:
    _, _, text = page.PAGE.read_text().partition("# Benchmarks\n\n")
    summary, _, rest = text.partition("\n\n")
    assert [line[-1] for line in summary.splitlines()] == ["."] * 5
    assert "not measured" not in summary
    assert "|" not in summary
    assert "|" in rest
