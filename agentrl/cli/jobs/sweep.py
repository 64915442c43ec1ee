"""`agentrl sweep`: run one job with several values of its settings."""

import time
from pathlib import Path
from typing import Annotated

import typer

from agentrl.cli.command_completion import complete_config
from agentrl.cli.terminal_output import suggest


def sweep(
    config: Annotated[
        str,
        typer.Argument(
            help="A YAML file or a packaged configuration.", autocompletion=complete_config
        ),
    ],
    settings: Annotated[
        list[str],
        typer.Argument(
            help="Overrides; write several values as key=a,b or key=0..4.", metavar="KEY=VALUES"
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(help="Folder of the sweep in runs/; give the same name to continue a sweep."),
    ] = None,
    parallel: Annotated[int, typer.Option(help="Number of jobs to run at once.", min=1)] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and list the jobs without running them.")
    ] = False,
) -> None:
    """Train with every combination of the given setting values, and compare the results.

    Example: agentrl sweep frozen_lake seed=0..2 algorithm.name=grpo,dapo
    """
    from agentrl.cli.recordings.runs import print_runs
    from agentrl.files import path_of
    from agentrl.runs.run_discovery import find_runs
    from agentrl.runs.run_summary import summarize
    from agentrl.training.sweep import plan_sweep, run_sweep

    jobs = plan_sweep(config, settings)
    if dry_run:
        for job in jobs:
            typer.echo(" ".join(job.settings))
        typer.echo(f"# {len(jobs)} jobs; all settings are valid.")
        return
    title = name or f"sweep-{Path(config).stem}-{time.strftime('%m%d-%H%M%S')}"
    folder = Path("runs") / path_of(title, "--name")
    typer.echo(f"{len(jobs)} jobs in {folder}")
    failed = run_sweep(config, jobs, folder, parallel=parallel, said=typer.echo)
    if found := find_runs(folder):
        print_runs([summarize(run, folder) for run in found])
    suggest(("view", folder))
    if failed:
        # Repeating the command keeps finished jobs and resumes the others.
        again = (f"--name={title}", f"--parallel={parallel}")
        suggest(("sweep", config, *settings, *again), prefix=f"{len(failed)} failed. ")
        raise typer.Exit(1)
