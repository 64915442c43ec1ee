"""File layout of a recorded run, and the names allowed in it.

::

    RUN/episodes/index-<writer>.jsonl    one line per episode, appended as it ends
    RUN/episodes/scores-<writer>.jsonl   rewards and advantages by episode id, appended later
    RUN/episodes/token-advantages-<writer>.jsonl  per token, if they differ within a turn
    RUN/episodes/frames-<writer>.jsonl   the frames of each episode, used only for pruning
    RUN/episodes/removed.jsonl           episodes whose files pruning removed
    RUN/episodes/notes.jsonl             stars and notes that people left on episodes
    RUN/episodes/<id>.json.gz            the whole episode
    RUN/audits/<name>.json               how well a reward agrees with the truth
    RUN/frames/<writer>.sqlite           each distinct image once, keyed by the hash of its pixels

docs/episode-format.md describes the fields.
"""

import re
from pathlib import Path

FORMAT = 4
"""Version of the episode file's format; readers reject all other versions."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_FRAME = re.compile(r"[0-9a-f]{32}")
_LONGEST = 120


def is_name(name: str) -> bool:
    """Return whether an episode or writer name is valid: no separators, leading dot or `..`."""
    return len(name) <= _LONGEST and _NAME.fullmatch(name) is not None


def is_frame(frame_id: str) -> bool:
    """Return whether a frame id is valid: 32 hexadecimal digits."""
    return _FRAME.fullmatch(frame_id) is not None


def episodes_folder(run: Path) -> Path:
    """Return the folder with the index, the scores and the episode files."""
    return run / "episodes"


def removals_file(run: Path) -> Path:
    """Return the file that lists episodes removed by pruning."""
    return episodes_folder(run) / "removed.jsonl"


def notes_file(run: Path) -> Path:
    """Return the file with people's stars and notes on episodes."""
    return episodes_folder(run) / "notes.jsonl"


def episode_file(run: Path, episode_id: str) -> Path:
    """Return the file of one episode.

    Raises:
        ValueError: the id is not a valid file name.
    """
    if not is_name(episode_id):
        raise ValueError(f"{episode_id!r} is not a valid episode id")
    return episodes_folder(run) / f"{episode_id}.json.gz"


def audit_file(run: Path, name: str) -> Path:
    """Return the file of an audit's report; the name `*` makes a pattern for all.

    Raises:
        ValueError: the name is not a valid file name.
    """
    if not is_name(name) and name != "*":
        raise ValueError(f"{name!r} is not a valid audit name")
    return run / "audits" / f"{name}.json"


def token_advantages_file(run: Path, writer: str) -> Path:
    """Return the file with a writer's token-level advantages."""
    return episodes_folder(run) / f"token-advantages-{writer}.jsonl"


def token_advantages_files(run: Path) -> list[Path]:
    """Return the files with all writers' token-level advantages."""
    return sorted(episodes_folder(run).glob("token-advantages-*"))


def frames_folder(run: Path) -> Path:
    """Return the folder of the frame packs."""
    return run / "frames"


def pack_file(run: Path, writer: str) -> Path:
    """Return the file of one writer's frame pack.

    Raises:
        ValueError: the writer's name is invalid.
    """
    if not is_name(writer):
        raise ValueError(f"{writer!r} is not a valid writer name")
    return frames_folder(run) / f"{writer}.sqlite"
