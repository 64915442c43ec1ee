"""A bounded buffer of old successes on disk, in the run's folder.

::

    RUN/sampler/EPISODE.npz     one episode, with the images that the model saw

A checkpoint names the episodes that were in the buffer. Files are written once and never changed;
one is removed only when the last two checkpoints do not name it any more, as the job may be killed
before the latest one is complete.
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
from agentrl.replay.episode_encoding import from_json, to_json
from agentrl.training.sampling.task_sampler import GroupTask
from agentrl.types import Image, ScoredEpisode, Turn

log = logging.getLogger(__name__)

_EPISODE, _IMAGE = "episode", "image"


@dataclass(slots=True, kw_only=True, frozen=True)
class OldSuccess:
    """Index entry of an episode in the buffer, for use without opening its file."""

    id: str
    task: GroupTask
    step: int
    """The training step that played it."""
    bytes: int


class ReplayBuffer:
    """Old successes by task, the newest last.

    Args:
        folder: for their files; made when the first one is added.
        max_episodes: beyond it the oldest are removed.
        max_bytes: likewise, the size of all files; those that only checkpoints still name come on
            top.
    """

    def __init__(self, folder: Path, max_episodes: int, max_bytes: float) -> None:
        self._folder = folder
        self._max_episodes, self._max_bytes = max_episodes, max_bytes
        self._kept: dict[str, OldSuccess] = {}
        self._removed: set[str] = set()
        """Episodes whose files are still there."""
        self._saved: deque[set[str]] = deque(maxlen=2)
        """Episodes that the last two states name."""

    def __len__(self) -> int:
        """The number of episodes."""
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """The size of the files of all episodes."""
        return sum(one.bytes for one in self._kept.values())

    def all(self) -> list[OldSuccess]:
        """All episodes, the oldest first."""
        return [*self._kept.values()]

    def of(self, task: GroupTask) -> list[OldSuccess]:
        """The episodes of a task, the newest first."""
        return [one for one in reversed(self._kept.values()) if one.task == task]

    def add(self, task: GroupTask, scored: ScoredEpisode, step: int) -> None:
        """Keep an episode, and remove the oldest ones if there are too many.

        Raises:
            OSError: it cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._file(scored.episode.id)
        with atomic_replace(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **_arrays(scored))
        # A resumed job repeats steps: an episode that is added again becomes the newest.
        self._kept.pop(scored.episode.id, None)
        self._removed.discard(scored.episode.id)
        self._kept[scored.episode.id] = OldSuccess(
            id=scored.episode.id, task=task, step=step, bytes=path.stat().st_size
        )
        while len(self) > self._max_episodes or self.bytes > self._max_bytes:
            self.remove(next(iter(self._kept)))

    def remove(self, episode_id: str) -> None:
        """Forget an episode; its file goes when no checkpoint needs it."""
        del self._kept[episode_id]
        self._removed.add(episode_id)

    def load(self, episode_id: str) -> ScoredEpisode | None:
        """An episode as it was played: tokens, log-probabilities, images and rewards.

        Returns:
            None if its file is missing or damaged; then the buffer is without it from now on.
        """
        path = self._file(episode_id)
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return _episode(arrays)
        except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
            log.warning("%s cannot be read, and is not replayed: %s", path, error)
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
        """Continue with the episodes that a checkpoint names, and remove all other files."""
        self._kept.clear()
        for episode_id, env, seed, step, size in state:
            if not self._file(episode_id).is_file():
                log.warning("%s is missing: it is not replayed", self._file(episode_id))
                continue
            self._kept[episode_id] = OldSuccess(
                id=episode_id, task=GroupTask(env=env, seed=seed), step=step, bytes=size
            )
        # Files that only later checkpoints named, which this one replaces, are removed below.
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
    """An episode as arrays; an image that several prompts contain is stored once."""
    numbers: dict[int, int] = {}
    images: list[Image] = []
    shown = []
    for turn in scored.episode.turns:
        for image in turn.images:
            if id(image) not in numbers:
                numbers[id(image)] = len(images)
                images.append(image)
        shown.append([numbers[id(image)] for image in turn.images])
    # Without durations, a repeated step writes the same file, and the buffer removes the same ones.
    turns = tuple(replace(turn, timings={}) for turn in scored.episode.turns)
    tree = {
        "episode": to_json(replace(scored.episode, turns=turns)),
        "rewards": list(scored.rewards),
        "components": {name: list(values) for name, values in scored.components.items()},
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
        replayed=True,
    )
