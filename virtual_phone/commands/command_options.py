"""Parse the options and arguments of a command."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from virtual_phone.shell.command_context import CommandContext, UsageError


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
    for argument in left:
        if argument == "--":
            break
        if argument[:1] != "-" or argument == "-":
            words.append(argument)
            if is_mixed:
                continue
            break
        if argument[1] == "-":
            given = _long(ctx, argument, long, left)
        else:
            given = _letters(ctx, argument, short, left)
        for letter, value in given:
            is_next = letter in joined and letter in options
            options[letter] = f"{options[letter]}\n{value}" if is_next else value
    return options, [*words, *left]


def _long(
    ctx: CommandContext, argument: str, known: Mapping[str, str], left: Iterator[str]
) -> Iterator[tuple[str, str]]:
    """Yield the letter and value of `--name`, `--name=value` or `--name value`."""
    name, equals, value = argument[2:].partition("=")
    if not equals and name in known:
        yield known[name], ""
    elif f"{name}=" in known:
        yield known[f"{name}="], value if equals else _value(ctx, f"-{name}", left)
    else:
        raise UsageError(f"Unknown option '{name}' (see \"{ctx.name} --help\")")


def _letters(
    ctx: CommandContext, argument: str, known: str, left: Iterator[str]
) -> Iterator[tuple[str, str]]:
    """Yield the letters and values of an argument such as `-rn5`."""
    for at, letter in enumerate(argument[1:], 2):
        if letter == ":" or letter not in known:
            raise UsageError(f"Unknown option '{letter}' (see \"{ctx.name} --help\")")
        if f"{letter}:" in known:
            yield letter, argument[at:] or _value(ctx, letter, left)
            return
        yield letter, ""


def _value(ctx: CommandContext, name: str, left: Iterator[str]) -> str:
    value = next(left, None)
    if value is None:
        raise UsageError(f'Missing argument to -{name} (see "{ctx.name} --help")')
    return value


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
