"""`agentrl export`."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[str, typer.Argument(help="A run's folder.")],
    out: Annotated[
        Path,
        typer.Argument(
            help="FILE.parquet, FILE.csv, FILE.jsonl, or a new folder for a Hugging Face data set."
        ),
    ],
    kind: Annotated[
        str,
        typer.Option(
            "--as",
            help="`episodes`, a row each; `turns`, for offline reinforcement learning; "
            "`conversations`, for supervised fine-tuning.",
        ),
    ] = "conversations",
    split: Annotated[str | None, typer.Option(help="Only `train`, `eval` or `demo`.")] = None,
    label: Annotated[
        str | None, typer.Option(help="Only of this play, such as `after-sampled` or `human`.")
    ] = None,
    step: Annotated[int | None, typer.Option(help="Only of this training step.")] = None,
    won: Annotated[
        bool | None, typer.Option("--won/--lost", help="Only those that were won, or were not.")
    ] = None,
    least: Annotated[float | None, typer.Option(help="Only with at least this reward.")] = None,
) -> None:
    """Write recorded episodes as a table or a data set."""
    from agentrl import replay
    from agentrl.replay import tables

    wanted = replay.Filter(split=split, label=label, step=step, won=won, least=least)
    count = tables.write(replay.open(run), kind, out, wanted)
    typer.echo(f"wrote {out}: {count} rows")
