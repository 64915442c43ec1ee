"""Select the recorded episodes that a Minari data set can hold, and derive its spaces."""

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from agentrl.errors import ConfigError
from agentrl.replay.episode_filters import Filter
from agentrl.replay.reader import RecordedEpisode, Run
from agentrl.text import encodable
from agentrl.types import IMAGE, without_placeholders

_LARGEST = 1 << 53
"""Largest magnitude of an integer action."""


@dataclass(slots=True, kw_only=True, frozen=True)
class MinariEpisode:
    """The part of a T-turn episode that goes into a Minari data set."""

    recorded: RecordedEpisode
    frames: tuple[str, ...]
    """[T + 1] frame ids; empty if the environment shows no images."""
    texts: tuple[str, ...]
    """[T + 1] text that was shown."""
    actions: tuple[Any, ...]
    """[T]"""


def select_episodes(
    run: Run, where: Filter | None, replies: bool
) -> tuple[list[MinariEpisode], Counter[str]]:
    """Episodes to write, and the number of skipped episodes by reason.

    Args:
        run: the recorded run.
        where: which episodes; None for all. Void ones are skipped and not counted.
        replies: use the text of the replies as actions.

    Raises:
        ConfigError: only some episodes have images, or a turn has more than one.
    """
    plays, left_out = [], Counter[str]()
    valid = [summary for summary in run.episodes(where) if not summary.outcome.void]
    for recorded in run.opened(valid):
        play = _play(run, recorded, replies)
        if isinstance(play, str):
            left_out[play] += 1
        else:
            plays.append(play)
    if len({bool(play.frames) for play in plays}) > 1:
        raise ConfigError(
            f"{run.path}: some episodes have images and others have none; choose one kind "
            "(--split, --step, --label)"
        )
    return plays, left_out


def _play(run: Run, recorded: RecordedEpisode, replies: bool) -> MinariEpisode | str:
    """The data to write for an episode, or the reason why it is skipped."""
    turns, final = recorded.episode.turns, recorded.episode.final_frames
    if not turns:
        return "without a turn"
    if len(recorded.summary.rewards) != len(turns):
        return "without a score for each turn"
    if any(len(turn.frames) > 1 for turn in turns):
        raise ConfigError(
            f"{recorded.summary.id} has several images in one turn, but a Minari observation has "
            "one image"
        )
    pictured = any(turn.frames or IMAGE in turn.shown for turn in turns)
    frames = tuple(id for shown in (*(turn.frames for turn in turns), final[-1:]) for id in shown)
    if pictured and (len(frames) <= len(turns) or not all(map(run.frame_bytes, set(frames)))):
        return "with missing frames (run.frames=device records all of them, the last one too)"
    if not replies and any(turn.action is None for turn in turns):
        return "with a reply that could not be parsed (--replies uses the replies as actions)"
    texts = (
        *(without_placeholders(turn.shown) for turn in turns),
        recorded.episode.final_shown.strip(),
    )
    return MinariEpisode(
        recorded=recorded,
        frames=frames if pictured else (),
        texts=tuple(map(encodable, texts)),
        actions=tuple(encodable(turn.reply) if replies else turn.action for turn in turns),
    )


def common_size(
    run: Run, plays: Sequence[MinariEpisode], width: int | None
) -> tuple[int, int] | None:
    """(width, height) shared by all images; None if there are no images.

    Args:
        run: the recorded run.
        plays: at least one.
        width: scale images to this width in pixels; None keeps their size.

    Raises:
        ConfigError: the images differ in size, or one is damaged.
    """
    counts = Counter(_png_size(run, id) for id in {id for play in plays for id in play.frames})
    if not counts:
        return None
    if len(counts) > 1:
        sizes = ", ".join(f"{w}x{h} ({count})" for (w, h), count in counts.most_common())
        raise ConfigError(
            f"{run.path}: frames of different sizes, {sizes}; a Minari data set has one size. "
            "Choose episodes of one size (--split, --step, --label)"
        )
    ((recorded_width, height),) = counts
    if width is None:
        return recorded_width, height
    return width, max(1, round(height * width / recorded_width))


def _png_size(run: Run, frame_id: str) -> tuple[int, int]:
    """(width, height) from the PNG header."""
    header = (run.frame_bytes(frame_id) or b"")[16:24]
    if len(header) < 8:
        raise ConfigError(f"{run.path}: frame {frame_id} is damaged")
    width, height = struct.unpack(">II", header)
    return width, height


def observation_space(
    plays: Sequence[MinariEpisode], size: tuple[int, int] | None
) -> spaces.Space[Any]:
    """Space of an image of this (width, height), of text, or a dictionary of both."""
    texts = [text for play in plays for text in play.texts]
    if size is None:
        return _text_space(texts)
    image = spaces.Box(0, 255, (size[1], size[0], 3), np.uint8)
    return spaces.Dict({"image": image, "text": _text_space(texts)}) if any(texts) else image


def action_space(plays: Sequence[MinariEpisode], replies: bool) -> spaces.Space[Any]:
    """The smallest space that contains all recorded actions.

    Raises:
        ConfigError: the actions are neither all integers nor all number lists of one length.
    """
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
        f"actions such as {str(other)[:80]} do not fit into a Minari data set, which takes "
        "integers or number lists of one length; --replies uses the replies as actions instead"
    )


def _is_vector(action: Any) -> bool:
    return isinstance(action, list) and all(type(number) in (int, float) for number in action)


def _text_space(texts: Sequence[str]) -> spaces.Text:
    """A space over exactly the characters that occur."""
    charset = sorted(set("".join(texts))) or [" "]
    return spaces.Text(max(1, *map(len, texts)), min_length=0, charset="".join(charset))
