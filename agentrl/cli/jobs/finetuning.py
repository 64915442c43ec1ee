"""`agentrl sft`, `agentrl dpo` and `agentrl train-reward-model`: training on data sets."""

from typing import TYPE_CHECKING, Any

import typer

from agentrl.cli.jobs.job_options import JobOptions, job_command
from agentrl.cli.terminal_output import suggest
from agentrl.text.formatting import shown_path

if TYPE_CHECKING:
    from agentrl.training.offline.finetuning_job import FinetuningJob


@job_command
def sft(options: JobOptions) -> None:
    """Fine-tune a model on conversations, or resume a run.

    Example: agentrl sft my_sft.yaml sft.train.data=chats.jsonl optim.lr=1e-5
    """
    from agentrl.training.offline.finetuning_methods import SupervisedFinetuning

    if (path := _run(SupervisedFinetuning, options)) is not None:
        suggest(("merge", path, "my-model"), ("train", "CONFIG", f"model.path={path}/model"))


@job_command
def dpo(options: JobOptions) -> None:
    """Train a model on preference pairs (a better and a worse answer), or resume a run.

    Example: agentrl dpo my_dpo.yaml dpo.train.data=pairs.jsonl dpo.beta=0.1
    """
    from agentrl.training.offline.finetuning_methods import PreferenceTraining

    if (path := _run(PreferenceTraining, options)) is not None:
        suggest(("merge", path, "my-model"), ("train", "CONFIG", f"model.path={path}/model"))


@job_command
def train_reward_model(options: JobOptions) -> None:
    """Train a reward model on preference pairs, or resume a run.

    Example: agentrl train-reward-model my.yaml reward_model.train.data=pairs.jsonl
    """
    from agentrl.training.offline.finetuning_methods import RewardModelTraining

    if (path := _run(RewardModelTraining, options)) is not None:
        reward = f"rewards=[{{function: model, kwargs: {{path: {path}}}}}]"
        suggest(("train", "CONFIG", reward), ("serve-reward", path))


def _run(job: "type[FinetuningJob]", options: JobOptions) -> Any:
    """Train and return the run's folder, or only check the job and return None."""
    if options.dry_run:
        from agentrl import config as configuration

        options.check_folder()
        plan = job(configuration.load(options.config, options.settings)).plan(restored=False)
        typer.echo(f"training examples: {len(plan.examples.train_indices)}")
        typer.echo(f"held-out examples: {len(plan.examples.held_out_indices)}")
        name, resumed = job.command.removeprefix("agentrl "), options.run
        given = (resumed, "--resume") if resumed else (options.config, *options.settings)
        typer.echo("# All checks pass. The lengths of examples are checked when the job starts.")
        suggest((name, *given), (name, *given, "--print-config"), prefix="# ")
        return None
    from agentrl.training.job import run_job

    run = run_job(
        job, options.config, options.settings, options.run, lambda _: options.announce_resumed()
    )
    path = shown_path(run.path)
    typer.echo(f"run: {path}")
    return path
