"""Terminal: reads commands from a person, with prompt_toolkit: history, completion, several lines.

Enter ends the text if its last command is whole, else it begins the next line. Ctrl-C drops the
text, or stops the statement that runs; Ctrl-D ends the shell.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import PurePath

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.output.plain_text import PlainTextOutput
from prompt_toolkit.utils import is_dumb_terminal

from siltstone.cli.sessions import note
from siltstone.cli.shell.completion import StoreCompleter
from siltstone.cli.shell.history import history_of
from siltstone.cli.shell.interpreter import Interpreter, ScriptError
from siltstone.cli.shell.stopping import Interrupted
from siltstone.local.statements.script import is_whole

_WORD_LENGTH_MAX = 20
"""The longest name and moment in a prompt."""
_keys = KeyBindings()


@_keys.add("enter")
def _enter(event: KeyPressEvent) -> None:
    """End the text, or begin its next line."""
    buffer = event.current_buffer
    if is_whole(buffer.text + "\n"):
        buffer.validate_and_handle()
    else:
        buffer.newline(copy_margin=False)


def converse(interpreter: Interpreter, uri: str) -> None:
    """Read commands and do them, until Ctrl-D or `.quit`."""
    note(f"{uri}: .help lists the commands, Ctrl-D ends")
    name = _cut(PurePath(uri).name or uri)
    completer = StoreCompleter(interpreter.session)
    with create_app_session(output=_output()):
        prompts = PromptSession[str](
            history=history_of(os.environ),
            completer=completer,
            complete_while_typing=False,
            multiline=True,
            key_bindings=_keys,
            prompt_continuation=lambda width, *_: "...> ".rjust(width),
            enable_suspend=True,
        )
        with suppress(EOFError):
            while True:
                completer.forget()
                with suppress(KeyboardInterrupt):  # it drops the text
                    text = prompts.prompt(f"{name}{_state(interpreter)}> ")
                    _do(interpreter, text)
    if interpreter.session.is_in_transaction:
        note("the transaction was rolled back")


def _do(interpreter: Interpreter, text: str) -> None:
    try:
        interpreter.run([text, "\n"])
    except ScriptError:
        pass
    except (Interrupted, KeyboardInterrupt) as error:  # the latter while rows are shown
        note("interrupted")
        interpreter.tell_left(error)


def _output() -> Output:
    """Return where the prompts go: stdout may be a file."""
    if is_dumb_terminal():
        return PlainTextOutput(sys.stdout if sys.stdout.isatty() else sys.stderr)
    return create_output(always_prefer_tty=True)


def _state(interpreter: Interpreter) -> str:
    session = interpreter.session
    if session.is_in_transaction:
        return " [transaction]"
    if moment := session.moment():
        return f" [{_cut(moment)}]"
    return " [read-only]" if session.read_only else ""


def _cut(word: str) -> str:
    return word if len(word) <= _WORD_LENGTH_MAX else f"{word[: _WORD_LENGTH_MAX - 1]}…"
