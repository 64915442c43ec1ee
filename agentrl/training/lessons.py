"""What a warm start teaches: demonstrations, played for it or recorded before, as samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from agentrl import env
from agentrl.config import Config, WarmStartConfig, parse_history
from agentrl.data.templates import render_instructions
from agentrl.errors import ConfigError, EnvError, boundary
from agentrl.policies.chat import ChatEncoder
from agentrl.policies.conversation import Conversation
from agentrl.policies.opening import open_encoder
from agentrl.policies.policy import Answer
from agentrl.policies.scripted import as_sampled
from agentrl.replay import Run
from agentrl.rollout.making import open_translator
from agentrl.training.batching import to_samples
from agentrl.training.choosing import Chosen
from agentrl.training.report.watching import Tell
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
    told = render_instructions(config.env.prompt, open_translator(config.env).instructions())
    found: list[Demonstration] = []
    for one in chosen:
        conversation = Conversation(encoder, told, parse_history(config.env.history))
        turns = []
        for turn, reply in zip(one.episode.turns, one.replies, strict=True):
            # The pictures of one turn alone are there at the device's size.
            message = Message(role="user", text=turn.shown, images=_pictures(one.run, turn))
            answer = as_sampled(
                conversation, encoder, message, reply, config.rollout.max_new_tokens
            )
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


class Lessons:
    """What the demonstrations teach: an endless, seeded stream of samples.

    A turn that stands alone (one prompt, one reply) can be answered anew by the player each time
    it is visited; whole conversations are taken as they were played.

    Args:
        demonstrations: not void.
        config: of the warm start.
        player: is asked anew; None where nobody is.
        encoder: of the model.
        seed: of the draws.
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
        for demonstration in demonstrations:
            episode = demonstration.episode
            samples = to_samples(episode, [1.0] * len(episode.turns))
            alone = len(samples) == len(episode.turns)
            asks = alone and config.relabel and demonstration.by_player
            before = [episode.reset_info, *(turn.info for turn in episode.turns)]
            for place, sample in enumerate(samples):
                info = dict(before[place]) if alone else {}
                self._samples.append(sample)
                self._infos.append(info if asks else None)
                weights.append(config.weights.get(str(info.get("phase")), 1.0))
        num_turns = sum(len(one.episode.turns) for one in demonstrations)
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
        prompt = sample.token_ids[: sample.loss_mask.index(True)]
        return Sample(
            token_ids=(*prompt, *reply),
            loss_mask=(False,) * len(prompt) + (True,) * len(reply),
            logprobs=(0.0,) * (len(prompt) + len(reply)),
            advantages=(0.0,) * len(prompt) + (1.0,) * len(reply),
            images=sample.images,
        )
