"""Recorded episodes as a data set of Minari, Farama's format for offline reinforcement learning.

`minari` (`pip install 'agentrl[minari]'`) is imported here alone.
"""

import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from gymnasium import spaces

from agentrl import __version__
from agentrl.errors import ConfigError
from agentrl.replay.filters import Filter
from agentrl.replay.read import RecordedEpisode, Run
from agentrl.text import encodable
from agentrl.types import IMAGE, Image

if TYPE_CHECKING:
    from minari.data_collector import EpisodeBuffer

GET_MINARI = "pip install 'agentrl[minari]'"
_FORMAT = "parquet"
_LARGEST = 1 << 53
"""Of an action that is a number."""


@dataclass(slots=True, kw_only=True, frozen=True)
class _Play:
    """What a data set takes of an episode of T turns."""

    recorded: RecordedEpisode
    frames: tuple[str, ...]
    """[T + 1] ids, or none where there are no pictures."""
    texts: tuple[str, ...]
    """[T + 1] words that were shown."""
    actions: tuple[Any, ...]
    """[T]"""


def write(
    run: Run,
    path: Path,
    wanted: Filter | None = None,
    *,
    replies: bool = False,
    width: int | None = None,
) -> tuple[int, Counter[str]]:
    """Write a data set; `minari.MinariDataset(path / "data")` opens it.

    An episode of T turns has T + 1 observations: a picture, words, or both as a dictionary of
    `image` and `text`. Rewards are the weighted sums of the reward functions; `infos` has the
    `reply` and the `env_reward` of the turn before.

    Args:
        run: the recorded run.
        path: a folder that does not exist, named as Minari names data sets, such as `game-v0`.
        wanted: which episodes; None for all. Void ones are left out.
        replies: the actions are the words of the replies; else what the environment was given,
            whole numbers or lists of numbers, all of one length.
        width: pictures are scaled to so many pixels; None keeps their own size.

    Returns:
        How many episodes were written, and how many were left out for what reason.

    Raises:
        ConfigError: Minari is not installed, the folder cannot be, or the episodes do not fit.
    """
    storage_of = _open_minari(path)
    if width is not None and width < 1:
        raise ConfigError(f"width={width}: must be 1 pixel or more")
    plays, left_out = _plays(run, wanted, replies)
    if not plays:
        why = ", ".join(f"{count} {what}" for what, count in left_out.items()) or "there is none"
        raise ConfigError(f"{run.path}: no episode is left to write: {why}")
    size = _size(run, plays, width)
    observations = _observation_space(plays, size)
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        storage = storage_of(partial / "data", observations, _action_space(plays, replies))
        storage.update_episodes(_buffer(run, play, observations, size) for play in plays)
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
    """Makes the storage of a data set of that name."""
    try:
        import minari
        from minari.dataset.minari_dataset import parse_dataset_id
        from minari.dataset.minari_storage import MinariStorage
    except ImportError:
        raise ConfigError(f"such data sets need Minari, not installed: {GET_MINARI}") from None
    if path.exists():
        raise ConfigError(f"{path}: exists; name a folder that does not")
    try:
        parse_dataset_id(path.name)
    except (TypeError, ValueError):  # the former where there is no version
        raise ConfigError(
            f"{path}: the folder must be named as Minari names data sets, such as {path.name}-v0"
        ) from None

    def storage_of(data: Path, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> Any:
        # Lossless: its JPEGs are not what the policy saw.
        storage = MinariStorage.new(
            data, observations, actions, data_format=_FORMAT, jpeg_encoding=False
        )
        storage.update_metadata({"dataset_id": path.name, "minari_version": minari.__version__})
        return storage

    return storage_of


# --- what fits ----------------------------------------------------------------------------------


def _plays(run: Run, wanted: Filter | None, replies: bool) -> tuple[list[_Play], Counter[str]]:
    plays, left_out = [], Counter[str]()
    valid = [summary for summary in run.episodes(wanted) if not summary.outcome.void]
    for recorded in run.opened(valid):
        play = _play(run, recorded, replies)
        if isinstance(play, str):
            left_out[play] += 1
        else:
            plays.append(play)
    if len({bool(play.frames) for play in plays}) > 1:
        raise ConfigError(f"{run.path}: some episodes have pictures and some have none")
    return plays, left_out


def _play(run: Run, recorded: RecordedEpisode, replies: bool) -> _Play | str:
    """What there is to write of an episode, or why it is left out."""
    turns, final = recorded.episode.turns, recorded.episode.final_frames
    if not turns:
        return "without a turn"
    if len(recorded.summary.rewards) != len(turns):
        return "without a score for each turn"
    if any(len(turn.frames) > 1 for turn in turns):
        raise ConfigError(
            f"{recorded.summary.id} shows several pictures in a turn: a data set of Minari has one "
            "for each observation"
        )
    pictured = any(turn.frames or IMAGE in turn.shown for turn in turns)
    frames = tuple(id for shown in (*(turn.frames for turn in turns), final[-1:]) for id in shown)
    if pictured and (len(frames) <= len(turns) or not all(map(run.frame_bytes, set(frames)))):
        return "without all frames (run.frames=device records them, the last one too)"
    if not replies and any(turn.action is None for turn in turns):
        return "with a reply that was no action (--replies takes the replies themselves)"
    texts = (*(turn.shown.replace(IMAGE, "") for turn in turns), recorded.episode.final_shown)
    return _Play(
        recorded=recorded,
        frames=frames if pictured else (),
        texts=tuple(encodable(text.strip()) for text in texts),
        actions=tuple(encodable(turn.reply) if replies else turn.action for turn in turns),
    )


def _size(run: Run, plays: Sequence[_Play], width: int | None) -> tuple[int, int] | None:
    """(width, height) of all pictures; None where there are none."""
    found = Counter(_size_of(run, id) for id in {id for play in plays for id in play.frames})
    if not found:
        return None
    if len(found) > 1:
        sizes = ", ".join(f"{w}x{h} ({count})" for (w, h), count in found.most_common())
        raise ConfigError(
            f"{run.path}: frames of several sizes, {sizes}; a data set of Minari has one. Choose "
            "episodes that agree (--split, --step, --label)"
        )
    ((own, height),) = found
    return (own, height) if width is None else (width, max(1, round(height * width / own)))


def _size_of(run: Run, frame_id: str) -> tuple[int, int]:
    """As the head of its PNG says."""
    head = (run.frame_bytes(frame_id) or b"")[16:24]
    if len(head) < 8:
        raise ConfigError(f"{run.path}: frame {frame_id} is damaged")
    width, height = struct.unpack(">II", head)
    return width, height


def _observation_space(plays: Sequence[_Play], size: tuple[int, int] | None) -> spaces.Space[Any]:
    texts = [text for play in plays for text in play.texts]
    if size is None:
        return _text_space(texts)
    image = spaces.Box(0, 255, (size[1], size[0], 3), np.uint8)
    return spaces.Dict({"image": image, "text": _text_space(texts)}) if any(texts) else image


def _action_space(plays: Sequence[_Play], replies: bool) -> spaces.Space[Any]:
    actions = [action for play in plays for action in play.actions]
    if replies:
        return _text_space(actions)
    if all(type(action) is int and abs(action) < _LARGEST for action in actions):
        least = min(actions)
        return spaces.Discrete(max(actions) - least + 1, start=least)
    if all(map(_is_vector, actions)) and len({len(action) for action in actions}) == 1:
        return spaces.Box(-np.inf, np.inf, (len(actions[0]),), np.float64)
    other = next((action for action in actions if type(action) is not int), actions[0])
    raise ConfigError(
        f"actions such as {str(other)[:80]} are neither all whole numbers nor all lists of as many "
        "numbers, which is what fits into a data set of Minari; --replies takes the replies instead"
    )


def _is_vector(action: Any) -> bool:
    return isinstance(action, list) and all(type(number) in (int, float) for number in action)


def _text_space(texts: Sequence[str]) -> spaces.Text:
    """Of all characters that there are."""
    signs = sorted(set("".join(texts))) or [" "]
    return spaces.Text(max(1, *map(len, texts)), min_length=0, charset="".join(signs))


# --- what is written ----------------------------------------------------------------------------


def _buffer(
    run: Run, play: _Play, space: spaces.Space[Any], size: tuple[int, int] | None
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


def _about(play: _Play) -> dict[str, Any]:
    summary = play.recorded.summary
    return {
        "episode": summary.id,
        "split": summary.split,
        "label": summary.label,
        "step": summary.step,
        "won": summary.won,
    }
