"""Definitions: checks catalog changes of users, and returns them as entries of a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
import pyarrow as pa

from siltstone.arguments import is_text
from siltstone.choices import UNCHANGED
from siltstone.engine.catalog import catalog as catalogs
from siltstone.errors import (
    FencedError,
    RequestError,
    SchemaMismatchError,
    TableExistsError,
    no_such,
)
from siltstone.formats.keys import KeyCodec
from siltstone.formats.log import group
from siltstone.formats.manifest import Catalog, Column, Schema, Shaped, TableDefinition
from siltstone.formats.schema import (
    COLUMNS_MAX,
    check_column_name,
    check_table_name,
    column_named,
    decode_type,
    encode_column,
    key_names,
    new_schema,
    to_arrow,
)
from siltstone.formats.type_names import arrow_schema_of, field_of
from siltstone.formats.types import metadata as metadatas
from siltstone.formats.types.blobs import is_blob
from siltstone.formats.types.casts import UncastError, may_cast
from siltstone.formats.types.defaults import (
    DEFAULT,
    carrying,
    default_in,
    in_other_type,
    plain_of,
    text_of,
)
from siltstone.formats.types.widening import is_pair, widens

APP_CHARACTERS_MAX = 256
HOLDER_CHARACTERS_MAX = 64
TAG_CHARACTERS_MAX = 128


def create(
    catalog: Catalog,
    table_id: int,
    name: str,
    schema: object,
    primary_key: str | Sequence[str],
    new_secret: Callable[[], int],
) -> group.Create:
    """Return the entry that creates a table; `new_secret` draws that of keys that are hashed."""
    _free(catalog, name)
    made = new_schema(arrow_schema_of(schema), _key_of(primary_key), schema_id=1)
    metadatas.check_size(made)
    if made.key and not KeyCodec(made).exact:
        made = msgspec.structs.replace(made, secret=new_secret())
    return group.Create(table_id, name, made)


def create_staged(catalog: Catalog, table_id: int, name: str, schema: Schema) -> group.Create:
    """Return the entry that creates a table with a schema that is made already."""
    _free(catalog, name)
    return group.Create(table_id, name, schema)


def _key_of(primary_key: str | Sequence[str]) -> list[str]:
    key = [primary_key] if isinstance(primary_key, str) else primary_key or ()
    if not isinstance(key, Iterable) or isinstance(key, set | frozenset):  # a set has no order
        raise RequestError(f"a primary key must be a column's name or a list of names; got {key!r}")
    return list(key)


def named(catalog: Catalog, name: str) -> TableDefinition | None:
    """Return the table with a name that a table can have; None: no table has it."""
    check_table_name(name)
    return catalogs.find(catalog, name) if name in catalogs.names(catalog) else None


def refuse_other(table: TableDefinition, schema: object, primary_key: str | Sequence[str]) -> None:
    """Check that a table has the columns and the key that a caller gives; it may have more columns.

    Raises:
        SchemaMismatchError: It lacks a column, has it with another type, or has another key.
    """
    has, exists = catalogs.schema_of(table), f"table {catalogs.name_of(table)!r} exists already"
    key, wanted = key_names(has), tuple(_key_of(primary_key))
    if wanted and wanted != key:
        raise SchemaMismatchError(f"{exists}, with the key {list(key)}, not {list(wanted)}")
    if schema is None:
        return
    kinds = {column.name: column.type for column in has.columns}
    for column in new_schema(arrow_schema_of(schema), key=(), schema_id=1).columns:
        if column.name not in kinds:
            raise SchemaMismatchError(f"{exists}, with {no_such('column', column.name, kinds)}")
        if kinds[column.name] != column.type:
            has_type, type_ = decode_type(kinds[column.name]), decode_type(column.type)
            raise SchemaMismatchError(f"{exists}, its {column.name!r} is {has_type}, not {type_}")
        _refuse_other_default(column_named(has, column.name), column, exists)


def _refuse_other_default(has: Column, wanted: Column, exists: str) -> None:
    if wanted.default is not None and wanted.default != has.default:
        found = "no default" if has.default is None else f"the default {has.default!r}"
        raise SchemaMismatchError(f"{exists}, its {has.name!r} has {found}, not {wanted.default!r}")


def reshaped(table: TableDefinition, arrow: pa.Schema) -> group.Alter | None:
    """Return the entry that gives a plain table the columns of `arrow`; None: it has them.

    A column with the same name, type and nullability stays; any other is new.

    Raises:
        RequestError: A table cannot have a name or a type.
    """
    old = catalogs.schema_of(table)
    wanted = new_schema(arrow, (), schema_id=old.id + 1).columns
    same = {(column.name, column.type, column.nullable): column for column in old.columns}
    columns: list[Column] = []
    following = table.next_column
    for column in wanted:
        known = same.get((column.name, column.type, column.nullable))
        columns.append(known or msgspec.structs.replace(column, id=following))
        following += known is None
    if tuple(columns) == old.columns:
        return None
    return _altered(table, columns, following)


def rename(catalog: Catalog, name: str, new_name: str) -> group.Rename:
    """Return the entry that renames a table."""
    table = catalogs.find(catalog, name)
    _free(catalog, new_name)
    return group.Rename(table.id, new_name)


def is_renamed(catalog: Catalog, name: str, new_name: str) -> bool:
    """Return whether a rename looks done: the old name is gone, or the new one is taken."""
    check_table_name(new_name)
    known = catalogs.names(catalog)
    return name not in known or new_name in known


def _free(catalog: Catalog, name: str) -> None:
    check_table_name(name)
    if name in catalogs.names(catalog):
        raise TableExistsError(name)


def add_column(
    table: TableDefinition, name: str, kind: object, default: object = None
) -> tuple[group.Alter, pa.Field]:
    """Return the entry that adds a column, and the column as Arrow.

    Rows that exist have its default, else null.

    Raises:
        RequestError: They would have null where none may be; or no table has such a column.
        SchemaMismatchError: The table has it, or the default is of another type.
    """
    check_column_name(name)
    field = field_of(name, kind)
    field = carrying(field, DEFAULT, text_of(field, default))
    if not field.nullable and default is None:
        raise RequestError(
            f"column {name!r}: rows that exist have null there; leave out 'not null', or give a"
            " default"
        )
    return add_field(table, field)


def add_field(table: TableDefinition, field: pa.Field) -> tuple[group.Alter, pa.Field]:
    """As `add_column`, of a column as Arrow; it may carry a default."""
    entry = _with_column(table, field)
    return entry, to_arrow(entry.schema).field(field.name)


def _with_column(table: TableDefinition, field: pa.Field) -> group.Alter:
    schema, name = catalogs.schema_of(table), check_column_name(field.name)
    if any(column.name == name for column in schema.columns):
        raise SchemaMismatchError(f"column {name!r} exists already")
    if len(schema.columns) >= COLUMNS_MAX:
        raise RequestError(f"a table has at most {COLUMNS_MAX} columns")
    if is_blob(field):
        raise RequestError(f"column {name!r}: a column of blobs comes with its table")
    stored = encode_column(field, is_keyed=bool(schema.key))
    text = default_in(field)
    may_be_null = field.nullable or text is None
    column = Column(
        table.next_column, name, stored, nullable=may_be_null, default=text, initial=text
    )
    columns = (*schema.columns, column)
    return _altered(table, columns, table.next_column + 1)


def added(table: TableDefinition, schema: object) -> tuple[pa.Field, ...]:
    """Return the columns of `schema` that a table lacks; it adds them as nullable ones.

    Raises:
        SchemaMismatchError: The table has one with another type.
        RequestError: A table cannot have such columns.
    """
    names = {column.name for column in catalogs.schema_of(table).columns}
    arrow = arrow_schema_of(schema)
    known = plain_of(pa.schema([field for field in arrow if field.name in names]))
    if known.names:
        refuse_other(table, known, ())
    return tuple(field.with_nullable(True) for field in arrow if field.name not in names)


def widened(table: TableDefinition, fields: Iterable[pa.Field]) -> Schema:
    """Return the schema that a table has once these columns are added."""
    for field in fields:
        entry = _with_column(table, field)
        steps = (*table.schemas, Shaped(table.schemas[-1].seq, entry.schema))
        table = msgspec.structs.replace(table, schemas=steps, next_column=entry.next_column)
    return catalogs.schema_of(table)


def _altered(
    table: TableDefinition, columns: Iterable[Column], next_column: int | None = None
) -> group.Alter:
    schema = msgspec.structs.replace(catalogs.schema_of(table), columns=tuple(columns))
    return _shaped(table, schema, next_column)


def _shaped(table: TableDefinition, schema: Schema, next_column: int | None = None) -> group.Alter:
    changed = msgspec.structs.replace(schema, id=schema.id + 1)
    metadatas.check_size(changed)
    return group.Alter(table.id, changed, next_column or table.next_column)


def has_column(table: TableDefinition, name: str) -> bool:
    """Return whether a table has a column with a name now."""
    return any(column.name == name for column in catalogs.schema_of(table).columns)


def is_column_renamed(table: TableDefinition, name: str, new_name: str) -> bool:
    """Say whether the rename of a column looks done: the old name is gone, or the new one taken."""
    return not has_column(table, name) or has_column(table, new_name)


def drop_column(table: TableDefinition, name: str) -> group.Alter:
    """Return the entry that drops a column; its id is never used again."""
    schema = catalogs.schema_of(table)
    column = column_named(schema, name)
    if column.id in schema.key:
        raise RequestError(f"column {name!r} is part of the key and cannot be dropped")
    if len(schema.columns) == 1:
        raise RequestError(f"column {name!r} is the only one; drop the table instead")
    return _altered(table, (c for c in schema.columns if c.id != column.id))


def rename_column(table: TableDefinition, name: str, new_name: str) -> group.Alter:
    """Return the entry that renames a column; its id stays."""
    schema = catalogs.schema_of(table)
    column = column_named(schema, name)
    check_column_name(new_name)
    if any(c.name == new_name for c in schema.columns):
        raise SchemaMismatchError(f"column {new_name!r} exists already")
    renamed = msgspec.structs.replace(column, name=new_name)
    return _altered(table, (renamed if c.id == column.id else c for c in schema.columns))


def alter_column(
    table: TableDefinition,
    name: str,
    nullable: bool | None = None,
    default: object = UNCHANGED,
) -> group.Alter | None:
    """Return the entry that changes a column; None: it is so already.

    `default` is that of new rows, None takes it away. A column that is to be `nullable` no more
    has no null: the caller looks.

    Raises:
        RequestError: It is a column of the key, or a column of its type has no default.
        SchemaMismatchError: There is no such column, or the default is of another type.
    """
    schema = catalogs.schema_of(table)
    column = column_named(schema, name)
    if nullable is not None and not isinstance(nullable, bool):
        raise RequestError(f"nullable must be True or False; got {nullable!r:.80}")
    has_default = default is not UNCHANGED and default is not None
    if column.id in schema.key and (nullable or has_default):
        what = "is never null" if nullable else "has no default"
        raise RequestError(f"column {name!r} is part of the key, which {what}")
    changed = column
    if nullable is not None and column.id not in schema.key:
        changed = msgspec.structs.replace(changed, nullable=nullable)
    if default is not UNCHANGED:
        text = text_of(to_arrow(schema).field(name), default)
        changed = msgspec.structs.replace(changed, default=text)
    if changed == column:
        return None
    return _altered(table, (changed if c.id == column.id else c for c in schema.columns))


def retyped(table: TableDefinition, name: str, kind: object) -> group.Alter | None:
    """Return the entry that gives a column another type; None: it has this one.

    A wider type (`widening`) leaves the column what it is. Another one makes it a new column, in
    its place and with its name: the caller gives each row its value there.

    Raises:
        RequestError: It is a column of the key, or no value of its type has one in the other.
        SchemaMismatchError: There is no such column, or its default has no such value.
    """
    schema = catalogs.schema_of(table)
    column = column_named(schema, name)
    old, wanted = to_arrow(schema).field(name), field_of(name, kind)
    if not wanted.nullable:
        raise RequestError(f"column {name!r}: 'not null' is no type; give nullable=False")
    stored = encode_column(wanted, is_keyed=bool(schema.key))
    if stored == column.type:
        return None
    if column.id in schema.key:
        raise RequestError(
            f"column {name!r} is part of the key, whose type stays; make a new table and copy the"
            " rows"
        )
    if (
        is_blob(old)
        or is_blob(wanted)
        or not (is_pair(old.type, wanted.type) or may_cast(old.type, wanted.type))
    ):
        raise RequestError(
            f"column {name!r} is {old.type}, which does not become {wanted.type}; add a column,"
            " fill it, and drop this one"
        )
    default = _default_in_type(column, old.type, wanted.type)
    changed = msgspec.structs.replace(column, type=stored, default=default)
    following = table.next_column
    if widens(old.type, wanted.type):
        initial = in_other_type(column.initial, old.type, wanted.type)
        changed = msgspec.structs.replace(changed, initial=initial)
    else:
        changed = msgspec.structs.replace(changed, id=following, initial=None)
        following += 1
    columns = (changed if c.id == column.id else c for c in schema.columns)
    return _altered(table, columns, following)


def _default_in_type(column: Column, old: pa.DataType, new: pa.DataType) -> str | None:
    try:
        return in_other_type(column.default, old, new)
    except UncastError:
        raise SchemaMismatchError(
            f"the default of column {column.name!r} is {column.default!r}, which has no value in"
            f" {new}: change it first"
        ) from None


def forbidden(before: Schema, after: Schema) -> list[str]:
    """Return the names, in the later schema, of the columns that take no null any more."""
    could = {column.id for column in before.columns if column.nullable}
    return [c.name for c in after.columns if not c.nullable and c.id in could]


def note(table: TableDefinition, given: Mapping[str, str]) -> group.Alter | None:
    """Return the entry that replaces the metadata of a table; None: it has this one.

    Raises:
        RequestError: A name or a text that it cannot have, or too much of it.
    """
    old = catalogs.schema_of(table)
    metadata = metadatas.noted(old.metadata, given, replaces=True)
    changed = msgspec.structs.replace(old, metadata=metadata)
    return None if changed == old else _shaped(table, changed)


def note_column(
    table: TableDefinition, name: str, given: Mapping[str, str | None], *, replaces: bool
) -> group.Alter | None:
    """Return the entry that changes the metadata of a column; None: it has this one.

    Raises:
        RequestError: As `note`.
        SchemaMismatchError: There is no such column.
    """
    schema = catalogs.schema_of(table)
    column = column_named(schema, name)
    metadata = metadatas.noted(column.metadata, given, replaces=replaces)
    if metadata == column.metadata:
        return None
    changed = msgspec.structs.replace(column, metadata=metadata)
    return _altered(table, (changed if c.id == column.id else c for c in schema.columns))


def token_of(token: object) -> group.Token:
    """Return the token for a user's (app, batch)."""
    if not isinstance(token, tuple | list) or len(token) != 2:
        raise RequestError(f"a token must be (app, batch); got {token!r}")
    app, batch = token
    check_app(app)
    if not isinstance(batch, int) or isinstance(batch, bool) or not 0 <= batch < 1 << 63:
        raise RequestError(f"the batch of a token must be an integer from 0; got {batch!r}")
    return group.Token(app, batch)


def claim(catalog: Catalog, app: str, holder: object, at: object = None) -> group.Claim | None:
    """Return the entry that claims a token app; None: `holder` has it already.

    A claim without a holder is always new. A claim with a number `at` succeeds if the number is
    above that of the last claim, so that only the order decides. Without `at`, the catalog knows
    the last `catalogs.SUPERSEDED_MAX` holders; an older holder counts as new.

    Raises:
        FencedError: Another holder claimed the app after this one.
        RequestError: The name of the holder is invalid.
    """
    found = catalogs.app_of(catalog, app)
    if at is not None and (
        holder is None or not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < 1 << 63
    ):
        raise RequestError(f"a holder must claim at an integer from 0; got {at!r} by {holder!r}")
    last = catalogs.last_claim(catalog, found)
    if holder is None:
        return group.Claim(app, last + 1)
    if not is_text(holder) or not 0 < len(holder) <= HOLDER_CHARACTERS_MAX:
        raise RequestError(
            f"a holder must be a string of 1 to {HOLDER_CHARACTERS_MAX} characters; got {holder!r}"
        )
    if holder == found.holder:
        return None
    if holder in found.superseded if at is None else at <= last:
        raise FencedError(holder, found.holder or found.claim, app=app)
    return group.Claim(app, last + 1 if at is None else at, holder)


def forget_app(catalog: Catalog, app: str) -> group.ForgetApp:
    """Return the entry that forgets a token app.

    Raises:
        RequestError: There is none of that name.
    """
    if not catalogs.app_of(catalog, check_app(app)).is_known:
        known = [each.name for each in catalog.apps]
        raise RequestError(f"there is {no_such('token app', app, known)}")
    return group.ForgetApp(app)


def check_claim(claim: object, token: group.Token | None) -> None:
    """Check that a claim is valid and that its transaction has a token."""
    if claim is None:
        return
    if not isinstance(claim, int) or isinstance(claim, bool) or not 0 <= claim < 1 << 63:
        raise RequestError(f"a claim must be a result of `claim(app)`; got {claim!r}")
    if token is None:
        raise RequestError("a claim belongs to the app of a token; the transaction has none")


def check_tag(name: object, lasts_s: object) -> None:
    """Check the name of a tag of the store, and for how many seconds it lasts (0: for ever)."""
    name = check_tag_name(name)
    if catalogs.table_of_tag(name) is not None:
        raise RequestError(f"names like #3/... are of tags of one table; choose another: {name!r}")
    if type(lasts_s) is not int or not 0 <= lasts_s < 1 << 40:
        raise RequestError(f"lasts must be a number of seconds above 0; got {lasts_s!r}")


def check_tag_name(name: object) -> str:
    """Return the name of a tag, of the store or of a table, if it can be stored."""
    if not is_text(name) or not 0 < len(name) <= TAG_CHARACTERS_MAX:
        raise RequestError(
            f"a tag must be a string of 1 to {TAG_CHARACTERS_MAX} characters; got {name!r:.80}"
        )
    return name


def check_table_id(table_id: object) -> None:
    """Check that it can be the id of a table; whether there is one is found out later."""
    if type(table_id) is not int:
        raise RequestError(f"the id of a table must be an integer; got {table_id!r:.80}")


def check_own(since: object, own: object) -> None:
    """Check from which seq changes of a table are looked for, and the spans that do not count."""
    if type(since) is not int or since < 0:
        raise RequestError(f"a seq must be an integer from 0; got {since!r:.80}")
    for span in cast("Any", own) if isinstance(own, list | tuple) else [own]:
        if not _is_span(span):
            raise RequestError(f"own commits must be pairs of first and last seq; got {span!r:.80}")


def _is_span(span: Any) -> bool:
    kinds = [type(seq) for seq in cast("Any", span)] if isinstance(span, list | tuple) else []
    return kinds == [int, int] and 0 <= span[0] <= span[1]


def check_app(app: object) -> str:
    """Return the name of a token app, if it is valid."""
    if not is_text(app) or not 0 < len(app) <= APP_CHARACTERS_MAX:
        raise RequestError(
            f"an app must be a string of 1 to {APP_CHARACTERS_MAX} characters; got {app!r}"
        )
    return app
