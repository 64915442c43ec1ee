"""One rank of the learner: token scores, policy updates, supervised steps, and its state."""

import contextlib
import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from agentrl import accelerators
from agentrl.algorithms.core.importance_weights import importance_weights
from agentrl.algorithms.core.kl import ESTIMATES, k3
from agentrl.algorithms.core.policy_loss import LossInputs
from agentrl.cluster.machine_resources import host_memory, machine_id
from agentrl.config import FinetuningConfig, WarmStartConfig
from agentrl.errors import LearnerError, boundary
from agentrl.extension_points import TRANSPORT
from agentrl.policies.models.model_record import record_image_sizes
from agentrl.training.batching.collate import token_targets
from agentrl.training.learner import learner_state
from agentrl.training.learner.learner_metrics import MetricAccumulator, measure_mismatch
from agentrl.training.learner.learner_models import LearnerModels
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.micro_batches import MicroBatch, loss_weights
from agentrl.training.learner.network.backbone import Backbone
from agentrl.training.learner.network.logprob_model import LogprobModel
from agentrl.training.learner.optimizer import learning_rate
from agentrl.training.learner.parallel import sharded_checkpoint
from agentrl.training.learner.parallel.process_group import Parallelism, join
from agentrl.training.learner.sharded_model import ShardedModel
from agentrl.types import Batch, TokenPredictions, TokenScores, TokenSequence, TrainingSample
from agentrl.weight_sync.engine_link import EngineLink
from agentrl.weight_sync.weight_sender import WeightSender
from agentrl.weight_sync.weight_transport import StreamedTransport

_log = logging.getLogger(__name__)

_CLOSE_S = 10.0
"""Seconds to wait for a state to be written when the learner is closed."""


class LossCoefficients(NamedTuple):
    """Weights of a step's penalty and bonus in the loss."""

    kl: float
    entropy: float


class Learner:
    """One rank of the learner. Every rank gets the same samples and computes its share.

    Args:
        settings: the job's learner settings.
        folder: the model to start from, in the Hugging Face format.
        rank: number of this rank, from 0.
        world_size: number of ranks.
        rendezvous: `tcp://host:port` of the process group; None for a single rank.
        wrap: class that wraps the trained model; see `LearnerModels`.
        teacher: folder of the teacher; see `LearnerModels`.

    Raises:
        ConfigError: the model cannot be loaded.
    """

    def __init__(
        self,
        settings: LearnerSettings,
        folder: Path,
        rank: int = 0,
        world_size: int = 1,
        rendezvous: str | None = None,
        wrap: type[Backbone] = LogprobModel,
        teacher: Path | None = None,
    ) -> None:
        self._settings = settings
        train = settings.train
        parallelism = Parallelism.of(train)
        self._rank = join(rank, world_size, rendezvous, train.deadline_s, parallelism)
        try:
            self._models = LearnerModels(settings, folder, self._rank, wrap=wrap, teacher=teacher)
        except BaseException:
            self._rank.leave()
            raise
        self._policy, self._batcher = self._models.policy, self._models.batcher
        self._algorithm = settings.algorithm
        self._sender: WeightSender | None = None
        self._saving: sharded_checkpoint.BackgroundWrite | None = None
        self._writers: ProcessGroup | None = None
        """Process group of all ranks for background checkpoint writes."""
        self._host = urlsplit(rendezvous or "").hostname or "127.0.0.1"
        self.version = 0
        """Number of calls of `update`."""

    def score_tokens(self, sequences: Sequence[TokenSequence]) -> list[TokenScores]:
        """Score recorded tokens with the models that the algorithm requires; a collective call.

        Args:
            sequences: sequences with sampled tokens; the same on every rank.

        Returns:
            Scores of each sequence.
        """
        self._models.prepare_rl()
        models = self._models
        old: Sequence[tuple[float, ...] | None] = [None] * len(sequences)
        reference = implicit = teacher = values = old
        last_values = [0.0] * len(sequences)
        if models.critic is not None:
            values, last_values = models.critic.score_tokens(sequences)
        if self._algorithm.requirements().old_logprobs:
            old = self._logprobs(self._policy, sequences)
        if models.reference is not None:
            reference = self._logprobs(models.reference, sequences)
        if models.implicit_reward is not None:
            implicit = self._logprobs(models.implicit_reward.model, sequences)
        if models.teacher is not None and self._algorithm.requires.privileged is None:
            teacher = self._logprobs(models.teacher, sequences)
        return [
            TokenScores(
                old_logprobs=old[index],
                reference_logprobs=reference[index],
                values=values[index],
                last_value=last_values[index],
                implicit_logprobs=implicit[index],
                teacher_logprobs=teacher[index],
            )
            for index in range(len(sequences))
        ]

    def score_teacher(self, sequences: Sequence[TokenSequence]) -> list[tuple[float, ...]]:
        """Return the teacher's log-probabilities of sampled tokens; a collective call.

        Args:
            sequences: as in `score_tokens`, whose prompts may differ from the policy's.
        """
        return self._logprobs(self._models.teacher or self._policy, sequences)

    def predict_tokens(self, sequences: Sequence[TokenSequence]) -> list[TokenPredictions]:
        """Return the policy's predictions of sampled tokens; a collective call.

        Args:
            sequences: as in `score_tokens`.
        """

        def forward(batch: Batch) -> tuple[Tensor, None]:
            scores = self._policy.forward_only(batch, self._settings.rollout.temperature)
            # Ids are exact in float32 below 2^24.
            return torch.stack([scores.logprobs, scores.most_probable.float()]), None

        (logprobs, most_probable), _ = self._batcher.score_rows(forward, sequences, 2)
        return [
            TokenPredictions(logprobs=own, most_probable=tuple(map(int, tokens)))
            for own, tokens in zip(logprobs, most_probable, strict=True)
        ]

    def _logprobs(
        self, model: ShardedModel[LogprobModel], sequences: Sequence[TokenSequence]
    ) -> list[tuple[float, ...]]:
        def forward(batch: Batch) -> tuple[Tensor, None]:
            return model.forward_only(batch, self._settings.rollout.temperature).logprobs, None

        return self._batcher.score(forward, sequences)[0]

    def update(
        self,
        samples: Sequence[TrainingSample],
        step: int | None = None,
        *,
        kl_coefficient: float | None = None,
        entropy_coefficient: float | None = None,
    ) -> dict[str, float]:
        """Train on one step's samples: `algorithm.epochs` passes of one or more optimizer steps.

        Token weights refer to the whole step: the mean loss of a pass's optimizer steps is the loss
        over all samples, however the samples are divided among the optimizer steps.

        Samples whose advantages are all zero count in the loss but are not computed, unless the
        algorithm requires all tokens: the gradient is the same.

        Args:
            samples: the step's samples; the same on every rank.
            step: seeds the shuffle; None uses the number of updates so far.
            kl_coefficient: overrides the configured coefficient if it is adapted.
            entropy_coefficient: overrides the configured coefficient if it is adapted.

        Returns:
            loss, grad_norm, lr: means over the optimizer steps. clip_share, entropy (nats),
            approx_kl (k3 against the engine's log-probabilities), kl (against the reference, if
            any), correction (the mean importance weight, if used): means over the computed tokens;
            if no token was computed, entropy is over the tokens compared with the engine.
            value_error, value_loss, value_grad_norm: of the critic, if any. implicit_grad_norm: of
            the implicit reward model, if any. mismatch_*: see `measure_mismatch`. tokens: number
            of sampled tokens; tokens_computed: number of computed tokens per pass.
            optimizer_steps: steps of the policy; skipped: skipped steps of all models.
            kl_coefficient if there is a KL term, entropy_coefficient if there may be a bonus,
            version, seconds; peak_memory_gb: peak memory of tensors on the first rank's
            accelerator, if any, in units of 10^9 bytes.

        Raises:
            LearnerError: a model's loss or gradient was not finite in `MAX_SKIPS` consecutive
                optimizer steps.
        """
        started = time.perf_counter()
        accelerators.reset_peak_memory()
        self._models.prepare_rl()
        coefficients = self._coefficients(kl_coefficient, entropy_coefficient)
        metrics = MetricAccumulator(self._rank)
        orders = self._shuffled(samples, self.version if step is None else step)
        # Compare first, because learner and engine weights differ after an optimizer step.
        compared = self._compare_with_engine([samples[i] for i in orders[0].tolist()])
        self._take_steps(samples, orders, metrics, coefficients)
        self.version += 1
        result = compared | metrics.means() | {"version": float(self.version)}
        result["tokens"] = float(sum(sample.num_sampled for sample in samples))
        result["tokens_computed"] = result.pop("count") / self._algorithm.config.epochs
        result |= self._used_coefficients(coefficients)
        if (peak := accelerators.peak_memory()) is not None:
            result["peak_memory_gb"] = peak / 1e9
        # An engine on the same device may need the memory that torch would keep cached.
        accelerators.release_cached_memory()
        result["seconds"] = time.perf_counter() - started
        return result

    def _coefficients(self, kl: float | None, entropy: float | None) -> LossCoefficients:
        """Return the configured coefficients, unless others are given."""
        settings = self._algorithm.config
        return LossCoefficients(
            kl=settings.kl.coefficient if kl is None else kl,
            entropy=settings.entropy_coefficient if entropy is None else entropy,
        )

    def _used_coefficients(self, coefficients: LossCoefficients) -> dict[str, float]:
        """Return the coefficients of the terms that the loss may have, as metrics."""
        settings = self._algorithm.config
        kl = {"kl_coefficient": coefficients.kl} if settings.kl.add_to != "none" else {}
        has_bonus = settings.has_entropy_bonus
        return kl | ({"entropy_coefficient": coefficients.entropy} if has_bonus else {})

    def _shuffled(self, samples: Sequence[TrainingSample], step: int) -> list[Tensor]:
        """Return a permutation of the samples for each epoch."""
        # Seed with the run's seed and the step, so that all ranks and a resumed job agree.
        shuffle = torch.Generator().manual_seed(self._settings.seed * 1_000_003 + step)
        epochs = self._algorithm.config.epochs
        return [torch.randperm(len(samples), generator=shuffle) for _ in range(epochs)]

    def _compare_with_engine(self, samples: Sequence[TrainingSample]) -> dict[str, float]:
        """Measure the mismatch with the engine (`train.compare_engine`), before any optimizer step.

        With `train.mode=async`, compare only samples drawn with the learner's current weights.
        Otherwise compare all, to detect an engine that missed an update. Never compare replayed
        samples.
        """
        if not self._settings.train.compare_engine:
            return {}
        samples = [sample for sample in samples if not sample.replayed]
        if self._settings.train.mode == "async":
            samples = [s for s in samples if set(s.versions) <= {self.version}]
        temperature = self._settings.rollout.temperature
        return measure_mismatch(samples, self._policy, self._batcher, temperature=temperature)

    def _take_steps(
        self,
        samples: Sequence[TrainingSample],
        orders: Sequence[Tensor],
        metrics: MetricAccumulator,
        coefficients: LossCoefficients,
    ) -> None:
        """Take all models' optimizer steps, in one pass over the samples for each order."""
        settings, implicit = self._algorithm.config, self._models.implicit_reward
        gradients = [(s, s.bce_gradient) for s in samples if s.bce_gradient is not None]
        if implicit is not None and gradients:
            metrics.add_step(implicit_grad_norm=implicit.step(gradients))
        # Each optimizer step has `algorithm.minibatch` samples with an advantage; the others cost
        # nothing.
        nonzero = sum(sample.has_advantage for sample in samples)
        size = settings.minibatch
        num_steps = 1 if size is None else max(1, math.ceil(nonzero / size))
        # By default, `aggregate: constant` divides by the most tokens an episode can sample.
        longest = settings.aggregate_constant
        if longest is None:
            longest = float(self._settings.max_turns * self._settings.rollout.max_new_tokens)
        # A token's weight is its share of the loss of all samples. Multiply it by `num_steps`, so
        # that the mean loss of the parts is the whole loss.
        of_policy = loss_weights(samples, settings.aggregate, longest)
        of_critic = loss_weights(samples, "token_mean")
        critic = self._algorithm.requires.critic
        is_skipped = list[bool]()
        for order in orders if samples else ():
            for part in order.tensor_split(num_steps):
                indices = [i for i in part.tolist() if samples[i].num_sampled]
                if self._models.critic is not None:
                    toward = [(samples[i], of_critic[i] * num_steps) for i in indices]
                    self._models.critic.step(toward, metrics)
                # Until the critic has warmed up, its advantages are mostly its own errors.
                if critic is None or self.version >= critic.warmup_steps:
                    chosen = [(samples[i], of_policy[i] * num_steps) for i in indices]
                    is_skipped.append(not self._policy_step(chosen, metrics, coefficients))
        if is_skipped and all(is_skipped):
            self._models.skipped_updates += 1

    def _policy_step(
        self,
        samples: Sequence[tuple[TrainingSample, float]],
        metrics: MetricAccumulator,
        coefficients: LossCoefficients,
    ) -> bool:
        """Take one optimizer step of the policy, if any sample has a gradient; False if skipped."""
        models = self._models
        if not self._algorithm.requirements().all_tokens:
            samples = [(sample, weight) for sample, weight in samples if sample.has_advantage]
        if not samples:
            return True
        total = self._batcher.backward(
            samples, lambda micro: self._token_losses(micro, metrics, coefficients)
        )
        # Decay follows training steps, not counting skipped ones.
        updates = self.version - models.skipped_updates
        past = min(1.0, updates / max(1, self._settings.train.steps - 1))
        lr = learning_rate(self._settings.optim, past, models.optimizer.num_steps)
        loss, grad_norm = models.optimizer.step(lr, total)
        return metrics.add_step(lr=lr, loss=loss, grad_norm=grad_norm)

    def _token_losses(
        self,
        micro: MicroBatch[TrainingSample],
        metrics: MetricAccumulator,
        coefficients: LossCoefficients,
    ) -> Tensor:
        """Return the loss of every sampled token, [N]."""
        settings, batch = self._algorithm.config, micro.batch
        targets = token_targets(micro.samples, self._rank.device)
        needs_entropy = settings.has_entropy_bonus
        logprobs, entropy, _ = self._policy.module(
            batch, self._settings.rollout.temperature, needs_entropy
        )
        inputs = LossInputs(
            logprobs=logprobs,
            old_logprobs=targets.old_logprobs,
            advantages=targets.advantages,
            turn=batch.turns,
        )
        with boundary(LearnerError, f"algorithm.loss.name={settings.loss.name} fails"):
            result = self._algorithm.loss(inputs)
            # A wrong shape would be broadcast silently.
            if result.loss.shape != logprobs.shape:
                raise ValueError(
                    f"it returned shape {list(result.loss.shape)}, but must return "
                    f"{list(logprobs.shape)}, one number per token"
                )
        loss, values = result.loss, {"clip_share": result.clipped, "entropy": entropy}
        if settings.importance_correction.kind != "none":
            values["correction"] = importance_weights(
                targets.old_logprobs, batch.logprobs, batch.turns, settings.importance_correction
            )
            loss = loss * values["correction"]
        if settings.kl.add_to != "none":
            assert targets.reference_logprobs is not None, "the KL penalty needs a reference"
            values["kl"] = ESTIMATES[settings.kl.estimator](logprobs, targets.reference_logprobs)
            if settings.kl.add_to == "loss":
                loss = loss + coefficients.kl * values["kl"]
        if needs_entropy:
            loss = loss - coefficients.entropy * entropy
        with torch.no_grad():
            # The tokens were sampled by the engine, so this estimates KL(engine | learner).
            values["approx_kl"] = k3(batch.logprobs, logprobs)
            metrics.add(values, micro.counts_in_metrics)
        return loss

    def begin_offline(self, config: WarmStartConfig | FinetuningConfig) -> None:
        """Start training on a data set: supervised, on preferences, or as a reward model."""
        self._models.begin_offline(config)

    def end_offline(self) -> None:
        """End training on a data set and drop its optimizer."""
        self._models.end_offline()
        accelerators.release_cached_memory()

    def offline_step(self, sequences: Sequence[TokenSequence], lr: float) -> dict[str, float]:
        """Take one step of training on a data set, at temperature 1.

        Args:
            sequences: sequences of whole examples; the same on every rank.
            lr: learning rate of this step.

        Returns:
            loss, grad_norm, lr, tokens, skipped, seconds. In supervised training, the loss is the
            mean negative log-likelihood per sampled token, and there are also token_accuracy
            (fraction of tokens that the model finds most probable) and entropy. Otherwise see
            `preference_update` and `reward_update`.

        Raises:
            LearnerError: see `update`.
        """
        assert self._models.offline is not None, "begin_offline was not called"
        return self._models.offline.step(sequences, lr)

    def offline_loss(self, sequences: Sequence[TokenSequence]) -> dict[str, float]:
        """Compute the loss of training on a data set, without taking a step.

        Args:
            sequences: sequences of whole examples; the same on every rank.

        Returns:
            loss, other means as in `offline_step`, and count, the number of items averaged.
        """
        assert self._models.offline is not None, "begin_offline was not called"
        return self._models.offline.measure(sequences)

    def weights(self) -> dict[str, Tensor]:
        """Return the full weights by name, on the CPU, in `model.dtype`; a collective call."""
        return self._policy.weights()

    def save_weights(self, path: Path) -> None:
        """Write the full weights as a safetensors file, atomically; a collective call."""
        self._policy.save(path)

    def save_base(self, path: Path) -> None:
        """Write the base weights below the adapters as a safetensors file; a collective call."""
        self._policy.save_base(path)

    def save_adapter(self, folder: Path) -> None:
        """Write only the adapters, in PEFT's format, atomically; a collective call."""
        self._policy.save_adapter(folder)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the weights that `send_weights` sends, by name."""
        return self._policy.shapes()

    def send_weights(self, transport: str, link: EngineLink) -> str | None:
        """Send the full weights to engines that await them; a collective call.

        Args:
            transport: name of a streamed transport; the same in every call.
            link: calls the engines. If any engine has changed since the last call, all are
                reconnected.

        Returns:
            The weights' checksum if `train.check_weights` is set, else None; see `join_digests`.
        """
        # A restarted engine cannot join the existing group, because process groups cannot grow.
        if self._sender is not None and self._sender.members != link.members:
            self._sender.close()
            self._sender = None
        if self._sender is None:
            end: StreamedTransport = TRANSPORT.resolve(transport)()
            self._sender = WeightSender(
                end, self._policy, link, rank=self._rank.number, host=self._host
            )
        digest = self._sender.send(checked=self._settings.train.check_weights)
        accelerators.release_cached_memory()
        return digest

    def load_weights(self, path: Path) -> None:
        """Read weights written by `save_weights` or `export`; optimizers are unchanged.

        Raises:
            ConfigError: the weights belong to a different model, or the file contains no weights.
        """
        self._policy.load(path)

    def export(self, folder: Path) -> None:
        """Write an ordinary Hugging Face folder, atomically; a collective call."""
        self._policy.export(folder)
        if self._rank.number == 0:
            record_image_sizes(folder, self._settings.model)

    def save_state(self, folder: Path) -> None:
        """Write the complete state; a collective call, each rank writes its shards.

        Raises:
            OSError: the disk is full.
        """
        learner_state.save(self._models, self.version, folder)

    def begin_save_state(self, folder: Path) -> None:
        """Copy the state to CPU memory and save it in a thread; see `save_state`.

        If the copies of all ranks do not fit into the node's memory, this writes the state before
        it returns. Call it again only once `is_state_saved` returns True.
        """
        if not self._copies_fit():
            self.save_state(folder)
            return
        # Two threads must not run collectives in the same group.
        if self._writers is None:
            self._writers = self._rank.new_cpu_group(self._settings.train.deadline_s)
        self._saving = learner_state.begin_save(self._models, self.version, folder, self._writers)

    def _copies_fit(self) -> bool:
        """Whether the ranks of each machine can copy their states at the same time.

        The result is the same on every rank.
        """
        own = learner_state.num_bytes(self._models)
        here = torch.tensor([machine_id(), own, host_memory().free], device=self._rank.device)
        fits = copies_fit(self._rank.gather(here).tolist())
        if not fits and self._rank.number == 0:
            _log.warning(
                "checkpoint.asynchronous: copies of the ranks' states (%.1f GB each) do not fit "
                "into CPU memory, so training waits until the checkpoint is written",
                own / 1e9,
            )
        return fits

    def is_state_saved(self) -> bool:
        """Whether the state that `begin_save_state` copied is on disk.

        Raises:
            OSError: the disk is full.
        """
        return self._saving is None or self._saving.is_done()

    def restore(self, folder: Path) -> None:
        """Continue exactly where `save_state` was called, with any number of ranks.

        If the state was saved during a warm start, call `begin_offline` first.

        Raises:
            ConfigError: the state is broken, or belongs to a different model or job.
        """
        self.version = learner_state.restore(self._models, folder)

    def close(self) -> None:
        """Disconnect from engines and other ranks; may be called twice."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if self._saving is not None:
            # The call that waits for the state reports a failed write.
            with contextlib.suppress(OSError):
                self._saving.is_done(_CLOSE_S)
        self._rank.leave()


def copies_fit(ranks: Sequence[tuple[int, int, int]]) -> bool:
    """Whether every machine has memory for copies of its ranks' states.

    Args:
        ranks: each rank's machine id, state size and visible free memory in bytes.
    """
    machines = {machine for machine, _, _ in ranks}
    needed = {m: sum(own for machine, own, _ in ranks if machine == m) for m in machines}
    return all(needed[machine] <= free for machine, _, free in ranks)
