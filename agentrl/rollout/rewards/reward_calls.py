"""Prepare inputs for batch reward functions, call them, and check their results."""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agentrl.data.reward_inputs import CHATML, IMAGE_COLUMN, ROW, QueryFormat, env_reward
from agentrl.errors import ConfigError, RewardError, message_of, users_location
from agentrl.rollout.rewards.lazy_episode_transfer import Fetched, FirstItem, Joined
from agentrl.types import Episode, Image, finite

RewardInputs = dict[str, Any]
"""A batch function's inputs for one episode; see `inputs_of`."""
RewardRow = dict[str, float]
"""Scores of one episode: `overall` and further components; empty if the function does not
apply to it."""

BatchFunction = Callable[[list[RewardInputs]], Sequence[Mapping[str, Any]]]
OVERALL = "overall"
INPUT_NAMES = (
    "data_source", "response", "responses", "response_length", "response_ids", "ground_truth",
    "images", "shown", "instructions", "chat_prompt", "chat_text", "chat_messages", "screens",
    "env_rewards", "info",
)  # fmt: skip
"""Names that `inputs_of` returns in addition to the row's columns."""
SENT_IMAGES = ("images", "screens")
"""Inputs that contain images; `agentrl serve-reward` receives them as data URIs."""
_MAX_BATCH_SIZE = 64
"""Default maximum number of episodes per call; a function's `max_batch_size` overrides it."""


@dataclass(slots=True, kw_only=True, frozen=True)
class RewardSpec:
    """Settings of a reward function, except for its weight."""

    function: str
    kwargs: Mapping[str, Any]
    kind: str


def inputs_of(episode: Episode, form: QueryFormat = CHATML) -> RewardInputs:
    """Return a batch function's inputs for one episode.

    Args:
        episode: an episode with at least one turn.
        form: the chat format of the model that played.

    Returns:
        `response`, the last reply; `responses`, all replies; `response_length` and
        `response_ids`, the tokens of the last reply; `ground_truth`, from the environment's info
        of the last turn, or else of the reset; `images`, the last prompt's images, uint8[H, W, 3]
        each; `shown`, the text of the last message, with `<image>` for each image;
        `instructions`, the system message; `chat_prompt`, the result of `prompt_messages` in the
        model's chat format; `chat_text`, the same followed by the last reply and its end token;
        `chat_messages`, the whole conversation as `{role, content}`, and `screens`, one image for
        each `<image>` in it outside of replies; `env_rewards`, one per turn; `info`, from the last
        turn; `data_source`, the environment's id. If the question comes from a data set, also every
        column of its row under the column's name; a column `data_source` replaces the environment's
        id.
    """
    last = episode.turns[-1]
    source = next((i for i in (last.info, episode.reset_info) if "ground_truth" in i), {})
    images = _listed(last.images)
    row = dict(episode.reset_info.get(ROW) or {})
    if (column := episode.reset_info.get(IMAGE_COLUMN)) in row:
        row[column] = images if isinstance(row[column], list) else _only_image(images)
    messages = episode.messages()
    prompt = form.prompt(prompt_messages(episode))
    return {
        "data_source": episode.env_id,
        **row,
        "response": last.reply,
        "responses": [turn.reply for turn in episode.turns],
        "response_length": len(last.reply_ids),
        "response_ids": list(last.reply_ids),
        "ground_truth": source.get("ground_truth"),
        "images": images,
        "shown": last.shown,
        "instructions": episode.instructions,
        "chat_prompt": prompt,
        "chat_text": f"{prompt}{last.reply}{form.end}",
        "chat_messages": [{"role": one.role, "content": one.text} for one in messages],
        "screens": _joined([_listed(one.images) for one in messages]),
        "env_rewards": env_reward(episode),
        "info": dict(last.info),
    }


def prompt_messages(episode: Episode) -> list[dict[str, str]]:
    """Return the messages before the last reply as `{role, content}`, without the turns in between.

    These are the system message, messages before the first turn, and the last turn's message.
    """
    *prompt, _ = replace(episode, turns=episode.turns[-1:]).messages()
    return [{"role": message.role, "content": message.text} for message in prompt]


def _listed(images: Sequence[Image]) -> Sequence[Image]:
    """Return the images as a list, unless that would fetch them."""
    return images if isinstance(images, Fetched) else [*images]


def _only_image(images: Sequence[Image]) -> Any:
    if isinstance(images, Fetched):
        return FirstItem(images) if images else None
    return images[0] if images else None


def _joined(parts: Sequence[Sequence[Image]]) -> Sequence[Image]:
    is_fetched = any(isinstance(images, Fetched) for images in parts)
    return Joined(parts) if is_fetched else [image for images in parts for image in images]


def max_batch_size(function: Any) -> int:
    """Return a function's maximum number of episodes per call.

    Raises:
        ConfigError: the function's attribute `max_batch_size` is not a positive integer.
    """
    size = getattr(function, "max_batch_size", _MAX_BATCH_SIZE)
    if type(size) is not int or size < 1:
        raise ConfigError(f"max_batch_size={size!r} must be a positive integer")
    return size


def score_batch(
    name: str, function: BatchFunction, inputs: list[RewardInputs]
) -> list[RewardRow | RewardError]:
    """Return a batch function's row for each episode, or its error.

    Raises:
        Exception: raised by the function, or the result is not a row per episode.
    """
    rows: Any = awaited(function(inputs))
    if not isinstance(rows, Sequence) or isinstance(rows, str | bytes):
        raise TypeError(f"returned {type(rows).__name__}, not a list of dictionaries")
    if len(rows) != len(inputs):
        raise ValueError(f"returned {len(rows)} rows for {len(inputs)} episodes")
    return [_check_row(name, row) for row in rows]


def _check_row(name: str, row: Any) -> RewardRow | RewardError:
    try:
        if not isinstance(row, Mapping):
            raise TypeError(f"a row is {type(row).__name__}, not a dictionary")
        if row.keys() == {"error"}:
            return RewardError(f"{name}: {str(row['error'])[:500]}")
        if not row:
            return {}
        if OVERALL not in row:
            raise ValueError(f"a row has no {OVERALL!r}; it has {sorted(map(str, row))[:8]}")
        numbers = {str(key): finite(repr(str(key)), value) for key, value in row.items()}
        return {OVERALL: numbers.pop(OVERALL), **numbers}
    # A user's function may return objects that raise any exception.
    except BaseException as error:
        location = users_location(error)
        kind = f"{type(error).__name__}: " if location else ""
        return RewardError(f"{name}: {kind}{message_of(error)}{location}")


def awaited(value: Any) -> Any:
    """Return a function's result, awaiting it if the function is asynchronous."""
    return asyncio.run(_await(value)) if inspect.isawaitable(value) else value


async def _await(value: Any) -> Any:
    return await value


def per_turn(name: str, value: Any, count: int) -> tuple[float, ...]:
    """Return a reward per turn; a single number counts for the last turn."""
    if np.ndim(value) == 0:
        return (*[0.0] * (count - 1), finite("a value", value))
    values = list(value)
    if len(values) != count:
        raise RewardError(f"reward {name!r} returned {len(values)} values for {count} turns")
    return tuple(finite("a value", reward) for reward in values)
