"""`agentrl eval`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from agentrl.cli.terminal import suggest
from agentrl.config import target_of
from agentrl.training.monitoring.result_tables import results_table

if TYPE_CHECKING:
    from agentrl.training.evaluation.evaluate import Evaluation


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
        typer.Option(
            help="Of a run: `best`, `last` or a step; default: the final model, as in merge."
        ),
    ] = None,
    demos: Annotated[
        bool,
        typer.Option("--demos", help="Play on the seeds reserved for demonstrations."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Evaluate a policy on held-out seeds and record the episodes.

    Example: agentrl eval runs/NAME --episodes 50 --greedy
    """
    from agentrl.training.evaluation.evaluate import evaluate as play

    result = play(
        target_of(target),
        episodes=episodes,
        policy=policy,
        greedy=greedy,
        checkpoint=checkpoint,
        demos=demos,
        overrides=overrides or (),
    )
    _print_json(result) if as_json else _print_table(result, target, policy, greedy, checkpoint)


def _print_json(result: "Evaluation") -> None:
    extra = {"audit": result.audit or None, "model": result.model, "run": str(result.run)}
    shown = {key: value for key, value in extra.items() if value is not None}
    typer.echo(json.dumps(result.summary() | shown))


def _print_table(
    result: "Evaluation", target: str, policy: str, greedy: bool, checkpoint: str | None
) -> None:
    who = f"{result.model or policy}{', greedy' if greedy else ''}"
    Console().print(results_table({who: result.summary()}, target))
    if policy == "model" and result.model is None and Path(target).is_dir():
        model = f"checkpoint {checkpoint}" if checkpoint else "the final model"
        typer.echo(f"model: {model} of {target}")
    if result.audit:
        from agentrl.devices import vision

        typer.echo(vision.format_audit(result.audit))
    typer.echo(f"recorded: {result.run}")
    suggest(("view", result.run), ("episodes", result.run))
