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
    options: dict[str, str] = {}
    words: list[str] = []
    # Not Python's getopt, which takes longer than most commands do.
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
    """The arguments without `--user N`: the phone has one user."""
    words = list(arguments)
    if "--user" in words[:-1]:
        at = words.index("--user")
        del words[at : at + 2]
    return words


def number_of(text: str | None) -> int | None:
    """A count that a client has sent; None if it is not a number."""
    return int(text) if text and re.fullmatch(r"\d{1,9}", text, re.ASCII) else None
