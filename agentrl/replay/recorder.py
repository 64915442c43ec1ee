"""Record every episode as it ends, regardless of its outcome."""

import gzip
import json
import math
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np

from agentrl.files import atomic_replace
from agentrl.replay.episode_json import to_json
from agentrl.replay.frames.frame_store import FrameStore
from agentrl.runs.failure_modes import failure_modes
from agentrl.runs.jsonl import JsonlWriter
from agentrl.runs.run_paths import (
    FORMAT,
    episode_file,
    episodes_folder,
    is_name,
    token_advantages_file,
)
from agentrl.types import Episode, Image, ScoredEpisode

Frames = Literal["device", "model", "none"]
Box = Sequence[float]
"""Left, top, right and bottom of a region, as fractions of the image in [0, 1]."""

_MARGIN = 0.005
"""Extra margin masked around a region, as a fraction of the image's side, because scaling blends
neighboring pixels."""
_LEAST_MARGIN = 2


class Recorder:
    """Records into a run's folder, which recorders with different names may share.

    Once `episode` returns, the episode survives kill -9; only frames still queued for the disk can
    be lost.

    Args:
        run: the run's folder; created if missing.
        frames: which images the rollouts record; with `none`, `frame` stores nothing.
        mask: regions to black out in every stored image.
        writer: names the files that this recorder appends to.
        config: the configuration's digest (`Config.digest`).
    """

    def __init__(
        self,
        run: Path,
        frames: Frames = "device",
        *,
        mask: Sequence[Box] = (),
        writer: str = "main",
        config: str | None = None,
    ) -> None:
        if not is_name(writer):
            raise ValueError(f"{writer!r} is not a valid writer name")
        folder = episodes_folder(run)
        folder.mkdir(parents=True, exist_ok=True)
        self._run = run
        self._mask, self._config = mask, config
        self._lock = threading.Lock()
        self._index: JsonlWriter | None = JsonlWriter(folder / f"index-{writer}.jsonl")
        self._scores = JsonlWriter(folder / f"scores-{writer}.jsonl")
        self._shown = JsonlWriter(folder / f"frames-{writer}.jsonl")
        self._by_token: JsonlWriter | None = None
        self._writer = writer
        self._frames = None if frames == "none" else FrameStore(run, writer)

    def frame(self, image: Image) -> str:
        """Store an image in the background; return its id, or "" if frames are not recorded.

        Args:
            image: uint8[H, W, 3], RGB; may be modified afterwards.

        Raises:
            ValueError: the image is not uint8[H, W, 3].
            OSError: an earlier image could not be written.
        """
        return "" if self._frames is None else self._frames.add(masked(image, self._mask))

    def episode(self, scored: ScoredEpisode, *, split: str, step: int) -> None:
        """Write one finished episode with its rewards.

        Args:
            scored: the episode, valid or void.
            split: `train`, `eval` or `demo`.
            step: the training step that the episode was played for.
        """
        episode = scored.episode
        path = episode_file(self._run, episode.id)
        # `time` distinguishes recordings with the same id, which a resumed job may make.
        tree = to_json(episode) | {"split": split, "step": step, "time": time.time()}
        with atomic_replace(path) as partial, gzip.open(partial, "wb", compresslevel=1) as file:
            file.write(json.dumps(tree).encode())
        score = {
            "id": episode.id,
            "time": tree["time"],
            "reward": scored.reward,
            "rewards": scored.rewards,
            "components": dict(scored.components),
        }
        summary = {key: tree[key] for key in _SUMMARY} | {
            "format": FORMAT,
            "turns": len(episode.turns),
            "tokens": sum(len(turn.reply_ids) for turn in episode.turns),
            "seconds": sum(turn.seconds for turn in episode.turns),
            "env_reward": sum(turn.env_reward for turn in episode.turns),
            "reward": scored.reward,
            "metrics": _metrics(episode),
            "failure_modes": {} if episode.outcome.void else failure_modes(episode),
            "config": self._config,
        }
        shown = {key: tree[key] for key in ("id", "split", "step", "time")} | {
            "bytes": path.stat().st_size,
            "frames": frames_of(episode),
        }
        with self._lock:
            assert self._index is not None, "this recorder is closed"
            # Write the index last, so that every episode in it is complete.
            self._shown.append(shown)
            self._scores.append(score)
            self._index.append(summary)

    def record_advantages(
        self,
        scored: ScoredEpisode,
        advantages: Sequence[Sequence[float]],
        *,
        step: int | None = None,
    ) -> None:
        """Append the advantages with which a training step used an episode.

        Args:
            scored: a recorded episode; another recorder may have written it.
            advantages: [T][R] advantage of each sampled token.
            step: the training step that used it; None if unknown.
        """
        entry: dict[str, Any] = {
            "id": scored.episode.id,
            # Don't average equal numbers, because rounding may change the last bit.
            "advantages": [
                fmean(turn) if len(set(turn)) > 1 else float(sum(turn[:1])) for turn in advantages
            ],
        }
        if step is not None:
            entry["used_by"] = step
        with self._lock:
            # With most algorithms, all tokens of a turn share one advantage.
            if any(len(set(turn)) > 1 for turn in advantages):
                if self._by_token is None:
                    self._by_token = JsonlWriter(token_advantages_file(self._run, self._writer))
                by_token = [[float(f"{value:.4g}") for value in turn] for turn in advantages]
                self._by_token.append({"id": scored.episode.id, "advantages": by_token})
            self._scores.append(entry)

    def flush(self) -> None:
        """Wait until every frame is on disk."""
        if self._frames is not None:
            self._frames.flush()

    def close(self) -> None:
        """Write everything queued and close the files; may be called twice."""
        with self._lock:
            if self._index is None:
                return
            self._index.close()
            self._scores.close()
            self._shown.close()
            if self._by_token is not None:
                self._by_token.close()
            self._index = None
        if self._frames is not None:
            self._frames.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()


def masked(image: Image, boxes: Sequence[Box]) -> Image:
    """Return the image with regions blacked out.

    Args:
        image: uint8[H, W, 3]; not modified.
        boxes: regions to black out.

    Returns:
        uint8[H, W, 3], a copy; the image itself if there are no regions.
    """
    if not boxes:
        return image
    hidden = np.array(image)
    height, width = hidden.shape[:2]
    for left, top, right, bottom in boxes:
        rows, columns = _pixels(top, bottom, height), _pixels(left, right, width)
        hidden[rows, columns] = 0
    return hidden


def _pixels(start: float, end: float, length: int) -> slice:
    margin = max(_LEAST_MARGIN, math.ceil(_MARGIN * length))
    return slice(max(0, math.floor(start * length) - margin), math.ceil(end * length) + margin)


def frames_of(episode: Episode) -> list[str]:
    """Return the ids of an episode's recorded frames, without duplicates."""
    turns = episode.turns
    between = (id for turn in turns for one in turn.chunk for id in one.frames)
    shown = [*(id for turn in turns for id in turn.frames), *between, *episode.final_frames]
    return [id for id in dict.fromkeys(shown) if id]


def _metrics(episode: Episode) -> dict[str, float]:
    """Return the environment's finite metrics after the last turn."""
    metrics = episode.turns[-1].info.get("metrics", {}) if episode.turns else {}
    if not isinstance(metrics, Mapping):
        return {}
    found = dict[str, float]()
    for name, value in metrics.items():
        # An integer with more than 308 digits does not fit into a float.
        with suppress(OverflowError):
            is_number = isinstance(value, int | float | np.integer | np.floating)
            if is_number and math.isfinite(number := float(value)):
                found[str(name)] = number
    return found


_SUMMARY = (
    "id", "split", "step", "time", "env_id", "group", "member", "seed", "outcome", "error",
    "truncated_by", "device",
)  # fmt: skip
