"""Arrow input: the rows of a request, an Arrow IPC stream.

    message by message: head ─▶ rows and bytes (`arrow_weight`) ─▶ within limits? ─▶ decode

What was decoded is validated whole: offsets that point outside of their buffers would be read
otherwise.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from siltstone.formats.arrow_weight import weights
from siltstone.lance_namespace.limits import RowLimits
from siltstone.lance_versions.errors import Refused, invalid


def arrow_rows(body: bytes, limits: RowLimits) -> pa.Table:
    """Return the rows of an Arrow IPC stream.

    Raises:
        Refused: It is invalid, lies about its lengths, or would be more than the limits allow.
    """
    try:
        _weigh(body, limits)
        with pa.ipc.open_stream(body) as stream:
            if len(stream.schema) > limits.columns_max:
                raise invalid(f"a body has at most {limits.columns_max} columns")
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, struct.error, IndexError, UnicodeDecodeError) as error:
        raise invalid(f"the body is not an Arrow IPC stream: {_words(error)}") from None
    return table


def _words(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def _weigh(body: bytes, limits: RowLimits) -> None:
    """Refuse a stream that would be too much, by what its messages say."""
    rows = nbytes = 0
    for more_rows, more_bytes in weights(body):
        rows, nbytes = rows + more_rows, nbytes + more_bytes
        if rows > limits.rows_max:
            raise _too_much(f"{limits.rows_max} rows")
        if nbytes > limits.decompressed_bytes_max:
            raise _too_much(f"{limits.decompressed_bytes_max} bytes when decompressed")


def _too_much(most: str) -> Refused:
    return invalid(f"a body has at most {most}; send the rows in several calls of one transaction")
