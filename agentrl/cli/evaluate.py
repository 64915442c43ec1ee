"""`agentrl eval`."""

import json
from typing import Annotated

import typer
from rich.console import Console

from agentrl.cli.environment_argument import target_of


def evaluate(
    target: Annotated[
        str,
        typer.Argument(
            help="A run's folder, a YAML file, a packaged name, or an environment as env.id names "
            "it."
        ),
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings.", metavar="KEY=VALUE")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(help="Games, each on a held-out seed; eval.episodes if not said.")
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            help="`model` (with rollout.engine=remote a server's), or a scripted player such as "
            "`random` or `expert`."
        ),
    ] = "model",
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Take the most probable token each time.")
    ] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="Of a run: `best`, `last` or a step; else its final model."),
    ] = None,
    demos: Annotated[
        bool,
        typer.Option("--demos", help="Play the seeds of demonstrations, to learn from, instead."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Play games on seeds that were never trained on, and record them."""
    from agentrl.training.evaluation.evaluate import evaluate as play
    from agentrl.training.monitoring.console import table_of

    result = play(
        target_of(target),
        episodes=episodes,
        policy=policy,
        greedy=greedy,
        checkpoint=checkpoint,
        demos=demos,
        overrides=overrides or (),
    )
    if as_json:
        typer.echo(json.dumps(result))
        return
    folder, audit = result.pop("run"), result.pop("audit", None)
    who = f"{result.pop('model', policy)}{', greedy' if greedy else ''}"
    Console().print(table_of({who: result}, target))
    if audit is not None:
        from agentrl.devices import vision

        typer.echo(vision.table_of(audit))
    typer.echo(f"recorded: {folder}  (agentrl episodes {folder})")
