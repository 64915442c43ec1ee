"""A bounded buffer of old successes on disk, in the run's folder.

::

    RUN/sampler/EPISODE.npz     one episode, with the images that the model saw

A checkpoint names the episodes that were in the buffer. Files are written once and never changed. A
file is removed only when neither of the last two checkpoints names it, because the job may be
killed before the latest checkpoint is complete.
"""

import json
import logging
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from agentrl.files import atomic_replace
from agentrl.replay.episode_json import from_json, to_json
from agentrl.training.sampling.task_pool import GroupTask
from agentrl.types import Image, ScoredEpisode, Turn

log = logging.getLogger(__name__)

_EPISODE, _IMAGE = "episode", "image"


@dataclass(slots=True, kw_only=True, frozen=True)
class OldSuccess:
    """Index entry of an episode in the buffer, so that its file need not be opened."""

    id: str
    task: GroupTask
    step: int
    """Training step that played the episode."""
    bytes: int


class ReplayBuffer:
    """Old successes by task, newest last.

    Args:
        folder: folder for the episodes' files; created when the first episode is added.
        max_episodes: maximum number of episodes; the oldest are removed.
        max_bytes: maximum size of the episodes' files, not counting files that only checkpoints
            still need; the oldest episodes are removed.
    """

    def __init__(self, folder: Path, max_episodes: int, max_bytes: float) -> None:
        self._folder = folder
        self._max_episodes, self._max_bytes = max_episodes, max_bytes
        self._kept: dict[str, OldSuccess] = {}
        self._removed: set[str] = set()
        """Removed episodes whose files still exist."""
        self._saved: deque[set[str]] = deque(maxlen=2)
        """Episodes named by the last two states."""

    def __len__(self) -> int:
        """Return the number of episodes."""
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """Total size of the episodes' files."""
        return sum(one.bytes for one in self._kept.values())

    def all(self) -> list[OldSuccess]:
        """Return all episodes, oldest first."""
        return [*self._kept.values()]

    def of(self, task: GroupTask) -> list[OldSuccess]:
        """Return the episodes of a task, newest first."""
        return [one for one in reversed(self._kept.values()) if one.task == task]

    def add(self, task: GroupTask, scored: ScoredEpisode, step: int) -> None:
        """Add an episode, and remove the oldest episodes if there are too many.

        Raises:
            OSError: the episode cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._file(scored.episode.id)
        with atomic_replace(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **_arrays(scored))
        # A resumed job repeats steps and may add an episode again, which then becomes the newest.
        self._kept.pop(scored.episode.id, None)
        self._removed.discard(scored.episode.id)
        self._kept[scored.episode.id] = OldSuccess(
            id=scored.episode.id, task=task, step=step, bytes=path.stat().st_size
        )
        while len(self) > self._max_episodes or self.bytes > self._max_bytes:
            self.remove(next(iter(self._kept)))

    def remove(self, episode_id: str) -> None:
        """Remove an episode; its file is deleted when no checkpoint needs it."""
        del self._kept[episode_id]
        self._removed.add(episode_id)

    def load(self, episode_id: str) -> ScoredEpisode | None:
        """Load an episode as it was played: tokens, log-probabilities, images and rewards.

        Returns:
            None if the file is missing or damaged; the episode is then removed from the buffer.
        """
        path = self._file(episode_id)
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return _episode(arrays)
        except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
            log.warning("%s cannot be read and will not be replayed: %s", path, error)
            self.remove(episode_id)
            return None

    def state(self) -> list[list[Any]]:
        """Return the state for a checkpoint, and remove files that no checkpoint needs."""
        now = set(self._kept)
        for episode_id in self._removed - now.union(*self._saved):
            self._file(episode_id).unlink(missing_ok=True)
            self._removed.discard(episode_id)
        self._saved.append(now)
        return [
            [one.id, one.task.env, one.task.seed, one.step, one.bytes]
            for one in self._kept.values()
        ]

    def restore(self, state: list[list[Any]]) -> None:
        """Continue with the episodes named in a checkpoint, and remove all other files."""
        self._kept.clear()
        for episode_id, env, seed, step, size in state:
            if not self._file(episode_id).is_file():
                log.warning("%s is missing and will not be replayed", self._file(episode_id))
                continue
            self._kept[episode_id] = OldSuccess(
                id=episode_id, task=GroupTask(env=env, seed=seed), step=step, bytes=size
            )
        # Files named only in later checkpoints are removed below, as those checkpoints become
        # invalid.
        self._removed.clear()
        self._saved.clear()
        self._saved.append(set(self._kept))
        for file in self._folder.glob("*.npz"):
            if file.stem not in self._kept:
                file.unlink()

    def _file(self, episode_id: str) -> Path:
        assert re.fullmatch(r"[A-Za-z0-9-]+", episode_id), episode_id
        return self._folder / f"{episode_id}.npz"


def _arrays(scored: ScoredEpisode) -> dict[str, Any]:
    """Convert an episode to arrays; an image in several prompts is stored once."""
    numbers: dict[int, int] = {}
    images: list[Image] = []
    shown = []
    for turn in scored.episode.turns:
        for image in turn.images:
            if id(image) not in numbers:
                numbers[id(image)] = len(images)
                images.append(image)
        shown.append([numbers[id(image)] for image in turn.images])
    # Without timings, a repeated step writes identical files, so the buffer removes the same ones.
    turns = tuple(replace(turn, timings={}) for turn in scored.episode.turns)
    tree = {
        "episode": to_json(replace(scored.episode, turns=turns)),
        "rewards": list(scored.rewards),
        "components": {name: list(values) for name, values in scored.components.items()},
        "weights": dict(scored.weights),
        "images": shown,
    }
    text = np.frombuffer(json.dumps(tree).encode(), np.uint8)
    return {_EPISODE: text, **{f"{_IMAGE}{n}": image for n, image in enumerate(images)}}


def _episode(arrays: Mapping[str, Any]) -> ScoredEpisode:
    tree = json.loads(arrays[_EPISODE].tobytes())
    episode = from_json(tree["episode"])
    images = {n: arrays[f"{_IMAGE}{n}"] for n in {n for own in tree["images"] for n in own}}
    turns: list[Turn] = []
    for turn, shown in zip(episode.turns, tree["images"], strict=True):
        turns.append(replace(turn, images=tuple(images[n] for n in shown)))
    return ScoredEpisode(
        episode=replace(episode, turns=tuple(turns)),
        components={name: tuple(values) for name, values in tree["components"].items()},
        rewards=tuple(tree["rewards"]),
        weights=tree["weights"],
        replayed=True,
    )
