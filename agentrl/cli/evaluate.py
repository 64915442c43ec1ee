"""`agentrl eval`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from agentrl.cli.terminal import suggest
from agentrl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentrl.config import Config
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
        bool, typer.Option("--demos", help="Play on the seeds reserved for demonstrations.")
    ] = False,
    suite: Annotated[
        str | None,
        typer.Option(
            help="Play an evaluation suite instead (see `agentrl list suite`); default: eval.suite."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Evaluate a policy on held-out seeds and record the episodes.

    Example: agentrl eval runs/NAME --episodes 50 --greedy
    """
    from agentrl.config import target_of
    from agentrl.training.evaluation.evaluate import evaluate as play
    from agentrl.training.run_folder import open_target

    known, settings = target_of(target), overrides or []
    how: dict[str, Any] = {"episodes": episodes, "policy": policy, "greedy": greedy}
    how |= {"checkpoint": checkpoint, "overrides": settings}
    suite = suite or open_target(known, settings)[0].eval.suite
    if suite is not None:
        if demos:
            raise ConfigError("--demos: a suite is played on held-out seeds; leave it out")
        _play_suite(known, suite, how, target, as_json)
        return
    result = play(known, demos=demos, **how)
    _print_json(result) if as_json else _print_table(result, target, policy, greedy, checkpoint)


def _play_suite(
    target: "Config | str", suite: str, how: dict[str, Any], shown: str, as_json: bool
) -> None:
    from agentrl.training.evaluation.evaluate_suite import MEAN, evaluate_suite, summaries

    results = evaluate_suite(target, suite, **how)
    rows = summaries(results)
    runs = {name: str(result.run) for name, result in results.items()}
    if as_json:
        typer.echo(json.dumps({"entries": rows, "runs": runs}))
        return
    Console(emoji=False).print(_suite_table(rows, [*rows[MEAN]], f"{shown}: {suite}"))
    for name, run in runs.items():
        typer.echo(f"recorded: {run} ({name})")
    suggest(("view", next(iter(runs.values()))))


def _suite_table(
    rows: "Mapping[str, Mapping[str, float]]", metrics: list[str], title: str
) -> Table:
    """One row per entry; components of the reward and durations are left to --json."""
    columns = [*(name for name in metrics if "/" not in name), "episodes", "void"]
    table = Table("", *map(escape, columns), title=Text(title))
    for name, numbers in rows.items():
        cells = (f"{numbers[column]:g}" if column in numbers else "" for column in columns)
        table.add_row(escape(name), *cells)
    return table


def _print_json(result: "Evaluation") -> None:
    extra = {"audit": result.audit or None, "model": result.model, "run": str(result.run)}
    shown = {key: value for key, value in extra.items() if value is not None}
    typer.echo(json.dumps(result.summary() | shown))


def _print_table(
    result: "Evaluation", target: str, policy: str, greedy: bool, checkpoint: str | None
) -> None:
    from agentrl.training.monitoring.result_tables import results_table

    who = f"{result.model or policy}{', greedy' if greedy else ''}"
    Console(emoji=False).print(results_table({who: result.summary()}, target))
    if policy == "model" and result.model is None and Path(target).is_dir():
        model = f"checkpoint {checkpoint}" if checkpoint else "the final model"
        typer.echo(f"model: {model} of {target}")
    if result.audit:
        from agentrl.devices import vision

        typer.echo(vision.format_audit(result.audit))
    typer.echo(f"recorded: {result.run}")
    suggest(("view", result.run), ("episodes", result.run))
