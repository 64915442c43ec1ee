"""`agentrl train`: start or resume a training job."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentrl.cli.terminal import suggest
from agentrl.errors import ConfigError

if TYPE_CHECKING:
    from agentrl.config import Config

_WIDTH = 120
"""Of a line of the plan."""


def train(
    config: Annotated[
        str, typer.Argument(help="A YAML file, a packaged name, or with --resume a run folder.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Overrides, such as train.steps=5.", metavar="KEY=VALUE"),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Check the job without running it, and print what differs from the defaults.",
        ),
    ] = False,
    print_config: Annotated[
        bool,
        typer.Option("--print-config", help="Only print the whole configuration, as YAML."),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Resume a run: the given folder, or the newest run of CONFIG.",
        ),
    ] = False,
) -> None:
    """Train a policy, or resume a run.

    Example: agentrl train configs/number_game.yaml train.steps=20
    """
    settings = [text for text in overrides or () if "=" in text]
    others = [text for text in overrides or () if "=" not in text]
    if others and not (resume and len(others) == 1):
        raise ConfigError(f"{others[0]!r}: overrides are written key=value, such as train.steps=5")
    run = _run_to_resume(others[0] if others else config, settings) if resume else None
    source = str(run / "config.yaml") if run else config
    if print_config:
        from agentrl import config as configuration

        typer.echo(configuration.to_yaml(configuration.load(source, settings)), nl=False)
        return
    if dry_run:
        _print_plan(source, settings, run)
        return
    from agentrl.training.trainer.train import train as train_job

    path = train_job(
        config, overrides=settings, resume=run, begun=lambda job: _announce(job, run)
    ).path
    typer.echo(f"run: {path}")
    suggest(("view", path), ("eval", path), ("merge", path, "my-model"))


def _announce(job: "Config", resumed: Path | None) -> None:
    """Print which run is resumed, or the plan of a new one."""
    if resumed is not None:
        file = resumed / "config.yaml"
        typer.echo(f"resuming {resumed} with its own configuration ({file})")
        return
    from agentrl.training.work_estimate import estimate_work

    for stage, amount in estimate_work(job).items():
        typer.echo(f"{stage:18} {amount}")


def _print_plan(config: str, overrides: list[str], run: Path | None) -> None:
    import yaml

    from agentrl import config as configuration
    from agentrl.training.checkpoints import checkpoint_store
    from agentrl.training.preflight import MEMORY, MISFITS, resolve
    from agentrl.training.run_folder import RunFolder

    warm_start_pending = run is None or checkpoint_store.latest(run) is None
    job = configuration.load(config, overrides)
    if run is None:
        RunFolder.check_new(job.run)
    else:
        RunFolder(run).check_writable()
    plan = resolve(job, warm_start_pending=warm_start_pending)
    for part, values in plan.items():
        flow = None if part == "config" else False  # the settings in few lines
        text = yaml.safe_dump(
            {part: values},
            sort_keys=False,
            allow_unicode=True,
            width=_WIDTH,
            default_flow_style=flow,
        )
        typer.echo(text, nl=False)
    if MISFITS in plan.get(MEMORY, {}):
        typer.echo("# The job does not fit: see memory.")
        raise typer.Exit(1)
    command = ("train", run, "--resume") if run else ("train", config, *overrides)
    typer.echo("# All checks pass. Settings that are not shown have their defaults.")
    suggest(command, (*command, "--print-config"), prefix="# ")


def _run_to_resume(target: str, overrides: list[str]) -> Path:
    """The given run folder, or the newest run of the given configuration."""
    if Path(target).is_dir():
        return Path(target)
    from agentrl import config as configuration

    is_file = Path(target).is_file() or target.endswith((".yaml", ".yml"))
    if not (is_file or configuration.is_packaged(target)):
        raise ConfigError(
            f"--resume: {target}: no such run; give a folder such as runs/NAME, or the "
            "configuration whose newest run to resume"
        )
    from agentrl.training.run_folder import runs_of

    run = configuration.load(target, overrides).run
    found = runs_of(run, Path(target).stem)
    if not found:
        name = run.name or f"{Path(target).stem}-MMDD-HHMMSS"
        raise ConfigError(f"--resume: {run.dir} contains no run {name!r}; give the run's folder")
    return max(found, key=lambda path: path.stat().st_mtime)
