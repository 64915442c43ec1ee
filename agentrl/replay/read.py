"""Read a recorded run again."""

import gzip
import json
import logging
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from agentrl.config.load import path_of
from agentrl.errors import ConfigError
from agentrl.replay.encoding import from_json
from agentrl.replay.layout import FORMAT, episode_file, episodes_folder, frame_file, is_name
from agentrl.types import Episode, Image, Outcome, cause

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, frozen=True)
class Summary:
    """One line of the index, joined with what was said of the episode later."""

    id: str
    split: str
    step: int
    time: float
    env_id: str
    group: str
    member: int
    seed: int
    outcome: Outcome
    error: str | None
    device: str | None
    turns: int
    tokens: int
    seconds: float
    env_reward: float
    total: float
    """The weighted sum of all rewards."""
    rewards: tuple[float, ...] = ()
    """Per turn."""
    components: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Per reward function, per turn."""
    advantages: tuple[float, ...] | None = None
    """Per turn; None where no training step used the episode."""

    @property
    def cause(self) -> str | None:
        """What voided the episode; None where it is not void."""
        return cause(self.outcome, self.error)


@dataclass(slots=True, kw_only=True, frozen=True)
class RecordedEpisode:
    """A whole episode, and what is known about it."""

    summary: Summary
    episode: Episode
    """As it was played; the `images` of its turns are empty, their `frames` can be loaded."""


class Run:
    """A recorded run; may be read while it is still being written.

    Args:
        path: the run's folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def episodes(self) -> list[Summary]:
        """All episodes, in the order in which they ended.

        Raises:
            ConfigError: they were recorded by a newer agentrl, or cannot be read.
        """
        scores: dict[str, dict[str, Any]] = {}
        for entry in self._lines("scores-*.jsonl"):
            if isinstance(entry.get("id"), str):
                scores.setdefault(entry["id"], {}).update(entry)
        found: dict[str, Summary] = {}
        for entry in self._lines("index-*.jsonl"):
            _check_format(self.path, entry)
            score = scores.get(str(entry.get("id")), {})
            # Without its score where that is broken: what was played is still there.
            summary = self._summary(entry, score) or (self._summary(entry, {}) if score else None)
            if summary is not None:
                found[summary.id] = summary
        return sorted(found.values(), key=lambda s: (s.time, s.id))

    def _summary(self, entry: Mapping[str, Any], score: Mapping[str, Any]) -> Summary | None:
        try:
            return _summary(entry, score)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            log.warning("%s: an index line or its score is none: %r", self.path, error)
            return None

    def _lines(self, pattern: str) -> Iterator[dict[str, Any]]:
        """The JSON objects of some files; half a line, as a killed writer leaves, is skipped.

        Raises:
            ConfigError: one of these files is none, or is closed to us.
        """
        for path in sorted(episodes_folder(self.path).glob(pattern)):
            try:
                content = path.read_bytes()
            except OSError as error:
                raise ConfigError(f"{path}: cannot be read: {error}") from error
            for number, line in enumerate(content.split(b"\n"), 1):
                if not line:
                    continue
                try:
                    entry = json.loads(line)
                except (ValueError, RecursionError):
                    log.debug("%s:%d is torn and skipped", path, number)
                    continue
                if isinstance(entry, dict):
                    yield entry

    def episode(self, episode_id: str) -> RecordedEpisode:
        """One whole episode.

        Raises:
            ConfigError: there is none of that name, or its file is damaged.
        """
        summary = next((s for s in self.episodes() if s.id == episode_id), None)
        if summary is None or not is_name(episode_id):
            raise ConfigError(
                f"{self.path} has no episode {episode_id!r} (agentrl replay RUN --list shows all)"
            )
        path = episode_file(self.path, episode_id)
        try:
            tree = json.loads(gzip.decompress(path.read_bytes()))
            return RecordedEpisode(summary=summary, episode=from_json(tree))
        except (
            OSError, EOFError, zlib.error, AttributeError, LookupError, TypeError, ValueError,
            RecursionError,
        ) as error:  # fmt: skip
            raise ConfigError(f"{path} cannot be read: {type(error).__name__}: {error}") from error

    def frame_bytes(self, frame_id: str) -> bytes | None:
        """The PNG of one frame; None if it is not there or its id is none."""
        try:
            return frame_file(self.path, frame_id).read_bytes()
        except (OSError, ValueError):
            return None

    def frame(self, frame_id: str) -> Image | None:
        """One frame as uint8[H, W, 3], RGB; None if it is not there or damaged."""
        png = self.frame_bytes(frame_id)
        if not png:
            return None
        image = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR_RGB)
        return None if image is None else image.astype(np.uint8, copy=False)


def open(run: str | Path) -> Run:
    """Open a run's folder.

    Raises:
        ConfigError: it does not exist, or no episode was ever recorded there.
    """
    path = path_of(str(run), "run")
    if not path.is_dir():
        raise ConfigError(f"{path}: no such run; it should be a folder such as runs/NAME")
    if not episodes_folder(path).is_dir():
        raise ConfigError(f"{path}: holds no recorded episodes (no folder 'episodes')")
    return Run(path)


def _check_format(path: Path, entry: Mapping[str, Any]) -> None:
    written = entry.get("format")
    if isinstance(written, int) and written > FORMAT:
        raise ConfigError(
            f"{path}: recorded in format {written}, this agentrl reads up to {FORMAT}; upgrade it"
        )


def _summary(entry: Mapping[str, Any], score: Mapping[str, Any]) -> Summary:
    components = score.get("components", {})
    advantages = score.get("advantages")
    return Summary(
        id=str(entry["id"]),
        split=str(entry["split"]),
        step=int(entry["step"]),
        time=float(entry["time"]),
        env_id=str(entry["env_id"]),
        group=str(entry["group"]),
        member=int(entry["member"]),
        seed=int(entry["seed"]),
        outcome=Outcome(entry["outcome"]),
        error=_text(entry["error"]),
        device=_text(entry["device"]),
        turns=int(entry["turns"]),
        tokens=int(entry["tokens"]),
        seconds=float(entry["seconds"]),
        env_reward=float(entry["env_reward"]),
        total=float(score.get("total", entry["total"])),
        rewards=_floats(score.get("rewards", ())),
        components={name: _floats(values) for name, values in components.items()},
        advantages=None if advantages is None else _floats(advantages),
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(map(float, values))
