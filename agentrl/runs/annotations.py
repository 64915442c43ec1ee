"""Tags of a run, and stars and notes of its episodes, as people leave them."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError
from agentrl.files import write_json
from agentrl.runs.episode_summary import Summary
from agentrl.runs.jsonl import append_durably
from agentrl.runs.run_files import load_json
from agentrl.runs.run_layout import notes_file
from agentrl.text import printable, quoted

TAGS_FILE = "tags.json"
MAX_NOTE = 2000
"""Characters of a note."""
_LONGEST_TAG = 40
_MOST_TAGS = 20


def read_tags(run: Path) -> list[str]:
    """Return the tags of a run; without what is damaged."""
    try:
        found = load_json(run / TAGS_FILE)
    except (OSError, ValueError):
        return []
    tags = found if isinstance(found, list) else []
    texts = [tag[:_LONGEST_TAG] for tag in tags[:_MOST_TAGS] if isinstance(tag, str) and tag]
    return [printable(text) for text in texts]


def write_tags(run: Path, tags: Sequence[str]) -> None:
    """Replace the tags of a run.

    Raises:
        ConfigError: there are too many, one is not a short printable text, or the run is not
            writable.
    """
    chosen = list(dict.fromkeys(tag.strip() for tag in tags))
    if len(chosen) > _MOST_TAGS:
        raise ConfigError(f"a run may have {_MOST_TAGS} tags, not {len(chosen)}")
    for tag in chosen:
        if not tag or len(tag) > _LONGEST_TAG or not tag.isprintable():
            raise ConfigError(
                f"tag {quoted(tag)}: must have 1 to {_LONGEST_TAG} printable characters"
            )
    try:
        write_json(run / TAGS_FILE, chosen)
    except OSError as error:
        raise ConfigError(f"{run / TAGS_FILE}: cannot be written: {error.strerror}") from error


def star(run: Path, episode: Summary, *, starred: bool) -> None:
    """Star an episode, or remove its star, durably.

    Raises:
        ConfigError: the run's folder cannot be written.
    """
    _append(run, {"id": episode.id, "starred": starred})


def write_note(run: Path, episode: Summary, note: str, *, seen: str) -> None:
    """Replace an episode's note, durably; an empty one removes it.

    Args:
        run: the run's folder.
        episode: as it is now.
        note: its new note.
        seen: the note that it replaces. If another page has changed that one meanwhile, nothing
            is written.

    Raises:
        ConfigError: the note is too long, it was changed meanwhile, or the run's folder cannot be
            written.
    """
    if len(note) > MAX_NOTE:
        raise ConfigError(f"a note may have {MAX_NOTE:,} characters, not {len(note):,}")
    if episode.note not in (seen, note):
        raise ConfigError(
            f"the note was changed by another page meanwhile, to {episode.note!r}; yours was not "
            "saved"
        )
    _append(run, {"id": episode.id, "note": note})


def _append(run: Path, entry: dict[str, Any]) -> None:
    # Appended, because two servers that rewrote the file would overwrite each other's entries.
    path = notes_file(run)
    try:
        append_durably(path, [{**entry, "time": time.time()}])
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written: {error.strerror}. Stars and notes need a run folder "
            "that the user who runs agentrl view may write"
        ) from error
