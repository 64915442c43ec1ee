"""Parse the options and arguments of a command."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from virtual_phone.shell.interpreter import CommandContext, UsageError


def split_options(
    ctx: CommandContext,
    short: str,
    long: Mapping[str, str] = MappingProxyType({}),
    *,
    joined: str = "",
    is_mixed: bool = True,
) -> tuple[dict[str, str], list[str]]:
    """Split the arguments into options and operands, as C's `getopt` does.

    Args:
        ctx: the command.
        short: option letters; a colon follows each letter that takes a value.
        long: maps long options to the letters they stand for; `=` ends an option with a value.
        joined: letters of options whose repeated values are joined by newlines. For all other
            options the last value wins.
        is_mixed: whether options may follow operands.

    Returns:
        Option values by letter ('' for options without a value) and the operands.

    Raises:
        UsageError: an option is unknown or lacks its value.
    """
    options: dict[str, str] = {}
    words: list[str] = []
    # Python's getopt is too slow: it takes longer than most commands.
    left = iter(ctx.arguments)

    def put(letter: str, value: str | None, name: str) -> None:
        if value is None:
            raise UsageError(f'Missing argument to -{name} (see "{ctx.name} --help")')
        is_next = letter in joined and letter in options
        options[letter] = f"{options[letter]}\n{value}" if is_next else value

    for argument in left:
        if argument == "--":
            break
        if argument[:1] != "-" or argument == "-":
            words.append(argument)
            if is_mixed:
                continue
            break
        if argument[1] == "-":
            name, equals, value = argument[2:].partition("=")
            letter = long.get(f"{name}=") if equals or name not in long else None
            if letter is not None:
                put(letter, value if equals else next(left, None), f"-{name}")
            elif name in long and not equals:
                options[long[name]] = ""
            else:
                raise UsageError(f"Unknown option '{name}' (see \"{ctx.name} --help\")")
            continue
        for at, letter in enumerate(argument[1:], 2):
            if letter == ":" or letter not in short:
                raise UsageError(f"Unknown option '{letter}' (see \"{ctx.name} --help\")")
            if f"{letter}:" in short:
                put(letter, argument[at:] or next(left, None), letter)
                break
            options[letter] = ""
    return options, [*words, *left]


def without_user(arguments: Sequence[str]) -> list[str]:
    """Drop `--user N` from the arguments: the phone has a single user."""
    words = list(arguments)
    if "--user" in words[:-1]:
        at = words.index("--user")
        del words[at : at + 2]
    return words


def number_of(text: str | None) -> int | None:
    """Parse a count sent by a client; None if it is not a number."""
    return int(text) if text and re.fullmatch(r"\d{1,9}", text, re.ASCII) else None
