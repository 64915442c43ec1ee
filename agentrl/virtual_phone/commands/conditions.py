"""Commands for conditions and input: test, read."""

from collections.abc import Callable

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.commands.text_commands import split_options
from agentrl.virtual_phone.shell.command_context import CommandContext

_LONGEST_LINE = 1 << 20
_BINARY: dict[str, Callable[[str, str], bool]] = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "-eq": lambda a, b: int(a) == int(b),
    "-ne": lambda a, b: int(a) != int(b),
    "-lt": lambda a, b: int(a) < int(b),
    "-le": lambda a, b: int(a) <= int(b),
    "-gt": lambda a, b: int(a) > int(b),
    "-ge": lambda a, b: int(a) >= int(b),
}


@command("test", "[")
def test(call: CommandContext) -> int:
    """`test -f x`, `[ a = b ]`: 0 for true, 1 for false, 2 for an invalid test."""
    words = list(call.arguments)
    if call.name == "[" and (not words or words.pop() != "]"):
        return call.fail("sh: [: missing ]", 2)
    negated = words[:1] == ["!"]
    words = words[negated:]
    try:
        return int(_holds(call, words) == negated)
    except (KeyError, ValueError):
        return call.fail(f"sh: {call.name}: {' '.join(words)}: unexpected operator/operand", 2)


def _holds(call: CommandContext, words: list[str]) -> bool:
    if len(words) == 3:
        return bool(_BINARY[words[1]](words[0], words[2]))
    if len(words) < 2:
        return bool(words and words[0])
    operator, operand = words
    if operator in ("-z", "-n"):
        return bool(operand) == (operator == "-n")
    node = call.phone.files.find(call.path(operand))
    known = {
        "-e": node is not None,
        "-f": node is not None and not node.is_folder,
        "-d": node is not None and node.is_folder,
        "-s": node is not None and bool(node.content),
        "-r": node is not None,
        "-w": node is not None,
        "-x": node is not None and bool(node.mode & 0o111),
    }
    return known[operator]


@command("read")
async def read(call: CommandContext) -> int:
    """`read [-r] names`: split a line into variables, the rest into the last; 1 at the end."""
    _, names = split_options(call, "tnud")
    line = b""
    while b"\n" not in line and len(line) < _LONGEST_LINE and (chunk := await call.io.read()):
        line += chunk
    text, newline, _ = line.decode("utf-8", "surrogateescape").partition("\n")
    names = names or ["REPLY"]
    words = text.split(None, len(names) - 1)
    for name, word in zip(names, [*words, *[""] * len(names)], strict=False):
        call.environment[name] = word.rstrip()
    return 0 if newline else 1
