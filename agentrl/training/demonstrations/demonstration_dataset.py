"""Turns demonstrations, played for a warm start or recorded earlier, into training samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agentrl.actions.players.player import Player, takes_observation
from agentrl.config import History, WarmStartConfig
from agentrl.errors import ConfigError, EnvError, boundary
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.policies.policy import Answer
from agentrl.policies.scripted_policy import encode_as_sampled
from agentrl.replay import Run
from agentrl.rollout.environments.load_translator_and_players import (
    ResizeOf,
    load_player,
    open_translator,
)
from agentrl.rollout.environments.prompt_messages import instructions_for
from agentrl.rollout.environments.resolved_env import ResolvedEnv
from agentrl.rollout.run_episode import ENVIRONMENT
from agentrl.training.batching.episode_splitting import split_into_sequences
from agentrl.training.demonstrations.demonstration_filter import SelectedEpisode
from agentrl.training.demonstrations.dialect_rewriter import DialectRewriter
from agentrl.training.monitoring.progress import OnProgress
from agentrl.types import Episode, Image, Message, TokenSequence, Turn, give_images


@dataclass(slots=True, kw_only=True, frozen=True)
class Demonstration:
    """An episode with the prompts and replies to train on."""

    episode: Episode
    by_player: bool
    """True if the scripted player played the episode, so that it can be relabeled."""


def load_labeler(
    env: ResolvedEnv, warm: WarmStartConfig, resize_of: ResizeOf | None = None
) -> Player | None:
    """Load the player that relabels demonstrations; None if they are learned as they were played.

    Raises:
        ConfigError: `warm_start.relabel` names a player that does not exist or cannot relabel.
    """
    if warm.labeler is None:
        return None
    try:
        player = load_player(env, warm.labeler, resize_of)
    except ConfigError as error:
        setting = "player" if warm.relabel is True else "relabel"
        raise ConfigError(f"warm_start.{setting}={warm.labeler}: {error}") from None
    if takes_observation(player):
        why = f"this player of {env.id} needs observations, which are not recorded"
    elif env.history == History() and env.settings.max_turns > 1:
        why = "a whole conversation cannot be relabeled; set env.history to window:1"
    else:
        return player
    if isinstance(warm.relabel, str):
        raise ConfigError(f"warm_start.relabel={warm.relabel}: {why}")
    return None


def rerender_demonstrations(
    chosen: Sequence[SelectedEpisode],
    env: ResolvedEnv,
    encoder: ChatEncoder,
    max_new_tokens: int,
    on_progress: OnProgress = lambda done, total, note: None,
) -> list[Demonstration]:
    """Render recorded episodes as this job's model would have seen them.

    Prompts are rebuilt from the recorded observations, with this job's instructions, history and
    image size. Recorded token ids are not used, because they may be missing or come from another
    tokenizer.

    Raises:
        ConfigError: a frame is damaged, or a reply is longer than `rollout.max_new_tokens`.
    """
    writer = DialectRewriter(env, encoder) if env.settings.dialect is not None else None
    translator = open_translator(env) if writer is None else writer.translator
    demonstrations: list[Demonstration] = []
    for selected in chosen:
        instructions = instructions_for(env.settings, translator, selected.episode.reset_info)
        conversation = Conversation(encoder, instructions, env.history)
        turns: list[Turn] = []
        if writer is not None:
            writer.begin_episode()
        for turn, reply in zip(selected.episode.turns, selected.replies, strict=True):
            # Load the images of one turn at a time, because they have the device's full resolution.
            images = _images(selected.run, turn)
            preceding, images = give_images(() if turns else selected.episode.preceding, images)
            message = Message(role="user", text=turn.shown, images=images, preceding=preceding)
            if writer is not None:
                message, reply = writer.rewritten(message, turn)
            # A reply that is only used as context may be longer than the model's limit.
            limit = max_new_tokens if _is_target(turn) else None
            answer = encode_as_sampled(conversation, encoder, message, reply, limit)
            turns.append(_with_answer(turn, answer))
        episode = replace(selected.episode, turns=tuple(turns))
        demonstrations.append(Demonstration(episode=episode, by_player=selected.by_player))
        on_progress(len(demonstrations), len(chosen), "recorded episodes")
    return demonstrations


def _with_answer(turn: Turn, answer: Answer) -> Turn:
    """Return the turn with its prompt and reply replaced."""
    ids = answer.reply.token_ids
    return replace(
        turn,
        prompt_ids=answer.prompt.token_ids,
        reply_ids=ids,
        reply_logprobs=answer.reply.logprobs,
        reply_versions=answer.reply.token_versions,
        reply=answer.text,
        images=answer.prompt.images,
    )


def _images(run: Run, turn: Turn) -> tuple[Image, ...]:
    images = []
    for frame in turn.frames:
        image = run.frame(frame)
        if image is None:
            raise ConfigError(f"warm_start.recorded: {run.path} has a damaged frame, {frame}")
        images.append(image)
    return tuple(images)


def _is_target(turn: Turn) -> bool:
    """Return whether a reply is trained on: it is an action, and the policy's (`env.start`)."""
    return turn.parse_error is None and turn.guide is None


def _only_targets(episode: Episode) -> tuple[Episode, list[Mapping[str, Any]]]:
    """Keep turns that are trained on; also return the info before each of them."""
    infos = (episode.reset_info, *(turn.info for turn in episode.turns))
    both = [(turn, info) for turn, info in zip(episode.turns, infos, strict=False)
            if _is_target(turn)]  # fmt: skip
    return replace(episode, turns=tuple(turn for turn, _ in both)), [info for _, info in both]


class DemonstrationDataset:
    """An endless, seeded stream of supervised samples drawn from demonstrations.

    A reply that was not an action, or that a guide gave (`env.start`), is not a training target; it
    appears only in later prompts.
    Single-turn samples (one prompt, one reply) are relabeled by their environment's player each
    time they are drawn. Multi-turn conversations are used as they were played.

    Args:
        demonstrations: episodes that are not void.
        config: warm start settings.
        players: players that relabel the samples, by the environment's name in `mixture` (empty
            without a mixture), from `load_labeler`; without a player, the demonstrated replies are
            used.
        encoder: the model's.
        seed: seed of the draws.
    """

    def __init__(
        self,
        demonstrations: Sequence[Demonstration],
        config: WarmStartConfig,
        players: Mapping[str, Player],
        encoder: ChatEncoder,
        seed: int,
    ) -> None:
        self._encoder = encoder
        self._rng = np.random.default_rng(seed)
        self._samples: list[TokenSequence] = []
        self._relabelings: list[tuple[Player, dict[str, object]] | None] = []
        weights: list[float] = []
        num_turns = 0
        for demonstration in demonstrations:
            episode, before = _only_targets(demonstration.episode)
            samples = split_into_sequences(episode)
            is_single_turn = len(samples) == len(before)
            relabels = is_single_turn and demonstration.by_player
            player = players.get(episode.reset_info.get(ENVIRONMENT, "")) if relabels else None
            num_turns += len(before)
            for index, sample in enumerate(samples):
                info = dict(before[index]) if is_single_turn else {}
                self._samples.append(sample)
                self._relabelings.append(None if player is None else (player, info))
                weights.append(config.phase_weights.get(str(info.get("phase")), 1.0))
        if not self._samples:
            raise ConfigError("warm_start: the demonstrations contain no valid actions")
        self._turns_per_sample = num_turns / len(self._samples)
        total = sum(weights)
        self._probabilities = [w / total for w in weights]

    def draw(self, turns: int) -> list[TokenSequence]:
        """Draw samples with about `turns` turns in total."""
        count = max(1, round(turns / self._turns_per_sample))
        indices = self._rng.choice(len(self._samples), size=count, p=self._probabilities)
        return [self._sample(int(index)) for index in indices]

    def _sample(self, index: int) -> TokenSequence:
        sample, relabeling = self._samples[index], self._relabelings[index]
        if relabeling is None:
            return sample
        player, info = relabeling
        with boundary(EnvError, "the player's answer"):
            reply = self._encoder.reply_ids(player.reply(info, self._rng))
        prompt = sample.token_ids[: sample.sampled_positions[0]]
        return TokenSequence(
            token_ids=(*prompt, *reply),
            sampled_positions=tuple(range(len(prompt), len(prompt) + len(reply))),
            logprobs=(0.0,) * len(reply),
            versions=(0,) * len(reply),
            turns=(0,) * len(reply),
            images=sample.images,
            episode=0,
        )
