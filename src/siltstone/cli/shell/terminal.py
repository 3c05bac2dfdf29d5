"""Terminal: reads commands from a person, with prompt_toolkit: history, completion, several lines.

Enter ends the text if its last command is whole, else it begins the next line. Ctrl-C drops the
text, or stops the statement that runs; Ctrl-D ends the shell.
"""

from __future__ import annotations

import os
from pathlib import PurePath

from prompt_toolkit import PromptSession
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output

from siltstone.cli.sessions import note
from siltstone.cli.shell.completion import StoreCompleter
from siltstone.cli.shell.history import history_of
from siltstone.cli.shell.interpreter import Interpreter, StoppedError
from siltstone.cli.shell.stopping import Interrupted
from siltstone.local.statements.script import is_whole

_NAME_LENGTH_MAX = 20
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
    session = interpreter.session
    completer = StoreCompleter(session)
    prompts = PromptSession[str](
        history=history_of(os.environ),
        completer=completer,
        complete_while_typing=False,
        multiline=True,
        key_bindings=_keys,
        prompt_continuation=lambda width, *_: "...> ".rjust(width),
        enable_suspend=True,
        output=create_output(always_prefer_tty=True),  # stdout may be a file
    )
    name = _name_of(uri)
    note(f"{uri}: .help lists the commands, Ctrl-D ends")
    while True:
        completer.forget()
        try:
            text = prompts.prompt(f"{name}{_state(interpreter)}> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
        try:
            interpreter.run([text, "\n"])
        except StoppedError:
            pass
        except (Interrupted, KeyboardInterrupt) as error:  # the latter while rows are shown
            note("interrupted")
            interpreter.tell_left(error)
        except EOFError:  # .quit
            break
    if session.is_in_transaction:
        note("the transaction was rolled back")


def _state(interpreter: Interpreter) -> str:
    session = interpreter.session
    if session.is_in_transaction:
        return " [transaction]"
    if moment := session.moment():
        return f" [{moment}]"
    return " [read-only]" if session.read_only else ""


def _name_of(uri: str) -> str:
    name = PurePath(uri).name or uri
    return name if len(name) <= _NAME_LENGTH_MAX else f"{name[: _NAME_LENGTH_MAX - 1]}…"
