"""`agentrl train`: start or resume a training job."""

from typing import TYPE_CHECKING

import typer

from agentrl.cli.jobs.job_options import JobOptions, job_command
from agentrl.cli.terminal_output import announce, suggest
from agentrl.text.formatting import shown_path

if TYPE_CHECKING:
    from agentrl.training.plan.job_plan import JobPlan

_WIDTH = 120
"""Line width of the printed plan, in characters."""


@job_command
def train(options: JobOptions) -> None:
    """Train a policy, or resume a run.

    Example: agentrl train configs/number_game.yaml train.steps=20
    """
    if options.dry_run:
        _print_plan(options)
        return
    from agentrl.training.trainer.train import train as train_job

    run = train_job(
        options.config,
        overrides=options.settings,
        resume=options.run,
        begun=lambda plan: _announce(plan, options),
    )
    path = shown_path(run.path)
    typer.echo(f"run: {path}")
    suggest(("view", path), ("eval", path), ("merge", path, "my-model"))


def _announce(plan: "JobPlan", options: JobOptions) -> None:
    """Print which run is resumed, or the plan of a new run."""
    options.announce_resumed()
    if options.run is not None:
        return
    from agentrl.training.plan.work_estimate import estimate_work

    settings = plan.settings
    stages = estimate_work(plan.play, settings.warm_start, settings.train.steps)
    for stage, amount in stages.items():
        typer.echo(f"{stage:18} {amount}")


def _print_plan(options: JobOptions) -> None:
    import yaml

    from agentrl import config as configuration

    run = options.run
    job = configuration.load(options.config, options.settings)
    options.check_folder()
    announce(f"checking {options.config}")
    # Imported late: this loads torch, which takes seconds.
    from agentrl.training.checkpoints import checkpoint_store
    from agentrl.training.plan.dry_run import MEMORY, MISFITS, describe_plan
    from agentrl.training.plan.job_plan import plan_training

    is_pending = run is None or checkpoint_store.latest(run) is None
    plan = plan_training(job, warm_start_pending=is_pending, begins=False)
    found = describe_plan(plan, run=run)
    # Imported late: this loads torch, and the plan has checked that it is installed.
    from agentrl.check import check_own_classes

    check_own_classes(job.algorithm)
    for part, values in found.items():
        # Print short lists and sections on one line, to keep the settings compact.
        flow = None if part == "config" else False
        text = yaml.safe_dump(
            {part: values},
            sort_keys=False,
            allow_unicode=True,
            width=_WIDTH,
            default_flow_style=flow,
        )
        typer.echo(text, nl=False)
    if MISFITS in found.get(MEMORY, {}):
        typer.echo("# The job does not fit; see `memory` above.")
        raise typer.Exit(1)
    command = ("train", run, "--resume") if run else ("train", options.config, *options.settings)
    typer.echo("# All checks pass. Settings that are not shown have their defaults.")
    suggest(command, (*command, "--print-config"), prefix="# ")
