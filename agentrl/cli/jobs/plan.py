"""`agentrl plan`: compute the memory a job needs on each GPU, without running it."""

import re
from typing import Annotated

import typer

from agentrl.cli.command_completion import complete_config
from agentrl.cli.jobs.job_options import OVERRIDES
from agentrl.cli.terminal_output import suggest
from agentrl.errors import ConfigError
from agentrl.text.formatting import pluralize, printable

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(?:GB)?", re.IGNORECASE)


def plan(
    config: Annotated[
        str,
        typer.Argument(
            help="A YAML file or a packaged configuration.", autocompletion=complete_config
        ),
    ],
    overrides: OVERRIDES = None,
    gpu: Annotated[str, typer.Option(help="Memory of each GPU, such as 80GB.")] = "80GB",
    gpus: Annotated[int, typer.Option(help="Number of GPUs per node.", min=1)] = 1,
    nodes: Annotated[int, typer.Option(help="Number of nodes.", min=1)] = 1,
    memory: Annotated[
        str | None, typer.Option(help="CPU memory of each node, such as 512GB.")
    ] = None,
) -> None:
    """Compute the memory that a training job needs on GPUs, which this machine need not have.

    Runs the learner's own code on tensors without data, so only the model's configuration is
    needed, not its weights. Exits with 1 if the job does not fit.

    Example: agentrl plan number_game_7b --gpu 80GB --gpus 8
    """
    from agentrl import config as configuration

    card = _bytes("--gpu", gpu)
    host = None if memory is None else _bytes("--memory", memory)
    job = configuration.load(config, overrides or ())
    _say(f"planning {config} without weights")
    # Imported late: these load torch and transformers, which takes seconds.
    from agentrl.cluster.placement import unused_gpus
    from agentrl.policies.open_engine import engine_class
    from agentrl.rollout.rollout_plan import plan_rollouts
    from agentrl.training.learner.learner_settings import LearnerSettings
    from agentrl.training.plan.memory_plan import layout_on, plan_memory

    each = engine_class(job.rollout).num_gpus(job.rollout.engine_kwargs)
    layout = layout_on(gpus, nodes, job.rollout, job.train)
    job.validate_for_training()
    learner, play = LearnerSettings.of(job), plan_rollouts(job)
    found = plan_memory(learner, play, job.checkpoint, layout, card, report=_say, host=host)
    ranks, engines = pluralize(len(layout.ranks), "rank"), pluralize(len(layout.engines), "engine")
    place = f"{ranks} and {engines} {'together' if layout.together else 'apart'}"
    typer.echo(f"{job.model.path}: {place}, {nodes * gpus} x {card / 1e9:g} GB")
    for title, items in found.describe().items():
        typer.echo(title)
        for name, size in items.items():
            number, _, rest = (size if isinstance(size, str) else f"{size:.2f}").partition(" ")
            typer.echo(f"  {name:44} {number:>8}  {rest}".rstrip())
    for warning in filter(
        None, (unused_gpus(layout, job.rollout, job.train, each), found.host.warning)
    ):
        typer.echo(f"note: {warning}")
    typer.echo("\n".join(f"does not fit: {problem}" for problem in found.problems) or "fits")
    if found.problems:
        raise typer.Exit(1)
    suggest(("train", config, *(overrides or ()), "--dry-run"))


def _say(what: str) -> None:
    """Announce a step that takes seconds or minutes, on a terminal or in a log."""
    typer.echo(printable(f"{what} ..."), err=True)


def _bytes(option: str, text: str) -> float:
    match = _SIZE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise ConfigError(f"{option} {text}: must be a size such as 80GB")
    # Decimal units, as in data sheets: 80GB is 80 * 10^9 bytes.
    return float(match[1]) * 1e9
