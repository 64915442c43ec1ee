"""The table of commands."""

from collections.abc import Callable
from typing import TypeVar

from agentrl.virtual_phone.shell.command_context import Run

COMMANDS: dict[str, Run] = {}


_Command = TypeVar("_Command", bound=Run)


def command(*names: str) -> Callable[[_Command], _Command]:
    """Put a function into the table under one or several names."""

    def register(run: _Command) -> _Command:
        for name in names:
            assert name not in COMMANDS, name
            COMMANDS[name] = run
        return run

    return register
