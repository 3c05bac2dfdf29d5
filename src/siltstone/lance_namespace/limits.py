"""Limits: what one request about rows may hold in memory, whichever way it comes."""

from __future__ import annotations

from dataclasses import dataclass

from siltstone.lance_versions.errors import invalid


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Bytes and counts. At a limit a request is refused, never cut."""

    decompressed_bytes_max: int = 512 << 20
    """What the Arrow buffers of one body may take once they are decompressed."""
    rows_max: int = 16_000_000
    columns_max: int = 4_000
    collected_rows_max: int = 1_000_000
    """Rows that one statement may hold at once: an update, a merge, the nearest to a vector."""
    collected_bytes_max: int = 256 << 20

    def refuse_collected(self, nbytes: int, rows: int, most: int) -> None:
        """Refuse rows near to a vector, `rows` of `most` of them, that are too many bytes.

        Raises:
            Refused: They are.
        """
        bound = self.collected_bytes_max
        if nbytes > bound:
            estimate = nbytes * most // rows
            text = f"k = {most} rows like these take about {estimate} bytes; at most {bound} bytes"
            raise invalid(f"{text} are held; ask for fewer rows, or fewer columns")
