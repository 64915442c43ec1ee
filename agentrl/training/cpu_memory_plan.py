"""What a job without GPUs needs of the machine, planned without weights."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from agentrl.cluster.placement import Node
from agentrl.config import Config
from agentrl.training.job_size import JobSize
from agentrl.training.memory_plan import config_folder

_PER_CORE = 50e9
"""Operations per second of a CPU core in 32-bit matrix products; servers have 20 to 100 billion."""
_PER_PARAMETER = 6
"""Operations per parameter and token of an update: forward and backward."""
_TOKENS, _MOST_S = 1000, 60.0
"""An update of so many tokens may take so long."""
_GB = 1e9


def misfits(config: Config, nodes: Sequence[Node], memory: float) -> list[str]:
    """What the job lacks on machines without GPUs, as texts; empty if it may run.

    Args:
        config: the job; a built-in or local model, or one whose configuration is known.
        nodes: where it runs.
        memory: CPU memory of each.

    Raises:
        ConfigError: the model's configuration cannot be read.
    """
    if config.model.path == "tiny":
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
