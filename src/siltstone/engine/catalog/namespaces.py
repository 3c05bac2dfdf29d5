"""Namespaces: the levels above tables, by their names; which exist, and which commits collide.

    a.b.t      the table `t` in the namespace `a.b`, which is in `a`
    a..b       a table of the root: no level has an empty name

A namespace exists while a table or another namespace is in it, or from its creation to its drop.
The functions are pure; `seq` is the sequence number to look at, by default the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from siltstone.engine.catalog import catalog as catalogs
from siltstone.errors import RequestError
from siltstone.formats import group
from siltstone.formats.manifest import Catalog, NamespaceDefinition
from siltstone.formats.schema import check_name

NAMESPACES_MAX = 10_000
LEVELS_MAX = 16
PROPERTIES_MAX = 64
PROPERTIES_CHARACTERS_MAX = 16_384
_NEWEST = 1 << 62


def levels_of(name: str) -> list[str]:
    """Return the names of the levels of a table or a namespace."""
    levels = name.split(".")
    return levels if all(levels) else [name]


def above(name: str) -> list[str]:
    """Return the namespaces that a table or a namespace is in, the outermost first."""
    levels = levels_of(name)
    return [".".join(levels[:depth]) for depth in range(1, len(levels))]


def created(catalog: Catalog, name: str, seq: int = _NEWEST) -> NamespaceDefinition | None:
    """Return the namespace that was created by this name and not dropped since, if there is one."""
    return next((n for n in catalog.namespaces if n.name == name and n.is_alive(seq)), None)


def properties_of(catalog: Catalog, seq: int = _NEWEST) -> dict[str, dict[str, str]]:
    """Return the properties of all namespaces but the root, by name."""
    found: dict[str, dict[str, str]] = {name: {} for name in names(catalog, seq)}
    own = (space for space in catalog.namespaces if space.is_alive(seq))
    return found | {space.name: dict(space.properties) for space in own}


def names(catalog: Catalog, seq: int = _NEWEST) -> set[str]:
    """Return the names of all namespaces but the root."""
    own = [space.name for space in catalog.namespaces if space.is_alive(seq)]
    return {*own, *implied((*own, *catalogs.names(catalog, seq)))}


def implied(inside: Iterable[str]) -> set[str]:
    """Return the namespaces that exist because these tables and namespaces are in them."""
    return {space for name in inside for space in above(name)}


def contents(catalog: Catalog, name: str, seq: int = _NEWEST) -> set[str]:
    """Return the tables and created namespaces in a namespace, at any depth below it."""
    own = (space.name for space in catalog.namespaces if space.is_alive(seq))
    return {each for each in (*own, *catalogs.names(catalog, seq)) if name in above(each)}


def create(name: str, properties: Mapping[str, str]) -> group.CreateNamespace:
    """Return the entry that creates a namespace.

    Raises:
        RequestError: The name, or the properties, are not allowed.
    """
    check_name(name, "namespace")
    levels = levels_of(name)
    if len(levels) <= name.count("."):
        raise RequestError(f"namespace {name!r} has a level without a name")
    if len(levels) > LEVELS_MAX:
        raise RequestError(f"namespace {name!r} has {len(levels)} levels; at most {LEVELS_MAX}")
    return group.CreateNamespace(name, _checked(name, properties))


def _checked(name: str, properties: object) -> dict[str, str]:
    if not isinstance(properties, Mapping):
        raise RequestError(f"the properties of {name!r} must be strings by name")
    found = dict(properties)
    if not all(isinstance(part, str) for pair in found.items() for part in pair):
        raise RequestError(f"the properties of {name!r} must be strings by name")
    size = sum(len(key) + len(value) for key, value in found.items())
    if len(found) > PROPERTIES_MAX or size > PROPERTIES_CHARACTERS_MAX:
        raise RequestError(
            f"namespace {name!r} has {len(found)} properties of {size} characters; at most"
            f" {PROPERTIES_MAX} of {PROPERTIES_CHARACTERS_MAX}"
        )
    return found


def collision(entry: group.Entry, now: Catalog, read_seq: int) -> str | None:
    """Return the namespace because of which a change cannot follow the commits since `read_seq`.

    Args:
        entry: A change of a definition, planned at `read_seq`.
        now: The catalog without any change of the same transaction.
        read_seq: The sequence number of the transaction's snapshot.
    """
    if isinstance(entry, group.Create | group.Rename):
        return next((s for s in above(entry.name) if _is_dropped(now, s, read_seq)), None)
    if not isinstance(entry, group.CreateNamespace | group.DropNamespace):
        return None
    name = entry.name
    is_same = created(now, name) == created(now, name, read_seq)
    before, after = contents(now, name, read_seq), contents(now, name)
    if not is_same or after - before:
        return name
    gone = set(above(name)) & (names(now, read_seq) - names(now))
    return min(gone, default=None)


def changed_at(now: Catalog, name: str) -> int:
    """Return the seq of the last creation or drop of a namespace; 0: there was none."""
    found = (
        n.created if n.dropped is None else n.dropped for n in now.namespaces if n.name == name
    )
    return max(found, default=0)


def _is_dropped(now: Catalog, name: str, read_seq: int) -> bool:
    """Return whether a namespace was dropped after a seq; created again, it is another one."""
    then = created(now, name, read_seq)
    return then is not None and created(now, name) != then


def refuse_many(catalog: Catalog, name: str) -> None:
    """Refuse one more namespace if the store has as many as every record may list.

    Raises:
        RequestError: It has.
    """
    living = sum(space.is_alive() for space in catalog.namespaces)
    if living >= NAMESPACES_MAX:
        raise RequestError(f"{name!r} would be namespace {living + 1}; at most {NAMESPACES_MAX}")
