"""What flows through agentrl: each stage has its own complete type, finished when it is made.

Shapes: H, W height and width of a picture; P prompt tokens; R reply tokens; L sample tokens;
B samples of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Image = NDArray[np.uint8]
"""One picture, uint8[H, W, 3], RGB."""
IMAGE = "<image>"
"""Stands for a picture in the words of a message."""


def words_of(message: str) -> str:
    """The words of a message, without the places of its pictures."""
    return message.replace(IMAGE, "").strip()


class Outcome(StrEnum):
    """How an episode ended."""

    TERMINATED = "terminated"
    """The environment said so: the return is complete, nothing is bootstrapped."""
    TRUNCATED = "truncated"
    """A limit of turns or tokens: valid, but a critic bootstraps the value of the last state."""
    TIMEOUT = "timeout"
    """A deadline of the rollout passed: void, refilled."""
    DEVICE_ERROR = "device_error"
    """A phone failed: void, refilled."""
    ENV_ERROR = "env_error"
    """An environment, engine or reward failed: void, refilled."""

    @property
    def void(self) -> bool:
        """True where the world failed: no reward, no gradient, played again within a bound."""
        return self not in (Outcome.TERMINATED, Outcome.TRUNCATED)


def cause(outcome: Outcome, error: str | None) -> str | None:
    """What voided an episode, as it is counted; None where it is not void.

    The type of the error, such as `DeviceOffline`; `timeout` for the episode's own deadline; and
    what came in front of an app that was left: `call`, `anr`, `foreign_app`, ...
    """
    if not outcome.void:
        return None
    if outcome is Outcome.TIMEOUT or not error:
        return outcome.value
    kind, _, message = error.partition(": ")
    return message.partition(":")[0] if kind == "AppLeft" else error.partition(":")[0]


@dataclass(slots=True, kw_only=True, frozen=True)
class Observation:
    """What an environment shows, at its own resolution; alive only while its turn is played."""

    images: tuple[Image, ...] = ()
    text: str = ""


@dataclass(slots=True, kw_only=True, frozen=True)
class Message:
    """One side's words in a conversation; `IMAGE` in the text stands for the next picture."""

    role: str
    text: str
    images: tuple[Image, ...] = ()


@dataclass(slots=True, kw_only=True, frozen=True)
class Prompt:
    """What an engine answers: exact ids, and the pictures that their image tokens stand for."""

    token_ids: tuple[int, ...]
    """[P], every picture expanded to its image tokens."""
    images: tuple[Image, ...] = ()
    """Scaled, as the model sees them, in the order of their tokens."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Reply:
    """What an engine sampled."""

    token_ids: tuple[int, ...]
    """[R], the end token included where one was sampled."""
    logprobs: tuple[float, ...]
    """[R], of the distribution that was sampled from (temperature and banned tokens applied)."""
    version: int
    """Of the weights that sampled it."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Turn:
    """One prompt, one reply, one action: the unit of credit."""

    prompt_ids: tuple[int, ...]
    """[P]"""
    reply_ids: tuple[int, ...]
    """[R]"""
    reply_logprobs: tuple[float, ...]
    """[R]"""
    reply_versions: tuple[int, ...]
    """[R], the version of the weights that sampled each token."""
    reply: str
    images: tuple[Image, ...]
    """All pictures of the prompt, scaled, as the model saw them."""
    shown: str
    """The words of this turn's message, `IMAGE` where a picture stood; empty where the screen was
    private."""
    frames: tuple[str, ...]
    """Ids of the recorded full frames of this turn's observation."""
    action: Any | None
    """What the environment was given; None where the reply could not be read."""
    parse_error: str | None
    env_reward: float
    state_key: str | None
    """Names the state this turn started from, if the environment can; siblings are compared
    at equal keys."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """The environment's info after the action; the truth of the game, never shown to the model."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Seconds by stage: generate, act; and what of act the environment tells, such as settle."""

    @property
    def seconds(self) -> float:
        """Of the whole turn."""
        return self.timings.get("generate", 0.0) + self.timings.get("act", 0.0)


@dataclass(slots=True, kw_only=True, frozen=True)
class Episode:
    """One finished episode, whatever its outcome."""

    id: str
    env_id: str
    seed: int
    group: str
    member: int
    reset_info: Mapping[str, Any]
    """The environment's info of the first observation."""
    instructions: str
    """What was told before the first turn."""
    turns: tuple[Turn, ...]
    final_shown: str
    """The words that the last action led to."""
    final_frames: tuple[str, ...]
    """Ids of the recorded full frames that the last action led to."""
    outcome: Outcome
    error: str | None
    device: str | None


@dataclass(slots=True, kw_only=True, frozen=True)
class ScoredEpisode:
    """An episode with what the reward functions said of it."""

    episode: Episode
    components: Mapping[str, tuple[float, ...]]
    """Per reward function: one value per turn, unweighted."""
    rewards: tuple[float, ...]
    """Per turn: the weighted sum."""

    @property
    def total(self) -> float:
        """The episode's return."""
        return float(sum(self.rewards))


@dataclass(slots=True, kw_only=True, frozen=True)
class Sample:
    """One token sequence to train on: one turn, or several whose prompts extend each other."""

    token_ids: tuple[int, ...]
    """[L]"""
    places: tuple[int, ...]
    """[N], where the tokens that the policy sampled stand in `token_ids`; rising, never the
    first."""
    logprobs: tuple[float, ...]
    """[N], as the engine sampled them."""
    advantages: tuple[float, ...]
    """[N]"""
    images: tuple[Image, ...]
    turns: tuple[int, ...]
    """[N], the turn of its episode that each belongs to."""
    episode: int = 0
    """Equal for the samples of one episode."""
    versions: tuple[int, ...] = ()
    """[N], of the weights that sampled each; empty where nobody asks."""
    old_logprobs: tuple[float, ...] = ()
    """[N], under the learner before the update; empty takes the engine's."""
    reference_logprobs: tuple[float, ...] = ()
    """[N], under the reference; empty without one."""
    values: tuple[float, ...] = ()
    """[N], the critic's, of the state before each, before the update; empty without a critic."""
    returns: tuple[float, ...] = ()
    """[N], what the critic learns; empty without a critic."""


@dataclass(slots=True, kw_only=True)
class Batch:
    """Tensors of some samples, and nothing else.

    A row holds one or more trees: what several samples begin with stands there once, and after it
    what each goes on with, depth first. A token sees what stands before it in its row, and has not
    ended there. N counts the sampled tokens of all samples, sample by sample.
    """

    token_ids: Tensor
    """int64[B, L], padded on the right."""
    positions: Tensor
    """int64[..., B, L], as the model family counts them from the beginning of a sample."""
    ends: Tensor
    """int64[B, L]: the token at column c is seen by those from c up to, and not including, this
    column."""
    forked: bool
    """Whether a row holds more than one sample from its beginning to its end."""
    sources: Tensor
    """int64[N], flat places of the tokens before the sampled ones: row * L + column."""
    targets: Tensor
    """int64[N], the sampled tokens."""
    lasts: Tensor
    """int64[S], flat places of the last token of each sample that is there."""
    turns: Tensor
    """int64[N], equal for the tokens of one reply."""
    columns: Mapping[str, Tensor]
    """float32[N] each: `logprobs`, `old_logprobs`, `advantages`, `weights`, and whichever of
    `reference_logprobs`, `values`, `returns` the samples have."""
    pixels: Mapping[str, Tensor]
    """What the model family's kit made of the pictures; keyword arguments of its forward."""
