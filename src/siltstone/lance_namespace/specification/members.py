"""Members: what a member of a JSON request is to the handler of its route.

    read          the handler reads it
    Hint          it may change how fast the answer comes, never the answer: passed over
    FIXED         it has one value, which is what is done anyway
    NotOffered    refused by its name, with code 0, if it says something

A member that the type of the request has not is refused by its name, too: no request is half done.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import fields

from siltstone.lance_versions.errors import Refused, invalid, unsupported

Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Limit = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Name = Annotated[str, Meta(min_length=1)]
Names = Annotated[list[str], Meta(min_length=1)]
HINT, NOT_OFFERED = "hint", "not offered"
_HINT = Meta(description="It changes no result.", extra={"is": HINT})
NOTHING = {"type": ["string", "null"], "maxLength": 0}
"""What says nothing, as a schema; of null alone a generator of clients knows no type."""
_REFUSED = Meta(description="Not offered.", extra={"is": NOT_OFFERED}, extra_json_schema=NOTHING)
_ONLY_FALSE = Meta(description="Only false is offered.", extra={"is": NOT_OFFERED})
FIXED = Meta(description="The one value that is offered.", extra={"is": HINT})
HintNumber = Annotated[Count | None, _HINT]
HintFlag = Annotated[bool | None, _HINT]
HintText = Annotated[str | None, _HINT]
NotOffered = Annotated[Any, _REFUSED]
OnlyFalse = Annotated[bool | None, _ONLY_FALSE]


Request = TypeVar("Request", bound=Struct)


class RequestPart(Struct, kw_only=True, forbid_unknown_fields=True):
    """An object in the body of a request."""


class RequestBody(RequestPart, kw_only=True):
    """The body of a request of the specification; a `context` is the caller's own words."""

    identity: NotOffered = None
    context: Annotated[dict[str, Any] | None, _HINT] = None


class AnyMembers(Struct):
    """The body of a request that is refused whatever it says."""


@cache
def kinds(request: type[Struct]) -> dict[str, str | None]:
    """Return the members of a request: "hint", "not offered", or None: its handler reads it."""
    hints = get_type_hints(request, include_extras=True)
    found: dict[str, str | None] = {}
    for field in fields(request):
        marks = (mark.extra for mark in getattr(hints[field.name], "__metadata__", ()))
        found[field.name] = next((mark["is"] for mark in marks if mark), None)
    return found


@cache
def _spelled(request: type[Struct]) -> dict[str, str]:
    """Return how each member is written; once for a type, as it reads the hints of the class."""
    return {field.name: field.encode_name for field in fields(request)}


def converted(given: object, request: type[Request]) -> Request:
    """Return the members of a request as its type.

    Raises:
        Refused: It is not as the type describes it; it names the member.
    """
    try:
        return msgspec.convert(given, request)
    except (msgspec.ValidationError, RecursionError) as error:
        raise wrong(error) from None


def wrong(error: Exception | str) -> Refused:
    """Return the refusal of a request that is not as its type describes it."""
    return invalid(f"the request is wrong: {error}")


def refuse_not_offered(asked: object) -> None:
    """Refuse a request for what its operation does not do, or of another branch than main.

    Raises:
        Refused: It names the member.
    """
    if not isinstance(asked, RequestPart):
        return
    name = not_offered(asked)
    if name is not None:
        raise unsupported(f"{name} is not offered here")


def refuse_branch(branch: str | None) -> None:
    """Refuse another branch than main.

    Raises:
        Refused: It is one.
    """
    if branch and branch != "main":
        raise unsupported(f"there is no branch {branch[:128]!r}, only main")


def not_offered(asked: RequestPart) -> str | None:
    """Return the name of a member that says something and is not offered; None: there is none."""
    refuse_branch(getattr(asked, "branch", None))
    for name, kind in kinds(type(asked)).items():
        value = getattr(asked, name)
        spelled = _spelled(type(asked))[name]
        if kind == NOT_OFFERED and value:
            return spelled
        for part in value if isinstance(value, list) else (value,):
            found = not_offered(part) if isinstance(part, RequestPart) else None
            if found is not None:
                return f"{spelled}.{found}"
    return None
