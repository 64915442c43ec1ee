"""The shell's patterns with `*`, `?` and `[...]`: for texts, and for file names."""

import re
from functools import lru_cache

from virtual_phone.system.file_system import FileSystem, normalize_path

_TOKEN = re.compile(r"\\(.?)|\[(!?)(\]?(?:\[:\w{1,9}:\]|[^]]){0,99})\]|(\*+)|(.)", re.DOTALL)
"""An escaped character, a bracket expression, stars, or another character.

Bracket expressions are limited: finding the end of each of many would take quadratic time.
"""
_CLASS = re.compile(r"\\?\[:(\w+):\\?\]")
CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "space": r"\s",
    "upper": "A-Z",
    "lower": "a-z",
    "punct": re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    "xdigit": "0-9a-fA-F",
    "blank": r" \t",
    "print": r"\x20-\x7e",
    "cntrl": r"\x00-\x1f\x7f",
}
"""Named character classes, as parts of a Python bracket expression."""


@lru_cache(maxsize=256)
def compile_glob(pattern: str, anchors: str = "^$", greedy: bool = True) -> re.Pattern[str]:
    """Compile a shell pattern."""

    def translated(found: re.Match[str]) -> str:
        escaped, negation, bracket, stars, plain = found.groups()
        if bracket is not None:
            inner = re.sub(r"([\[\]\\^&~|])", r"\\\1", re.sub(r"\\(.)", r"\1", bracket))
            inner = _CLASS.sub(lambda name: CLASSES.get(name[1], ""), inner)
            return f"[{'^' if negation else ''}{inner}]"
        if stars:  # several would only add backtracking
            return ".*" if greedy else ".*?"
        return "." if plain == "?" else re.escape(escaped or plain or "")

    body = _TOKEN.sub(translated, pattern)
    start, end = r"\A" if "^" in anchors else "", r"\Z" if "$" in anchors else ""
    try:
        return re.compile(f"{start}{body}{end}", re.DOTALL)
    except re.error:  # such as a reversed range: the pattern matches nothing
        return re.compile("(?!)")


def trim(value: str, operator: str, pattern: str) -> str:
    """Trim as `${x#pattern}` and `##` do at the start, `%` and `%%` at the end."""
    longest = len(operator) == 2
    if operator[0] == "#":
        found = compile_glob(pattern, "^", longest).search(value)
        return value[found.end() :] if found else value
    glob = compile_glob(pattern, "$").pattern
    # A greedy head leaves the shortest suffix.
    found = re.match(f"(.*{'?' if longest else ''})(?:{glob})", value, re.DOTALL)
    return found[1] if found else value


def matching_paths(pattern: str, files: FileSystem, folder: str) -> list[str]:
    """Return the existing paths that match, resolving component by component."""
    matches = ["/"] if pattern.startswith("/") else [""]
    for part in pattern.split("/"):
        if part:
            component = compile_glob(part)
            listings = [(f, _names(files, normalize_path(f or ".", folder))) for f in matches]
            matches = [
                f"{path}{'/' if path.strip('/') else ''}{name}"
                for path, names in listings
                for name in names
                if component.match(name) and (part[0] == "." or name[0] != ".")
            ]
    return sorted(matches)


def _names(files: FileSystem, folder: str) -> list[str]:
    try:
        return files.names(folder)
    except OSError:
        return []
