"""Inputs of reward functions: replies, environment rewards, ground truth and text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.data.grading import extract_answer
from agentrl.errors import ActionError
from agentrl.types import Episode

ROW, IMAGE_COLUMN = "row", "image_column"
"""Keys of the reset's info: a data set row's columns, for reward functions; and the name of its
image column, which the row holds as None (one image) or [] (a list)."""


@dataclass(slots=True, kw_only=True, frozen=True)
class QueryFormat:
    """How a model's chat template formats the text that reward functions receive."""

    prompt: Callable[[Sequence[Mapping[str, str]]], str]
    """Renders messages (`role`, `content`) as a prompt, up to the start of the reply."""
    end: str
    """Text of the token that ends a reply."""


def _chatml(messages: Sequence[Mapping[str, str]]) -> str:
    said = (f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in messages)
    return f"{''.join(said)}<|im_start|>assistant\n"


CHATML = QueryFormat(prompt=_chatml, end="<|im_end|>")
"""ChatML, used for models whose chat template is unknown."""


class MissingInfo(KeyError):
    """Raised if an environment's info lacks a key that a reward function needs."""

    def __init__(self, env_id: str, key: str) -> None:
        super().__init__(f"the info of {env_id} has no {key!r}, which this reward requires")
        self.env_id, self.key = env_id, key


def env_reward(episode: Episode) -> list[float]:
    """Return the environment's own reward for each turn."""
    return [turn.env_reward for turn in episode.turns]


def last_reply(episode: Episode) -> str:
    """Return the last reply; empty if there was no turn."""
    return episode.turns[-1].reply if episode.turns else ""


def last_answer(episode: Episode) -> str | None:
    """Return the last reply's answer: in a tag or a box, or the action that the translator parsed.

    Return None if the reply has no answer.
    """
    try:
        return extract_answer(last_reply(episode))
    except ActionError:
        actions = [turn.action for turn in episode.turns[-1:] if turn.parse_error is None]
        return next((action for action in actions if isinstance(action, str)), None)


def truth(episode: Episode, key: str) -> Any:
    """Return a value from the last turn's info, or else from the info of reset.

    Raises:
        MissingInfo: neither info has the key.
    """
    for turn in episode.turns[-1:]:
        if key in turn.info:
            return turn.info[key]
    return fact(episode, episode.reset_info, key)


def fact(episode: Episode, info: Mapping[str, Any], key: str) -> Any:
    """Return a value from one info of an episode, from one of its turns or from reset.

    Raises:
        MissingInfo: the info lacks the key.
    """
    if key not in info:
        raise MissingInfo(episode.env_id, key)
    return info[key]


def accepted(episode: Episode) -> Sequence[str]:
    """Return all accepted answers: the info's `accepted`, or else its `ground_truth`.

    Raises:
        MissingInfo: the info has neither key.
    """
    try:
        found = truth(episode, "accepted")
    except MissingInfo:
        found = truth(episode, "ground_truth")
    many = isinstance(found, Sequence) and not isinstance(found, str)
    return [str(text) for text in found] if many else [str(found)]


def options(info: Mapping[str, Any]) -> Sequence[str]:
    """Return the options of a multiple-choice question; empty for other questions."""
    return [str(option) for option in info.get("options") or ()]
