"""Export recorded episodes to Minari, Farama's format for offline reinforcement learning.

This is the only module that imports `minari` (`pip install 'agentrl-screens[minari]'`).
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from gymnasium import spaces

from agentrl import __version__
from agentrl.errors import ConfigError
from agentrl.replay.episode_filters import Filter
from agentrl.replay.export.minari_spaces import (
    MinariEpisode,
    action_space,
    common_size,
    observation_space,
    select_episodes,
)
from agentrl.replay.reader import Run
from agentrl.text import encodable
from agentrl.types import Image

if TYPE_CHECKING:
    from minari.data_collector import EpisodeBuffer

GET_MINARI = "pip install 'agentrl-screens[minari]'"
_FORMAT = "parquet"

Progress = Callable[[int, int], None]
"""Called with the number of written episodes and their total."""


def write(
    run: Run,
    path: Path,
    where: Filter | None = None,
    *,
    replies: bool = False,
    width: int | None = None,
    progress: Progress = lambda done, total: None,
) -> tuple[int, Counter[str]]:
    """Write a Minari data set; `minari.MinariDataset(path / "data")` opens it.

    An episode of T turns has T + 1 observations: an image, text, or both as a dictionary of
    `image` and `text`. Rewards are the weighted sums of the reward functions; `infos` holds the
    `reply` and the `env_reward` of the previous turn.

    Args:
        run: the recorded run.
        path: a new folder named like a Minari data set, such as `game-v0`.
        where: which episodes; None for all. Void ones are skipped.
        replies: use the text of the replies as actions instead of what the environment received
            (integers, or number lists of one length).
        width: scale images to this width in pixels; None keeps their size.
        progress: called after each episode.

    Returns:
        The number of written episodes, and the number of skipped episodes by reason.

    Raises:
        ConfigError: Minari is not installed, the folder is not usable, or the episodes do not fit.
    """
    storage_of = _open_minari(path)
    if width is not None and width < 1:
        raise ConfigError(f"width={width}: must be 1 pixel or more")
    plays, left_out = select_episodes(run, where, replies)
    if not plays:
        skipped = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise ConfigError(
            f"{run.path}: no episode to write"
            + (f"; skipped: {skipped}" if skipped else ": no valid episode matches")
        )
    size = common_size(run, plays, width)
    observations = observation_space(plays, size)
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        # Absolute, because Minari joins a relative path with itself.
        data = (partial / "data").absolute()
        storage = storage_of(data, observations, action_space(plays, replies))
        storage.update_episodes(_buffers(run, plays, observations, size, progress))
        storage.update_episode_metadata([_about(play) for play in plays])
        about = f"{plays[0].recorded.episode.env_id}, recorded by agentrl {__version__}"
        storage.update_metadata({"description": about, "algorithm_name": "agentrl"})
        partial.rename(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return len(plays), left_out


def _open_minari(path: Path) -> Callable[..., Any]:
    """Check the folder's name, and return a function that creates the data set's storage."""
    try:
        import minari
        from minari.dataset.minari_dataset import parse_dataset_id
        from minari.dataset.minari_storage import MinariStorage
    except ImportError:
        raise ConfigError(f"--as minari needs Minari, which is missing: {GET_MINARI}") from None
    if path.exists():
        raise ConfigError(f"{path}: already exists; name a new folder")
    try:
        parse_dataset_id(path.name)
    except (TypeError, ValueError):  # TypeError if the version is missing
        raise ConfigError(
            f"{path}: the folder needs a Minari data set name with a version, such as "
            f"{path.name}-v0"
        ) from None

    def storage_of(data: Path, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> Any:
        # Lossless, because JPEG would change what the policy saw.
        storage = MinariStorage.new(
            data, observations, actions, data_format=_FORMAT, jpeg_encoding=False
        )
        storage.update_metadata({"dataset_id": path.name, "minari_version": minari.__version__})
        return storage

    return storage_of


def _buffers(
    run: Run,
    plays: Sequence[MinariEpisode],
    space: spaces.Space[Any],
    size: tuple[int, int] | None,
    progress: Progress,
) -> "Iterator[EpisodeBuffer]":
    for done, play in enumerate(plays, start=1):
        yield _buffer(run, play, space, size)
        progress(done, len(plays))  # Minari requests the next episode once this one is written


def _buffer(
    run: Run, play: MinariEpisode, space: spaces.Space[Any], size: tuple[int, int] | None
) -> "EpisodeBuffer":
    from minari.data_collector import EpisodeBuffer

    turns, summary = play.recorded.episode.turns, play.recorded.summary
    ended = [False] * (len(turns) - 1)
    observations: Any = list(play.texts)
    if size is not None:
        images = np.stack(list(_images(run, play.frames, size)))
        both = isinstance(space, spaces.Dict)
        observations = {"image": images, "text": observations} if both else images
    return EpisodeBuffer(
        seed=summary.seed,
        observations=observations,
        actions=list(play.actions),
        rewards=[float(reward) for reward in summary.rewards],
        terminations=[*ended, summary.outcome.value == "terminated"],
        truncations=[*ended, summary.outcome.value == "truncated"],
        infos={
            "reply": ["", *(encodable(turn.reply) for turn in turns)],
            "env_reward": [0.0, *(turn.env_reward for turn in turns)],
        },
    )


def _images(run: Run, frames: Sequence[str], size: tuple[int, int]) -> Iterator[Image]:
    for id in frames:
        image = run.frame(id)
        if image is None:
            raise ConfigError(f"{run.path}: frame {id} is damaged")
        if (image.shape[1], image.shape[0]) != size:
            image = cv2.resize(image, size, interpolation=cv2.INTER_AREA).astype(np.uint8)
        yield image


def _about(play: MinariEpisode) -> dict[str, Any]:
    summary = play.recorded.summary
    return {
        "episode": summary.id,
        "split": summary.split,
        "label": summary.label,
        "step": summary.step,
        "won": summary.won,
    }
