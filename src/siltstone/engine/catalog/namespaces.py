"""Namespaces: the levels above tables, by their names; which exist, and which commits collide.

    a.b.t      the table `t` in the namespace `a.b`, which is in `a`
    a..b       a table of the root: no level has an empty name

A namespace exists while a table or another namespace is in it, or from its creation to its drop.
The functions are pure; `seq` is the sequence number to look at, by default the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from siltstone.engine.catalog import catalog as catalogs
from siltstone.errors import RequestError
from siltstone.formats.log import group
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
    inside, prefix = _all(catalog, seq), f"{name}."
    return {each for each in inside if each.startswith(prefix) and name in above(each)}


def _all(catalog: Catalog, seq: int) -> set[str]:
    """Return the names of all tables and created namespaces."""
    return {*_created(catalog, seq), *catalogs.names(catalog, seq)}


def _created(catalog: Catalog, seq: int) -> dict[str, NamespaceDefinition]:
    return {space.name: space for space in catalog.namespaces if space.is_alive(seq)}


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


class Since:
    """What other commits did to namespaces since the snapshot of a transaction."""

    def __init__(self, now: Catalog, read_seq: int) -> None:
        """Look at `now`, the catalog without any change of the transaction, since `read_seq`."""
        self._now, self._read_seq = now, read_seq

    def collision(self, entry: group.Entry) -> str | None:
        """Return the namespace because of which a change cannot follow the other commits."""
        if isinstance(entry, group.Create | group.Rename):
            return next(filter(self._is_dropped, above(entry.name)), None)
        if not isinstance(entry, group.CreateNamespace | group.DropNamespace):
            return None
        then, now = self._created
        entered, gone = self._moved
        if then.get(entry.name) != now.get(entry.name) or entry.name in entered:
            return entry.name
        return min(gone.intersection(above(entry.name)), default=None)

    def _is_dropped(self, name: str) -> bool:
        """Return whether a namespace was dropped; created again, it is another one."""
        then, now = self._created
        return name in then and now.get(name) != then[name]

    @cached_property
    def _created(self) -> tuple[dict[str, NamespaceDefinition], dict[str, NamespaceDefinition]]:
        return _created(self._now, self._read_seq), _created(self._now, _NEWEST)

    @cached_property
    def _moved(self) -> tuple[set[str], set[str]]:
        """Namespaces into which something came, and those that are not there any more."""
        before, after = _all(self._now, self._read_seq), _all(self._now, _NEWEST)
        gone = names(self._now, self._read_seq) - names(self._now)
        return implied(after - before), gone


def changed_at(now: Catalog, name: str) -> int:
    """Return the seq of the last creation or drop of a namespace; 0: there was none."""
    found = (
        n.created if n.dropped is None else n.dropped for n in now.namespaces if n.name == name
    )
    return max(found, default=0)


def refuse_many(catalog: Catalog, name: str) -> None:
    """Refuse one more namespace if the store has as many as every record may list.

    Raises:
        RequestError: It has.
    """
    living = sum(space.is_alive() for space in catalog.namespaces)
    if living >= NAMESPACES_MAX:
        raise RequestError(f"{name!r} would be namespace {living + 1}; at most {NAMESPACES_MAX}")
