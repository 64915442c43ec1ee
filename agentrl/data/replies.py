"""What a reward function of single answers needs of an episode: its reply and the truth."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.data.answers import answer_in
from agentrl.errors import ActionError
from agentrl.types import Episode


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
        KeyError: nothing by that name; a reward without it would be made up.
    """
    for info in (*(turn.info for turn in episode.turns[-1:]), episode.reset_info):
        if key in info:
            return info[key]
    raise KeyError(f"the environment's info has no {key!r}, which this reward needs")


def accepted(episode: Episode) -> Sequence[str]:
    """All answers that are right: `accepted` of the info, or else `ground_truth`.

    Raises:
        KeyError: it has neither.
    """
    try:
        found = truth(episode, "accepted")
    except KeyError:
        found = truth(episode, "ground_truth")
    many = isinstance(found, Sequence) and not isinstance(found, str)
    return [str(text) for text in found] if many else [str(found)]


def options(info: Mapping[str, Any]) -> Sequence[str]:
    """The options of a multiple choice; none where it is none."""
    return [str(option) for option in info.get("options") or ()]
