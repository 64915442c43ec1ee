"""The files of the user's code that a job names, to notice that one was edited during a run."""

import hashlib
from collections.abc import Iterator
from typing import Any

from agentrl import registry
from agentrl.config import Config


def user_files(config: Config) -> dict[str, str]:
    """The digest of each file that a setting names (`module:name`, `path/file.py:name`), by path.

    Args:
        config: of a job that has been checked, so that its modules are imported.
    """
    found = {registry.file_of(text) for text in _texts(config.to_dict())}
    files = sorted(file for file in found if file is not None)
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
