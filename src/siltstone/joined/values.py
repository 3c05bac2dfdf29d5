"""Values: Python values, Arrow data and errors as they travel between a store and who joined it.

    body    msgpack; what msgpack has no word for is an extension: code, then its msgpack payload
    rows    an Arrow IPC stream, as its own body or inside of one (code 10)
    error   [class name, message, attributes]

What arrives has the type that was sent: a tuple stays one, an int of any size stays whole,
decimals, dates and numpy scalars are what they were. Nothing that is executed travels: no pickle.
"""

from __future__ import annotations

import datetime as dt
import importlib
import struct
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone import errors
from siltstone.api.results import Checkpointed
from siltstone.engine.catalog.row_input import stream_of
from siltstone.engine.commit.write_set import Receipt
from siltstone.engine.filter import pickled
from siltstone.engine.read.past import LogEntry
from siltstone.engine.write.sent_writes import Recheck
from siltstone.engine.write.stage_task import Staged, StageTask
from siltstone.errors import RequestError, SiltstoneError
from siltstone.formats.arrow_weight import weights
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import KeyRun, Pin, Schema, TokenApp
from siltstone.joined.protocol import BODY_BYTES_MAX
from siltstone.lance_versions import errors as lance_errors
from siltstone.maintenance.compaction.compaction import Optimized
from siltstone.maintenance.gc.vacuum import Removed, Vacuumed
from siltstone.maintenance.index.index_plan import IndexStatus
from siltstone.maintenance.merge.merge import Deferred, Merged
from siltstone.maintenance.repair.verify import Finding, Verified
from siltstone.maintenance.schedule.mirror_status import MirrorStatus
from siltstone.maintenance.schedule.pace import Backpressure
from siltstone.maintenance.schedule.status import JobStatus, Memory, Status, TableStatus
from siltstone.query.changes.change_task import ChangeTask, Range, RowMark
from siltstone.query.scan.scan_task import PinnedRows, Positions, ScanTask
from siltstone.storage.cache.part_cache import CacheUse
from siltstone.storage.tables.values import StagedFiles, StagedKeys


def _name(kind: type) -> str:
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


_CLASSES: dict[str, type] = {
    _name(found): found
    for found in (
        *(Checkpointed, Deferred, Finding, LogEntry, Memory, Merged, Optimized, Receipt, Removed),
        *(IndexStatus, JobStatus, Status, TableStatus, Backpressure, Vacuumed, Verified),
        *(CacheUse, MirrorStatus),
        *(Pin, Schema, InventoryFile, KeyRun, StagedKeys, StagedFiles, Staged, StageTask),
        *(Positions, PinnedRows, ScanTask, RowMark, Range, ChangeTask, TokenApp, Recheck),
    )
}
_ERRORS: dict[str, type[SiltstoneError]] = {
    name: found
    for name, found in {**vars(lance_errors), **vars(errors)}.items()
    if isinstance(found, type) and issubclass(found, SiltstoneError)
}
_INT64 = range(-(1 << 63), 1 << 63)
_UTC = "UTC"

Fields = dict[str, object]

DECOMPRESSED_BYTES_MAX = 1 << 30
"""What the Arrow data of one body may take once it is decompressed."""


def encode(value: object) -> bytes:
    """Return a value as the body of a message.

    Raises:
        RequestError: It holds something that does not travel.
    """
    try:
        return msgspec.msgpack.encode(_out(value))
    except RequestError:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError, pa.ArrowException) as error:
        raise RequestError(f"{value!r:.80} cannot be sent to the owner: {error}") from error


def decode(body: bytes | bytearray | memoryview) -> Any:
    """Return the value of a body.

    Raises:
        RequestError: The bytes are no message.
    """
    try:
        return msgspec.msgpack.decode(body, ext_hook=_of_extension)
    except RequestError:
        raise
    except Exception as error:  # any decoder may refuse any bytes in its own way
        raise RequestError(f"not a message of siltstone: {error}") from error


def error_fields(error: SiltstoneError) -> Fields:
    """Return what an error is, by class, message and attributes; `raised` is the inverse."""
    known: Fields = {}
    for name, value in vars(error).items():
        try:
            encode(value)
        except RequestError:
            value = repr(value)  # noqa: PLW2901 - a person still reads what it was
        known[name] = value
    return {"class": type(error).__name__, "message": str(error), "fields": known}


def raised(found: object) -> SiltstoneError:
    """Return the error that `error_fields` described; of an unknown class a SiltstoneError."""
    if not isinstance(found, dict):
        return SiltstoneError(f"the owner failed with {found!r:.200}")
    known = cast("Fields", found)
    kind = _ERRORS.get(str(known.get("class")), SiltstoneError)
    error = kind.__new__(kind)
    error.args = (str(known.get("message")),)
    attributes = known.get("fields")
    if isinstance(attributes, dict):
        vars(error).update(cast("Fields", attributes))
    return error


# Arrow


def stream_bytes(batches: pa.RecordBatchReader, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Return a stream of batches as one Arrow IPC stream.

    Raises:
        RequestError: They are more than `bytes_max`, or cannot be read.
    """
    sink = pa.BufferOutputStream()
    try:
        with pa.ipc.new_stream(sink, batches.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                if sink.tell() > bytes_max:
                    raise too_large(bytes_max)
    except pa.ArrowException as error:
        raise RequestError(f"the rows cannot be read: {error}") from error
    return sink.getvalue().to_pybytes()


def too_large(bytes_max: int) -> RequestError:
    """Return the refusal of a request that carries too much."""
    return RequestError(
        f"a request carries at most {bytes_max} bytes; send the rows in several calls of one"
        " transaction"
    )


def stream_of_bytes(body: bytes) -> pa.RecordBatchReader:
    """Return the batches of an Arrow IPC stream.

    Raises:
        RequestError: The bytes are none.
    """
    try:
        if sum(nbytes for _, nbytes in weights(body)) > DECOMPRESSED_BYTES_MAX:
            raise too_large(DECOMPRESSED_BYTES_MAX)
        table = pa.ipc.open_stream(body).read_all()
        table.validate()
    except (pa.ArrowException, OSError, struct.error, IndexError) as error:
        raise RequestError(f"not an Arrow stream: {error}") from error
    return table.to_reader()


# to extensions


def _ext(code: int, payload: object) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, msgspec.msgpack.encode(payload))


def _out(value: object) -> object:
    made = _OUT.get(type(value))
    if made is not None:
        return made(value)
    for kinds, make in _OUT_OF_KINDS:
        if isinstance(value, kinds):
            return make(value)
    if _CLASSES.get(_name(type(value))) is type(value):
        return _out_struct(value)
    stream = stream_of(value)
    if stream is not None:
        return _ext(10, stream_bytes(stream))
    if isinstance(value, Iterable):  # an index of pandas, the keys of a dict
        return _parts(value)
    raise RequestError(f"{value!r:.80} ({type(value).__name__}) cannot be sent to the owner")


def _same(value: object) -> object:
    return value


def _parts(values: Iterable[object]) -> list[object]:
    return [_out(part) for part in values]


def _out_int(value: int) -> object:
    number = int(value)
    return number if number in _INT64 else _ext(1, str(number))


def _out_tuple(value: Iterable[object]) -> object:
    return _ext(2, _parts(value))


def _out_dict(pairs: Mapping[object, object]) -> object:
    if all(type(key) is str for key in pairs):
        return {key: _out(part) for key, part in pairs.items()}
    return _ext(3, [[_out(key), _out(part)] for key, part in pairs.items()])


def _out_datetime(moment: dt.datetime) -> object:
    if hasattr(moment, "to_datetime64"):  # of pandas: it has nanoseconds
        zone = None if moment.tzinfo is None else str(moment.tzinfo)
        utc: np.datetime64 = cast("Any", moment).to_datetime64()  # in its own unit; NaT has none
        return _ext(13, [int(utc.astype(np.int64)), np.datetime_data(utc.dtype)[0], zone])
    naive = moment.replace(tzinfo=None).isoformat()
    key = getattr(moment.tzinfo, "key", None)
    if moment.tzinfo is None or isinstance(key, str):
        return _ext(4, [naive, key, None, moment.fold])
    offset = moment.utcoffset()
    seconds = None if offset is None else offset.total_seconds()
    return _ext(4, [naive, None, seconds, 0])


def _out_timedelta(span: dt.timedelta) -> object:
    """Send a span of pandas, which may have nanoseconds."""
    exact: np.timedelta64 = cast("Any", span).to_timedelta64()
    return _ext(22, [int(exact.astype(np.int64)), np.datetime_data(exact.dtype)[0]])


def _out_array(array: np.ndarray) -> object:
    if array.dtype.hasobject or array.ndim != 1:
        return _out(array.tolist())
    return _ext(12, [array.dtype.str, array.tobytes()])


def _out_scalar(scalar: pa.Scalar) -> object:
    table = pa.table({"value": pa.array([scalar.as_py()], scalar.type)})
    return _ext(14, stream_bytes(table.to_reader()))


def _out_fields(code: int, fields: Iterable[pa.Field]) -> object:
    return _ext(code, pa.schema(list(fields)).serialize().to_pybytes())


def _out_expression(value: Any) -> object:
    # What pickle would call: Arrow's own serialisation of an expression, which is data.
    _, (buffer,) = cast("tuple[object, tuple[pa.Buffer]]", value.__reduce__())
    return _ext(18, buffer.to_pybytes())


def _out_struct(value: Any) -> object:
    name = _name(type(value))
    if is_dataclass(value):
        return _ext(19, [name, {f.name: _out(getattr(value, f.name)) for f in fields(value)}])
    return _ext(20, [name, msgspec.msgpack.encode(value)])


_OUT: dict[type, Callable[[Any], object]] = {
    type(None): _same,
    bool: _same,
    int: _out_int,
    float: _same,
    str: _same,
    bytes: _same,
    list: _parts,
    tuple: _out_tuple,
    dict: _out_dict,
    Decimal: lambda value: _ext(8, str(value)),
    dt.date: lambda value: _ext(5, value.isoformat()),
    dt.time: lambda value: _ext(6, value.isoformat()),
    dt.timedelta: lambda span: _ext(7, [span.days, span.seconds, span.microseconds]),
    dt.datetime: _out_datetime,
    UUID: lambda value: _ext(21, value.bytes),
    pa.Schema: lambda schema: _ext(15, schema.serialize().to_pybytes()),
    pa.Field: lambda field: _out_fields(17, [field]),
}
_OUT_OF_KINDS: tuple[tuple[Any, Callable[[Any], object]], ...] = (
    (np.generic, lambda scalar: _ext(11, [scalar.dtype.str, scalar.tobytes()])),
    (np.ndarray, _out_array),
    (dt.datetime, _out_datetime),
    (dt.timedelta, _out_timedelta),
    (Path, lambda value: _ext(9, str(value))),
    (pa.Scalar, _out_scalar),
    (pa.DataType, lambda kind: _out_fields(16, [pa.field("value", kind)])),
    (pc.Expression, _out_expression),
    (int, _out_int),
    (float, float),
    (str, str),
    ((bytearray, memoryview), bytes),
    ((set, frozenset, range, list), _parts),
    (Decimal, _OUT[Decimal]),
    (tuple, _out_tuple),
    (Mapping, _out_dict),
)


# from extensions


def _of_extension(code: int, data: memoryview) -> object:
    make = _IN.get(code)
    if make is None:
        raise RequestError(f"no extension {code} is known; is the other side another siltstone?")
    return make(msgspec.msgpack.decode(data, ext_hook=_of_extension))


def _in_datetime(payload: Any) -> dt.datetime:
    text, key, seconds, fold = payload
    moment = dt.datetime.fromisoformat(text)
    if key is not None:
        zone: dt.tzinfo = zoneinfo.ZoneInfo(key)
        return moment.replace(tzinfo=zone, fold=fold)
    if seconds is None:
        return moment
    return moment.replace(tzinfo=dt.timezone(dt.timedelta(seconds=seconds)) if seconds else dt.UTC)


def _in_array(payload: Any) -> np.ndarray:
    kind, data = payload
    return np.frombuffer(data, np.dtype(kind))


def _in_pandas(payload: Any) -> object:
    number, unit, zone = payload
    moment = np.datetime64(number, unit)
    try:
        pd = cast("Any", importlib.import_module("pandas"))  # late: a second
    except ImportError:
        return moment
    made = pd.Timestamp(moment)
    return made if zone is None else made.tz_localize(_UTC).tz_convert(zone)


def _in_timedelta(payload: Any) -> object:
    span = np.timedelta64(*payload)
    try:
        return cast("Any", importlib.import_module("pandas")).Timedelta(span)
    except ImportError:
        return span


def _schema_of(payload: Any) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(payload))


def _in_expression(payload: Any) -> pc.Expression:
    buffer = pa.py_buffer(payload)
    pickled.refuse_deep_form(buffer)
    return cast("Any", pc.Expression)._deserialize(buffer)  # noqa: SLF001


_IN: dict[int, Callable[[Any], object]] = {
    1: int,
    2: tuple,
    3: dict,
    4: _in_datetime,
    5: dt.date.fromisoformat,
    6: dt.time.fromisoformat,
    7: lambda payload: dt.timedelta(*payload),
    8: Decimal,
    9: Path,
    10: lambda payload: stream_of_bytes(payload).read_all(),
    11: lambda payload: _in_array(payload)[0],
    12: _in_array,
    13: _in_pandas,
    14: lambda payload: stream_of_bytes(payload).read_all().column(0)[0],
    15: _schema_of,
    16: lambda payload: _schema_of(payload).field(0).type,
    17: lambda payload: _schema_of(payload).field(0),
    18: _in_expression,
    21: lambda payload: UUID(bytes=payload),
    22: _in_timedelta,
    19: lambda payload: _CLASSES[payload[0]](**payload[1]),
    20: lambda payload: msgspec.msgpack.decode(payload[1], type=_CLASSES[payload[0]]),
}
