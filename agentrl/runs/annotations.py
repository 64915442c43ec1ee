"""Tags that people give runs, and stars and notes that they give episodes."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError
from agentrl.files import write_json
from agentrl.runs.episode_summary import Summary
from agentrl.runs.file_reading import load_json
from agentrl.runs.jsonl import append_durably
from agentrl.runs.run_paths import notes_file
from agentrl.text.formatting import printable, quoted

TAGS_FILE = "tags.json"
MAX_NOTE = 2000
"""Maximum length of a note, in characters."""
_LONGEST_TAG = 40
_MOST_TAGS = 20


def read_tags(run: Path) -> list[str]:
    """Return the tags of a run, ignoring damaged content."""
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
        ConfigError: there are too many tags, a tag is empty, too long or not printable, or the run
            is not writable.
    """
    chosen = list(dict.fromkeys(tag.strip() for tag in tags))
    if len(chosen) > _MOST_TAGS:
        raise ConfigError(f"a run can have at most {_MOST_TAGS} tags, got {len(chosen)}")
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
    """Star or unstar an episode, and flush the change to disk.

    Raises:
        ConfigError: the run's folder cannot be written.
    """
    _append(run, {"id": episode.id, "starred": starred})


def write_note(run: Path, episode: Summary, note: str, *, seen: str) -> None:
    """Replace an episode's note and flush it to disk; an empty note removes it.

    Args:
        run: the run's folder.
        episode: the episode's current summary.
        note: the new note.
        seen: the note to replace. If another page has changed it in the meantime, nothing is
            written.

    Raises:
        ConfigError: the note is too long, another page has changed it, or the run's folder cannot
            be written.
    """
    if len(note) > MAX_NOTE:
        raise ConfigError(f"a note can have at most {MAX_NOTE:,} characters, got {len(note):,}")
    if episode.note not in (seen, note):
        raise ConfigError(
            f"another page has changed this note to {episode.note!r} in the meantime; your version "
            "was not saved"
        )
    _append(run, {"id": episode.id, "note": note})


def _append(run: Path, entry: dict[str, Any]) -> None:
    # Append, because two servers that rewrote the file would overwrite each other's entries.
    path = notes_file(run)
    try:
        append_durably(path, [{**entry, "time": time.time()}])
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written: {error.strerror}. To save stars and notes, the user who "
            "runs agentrl view needs write access to the run's folder"
        ) from error
