"""Checks of an engine, a class of `rollout.engine`; settings are its `rollout.engine_kwargs`.

They play with the built-in tiny model and compare its log-probabilities with transformers'.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from agentrl.check.extension_catalog import reference
from agentrl.check.finding import Finding, ok
from agentrl.check.support.tiny_model_folder import tiny_folder
from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError, EngineError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.policies.engines.engine import (
    ChatEngine,
    Engine,
    EngineSettings,
    Sampling,
    TokenEngine,
    check_reply,
)
from agentrl.types import Message, Prompt, Reply

if TYPE_CHECKING:
    from agentrl.policies.reference_model import ReferenceModel

_P = ParamSpec("_P")
_R = TypeVar("_R")
_REPLY = 8
TOLERANCE = 2e-3
"""Largest accepted difference between a log-probability and transformers' value."""
_REPLIES = "Replies are complete, and their log-probabilities are right"
_CHAT = "not run: the model of a ChatEngine is behind a server; play with it by `agentrl eval`"


def blocking(check: Callable[_P, Coroutine[Any, Any, _R]]) -> Callable[_P, _R]:
    """Let a check that awaits engines be called like any other."""

    @wraps(check)
    def run(*given: _P.args, **named: _P.kwargs) -> _R:
        return asyncio.run(check(*given, **named))

    return run


def check_arguments(target: type[Engine], settings: Mapping[str, Any]) -> None:
    """The engine accepts these arguments, and the packages it needs are installed."""
    rollout = RolloutConfig(engine=reference(target), engine_kwargs=dict(settings))
    target.check(rollout)
    if lacking := target.missing_packages(rollout):
        raise ConfigError(". ".join(lacking))
    # A misspelled argument must not be ignored.
    if (known := target.known_kwargs()) is not None and "no_such_argument" not in known:
        wrong = RolloutConfig(engine=reference(target), engine_kwargs={"no_such_argument": 1})
        try:
            target.check(wrong)
        except ConfigError:
            return
        raise AssertionError("check accepts rollout.engine_kwargs.no_such_argument; call super()")


def check_abilities(target: type[Engine], settings: Mapping[str, Any]) -> None:
    """The engine can do what its capabilities say."""
    able = target.capabilities
    assert issubclass(target, TokenEngine | ChatEngine), (
        f"{target.__name__} must be a subclass of TokenEngine or ChatEngine"
    )
    needs_model = issubclass(target, TokenEngine)
    assert able.needs_model == needs_model, (
        f"capabilities.needs_model must be {needs_model} for this kind of engine"
    )
    assert needs_model or not able.trains, "a ChatEngine cannot load weights; set trains=False"
    for name, is_able in (("load_adapter", able.max_lora_rank > 0), ("sleep", able.sleeps)):
        own = getattr(target, name, None) is not getattr(TokenEngine, name)
        assert not is_able or (needs_model and own), (
            f"the capabilities promise {name}(), which {target.__name__} does not define"
        )


@blocking
async def check_replies(target: type[Engine], settings: Mapping[str, Any]) -> Finding:
    """Replies are complete, with log-probabilities from the distribution that was sampled."""
    if not issubclass(target, TokenEngine):
        return ok(_REPLIES, _CHAT)
    worst = 0.0
    async with started(target, **settings) as (engine, folder):
        encoder = ChatEncoder(folder)
        prompts = example_prompts(encoder)
        # At temperature 1 alone, an engine that ignores the temperature would pass.
        for temperature in (1.0, 2.0):
            replies = await ask(engine, prompts, temperature=temperature)
            for prompt, reply in zip(prompts, replies, strict=True):
                _check_form(encoder, reply)
                found = logprob_difference(folder, prompt, reply, temperature)
                worst = max(worst, found)
        assert worst <= TOLERANCE, (
            f"log-probabilities differ by up to {worst:.3g} from transformers', after "
            f"temperature and with banned tokens masked (expected: at most {TOLERANCE})"
        )
        if target.capabilities.reproducible:
            again = await ask(engine, list(reversed(prompts)), reverse=True, temperature=2.0)
            assert [r.token_ids for r in reversed(again)] == [r.token_ids for r in replies], (
                "capabilities.reproducible is set, but prompts in a different order gave different "
                "tokens for the same seeds"
            )
        # Sampled greedily again, the reply must stop at a token from its middle.
        (whole,) = await ask(engine, prompts[:1], temperature=0)
        stop = whole.token_ids[len(whole.token_ids) // 2]
        (cut,) = await ask(engine, prompts[:1], temperature=0, stop=(stop,))
        expected = whole.token_ids[: whole.token_ids.index(stop) + 1]
        assert cut.token_ids == expected, (
            f"a reply does not end at the first of sampling.stop_token_ids=({stop},): "
            f"{cut.token_ids} instead of {expected}"
        )
    return ok(_REPLIES, f"largest difference from transformers: {worst:.1g}")


def _check_form(encoder: ChatEncoder, reply: Reply) -> None:
    tokens = reply.token_ids
    assert 1 <= len(tokens) <= _REPLY, f"a reply of {len(tokens)} tokens; max_new_tokens={_REPLY}"
    check_reply(reply, encoder.vocab_size)
    banned = set(tokens) & set(encoder.model_adapter.banned_token_ids)
    assert not banned, f"the image placeholders {sorted(banned)} were sampled"
    ends = [place for place, token in enumerate(tokens) if token in encoder.eos_token_ids]
    assert ends in ([], [len(tokens) - 1]), "a reply continues after its end token"
    assert ends or len(tokens) == _REPLY, "a reply that ends early must include its end token"


@blocking
async def check_weights(target: type[Engine], settings: Mapping[str, Any]) -> Finding | None:
    """The engine plays with the weights it has loaded, and rejects another model's weights."""
    from safetensors.torch import load_file, save_file

    if not issubclass(target, TokenEngine) or not target.capabilities.trains:
        return ok("It loads weights", "not run: its capabilities say that it does not")
    async with started(target, **settings) as (engine, folder):
        encoder = ChatEncoder(folder)
        prompts = example_prompts(encoder)
        # Fills the caches that the new weights make stale.
        await ask(engine, prompts)
        other = tiny_folder(1)
        await engine.load_weights(other / "model.safetensors", 7)
        for prompt, reply in zip(prompts, await ask(engine, prompts), strict=True):
            assert reply.version == 7, f"replies report version {reply.version} of the weights"
            worst = logprob_difference(other, prompt, reply)
            assert worst <= TOLERANCE, (
                f"after load_weights, log-probabilities differ by up to {worst:.3g} from what the "
                "new weights give"
            )
        incomplete = load_file(other / "model.safetensors")
        incomplete.pop(sorted(incomplete)[0])
        with TemporaryDirectory(prefix="agentrl-check-") as scratch:
            file = Path(scratch) / "incomplete.safetensors"
            save_file(incomplete, file)
            try:
                await engine.load_weights(file, 8)
            except EngineError:
                return None
        raise AssertionError(
            "load_weights accepts a file that lacks a weight; compare it with the model "
            "(agentrl.policies.engines.weight_checks.check_header)"
        )


@blocking
async def check_close(target: type[Engine], settings: Mapping[str, Any]) -> Finding | None:
    """The engine can be closed twice, even before it is started, and then stops answering."""
    if not issubclass(target, TokenEngine):
        return ok("The engine can be closed", _CHAT)
    async with started(target, **settings) as (engine, folder):
        unused = target(EngineSettings(folder=folder, max_context=1024), **settings)
        await unused.close()
        await engine.close()
        await engine.close()
        try:
            prompt = Prompt(token_ids=ChatEncoder(folder).opening())
            await asyncio.wait_for(engine.generate(prompt, Sampling(max_new_tokens=1)), 20)
        except EngineError:
            return None
        except TimeoutError:
            raise AssertionError("a closed engine never answers; raise EngineError") from None
        raise AssertionError("a closed engine still answers; raise EngineError")


@asynccontextmanager
async def started(
    target: type[TokenEngine], *, backend: str | None = None, **engine_kwargs: Any
) -> AsyncIterator[tuple[TokenEngine, Path]]:
    """Start an engine and close it at the end; yields it with its tiny model's read-only folder.

    Args:
        target: class of the engine.
        backend: see `EngineSettings`.
        engine_kwargs: see `rollout.engine_kwargs`.
    """
    folder = tiny_folder()
    settings = EngineSettings(folder=folder, max_context=1024, backend=backend)
    engine = target(settings, **engine_kwargs)
    try:
        await engine.start()
        yield engine, folder
    finally:
        await engine.close()


def example_prompts(encoder: ChatEncoder) -> list[Prompt]:
    """Return prompts with no image, one image, and two images of different sizes."""
    small, large = (
        np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
        for seed, shape in enumerate(((140, 84, 3), (196, 112, 3)))
    )
    messages = (
        Message(role="user", text="hello"),
        Message(role="user", text="<image>\nnext", images=(small,)),
        Message(role="user", text="<image>a<image>", images=(large, small)),
    )
    return [Conversation(encoder, "play").observe(message) for message in messages]


async def ask(
    engine: TokenEngine,
    prompts: Sequence[Prompt],
    *,
    temperature: float = 1.0,
    reverse: bool = False,
    stop: tuple[int, ...] = (),
) -> list[Reply]:
    """Request the replies to all prompts concurrently, each with its own seed."""
    seeds = range(len(prompts))[:: -1 if reverse else 1]
    samplings = [
        Sampling(seed=seed, temperature=temperature, max_new_tokens=_REPLY, stop_token_ids=stop)
        for seed in seeds
    ]
    # Engines may hold a batch back until every episode has sent its prompt.
    for _ in prompts:
        engine.begin_episode()
    try:
        return list(await asyncio.gather(*map(engine.generate, prompts, samplings)))
    finally:
        for _ in prompts:
            engine.end_episode()


def logprob_difference(
    folder: Path, prompt: Prompt, reply: Reply, temperature: float = 1.0
) -> float:
    """Return the largest difference between a reply's log-probabilities and transformers'.

    Args:
        folder: folder of the model that should have sampled the reply.
        prompt: the prompt that the engine got.
        reply: the engine's reply.
        temperature: the engine's sampling temperature.
    """
    expected = _model(folder).predict(prompt, reply.token_ids, temperature).logprobs
    return float(np.abs(np.subtract(reply.logprobs, expected)).max())


@lru_cache(maxsize=2)
def _model(folder: Path) -> "ReferenceModel":
    from agentrl.policies.reference_model import ReferenceModel

    return ReferenceModel(folder, ChatEncoder(folder))
