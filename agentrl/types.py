"""Data types that pass between the stages of agentrl; each object is complete when built.

Shapes: H, W are the height and width of an image; P prompt tokens; R reply tokens; L sample tokens;
B samples of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentrl.errors import WorldError
from agentrl.notebook_html import Cell, film_strip

if TYPE_CHECKING:
    from torch import Tensor

Image = NDArray[np.uint8]
"""One image, uint8[H, W, 3], RGB."""
TopLogprobs = tuple[tuple[int, float], ...]
"""The most probable tokens at a position, in descending order: id and log-probability."""
Split = Literal["train", "eval", "demo"]
"""Purpose of an episode: training, evaluation or demonstration."""
IMAGE = "<image>"
"""Placeholder of an image in the text of a message."""


def is_final(image: Image) -> bool:
    """Return whether an image cannot change, because it is read-only and owns its data."""
    return not image.flags.writeable and image.base is None


def give_images(
    messages: Sequence[Message], images: tuple[Image, ...]
) -> tuple[tuple[Message, ...], tuple[Image, ...]]:
    """Assign the first of the images to the messages; return the messages and the rest."""
    found, start = [], 0
    for message in messages:
        end = start + message.num_images
        found.append(replace(message, images=images[start:end]))
        start = end
    return tuple(found), images[start:]


def transcript_of(messages: Sequence[Message]) -> str:
    """Join the text of messages with their roles, without image placeholders."""
    return "\n\n".join(f"{one.role}: {without_placeholders(one.text)}" for one in messages)


def without_placeholders(message: str) -> str:
    """Remove the image placeholders from a message's text."""
    return message.replace(IMAGE, "").strip()


def finite(name: str, value: Any) -> float:
    """Convert a value to a finite float.

    Args:
        name: name of the value, for messages.
        value: a number of any library, or an array or tensor with a single number.

    Raises:
        TypeError, ValueError: the value is not a number (such as the string "1.0"), or not finite.
    """
    try:
        plain = value.item() if hasattr(value, "item") else value
        number = float(plain) if hasattr(plain, "__float__") else None  # str and bytes lack it
    except OverflowError:
        raise ValueError(f"{name} is too large a number") from None
    except (TypeError, ValueError, RuntimeError):  # torch raises RuntimeError
        number = None
    if number is None:
        raise TypeError(f"{name} is {value!r:.60} ({type(value).__name__}), not a number")
    if not math.isfinite(number):
        raise ValueError(f"{name} is {value!r:.60}, not a finite number")
    return number


class Outcome(StrEnum):
    """How an episode ended."""

    TERMINATED = "terminated"
    """The environment ended the episode. The return is complete, so nothing is bootstrapped."""
    TRUNCATED = "truncated"
    """The episode reached a limit on turns or tokens. It is valid, and a critic bootstraps the
    value of the last state."""
    TIMEOUT = "timeout"
    """The episode exceeded its deadline, and is discarded and played again."""
    DEVICE_ERROR = "device_error"
    """A phone failed; the episode is discarded and played again."""
    ENV_ERROR = "env_error"
    """An environment, engine or reward function failed; the episode is discarded and played
    again."""

    @property
    def void(self) -> bool:
        """True if infrastructure failed; the episode has no reward or gradient, and is replayed."""
        return self not in (Outcome.TERMINATED, Outcome.TRUNCATED)


class TruncatedBy(StrEnum):
    """The limit that a truncated episode reached."""

    ENVIRONMENT = "environment"
    """The environment's own limit."""
    TURNS = "turns"
    """`env.max_turns`."""
    HORIZON = "horizon"
    """`env.horizon`: fewer turns than `env.max_turns`, early in training."""
    CONTEXT = "context"
    """`rollout.max_context`: the next prompt and its reply might not have fit."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Observation:
    """An environment's output at its original resolution, kept only while its turn is played."""

    images: tuple[Image, ...] = ()
    """Screens, in the order in which the text refers to them."""
    text: str = ""
    """Text shown by the environment."""


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
    """Text to use if this is the first message of its prompt; None uses `text`."""
    system: str | None = None
    """System message of a conversation that this message starts; None uses the environment's
    instructions."""
    preceding: tuple[Message, ...] = ()
    """Alternating earlier questions and replies, without the system message, of a conversation in
    which the player first replies to this message."""

    @property
    def all_images(self) -> tuple[Image, ...]:
        """The images of the earlier messages and of this message."""
        return (*(image for one in self.preceding for image in one.images), *self.images)

    @property
    def num_images(self) -> int:
        """The number of image placeholders in the text; 0 for a reply."""
        return 0 if self.role == "assistant" else self.text.count(IMAGE)

    def transcript(self) -> str:
        """The earlier messages with their roles, then this text, without image placeholders."""
        earlier = transcript_of((*self.preceding, self)) if self.preceding else ""
        return earlier or without_placeholders(self.text)

    def split_at_images(self) -> list[str]:
        """Split the text at its images; there is one more part than images.

        Raises:
            ValueError: the numbers of `<image>` placeholders and images differ.
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
    """Engine input: exact token ids, and the images for their image tokens."""

    token_ids: tuple[int, ...]
    """[P], with every image expanded to its image tokens."""
    images: tuple[Image, ...] = ()
    """Images scaled for the model, in the order of their tokens."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Reply:
    """A reply sampled by an engine."""

    token_ids: tuple[int, ...]
    """[R], including the end token if one was sampled."""
    logprobs: tuple[float, ...]
    """[R], log-probabilities under the sampling distribution (after temperature and banned
    tokens)."""
    version: int
    """Version of the weights that sampled the reply; the oldest if `versions` has several."""
    versions: tuple[int, ...] = ()
    """[R], weight version of each token if the weights were updated in between, else empty."""
    top_logprobs: tuple[TopLogprobs, ...] = ()
    """[R], most probable tokens at each position under the same distribution; empty if not
    requested."""

    @property
    def token_versions(self) -> tuple[int, ...]:
        """[R], the version of the weights that sampled each token."""
        return self.versions or (self.version,) * len(self.token_ids)


@dataclass(slots=True, kw_only=True, frozen=True)
class ExecutedAction:
    """One executed action of a turn that may have several, and its result."""

    action: Any
    """The action passed to the environment."""
    reward: float
    """The environment's own reward for this action."""
    info: Mapping[str, Any]
    """The environment's info after this action."""
    shown: str
    """The text of the observation after this action; empty if the screen was private. Only that
    after the last action was shown to the model."""
    frames: tuple[str, ...] = ()
    """Ids of the recorded full-resolution frames after this action."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Turn:
    """One prompt, reply and action: the unit to which advantages are assigned."""

    prompt_ids: tuple[int, ...]
    """[P], the prompt's token ids."""
    reply_ids: tuple[int, ...]
    """[R], the reply's token ids, as sampled; empty if the player samples no tokens."""
    reply_logprobs: tuple[float, ...]
    """[R], log-probabilities of `reply_ids` under the sampling distribution."""
    reply_versions: tuple[int, ...]
    """[R], the version of the weights that sampled each token."""
    reply: str
    """The text of the reply."""
    images: tuple[Image, ...]
    """All images of the prompt, scaled as the model saw them."""
    shown: str
    """The text of this turn's message, with `IMAGE` for each image; empty if the screen was
    private."""
    frames: tuple[str, ...]
    """Ids of the recorded full-resolution frames of this turn's observation."""
    action: Any | None
    """The action passed to the environment, or the list of actions if a reply may have several;
    None if the reply could not be parsed."""
    parse_error: str | None
    """Reason why the reply, or its first action that was not executed, could not be parsed; None if
    it was parsed."""
    env_reward: float
    """The environment's own reward for the action, or the sum over all executed actions."""
    state_key: str | None
    """Key of the state in which this turn started, if provided by the environment; siblings are
    compared at equal keys."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """The environment's info after the action; ground truth, never shown to the model."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Seconds per stage: generate, act, and parts of act reported by the environment, such as
    settle."""
    reply_top_logprobs: tuple[TopLogprobs, ...] = ()
    """[R], as in `Reply.top_logprobs`."""
    chunk: tuple[ExecutedAction, ...] = ()
    """The executed actions if `env.max_actions_per_reply` allows several; empty otherwise."""
    reply_truncated: bool = False
    """True if the reply was cut off at `rollout.max_new_tokens`."""
    guide: str | None = None
    """Name of the scripted player that made this turn in place of the model (`env.start`), which
    sees it as context; None otherwise."""

    @property
    def actions(self) -> tuple[Any, ...]:
        """The executed actions if a reply may have several, else `action` alone."""
        return tuple(one.action for one in self.chunk) or (self.action,)

    @property
    def infos(self) -> tuple[Mapping[str, Any], ...]:
        """The environment's info after each executed action, or `info` alone."""
        return tuple(one.info for one in self.chunk) or (self.info,)

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
    """A finished episode, with any outcome."""

    id: str
    """Id of the episode, unique within its run."""
    env_id: str
    """The environment's `env.id`."""
    seed: int
    """The seed of the reset."""
    group: str
    """Group of the episode; its members are compared with each other."""
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
    """How the episode ended."""
    error: str | None
    """Reason why the episode is void; None if it is valid."""
    device: str | None
    """The phone's `phone_name`; None if the environment does not use a phone."""
    failure: WorldError | None = field(default=None, compare=False)
    """The error that voided the episode, kept while the job handles it; only `error` is
    recorded."""
    truncated_by: TruncatedBy | None = None
    """Limit that truncated the episode; None if it was not truncated."""
    final_images: tuple[Image, ...] = ()
    """Images after the last action, at their original resolution, kept only while scoring."""
    preceding: tuple[Message, ...] = ()
    """Alternating earlier questions and replies that the first turn's message continues. Their
    images come first in the `images` and `frames` of the first turn."""

    @property
    def cause(self) -> str | None:
        """Cause under which a void episode is counted: its failure's cause, or else its outcome."""
        if not self.outcome.void:
            return None
        return self.outcome.value if self.failure is None else self.failure.cause

    @property
    def num_guided(self) -> int:
        """Number of turns at the start that a scripted player made (`env.start`)."""
        return sum(turn.guide is not None for turn in self.turns)

    def messages(self) -> list[EpisodeMessage]:
        """Return the whole conversation, from the system message, if any, to the last reply.

        Empty before the first reply.
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
        """Render the screens, actions and rewards as HTML for notebooks.

        Args:
            rewards: rewards per turn; may be shorter than the turns, or empty.
            load: loads a recorded frame by id; without it, show the images that the model saw.
        """
        cells = []
        for number, turn in enumerate(self.turns):
            pictures = [*map(load, turn.frames[:1]), *turn.images[:1]]
            picture = next((one for one in pictures if one is not None), None)
            reward = f", reward {rewards[number]:.3g}" if number < len(rewards) else ""
            # Less informative than the reply.
            is_number = all(isinstance(action, int | np.integer) for action in turn.actions)
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
    """The episode as played."""
    components: Mapping[str, tuple[float, ...]]
    """Unweighted rewards of each reward function, one value per turn."""
    rewards: tuple[float, ...]
    """Weighted sum of each turn's rewards."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weight of each reward function that applies to the episode, by its name in `components`;
    empty if the rewards are not from functions."""
    replayed: bool = False
    """True if the episode was played in an earlier step and added to a group of this step."""

    def __repr__(self) -> str:
        return f"ScoredEpisode({self.episode!r}, reward {self.reward:.4g})"

    def _repr_html_(self) -> str:
        return self.episode.film_strip(self.rewards)

    @property
    def reward(self) -> float:
        """The episode's reward: the sum of its turns' rewards."""
        return float(sum(self.rewards))

    def by_function(self) -> dict[str, tuple[float, float]]:
        """Return the weight and the unweighted reward of each function that applies.

        Without `weights`, the rewards count as those of a single function.
        """
        if not self.weights:
            return {"": (1.0, self.reward)}
        return {name: (w, float(sum(self.components[name]))) for name, w in self.weights.items()}


@dataclass(slots=True, kw_only=True, frozen=True)
class TokenSequence:
    """Tokens for one forward pass: one turn, or several turns whose prompts extend each other."""

    token_ids: tuple[int, ...]
    """[L]"""
    sampled_positions: tuple[int, ...]
    """[N], positions of the sampled tokens in `token_ids`; ascending, never 0."""
    logprobs: tuple[float, ...]
    """[N], log-probabilities reported by the engine when sampling."""
    versions: tuple[int, ...]
    """[N], version of the weights that sampled each token."""
    turns: tuple[int, ...]
    """[N], turn of the episode to which each token belongs."""
    images: tuple[Image, ...]
    episode: int
    """Index of the episode in its training step; equal for the sequences of one episode."""

    @property
    def num_sampled(self) -> int:
        """N, the number of sampled tokens."""
        return len(self.sampled_positions)


class TokenPredictions(NamedTuple):
    """What a model predicts at the places of a sequence's N sampled tokens."""

    logprobs: tuple[float, ...]
    """[N], log-probabilities of the sampled tokens."""
    most_probable: tuple[int, ...]
    """[N], the most probable token at each place, after the tokens before it."""


@dataclass(slots=True, kw_only=True, frozen=True)
class LabeledSequence(TokenSequence):
    """A token sequence with a label for its last reply."""

    label: float
    """Label from 0 (bad) to 1 (good)."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PreferenceSequence(TokenSequence):
    """One of two compared answers; each better answer is followed by the worse one."""

    margin: float
    """Margin by which the better answer's reward should exceed the other's."""


@dataclass(slots=True, kw_only=True, frozen=True)
class TokenScores:
    """Model outputs for a sequence's N sampled tokens; None if not required."""

    old_logprobs: tuple[float, ...] | None = None
    """[N], log-probabilities under the learner before the update."""
    reference_logprobs: tuple[float, ...] | None = None
    """[N], log-probabilities under the reference model."""
    values: tuple[float, ...] | None = None
    """[N], the critic's value of the state before each token."""
    last_value: float = 0.0
    """The critic's value of the state after the sequence's last token."""
    implicit_logprobs: tuple[float, ...] | None = None
    """[N], log-probabilities under the implicit reward model."""
    teacher_logprobs: tuple[float, ...] | None = None
    """[N], log-probabilities under the teacher."""


@dataclass(slots=True, kw_only=True, frozen=True)
class TrainingSample(TokenSequence):
    """A token sequence with all inputs of the losses."""

    advantages: tuple[float, ...]
    """[N]"""
    old_logprobs: tuple[float, ...]
    """[N], log-probabilities under the learner before the update if the loss corrects for a
    different engine, else the engine's."""
    reference_logprobs: tuple[float, ...] | None
    """[N], log-probabilities under the reference model; None without a reference."""
    values: tuple[float, ...] | None
    """[N], the critic's value, before the update, of the state before each token; None without a
    critic."""
    returns: tuple[float, ...] | None
    """[N], the critic's targets; None without a critic."""
    bce_gradient: float | None
    """Derivative of the implicit reward's loss with respect to each token's log-probability; None
    without an implicit reward."""
    replayed: bool = False
    """True if the sample is from an episode of an earlier step; see `ScoredEpisode`."""

    @property
    def has_advantage(self) -> bool:
        """True if any token has a nonzero advantage."""
        return any(self.advantages)


@dataclass(slots=True, kw_only=True)
class Batch:
    """Token sequences as the tensors of one forward pass.

    A row contains one or more prefix trees: the common prefix of several sequences once, followed
    by their continuations, depth first. A token attends to all earlier tokens in its row whose
    subtrees have not ended. N counts the sampled tokens of all sequences, sequence by sequence.
    """

    token_ids: Tensor
    """int64[B, L], padded on the right."""
    positions: Tensor
    """int64[..., B, L], position ids as the model family counts them."""
    subtree_ends: Tensor
    """int64[B, L]: a token is visible to later tokens up to, but not including, this column."""
    has_branches: bool
    """True if any row contains more than one sequence."""
    logit_positions: Tensor
    """int64[N], flat positions (row * L + column) of the tokens before the sampled tokens."""
    targets: Tensor
    """int64[N], the sampled tokens."""
    last_positions: Tensor
    """int64[S], flat positions of the last token of each sequence."""
    turns: Tensor
    """int64[N], equal for the tokens of one reply."""
    logprobs: Tensor
    """float32[N], log-probabilities reported by the engine when sampling."""
    weights: Tensor
    """float32[N], weight of each token in the loss."""
    pixels: Mapping[str, Tensor]
    """Images as returned by `ModelAdapter.compact_pixels`, and their positions in the rows."""


@dataclass(slots=True, kw_only=True)
class TokenTargets:
    """Additional tensors for a batch's N sampled tokens; see `TrainingSample`."""

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
