"""Batch reward functions: their inputs, their calls, and the check of what they return."""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from agentrl.data.reward_inputs import CHATML, IMAGE_COLUMN, ROW, QueryFormat, env_reward
from agentrl.errors import ConfigError, RewardError, message_of, users_location
from agentrl.rollout.rewards.sent_episode import Fetched, FirstItem, Joined
from agentrl.types import Episode, Image, finite

RewardInputs = dict[str, Any]
"""The inputs of a batch function for one episode; see `inputs_of`."""
RewardRow = dict[str, float]
"""Scores of one episode: `overall`, and further components; empty if the function does not
apply."""

BatchFunction = Callable[[list[RewardInputs]], Sequence[Mapping[str, Any]]]
OVERALL = "overall"
INPUT_NAMES = (
    "data_source", "response", "responses", "response_length", "response_ids", "ground_truth",
    "images", "shown", "instructions", "chat_prompt", "chat_text", "chat_messages", "screens",
    "env_rewards", "info",
)  # fmt: skip
"""The names that `inputs_of` gives besides those of the row's columns."""
SENT_IMAGES = ("images", "screens")
"""The inputs that hold images; `agentrl serve-reward` receives them as data URIs."""
_MAX_BATCH_SIZE = 64
"""Maximum number of episodes per call, unless the function has an attribute `max_batch_size`."""


def inputs_of(episode: Episode, form: QueryFormat = CHATML) -> RewardInputs:
    """Return the inputs of a batch function for one episode.

    Args:
        episode: with at least one turn.
        form: the chat format of the model that has played.

    Returns:
        `response`, the last reply; `responses`, all replies; `response_length` and
        `response_ids`, the tokens of the last reply; `ground_truth`, from the environment's info
        of the last turn, or else of the reset; `images`, those of the last prompt, uint8[H, W, 3]
        each; `shown`, the text of the last message, with `<image>` for each image;
        `instructions`, the system message; `chat_prompt`, what `prompt_messages` returns in the
        format of the model's chat template; `chat_text`, that with the last reply and its end
        token; `chat_messages`, the whole conversation as `{role, content}`, and `screens`, an image
        for each `<image>` that it has outside of replies; `env_rewards`, one per turn; `info`, of
        the last turn; `data_source`, the environment's id. If the question is from a data set, also
        every column of its row under its own name; a column `data_source` replaces the
        environment's id.
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
    """Return the messages up to the last reply as `{role, content}`, without the turns in between.

    These are the system message, those that precede the first turn, and that of the last turn.
    """
    *prompt, _ = replace(episode, turns=episode.turns[-1:]).messages()
    return [{"role": message.role, "content": message.text} for message in prompt]


def _listed(images: Sequence[Image]) -> Sequence[Image]:
    """Return a list, unless that would fetch the images."""
    return images if isinstance(images, Fetched) else [*images]


def _only_image(images: Sequence[Image]) -> Any:
    if isinstance(images, Fetched):
        return FirstItem(images) if images else None
    return images[0] if images else None


def _joined(parts: Sequence[Sequence[Image]]) -> Sequence[Image]:
    is_fetched = any(isinstance(images, Fetched) for images in parts)
    return Joined(parts) if is_fetched else [image for images in parts for image in images]


def max_batch_size(function: Any) -> int:
    """Return the most episodes per call, which a function limits by an attribute of that name.

    Raises:
        ConfigError: it is not a whole number of at least 1.
    """
    size = getattr(function, "max_batch_size", _MAX_BATCH_SIZE)
    if type(size) is not int or size < 1:
        raise ConfigError(f"max_batch_size={size!r} must be a whole number, 1 or more")
    return size


def score_batch(
    name: str, function: BatchFunction, inputs: list[RewardInputs]
) -> list[RewardRow | RewardError]:
    """Return a batch function's row for each episode, or its error.

    Raises:
        Exception: whatever the function raised; or it did not return a row for each episode.
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
    # A user's function may return objects that raise anything.
    except BaseException as error:
        location = users_location(error)
        kind = f"{type(error).__name__}: " if location else ""
        return RewardError(f"{name}: {kind}{message_of(error)}{location}")


def awaited(value: Any) -> Any:
    """Return a function's result, awaited if the function is asynchronous."""
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
