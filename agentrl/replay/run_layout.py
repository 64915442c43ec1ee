"""Where things lie in a recorded run, and which names are allowed there.

::

    RUN/episodes/index-<writer>.jsonl    one line per episode, appended as it ends
    RUN/episodes/scores-<writer>.jsonl   rewards and advantages by episode id, appended later
    RUN/episodes/credits-<writer>.jsonl  advantages token by token, where a turn's differ
    RUN/episodes/frames-<writer>.jsonl   which frames an episode shows, for pruning alone
    RUN/episodes/removed.jsonl           episodes whose files pruning removed
    RUN/episodes/<id>.json.gz            the whole episode
    RUN/frames/<writer>.sqlite           each picture once, named by the hash of its pixels

The fields are described in docs/episode-format.md.
"""

import re
from pathlib import Path

FORMAT = 3
"""Of the episode file; a reader refuses what is newer than itself."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_FRAME = re.compile(r"[0-9a-f]{32}")
_LONGEST = 120


def is_name(name: str) -> bool:
    """Whether an episode or a writer may be called so: no separators, no leading dot, no `..`."""
    return len(name) <= _LONGEST and _NAME.fullmatch(name) is not None


def is_frame(frame_id: str) -> bool:
    """Whether this can be the id of a frame: 32 hexadecimal digits."""
    return _FRAME.fullmatch(frame_id) is not None


def episodes_folder(run: Path) -> Path:
    """Where indexes, scores and episode files lie."""
    return run / "episodes"


def removals_file(run: Path) -> Path:
    """Which episodes pruning has removed."""
    return episodes_folder(run) / "removed.jsonl"


def episode_file(run: Path, episode_id: str) -> Path:
    """The file of one episode.

    Raises:
        ValueError: the id is no file name.
    """
    if not is_name(episode_id):
        raise ValueError(f"{episode_id!r} cannot be the id of an episode")
    return episodes_folder(run) / f"{episode_id}.json.gz"


def credits_file(run: Path, writer: str) -> Path:
    """Where a writer tells what each token deserved."""
    return episodes_folder(run) / f"credits-{writer}.jsonl"


def frames_folder(run: Path) -> Path:
    """Where the packs of frames lie."""
    return run / "frames"


def pack_file(run: Path, writer: str) -> Path:
    """The frames of one writer.

    Raises:
        ValueError: it cannot be the name of a writer.
    """
    if not is_name(writer):
        raise ValueError(f"{writer!r} cannot be the name of a writer")
    return frames_folder(run) / f"{writer}.sqlite"


def has_single_frames(run: Path) -> bool:
    """Whether an agentrl of formats 1 and 2 has recorded frames, each in a file of its own."""
    return any(folder.is_dir() for folder in frames_folder(run).glob("??"))


def single_frame_file(run: Path, frame_id: str) -> Path:
    """The file of one frame, as formats 1 and 2 had them.

    Raises:
        ValueError: the id is no hash.
    """
    if not is_frame(frame_id):
        raise ValueError(f"{frame_id!r} cannot be the id of a frame")
    return frames_folder(run) / frame_id[:2] / f"{frame_id}.png"
