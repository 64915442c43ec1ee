"""What a warm start teaches: demonstrations, played for it or recorded before, as samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from agentrl import env
from agentrl.config import Config, WarmStartConfig, parse_history
from agentrl.errors import ConfigError, EnvError, boundary
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.conversation import Conversation
from agentrl.policies.open_model import open_encoder
from agentrl.policies.policy import Answer
from agentrl.policies.scripted_policy import as_sampled
from agentrl.replay import Run
from agentrl.rollout.make_env import instructions_of, open_translator
from agentrl.training.batching.batches import evenly, to_samples
from agentrl.training.monitoring.rollout_progress import Tell
from agentrl.training.supervised.demonstration_filter import Chosen
from agentrl.types import Episode, Image, Message, Sample, Turn


@dataclass(slots=True, kw_only=True, frozen=True)
class Demonstration:
    """An episode with the prompts and replies that are taught."""

    episode: Episode
    by_player: bool
    """Whether the scripted player played it, and can be asked again what it answers."""


def retold(
    config: Config,
    folder: Path,
    chosen: Sequence[Chosen],
    tell: Tell = lambda done, total, note: None,
) -> list[Demonstration]:
    """The recorded episodes of a warm start, as this job's model would have played them.

    Their prompts are built anew from what was shown, with this job's instructions, history and
    sizes of pictures; the tokens that were recorded are another model's, or nobody's.

    Args:
        config: the job.
        folder: of the model's tokenizer.
        chosen: the episodes.
        tell: told after each episode how many are done, of how many.

    Raises:
        ConfigError: a frame is damaged, or a reply longer than `rollout.max_new_tokens`.
    """
    encoder = open_encoder(config.model, folder)
    told = instructions_of(config.env, open_translator(config.env))
    found: list[Demonstration] = []
    for one in chosen:
        conversation = Conversation(encoder, told, parse_history(config.env.history))
        turns = []
        for turn, reply in zip(one.episode.turns, one.replies, strict=True):
            # The pictures of one turn alone are there at the device's size.
            message = Message(role="user", text=turn.shown, images=_pictures(one.run, turn))
            # What is not taught need not be what the model could end.
            most = config.rollout.max_new_tokens if _is_taught(turn) else None
            answer = as_sampled(conversation, encoder, message, reply, most)
            turns.append(_answered(turn, answer))
        episode = replace(one.episode, turns=tuple(turns))
        found.append(Demonstration(episode=episode, by_player=one.by_player))
        tell(len(found), len(chosen), "recorded episodes")
    return found


def _answered(turn: Turn, answer: Answer) -> Turn:
    """The turn as if this answer had been given in it."""
    ids = answer.reply.token_ids
    return replace(
        turn,
        prompt_ids=answer.prompt.token_ids,
        reply_ids=ids,
        reply_logprobs=answer.reply.logprobs,
        reply_versions=(answer.reply.version,) * len(ids),
        reply=answer.text,
        images=answer.prompt.images,
    )


def _pictures(run: Run, turn: Turn) -> tuple[Image, ...]:
    pictures = []
    for frame in turn.frames:
        picture = run.frame(frame)
        if picture is None:
            raise ConfigError(f"warm_start.recorded: {run.path} has a damaged frame, {frame}")
        pictures.append(picture)
    return tuple(pictures)


def _is_taught(turn: Turn) -> bool:
    """Not where the reply was no action."""
    return turn.parse_error is None


def _taught(episode: Episode) -> tuple[Episode, list[Mapping[str, Any]]]:
    """With the turns alone that are taught, and what was known before each of them."""
    known = (episode.reset_info, *(turn.info for turn in episode.turns))
    both = [(turn, info) for turn, info in zip(episode.turns, known, strict=False)
            if _is_taught(turn)]  # fmt: skip
    return replace(episode, turns=tuple(turn for turn, _ in both)), [info for _, info in both]


class Lessons:
    """What the demonstrations teach: an endless, seeded stream of samples.

    A reply that was no action is not taught; it stands in the prompts after it, as it was said.
    A turn that stands alone (one prompt, one reply) can be answered anew by the player each time
    it is visited; whole conversations are taken as they were played.

    Args:
        demonstrations: not void.
        config: of the warm start.
        player: is asked anew; None where nobody is.
        encoder: of the model.
        seed: of the draws.

    Raises:
        ConfigError: no reply was an action.
    """

    def __init__(
        self,
        demonstrations: Sequence[Demonstration],
        config: WarmStartConfig,
        player: env.Player | None,
        encoder: ChatEncoder,
        seed: int,
    ) -> None:
        self._player = player
        self._encoder = encoder
        self._rng = np.random.default_rng(seed)
        self._samples: list[Sample] = []
        self._infos: list[dict[str, object] | None] = []
        weights: list[float] = []
        num_turns = 0
        for demonstration in demonstrations:
            episode, before = _taught(demonstration.episode)
            samples = to_samples(episode, evenly(episode, [1.0] * len(before)))
            alone = len(samples) == len(before)
            asks = alone and config.relabel and demonstration.by_player
            num_turns += len(before)
            for place, sample in enumerate(samples):
                info = dict(before[place]) if alone else {}
                self._samples.append(sample)
                self._infos.append(info if asks else None)
                weights.append(config.weights.get(str(info.get("phase")), 1.0))
        if not self._samples:
            raise ConfigError("warm_start: not one reply of its demonstrations was an action")
        self._turns_per_sample = num_turns / len(self._samples)
        total = sum(weights)
        self._odds = [w / total for w in weights]

    def draw(self, turns: int) -> list[Sample]:
        """The samples of one step, which hold about as many turns."""
        count = max(1, round(turns / self._turns_per_sample))
        places = self._rng.choice(len(self._samples), size=count, p=self._odds)
        return [self._sample(int(place)) for place in places]

    def _sample(self, place: int) -> Sample:
        sample, info = self._samples[place], self._infos[place]
        if info is None or self._player is None:
            return sample
        with boundary(EnvError, "the player's answer"):
            reply = self._encoder.reply_ids(self._player.reply(info, self._rng))
        prompt = sample.token_ids[: sample.places[0]]
        return Sample(
            token_ids=(*prompt, *reply),
            places=tuple(range(len(prompt), len(prompt) + len(reply))),
            logprobs=(0.0,) * len(reply),
            advantages=(1.0,) * len(reply),
            images=sample.images,
            turns=(0,) * len(reply),
        )
