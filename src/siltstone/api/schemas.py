"""Schemas: the columns of a table as Arrow types, of whatever `create_table` takes for them."""

from siltstone.formats.type_names import arrow_schema_of
from siltstone.formats.types.layouts import plain_schema, replaced_type

__all__ = ["arrow_schema_of", "plain_schema", "replaced_type"]
