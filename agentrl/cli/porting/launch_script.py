"""Find the command that starts a trainer in a shell script.

Scripts are parsed, never run: variables, arrays and continued lines are resolved, but `if`, `case`
and loops are not.
"""

import itertools
import os
import re
import shlex
from collections.abc import Iterator, Mapping

_TOKEN = re.compile(
    r"(?P<kept>\\.|'[^']*'|\"(?:\\.|[^\"\\])*\")|(?P<comment>(?:^|(?<=[\s;]))\#[^\n]*)",
    re.DOTALL | re.MULTILINE,
)
"""A comment, or a quoted string, in which `#` does not start a comment."""
_FILE_BODY = re.compile(
    r"^.*\b(?:cat|tee)\b.*<<-?[ \t]*(['\"]?)(\w+)\1.*\n(?:.*\n)*?[ \t]*\2[ \t]*$", re.MULTILINE
)
"""A here-document that the script writes to a file; any other may contain commands to run."""
_SUBSTITUTION = re.compile(r"`[^`\n]*`|\$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
"""A command or arithmetic substitution, which the shell would replace."""
_HIDDEN = {ord(sign): 0xE000 + ord(sign) for sign in " \t\n'\"\\#;&|()<>"}
"""Characters that must not split a substitution into words, mapped to stand-ins for the parser."""
_SHOWN = {hidden: sign for sign, hidden in _HIDDEN.items()}
_CONTINUED = re.compile(r"\\[ \t]*\n(?=.)|\n(?=[ \t]*--)")
"""Line breaks within a command, even one before an option if a comment ate the backslash."""
_ARRAY = re.compile(r"\s*(\w+)(\+?)=\((.*)", re.DOTALL)
_ASSIGNED = r"(\w+)(\+?)=(\"[^\"]*\"|'[^']*'|[^\s;]*)(?=[\s;]|$)"
_ASSIGNMENTS = re.compile(
    rf"\s*(?:(?:export|readonly|local|declare)\s+(?:-\w+\s+)*)?(?:{_ASSIGNED}[\s;]*)+"
)
_ASSIGNED_SOMEHOW = re.compile(r"(?:&&|\|\||[;{(])\s*(\w+)\+?=|\bread\s+(?:-\w+\s+)*(\w+)")
"""A conditional assignment, as in `[ -f x ] && N=2`."""
_VARIABLE = re.compile(r"\$\{(\w+)(?::-((?:[^{}]|\{[^}]*\})*))?\}|\$(\w+)")
_BLOCK, _BLOCK_END = (
    re.compile(r"\s*(if|case|for|while|until)\b"),
    re.compile(r"(?:^|;|;;)\s*(fi|esac|done)\b"),
)
_BETWEEN = re.compile(r"[|;&()]+")
"""Operators that separate two commands."""
_REDIRECTION = re.compile(r"\d?(>>?|<)(.*)", re.DOTALL)


def launch_command(text: str, launch: re.Pattern[str]) -> list[str]:
    """Return the words of the longest command that starts the trainer, or an empty list."""
    # The order matters: files that the script writes may contain anything, a `#` in quotes does
    # not start a comment, and a comment may end in a backslash.
    text = _SUBSTITUTION.sub(lambda match: match[0].translate(_HIDDEN), _FILE_BODY.sub("", text))
    text = _TOKEN.sub(lambda match: match["kept"] or "", text)
    text = _without_blocks(_CONTINUED.sub(" ", text))
    variables: dict[str, str] = {}
    arrays: dict[str, list[str]] = {}
    found: list[str] = []
    for line in _statements(text):
        if (array := _ARRAY.match(line)) is not None:
            name, added, inside = array.groups()
            commands = _commands(_expanded(inside.rstrip()[:-1], variables), arrays)
            arrays[name] = [*(arrays.get(name, []) if added else []), *itertools.chain(*commands)]
        elif _ASSIGNMENTS.fullmatch(line.rstrip()) is not None:
            for name, added, value in re.findall(_ASSIGNED, line):
                before = variables.get(name, f"${name}") if added else ""
                variables[name] = before + _expanded(_unquoted(value), variables)
        else:
            for command in _commands(_expanded(line, variables), arrays):
                words = _from_launch(command, launch)
                found = words if len(words) > len(found) else found
            # A value that depends on an unevaluated condition is unknown from here on.
            for name in filter(None, itertools.chain(*_ASSIGNED_SOMEHOW.findall(line))):
                variables.pop(name, None)
    return [word.translate(_SHOWN) for word in found]


def _unquoted(value: str) -> str:
    is_quoted = value[:1] in ("'", '"') and value.find(value[0], 1) == len(value) - 1
    return value[1:-1] if is_quoted else re.sub("[\"']", "", value)


def _from_launch(words: list[str], launch: re.Pattern[str]) -> list[str]:
    """Return a command's words from the one that starts the trainer, or an empty list."""
    for index, word in enumerate(words):
        if (match := launch.search(word)) is None:
            continue
        # If the whole command is one argument, as in `bash -c "..."`, split it.
        if " " in word:
            return _commands(word[match.start() :], {})[0]
        # The options of torchrun come before the module, so leave them out.
        return words if word.endswith(".py") else words[index:]
    return []


def _statements(text: str) -> Iterator[str]:
    """Return the script's lines, with multi-line arrays joined."""
    array = ""
    for line in text.split("\n"):
        if array or _ARRAY.match(line):
            array += f"{line}\n"
            if line.rstrip().endswith(")"):
                yield array
                array = ""
        else:
            yield line


def _without_blocks(text: str) -> str:
    """Remove `if`, `case` and loops, since their conditions are not evaluated."""
    depth, kept = 0, []
    for line in text.split("\n"):
        opens, closes = bool(_BLOCK.match(line)), bool(_BLOCK_END.search(line))
        depth += opens
        if depth == 0:
            kept.append(line)
        depth -= closes and depth > 0
    return "\n".join(kept)


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        default = _expanded(match[2], variables) if match[2] else ""
        # Expand only HOME from the environment, since the job may have set other variables.
        return (
            variables.get(name)
            or default
            or (os.environ.get(name, match[0]) if name == "HOME" else match[0])
        )

    return _VARIABLE.sub(value, text)


def _commands(text: str, arrays: Mapping[str, list[str]]) -> list[list[str]]:
    """Return the words of each command in a line; at least one command."""
    text = re.sub(r"\d?>&\d?|&>", " >", text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split, lexer.commenters = True, ""
    commands: list[list[str]] = [[]]
    is_file = False
    try:
        for word in lexer:
            if _BETWEEN.fullmatch(word):
                commands.append([])
            elif (found := _REDIRECTION.fullmatch(word)) is None and not is_file:
                name = re.fullmatch(r"\$\{(\w+)\[@\]\}", word)
                commands[-1] += [word] if name is None else arrays.get(name[1], [])
            is_file = found is not None and not found[2]
    except ValueError:
        # A quote is not closed on this line, so it is not a command we are looking for.
        return [[]]
    return commands
