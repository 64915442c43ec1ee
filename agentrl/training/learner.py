"""One rank of the learner: policy-gradient updates, supervised steps, and its exact state."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from agentrl.config import Config, OptimConfig, WarmStartConfig
from agentrl.errors import ConfigError
from agentrl.policies.kits import kit_for
from agentrl.training import batching, mismatch
from agentrl.training.algorithms import algorithm, kl_k3
from agentrl.training.cloner import Cloner
from agentrl.training.faults import LearnerError
from agentrl.training.model import TrainedModel
from agentrl.training.optimizer import Optimizer, warmed_up
from agentrl.training.parallel import join
from agentrl.training.shares import share, weigh
from agentrl.training.tally import Tally
from agentrl.training.weights import read_state
from agentrl.types import Batch, Sample

_log = logging.getLogger(__name__)

MAX_SKIPS = 5
"""Optimizer steps in a row that may be skipped because loss or gradient are not finite."""


class Learner:
    """One rank; every rank is given the same samples and takes its share of them.

    Args:
        config: the whole job's.
        folder: the model to start from, in the Hugging Face format.
        rank: this process, from 0.
        world_size: how many ranks there are.
        rendezvous: `tcp://host:port` where they meet; None for a single rank.

    Raises:
        ConfigError: the model cannot be loaded, or the algorithm does not exist.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        rank: int = 0,
        world_size: int = 1,
        rendezvous: str | None = None,
    ) -> None:
        self._algorithm = algorithm(config.algorithm.name)
        self._config = config
        self._folder = folder
        self._kit = kit_for(folder)
        self._rank = join(rank, world_size, rendezvous, config.train.deadline_s)
        self._model = TrainedModel(config, folder, self._kit, self._rank)
        self._optimizer = self._make_optimizer(config.optim)
        self._cloner: Cloner | None = None
        self._reference: TrainedModel | None = None
        self._optimizer_steps = 0
        self._skips_in_a_row = 0
        self.version = 0
        """How often `update` was called."""

    def _make_optimizer(self, config: OptimConfig | WarmStartConfig) -> Optimizer:
        return Optimizer(
            dict(self._model.scorer.named_parameters()),
            self._rank,
            betas=config.betas,
            weight_decay=config.weight_decay,
            grad_clip=config.grad_clip,
        )

    def update(self, samples: Sequence[Sample], step: int | None = None) -> dict[str, float]:
        """Learn from one step's samples: `algorithm.epochs` passes of one or more steps.

        Samples without any advantage count in the loss, but are not computed, unless a KL term
        needs them: the gradient is the same.

        Args:
            samples: the same on every rank.
            step: names the shuffle; None takes the number of updates so far.

        Returns:
            loss, grad_norm, lr: means over the optimizer steps. clip_share, entropy (nats),
            approx_kl (k3 against the engine's log-probabilities), kl (k3 against the reference,
            if there is one): means over the tokens computed. mismatch_*: see `mismatch.measure`.
            tokens: that the policy sampled; tokens_computed: per pass. optimizer_steps, skipped,
            version, seconds.

        Raises:
            LearnerError: `MAX_SKIPS` steps in a row had a loss or gradient that is not finite.
        """
        started = time.perf_counter()
        settings = self._config.algorithm
        if settings.kl_coefficient > 0 and self._reference is None:
            self._reference = self._frozen(self._model.masters())
        tally = Tally(self._rank)
        name = self.version if step is None else step
        shuffle = torch.Generator().manual_seed(self._config.seed * 1_000_003 + name)
        num_steps = self._steps_per_pass(samples)
        orders = [torch.randperm(len(samples), generator=shuffle) for _ in range(settings.epochs)]
        compared = self._compare_with_engine([samples[i] for i in orders[0].tolist()])
        for order in orders if samples else ():
            for part in order.tensor_split(num_steps):
                self._policy_step([samples[i] for i in part.tolist()], tally)
        self.version += 1
        metrics = tally.means() | compared
        metrics["tokens"] = float(sum(batching.num_sampled(sample) for sample in samples))
        metrics["tokens_computed"] = metrics.pop("count") / settings.epochs
        metrics["version"] = float(self.version)
        metrics["seconds"] = time.perf_counter() - started
        return metrics

    def _compare_with_engine(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Before any step has moved the model."""
        return mismatch.measure(
            samples,
            self._model,
            self._kit,
            self._rank,
            temperature=self._config.rollout.temperature,
            max_tokens=self._config.train.micro_batch_tokens,
        )

    def _steps_per_pass(self, samples: Sequence[Sample]) -> int:
        """As few as keep `algorithm.minibatch`: where few samples teach, few steps are taken."""
        size = self._config.algorithm.minibatch
        teaching = sum(batching.teaches(sample) for sample in samples)
        return 1 if size is None else max(1, math.ceil(teaching / size))

    def _policy_step(self, samples: Sequence[Sample], tally: Tally) -> None:
        weighed = weigh(samples, self._config.algorithm.aggregate)
        if self._reference is None:
            weighed = [(s, weight) for s, weight in weighed if batching.teaches(s)]
        if not weighed:
            return
        total = torch.zeros((), device=self._rank.device)
        budget = self._config.train.micro_batch_tokens
        for part in share(weighed, budget, self._kit, self._rank):
            loss = part.loss(self._token_losses(part.batch, tally, part.real))
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        optim = self._config.optim
        past = self.version / max(1, self._config.train.steps - 1)
        lr = optim.lr * (1 - (1 - optim.lr_final_ratio) * min(1.0, past))
        lr = warmed_up(lr, self._optimizer_steps, optim.lr_warmup_steps)
        self._watch(tally.add_step(lr, *self._optimizer.step(lr, total)))
        self._optimizer_steps += 1

    def _token_losses(self, batch: Batch, tally: Tally, real: float) -> Tensor:
        """[N] the loss of every sampled token."""
        settings, temperature = self._config.algorithm, self._config.rollout.temperature
        logprobs, entropy, _ = self._model.scorer(batch, temperature)
        sampled = batch.loss_mask[:, 1:]
        old = batch.logprobs[:, 1:][sampled]
        result = self._algorithm.loss(logprobs, old, batch.advantages[:, 1:][sampled], settings)
        loss, seen = result.loss, {"clip_share": result.clipped, "entropy": entropy}
        if self._reference is not None:
            with torch.no_grad():
                reference = self._reference.scorer(batch, temperature).logprobs
            seen["kl"] = kl_k3(logprobs, reference)
            loss = loss + settings.kl_coefficient * seen["kl"]
        with torch.no_grad():
            # The tokens were drawn by the engine: this estimates KL(engine | learner).
            seen["approx_kl"] = kl_k3(old, logprobs)
            tally.add(seen, real)
        return loss

    def begin_cloning(self, config: WarmStartConfig) -> None:
        """Start supervised steps, with an optimizer of their own."""
        self._cloner = Cloner(
            self._model,
            self._make_optimizer(config),
            self._kit,
            self._rank,
            self._config.train.micro_batch_tokens,
        )

    def end_cloning(self) -> None:
        """Forget the supervised optimizer."""
        self._cloner = None

    def clone(self, samples: Sequence[Sample], lr: float) -> dict[str, float]:
        """One supervised step on the tokens of the loss mask, at temperature 1.

        Args:
            samples: the same on every rank.
            lr: learning rate of this step.

        Returns:
            loss (mean negative log-likelihood per token), token_accuracy (share of tokens that are
            the model's first choice), entropy, grad_norm, lr, tokens, skipped, seconds.

        Raises:
            LearnerError: as `update`.
        """
        assert self._cloner is not None, "begin_cloning was not called"
        metrics = self._cloner.step(samples, lr)
        self._watch(not metrics["skipped"])
        return metrics

    def _watch(self, stepped: bool) -> None:
        """Stop where training diverged for good."""
        self._skips_in_a_row = 0 if stepped else self._skips_in_a_row + 1
        if not stepped:
            _log.warning("optimizer step skipped: loss or gradient is not finite")
        if self._skips_in_a_row >= MAX_SKIPS:
            raise LearnerError(
                f"training diverged: loss or gradient were not finite in {MAX_SKIPS} optimizer "
                "steps in a row. Lower the learning rate, or resume from an earlier checkpoint."
            )

    def _frozen(self, full: Mapping[str, Tensor]) -> TrainedModel:
        reference = TrainedModel(self._config, self._folder, self._kit, self._rank, frozen=True)
        reference.take(full)
        return reference

    def weights(self) -> dict[str, Tensor]:
        """The full weights by name, on the CPU, in `model.dtype`; a collective call."""
        return self._model.weights()

    def save_weights(self, path: Path) -> None:
        """Write the full weights as a safetensors file, atomically; a collective call."""
        self._model.save(path)

    def load_weights(self, path: Path) -> None:
        """Read what `save_weights` or `export` wrote; optimizers stay as they are.

        Raises:
            ConfigError: they are another model's, or no weights at all.
        """
        self._model.load(path)

    def export(self, folder: Path) -> None:
        """Write an ordinary Hugging Face folder, atomically; a collective call."""
        self._model.export(folder)

    def save_state(self, path: Path) -> None:
        """Write `state` to a file; a collective call."""
        state = self.state()
        if self._rank.number == 0:
            torch.save(state, path)

    def restore(self, path: Path) -> None:
        """Go on exactly where `save_state` was called.

        Raises:
            ConfigError: the file is broken, or belongs to another model or job.
        """
        self.load_state(read_state(path))

    def state(self) -> dict[str, Any]:
        """All that the next steps depend on, in full tensors on the CPU; a collective call."""
        cloner, reference = self._cloner, self._reference
        return {
            "job": self._identity(),
            "model": self._model.masters(),
            "optimizer": self._optimizer.state(),
            "cloning": cloner.state() if cloner else None,
            "reference": reference.masters() if reference else None,
            "optimizer_steps": self._optimizer_steps,
            "version": self.version,
            "rng": torch.get_rng_state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where `state` was taken; every rank is given all of it.

        Where it was taken while cloning, `begin_cloning` must come first.

        Raises:
            ConfigError: it is another model's or another job's.
        """
        for key, value in self._identity().items():
            if state["job"][key] != value:
                raise ConfigError(
                    f"this checkpoint belongs to another job: its {key} is "
                    f"{state['job'][key]!r}, here it is {value!r}"
                )
        self._model.take(state["model"])
        self._optimizer.load_state(state["optimizer"])
        if state["cloning"] is not None:
            if self._cloner is None:
                raise ConfigError("this state was taken while cloning; begin cloning first")
            self._cloner.load_state(state["cloning"])
        self._reference = self._frozen(state["reference"]) if state["reference"] else None
        self._optimizer_steps = state["optimizer_steps"]
        self.version = state["version"]
        torch.set_rng_state(state["rng"])

    def _identity(self) -> dict[str, str]:
        config = self._config
        return {
            "model.path": config.model.path,
            "model.freeze_vision": str(config.model.freeze_vision),
            "env.id": config.env.id,
            "algorithm.name": config.algorithm.name,
        }

    def close(self) -> None:
        """Leave the other ranks; may be called twice."""
        self._rank.leave()
