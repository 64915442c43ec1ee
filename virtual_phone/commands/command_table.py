"""Table of commands, filled by `@command`."""

from collections.abc import Callable
from typing import TypeVar

from virtual_phone.shell.command_context import CommandFunction

COMMANDS: dict[str, CommandFunction] = {}
_Command = TypeVar("_Command", bound=CommandFunction)


def command(*names: str) -> Callable[[_Command], _Command]:
    """Register a function under one or more names."""

    def register(run: _Command) -> _Command:
        for name in names:
            assert name not in COMMANDS, name
            COMMANDS[name] = run
        return run

    return register
