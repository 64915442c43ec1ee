"""One rank of the learner: token scores, policy updates, supervised steps, and its state."""

import contextlib
import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from agentrl import accelerators
from agentrl.algorithms.core.kl import ESTIMATES, k3
from agentrl.algorithms.core.policy_loss import LossInputs
from agentrl.algorithms.core.token_weights import importance_weights
from agentrl.cluster.node_report import host_memory, machine_id
from agentrl.config import FinetuningConfig, WarmStartConfig, record_image_sizes
from agentrl.errors import LearnerError, boundary
from agentrl.extension_points import TRANSPORT
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
from agentrl.types import Batch, TokenScores, TokenSequence, TrainingSample
from agentrl.weight_sync.engine_link import EngineLink
from agentrl.weight_sync.weight_sender import WeightSender
from agentrl.weight_sync.weight_transport import StreamedTransport

_log = logging.getLogger(__name__)

_CLOSE_S = 10.0
"""Time to finish writing a state when the learner is closed, in seconds."""


class Learner:
    """One rank of the learner; every rank gets the same samples and computes its part of them.

    Args:
        settings: of the job.
        folder: the model to start from, in the Hugging Face format.
        rank: this process, from 0.
        world_size: number of ranks.
        rendezvous: `tcp://host:port` of the process group; None for a single rank.
        wrap: what the trained model computes, see `LearnerModels`.

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
    ) -> None:
        self._settings = settings
        train = settings.train
        parallelism = Parallelism.of(train)
        self._rank = join(rank, world_size, rendezvous, train.deadline_s, parallelism)
        try:
            self._models = LearnerModels(settings, folder, self._rank, wrap=wrap)
        except BaseException:
            self._rank.leave()
            raise
        self._policy, self._batcher = self._models.policy, self._models.batcher
        self._algorithm = self._models.algorithm
        self._sender: WeightSender | None = None
        self._saving: sharded_checkpoint.BackgroundWrite | None = None
        self._writers: ProcessGroup | None = None
        """Process group of all ranks, for what they write in the background."""
        self._host = urlsplit(rendezvous or "").hostname or "127.0.0.1"
        self.version = 0
        """Number of calls of `update`."""

    def score_tokens(self, sequences: Sequence[TokenSequence]) -> list[TokenScores]:
        """Score recorded tokens by the models that the algorithm requires; a collective call.

        Args:
            sequences: the same on every rank, each with sampled tokens.

        Returns:
            One for each sequence.
        """
        self._models.prepare_rl()
        models = self._models
        old: Sequence[tuple[float, ...] | None] = [None] * len(sequences)
        reference = implicit = values = old
        last_values = [0.0] * len(sequences)
        if models.critic is not None:
            values, last_values = models.critic.score_tokens(sequences)
        if self._algorithm.requirements().old_logprobs:
            old = self._logprobs(self._policy, sequences)
        if models.reference is not None:
            reference = self._logprobs(models.reference, sequences)
        if models.implicit_reward is not None:
            implicit = self._logprobs(models.implicit_reward.model, sequences)
        return [
            TokenScores(
                old_logprobs=old[index],
                reference_logprobs=reference[index],
                values=values[index],
                last_value=last_values[index],
                implicit_logprobs=implicit[index],
            )
            for index in range(len(sequences))
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
    ) -> dict[str, float]:
        """Train on one step's samples: `algorithm.epochs` passes of one or more optimizer steps.

        The weight of a token belongs to the step: the mean of the losses of a pass's optimizer
        steps is the loss over all samples, however these are divided among them.

        Samples whose advantages are all zero count in the loss but are not computed, unless the
        algorithm requires all tokens: the gradient is the same.

        Args:
            samples: the same on every rank.
            step: seeds the shuffle; None takes the number of updates so far.
            kl_coefficient: overrides the configuration's, if it is adapted.

        Returns:
            loss, grad_norm, lr: means over the optimizer steps. clip_share, entropy (nats),
            approx_kl (k3 against the engine's log-probabilities), kl (against the reference, if
            there is one), correction (the mean importance weight, if there is one): means over the
            computed tokens; the entropy over the tokens compared with the engine if none was
            computed. value_error, value_loss, value_grad_norm: the critic's, implicit_grad_norm:
            the implicit reward model's, if there are such. mismatch_*: see
            `measure_mismatch`. tokens: number of sampled tokens; tokens_computed: per pass.
            optimizer_steps: the policy's; skipped: those of any model that were not taken.
            kl_coefficient if there is a KL term, version, seconds; peak_memory_gb, in units of 10^9
            bytes, of tensors on the first rank's accelerator, if there is one.

        Raises:
            LearnerError: loss or gradient of a model were not finite in `MAX_SKIPS` of its
                optimizer steps in a row.
        """
        started = time.perf_counter()
        settings = self._settings.algorithm
        accelerators.reset_peak_memory()
        self._models.prepare_rl()
        coefficient = settings.kl.coefficient if kl_coefficient is None else kl_coefficient
        metrics = MetricAccumulator(self._rank)
        orders = self._shuffled(samples, self.version if step is None else step)
        compared = {}
        # First of all: after an optimizer step the weights are no longer the engine's.
        if self._settings.train.compare_engine:
            compared = self._compare_with_engine([samples[i] for i in orders[0].tolist()])
        self._train_on(samples, orders, metrics, coefficient)
        self.version += 1
        result = compared | metrics.means() | {"version": float(self.version)}
        result["tokens"] = float(sum(sample.num_sampled for sample in samples))
        result["tokens_computed"] = result.pop("count") / settings.epochs
        if settings.kl.add_to != "none":
            result["kl_coefficient"] = coefficient
        if (peak := accelerators.peak_memory()) is not None:
            result["peak_memory_gb"] = peak / 1e9
        # An engine may share the device, and needs the memory that torch would keep.
        accelerators.release_cached_memory()
        result["seconds"] = time.perf_counter() - started
        return result

    def _shuffled(self, samples: Sequence[TrainingSample], step: int) -> list[Tensor]:
        """A permutation of the samples for each epoch."""
        # A function of the run's seed and the step, so that all ranks, and a resumed job, agree.
        shuffle = torch.Generator().manual_seed(self._settings.seed * 1_000_003 + step)
        epochs = self._settings.algorithm.epochs
        return [torch.randperm(len(samples), generator=shuffle) for _ in range(epochs)]

    def _compare_with_engine(self, samples: Sequence[TrainingSample]) -> dict[str, float]:
        """Measure the mismatch to the engine, before any optimizer step.

        With `train.mode=async` only on what the learner's current weights sampled. Otherwise on
        everything: an engine that missed an update has another version. Never on replayed samples.
        """
        samples = [sample for sample in samples if not sample.replayed]
        if self._settings.train.mode == "async":
            samples = [s for s in samples if set(s.versions) <= {self.version}]
        temperature = self._settings.rollout.temperature
        return measure_mismatch(samples, self._policy, self._batcher, temperature=temperature)

    def _train_on(
        self,
        samples: Sequence[TrainingSample],
        orders: Sequence[Tensor],
        metrics: MetricAccumulator,
        kl_coefficient: float,
    ) -> None:
        """The optimizer steps of all models: a pass over the samples in each order."""
        settings, implicit = self._settings.algorithm, self._models.implicit_reward
        gradients = [(s, s.bce_gradient) for s in samples if s.bce_gradient is not None]
        if implicit is not None and gradients:
            metrics.add_step(implicit_grad_norm=implicit.step(gradients))
        # Each optimizer step has `algorithm.minibatch` samples with an advantage; the others cost
        # nothing.
        nonzero = sum(sample.has_advantage for sample in samples)
        size = settings.minibatch
        num_steps = 1 if size is None else max(1, math.ceil(nonzero / size))
        # `aggregate: constant` divides by the most tokens that an episode can sample.
        longest = settings.aggregate_constant
        if longest is None:
            longest = float(self._settings.max_turns * self._settings.rollout.max_new_tokens)
        # A token's weight is its share of the loss of all samples. Each of the `num_steps` parts
        # takes it times their number, so that the mean of the parts' losses is the whole loss.
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
                    is_skipped.append(not self._policy_step(chosen, metrics, kl_coefficient))
        if is_skipped and all(is_skipped):
            self._models.skipped_updates += 1

    def _policy_step(
        self,
        samples: Sequence[tuple[TrainingSample, float]],
        metrics: MetricAccumulator,
        kl_coefficient: float,
    ) -> bool:
        """Take one optimizer step of the policy, if any sample has a gradient; False if skipped."""
        models = self._models
        if not self._algorithm.requirements().all_tokens:
            samples = [(sample, weight) for sample, weight in samples if sample.has_advantage]
        if not samples:
            return True
        total = self._batcher.backward(
            samples, lambda micro: self._token_losses(micro, metrics, kl_coefficient)
        )
        # The decay is over training steps, of which skipped ones do not count.
        updates = self.version - models.skipped_updates
        past = min(1.0, updates / max(1, self._settings.train.steps - 1))
        lr = learning_rate(self._settings.optim, past, models.optimizer.num_steps)
        loss, grad_norm = models.optimizer.step(lr, total)
        return metrics.add_step(lr=lr, loss=loss, grad_norm=grad_norm)

    def _token_losses(
        self,
        micro: MicroBatch[TrainingSample],
        metrics: MetricAccumulator,
        kl_coefficient: float,
    ) -> Tensor:
        """[N] the loss of every sampled token."""
        settings, batch = self._settings.algorithm, micro.batch
        targets = token_targets(micro.samples, self._rank.device)
        needs_entropy = settings.entropy_coefficient > 0
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
            # Another shape would be broadcast without a word.
            if result.loss.shape != logprobs.shape:
                raise ValueError(
                    f"it returned shape {list(result.loss.shape)}, must be "
                    f"{list(logprobs.shape)}: one number for each token"
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
                loss = loss + kl_coefficient * values["kl"]
        if needs_entropy:
            loss = loss - settings.entropy_coefficient * entropy
        with torch.no_grad():
            # The engine sampled the tokens: this estimates KL(engine | learner).
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
        """One step of training on a data set, at temperature 1.

        Args:
            sequences: of whole examples, the same on every rank.
            lr: learning rate of this step.

        Returns:
            loss, grad_norm, lr, tokens, skipped, seconds. Of supervised training, the loss is the
            mean negative log-likelihood per sampled token; token_accuracy (fraction of tokens that
            are the most probable ones), entropy. Otherwise see `preference_update` and
            `reward_update`.

        Raises:
            LearnerError: see `update`.
        """
        assert self._models.offline is not None, "begin_offline was not called"
        return self._models.offline.step(sequences, lr)

    def offline_loss(self, sequences: Sequence[TokenSequence]) -> dict[str, float]:
        """The loss of training on a data set, without a step.

        Args:
            sequences: of whole examples, the same on every rank.

        Returns:
            loss, other means as in `offline_step`, and count: of what they are means.
        """
        assert self._models.offline is not None, "begin_offline was not called"
        return self._models.offline.measure(sequences)

    def weights(self) -> dict[str, Tensor]:
        """The full weights by name, on the CPU, in `model.dtype`; a collective call."""
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
        """The shapes of the weights that `send_weights` sends, by name."""
        return self._policy.shapes()

    def send_weights(self, transport: str, link: EngineLink) -> str | None:
        """Send the full weights to engines that await them; a collective call.

        Args:
            transport: names a streamed transport; the same in every call.
            link: calls the engines. If some of them have changed since the last call, all are
                connected again.

        Returns:
            Their checksum if `train.check_weights` is set, else None; see `join_digests`.
        """
        # An engine that was restarted is a new member of a group that cannot grow.
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
            ConfigError: they belong to another model, or the file holds no weights.
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
        """Copy the state to CPU memory, and save it in a thread; see `save_state`.

        Where the copies of all ranks do not fit into the node's memory, this writes the state.
        Call it again only once `is_state_saved`.
        """
        if not self._copies_fit():
            self.save_state(folder)
            return
        # Collectives of two threads must not meet in one group.
        if self._writers is None:
            self._writers = self._rank.new_cpu_group(self._settings.train.deadline_s)
        self._saving = learner_state.begin_save(self._models, self.version, folder, self._writers)

    def _copies_fit(self) -> bool:
        """Whether the ranks of each machine can copy their states at once; equal on every rank."""
        own = learner_state.num_bytes(self._models)
        here = torch.tensor([machine_id(), own, host_memory().free], device=self._rank.device)
        fits = copies_fit(self._rank.gather(here).tolist())
        if not fits and self._rank.number == 0:
            _log.warning(
                "checkpoint.asynchronous: %.1f GB per rank do not fit into the memory of their "
                "machines; training waits until the checkpoint is written",
                own / 1e9,
            )
        return fits

    def is_state_saved(self) -> bool:
        """Whether what `begin_save_state` has begun is on disk.

        Raises:
            OSError: the disk is full.
        """
        return self._saving is None or self._saving.is_done()

    def restore(self, folder: Path) -> None:
        """Continue exactly where `save_state` was called, with any number of ranks.

        If that was during a warm start, call `begin_offline` first.

        Raises:
            ConfigError: it is broken, or belongs to another model or job.
        """
        self.version = learner_state.restore(self._models, folder)

    def close(self) -> None:
        """Disconnect from engines and other ranks; may be called twice."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if self._saving is not None:
            # The call that waits for the state raises it.
            with contextlib.suppress(OSError):
                self._saving.is_done(_CLOSE_S)
        self._rank.leave()


def copies_fit(ranks: Sequence[tuple[int, int, int]]) -> bool:
    """Whether every machine has memory for copies of its ranks' states.

    Args:
        ranks: the machine, the bytes of the state, and the free bytes that each rank sees.
    """
    machines = {machine for machine, _, _ in ranks}
    needed = {m: sum(own for machine, own, _ in ranks if machine == m) for m in machines}
    return all(needed[machine] <= free for machine, _, free in ranks)
