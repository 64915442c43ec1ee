"""The table of commands, and the parser of their options."""

import getopt
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from virtual_phone.shell.interpreter import CommandContext, CommandFunction, UsageError

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
    ctx: CommandContext,
    short: str,
    long: Mapping[str, str] = MappingProxyType({}),
    *,
    joined: str = "",
    is_mixed: bool = True,
) -> tuple[dict[str, str], list[str]]:
    """Split the arguments into options and other words, as C's `getopt` does.

    Args:
        ctx: the command.
        short: letters of the options; a colon follows those with a value.
        long: the long options, `=` after those with a value, and the short ones that they stand
            for.
        joined: letters of options that may be repeated; newlines separate their values. Of the
            others the last one counts.
        is_mixed: whether options may follow other words.

    Returns:
        Values of the options by letter, empty for those without one; the words.

    Raises:
        UsageError: an option is unknown, or lacks its value.
    """
    parse = getopt.gnu_getopt if is_mixed else getopt.getopt
    try:
        given, words = parse(ctx.arguments, short, list(long))
    except getopt.GetoptError as error:
        lacks_value = "requires" in error.msg
        wrong = (
            f"Missing argument to -{error.opt}" if lacks_value else f"Unknown option '{error.opt}'"
        )
        raise UsageError(f'{wrong} (see "{ctx.name} --help")') from None
    options: dict[str, str] = {}
    for name, value in given:
        key = name[2:]
        key = long.get(key, long.get(f"{key}=", "")) if name.startswith("--") else name[1]
        options[key] = f"{options[key]}\n{value}" if key in joined and key in options else value
    return options, words


def without_user(arguments: Sequence[str]) -> list[str]:
    """The arguments without `--user N`: the phone has one user."""
    words = list(arguments)
    if "--user" in words[:-1]:
        at = words.index("--user")
        del words[at : at + 2]
    return words


def number_of(text: str | None) -> int | None:
    """A count that a client has sent; None if it is not a number."""
    return int(text) if text and re.fullmatch(r"\d{1,9}", text, re.ASCII) else None
