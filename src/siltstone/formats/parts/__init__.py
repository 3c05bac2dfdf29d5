"""Parts: the bytes of part files, in which single rows of a part of a base are found (ADR 100)."""
