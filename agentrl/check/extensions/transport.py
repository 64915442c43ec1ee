"""Checks of a weight transport, a class of `train.weight_transfer`.

They send a tiny model's weights to an engine that the transport can reach.
"""

import asyncio
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from agentrl import accelerators
from agentrl.check.extensions.engine import (
    TOLERANCE,
    ask,
    blocking,
    example_prompts,
    logprob_difference,
    started,
)
from agentrl.check.finding import Finding, ok
from agentrl.check.support.tiny_model_folder import tiny_folder
from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError, EngineError
from agentrl.extension_points import ENGINE
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.engines.engine import TokenEngine
from agentrl.weight_sync import safetensors_files
from agentrl.weight_sync.engine_link import EngineLink, LocalLink
from agentrl.weight_sync.weight_sender import WeightSender
from agentrl.weight_sync.weight_transport import StreamedTransport, Update, WeightTransport

_DEADLINE_S = 120.0


def check_needs(target: type[WeightTransport]) -> Finding:
    """The engine and GPUs that the transport needs are available."""
    return ok("The engine and GPUs are available", f"checked with {_engine_for(target).__name__}")


@blocking
async def check_weights_arrive(target: type[WeightTransport]) -> None:
    """Engines play with each published version, with and without checksums."""
    from safetensors.torch import load_file

    async with _opened(target) as (engine, folder):
        encoder = ChatEncoder(folder)
        prompts = example_prompts(encoder)
        await ask(engine, prompts)
        transport, engines = target(), _Engines(target(), engine)
        learner = _Learner(transport, load_file(folder / "model.safetensors"))
        # Several versions, because a transport may send differences from the previous version.
        for version, checked in ((1, True), (2, False), (3, True)):
            new = tiny_folder(version % 2)
            learner.weights = load_file(new / "model.safetensors")
            learner.checked = checked
            update = Update(version=version, transport="checked", checked=checked)
            await asyncio.wait_for(transport.publish(learner, engines, update), _DEADLINE_S)
            for prompt, reply in zip(prompts, await ask(engine, prompts), strict=True):
                worst = logprob_difference(new, prompt, reply)
                assert worst <= TOLERANCE, (
                    f"after version {version} the engine's log-probabilities differ by up to "
                    f"{worst:.3g} from those of the published weights"
                )
                assert reply.version == version, (
                    f"replies report version {reply.version} after version {version} was published"
                )
        learner.close()
        learner.close()


def check_all_ranks(target: type[WeightTransport]) -> Finding | None:
    """Every rank of the learner iterates over all weights, and only rank 0 reaches the engines."""
    if not issubclass(target, StreamedTransport):
        return ok(
            "Every rank of the learner takes part",
            "not a StreamedTransport: the learner writes the weights itself",
        )
    import torch

    source = _Source({"first": torch.zeros(2), "last": torch.zeros(3)})
    target().send(source, _NoLink(1, 1), 1, "127.0.0.1")
    assert source.num_read == len(source.weights), (
        f"rank 1 read {source.num_read} of {len(source.weights)} weights in `send`; each is "
        "gathered from all ranks, so rank 0 would wait for it forever"
    )
    return None


@blocking
async def check_damaged_update(target: type[WeightTransport]) -> Finding | None:
    """An update with a missing weight or a wrong checksum raises EngineError."""
    from safetensors.torch import load_file

    if not issubclass(target, StreamedTransport):
        return ok(
            "A damaged update raises EngineError", "not a StreamedTransport: engines verify files"
        )
    # Each on its own engine: either update may leave an engine that has to be restarted.
    for is_missing in (False, True):
        async with _opened(target) as (engine, folder):
            engines = _Engines(target(), engine)
            learner = _Learner(target(), load_file(folder / "model.safetensors"))
            shapes = learner.shapes()
            names = list(shapes)
            await engines.begin_weight_update(1, shapes, not is_missing)
            if is_missing:
                learner.weights.pop(names[-1])
            try:
                await asyncio.to_thread(learner.send_weights, "checked", engines.link())
                await engines.finish_weight_update(1, names, None if is_missing else "0" * 32)
            except EngineError:
                continue
            finally:
                learner.close()
            raise AssertionError(
                f"`finish` accepts an update without {names[-1]}; raise EngineError"
                if is_missing
                else "`finish` accepts an update whose weights do not have the checksum `digest`; "
                "compare it with `weight_checks.join_digests`, and raise EngineError"
            )
    return None


class _Source:
    """Weights as one rank of a learner holds them."""

    def __init__(self, weights: dict[str, Any]) -> None:
        self.weights, self.num_read = weights, 0

    @property
    def dtype(self) -> Any:
        return next(iter(self.weights.values())).dtype

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self.weights.items()}

    def iter_full_weights(self) -> Iterator[tuple[str, Any]]:
        for name, tensor in self.weights.items():
            self.num_read += 1
            yield name, tensor


class _Learner(_Source):
    """Learner stub with the interface that the trainer uses."""

    def __init__(self, transport: WeightTransport, weights: dict[str, Any]) -> None:
        super().__init__(weights)
        self.checked = False
        self._transport = transport
        self._sender: WeightSender | None = None

    def save_weights(self, path: Path) -> None:
        safetensors_files.write(path, self.weights, checked=self.checked)

    def save_base(self, path: Path) -> None:
        raise ConfigError("adapters are not part of the checks")

    def save_adapter(self, folder: Path) -> None:
        raise ConfigError("adapters are not part of the checks")

    def send_weights(self, transport: str, link: EngineLink) -> str | None:
        assert isinstance(self._transport, StreamedTransport), (
            "publish calls send_weights, so it must be a StreamedTransport"
        )
        if self._sender is None:
            self._sender = WeightSender(self._transport, self, link, rank=0, host="127.0.0.1")
        return self._sender.send(checked=self.checked)

    def close(self) -> None:
        if self._sender is not None:
            self._sender.close()


class _Engines:
    """One engine with its end of the transport, behind the interface that the trainer uses."""

    def __init__(self, transport: WeightTransport, engine: TokenEngine) -> None:
        self._transport: Any = transport
        self._engine = engine
        self.load_weights = engine.load_weights
        self.load_adapter = engine.load_adapter

    async def begin_weight_update(
        self, version: int, shapes: Mapping[str, Sequence[int]], checked: bool
    ) -> None:
        await self._transport.begin(self._engine, version, shapes, checked)

    async def finish_weight_update(
        self, version: int, names: Sequence[str], digest: str | None
    ) -> None:
        await self._transport.finish(self._engine, version, names, digest)

    def link(self) -> EngineLink:
        async def receive(message: Any) -> None:
            # On the way to another process, a message is copied.
            await self._transport.receive(self._engine, pickle.loads(pickle.dumps(message)))

        return LocalLink(receive, 1, _DEADLINE_S)


class _NoLink(EngineLink):
    def send_each(self, messages: Sequence[Any]) -> None:
        """Fail: only rank 0 may send to the engines."""
        raise AssertionError("a rank other than 0 sends to the engines")


def _engine_for(target: type[WeightTransport]) -> type[TokenEngine]:
    """Return the first installed built-in engine that the transport can reach."""
    if target.needs.gpus is not None and not accelerators.count():
        raise ConfigError("the transport needs GPUs (needs.gpus), and there is none")
    for one in ENGINE.extensions():
        engine = ENGINE.resolve(one.name)
        if issubclass(engine, target.needs.engine):
            found: type[TokenEngine] = engine
            if not found.missing_packages(RolloutConfig(engine=one.name)):
                return found
    raise ConfigError(f"no engine of class {target.needs.engine.__name__} is installed")


def _opened(
    target: type[WeightTransport],
) -> AbstractAsyncContextManager[tuple[TokenEngine, Path]]:
    return started(_engine_for(target), backend=target.needs.backend)
