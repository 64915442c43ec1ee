"""One rank of the learner: policy-gradient updates, supervised steps, and its exact state."""

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import torch
from torch import Tensor

from agentrl.algorithms import importance_correction, requirements
from agentrl.algorithms.kl import ESTIMATES, k3
from agentrl.algorithms.losses import LOSSES
from agentrl.config import Config, WarmStartConfig
from agentrl.training.batching import batches
from agentrl.training.learner import learner_state, logprob_mismatch, token_scores
from agentrl.training.learner.learner_error import LearnerError
from agentrl.training.learner.learner_models import Parts
from agentrl.training.learner.metric_accumulator import Tally
from agentrl.training.learner.micro_batches import share, weigh
from agentrl.training.learner.optimizer import learning_rate
from agentrl.training.learner.parallel import join
from agentrl.training.learner.sharded_model import Sharded
from agentrl.training.learner.token_scorer import TokenScorer
from agentrl.training.learner.token_scores import Judged
from agentrl.training.learner.weight_sender import Sender
from agentrl.types import Batch, Sample
from agentrl.weight_sync.engine_link import Link

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
        ConfigError: the model cannot be loaded.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        rank: int = 0,
        world_size: int = 1,
        rendezvous: str | None = None,
    ) -> None:
        self._config = config
        self._rank = join(
            rank, world_size, rendezvous, config.train.deadline_s, config.train.sequence_parallel
        )
        self._parts = Parts(config, folder, self._rank)
        self._model, self._model_adapter = self._parts.policy, self._parts.model_adapter
        self._packing = self._parts.packing
        self._skips_in_a_row = 0
        self._sender: Sender | None = None
        self._host = urlsplit(rendezvous or "").hostname or "127.0.0.1"
        self.version = 0
        """How often `update` was called."""

    def judge(self, samples: Sequence[Sample]) -> list[Judged]:
        """What the models say of recorded tokens, as far as their credit depends on it.

        Args:
            samples: the same on every rank, each with sampled tokens.

        Returns:
            One for each sample.
        """
        self._parts.begin_reinforcement()
        parts, settings = self._parts, self._config.algorithm
        nothing: list[tuple[float, ...]] = [()] * len(samples)
        values, lasts = (
            parts.critic.judge(samples) if parts.critic else (nothing, [0.0] * len(samples))
        )
        columns = zip(
            self._logprobs(self._model, samples) if settings.kl == "reward" else nothing,
            self._logprobs(parts.reference, samples) if parts.reference else nothing,
            values,
            lasts,
            parts.implicit.judge(samples) if parts.implicit else nothing,
            strict=True,
        )
        return [
            Judged(
                old_logprobs=old,
                reference_logprobs=reference,
                values=value,
                last_value=last,
                implicit_logprobs=implicit,
            )
            for old, reference, value, last, implicit in columns
        ]

    def _logprobs(
        self, model: Sharded[TokenScorer], samples: Sequence[Sample]
    ) -> list[tuple[float, ...]]:
        def look(batch: Batch) -> tuple[Tensor, None]:
            return model.look(batch, self._config.rollout.temperature).logprobs, None

        return token_scores.per_token(
            look, samples, self._packing, self._model_adapter, self._rank
        )[0]

    def _with_logprobs(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """With those of the policy as it is, and of the reference, where the loss asks for them."""
        settings = self._config.algorithm
        if requirements.correction(settings) and not any(s.old_logprobs for s in samples):
            old = self._logprobs(self._model, samples)
            samples = [replace(s, old_logprobs=o) for s, o in zip(samples, old, strict=True)]
        reference = self._parts.reference
        if reference is not None and not any(s.reference_logprobs for s in samples):
            found = self._logprobs(reference, samples)
            samples = [
                replace(s, reference_logprobs=r) for s, r in zip(samples, found, strict=True)
            ]
        return samples

    def update(
        self,
        samples: Sequence[Sample],
        step: int | None = None,
        *,
        kl_coefficient: float | None = None,
        slopes: Sequence[float] = (),
    ) -> dict[str, float]:
        """Learn from one step's samples: `algorithm.epochs` passes of one or more steps.

        Samples without any advantage count in the loss, but are not computed, unless another term
        needs them: the gradient is the same.

        Args:
            samples: the same on every rank.
            step: names the shuffle; None takes the number of updates so far.
            kl_coefficient: in place of the configuration's, where it is adapted.
            slopes: for each sample what an implicit reward model learns of it; see
                `implicit.slopes`.

        Returns:
            loss, grad_norm, lr: means over the optimizer steps. clip_share, entropy (nats),
            approx_kl (k3 against the engine's log-probabilities), kl (against the reference, if
            there is one), correction (the mean weight, if there is one): means over the tokens
            computed; the entropy over those compared with the engine where none was computed.
            value_error, value_loss, value_grad_norm: the critic's, implicit_grad_norm: the
            implicit reward model's, where there are such. mismatch_*: see `mismatch.measure`.
            tokens: that the policy sampled; tokens_computed: per pass. optimizer_steps, skipped,
            kl_coefficient, where there is a divergence; version, seconds.

        Raises:
            LearnerError: `MAX_SKIPS` steps in a row had a loss or gradient that is not finite.
        """
        started = time.perf_counter()
        settings = self._config.algorithm
        self._parts.begin_reinforcement()
        critic, implicit = self._parts.critic, self._parts.implicit
        samples = self._with_logprobs(samples)
        coefficient = settings.kl_coefficient if kl_coefficient is None else kl_coefficient
        tally = Tally(self._rank)
        name = self.version if step is None else step
        shuffle = torch.Generator().manual_seed(self._config.seed * 1_000_003 + name)
        num_steps = self._steps_per_pass(samples)
        orders = [torch.randperm(len(samples), generator=shuffle) for _ in range(settings.epochs)]
        compared = {}
        if self._config.train.compare_engine:
            compared = self._compare_with_engine([samples[i] for i in orders[0].tolist()])
        if implicit is not None and slopes:
            loss, grad_norm = implicit.step(list(zip(samples, slopes, strict=True)))
            tally.note("implicit_grad_norm", grad_norm)
            self._watch(math.isfinite(loss) and math.isfinite(grad_norm))
        for order in orders if samples else ():
            for part in order.tensor_split(num_steps):
                chosen = [samples[i] for i in part.tolist()]
                if critic is not None:
                    weighed = weigh(chosen, "token_mean")
                    loss, grad_norm = critic.step(weighed, tally)
                    tally.note("value_loss", loss)
                    tally.note("value_grad_norm", grad_norm)
                    self._watch(math.isfinite(loss) and math.isfinite(grad_norm))
                if self.version >= settings.critic_warmup_steps or critic is None:
                    self._policy_step(chosen, tally, coefficient)
        self.version += 1
        metrics = compared | tally.means()
        metrics["tokens"] = float(sum(batches.num_sampled(sample) for sample in samples))
        metrics["tokens_computed"] = metrics.pop("count") / settings.epochs
        if settings.kl != "none":
            metrics["kl_coefficient"] = coefficient
        metrics["version"] = float(self.version)
        metrics["seconds"] = time.perf_counter() - started
        return metrics

    def _compare_with_engine(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Before any step has moved the model.

        Where steps are played ahead, of what its own weights have sampled. Elsewhere all is: an
        engine that was not given them would sample under another version.
        """
        if self._config.train.mode == "async":
            samples = [s for s in samples if set(s.versions) <= {self.version}]
        return logprob_mismatch.measure(
            samples,
            self._model,
            self._model_adapter,
            self._rank,
            temperature=self._config.rollout.temperature,
            packing=self._packing,
        )

    def _steps_per_pass(self, samples: Sequence[Sample]) -> int:
        """As few as keep `algorithm.minibatch`: where few samples teach, few steps are taken."""
        size = self._config.algorithm.minibatch
        teaching = sum(batches.teaches(sample) for sample in samples)
        return 1 if size is None else max(1, math.ceil(teaching / size))

    def _policy_step(self, samples: Sequence[Sample], tally: Tally, kl_coefficient: float) -> None:
        settings = self._config.algorithm
        weighed = weigh(samples, settings.aggregate, self._longest_episode())
        if settings.kl != "loss" and not settings.entropy_coefficient:
            weighed = [(s, weight) for s, weight in weighed if batches.teaches(s)]
        if not weighed:
            return
        total = torch.zeros((), device=self._rank.device)
        for part in share(weighed, self._packing, self._model_adapter, self._rank):
            loss = part.loss(self._token_losses(part.batch, tally, part.told, kl_coefficient))
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach() * part.told
        past = min(1.0, self.version / max(1, self._config.train.steps - 1))
        lr = learning_rate(self._config.optim, past, self._parts.optimizer_steps)
        self._watch(tally.add_step(lr, *self._parts.optimizer.step(lr, total)))
        self._parts.optimizer_steps += 1

    def _longest_episode(self) -> float:
        """In sampled tokens; what `aggregate: constant` divides by."""
        config = self._config
        constant = config.algorithm.aggregate_constant
        return constant or float(config.env.max_turns * config.rollout.max_new_tokens)

    def _token_losses(
        self, batch: Batch, tally: Tally, told: float, kl_coefficient: float
    ) -> Tensor:
        """[N] the loss of every sampled token."""
        settings, temperature = self._config.algorithm, self._config.rollout.temperature
        wants_entropy = settings.entropy_coefficient > 0
        logprobs, entropy, _ = self._model.scorer(batch, temperature, wants_entropy)
        rollout, old = batch.columns["logprobs"], batch.columns["old_logprobs"]
        result = LOSSES[settings.loss](
            logprobs, old, batch.columns["advantages"], batch.turns, settings
        )
        loss, seen = result.loss, {"clip_share": result.clipped, "entropy": entropy}
        if settings.importance_correction != "none":
            seen["correction"] = importance_correction.weights(old, rollout, batch.turns, settings)
            loss = loss * seen["correction"]
        if settings.kl != "none":
            seen["kl"] = ESTIMATES[settings.kl_estimate](
                logprobs, batch.columns["reference_logprobs"]
            )
            if settings.kl == "loss":
                loss = loss + kl_coefficient * seen["kl"]
        if wants_entropy:
            loss = loss - settings.entropy_coefficient * entropy
        with torch.no_grad():
            # The tokens were drawn by the engine: this estimates KL(engine | learner).
            seen["approx_kl"] = k3(rollout, logprobs)
            tally.add(seen, told)
        return loss

    def begin_cloning(self, config: WarmStartConfig) -> None:
        """Start supervised steps, with an optimizer of their own."""
        self._parts.begin_cloning(config)

    def end_cloning(self) -> None:
        """Forget the supervised optimizer."""
        self._parts.cloner = None

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
        cloner = self._parts.cloner
        assert cloner is not None, "begin_cloning was not called"
        metrics = cloner.step(samples, lr)
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

    def weights(self) -> dict[str, Tensor]:
        """The full weights by name, on the CPU, in `model.dtype`; a collective call."""
        return self._model.weights()

    def save_weights(self, path: Path) -> None:
        """Write the full weights as a safetensors file, atomically; a collective call."""
        self._model.save(path)

    def save_base(self, path: Path) -> None:
        """Write the weights below the adapters as a safetensors file; a collective call."""
        self._model.save_base(path)

    def save_adapter(self, folder: Path) -> None:
        """Write the adapters alone, in PEFT's format, atomically; a collective call."""
        self._model.save_adapter(folder)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the weights that `send_weights` sends, by name."""
        return self._model.shapes()

    def send_weights(self, kind: str, link: Link) -> str | None:
        """Hand the full weights to engines that wait for them; a collective call.

        Args:
            kind: `shared`, `ipc` or `nccl`; always the same.
            link: how to call the engines; always the same ones.

        Returns:
            What `digest.joined` makes of them, where `train.check_weights` asks for it.
        """
        if self._sender is None:
            self._sender = Sender(kind, self._model, link, rank=self._rank.number, host=self._host)
        return self._sender.send(checked=self._config.train.check_weights)

    def load_weights(self, path: Path) -> None:
        """Read what `save_weights` or `export` wrote; optimizers stay as they are.

        Raises:
            ConfigError: they are another model's, or no weights at all.
        """
        self._model.load(path)

    def export(self, folder: Path) -> None:
        """Write an ordinary Hugging Face folder, atomically; a collective call."""
        self._model.export(folder)

    def save_state(self, folder: Path) -> None:
        """Write all that the next steps depend on; a collective call, each rank its shards.

        Raises:
            OSError: the disk is full.
        """
        learner_state.save(self._parts, self.version, folder)

    def restore(self, folder: Path) -> None:
        """Go on exactly where `save_state` was called, also with another number of ranks.

        Where that was while cloning, `begin_cloning` must come first.

        Raises:
            ConfigError: it is broken, or belongs to another model or job.
        """
        self.version = learner_state.restore(self._parts, folder)

    def close(self) -> None:
        """Leave the engines and the other ranks; may be called twice."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        self._rank.leave()
