"""How weights come to engines: chosen from the configuration and from what GPUs there are."""

import os
from dataclasses import replace
from importlib.util import find_spec

from agentrl.cluster import ray_cluster
from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.policies.engines.vllm_arguments import LORA_RANKS


def check(config: Config) -> None:
    """See whether weights can go as the configuration says, as far as this can be told here.

    Raises:
        ConfigError: they cannot.
    """
    gpus = gpus_of(config) if _asks(config) else 0
    train, lora, engine = config.train, config.model.lora, config.rollout.engine
    asked = f"train.transfer={train.transfer}"
    if serves_adapters(config):
        if engine != "vllm":
            raise ConfigError(
                f"model.lora.serve=adapter: rollout.engine={engine} answers with whole weights, "
                "which are as fast there; leave it out"
            )
        if lora.rank > LORA_RANKS[-1]:
            raise ConfigError(
                f"model.lora.rank={lora.rank}: vLLM answers with adapters of {LORA_RANKS[-1]} "
                "columns at most; model.lora.serve=merged takes more"
            )
        if train.transfer not in ("file", "auto"):
            raise ConfigError(
                f"{asked}: model.lora.serve=adapter sends files; leave one of them out"
            )
    elif lora.serve == "adapter":
        raise ConfigError("model.lora.serve=adapter: there are none, as model.lora.rank is 0")
    if train.transfer in ("shared", "ipc", "nccl") and engine != "vllm":
        raise ConfigError(f"{asked} is vLLM's; rollout.engine={engine} takes train.transfer=file")
    if train.transfer in ("ipc", "nccl") and gpus == 0:
        raise ConfigError(
            f"{asked} needs a GPU, and there is none; train.transfer=file does without"
        )
    if gpus is not None and train.transfer == "nccl" and _share_a_gpu(config, gpus):
        raise ConfigError(
            f"{asked}: engine and learner share a GPU ({_counts(config, gpus)}), and NCCL connects "
            "different ones; use train.transfer=ipc"
        )
    if gpus is not None and train.transfer == "ipc" and not _share_a_gpu(config, gpus):
        raise ConfigError(
            f"{asked}: engine and learner have different GPUs ({_counts(config, gpus)}), and share "
            "no memory; use train.transfer=nccl"
        )
    if train.transfer == "ipc" and workers(config) > 1:
        raise ConfigError(f"{asked}: an engine on several GPUs does not share each with a learner")
    if config.rollout.sleep:
        _check_sleep(config, gpus)


def _check_sleep(config: Config, gpus: int | None) -> None:
    if config.rollout.engine != "vllm" or gpus == 0:
        raise ConfigError(
            "rollout.sleep=true: vLLM on a GPU can sleep, and nothing else; leave it out"
        )
    if config.train.mode == "async":
        raise ConfigError("rollout.sleep=true: train.mode=async plays while it learns")
    if gpus is not None and not _share_a_gpu(config, gpus):
        raise ConfigError(
            "rollout.sleep=true: engine and learner have different GPUs "
            f"({_counts(config, gpus)}), and neither needs the other's room"
        )


def chosen(config: Config) -> str:
    """`file`, `shared`, `ipc` or `nccl`; the same in every process of a job."""
    if config.train.transfer != "auto":
        return config.train.transfer
    gpus = gpus_of(config) if _asks(config) else 0
    if not gpus or serves_adapters(config) or workers(config) > 1:
        return "file"
    if not _share_a_gpu(config, gpus):
        return "nccl"
    # Among several GPUs nobody knows which of them a learner and an engine share.
    return "ipc" if config.rollout.launcher == "local" or gpus == 1 else "file"


def sleeps(config: Config) -> bool:
    """Whether engines leave their GPU to the learner while it updates."""
    if config.rollout.sleep is not None:
        return config.rollout.sleep
    return config.train.mode == "sync" and chosen(config) == "ipc"


def without_learner(config: Config) -> Config:
    """The same job where nobody learns: engines keep the weights that they begin with."""
    return replace(
        config,
        train=replace(config.train, transfer="file"),
        rollout=replace(config.rollout, sleep=False),
        model=replace(config.model, lora=replace(config.model.lora, serve="merged")),
    )


def serves_adapters(config: Config) -> bool:
    """Whether engines are given adapters alone."""
    return config.model.lora.rank > 0 and config.model.lora.serve == "adapter"


def workers(config: Config) -> int:
    """Processes of one engine, which hold a part of its weights each."""
    kwargs = config.rollout.engine_kwargs
    return int(kwargs.get("tensor_parallel_size", 1)) * int(kwargs.get("pipeline_parallel_size", 1))


def _asks(config: Config) -> bool:
    """Whether it matters what GPUs there are: to look takes the import of torch."""
    by_gpu = config.train.transfer in ("auto", "ipc", "nccl") or bool(config.rollout.sleep)
    return config.rollout.engine == "vllm" and by_gpu


def _share_a_gpu(config: Config, gpus: int) -> bool:
    """See `cluster.gpus_per_actor`; in one process, both take the first."""
    if config.rollout.launcher == "local":
        return True
    return gpus < config.rollout.actors + config.train.ranks


def _counts(config: Config, gpus: int) -> str:
    return f"{config.rollout.actors} engines, {config.train.ranks} ranks, {gpus} GPUs"


def gpus_of(config: Config) -> int | None:
    """How many the job has; None where that is a cluster that is not joined yet."""
    if config.rollout.launcher == "ray":
        if (count := ray_cluster.joined_gpus()) is not None:
            return count
        if os.environ.get("RAY_ADDRESS"):
            return None
    if find_spec("torch") is None:
        return 0
    import torch

    return torch.cuda.device_count()
