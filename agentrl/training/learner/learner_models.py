"""The models of one rank, and their optimizers."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from agentrl.algorithms.core.algorithm import SELF
from agentrl.config import (
    CriticConfig,
    DPOConfig,
    FinetuningConfig,
    ImplicitRewardConfig,
    OptimConfig,
    RewardModelConfig,
    TrainConfig,
    WarmStartConfig,
)
from agentrl.policies.models import adapter_for
from agentrl.policies.models.stored_weights import open_model
from agentrl.training.batching.packing import Packing
from agentrl.training.learner.attention.attention_masks import BLOCK
from agentrl.training.learner.critic import Critic, ValueModel
from agentrl.training.learner.implicit_reward import ImplicitReward
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.micro_batches import MicroBatcher
from agentrl.training.learner.network.backbone import Backbone
from agentrl.training.learner.network.logprob_model import LogprobModel
from agentrl.training.learner.network.reward_model import RewardModel
from agentrl.training.learner.offline_updates import (
    OfflineUpdate,
    SupervisedUpdate,
    preference_update,
    reward_update,
)
from agentrl.training.learner.optimizer import Optimizer
from agentrl.training.learner.parallel.process_group import Rank
from agentrl.training.learner.sharded_model import ModelOpener, S, ShardedModel

_log = logging.getLogger(__name__)


class LearnerModels:
    """The policy and the other models that the algorithm needs, each with its optimizer.

    Args:
        opened: opens the model and its weights.
        wrap: class that wraps the policy; a `RewardModel` can only be trained on a data set.
        teacher: folder of the teacher, if the algorithm requires one; None takes `folder`.

    Raises:
        ConfigError: the model cannot be loaded.
    """

    def __init__(
        self,
        settings: LearnerSettings,
        folder: Path,
        rank: Rank,
        opened: ModelOpener = open_model,
        wrap: type[Backbone] = LogprobModel,
        teacher: Path | None = None,
    ) -> None:
        self.settings, self.rank = settings, rank
        self._opened = opened
        if rank.device.type == "cpu" and rank.number == 0:
            _note_without_effect(settings.train, settings.optim)
        self.model_adapter = adapter_for(folder, settings.model.adapter)
        self._folder = folder
        self.policy: ShardedModel[Any] = self._sharded(wrap)
        packing = Packing(
            max_tokens=settings.train.micro_batch_tokens,
            attention_break_even=self.policy.attention_break_even,
            share_prefixes=settings.train.share_prefixes,
            attention_masks=self.policy.module.supports_masks,
            attention_block=BLOCK if self.policy.module.uses_blocks else None,
            read_last_tokens=wrap is RewardModel,
            image_token_cost=self.policy.image_token_cost,
        )
        self.batcher = MicroBatcher(packing=packing, model_adapter=self.model_adapter, rank=rank)
        self.optimizer: Optimizer = self._optimizer_of(self.policy, settings.optim, "optim.lr")
        self.skipped_updates = 0
        """Number of updates that skipped every optimizer step of the policy."""
        self.offline: OfflineUpdate | None = None
        # Create all models now, so that a lack of memory is noticed before any episode.
        requires = settings.algorithm.requirements()
        self.reference = self.make_reference() if requires.reference else None
        self.teacher: ShardedModel[LogprobModel] | None = None
        """Frozen model from its own folder, and so not part of the state."""
        if requires.teacher not in (None, SELF):
            self.teacher = self._sharded(LogprobModel, frozen=True, folder=teacher)
        critic, implicit = requires.critic, requires.implicit_reward
        self.critic = None if critic is None else self._make_critic(critic)
        self.implicit_reward = None if implicit is None else self._make_implicit_reward(implicit)
        self.initialized = set[str]()
        """Names of the models that have copied the policy: `reference`, `critic`, `implicit`."""

    def prepare_rl(self) -> None:
        """Copy the policy's current weights into the models that have not copied it yet.

        Called before every step, so that the copies are made after a warm start.
        """
        if self.reference is not None and "reference" not in self.initialized:
            self.reference.copy_merged(self.policy)
            self.initialized.add("reference")
        for name, copy in self.trained_copies().items():
            if name not in self.initialized:
                # A critic's value head stays zero, because the policy has no value head to copy.
                copy.model.copy_from(self.policy)
                self.initialized.add(name)

    def trained_copies(self) -> dict[str, Critic | ImplicitReward]:
        """Return the models that copy the policy and have their own optimizers, by name."""
        copies = {"critic": self.critic, "implicit": self.implicit_reward}
        return {name: copy for name, copy in copies.items() if copy is not None}

    def begin_offline(self, config: WarmStartConfig | FinetuningConfig) -> None:
        """Start training on a data set; a warm start has its own optimizer.

        If the policy's optimizer has not been used, its moments are freed until `end_offline`.
        """
        policy, optimizer, batcher = self.policy, self.optimizer, self.batcher
        if isinstance(config, WarmStartConfig):
            # Two optimizers for the same model would take twice the memory for moments.
            if not self.optimizer.num_steps:
                self.optimizer.release()
            optimizer = self._optimizer_of(policy, config, "warm_start.lr")
        if isinstance(config, DPOConfig):
            reference = None if config.loss == "simpo" else self.make_reference()
            self.offline = preference_update(policy, reference, config, optimizer, batcher)
        elif isinstance(config, RewardModelConfig):
            self.offline = reward_update(policy, config, optimizer, batcher)
        else:
            self.offline = SupervisedUpdate(policy, optimizer, batcher)

    def end_offline(self) -> None:
        """End training on a data set and drop its optimizer."""
        self.offline = None
        self.optimizer.allocate()

    def make_reference(self) -> ShardedModel[LogprobModel]:
        """Create a frozen policy with the starting model's weights."""
        return self._sharded(LogprobModel, frozen=True)

    def _make_implicit_reward(self, settings: ImplicitRewardConfig) -> ImplicitReward:
        """Create an implicit reward model with the starting model's weights."""
        own, model = self.settings, self._sharded(LogprobModel)
        optimizer = self._optimizer_of(model, own.optim, "algorithm.implicit_reward.lr")
        return ImplicitReward(model, optimizer, settings, self.batcher, own.rollout.temperature)

    def _make_critic(self, settings: CriticConfig) -> Critic:
        model = self._sharded(ValueModel)
        optimizer = self._optimizer_of(model, self.settings.optim, "algorithm.critic.lr")
        # Advantages are bootstrapped from the value of the state after the last token.
        packing = replace(self.batcher.packing, read_last_tokens=True)
        return Critic(model, optimizer, settings, replace(self.batcher, packing=packing))

    def _sharded(
        self, wrap: type[S], *, frozen: bool = False, folder: Path | None = None
    ) -> ShardedModel[S]:
        """Shard the starting model or another one, wrapped in a class that scores its tokens."""
        settings, model_adapter = self.settings, self.model_adapter
        if folder is not None:
            model_adapter = adapter_for(folder, settings.model.adapter)
        return ShardedModel(
            wrap,
            model_adapter,
            settings.model,
            settings.train,
            folder or self._folder,
            self.rank,
            seed=settings.seed,
            frozen=frozen,
            opened=self._opened,
        )

    def _optimizer_of(
        self, model: ShardedModel[Any], config: OptimConfig | WarmStartConfig, lr_setting: str
    ) -> Optimizer:
        return Optimizer(
            dict(model.module.named_parameters()),
            self.rank,
            model.remainders,
            betas=config.betas,
            weight_decay=config.weight_decay,
            grad_clip=config.grad_clip,
            moments=self.settings.optim.moments,
            offload_moments=self.settings.optim.offload_moments,
            lr_setting=lr_setting,
        )

    @property
    def _supervised_optimizer(self) -> dict[str, Optimizer]:
        """The warm start's optimizer by state key; empty if there is none or it is the policy's."""
        own = None if self.offline is None else self.offline.optimizer
        return {} if own is None or own is self.optimizer else {"supervised": own}

    def optimizers(self) -> dict[str, Optimizer]:
        """Return the optimizers whose state is saved, keyed by their part of the state."""
        found = {"policy": self.optimizer, **self._supervised_optimizer}
        copies = self.trained_copies().items()
        return found | {n: copy.optimizer for n, copy in copies if n in self.initialized}

    def state_tensors(self) -> dict[str, Tensor]:
        """Return all tensors of the state by name, sharing their memory.

        Models that have not copied the policy yet are left out.
        """
        parts = {"policy": self.policy.state_tensors(), "optimizer": self.optimizer.state_tensors()}
        for name, optimizer in self._supervised_optimizer.items():
            parts[name] = optimizer.state_tensors()
        if self.reference is not None and "reference" in self.initialized:
            parts["reference"] = self.reference.state_tensors()
        for name, copy in self.trained_copies().items():
            if name in self.initialized:
                parts[f"{name}/model"] = copy.model.state_tensors()
                parts[f"{name}/optimizer"] = copy.optimizer.state_tensors()
        return {
            f"{part}/{name}": tensor for part, own in parts.items() for name, tensor in own.items()
        }


def _note_without_effect(train: TrainConfig, optim: OptimConfig) -> None:
    """Log settings that have no effect without a GPU."""
    for key, is_set in (
        ("train.offload", train.offload),
        ("train.activation_offload", train.activation_offload),
        ("optim.offload_moments", optim.offload_moments),
    ):
        if is_set:
            _log.warning("%s=true has no effect because everything is already in CPU memory", key)
