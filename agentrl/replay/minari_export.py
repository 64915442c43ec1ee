"""Export recorded episodes to Minari, Farama's format for offline reinforcement learning.

This is the only module that imports `minari` (`pip install 'agentrl-screens[minari]'`).
"""

import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from gymnasium import spaces

from agentrl import extras
from agentrl.errors import ConfigError
from agentrl.replay.run_reader import RecordedEpisode, Run
from agentrl.replay.tables_export import own_part
from agentrl.runs.episode_summary import Filter
from agentrl.text.formatting import encodable
from agentrl.types import IMAGE, Image, Message, without_placeholders

if TYPE_CHECKING:
    from minari.data_collector import EpisodeBuffer

_FORMAT = "parquet"
_LARGEST = 1 << 53
"""Maximum magnitude of an integer action."""

Progress = Callable[[int, int], None]
"""Called with the number of episodes written so far and the total."""


@dataclass(slots=True, kw_only=True, frozen=True)
class MinariEpisode:
    """The contents of an episode for a Minari data set: the policy's T turns."""

    recorded: RecordedEpisode
    frames: tuple[str, ...]
    """[T + 1] frame ids; empty if the environment shows no images."""
    texts: tuple[str, ...]
    """[T + 1] texts shown."""
    actions: tuple[Any, ...]
    """[T] actions taken."""


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

    An episode of T turns has T + 1 observations, each an image, a text, or a dictionary of `image`
    and `text`. Rewards are the weighted sums of the reward functions; `infos` has the previous
    turn's `reply` and `env_reward`.

    Args:
        run: the recorded run.
        path: a new folder named like a Minari data set, such as `game-v0`.
        where: which episodes; None for all. Void episodes are skipped.
        replies: use the replies' texts as actions instead of the environment's actions (integers,
            or number lists of equal length).
        width: scale images to this width in pixels; None keeps their size.
        progress: called after each episode.

    Returns:
        The number of written episodes, and the number of skipped episodes by reason.

    Raises:
        ConfigError: Minari is not installed, the folder cannot be used, or the episodes do not fit
            into a data set.
    """
    storage_of = _open_minari(path)
    if width is not None and width < 1:
        raise ConfigError(f"width={width}: must be at least 1 pixel")
    plays, left_out = _select_episodes(run, where, replies)
    size = _common_size(run, plays, width)
    observations = _observation_space(plays, size)
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        # Make the path absolute, because Minari joins a relative path with itself.
        data = (partial / "data").absolute()
        storage = storage_of(data, observations, _action_space(plays, replies))
        storage.update_episodes(_buffers(run, plays, observations, size, progress))
        _write_metadata(storage, plays)
        partial.rename(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return len(plays), left_out


def _open_minari(path: Path) -> Callable[..., Any]:
    """Check the folder, and return a function that creates the data set's storage."""
    try:
        import minari
        from minari.dataset.minari_dataset import parse_dataset_id
        from minari.dataset.minari_storage import MinariStorage
    except ImportError:
        raise ConfigError(f"Minari is not installed; run: {extras.GET_MINARI}") from None
    if path.exists():
        raise ConfigError(f"{path}: already exists; choose a new folder")
    try:
        parse_dataset_id(path.name)
    except (TypeError, ValueError):  # Minari raises TypeError if the version is missing.
        raise ConfigError(
            f"{path}: the folder must be named like a Minari data set, with a version, for example "
            f"{path.name}-v0"
        ) from None

    def storage_of(data: Path, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> Any:
        # Use a lossless format: JPEG would change the images that the policy saw.
        storage = MinariStorage.new(
            data, observations, actions, data_format=_FORMAT, jpeg_encoding=False
        )
        storage.update_metadata({"dataset_id": path.name, "minari_version": minari.__version__})
        return storage

    return storage_of


def _write_metadata(storage: Any, plays: Sequence[MinariEpisode]) -> None:
    """Describe the data set and its episodes."""
    storage.update_episode_metadata([
        {
            "episode": one.id, "split": one.split, "label": one.label, "step": one.step,
            "success": one.success,
        }
        for one in (play.recorded.summary for play in plays)
    ])  # fmt: skip
    version = metadata.version("agentrl-screens")
    about = f"{plays[0].recorded.episode.env_id}, recorded by agentrl {version}"
    storage.update_metadata({"description": about, "algorithm_name": "agentrl"})


def _buffers(
    run: Run,
    plays: Sequence[MinariEpisode],
    space: spaces.Space[Any],
    size: tuple[int, int] | None,
    progress: Progress,
) -> "Iterator[EpisodeBuffer]":
    from minari.data_collector import EpisodeBuffer

    for done, play in enumerate(plays, start=1):
        episode, summary = play.recorded.episode, play.recorded.summary
        guided = episode.num_guided
        turns = episode.turns[guided:]
        ended = [False] * (len(turns) - 1)
        observations: Any = list(play.texts)
        if size is not None:
            images = np.stack(list(_images(run, play.frames, size)))
            both = isinstance(space, spaces.Dict)
            observations = {"image": images, "text": observations} if both else images
        yield EpisodeBuffer(
            # No seed resets an environment to a state that a guide has reached.
            seed=None if guided else summary.seed,
            observations=observations,
            actions=list(play.actions),
            rewards=[float(reward) for reward in summary.rewards[guided:]],
            terminations=[*ended, summary.outcome.value == "terminated"],
            truncations=[*ended, summary.outcome.value == "truncated"],
            infos={
                "reply": ["", *(encodable(turn.reply) for turn in turns)],
                "env_reward": [0.0, *(turn.env_reward for turn in turns)],
            },
        )
        # Minari requests the next episode once it has written the current one.
        progress(done, len(plays))


def _images(run: Run, frames: Sequence[str], size: tuple[int, int]) -> Iterator[Image]:
    for id in frames:
        image = run.frame(id)
        if image is None:
            raise ConfigError(f"{run.path}: frame {id} is damaged")
        if (image.shape[1], image.shape[0]) != size:
            image = cv2.resize(image, size, interpolation=cv2.INTER_AREA).astype(np.uint8)
        yield image


def _select_episodes(
    run: Run, where: Filter | None, replies: bool
) -> tuple[list[MinariEpisode], Counter[str]]:
    """Return the episodes to write, and the number of skipped valid episodes by reason."""
    plays, left_out = [], Counter[str]()
    valid = [summary for summary in run.episodes(where) if not summary.outcome.void]
    for recorded in run.opened(valid):
        play = _minari_episode(run, recorded, replies)
        if isinstance(play, str):
            left_out[play] += 1
        else:
            plays.append(play)
    if not plays:
        skipped = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise ConfigError(
            f"{run.path}: there is no episode to write"
            + (f"; skipped: {skipped}" if skipped else " because no valid episode matches")
        )
    if len({bool(play.frames) for play in plays}) > 1:
        raise ConfigError(
            f"{run.path}: some episodes have images and others do not; select one kind with "
            "--split, --step or --label"
        )
    return plays, left_out


def _minari_episode(run: Run, recorded: RecordedEpisode, replies: bool) -> MinariEpisode | str:
    """Return the data to write for an episode, or the reason to skip it."""
    own, final = own_part(recorded.episode), recorded.episode.final_frames
    if len(recorded.summary.rewards) != len(recorded.episode.turns):
        return "without a score for each turn"
    turns = own.turns
    if not turns:
        return "without a turn"
    if any(len(turn.frames) > 1 for turn in turns):
        raise ConfigError(
            f"{recorded.summary.id} has several images in one turn, but a Minari observation has "
            "one image"
        )
    pictured = any(turn.frames or IMAGE in turn.shown for turn in turns)
    frames = tuple(id for shown in (*(turn.frames for turn in turns), final[-1:]) for id in shown)
    if pictured and (len(frames) <= len(turns) or not all(map(run.frame_bytes, set(frames)))):
        return "with missing frames (run.frames=device records every frame, including the last)"
    if not replies and any(turn.chunk for turn in turns):
        return "with several actions per reply (--replies uses the replies as actions)"
    if not replies and any(turn.action is None for turn in turns):
        return "with a reply that could not be parsed (--replies uses the replies as actions)"
    first = Message(role="user", text=turns[0].shown, preceding=own.preceding)
    texts = (
        first.transcript(),
        *(without_placeholders(turn.shown) for turn in turns[1:]),
        recorded.episode.final_shown.strip(),
    )
    return MinariEpisode(
        recorded=recorded,
        frames=frames if pictured else (),
        texts=tuple(map(encodable, texts)),
        actions=tuple(encodable(turn.reply) if replies else turn.action for turn in turns),
    )


def _common_size(
    run: Run, plays: Sequence[MinariEpisode], width: int | None
) -> tuple[int, int] | None:
    """Return the common (width, height) of all images, scaled to `width`; None without images."""
    counts = Counter[tuple[int, int]]()
    for id in {id for play in plays for id in play.frames}:
        # Width and height follow the PNG signature and the first chunk's length and name.
        header = (run.frame_bytes(id) or b"")[16:24]
        if len(header) < 8:
            raise ConfigError(f"{run.path}: frame {id} is damaged")
        counts[struct.unpack(">II", header)] += 1
    if not counts:
        return None
    if len(counts) > 1:
        sizes = ", ".join(f"{w}x{h} ({count})" for (w, h), count in counts.most_common())
        raise ConfigError(
            f"{run.path}: all images of a Minari data set must have the same size, but the "
            f"episodes have {sizes}. Select episodes of one size with --split, --step or --label"
        )
    ((recorded_width, height),) = counts
    if width is None:
        return recorded_width, height
    return width, max(1, round(height * width / recorded_width))


def _observation_space(
    plays: Sequence[MinariEpisode], size: tuple[int, int] | None
) -> spaces.Space[Any]:
    """Return the space of images of this (width, height), of texts, or of both."""
    texts = [text for play in plays for text in play.texts]
    if size is None:
        return _text_space(texts)
    image = spaces.Box(0, 255, (size[1], size[0], 3), np.uint8)
    return spaces.Dict({"image": image, "text": _text_space(texts)}) if any(texts) else image


def _action_space(plays: Sequence[MinariEpisode], replies: bool) -> spaces.Space[Any]:
    """Return the smallest space that contains all recorded actions."""
    actions = [action for play in plays for action in play.actions]
    if replies:
        return _text_space(actions)
    if all(type(action) is int and abs(action) < _LARGEST for action in actions):
        least = min(actions)
        return spaces.Discrete(max(actions) - least + 1, start=least)
    is_vector = [
        isinstance(action, list) and all(type(number) in (int, float) for number in action)
        for action in actions
    ]
    if all(is_vector) and len({len(action) for action in actions}) == 1:
        return spaces.Box(-np.inf, np.inf, (len(actions[0]),), np.float64)
    other = next((action for action in actions if type(action) is not int), actions[0])
    raise ConfigError(
        f"actions such as {str(other)[:80]} do not fit into a Minari data set, which accepts "
        "integers, or lists of numbers of equal length; pass --replies to use the replies as "
        "actions instead"
    )


def _text_space(texts: Sequence[str]) -> spaces.Text:
    """Return a text space whose charset is exactly the characters that occur in the texts."""
    charset = sorted(set("".join(texts))) or [" "]
    return spaces.Text(max(1, *map(len, texts)), min_length=0, charset="".join(charset))
