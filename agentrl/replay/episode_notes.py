"""Stars and notes that people leave on recorded episodes."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError
from agentrl.replay.reader import Run
from agentrl.runs.jsonl import JsonlWriter
from agentrl.runs.run_layout import notes_file

MAX_NOTE = 2000
"""Characters of a note."""


def star(run: Run, episode_id: str, *, starred: bool) -> None:
    """Star an episode, or remove its star, durably.

    Raises:
        ConfigError: there is no such episode, or the run's folder cannot be written.
    """
    _episode(run, episode_id)
    _append(run.path, {"id": episode_id, "starred": starred})


def write_note(run: Run, episode_id: str, note: str, *, seen: str) -> None:
    """Replace an episode's note, durably; an empty one removes it.

    Args:
        run: the recorded run.
        episode_id: of an episode.
        note: its new note.
        seen: the note that it replaces. If another page has changed that one meanwhile, nothing
            is written.

    Raises:
        ConfigError: there is no such episode, the note is too long, it was changed meanwhile, or
            the run's folder cannot be written.
    """
    if len(note) > MAX_NOTE:
        raise ConfigError(f"a note may have {MAX_NOTE:,} characters, not {len(note):,}")
    if (saved := _episode(run, episode_id)) not in (seen, note):
        raise ConfigError(
            f"the note was changed by another page meanwhile, to {saved!r}; yours was not saved"
        )
    _append(run.path, {"id": episode_id, "note": note})


def _episode(run: Run, episode_id: str) -> str:
    """The note of an episode, which must exist."""
    known = {summary.id: summary for summary in run.episodes()}
    if episode_id not in known:
        raise ConfigError(f"{run.path} has no episode {episode_id!r}")
    return known[episode_id].note


def _append(run: Path, entry: Mapping[str, Any]) -> None:
    """Append a line with a single write, so that two servers never overwrite each other's."""
    path = notes_file(run)
    try:
        writer = JsonlWriter(path)
        try:
            writer.append({**entry, "time": time.time()})
            writer.sync()
        finally:
            writer.close()
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written: {error.strerror}. Stars and notes need a run folder "
            "that the user who runs agentrl view may write"
        ) from error
