"""The data types that pass between the stages of agentrl; each is complete when it is built.

Shapes: H, W height and width of an image; P prompt tokens; R reply tokens; L sample tokens;
B samples of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from agentrl.errors import WorldError
from agentrl.notebook_html import Cell, film_strip

if TYPE_CHECKING:
    from torch import Tensor

Image = NDArray[np.uint8]
"""One image, uint8[H, W, 3], RGB."""
TopLogprobs = tuple[tuple[int, float], ...]
"""The most probable tokens at one position, most probable first: id and log-probability."""
Split = Literal["train", "eval", "demo"]
"""What an episode is played for: training, evaluation or demonstration."""
IMAGE = "<image>"
"""Placeholder of an image in the text of a message."""


def is_final(image: Image) -> bool:
    """Whether an image cannot change: it is read-only and no view of another array."""
    return not image.flags.writeable and image.base is None


def give_images(
    messages: Sequence[Message], images: tuple[Image, ...]
) -> tuple[tuple[Message, ...], tuple[Image, ...]]:
    """The messages with their images, which are the first ones of some, and the other images."""
    found, start = [], 0
    for message in messages:
        end = start + message.num_images
        found.append(replace(message, images=images[start:end]))
        start = end
    return tuple(found), images[start:]


def transcript_of(messages: Sequence[Message]) -> str:
    """The texts of messages with their roles, without image placeholders."""
    return "\n\n".join(f"{one.role}: {without_placeholders(one.text)}" for one in messages)


def without_placeholders(message: str) -> str:
    """The text of a message without its image placeholders."""
    return message.replace(IMAGE, "").strip()


def finite(name: str, value: Any) -> float:
    """A value as a finite float.

    Args:
        name: name of the value, for messages.
        value: a number of any library, or an array or tensor of one number.

    Raises:
        TypeError, ValueError: it is not a number (such as the text "1.0"), or not finite.
    """
    try:
        plain = value.item() if hasattr(value, "item") else value
        number = float(plain) if hasattr(plain, "__float__") else None  # texts and bytes have none
    except OverflowError:
        raise ValueError(f"{name} is too large a number") from None
    except (TypeError, ValueError, RuntimeError):  # torch raises the last one
        number = None
    if number is None:
        raise TypeError(f"{name} is {value!r:.60} ({type(value).__name__}), not a number")
    if not math.isfinite(number):
        raise ValueError(f"{name} is {value!r:.60}, not a finite number")
    return number


class Outcome(StrEnum):
    """How an episode ended."""

    TERMINATED = "terminated"
    """The environment ended it: the return is complete, nothing is bootstrapped."""
    TRUNCATED = "truncated"
    """It reached a limit of turns or tokens: valid, and a critic bootstraps the last state's
    value."""
    TIMEOUT = "timeout"
    """It exceeded its deadline: discarded and replayed."""
    DEVICE_ERROR = "device_error"
    """A phone failed: discarded and replayed."""
    ENV_ERROR = "env_error"
    """An environment, engine or reward function failed: discarded and replayed."""

    @property
    def void(self) -> bool:
        """True for an infrastructure failure: no reward, no gradient, replayed within a bound."""
        return self not in (Outcome.TERMINATED, Outcome.TRUNCATED)


class TruncatedBy(StrEnum):
    """The limit that a truncated episode reached."""

    ENVIRONMENT = "environment"
    """The environment's own."""
    TURNS = "turns"
    """`env.max_turns`."""
    CONTEXT = "context"
    """`rollout.max_context`: the next prompt and its reply might not have fit."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Observation:
    """Output of an environment at its own resolution, kept only while its turn is played."""

    images: tuple[Image, ...] = ()
    """The screens, in the order in which the text refers to them."""
    text: str = ""
    """Text that the environment shows."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Message:
    """One message of a conversation; each `IMAGE` in the text stands for the next image."""

    role: str
    """`user`, `assistant`, `system` or `tool`."""
    text: str
    """The text, with `IMAGE` for each image."""
    images: tuple[Image, ...] = ()
    """The images, in the order of their placeholders."""
    opening_text: str | None = None
    """The text where this is the first message of its prompt; None for `text`."""
    system: str | None = None
    """The system message of a conversation that this message starts; None for the instructions of
    the environment."""
    preceding: tuple[Message, ...] = ()
    """Earlier questions and replies, in turns, of a conversation in which the player's first reply
    is to this message; without the system message."""

    @property
    def all_images(self) -> tuple[Image, ...]:
        """The images of the earlier messages, and its own."""
        return (*(image for one in self.preceding for image in one.images), *self.images)

    @property
    def num_images(self) -> int:
        """The number of images that the text has places for; a reply has none."""
        return 0 if self.role == "assistant" else self.text.count(IMAGE)

    def transcript(self) -> str:
        """The text without image placeholders, after the earlier messages with their roles."""
        earlier = transcript_of((*self.preceding, self)) if self.preceding else ""
        return earlier or without_placeholders(self.text)

    def split_at_images(self) -> list[str]:
        """The texts around the images, one more than there are images.

        Raises:
            ValueError: the number of `<image>` placeholders and of images differ.
        """
        texts = self.text.split(IMAGE)
        if len(texts) != 1 + len(self.images):
            raise ValueError(
                f"a message with {len(texts) - 1} {IMAGE} placeholders has {len(self.images)} "
                "images"
            )
        return texts


@dataclass(slots=True, kw_only=True, frozen=True)
class Prompt:
    """The input of an engine: exact token ids, and the images behind their image tokens."""

    token_ids: tuple[int, ...]
    """[P], every image expanded to its image tokens."""
    images: tuple[Image, ...] = ()
    """Scaled, as the model sees them, in the order of their tokens."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Reply:
    """A reply sampled by an engine."""

    token_ids: tuple[int, ...]
    """[R], including the end token if one was sampled."""
    logprobs: tuple[float, ...]
    """[R], under the distribution sampled from (after temperature and banned tokens)."""
    version: int
    """Version of the weights that sampled it; the oldest if `versions` has several."""
    versions: tuple[int, ...] = ()
    """[R], of each token, if the weights were updated in between; else empty."""
    top_logprobs: tuple[TopLogprobs, ...] = ()
    """[R], at the position of each token, under the same distribution; empty if not requested."""

    @property
    def token_versions(self) -> tuple[int, ...]:
        """[R], the version of the weights that sampled each token."""
        return self.versions or (self.version,) * len(self.token_ids)


@dataclass(slots=True, kw_only=True, frozen=True)
class Turn:
    """One prompt, one reply, one action: the unit that advantages are assigned to."""

    prompt_ids: tuple[int, ...]
    """[P], the prompt's token ids."""
    reply_ids: tuple[int, ...]
    """[R], the reply's token ids, as they were sampled."""
    reply_logprobs: tuple[float, ...]
    """[R], their log-probabilities under the distribution sampled from."""
    reply_versions: tuple[int, ...]
    """[R], the version of the weights that sampled each token."""
    reply: str
    """The text of the reply."""
    images: tuple[Image, ...]
    """All images of the prompt, scaled, as the model saw them."""
    shown: str
    """The text of this turn's message, with `IMAGE` for each image; empty if the screen was
    private."""
    frames: tuple[str, ...]
    """Ids of the recorded full-resolution frames of this turn's observation."""
    action: Any | None
    """The action passed to the environment; None if the reply could not be parsed."""
    parse_error: str | None
    """Why the reply could not be parsed; None if it could."""
    env_reward: float
    """The environment's own reward for the action."""
    state_key: str | None
    """Identifies the state this turn started from, if the environment provides it; siblings are
    compared at equal keys."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """The environment's info after the action; ground truth, never shown to the model."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Seconds per stage: generate, act, and parts of act that the environment reports, such as
    settle."""
    reply_top_logprobs: tuple[TopLogprobs, ...] = ()
    """[R], as in `Reply.top_logprobs`."""

    def __repr__(self) -> str:
        done = f"error {self.parse_error!r}" if self.parse_error else f"action {self.action!r}"
        return f"Turn({done}, reply {self.reply!r}, env_reward {self.env_reward:g})"

    @property
    def seconds(self) -> float:
        """Duration of the whole turn."""
        return self.timings.get("generate", 0.0) + self.timings.get("act", 0.0)


@dataclass(slots=True, kw_only=True, frozen=True)
class EpisodeMessage(Message):
    """One message of an episode's conversation, with the images as the model saw them."""

    frames: tuple[str, ...] = ()
    """Ids of the recorded full-resolution frames of the images."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Episode:
    """One finished episode, whatever its outcome."""

    id: str
    """Unique in its run."""
    env_id: str
    """The environment, as `env.id` names it."""
    seed: int
    """The seed of the reset."""
    group: str
    """The group whose members the episode is compared with."""
    member: int
    """Position in the group, from 0."""
    reset_info: Mapping[str, Any]
    """The environment's info from reset."""
    instructions: str
    """The system message before the first turn."""
    turns: tuple[Turn, ...]
    """The turns, in order."""
    final_shown: str
    """The text of the observation after the last action."""
    final_frames: tuple[str, ...]
    """Ids of the recorded full-resolution frames after the last action."""
    outcome: Outcome
    """How it ended."""
    error: str | None
    """Why it is void; None if it is valid."""
    device: str | None
    """The phone's `phone_name`; None if the environment needs none."""
    failure: WorldError | None = field(default=None, compare=False)
    """The error that voided it, while the job handles it; only `error` is recorded."""
    truncated_by: TruncatedBy | None = None
    """Limit that truncated the episode; None if it was not truncated."""
    final_images: tuple[Image, ...] = ()
    """The images after the last action, at their own resolution; only while it is scored."""
    preceding: tuple[Message, ...] = ()
    """Earlier questions and replies that the first turn's message continues, in turns. Their images
    are the first ones in the `images` and `frames` of the first turn."""

    @property
    def cause(self) -> str | None:
        """Cause under which it is counted if it is void: of its failure, or else its outcome."""
        if not self.outcome.void:
            return None
        return self.outcome.value if self.failure is None else self.failure.cause

    def messages(self) -> list[EpisodeMessage]:
        """The whole conversation, from the system message, if there is one, to the last reply.

        It is empty before the first reply.
        """
        if not self.turns:
            return []
        first, start = self.turns[0], 0
        system = self.instructions
        found = [EpisodeMessage(role="system", text=system)] if system else []
        for message in self.preceding:
            end = start + message.num_images
            images, frames = first.images[start:end], first.frames[start:end]
            found.append(
                EpisodeMessage(role=message.role, text=message.text, images=images, frames=frames)
            )
            start = end
        for turn in self.turns:
            images = turn.images[len(turn.images) - turn.shown.count(IMAGE) :]
            frames = turn.frames[start:] if turn is first else turn.frames
            found += (
                EpisodeMessage(role="user", text=turn.shown, images=images, frames=frames),
                EpisodeMessage(role="assistant", text=turn.reply),
            )
        return found

    def __repr__(self) -> str:
        return (
            f"Episode({self.id}, {self.env_id}, seed {self.seed}, {self.outcome.value}, "
            f"{len(self.turns)} turns)"
        )

    def _repr_html_(self) -> str:
        return self.film_strip([turn.env_reward for turn in self.turns])

    def film_strip(
        self, rewards: Sequence[float], load: Callable[[str], Image | None] = lambda frame: None
    ) -> str:
        """The screens, actions and rewards as HTML, for notebooks.

        Args:
            rewards: per turn; fewer, or none, are possible.
            load: the recorded frame of an id; without it, the images that the model saw.
        """
        cells = []
        for number, turn in enumerate(self.turns):
            pictures = [*map(load, turn.frames[:1]), *turn.images[:1]]
            picture = next((one for one in pictures if one is not None), None)
            reward = f", reward {rewards[number]:.3g}" if number < len(rewards) else ""
            is_number = isinstance(turn.action, int | np.integer)  # says less than the reply
            done = turn.parse_error or (turn.reply if is_number else str(turn.action))
            cells.append(
                Cell(
                    picture=picture,
                    text="" if picture is not None else without_placeholders(turn.shown),
                    lines=[
                        f"turn {number + 1}{reward}",
                        done,
                    ],
                    tooltip=turn.reply,
                    is_wrong=turn.parse_error is not None,
                )
            )
        if final := [*map(load, self.final_frames[:1]), *self.final_images[:1]]:
            cells.append(Cell(picture=final[0], lines=("after the last turn",)))
        total = f", reward {sum(rewards):.4g}" if rewards else ""
        error = f", {self.error}" if self.error else ""
        return film_strip(f"{self!r}{total}{error}", cells)


@dataclass(slots=True, kw_only=True, frozen=True)
class ScoredEpisode:
    """An episode with the results of its reward functions."""

    episode: Episode
    """The episode as it was played."""
    components: Mapping[str, tuple[float, ...]]
    """Unweighted rewards of each reward function, one value per turn."""
    rewards: tuple[float, ...]
    """Weighted sum of the rewards of each turn."""
    replayed: bool = False
    """Whether it was played in an earlier step, and joins a group of this one."""

    def __repr__(self) -> str:
        return f"ScoredEpisode({self.episode!r}, reward {self.reward:.4g})"

    def _repr_html_(self) -> str:
        return self.episode.film_strip(self.rewards)

    @property
    def reward(self) -> float:
        """The episode's reward: the sum of its turns' rewards."""
        return float(sum(self.rewards))


@dataclass(slots=True, kw_only=True, frozen=True)
class TokenSequence:
    """Tokens that a model reads at once: one turn, or several whose prompts extend each other."""

    token_ids: tuple[int, ...]
    """[L]"""
    sampled_positions: tuple[int, ...]
    """[N], of the sampled tokens in `token_ids`; ascending, never 0."""
    logprobs: tuple[float, ...]
    """[N], that the engine sampled with."""
    versions: tuple[int, ...]
    """[N], of the weights that sampled each token."""
    turns: tuple[int, ...]
    """[N], the turn of the episode that each token belongs to."""
    images: tuple[Image, ...]
    episode: int
    """Index of the episode in its training step; equal for the sequences of one episode."""

    @property
    def num_sampled(self) -> int:
        """N, the number of sampled tokens."""
        return len(self.sampled_positions)


@dataclass(slots=True, kw_only=True, frozen=True)
class LabeledSequence(TokenSequence):
    """A token sequence with a label of its last reply."""

    label: float
    """Label from 0 (bad) to 1 (good)."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PreferenceSequence(TokenSequence):
    """One of two compared answers; the better one and the worse one follow each other."""

    margin: float
    """By how much the reward of the better answer should exceed the other's."""


@dataclass(slots=True, kw_only=True, frozen=True)
class TokenScores:
    """Model outputs for a sequence's N sampled tokens; None if not required."""

    old_logprobs: tuple[float, ...] | None = None
    """[N], under the learner before the update."""
    reference_logprobs: tuple[float, ...] | None = None
    """[N], under the reference model."""
    values: tuple[float, ...] | None = None
    """[N], the critic's, of the state before each token."""
    last_value: float = 0.0
    """The critic's, of the state after the sequence's last token."""
    implicit_logprobs: tuple[float, ...] | None = None
    """[N], under the implicit reward model."""


@dataclass(slots=True, kw_only=True, frozen=True)
class TrainingSample(TokenSequence):
    """A token sequence with all that the losses need."""

    advantages: tuple[float, ...]
    """[N]"""
    old_logprobs: tuple[float, ...]
    """[N], under the learner before the update if the loss corrects for a different engine, else
    the engine's."""
    reference_logprobs: tuple[float, ...] | None
    """[N], under the reference model; None without one."""
    values: tuple[float, ...] | None
    """[N], the critic's, before the update, of the state before each token; None without one."""
    returns: tuple[float, ...] | None
    """[N], the critic's targets; None without one."""
    bce_gradient: float | None
    """Derivative of the implicit reward's loss by the log-probability of each of the tokens; None
    without one."""
    replayed: bool = False
    """Whether it is of an episode of an earlier step; see `ScoredEpisode`."""

    @property
    def has_advantage(self) -> bool:
        """Whether any token has an advantage other than 0."""
        return any(self.advantages)


@dataclass(slots=True, kw_only=True)
class Batch:
    """Token sequences as the tensors of one forward pass.

    A row holds one or more prefix trees: the common prefix of several sequences once, followed by
    their continuations, depth first. A token attends to those before it in its row whose subtrees
    have not ended. N counts the sampled tokens of all sequences, sequence by sequence.
    """

    token_ids: Tensor
    """int64[B, L], padded on the right."""
    positions: Tensor
    """int64[..., B, L], position ids as the model family counts them."""
    subtree_ends: Tensor
    """int64[B, L]: a token is visible to those after it up to, and not including, this column."""
    has_branches: bool
    """Whether some row holds more than one sequence."""
    logit_positions: Tensor
    """int64[N], flat positions of the tokens before the sampled ones: row * L + column."""
    targets: Tensor
    """int64[N], the sampled tokens."""
    last_positions: Tensor
    """int64[S], flat positions of the last token of each sequence."""
    turns: Tensor
    """int64[N], equal for the tokens of one reply."""
    logprobs: Tensor
    """float32[N], that the engine sampled with."""
    weights: Tensor
    """float32[N], of each token in the loss."""
    pixels: Mapping[str, Tensor]
    """Images as `ModelAdapter.compact_pixels` returns them, and how the rows use them."""


@dataclass(slots=True, kw_only=True)
class TokenTargets:
    """Tensors of a batch's N sampled tokens beyond those of `Batch`; see `TrainingSample`."""

    advantages: Tensor
    """float32[N]"""
    old_logprobs: Tensor
    """float32[N]"""
    reference_logprobs: Tensor | None
    """float32[N]; None without a reference."""
    values: Tensor | None
    """float32[N]; None without a critic."""
    returns: Tensor | None
    """float32[N]; None without a critic."""
