"""`agentrl pipeline`: run several jobs in sequence."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from agentrl.cli.jobs.job_options import OVERRIDES
from agentrl.cli.terminal_output import print_table, suggest
from agentrl.errors import ConfigError

if TYPE_CHECKING:
    from agentrl.training.pipeline import Stage

log = logging.getLogger(__name__)


_ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue a pipeline. Finished stages are kept; overrides (STAGE.key=value) "
        "apply to stages that have not started yet.",
    ),
]


def pipeline(
    source: Annotated[
        str,
        typer.Argument(
            help="A YAML file with stages, a packaged pipeline, or with --resume a pipeline folder."
        ),
    ],
    overrides: OVERRIDES = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check all stages without running them.")
    ] = False,
    resume: _ResumeOption = False,
) -> None:
    """Run several jobs in sequence, each starting from the model of the one before.

    Example: agentrl pipeline stages.yaml rl.train.steps=50
    """
    from agentrl.training import pipeline as stages
    from agentrl.training.pipeline_results import rows_of
    from agentrl.viewer import export

    settings = overrides or []
    if dry_run:
        if resume:
            raise ConfigError("--dry-run checks a file; it cannot be combined with --resume")
        from agentrl.check import check_own_classes

        for name, job in stages.check_pipeline(source, settings).items():
            check_own_classes(job.algorithm)
            typer.echo(f"stage {name}")
        typer.echo("# All checks pass. Data from earlier stages is checked when a stage starts.")
        suggest(("pipeline", source, *settings), prefix="# ")
        return

    def begun(stage: "Stage", run: Path) -> None:
        typer.echo(f"stage {stage.name}: agentrl {stage.job}, {run}")
        try:
            export.write_pipeline_report(run.parent)
        # A failed report must not fail the pipeline after successful training.
        except ConfigError as error:
            log.warning("%s", error)

    folder = stages.run_pipeline(
        source, overrides=settings, resume=source if resume else None, begun=begun
    )
    table = Table("stage", "job", "steps", "time", "results")
    for row in rows_of(stages.stored_pipeline(folder).report(folder)):
        table.add_row(*map(escape, row))
    print_table(table)
    typer.echo(f"pipeline: {folder}")
    typer.echo(f"report: {export.write_pipeline_report(folder)}")
    # Sort by number, because by name stage 10 would precede stage 2.
    models = sorted(folder.glob("*-*/model"), key=lambda one: int(one.parent.name.split("-")[0]))
    played = [model.parent for model in models if (model.parent / "episodes").is_dir()]
    suggest(*(("view", run) for run in played[-1:]), ("infer", models[-1], "DATA", "--out", "FILE"))
