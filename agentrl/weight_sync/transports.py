"""Selects and validates how weights get to the engines, by the configuration and the GPUs."""

import os
from dataclasses import dataclass
from importlib.util import find_spec

from agentrl.cluster import ray_cluster
from agentrl.config import LoraConfig, RolloutConfig, TrainConfig
from agentrl.errors import ConfigError
from agentrl.policies.engines.vllm_environment import LORA_RANKS


@dataclass(slots=True, kw_only=True, frozen=True)
class WeightTransport:
    """How weights get from the learner to the engines."""

    rollout: RolloutConfig
    train: TrainConfig
    lora: LoraConfig

    def check(self) -> None:
        """Check that weights can be published as configured, as far as known before the start.

        Raises:
            ConfigError: they cannot.
        """
        gpus = num_gpus(self.rollout) if self._depends_on_gpus else 0
        engine, kind = self.rollout.engine, self.train.weight_transfer
        setting = f"train.weight_transfer={kind}"
        self._check_adapters(setting)
        if kind in ("shared", "ipc", "nccl") and engine != "vllm":
            raise ConfigError(
                f"{setting} needs rollout.engine=vllm; for {engine} set train.weight_transfer=file"
            )
        if kind in ("ipc", "nccl") and gpus == 0:
            raise ConfigError(
                f"{setting} needs a GPU, and there is none; set train.weight_transfer=file"
            )
        if gpus is not None and kind == "nccl" and self._share_a_gpu(gpus):
            raise ConfigError(
                f"{setting}: engine and learner share a GPU ({self._counts(gpus)}), but NCCL "
                "connects different ones; set train.weight_transfer=ipc"
            )
        if gpus is not None and kind == "ipc" and not self._share_a_gpu(gpus):
            raise ConfigError(
                f"{setting}: engine and learner are on different GPUs ({self._counts(gpus)}), "
                "which share no memory; set train.weight_transfer=nccl"
            )
        if kind == "ipc" and workers_per_engine(self.rollout) > 1:
            raise ConfigError(
                f"{setting}: an engine on several GPUs does not share each of them with a learner; "
                "set train.weight_transfer=file"
            )
        if self.rollout.sleep:
            self._check_sleep(gpus)

    def _check_adapters(self, setting: str) -> None:
        if not self.serves_adapters:
            if self.lora.serve == "adapter":
                raise ConfigError(
                    "model.lora.serve=adapter needs adapters: set model.lora.rank above 0"
                )
            return
        if self.rollout.engine != "vllm":
            raise ConfigError(
                f"model.lora.serve=adapter: rollout.engine={self.rollout.engine} supports merged "
                "weights only, at the same speed; remove model.lora.serve"
            )
        if self.lora.rank > LORA_RANKS[-1]:
            raise ConfigError(
                f"model.lora.rank={self.lora.rank}: vLLM supports adapters up to rank "
                f"{LORA_RANKS[-1]}; lower the rank or set model.lora.serve=merged"
            )
        if self.train.weight_transfer not in ("file", "auto"):
            raise ConfigError(
                f"{setting}: model.lora.serve=adapter needs train.weight_transfer=file or auto"
            )

    def _check_sleep(self, gpus: int | None) -> None:
        if self.rollout.engine != "vllm" or gpus == 0:
            raise ConfigError(
                "rollout.sleep=true: only vLLM on a GPU can sleep; remove rollout.sleep"
            )
        if self.train.mode == "async":
            raise ConfigError(
                "rollout.sleep=true: with train.mode=async engines play while the learner updates"
            )
        if gpus is not None and not self._share_a_gpu(gpus):
            raise ConfigError(
                "rollout.sleep=true: engine and learner are on different GPUs "
                f"({self._counts(gpus)}), so sleeping frees no memory; remove rollout.sleep"
            )

    def kind(self) -> str:
        """`file`, `shared`, `ipc` or `nccl`; the same in every process of a job."""
        if self.train.weight_transfer != "auto":
            return self.train.weight_transfer
        gpus = num_gpus(self.rollout) if self._depends_on_gpus else 0
        if not gpus or self.serves_adapters or workers_per_engine(self.rollout) > 1:
            return "file"
        if not self._share_a_gpu(gpus):
            return "nccl"
        # With several GPUs it is unknown which of them a learner and an engine share.
        return "ipc" if self.rollout.launcher == "local" or gpus == 1 else "file"

    def sleeps(self) -> bool:
        """Whether engines sleep while the learner computes on their GPU."""
        if self.rollout.sleep is not None:
            return self.rollout.sleep
        return self.train.mode == "sync" and self.kind() == "ipc"

    @property
    def serves_adapters(self) -> bool:
        """Whether engines receive only the adapters."""
        return self.lora.rank > 0 and self.lora.serve == "adapter"

    @property
    def _depends_on_gpus(self) -> bool:
        """Whether the number of GPUs matters; counting them takes importing torch."""
        by_gpu = self.train.weight_transfer in ("auto", "ipc", "nccl") or bool(self.rollout.sleep)
        return self.rollout.engine == "vllm" and by_gpu

    def _share_a_gpu(self, gpus: int) -> bool:
        """See `ray_cluster.gpus_per_actor`; in one process, both use the first GPU."""
        if self.rollout.launcher == "local":
            return True
        return gpus < self.rollout.actors + self.train.ranks

    def _counts(self, gpus: int) -> str:
        return f"{self.rollout.actors} engines, {self.train.ranks} ranks, {gpus} GPUs"


def workers_per_engine(rollout: RolloutConfig) -> int:
    """Worker processes per engine, each with a part of its weights."""
    kwargs = rollout.engine_kwargs
    return int(kwargs.get("tensor_parallel_size", 1)) * int(kwargs.get("pipeline_parallel_size", 1))


def num_gpus(rollout: RolloutConfig) -> int | None:
    """Number of GPUs of the job; None for a cluster that has not been joined yet."""
    if rollout.launcher == "ray":
        if (count := ray_cluster.cluster_gpus()) is not None:
            return count
        if os.environ.get("RAY_ADDRESS"):
            return None
    if find_spec("torch") is None:
        return 0
    import torch

    return torch.cuda.device_count()
