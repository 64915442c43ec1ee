"""The tags that people give to a run, in its `tags.json`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError
from agentrl.files import open_regular, write_durably
from agentrl.text import printable, quoted

TAGS_FILE = "tags.json"
_LONGEST = 40
"""Characters of a tag."""
_MOST = 20
_LARGEST = 64 << 10
"""Bytes of the file that are read."""


def read_tags(run: Path) -> list[str]:
    """The tags of a run; without what is damaged."""
    try:
        with open(run / TAGS_FILE, "rb", opener=open_regular) as file:
            found: Any = json.loads(file.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return []
    tags = found if isinstance(found, list) else []
    return [printable(tag[:_LONGEST]) for tag in tags[:_MOST] if isinstance(tag, str) and tag]


def write_tags(run: Path, tags: Sequence[str]) -> None:
    """Replace the tags of a run.

    Raises:
        ConfigError: there are too many, one is not a short printable text, or the run is not
            writable.
    """
    chosen = list(dict.fromkeys(tag.strip() for tag in tags))
    if len(chosen) > _MOST:
        raise ConfigError(f"a run may have {_MOST} tags, not {len(chosen)}")
    for tag in chosen:
        if not tag or len(tag) > _LONGEST or not tag.isprintable():
            raise ConfigError(f"tag {quoted(tag)}: must have 1 to {_LONGEST} printable characters")
    try:
        write_durably(run / TAGS_FILE, json.dumps(chosen) + "\n")
    except OSError as error:
        raise ConfigError(f"{run / TAGS_FILE}: cannot be written: {error.strerror}") from error
