"""What reward functions need of an episode: its replies, what it was paid, and the truth."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.data.answers import answer_in
from agentrl.errors import ActionError
from agentrl.types import Episode


class NotTold(KeyError):
    """An environment's info does not say what a reward needs.

    Args:
        env_id: of the environment.
        key: what it does not say.
    """

    def __init__(self, env_id: str, key: str) -> None:
        super().__init__(f"the info of {env_id} has no {key!r}, which this reward needs")
        self.key = key


def env_reward(episode: Episode) -> list[float]:
    """The environment's own reward of each turn."""
    return [turn.env_reward for turn in episode.turns]


def last_reply(episode: Episode) -> str:
    """The last reply; empty where there was no turn."""
    return episode.turns[-1].reply if episode.turns else ""


def last_answer(episode: Episode) -> str | None:
    """The answer that the last reply gives, in a tag or a box; None where it gives none."""
    try:
        return answer_in(last_reply(episode))
    except ActionError:
        return None


def truth(episode: Episode, key: str) -> Any:
    """What the environment says of an episode: in the last turn's info, else in the first.

    Raises:
        NotTold: nothing by that name; a reward without it would be made up.
    """
    for turn in episode.turns[-1:]:
        if key in turn.info:
            return turn.info[key]
    return fact(episode, episode.reset_info, key)


def fact(episode: Episode, info: Mapping[str, Any], key: str) -> Any:
    """What one info of an episode says.

    Args:
        episode: for the message.
        info: of one of its turns, or of its first observation.
        key: what it must say.

    Raises:
        NotTold: nothing by that name; a reward without it would be made up.
    """
    if key not in info:
        raise NotTold(episode.env_id, key)
    return info[key]


def accepted(episode: Episode) -> Sequence[str]:
    """All answers that are right: `accepted` of the info, or else `ground_truth`.

    Raises:
        NotTold: it has neither.
    """
    try:
        found = truth(episode, "accepted")
    except NotTold:
        found = truth(episode, "ground_truth")
    many = isinstance(found, Sequence) and not isinstance(found, str)
    return [str(text) for text in found] if many else [str(found)]


def options(info: Mapping[str, Any]) -> Sequence[str]:
    """The options of a multiple choice; none where it is none."""
    return [str(option) for option in info.get("options") or ()]
