"""`agentrl eval`."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text


def evaluate(
    target: Annotated[str, typer.Argument(help="A run's folder, a YAML file or a packaged name.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings.", metavar="KEY=VALUE")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(help="Games, each on a held-out seed; eval.episodes if not said.")
    ] = None,
    policy: Annotated[
        str, typer.Option(help="`model`, or a scripted player such as `random` or `expert`.")
    ] = "model",
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Take the most probable token each time.")
    ] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="Of a run: `best`, `last` or a step; else its final model."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Play games on seeds that were never trained on."""
    from agentrl.training.evaluation import evaluate as play

    result = play(
        target,
        episodes=episodes,
        policy=policy,
        greedy=greedy,
        checkpoint=checkpoint,
        overrides=overrides or (),
    )
    if as_json:
        typer.echo(json.dumps(result))
        return
    folder, audit = result.pop("run"), result.pop("audit", None)
    title = Text(f"{target}: {policy}{', greedy' if greedy else ''}")
    table = Table(*map(escape, result), title=title)
    table.add_row(*(f"{value:g}" for value in result.values()))
    Console().print(table)
    if audit is not None:
        from agentrl.devices.sight import table_of

        typer.echo(table_of(audit))
    typer.echo(f"recorded: {folder}  (agentrl replay {folder} --list)")
