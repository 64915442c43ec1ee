"""A model of one rank: sharded for training, whole for engines and for disk."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.policies.kits import load_model
from agentrl.text import did_you_mean
from agentrl.training import weights
from agentrl.training.parallel import Rank, local, reshard, scatter, shard, whole
from agentrl.training.scorer import Backbone

_PREFIX = "policy."

S = TypeVar("S", bound=Backbone)


class Sharded(Generic[S]):
    """A model spread over the ranks.

    Args:
        scorer: makes what is called of the loaded Hugging Face model.
        config: the whole job's.
        folder: the model to start from, in the Hugging Face format.
        rank: this rank.
        frozen: True for a reference that is never trained.

    Raises:
        ConfigError: it cannot be loaded.
    """

    def __init__(
        self,
        scorer: Callable[[nn.Module], S],
        config: Config,
        folder: Path,
        rank: Rank,
        frozen: bool = False,
    ) -> None:
        self._folder = folder
        self._rank = rank
        self._dtype: torch.dtype = getattr(torch, config.model.dtype)
        # flash-attn is chosen by the type of the computation; the masters are float32.
        policy = load_model(folder, dtype=config.model.dtype, attention=config.model.attention).to(
            rank.device, torch.float32
        )
        self.scorer = scorer(policy)
        self.scorer.requires_grad_(not frozen)
        checkpointing = config.train.gradient_checkpointing and not frozen
        self.scorer.train(checkpointing)
        if checkpointing:
            policy.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
        if config.model.freeze_vision:
            for parameter in self.scorer.vision():
                parameter.requires_grad_(False)
        self.width = self.scorer.width()
        # flash-attn knows causal masks alone.
        settings: Any = policy.config
        self.masks = "flash" not in str(settings._attn_implementation)
        shard(self.scorer, self.scorer.layers(), rank, self._dtype)

    @torch.no_grad()
    def look(self, *args: Any) -> Any:
        """What the scorer says; without gradient, and the model stays as it was."""
        found = self.scorer(*args)
        reshard(self.scorer)
        return found

    def masters(self) -> dict[str, Tensor]:
        """The full float32 weights by name, on the CPU; a collective call."""
        return {n: whole(local(p), p) for n, p in self._named().items()}

    def take(self, full: Mapping[str, Tensor]) -> None:
        """Replace the weights; every rank is given them in full.

        Raises:
            ConfigError: they are another model's.
        """
        own = self._named()
        _check_fit({name: tuple(p.shape) for name, p in own.items()}, full)
        for name, parameter in own.items():
            scatter(full[name], local(parameter), parameter)

    def live(self) -> dict[str, Tensor]:
        """The float32 weights by name as they are spread, sharing their memory."""
        return {name: parameter.detach() for name, parameter in self._named().items()}

    def weights(self) -> dict[str, Tensor]:
        """The full weights by name, on the CPU, in `model.dtype`; a collective call."""
        return {name: tensor.to(self._dtype) for name, tensor in self.masters().items()}

    def save(self, path: Path) -> None:
        """Write the weights as a safetensors file, atomically; a collective call."""
        full = self.weights()
        if self._rank.number == 0:
            weights.write(path, full)

    def load(self, path: Path) -> None:
        """Read what `save` wrote.

        Raises:
            ConfigError: they are another model's, or no weights at all.
        """
        self.take(weights.read(path))

    def export(self, folder: Path) -> None:
        """Write an ordinary Hugging Face folder, atomically; a collective call."""
        full = self.weights()
        if self._rank.number == 0:
            weights.export(self._folder, folder, full)

    def _named(self) -> dict[str, nn.Parameter]:
        return {n.removeprefix(_PREFIX): p for n, p in self.scorer.named_parameters()}


def _check_fit(own: Mapping[str, tuple[int, ...]], full: Mapping[str, Tensor]) -> None:
    for name, shape in own.items():
        if name not in full:
            raise ConfigError(
                f"these weights belong to another model: {name} is missing"
                f"{did_you_mean(name, full)}"
            )
        if tuple(full[name].shape) != shape:
            raise ConfigError(
                f"these weights belong to another model: {name} has shape "
                f"{tuple(full[name].shape)}, the model's is {shape}"
            )
