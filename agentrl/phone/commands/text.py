"""Commands that pass text on: echo, printf, grep, head, tail, wc, cut."""

import re

from agentrl.phone.commands.table import command
from agentrl.phone.shell import Call


@command("echo")
def echo(call: Call) -> int:
    """`echo [-n] words`."""
    newline = call.arguments[:1] != ["-n"]
    text = " ".join(call.arguments if newline else call.arguments[1:])
    call.out((text + "\n" * newline).encode("utf-8", "surrogateescape"))
    return 0


@command("printf")
def printf(call: Call) -> int:
    r"""`printf format [word]`: `%s` and `\n` only."""
    form, *words = call.arguments or [""]
    text = form.replace("\\n", "\n")
    for word in words:
        text = text.replace("%s", word, 1)
    call.out(text.encode("utf-8", "surrogateescape"))
    return 0


async def _lines(call: Call, files: list[str]) -> list[str]:
    """The lines of files, or of standard input where none is named."""
    if files:
        content = b"".join(call.phone.files.read(file) for file in files)
    else:
        content = await call.read_all()
    return content.decode("utf-8", "surrogateescape").splitlines()


@command("grep")
async def grep(call: Call) -> int:
    """`grep [-i] [-v] [-c] [-q] [-F] [-E] pattern [files]`."""
    options = {letter for a in call.arguments if _is_option(a) for letter in a[1:]}
    words = [a for a in call.arguments if not _is_option(a)]
    if not words:
        return call.fail("grep: no pattern", 2)
    pattern = re.escape(words[0]) if "F" in options else words[0]
    try:
        wanted = re.compile(pattern, re.IGNORECASE if "i" in options else 0)
        lines = await _lines(call, words[1:])
    except (re.error, OSError) as error:
        return call.fail(f"grep: {error}", 2)
    found = [line for line in lines if (wanted.search(line) is None) == ("v" in options)]
    if "c" in options:
        call.say(str(len(found)))
    elif "q" not in options:
        for line in found:
            call.say(line)
    return 0 if found else 1


@command("head", "tail")
async def head(call: Call) -> int:
    """`head|tail [-n count | -count] [file]`."""
    count, files, arguments = 10, [], list(call.arguments)
    while arguments:
        argument = arguments.pop(0)
        if argument == "-n" and arguments:
            argument = "-" + arguments.pop(0)
        if re.fullmatch(r"-n?\d+", argument):
            count = int(argument.lstrip("-n"))
        else:
            files.append(argument)
    try:
        lines = await _lines(call, files)
    except OSError as error:
        return call.fail(f"{call.name}: {error.filename}: {error.strerror}")
    for line in lines[:count] if call.name == "head" else lines[len(lines) - count :]:
        call.say(line)
    return 0


@command("wc")
async def wc(call: Call) -> int:
    """`wc -l` and `wc -c` of standard input."""
    content = await call.read_all()
    return call.say(str(len(content) if "-c" in call.arguments else content.count(b"\n")))


@command("cut")
async def cut(call: Call) -> int:
    """`cut -d X -f N` of standard input."""
    options = re.findall(r"-([df]) ?(\S+)", " ".join(call.arguments))
    values = dict(options)
    separator, index = values.get("d", "\t").strip("'\""), int(values.get("f", "1")) - 1
    for line in await _lines(call, []):
        fields = line.split(separator)
        call.say(fields[index] if index < len(fields) else "")
    return 0


def _is_option(argument: str) -> bool:
    return len(argument) > 1 and argument.startswith("-")
