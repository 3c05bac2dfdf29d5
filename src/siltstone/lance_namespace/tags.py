"""Tags: the operations on the tags of one table, which name its versions.

A tag keeps the seq at which the table has the version, as a tag of the store does: the catalog has
it as `#<table id>/<name>`. So it follows its table when that is renamed, and goes with it. The
store's own tags are not among them. Lock: a turn of each table, so that of two that create the same
tag one finds the other.
"""

from __future__ import annotations

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.errors import no_such
from siltstone.formats.manifest import Catalog
from siltstone.lance_namespace.rows.version_numbers import past_of, version_in
from siltstone.lance_namespace.scope import Scope, shown
from siltstone.lance_namespace.specification import bodies, ids
from siltstone.lance_namespace.specification.pages import page
from siltstone.lance_versions.errors import Code, Refused
from siltstone.lance_versions.version_statements import VersionStatements

Set = tuple[bodies.NoMembers, int | None]


def list_table_tags(scope: Scope, asked: bodies.TablePageRequest) -> tuple[bodies.TagsAnswer, None]:
    """Return the tags of a table, and the version that each names."""
    name = ids.table_of(asked)
    tags = _tags(scope, name)
    names, token = page(sorted(tags), asked)
    found = {tag: _shown(scope, name, tags[tag]) for tag in names}
    return bodies.TagsAnswer(found, page_token=token), None


def get_table_tag_version(
    scope: Scope, asked: bodies.TagRequest
) -> tuple[bodies.VersionAnswer, int]:
    """Return the version that a tag names."""
    name = ids.table_of(asked)
    seq = _seq_at(_tags(scope, name), asked.tag)
    return bodies.VersionAnswer(_shown(scope, name, seq).version), seq


def create_table_tag(scope: Scope, asked: bodies.SetTagRequest) -> Set:
    """Name a version."""
    return _set(scope, asked, is_new=True)


def update_table_tag(scope: Scope, asked: bodies.SetTagRequest) -> Set:
    """Let a tag name another version."""
    return _set(scope, asked, is_new=False)


def delete_table_tag(scope: Scope, asked: bodies.TagRequest) -> Set:
    """Forget a tag."""
    name = ids.table_of(asked)

    def work(tx: EngineTransaction) -> None:
        _seq_at(_tags_of(tx.catalog, name), asked.tag)
        VersionStatements(tx).tag_table(name, asked.tag, None)

    with scope.db.tag_turns.of(name):
        return bodies.NoMembers(), scope.write(work, None)[1].seq


def _set(scope: Scope, asked: bodies.SetTagRequest, *, is_new: bool) -> Set:
    name, tag = ids.table_of(asked), asked.tag

    def work(tx: EngineTransaction) -> None:
        known = _tags_of(tx.catalog, name)
        if not is_new:
            _seq_at(known, tag)
        elif tag in known:
            raise Refused(Code.TAG_EXISTS, f"tag {tag!r} of table {name!r} names a version already")
        VersionStatements(tx).tag_table(name, tag, seq)

    with scope.db.tag_turns.of(name):
        seq = past_of(scope.db.core, name, asked.version).seq
        return bodies.NoMembers(), scope.write(work, None)[1].seq


def _tags(scope: Scope, name: str) -> dict[str, int]:
    with shown(scope) as found:
        _ = found[name].schema  # it is there
        if isinstance(found, EngineTransaction):
            return _tags_of(found.catalog, name)
    return _tags_of(scope.db.core.state().view.catalog, name)


def _shown(scope: Scope, name: str, seq: int) -> bodies.TaggedVersion:
    """Return a version as the specification has it; of a keyed table no manifest is one."""
    found = catalogs.find(scope.db.core.state().view.catalog, name)
    pin = None
    if not catalogs.schema_of(found, seq).key:
        pin = catalogs.version_of(catalogs.incarnation_of(found, seq), seq)
    return bodies.TaggedVersion(version_in(found, seq), 0 if pin is None else pin.pin.size)


def _seq_at(tags: dict[str, int], tag: str) -> int:
    if tag not in tags:
        raise Refused(Code.TAG_NOT_FOUND, f"this table has {no_such('tag', tag, tags)}")
    return tags[tag]


def _tags_of(catalog: Catalog, table: str) -> dict[str, int]:
    return catalogs.tags_of_table(catalog, catalogs.find(catalog, table).id)
