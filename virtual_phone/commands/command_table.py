"""The table of commands, and what several of them share."""

from collections.abc import Callable
from typing import TypeVar

from virtual_phone.shell.interpreter import (
    CommandContext,
    CommandFunction,
)

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


def split_options(
    ctx: CommandContext, with_value: str, joined: str = ""
) -> tuple[dict[str, str], list[str]]:
    """Split the arguments into options by letter and other words.

    The options of `with_value` take a value from the same word or the next. Of several the last one
    counts, but the values of those in `joined` are joined by newlines.
    """
    options: dict[str, str] = {}
    words: list[str] = []
    arguments = iter(ctx.arguments)
    for argument in arguments:
        if argument == "--":
            return options, [*words, *arguments]
        if len(argument) < 2 or argument[0] != "-":
            words.append(argument)
            continue
        for at, letter in enumerate(argument[1:], 2):
            if letter in with_value:
                value = argument[at:] or next(arguments, "")
                is_next = letter in joined and letter in options
                options[letter] = f"{options[letter]}\n{value}" if is_next else value
                break
            options[letter] = ""
    return options, words
