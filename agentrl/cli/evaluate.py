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
            help="A run folder, a YAML file, a packaged name, or an environment (see env.id)."
        ),
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Overrides.", metavar="KEY=VALUE")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(help="Episodes, each on a held-out seed; default: eval.episodes.")
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            help="`model` (with rollout.engine=remote the server's), or a scripted player such as "
            "`random` or `expert`."
        ),
    ] = "model",
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Always take the most probable token.")
    ] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="Of a run: `best`, `last` or a step; else its final model."),
    ] = None,
    demos: Annotated[
        bool,
        typer.Option("--demos", help="Play on the seeds reserved for demonstrations."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Evaluate a policy on held-out seeds and record the episodes."""
    from agentrl.training.evaluation.evaluate import evaluate as play
    from agentrl.training.monitoring.console import results_table

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
    Console().print(results_table({who: result}, target))
    if audit is not None:
        from agentrl.devices import vision

        typer.echo(vision.format_audit(audit))
    typer.echo(f"recorded: {folder}  (agentrl episodes {folder})")
