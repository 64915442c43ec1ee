"""The tags that people give to a run, in its `tags.json`."""

from collections.abc import Sequence
from pathlib import Path

from agentrl.errors import ConfigError
from agentrl.files import write_json
from agentrl.runs.run_files import load_json
from agentrl.text import printable, quoted

TAGS_FILE = "tags.json"
_LONGEST = 40
"""Characters of a tag."""
_MOST = 20


def read_tags(run: Path) -> list[str]:
    """The tags of a run; without what is damaged."""
    try:
        found = load_json(run / TAGS_FILE)
    except (OSError, ValueError):
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
        write_json(run / TAGS_FILE, chosen)
    except OSError as error:
        raise ConfigError(f"{run / TAGS_FILE}: cannot be written: {error.strerror}") from error
