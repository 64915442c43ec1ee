"""`agentrl sft`: supervised fine-tuning on conversations."""

import typer

from agentrl.cli.job_options import (
    CONFIG,
    DRY_RUN,
    OVERRIDES,
    PRINT_CONFIG,
    RESUME,
    JobOptions,
)
from agentrl.cli.terminal import suggest


def sft(
    config: CONFIG,
    overrides: OVERRIDES = None,
    dry_run: DRY_RUN = False,
    print_config: PRINT_CONFIG = False,
    resume: RESUME = False,
) -> None:
    """Fine-tune a model on conversations, or resume that.

    Example: agentrl sft my_sft.yaml sft.train.data=chats.jsonl optim.lr=1e-5
    """
    options = JobOptions.of(config, overrides, resume=resume)
    if print_config:
        options.print_config()
        return
    if dry_run:
        _print_plan(options)
        return
    from agentrl.training.finetuning.sft import sft as sft_job

    path = sft_job(
        config,
        overrides=options.settings,
        resume=options.run,
        begun=lambda _: options.announce_resumed(),
    ).path
    typer.echo(f"run: {path}")
    suggest(("merge", path, "my-model"), ("train", "CONFIG", f"model.path={path}/model"))


def _print_plan(options: JobOptions) -> None:
    from agentrl import config as configuration
    from agentrl.training.finetuning.sft import SupervisedFinetuning

    job = configuration.load(options.config, options.settings)
    options.check_folder()
    found = SupervisedFinetuning().check(job, restored=False)
    typer.echo(f"conversations to learn from: {len(found.train_indices)}")
    typer.echo(f"held out: {len(found.held_out_indices)}")
    run = options.run
    command = ("sft", run, "--resume") if run else ("sft", options.config, *options.settings)
    typer.echo("# All checks pass; the lengths of conversations are checked when the job starts.")
    suggest(command, (*command, "--print-config"), prefix="# ")
