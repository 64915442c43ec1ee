"""Find modules that a user's file got from another folder than its own."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from agentrl.errors import INSTALLED, ConfigError


def check_imports(file: Path) -> None:
    """Check that a file, which has been imported, got the modules beside it.

    Python knows a module by its name alone: with a `utils.py` in each of two folders, the file that
    is imported second would use the first one's functions.

    Raises:
        ConfigError: it imports a module of which there is a file beside it, and Python has loaded
            another file of the user's by that name.
    """
    files, seen = [file], {file}
    while files:
        for name in _imported_names(files.pop()):
            beside = next((path for path in _places(file.parent, name) if path.is_file()), None)
            loaded = getattr(sys.modules.get(name), "__file__", None)
            if beside is None or loaded is None or loaded.startswith(INSTALLED):
                continue
            other = Path(loaded).resolve()
            if other != beside and other.read_bytes() != beside.read_bytes():  # nodes have copies
                raise ConfigError(
                    f"{file} imports {name!r}, and Python has already imported {other} under that "
                    f"name, not {beside}; give one of the two files another name"
                )
            if beside not in seen:
                seen.add(beside)
                files.append(beside)


def _places(folder: Path, name: str) -> tuple[Path, ...]:
    return folder / name / "__init__.py", folder / f"{name}.py"


def _imported_names(file: Path) -> Iterator[str]:
    """The top-level names of all absolute imports in a file."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # not Python, such as a library in C
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]
