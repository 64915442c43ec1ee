"""`agentrl train`: start or resume a training job."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from agentrl.errors import ConfigError

if TYPE_CHECKING:
    from agentrl.config import ModelConfig, RolloutConfig


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
            help="Check and print the job without running it.",
        ),
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
    if run and not dry_run:
        typer.echo(f"resuming {run} with its own configuration ({run / 'config.yaml'})")
    if dry_run:
        _print_plan(str(run / "config.yaml") if run else config, settings, run)
        return
    from agentrl.training.budget import budget
    from agentrl.training.trainer.train import train as train_job

    path = train_job(
        config, overrides=settings, resume=run, begun=lambda job: _print_budget(budget(job))
    ).path
    typer.echo(f"run: {path}")
    typer.echo(f"View: agentrl view {path}   Evaluate: agentrl eval {path}")


def _print_budget(amounts: Mapping[str, str]) -> None:
    for stage, amount in amounts.items():
        typer.echo(f"{stage:18} {amount}")


def _print_plan(config: str, overrides: list[str], run: Path | None) -> None:
    from agentrl import config as configuration
    from agentrl.training import checkpoint_store
    from agentrl.training.plan import resolve

    warm_start_pending = run is None or checkpoint_store.latest(run) is None
    job = configuration.load(config, overrides)
    plan = resolve(job, warm_start_pending=warm_start_pending)
    typer.echo(yaml.safe_dump(plan, sort_keys=False, allow_unicode=True), nl=False)
    typer.echo("# Checked: settings, names, installed packages, files and phones. Nothing was run.")
    typer.echo(f"# Not checked: {'; '.join(_not_checked(job.logging, job.model, job.rollout))}.")
    if run is None:
        typer.echo(f"# Start: agentrl train {shlex.join([config, *overrides])}")


def _not_checked(loggers: list[str], model: "ModelConfig", rollout: "RolloutConfig") -> list[str]:
    """What may still keep a job from starting, or from learning, after a dry run."""
    accounts = {"wandb", "swanlab"} & {name.removesuffix("?") for name in loggers}
    replies = f"whether rollout.max_new_tokens={rollout.max_new_tokens} is enough for a reply"
    return [
        "memory and disk space",
        f"the tokenizer and chat template of model.path={model.path}",
        replies,
        *(f"login of {name}" for name in sorted(accounts)),
    ]


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
    run = configuration.load(target, overrides).run
    pattern = run.name or f"{Path(target).stem}-*"
    found = [path for path in Path(run.dir).glob(pattern) if (path / "config.yaml").is_file()]
    if not found:
        raise ConfigError(f"--resume: {run.dir} contains no run {pattern!r}")
    return max(found, key=lambda path: path.stat().st_mtime)
