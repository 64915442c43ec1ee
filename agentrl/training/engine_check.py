"""Compares an engine with transformers on a job's first prompts (`rollout.engine_check`).

An engine that misplaces image tokens or applies wrong positions raises no error; its replies are
only worse. The engine samples replies to a few prompts, transformers predicts the same tokens, and
a job whose engine disagrees stops before its model plays.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Protocol

import numpy as np

from agentrl.actions.action_chunks import parse_actions
from agentrl.cluster.machine_resources import host_memory
from agentrl.config import ModelConfig, RolloutConfig
from agentrl.errors import ConfigError, EngineMismatch, EnvError, boundary
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.encode_messages import encode_prompt
from agentrl.policies.configured_image_size import resize_for
from agentrl.policies.engines.engine import Sampling, check_reply
from agentrl.policies.model_policy import turn_seed
from agentrl.policies.models.model_adapter import read_json
from agentrl.policies.open_encoder import open_encoder
from agentrl.policies.open_engine import engine_class
from agentrl.replay.plain_json import to_plain
from agentrl.replay.touch_positions import TouchPosition, touch_of_action
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.rollout_plan import RolloutPlan
from agentrl.rollout.workers.rollouts_interface import Rollouts
from agentrl.text.formatting import pluralize
from agentrl.types import IMAGE, Message, Prompt, Reply, Split, TokenPredictions, TokenSequence

if TYPE_CHECKING:
    from agentrl.policies.reference_model import ReferenceModel

log = logging.getLogger(__name__)

_MAX_REPLY = 64
"""Maximum number of tokens of a compared reply."""
_TURNS = 2
"""Number of turns of each episode: the second prompt may have two images."""
_BOUNDS = {"float32": 0.002, "bfloat16": 0.1}
"""Maximum mean difference of a log-probability, in nats, by `model.dtype`. Rounding to bfloat16
explains some hundredths in a 3B model (docs/results.md: k3 is half of the mean square)."""
_MAX_DISTANCE = 0.05
"""Maximum median distance of the greedy taps, as a share of the screen's width and height. The
median, because a single tap may move anywhere."""
_NEAR_TIE = 5.0
"""Two tokens are a near tie if transformers prefers one by less than this multiple of the bound."""
_TAPS_S = 60.0
"""Seconds after which no further tokens of transformers' greedy replies are computed."""
_MAX_COPY_BYTES = 8e9
"""Size in memory up to which a second copy of the model is loaded by default."""
_MEMORY_PER_COPY = 1.5
"""Free memory that a copy requires by default, as a multiple of its size: its forward passes need
some, too. An engine in CPU memory has loaded its own copy by then."""

Generate = Callable[[Prompt, Sampling], Awaitable[Reply]]
"""Samples one reply with the engines."""
TouchOf = Callable[[str], TouchPosition | None]
"""Returns where a reply touches the screen; None if it does not."""


class Predict(Protocol):
    """Predicts sampled tokens with transformers, at `rollout.temperature`."""

    def __call__(self, sequences: Sequence[TokenSequence]) -> Awaitable[Sequence[TokenPredictions]]:
        """Return the predictions of each sequence."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ComparedPrompt:
    """A prompt whose replies are compared."""

    prompt: Prompt
    touch_of: TouchOf | None = None
    """None if no reply touches a screen, as in a chat."""

    def touch(self, reply: str) -> TouchPosition | None:
        """Return where a reply touches the screen; None if it does not."""
        return None if self.touch_of is None else self.touch_of(reply)


@dataclass(slots=True, kw_only=True, frozen=True)
class EngineComparison:
    """Differences between an engine and transformers."""

    engine: str
    prompts: int
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

    def agrees(self, bound: float) -> bool:
        """Whether the differences are within their bounds."""
        # Written so that nan does not agree.
        return self.mean <= bound and not (self.distance or 0.0) > _MAX_DISTANCE

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
    tapped = [one for one in prompts if one.touch_of is not None]
    asked = [one.prompt for one in (*prompts, *tapped)]
    temperatures = [rollout.temperature] * len(prompts) + [0.0] * len(tapped)
    samplings = [
        Sampling(temperature=temperature, max_new_tokens=length, seed=turn_seed(0, number))
        for number, temperature in enumerate(temperatures)
    ]
    # Concurrently, because batches are padded and share caches.
    replies = await asyncio.gather(*map(generate, asked, samplings))
    for reply in replies:
        check_reply(reply, encoder.vocab_size)
    count = len(prompts)
    taps = [
        (one, reply)
        for one, reply in zip(tapped, replies[count:], strict=True)
        if one.touch(encoder.text(reply.token_ids)) is not None
    ]
    scored = [*zip(prompts, replies[:count], strict=True), *taps]
    sequences = [_sequence(one.prompt, reply, n) for n, (one, reply) in enumerate(scored)]
    predictions = await predict(sequences)
    differences = [
        abs(engine - reference)
        for reply, predicted in zip(replies[:count], predictions[:count], strict=True)
        for engine, reference in zip(reply.logprobs, predicted.logprobs, strict=True)
    ]
    # Rounding errors of logits are divided by the temperature, too.
    default = _BOUNDS[dtype] / min(1.0, rollout.temperature)
    bound = rollout.engine_check.bound or default
    greedy = [
        _GreedyReply(compared=one, engine_ids=reply.token_ids, predicted=predicted)
        for (one, reply), predicted in zip(taps, predictions[count:], strict=True)
    ]
    await _continue_greedily(greedy, predict, encoder.eos_token_ids, length, _NEAR_TIE * bound)
    distances = [one.distance(encoder) for one in greedy]
    found = EngineComparison(
        engine=rollout.engine,
        prompts=count,
        differences=tuple(differences),
        distances=tuple(one for one in distances if one is not None),
    )
    if not found.agrees(bound):
        raise _mismatch(found, rollout, bound)
    return found


def _sequence(prompt: Prompt, reply: Reply, index: int) -> TokenSequence:
    start, size = len(prompt.token_ids), len(reply.token_ids)
    return TokenSequence(
        token_ids=(*prompt.token_ids, *reply.token_ids),
        sampled_positions=tuple(range(start, start + size)),
        logprobs=reply.logprobs,
        versions=reply.token_versions,
        turns=(0,) * size,
        images=prompt.images,
        episode=index,
    )


class _GreedyReply:
    """An engine's greedy reply, and transformers' greedy reply to the same prompt."""

    def __init__(
        self, *, compared: ComparedPrompt, engine_ids: Sequence[int], predicted: TokenPredictions
    ) -> None:
        self._compared, self._engine_ids, self._predicted = compared, tuple(engine_ids), predicted
        pairs = enumerate(zip(engine_ids, predicted.most_probable, strict=True))
        self._divergence = next((place for place, (one, other) in pairs if one != other), None)
        """The first place at which the replies differ; None if they are equal."""
        self.reference_ids: tuple[int, ...] | None = self._engine_ids
        """transformers' reply so far; None if the replies differ only by a near tie."""
        if (place := self._divergence) is not None:
            self.reference_ids = (*self._engine_ids[:place], predicted.most_probable[place])
        self.is_complete = self._divergence is None

    def next_sequence(self) -> TokenSequence:
        """Return a sequence whose last prediction is the next token."""
        assert self.reference_ids is not None
        tokens = (*self.reference_ids, self.reference_ids[-1])
        reply = Reply(token_ids=tokens, logprobs=(0.0,) * len(tokens), version=0)
        return _sequence(self._compared.prompt, reply, 0)

    def extend(
        self, predicted: TokenPredictions, ends: Sequence[int], length: int, near_tie: float
    ) -> None:
        """Append the next token, unless the reply has ended."""
        place = self._divergence
        assert place is not None
        assert self.reference_ids is not None
        if predicted.logprobs[place] - self._predicted.logprobs[place] < near_tie:
            self.reference_ids, self.is_complete = None, True
        elif self.reference_ids[-1] in ends or len(self.reference_ids) >= length:
            self.is_complete = True
        else:
            self.reference_ids = (*self.reference_ids, predicted.most_probable[-1])

    def distance(self, encoder: ChatEncoder) -> float | None:
        """Return the distance of the taps; None if unknown, or if a reply touches nothing."""
        if self.reference_ids is None or not self.is_complete:
            return None
        texts = map(encoder.text, (self._engine_ids, self.reference_ids))
        one, other = map(self._compared.touch, texts)
        if one is None or other is None:
            return None
        return math.hypot(one.x - other.x, one.y - other.y)


async def _continue_greedily(
    replies: Sequence[_GreedyReply],
    predict: Predict,
    ends: Sequence[int],
    length: int,
    near_tie: float,
) -> None:
    """Complete transformers' greedy replies where they differ from the engine's.

    Each token takes a forward pass of whole prompts, so this ends after `_TAPS_S`.
    """
    started = time.monotonic()
    while time.monotonic() - started < _TAPS_S:
        left = [one for one in replies if not one.is_complete]
        if not left:
            return
        predictions = await predict([one.next_sequence() for one in left])
        for one, predicted in zip(left, predictions, strict=True):
            one.extend(predicted, ends, length, near_tie)


def _mismatch(found: EngineComparison, rollout: RolloutConfig, bound: float) -> EngineMismatch:
    names = ["transformers", *engine_class(rollout).capabilities.packages, "torch"]
    versions = ", ".join(f"{name} {_version(name)}" for name in dict.fromkeys(names))
    remedies = ["Install the versions that agentrl is tested with (requirements/)"]
    if rollout.engine_kwargs:
        remedies.append(f"change rollout.engine_kwargs={rollout.engine_kwargs}")
    remedies.append("use another engine (agentrl list engine)")
    return EngineMismatch(
        f"rollout.engine={rollout.engine} disagrees with transformers: {found.describe()} (bounds: "
        f"{bound:g} on average, rollout.engine_check.bound, and {_MAX_DISTANCE:g} of the screen). "
        f"Installed: {versions}. {', or '.join(remedies)}. "
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


async def opening_prompts(
    rollouts: Rollouts,
    plan: RolloutPlan,
    encoder: ChatEncoder,
    seeds: Sequence[int],
    *,
    split: Split = "eval",
    mixture: Sequence[str] = ("",),
    step: int = 0,
) -> list[ComparedPrompt]:
    """Play the first turns of a few episodes with the model, and return their prompts.

    Args:
        rollouts: play the episodes.
        plan: what they play.
        encoder: the model's encoder.
        seeds: the environment's seeds in this split.
        split: split of the seeds.
        mixture: the environments to play.
        step: number of training steps of the model.
    """
    wanted = plan.settings.rollout.engine_check.prompts
    turns = min(_TURNS, *(plan.env(split, name).settings.max_turns for name in mixture))
    count = max(len(mixture), math.ceil(wanted / turns))
    names = [mixture[number % len(mixture)] for number in range(count)]
    chosen = [seeds[number % len(seeds)] for number in range(count)]
    requests = requests_of_step(split, step, chosen, 1, "engine-check", envs=names)
    played = await rollouts.collect([replace(one, opening_turns=turns) for one in requests])
    touches = {
        name: await asyncio.to_thread(_touch_reader, plan, encoder, split, name) for name in mixture
    }
    return [
        ComparedPrompt(
            prompt=Prompt(token_ids=turn.prompt_ids, images=turn.images), touch_of=touches[name]
        )
        for name, scored in zip(names, played, strict=True)
        for turn in scored.episode.turns
    ]


def _touch_reader(
    plan: RolloutPlan, encoder: ChatEncoder, split: Split, name: str
) -> TouchOf | None:
    """Return a function that finds where a reply touches the screen; None if that is unknown."""
    env, model = plan.env(split, name), plan.settings.model
    try:
        translator = open_translator(env, lambda dialect: resize_for(dialect, model, encoder))
    except ConfigError as error:  # it needs the action space of an environment on a phone
        log.debug("the taps of %s are not compared: %s", env.id, error)
        return None

    def touch(reply: str) -> TouchPosition | None:
        try:
            with boundary(EnvError, f"the translator of {env.id} failed"):
                parsed = parse_actions(translator, reply, env.settings.max_actions_per_reply)
        except EnvError as error:  # it may need its environment's current state
            log.debug("a tap of %s is not compared: %s", env.id, error)
            return None
        return touch_of_action(to_plain(parsed.actions[0]), reply) if parsed.actions else None

    return touch


def chat_prompts(encoder: ChatEncoder, rollout: RolloutConfig) -> list[ComparedPrompt]:
    """Return prompts for a chat, whose questions are not known yet: with two pictures and without.

    Leaves out a prompt for which `rollout.max_context` has no room.
    """
    asked = [Message(role="user", text="Which of the letters in this sentence is the first?")]
    if encoder.model_adapter.image_token_id is not None:
        pictures = (_picture(196, 112), _picture(140, 168))
        asked.append(
            Message(role="user", text=f"{IMAGE}\n{IMAGE}\nWhat do you see?", images=pictures)
        )
    room = rollout.max_context - rollout.max_new_tokens
    prompts = [encode_prompt(encoder, "", [message]) for message in asked]
    return [ComparedPrompt(prompt=one) for one in prompts if len(one.token_ids) <= room]


def _picture(height: int, width: int) -> np.ndarray:
    rows, columns = np.mgrid[0:height, 0:width]
    red, green = 255 * rows // height, 255 * columns // width
    picture = np.stack([red, green, np.full_like(red, 64)], axis=-1).astype(np.uint8)
    picture[height // 8 : height // 3, width // 2 : width - width // 8] = (250, 250, 250)
    return picture


class ReferenceCopy:
    """A second copy of the model in transformers, loaded when it is first needed.

    Args:
        folder: the model's folder.
        model: the model's settings.
        rollout: the engine's settings.

    Raises:
        ConfigError: the settings ask for the copy of a quantized model.
    """

    def __init__(self, folder: Path, model: ModelConfig, rollout: RolloutConfig) -> None:
        self._folder, self._model, self._rollout = folder, model, rollout
        if rollout.engine_check.enabled and _is_quantized(folder):
            raise ConfigError(
                f"rollout.engine_check.enabled=true: {folder} is quantized (quantization_config in "
                "its config.json), so transformers cannot compute its log-probabilities on the "
                "CPU; remove the setting, or use the model that is not quantized"
            )
        self.encoder = open_encoder(model, folder)
        self._loaded: ReferenceModel | None = None

    def is_wanted(self) -> bool:
        """Whether `rollout.engine_check` asks for a comparison with a second copy; blocks.

        Call this when the engine has started: its memory is not free.
        """
        enabled = self._rollout.engine_check.enabled
        if enabled is not None:
            return enabled
        if _is_quantized(self._folder):
            log.warning(
                "the engine is not compared with transformers, because the model is quantized"
            )
            return False
        size, free = _copy_bytes(self._folder, self._model.dtype), host_memory().free
        if size <= _MAX_COPY_BYTES and size * _MEMORY_PER_COPY <= free:
            return True
        log.warning(
            "the engine is not compared with transformers, which would load another %.0f GB into "
            "CPU memory (%.0f GB are free); rollout.engine_check.enabled=true compares them",
            size / 1e9,
            free / 1e9,
        )
        return False

    async def compare(
        self, prompts: Sequence[ComparedPrompt], generate: Generate
    ) -> EngineComparison:
        """See `compare_engine`."""
        try:
            return await compare_engine(
                prompts,
                self.encoder,
                generate,
                self._predict,
                rollout=self._rollout,
                dtype=self._model.dtype,
            )
        finally:
            self._loaded = None

    async def _predict(self, sequences: Sequence[TokenSequence]) -> list[TokenPredictions]:
        # Imported late: this loads torch, which takes seconds.
        from agentrl.policies.reference_model import ReferenceModel

        def predict() -> list[TokenPredictions]:
            model = self._loaded = self._loaded or ReferenceModel(
                self._folder, self.encoder, self._model.dtype
            )
            return [
                model.predict(*_split(one), temperature=self._rollout.temperature)
                for one in sequences
            ]

        return await asyncio.to_thread(predict)


def _is_quantized(folder: Path) -> bool:
    """Whether a checkpoint's weights are quantized, such as by AWQ or to FP8."""
    config = read_json(folder / "config.json")
    return any("quantization_config" in part for part in (config, config.get("text_config") or {}))


def _copy_bytes(folder: Path, dtype: str) -> int:
    """Return the size of a model's weights in memory, in a dtype that may not be its files'."""
    # Imported late: this loads torch, which takes seconds.
    import torch

    from agentrl.policies.models import load_on_meta

    count = sum(weight.numel() for weight in load_on_meta(folder).parameters())
    of_one: torch.dtype = getattr(torch, dtype)
    return count * of_one.itemsize


def _split(sequence: TokenSequence) -> tuple[Prompt, tuple[int, ...]]:
    start = sequence.sampled_positions[0]
    prompt = Prompt(token_ids=sequence.token_ids[:start], images=sequence.images)
    return prompt, sequence.token_ids[start:]
