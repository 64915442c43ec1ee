"""The CPU memory and time of a job on machines without GPUs, planned without weights."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from agentrl.cluster.placement import Node
from agentrl.config import Config
from agentrl.training.plan.job_size import JobSize
from agentrl.training.plan.memory_plan import config_folder, is_config_here

_PER_CORE = 50e9
"""Operations per second of a CPU core in 32-bit matrix products; servers have 20 to 100 billion."""
_PER_PARAMETER = 6
"""Operations per parameter and token of an update: forward and backward."""
_TOKENS, _MOST_S = 1000, 60.0
"""Tokens of an update, and the longest time that it may take (seconds)."""
_GB = 1e9


def misfits(config: Config, nodes: Sequence[Node], memory: float) -> list[str]:
    """Problems of the job on machines without GPUs; none if its model's configuration is not here.

    Args:
        config: the job.
        nodes: the machines, which have no GPU.
        memory: CPU memory of each machine, in bytes.

    Raises:
        ConfigError: the model's configuration cannot be read.
    """
    if config.model.path == "tiny" or not is_config_here(config.model):
        return []
    with tempfile.TemporaryDirectory(prefix="agentrl-") as scratch:
        folder = config_folder(config.model, Path(scratch) / "model")
        size = JobSize.of(
            folder, config.model, config.optim, config.train.master_dtype, config.algorithm
        )
    needed, there = size.state + size.gradients + size.model, memory * len(nodes)
    found = []
    if needed > there:
        found.append(
            f"weights, gradients, moments and an engine take {needed / _GB:.0f} GB of CPU memory, "
            f"and there are {there / _GB:.0f}"
        )
    itemsize = 2 if config.model.dtype == "bfloat16" else 4
    parameters, cores = size.model / itemsize, sum(node.cpus for node in nodes)
    seconds = _PER_PARAMETER * parameters * _TOKENS / (_PER_CORE * max(1, cores))
    if seconds > _MOST_S:
        found.append(
            f"there is no GPU, and an update of {_TOKENS:,} tokens by {parameters / 1e9:.1f} "
            f"billion parameters takes about {seconds / 60:.0f} minutes on {cores:g} CPU cores; "
            "use a GPU (agentrl plan says how large), or a smaller model"
        )
    return found
