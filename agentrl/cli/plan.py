"""`agentrl plan`: the memory that a job takes on each GPU, without running it."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from agentrl.cli.terminal import suggest
from agentrl.errors import ConfigError

if TYPE_CHECKING:
    from agentrl.training.memory_plan import MemoryPlan

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(?:GB)?", re.IGNORECASE)


def plan(
    config: Annotated[str, typer.Argument(help="A YAML file or a packaged name.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Overrides, such as optim.moments=8bit.", metavar="KEY=VALUE"),
    ] = None,
    gpu: Annotated[str, typer.Option(help="Memory of each GPU, such as 80GB.")] = "80GB",
    gpus: Annotated[int, typer.Option(help="Number of GPUs per node.", min=1)] = 1,
    nodes: Annotated[int, typer.Option(help="Number of nodes.", min=1)] = 1,
) -> None:
    """Plan the memory of a training job on GPUs that need not be there.

    The learner's own code runs on tensors without values. The model's weights are not needed, only
    its configuration. Exits with 1 if the job does not fit.

    Example: agentrl plan number_game_7b --gpu 80GB --gpus 8
    """
    from agentrl import config as configuration
    from agentrl.training.memory_plan import plan_memory

    card = _bytes(gpu)
    job = configuration.load(config, overrides or ())
    found = plan_memory(job, card, gpus, nodes)
    typer.echo(f"{job.model.path}: {_where(found)}, {nodes * gpus} x {card / 1e9:g} GB")
    print_plan(found)
    if found.problems:
        raise typer.Exit(1)
    suggest(("train", config, *(overrides or ()), "--dry-run"))


def print_plan(found: "MemoryPlan") -> None:
    """Print the items of a plan, in GB of 10^9 bytes, and whether they fit."""
    card = found.card / 1e9
    _print("GPU of a rank, at the peak of an update", found.learning)
    typer.echo(f"  {'total':44} {sum(found.learning.values()) / 1e9:8.2f}  of {card:g}")
    _print("GPU of an engine, while it plays", found.playing)
    tokens = max(0, found.kv_tokens)
    left = max(0.0, found.card - sum(found.playing.values())) / 1e9
    contexts = f"{tokens:,} tokens, {tokens // found.max_context} contexts of {found.max_context}"
    typer.echo(f"  {'left for the KV cache':44} {left:8.2f}  {contexts}")
    if found.cpu:
        _print("CPU memory per node", found.cpu)
    typer.echo("\n".join(f"does not fit: {problem}" for problem in found.problems) or "fits")


def _print(title: str, items: Mapping[str, float]) -> None:
    typer.echo(f"{title} (GB)")
    for name, size in items.items():
        typer.echo(f"  {name:44} {size / 1e9:8.2f}")


def _where(found: "MemoryPlan") -> str:
    layout = found.layout
    place = "together" if layout.together else "apart"
    return f"{len(layout.ranks)} ranks and {len(layout.engines)} engines {place}"


def _bytes(text: str) -> float:
    match = _SIZE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise ConfigError(f"--gpu {text}: must be a size such as 80GB")
    return float(match[1]) * 1e9
