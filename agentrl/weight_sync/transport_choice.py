"""Selects and validates the weight transport, given the configuration and the GPUs."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

from agentrl.cluster.node_discovery import find_nodes
from agentrl.config import LoraConfig, RolloutConfig, TrainConfig
from agentrl.errors import ConfigError
from agentrl.extension_points import ENGINE, TRANSPORT
from agentrl.policies.engines.engine import Engine
from agentrl.policies.open_engine import engine_class
from agentrl.weight_sync.weight_transport import WeightTransport


@dataclass(slots=True, kw_only=True, frozen=True)
class TransportChoice:
    """Selects the transport that sends weights from the learner to the engines.

    The settings must come from a planned job, in which `rollout.place` has been decided; see
    `Layout.applied_to`.
    """

    rollout: RolloutConfig
    train: TrainConfig
    lora: LoraConfig

    def check(self) -> None:
        """Raise ConfigError unless weights can be published, as far as known before the start."""
        self._check_adapters()
        gpus = self._gpu_counter()
        # `auto` always finds a transport, because a file reaches every engine.
        if not self._is_automatic:
            problem = self._problem(transport_class(self.train.weight_transfer), gpus)
            if problem is not None:
                raise ConfigError(f"train.weight_transfer={self.train.weight_transfer}{problem}")
        if self.rollout.sleep:
            self._check_sleep(gpus)

    def _gpu_counter(self, known: int | None = None) -> Callable[[], int]:
        """Return a function that counts GPUs lazily, because counting requires importing torch."""
        return functools.cache(lambda: num_gpus(self.rollout) if known is None else known)

    def _problem(self, transport: type[WeightTransport], gpus: Callable[[], int]) -> str | None:
        """Return why a transport cannot be used, as text to append to its name, or None."""
        needs = transport.needs
        if self.serves_adapters and not transport.carries_adapters:
            return ": model.lora.serve=adapter needs train.weight_transfer=file or auto"
        if not issubclass(self._engine, needs.engine):
            able = [n for n, one in _built_in_engines().items() if issubclass(one, needs.engine)]
            names = " or ".join(able) or needs.engine.__name__
            return (
                f" needs rollout.engine={names}; for {self.rollout.engine} set "
                "train.weight_transfer=file"
            )
        if needs.gpus is not None and gpus() == 0:
            return " needs a GPU, but there is no GPU; set train.weight_transfer=file"
        if needs.gpus == "different" and self._share_gpus:
            return (
                " transfers weights between different GPUs, but engine and learner share a GPU "
                f"({self._counts(gpus())}); {self._alternative('same')}"
            )
        if needs.gpus == "same" and not self._share_gpus:
            return (
                " works within one GPU, but engine and learner are on different GPUs "
                f"({self._counts(gpus())}); {self._alternative('different')}"
            )
        # A learner's rank has one GPU and shares memory only with the worker on that GPU.
        if needs.max_workers is not None and self.num_workers > needs.max_workers:
            return (
                " does not support engines on several GPUs, because each learner rank shares only "
                "one of them; set train.weight_transfer=file"
            )
        return None

    def _alternative(self, gpus: str) -> str:
        """Suggest a transport for engines on the same GPUs as the learner, or on different ones."""
        fits = (
            name for name, one in built_in().items()
            if one.needs.gpus == gpus and issubclass(self._engine, one.needs.engine)
        )  # fmt: skip
        return f"set train.weight_transfer={next(fits, 'file')}"

    def _check_adapters(self) -> None:
        if not self.serves_adapters:
            if self.lora.serve == "adapter":
                raise ConfigError(
                    "model.lora.serve=adapter needs adapters; set model.lora.rank above 0"
                )
            return
        most = self._engine.capabilities.max_lora_rank
        if most == 0:
            raise ConfigError(
                f"model.lora.serve=adapter: rollout.engine={self.rollout.engine} supports "
                "merged weights only, which are as fast; remove model.lora.serve"
            )
        if self.lora.rank > most:
            raise ConfigError(
                f"model.lora.rank={self.lora.rank}: rollout.engine={self.rollout.engine} supports "
                f"adapters up to rank {most}; lower the rank or set model.lora.serve=merged"
            )

    def _check_sleep(self, gpus: Callable[[], int]) -> None:
        if not self._engine.capabilities.sleeps or gpus() == 0:
            able = [name for name, one in _built_in_engines().items() if one.capabilities.sleeps]
            raise ConfigError(
                f"rollout.sleep=true: only engines such as {', '.join(able)} can sleep, and only "
                "on a GPU; remove rollout.sleep"
            )
        if self.train.mode == "async":
            raise ConfigError(
                "rollout.sleep=true: with train.mode=async the engines generate while the learner "
                "updates, so they cannot sleep; remove rollout.sleep"
            )
        if not self._share_gpus:
            raise ConfigError(
                "rollout.sleep=true: engine and learner are on different GPUs "
                f"({self._counts(gpus())}), so sleeping frees no memory; remove rollout.sleep"
            )

    def transport(self, gpus: int | None = None) -> str:
        """Return the setting that names the transport, the same in every process of a job."""
        if not self._is_automatic:
            return self.train.weight_transfer
        counted = self._gpu_counter(gpus)
        possible = {
            name: one.preference for name, one in built_in().items()
            if one.preference is not None and self._problem(one, counted) is None
        }  # fmt: skip
        return max(possible, key=lambda name: possible[name])

    def transport_class(self, gpus: int | None = None) -> type[WeightTransport]:
        """The class of the transport; see `transport`."""
        return transport_class(self.transport(gpus))

    def sleeps(self, gpus: int | None = None) -> bool:
        """Whether engines sleep while the learner computes on their GPU."""
        if self.rollout.sleep is not None:
            return self.rollout.sleep
        # Count GPUs last, because that requires importing torch.
        if self.train.mode != "sync" or not self._engine.capabilities.sleeps:
            return False
        return self._share_gpus and self._gpu_counter(gpus)() > 0

    @property
    def serves_adapters(self) -> bool:
        """Whether engines receive only the adapters."""
        return self.lora.rank > 0 and self.lora.serve == "adapter"

    @property
    def num_workers(self) -> int:
        """Number of worker processes per engine, each with a part of its weights."""
        return self._engine.num_workers(self.rollout.engine_kwargs)

    @property
    def _engine(self) -> type[Engine]:
        return engine_class(self.rollout)

    @property
    def _is_automatic(self) -> bool:
        return self.train.weight_transfer == "auto"

    @property
    def _share_gpus(self) -> bool:
        """See `placement.plan_layout`; in one process, both use the first GPU."""
        return self.rollout.launcher == "local" or self.rollout.place == "together"

    def _counts(self, gpus: int) -> str:
        return f"{self.rollout.actors} engines, {self.train.ranks} ranks, {gpus} GPUs"


def transport_class(name: str) -> type[WeightTransport]:
    """Return the class named by a value of `train.weight_transfer` other than `auto`."""
    found: type[WeightTransport] = TRANSPORT.resolve(name)
    return found


def built_in() -> dict[str, type[WeightTransport]]:
    """Return the transports that `auto` chooses from."""
    names = [one.name for one in TRANSPORT.extensions() if one.origin == "agentrl"]
    return {name: transport_class(name) for name in names}


def _built_in_engines() -> dict[str, type[Engine]]:
    names = [one.name for one in ENGINE.extensions() if one.origin == "agentrl"]
    return {name: ENGINE.resolve(name) for name in names}


def num_gpus(rollout: RolloutConfig) -> int:
    """Return the number of GPUs that the job can use."""
    return sum(node.gpus for node in find_nodes(rollout.launcher))
