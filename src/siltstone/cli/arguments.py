"""Arguments: the options that commands share, so that each means the same everywhere.

Some options make one value together. A command takes the value, `add_command` adds the options.
The fields of a data class of options are options:

    db: Db          --db, and for a server --token-file, --cafile
    db: LocalDb     --db alone: the command needs the store's files
    db: WordedDb    the same as Db, or a word
    db: NewDb       the same as LocalDb, or a word
    pair: MirrorPair    the same, and behind it the URL of a bucket
    form: Form      --json, --ndjson, --csv; none: a table on a terminal, TSV in a pipe
    as_of: AsOf     --at, --seq, --tag; none: now
    csv: CsvForm    --null, --delimiter: how a CSV file is written
    consent: Consent    --yes, --dry-run: whether a command may change something
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from siltstone.cli.exits import UsageError
from siltstone.cli.output import Form

Table = Annotated[str, typer.Argument(metavar="TABLE", show_default=False)]
At = Annotated[
    str | None,
    typer.Option(help="Read the store as of a time with a zone: 2026-11-20T10:00Z, or ...-05:00."),
]
Seq = Annotated[int | None, typer.Option(help="Read the store as of a sequence number.")]
Tag = Annotated[str | None, typer.Option(help="Read the store as of a tag.")]
MOMENT = "A sequence number, a time with a zone, or a tag."
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Ndjson = Annotated[bool, typer.Option("--ndjson", help="Print one JSON object per line.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="List what the command would do; change nothing.")
]
Attempts = Annotated[
    int,
    typer.Option(min=1, help="Plan at most this often if other writers win; then defer the work."),
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="What separates the cells of CSV. Default: a comma; in .tsv a tab."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")]


@dataclass(frozen=True, slots=True)
class Db:
    """The store of a command; see `sessions`. `uri` is a directory, or the URL of a server."""

    uri: str
    token_file: Path | None = None
    cafile: Path | None = None


LocalDb = Annotated[Db, "of this machine"]
"""The store of a command that needs its files."""
WordedDb = Annotated[Db, "by a word"]
"""The store of a command that takes it as a word, too."""
NewDb = Annotated[Db, "of this machine, by a word"]
"""The store of a command that needs its files, and takes it as a word, too."""
MirrorPair = Annotated[tuple[Db, str], "a store and a bucket"]
"""The store of a mirror, by a word or an option, and the URL of its bucket."""


@dataclass(frozen=True, slots=True)
class CsvForm:
    """How a CSV file spells its rows; see `files`."""

    null: Annotated[
        list[str] | None, typer.Option(help="A text that means null in CSV; repeatable.")
    ] = None
    delimiter: Delimiter = None


@dataclass(frozen=True, slots=True)
class Consent:
    """Whether a command may change something; see `sessions.agreed`."""

    yes: Yes = False
    dry_run: DryRun = False


@dataclass(frozen=True, slots=True)
class AsOf:
    """Which past of the store to read; see `sessions.past`."""

    at: At = None
    seq: Seq = None
    tag: Tag = None


def moment_of(text: str) -> int | str:
    """Return a moment as the store takes it: digits are a sequence number."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else text


_Uri = Annotated[
    str | None,
    typer.Option(
        "--db",
        "-d",
        help="The store: a directory, a file:// URL, or the http:// URL of a server; to read, also"
        " the URL of its mirror: s3://, gs:// or az://."
        " Default: the variable SILTSTONE_URI.",
    ),
]
_TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="SILTSTONE_TOKEN_FILE",
        help="For a server: a file (mode 0600) with the access token. Default: the variable"
        " SILTSTONE_TOKEN.",
    ),
]
_Cafile = Annotated[
    Path | None,
    typer.Option(
        "--cafile",
        envvar="SILTSTONE_CAFILE",
        help="For an https:// server: the certificates to trust, PEM.",
    ),
]
_Word = Annotated[
    str | None,
    typer.Argument(metavar="STORE", help="The store, as --db names it.", show_default=False),
]

_Path = Annotated[
    str | None,
    typer.Option(
        "--db",
        "-d",
        help="The store: a directory, or a file:// URL. Default: the variable SILTSTONE_URI.",
    ),
]
_PairWords = Annotated[
    list[str],
    typer.Argument(
        metavar="[STORE] URL",
        help="The store's directory, if --db does not name it; s3://bucket/prefix, gs:// or az://.",
        show_default=False,
    ),
]


def db_of(
    context: typer.Context, uri: _Uri = None, token_file: _TokenFile = None, cafile: _Cafile = None
) -> Db:
    """Return the store that is named before the command, after it, or by the variable."""
    return Db(_one_store(context, uri), token_file, cafile)


def worded_db_of(
    context: typer.Context,
    store: _Word = None,
    uri: _Uri = None,
    token_file: _TokenFile = None,
    cafile: _Cafile = None,
) -> Db:
    """Do as `db_of`, for a command whose word names the store.

    Raises:
        UsageError: The word and the option differ.
    """
    return Db(_one_store(context, uri, store), token_file, cafile)


def local_db_of(context: typer.Context, uri: _Path = None) -> Db:
    """Do as `db_of`, for a command that needs the files of the store."""
    return Db(_one_store(context, uri))


def new_db_of(context: typer.Context, store: _Word = None, uri: _Path = None) -> Db:
    """Do as `local_db_of`, for a command whose word may name the store.

    Raises:
        UsageError: The word and the option differ.
    """
    return Db(_one_store(context, uri, store))


def mirror_pair_of(context: typer.Context, words: _PairWords, uri: _Path = None) -> tuple[Db, str]:
    """Return the store, which a word or the option names, and the URL behind it.

    Raises:
        UsageError: There are more words, or the word and the option differ.
    """
    *named, url = words
    if len(named) > 1:
        raise UsageError(f"mirror takes a store and a URL, and not {len(words)} words")
    return new_db_of(context, named[0] if named else None, uri), url


def said_before(context: typer.Context) -> str | None:
    """Return the store of the option before the command; None: there was no such option."""
    root = context.find_root()
    source = root.get_parameter_source("db")
    return root.params["db"] if source is not None and source.name == "COMMANDLINE" else None


def _one_store(context: typer.Context, option: str | None, word: str | None = None) -> str:
    """Return the store of a command.

    Raises:
        UsageError: None is named, or another one before the command than after it.
    """
    if word is not None and option is not None and word != option:
        raise UsageError(f"the store is {word!r}, and --db is {option!r}; give it once")
    before, after = said_before(context), word or option
    if before is not None and after is not None and before != after:
        raise UsageError(
            f"--db is {before!r} before the command and {after!r} after it; give it once"
        )
    found: str | None = after or context.find_root().params["db"]
    if not found:
        raise UsageError("say which store: --db DIR, or the variable SILTSTONE_URI")
    return found


def form_of(json: Json = False, ndjson: Ndjson = False, is_csv: Csv = False) -> Form:
    """Return the form of the output.

    Raises:
        UsageError: More than one flag is set.
    """
    flags = {Form.JSON: json, Form.NDJSON: ndjson, Form.CSV: is_csv}
    given = [form for form, is_given in flags.items() if is_given]
    if len(given) > 1:
        named = " and ".join(sorted(f"--{form.value}" for form in given))
        raise UsageError(f"{named} contradict each other; give one of them")
    if given:
        return given[0]
    return Form.TABLE if sys.stdout.isatty() else Form.TSV


_MAKERS: dict[object, Callable[..., object]] = {
    Form: form_of,
    Db: db_of,
    LocalDb: local_db_of,
    WordedDb: worded_db_of,
    NewDb: new_db_of,
    MirrorPair: mirror_pair_of,
}


def add_command(app: typer.Typer, command: Callable[..., None], **settings: Any) -> None:
    """Add a command with its own options, and those that make its form and its past."""
    options: list[inspect.Parameter] = []
    parts: dict[str, tuple[Callable[..., object], list[str]]] = {}
    for given in inspect.signature(command, eval_str=True).parameters.values():
        kind, found = given.annotation, [given]
        make: Any = _MAKERS.get(kind, kind if is_dataclass(kind) else None)
        if make is not None:
            found = list(inspect.signature(make, eval_str=True).parameters.values())
            parts[given.name] = make, [option.name for option in found]
        options += [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in found]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, (make, names) in parts.items():
            values[name] = make(**{each: values.pop(each) for each in names})
        command(**values)

    run.__signature__ = inspect.Signature(options)  # pyright: ignore[reportAttributeAccessIssue]
    app.command(**settings)(run)
