"""The comparison of an engine's log-probabilities and taps with those of transformers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from statistics import fmean, median
from typing import Any

from agentrl.config import RolloutConfig
from agentrl.errors import EngineMismatch
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.engines.engine import Sampling, check_reply
from agentrl.policies.model_policy import turn_seed
from agentrl.policies.open_engine import engine_class, other_engines
from agentrl.text.formatting import pluralize
from agentrl.training.engine_check.compared_prompts import ComparedPrompt
from agentrl.training.engine_check.greedy_taps import Predict, reply_sequence, tap_distances
from agentrl.types import Prompt, Reply

_MAX_REPLY = 64
"""Maximum number of tokens of a compared reply."""
_BOUNDS = {"float32": 0.002, "bfloat16": 0.1}
"""Maximum mean difference of a log-probability, in nats, by `model.dtype`. Rounding to bfloat16
explains some hundredths in a 3B model (docs/results.md: k3 is half of the mean square)."""
_MAX_DISTANCE = 0.05
"""Maximum median distance of the greedy taps, as a share of the screen's width and height. The
median, because a single tap may move anywhere."""
_NEAR_TIE = 5.0
"""Two tokens are a near tie if transformers prefers one by less than this multiple of the bound."""

Generate = Callable[[Prompt, Sampling], Awaitable[Reply]]
"""Samples one reply with the engines."""


@dataclass(slots=True, kw_only=True, frozen=True)
class EngineComparison:
    """Differences between an engine and transformers."""

    engine: str
    prompts: int
    bound: float
    """Maximum mean difference of a log-probability, in nats."""
    differences: tuple[float, ...]
    """Difference of each sampled token's log-probability, in nats."""
    distances: tuple[float, ...]
    """Distance of the greedy taps of each prompt to which both reply with one, as a share of the
    screen."""

    @property
    def mean(self) -> float:
        """Mean difference of a log-probability."""
        return fmean(self.differences)

    @property
    def largest(self) -> float:
        """Largest difference of a log-probability."""
        return max(self.differences)

    @property
    def distance(self) -> float | None:
        """Median distance of the greedy taps; None without taps."""
        return median(self.distances) if self.distances else None

    @property
    def agrees(self) -> bool:
        """Whether the differences are within their bounds."""
        # Written so that nan does not agree.
        return self.mean <= self.bound and not (self.distance or 0.0) > _MAX_DISTANCE

    def record(self) -> dict[str, Any]:
        """Return the comparison as it is stored in `summary.json`."""
        return {
            "engine": self.engine,
            "prompts": self.prompts,
            "tokens": len(self.differences),
            "logprob_mean": self.mean,
            "logprob_max": self.largest,
            "logprob_bound": self.bound,
            "taps": len(self.distances),
            "tap_distance": self.distance,
        }

    def metrics(self) -> dict[str, float]:
        """Return the differences as metrics."""
        taps = {} if self.distance is None else {"engine_check/tap_distance": self.distance}
        return {
            "engine_check/logprob_mean": self.mean,
            "engine_check/logprob_max": self.largest,
            "engine_check/tokens": float(len(self.differences)),
            **taps,
        }

    def describe(self) -> str:
        """Describe the differences in a sentence without its subject."""
        taps = ""
        if self.distance is not None:
            count = pluralize(len(self.distances), "prompt")
            taps = (
                f"; the greedy taps differ by {self.distance:.2g} of the screen (median of {count})"
            )
        return (
            f"the log-probabilities of {pluralize(len(self.differences), 'token')} of "
            f"{pluralize(self.prompts, 'prompt')} differ by {self.mean:.2g} on average and "
            f"{self.largest:.2g} at most{taps}"
        )

    def __str__(self) -> str:
        return f"engine ({self.engine}) and transformers agree: {self.describe()}"


async def compare_engine(
    prompts: Sequence[ComparedPrompt],
    encoder: ChatEncoder,
    generate: Generate,
    predict: Predict,
    *,
    rollout: RolloutConfig,
    dtype: str,
) -> EngineComparison:
    """Compare an engine with transformers.

    transformers predicts the tokens of sampled replies. Where replies may touch a screen, it also
    replies greedily, as the engine does, and the taps count unless the two greedy replies diverge
    at a near tie.

    Args:
        prompts: what to reply to.
        encoder: the model's encoder.
        generate: samples with the engine.
        predict: predicts with transformers.
        rollout: the engine's settings.
        dtype: `model.dtype`.

    Raises:
        EngineMismatch: the differences exceed their bounds.
        EngineError: the engine failed.
    """
    length = min(rollout.max_new_tokens, _MAX_REPLY)
    # Rounding errors of logits are divided by the temperature, too.
    default = _BOUNDS[dtype] / min(1.0, rollout.temperature)
    bound = rollout.engine_check.bound or default
    sampled, tapped = await _replies(prompts, encoder, generate, rollout.temperature, length)
    pairs = enumerate([*sampled, *tapped])
    predictions = await predict([reply_sequence(p.prompt, reply, n) for n, (p, reply) in pairs])
    differences = [
        abs(engine - reference)
        for (_, reply), predicted in zip(sampled, predictions[: len(sampled)], strict=True)
        for engine, reference in zip(reply.logprobs, predicted.logprobs, strict=True)
    ]
    distances = await tap_distances(
        tapped, predictions[len(sampled) :], predict, encoder,
        length=length, near_tie=_NEAR_TIE * bound,
    )  # fmt: skip
    found = EngineComparison(
        engine=rollout.engine,
        prompts=len(prompts),
        bound=bound,
        differences=tuple(differences),
        distances=tuple(distances),
    )
    if not found.agrees:
        raise _mismatch(found, rollout)
    return found


_Replies = list[tuple[ComparedPrompt, Reply]]
"""Prompts with the engine's replies to them."""


async def _replies(
    prompts: Sequence[ComparedPrompt],
    encoder: ChatEncoder,
    generate: Generate,
    temperature: float,
    length: int,
) -> tuple[_Replies, _Replies]:
    """Return the engine's sampled replies, and those of its greedy replies that tap."""
    tappable = [one for one in prompts if one.touch_of is not None]
    temperatures = [temperature] * len(prompts) + [0.0] * len(tappable)
    samplings = [
        Sampling(temperature=one, max_new_tokens=length, seed=turn_seed(0, number))
        for number, one in enumerate(temperatures)
    ]
    compared = [*prompts, *tappable]
    # Concurrently, because batches are padded and share caches.
    replies = await asyncio.gather(*map(generate, (one.prompt for one in compared), samplings))
    for reply in replies:
        check_reply(reply, encoder.vocab_size)
    pairs = [*zip(compared, replies, strict=True)]
    greedy = pairs[len(prompts) :]
    taps = [p for p in greedy if p[0].touch(encoder.text(p[1].token_ids)) is not None]
    return pairs[: len(prompts)], taps


def _mismatch(found: EngineComparison, rollout: RolloutConfig) -> EngineMismatch:
    names = ["transformers", *engine_class(rollout).capabilities.packages, "torch"]
    versions = ", ".join(f"{name} {_version(name)}" for name in dict.fromkeys(names))
    remedies = ["Install the versions that agentrl is tested with (requirements/)"]
    if rollout.engine_kwargs:
        remedies.append(f"change rollout.engine_kwargs={rollout.engine_kwargs}")
    if others := other_engines(rollout):
        remedies.append(f"set rollout.engine={' or '.join(others)}")
    return EngineMismatch(
        f"rollout.engine={rollout.engine} disagrees with transformers: {found.describe()} (bounds: "
        f"{found.bound:g} on average, rollout.engine_check.bound, and {_MAX_DISTANCE:g} of the "
        f"screen). Installed: {versions}. {', or '.join(remedies)}. "
        "rollout.engine_check.enabled=false skips this check"
    )


def _version(package: str) -> str:
    # The build of vLLM for CPUs has another name.
    for name in (package, f"{package}-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "(unknown version)"
