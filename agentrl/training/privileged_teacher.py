"""A teacher that is shown the true state, as text that the policy's prompts do not have."""

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.text.name_suggestions import known_names
from agentrl.types import Episode, TokenSequence

_SETTING = "algorithm.privileged"


class PrivilegedTeacher:
    """Scores an episode's tokens after prompts that say more than those of the policy.

    Each turn's text ends the message before its reply, and is not part of the following turns'
    prompts. So every turn is a sequence of its own.

    Args:
        text: template of the text, with the names of entries of the environment's info in braces.
        encoder: encoder of the policy's model.
        score: `Learner.score_teacher`.
    """

    def __init__(
        self,
        text: str,
        encoder: ChatEncoder,
        score: Callable[[Sequence[TokenSequence]], list[tuple[float, ...]]],
    ) -> None:
        self._text, self._encoder, self._score = text, encoder, score
        # What the chat format writes after a message does not depend on the message.
        following = encoder.chat_format.following
        one, other = (encoder.ids(following("user", (word,)))[::-1] for word in ("A", "b"))
        same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
        self._end = tuple(id for id, _ in same)[::-1]

    def check(self, episodes: Sequence[Episode]) -> None:
        """Check that the teacher can read the prompts of a job, given its first turns.

        Raises:
            ConfigError: see `score`.
        """
        for episode in episodes:
            for number in range(len(episode.turns)):
                self._sequence(episode, number, 0)

    def score(self, episodes: Sequence[Episode]) -> list[tuple[float, ...]]:
        """Return the log-probabilities of each episode's sampled tokens; () for void episodes.

        Raises:
            ConfigError: the environment's info lacks an entry, or a prompt does not end with a
                message.
        """
        sequences = [
            self._sequence(episode, number, index)
            for index, episode in enumerate(episodes)
            if not episode.outcome.void
            for number, turn in enumerate(episode.turns)
            if turn.reply_ids
        ]
        found: list[list[float]] = [[] for _ in episodes]
        scored = self._score(sequences) if sequences else []
        for sequence, logprobs in zip(sequences, scored, strict=True):
            found[sequence.episode] += logprobs
        return [tuple(own) for own in found]

    def _sequence(self, episode: Episode, number: int, index: int) -> TokenSequence:
        turn = episode.turns[number]
        # The info after an action describes the state in which the next turn starts.
        info = episode.turns[number - 1].info if number else episode.reset_info
        split = len(turn.prompt_ids) - len(self._end)
        if turn.prompt_ids[split:] != self._end:
            raise ConfigError(
                f"{_SETTING}: a prompt of {episode.env_id} does not end with a message that could "
                "be extended; remove the setting, or set env.history=concat"
            )
        text = self._encoder.text_ids("\n" + self._filled(info, episode.env_id))
        prompt = (*turn.prompt_ids[:split], *text, *self._end)
        return TokenSequence(
            token_ids=(*prompt, *turn.reply_ids),
            sampled_positions=tuple(range(len(prompt), len(prompt) + len(turn.reply_ids))),
            logprobs=turn.reply_logprobs,
            versions=turn.reply_versions,
            turns=(number,) * len(turn.reply_ids),
            images=turn.images,
            episode=index,
        )

    def _filled(self, info: Mapping[str, Any], env_id: str) -> str:
        try:
            return self._text.format_map(info)
        except KeyError as error:
            name = str(error.args[0])
            raise ConfigError(
                f"{_SETTING}: the info of {env_id} has no entry {name!r}"
                f"{known_names(name, map(str, info))}"
            ) from error
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{_SETTING}: cannot be filled with the info of {env_id}: {error}"
            ) from error
