"""What of recorded episodes fits into a data set of Minari, and into which spaces."""

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
"""Of an action that is a number."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Play:
    """What a data set takes of an episode of T turns."""

    recorded: RecordedEpisode
    frames: tuple[str, ...]
    """[T + 1] ids, or none where there are no pictures."""
    texts: tuple[str, ...]
    """[T + 1] words that were shown."""
    actions: tuple[Any, ...]
    """[T]"""


def plays_of(run: Run, wanted: Filter | None, replies: bool) -> tuple[list[Play], Counter[str]]:
    """What there is to write, and how many episodes are left out for what reason.

    Args:
        run: the recorded run.
        wanted: which episodes; None for all. Void ones are left out and not counted.
        replies: the actions are the words of the replies.

    Raises:
        ConfigError: some episodes have pictures and some have none, or several in a turn.
    """
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


def _play(run: Run, recorded: RecordedEpisode, replies: bool) -> Play | str:
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
    texts = (
        *(without_placeholders(turn.shown) for turn in turns),
        recorded.episode.final_shown.strip(),
    )
    return Play(
        recorded=recorded,
        frames=frames if pictured else (),
        texts=tuple(map(encodable, texts)),
        actions=tuple(encodable(turn.reply) if replies else turn.action for turn in turns),
    )


def size_of(run: Run, plays: Sequence[Play], width: int | None) -> tuple[int, int] | None:
    """(width, height) of all pictures; None where there are none.

    Args:
        run: the recorded run.
        plays: at least one.
        width: what they are scaled to; None keeps their own size.

    Raises:
        ConfigError: they are of several sizes, or one is damaged.
    """
    found = Counter(_head_of(run, id) for id in {id for play in plays for id in play.frames})
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


def _head_of(run: Run, frame_id: str) -> tuple[int, int]:
    """As the head of its PNG says."""
    head = (run.frame_bytes(frame_id) or b"")[16:24]
    if len(head) < 8:
        raise ConfigError(f"{run.path}: frame {frame_id} is damaged")
    width, height = struct.unpack(">II", head)
    return width, height


def observation_space(plays: Sequence[Play], size: tuple[int, int] | None) -> spaces.Space[Any]:
    """Of a picture of this (width, height), of words, or of both, by what was shown."""
    texts = [text for play in plays for text in play.texts]
    if size is None:
        return _text_space(texts)
    image = spaces.Box(0, 255, (size[1], size[0], 3), np.uint8)
    return spaces.Dict({"image": image, "text": _text_space(texts)}) if any(texts) else image


def action_space(plays: Sequence[Play], replies: bool) -> spaces.Space[Any]:
    """As wide as the actions that there are.

    Raises:
        ConfigError: they are neither all numbers nor all lists of as many numbers.
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
        f"actions such as {str(other)[:80]} are neither all whole numbers nor all lists of as many "
        "numbers, which is what fits into a data set of Minari; --replies takes the replies instead"
    )


def _is_vector(action: Any) -> bool:
    return isinstance(action, list) and all(type(number) in (int, float) for number in action)


def _text_space(texts: Sequence[str]) -> spaces.Text:
    """Of all characters that there are."""
    signs = sorted(set("".join(texts))) or [" "]
    return spaces.Text(max(1, *map(len, texts)), min_length=0, charset="".join(signs))
