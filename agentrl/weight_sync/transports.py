"""Selects and validates how weights get to the engines, by the configuration and the GPUs."""

import os
from dataclasses import replace
from importlib.util import find_spec

from agentrl.cluster import ray_cluster
from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.policies.engines.vllm_arguments import LORA_RANKS


def check(config: Config) -> None:
    """Check that weights can be published as configured, as far as known before the start.

    Raises:
        ConfigError: they cannot.
    """
    gpus = gpus_of(config) if _depends_on_gpus(config) else 0
    train, lora, engine = config.train, config.model.lora, config.rollout.engine
    setting = f"train.weight_transfer={train.weight_transfer}"
    if serves_adapters(config):
        if engine != "vllm":
            raise ConfigError(
                f"model.lora.serve=adapter: rollout.engine={engine} supports merged weights only, "
                "at the same speed; remove model.lora.serve"
            )
        if lora.rank > LORA_RANKS[-1]:
            raise ConfigError(
                f"model.lora.rank={lora.rank}: vLLM supports adapters up to rank "
                f"{LORA_RANKS[-1]}; lower the rank or set model.lora.serve=merged"
            )
        if train.weight_transfer not in ("file", "auto"):
            raise ConfigError(
                f"{setting}: model.lora.serve=adapter needs train.weight_transfer=file or auto"
            )
    elif lora.serve == "adapter":
        raise ConfigError("model.lora.serve=adapter needs adapters: set model.lora.rank above 0")
    if train.weight_transfer in ("shared", "ipc", "nccl") and engine != "vllm":
        raise ConfigError(
            f"{setting} needs rollout.engine=vllm; for {engine} set train.weight_transfer=file"
        )
    if train.weight_transfer in ("ipc", "nccl") and gpus == 0:
        raise ConfigError(
            f"{setting} needs a GPU, and there is none; set train.weight_transfer=file"
        )
    if gpus is not None and train.weight_transfer == "nccl" and _share_a_gpu(config, gpus):
        raise ConfigError(
            f"{setting}: engine and learner share a GPU ({_counts(config, gpus)}), but NCCL "
            "connects different ones; set train.weight_transfer=ipc"
        )
    if gpus is not None and train.weight_transfer == "ipc" and not _share_a_gpu(config, gpus):
        raise ConfigError(
            f"{setting}: engine and learner are on different GPUs ({_counts(config, gpus)}), which "
            "share no memory; set train.weight_transfer=nccl"
        )
    if train.weight_transfer == "ipc" and workers(config) > 1:
        raise ConfigError(
            f"{setting}: an engine on several GPUs does not share each of them with a learner; "
            "set train.weight_transfer=file"
        )
    if config.rollout.sleep:
        _check_sleep(config, gpus)


def _check_sleep(config: Config, gpus: int | None) -> None:
    if config.rollout.engine != "vllm" or gpus == 0:
        raise ConfigError("rollout.sleep=true: only vLLM on a GPU can sleep; remove rollout.sleep")
    if config.train.mode == "async":
        raise ConfigError(
            "rollout.sleep=true: with train.mode=async engines play while the learner updates"
        )
    if gpus is not None and not _share_a_gpu(config, gpus):
        raise ConfigError(
            "rollout.sleep=true: engine and learner are on different GPUs "
            f"({_counts(config, gpus)}), so sleeping frees no memory; remove rollout.sleep"
        )


def chosen(config: Config) -> str:
    """`file`, `shared`, `ipc` or `nccl`; the same in every process of a job."""
    if config.train.weight_transfer != "auto":
        return config.train.weight_transfer
    gpus = gpus_of(config) if _depends_on_gpus(config) else 0
    if not gpus or serves_adapters(config) or workers(config) > 1:
        return "file"
    if not _share_a_gpu(config, gpus):
        return "nccl"
    # With several GPUs it is unknown which of them a learner and an engine share.
    return "ipc" if config.rollout.launcher == "local" or gpus == 1 else "file"


def sleeps(config: Config) -> bool:
    """Whether engines sleep while the learner computes on their GPU."""
    if config.rollout.sleep is not None:
        return config.rollout.sleep
    return config.train.mode == "sync" and chosen(config) == "ipc"


def without_learner(config: Config) -> Config:
    """The same job without a learner: engines keep their initial weights."""
    return replace(
        config,
        train=replace(config.train, weight_transfer="file"),
        rollout=replace(config.rollout, sleep=False),
        model=replace(config.model, lora=replace(config.model.lora, serve="merged")),
    )


def serves_adapters(config: Config) -> bool:
    """Whether engines receive only the adapters."""
    return config.model.lora.rank > 0 and config.model.lora.serve == "adapter"


def workers(config: Config) -> int:
    """Worker processes per engine, each with a part of its weights."""
    kwargs = config.rollout.engine_kwargs
    return int(kwargs.get("tensor_parallel_size", 1)) * int(kwargs.get("pipeline_parallel_size", 1))


def _depends_on_gpus(config: Config) -> bool:
    """Whether the number of GPUs matters; counting them takes importing torch."""
    by_gpu = config.train.weight_transfer in ("auto", "ipc", "nccl") or bool(config.rollout.sleep)
    return config.rollout.engine == "vllm" and by_gpu


def _share_a_gpu(config: Config, gpus: int) -> bool:
    """See `cluster.gpus_per_actor`; in one process, both use the first GPU."""
    if config.rollout.launcher == "local":
        return True
    return gpus < config.rollout.actors + config.train.ranks


def _counts(config: Config, gpus: int) -> str:
    return f"{config.rollout.actors} engines, {config.train.ranks} ranks, {gpus} GPUs"


def gpus_of(config: Config) -> int | None:
    """Number of GPUs of the job; None for a cluster that has not been joined yet."""
    if config.rollout.launcher == "ray":
        if (count := ray_cluster.joined_gpus()) is not None:
            return count
        if os.environ.get("RAY_ADDRESS"):
            return None
    if find_spec("torch") is None:
        return 0
    import torch

    return torch.cuda.device_count()
