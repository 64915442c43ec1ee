"""`agentrl export`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agentrl.errors import ConfigError
from agentrl.text import pluralize, printable


def export(
    run: Annotated[str, typer.Argument(help="A run's folder.")],
    out: Annotated[
        Path,
        typer.Argument(
            help="FILE.parquet, FILE.csv, FILE.jsonl, or a new folder for a data set of Hugging "
            "Face or Minari."
        ),
    ],
    kind: Annotated[
        str,
        typer.Option(
            "--as",
            help="`episodes`, a row each; `turns`, for offline reinforcement learning; "
            "`conversations`, for supervised fine-tuning; `minari`, a data set of Minari in a new "
            "folder that is named as it is, such as game-v0.",
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
    held_out: Annotated[
        bool,
        typer.Option(
            "--held-out",
            help="Also of evaluations, whose seeds training should not see; `--split eval` has "
            "these alone. Without it they are among `episodes` only.",
        ),
    ] = False,
    replies: Annotated[
        bool, typer.Option("--replies", help="Minari: actions are the replies, as words.")
    ] = False,
    width: Annotated[
        int | None, typer.Option(help="Minari: scale pictures to so many pixels.", min=1)
    ] = None,
) -> None:
    """Write recorded episodes as a table or a data set."""
    from agentrl import replay
    from agentrl.replay.episode_filters import check_label
    from agentrl.replay.export import minari_export, tables_export

    kinds = (*tables_export.KINDS, "minari")
    if kind not in kinds:
        raise ConfigError(f"--as {kind}: must be one of {', '.join(kinds)}")
    if kind != "minari" and (replies or width is not None):
        raise ConfigError("--replies and --width go with --as minari")
    wanted = replay.Filter(split=split, label=label, step=step, won=won, least=least)
    opened = replay.open(run)
    check_label(label, opened.episodes())
    if kind != "episodes" and split is None and not held_out:
        if count := len(opened.episodes(replace(wanted, held_out=True))):
            typer.echo(f"left out: {count} of evaluations (--held-out takes them too)")
        wanted = replace(wanted, held_out=False)
    if kind == "minari":
        with _progress() as tell:
            written, left_out = minari_export.write(
                opened, out, wanted, replies=replies, width=width, tell=tell
            )
        for why, count in left_out.items():
            typer.echo(f"left out: {count} {why}")
        typer.echo(f"wrote {out}: {pluralize(written, 'episode')}")
        return
    labels = tables_export.write(opened, kind, out, wanted)
    told = printable(", ".join(f"{count} {label}" for label, count in labels.most_common()))
    typer.echo(f"wrote {out}: {pluralize(labels.total(), 'row')} ({told})")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar that goes with the work; nothing where nobody looks."""
    from rich.progress import MofNCompleteColumn, Progress

    console = Console(stderr=True)
    with Progress(
        *Progress.get_default_columns(), MofNCompleteColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task("reading", total=None)

        def tell(done: int, total: int) -> None:
            bar.update(task, description="writing", completed=done, total=total)

        yield tell
