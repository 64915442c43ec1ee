"""echo and printf."""

import re

from virtual_phone.commands.command_table import command
from virtual_phone.shell.interpreter import CommandContext
from virtual_phone.shell.lexer import C_ESCAPES

_ESCAPE = re.compile(r"\\(0[0-7]{0,3}|[1-7][0-7]{0,2}|x[0-9a-fA-F]{1,2}|[\s\S])")
_DIRECTIVE = re.compile(r"%(?:%|([-+ #0]*+)(\*|\d*+)(?:\.(\*|\d*+))?([diouxXeEfFgGcsbq]))")
_MAX_WIDTH = 1 << 16


def _unescaped(text: str, *, c_octal: bool = False) -> str:
    r"""Interpret escapes such as `\n`, `\0101` and `\x41`; `\c` ends the text."""
    text = text.partition("\\c")[0] if not c_octal else text

    def meaning(found: re.Match[str]) -> str:
        escaped = found[1]
        if escaped[0] == "x" and len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        if escaped[0] == "0" or (c_octal and escaped[0] in "1234567"):
            return chr(int(escaped, 8) & 0xFF)
        return C_ESCAPES.get(escaped, found[0])

    return _ESCAPE.sub(meaning, text)


def _write(ctx: CommandContext, text: str) -> int:
    ctx.out(text.encode("utf-8", "surrogateescape"))
    return 0


@command("echo")
def echo(ctx: CommandContext) -> int:
    """`echo [-neE] words`; like mksh, it interprets escapes unless `-E` is given."""
    words, newline, escapes = list(ctx.arguments), True, True
    while words and re.fullmatch(r"-[neE]+", words[0]):
        for option in words.pop(0)[1:]:
            newline, escapes = (
                newline and option != "n",
                escapes if option == "n" else option == "e",
            )
    text = " ".join(words)
    if escapes and "\\" in text:
        newline = newline and "\\c" not in text
        text = _unescaped(text)
    return _write(ctx, text + "\n" * newline)


@command("printf")
def printf(ctx: CommandContext) -> int:
    r"""`printf format [words]`: `%5.2f`, `%-8s`, `%b`, `\n`; repeated until all words are used."""
    words = list(ctx.arguments)
    words = words[1:] if words[:1] == ["--"] else words
    if not words:
        return ctx.fail("printf: usage: printf format [arguments]")
    form = _unescaped(words.pop(0), c_octal=True)
    written: list[str] = []
    bad: list[str] = []
    takes = any(found[4] for found in _DIRECTIVE.finditer(form))

    def number(text: str) -> int:
        if text[:1] in ("'", '"'):
            return ord(text[1:2] or "\0")
        try:
            return int(text, 0 if text[:2].lower() == "0x" else 8 if text[:1] == "0" else 10)
        except ValueError:
            bad.append(text)
            return 0

    def replaced(found: re.Match[str]) -> str:
        flags, width, precision, kind = found.groups()
        if kind is None:
            return "%"
        sizes = ["" if s is None else str(number(words.pop(0)) if words else 0) if s == "*" else s
                 for s in (width, precision)]  # fmt: skip
        if any(abs(int(size or 0)) > _MAX_WIDTH for size in sizes):
            raise OSError(75, "Value too large for defined data type")
        dot = "" if precision is None else f".{sizes[1]}"
        word = words.pop(0) if words else ""
        value: str | int | float = _unescaped(word) if kind == "b" else word
        if kind == "c":
            value = word[:1]
        if kind in "diouxX":
            value = number(word or "0")
            value &= 0xFFFFFFFFFFFFFFFF if value < 0 and kind in "ouxX" else -1
        elif kind in "eEfFgG":
            try:
                value = float(word or "0")
            except ValueError:
                bad.append(word)
                value = 0.0
        return f"%{flags}{sizes[0]}{dot}{'s' if kind in 'bcq' else kind}" % value

    # POSIX: the format is reused until all words are consumed.
    while not written or (words and takes):
        written.append(_DIRECTIVE.sub(replaced, form))
    _write(ctx, "".join(written))
    return ctx.fail(f"printf: bad number '{bad[0][:100]}'") if bad else 0
